"""Trials of recipes: what they may change, within which bounds, and how they are judged.

That is by their best loss on the selection part; the test part is never looked at.
"""

import hashlib
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Protocol, final
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from predictor import canonical
from predictor.canonical import Json
from predictor.errors import ConfigurationError, MissingPackageError
from predictor.networks import Setting, configured, kind_named, write_config
from trainers.loop import EpochReport, LoopError, Report
from trainers.progress import ReportConsumer
from trainers.stock.data import History
from trainers.stock.fitting import FittedNetwork, fit, prepare
from trainers.stock.recipe import StockRecipe
from trainers.stock.splits import DataSplits, SplitPart

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial


SETTINGS: Final = "settings_sha256"

STARTUP_TRIALS: Final = 5

"""Trials that are drawn blindly and never pruned; later ones are compared with them."""

WARMUP_EPOCHS: Final = 2

_SECRET: Final = re.compile(r"passw|pwd|secret|token", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyStorage:
    """A study in a database.

    Attributes:
        uri: As SQLAlchemy writes it, such as `sqlite:///tune.db`; a server's lets several machines search together.
        name: Of the study in it.
    """

    uri: str
    name: str

    def __post_init__(self) -> None:
        """Refuse a password, which the command line would show to every user of the machine."""
        parts = urlsplit(self.uri)
        if parts.password or any(_SECRET.search(name) for name, _ in parse_qsl(parts.query)):
            raise ConfigurationError("the storage's address holds a password; put it into the database's password file")


def require_optuna() -> None:
    """Raise MissingPackageError, naming the extra, unless optuna is installed."""
    if find_spec("optuna") is None:
        raise MissingPackageError.of("optuna", "tune", "a search for settings")


@contextmanager
def open_study(storage: StudyStorage, settings: Mapping[str, Json], seed: int) -> "Generator[Study]":
    """The study, made if it is not there; its database is closed at the end.

    Args:
        storage: where it is.
        settings: everything that the trials share: bars, features, the recipe that they vary.
        seed: of the values that are drawn.

    Raises:
        MissingPackageError: optuna is not installed.
        ConfigurationError: the storage cannot be opened, or the study there searches something else.
    """
    require_optuna()
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with ExitStack() as ending:
        try:
            database = optuna.storages.RDBStorage(storage.uri)
            ending.callback(_close, database)
            study = optuna.create_study(
                storage=database,
                study_name=storage.name,
                load_if_exists=True,
                direction="minimize",
                pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS, n_warmup_steps=WARMUP_EPOCHS),
            )
        except (SQLAlchemyError, ImportError) as error:  # the second: no driver for such a database is installed
            problem = f"the storage of study {storage.name!r} cannot be opened: {error.args[0]}"
            raise ConfigurationError(problem) from error
        # Another seed after each stop: the same one would draw the same first trials again.
        study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials), n_startup_trials=STARTUP_TRIALS)
        _check_same(study, settings)
        yield study


def _close(database: "RDBStorage") -> None:
    """Let go of the file or the server; optuna itself leaves that to the garbage collector."""
    database.remove_session()
    database.engine.dispose()


def _check_same(study: "Study", settings: Mapping[str, Json]) -> None:
    digest = hashlib.sha256(canonical.to_bytes(dict(settings))).hexdigest()
    kept = study.user_attrs.get(SETTINGS)
    if kept is None:
        study.set_user_attr(SETTINGS, digest)
    elif kept != digest:
        raise ConfigurationError(
            f"study {study.study_name!r} searched with other bars, features or settings; choose another --out or "
            "--storage, or remove the old study to start over"
        )


CHOICES: Final[Mapping[str, tuple[int, ...]]] = {
    "hidden": (16, 32, 64),
    "layers": (1, 2, 3),
    "blocks": (1, 2),
    "heads": (2, 4, 8),
    "neighbours": (5, 10, 20),
    "frequencies": (0, 2, 4, 8),
}

"""Sizes of networks that are tried, where a kind has them; the widths are multiples of all heads."""


DROPOUT: Final = (0.0, 0.6)

LEARNING_RATE: Final = (1e-4, 1e-2)

WEIGHT_DECAY: Final = (1e-5, 1.0)

BATCH_SIZES: Final = (32, 64, 128, 256)


class ValueSuggester(Protocol):
    """What is asked for values: a trial of the study, or one that repeats chosen values."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """A number between both; `log` draws its logarithm evenly."""
        ...

    def suggest_categorical(self, name: str, choices: tuple[int, ...]) -> int:
        """One of the choices."""
        ...


def suggested(trial: ValueSuggester, recipe: StockRecipe) -> StockRecipe:
    """The recipe with a trial's values in place of its own."""
    return replace(
        recipe,
        config=configured(kind_named(recipe.kind), _network(trial, recipe)),
        optimisation=replace(
            recipe.optimisation,
            learning_rate=trial.suggest_float("learning_rate", *LEARNING_RATE, log=True),
            weight_decay=trial.suggest_float("weight_decay", *WEIGHT_DECAY, log=True),
            batch_size=trial.suggest_categorical("batch_size", BATCH_SIZES),
        ),
    )


def _network(trial: ValueSuggester, recipe: StockRecipe) -> dict[str, Setting]:
    settings = write_config(recipe.config)
    sizes = {name: trial.suggest_categorical(name, choices) for name, choices in CHOICES.items() if name in settings}
    return {**settings, **sizes, "dropout": trial.suggest_float("dropout", *DROPOUT)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Search:
    """What is searched.

    Attributes:
        history: Inputs and labels.
        splits: Its parts; training and selection are looked at.
        recipe: What trials vary.
        settings: Everything that the trials share, which identifies a stopped search.
        trials: How many there are to be in all, those of earlier runs included.
        seeds: From how many seeds the best one is fitted again.
    """

    history: History
    splits: DataSplits
    recipe: StockRecipe
    settings: Mapping[str, Json]
    trials: int
    seeds: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The best recipe, and how much of its advantage was luck.

    Attributes:
        recipe: The best trial's.
        selection: The part that losses are of: pinball, in units of each window's volatility.
        trials: How many were tried, whatever came of them.
        pruned: How many of these were stopped because they fell behind.
        failed: How many ended in an error, such as a loss that was not a number.
        best_trial_loss: Selection loss of the best trial: the smallest of many, so too good.
        seed_losses: Selection losses of the same recipe from fresh seeds: without the luck of a seed, though still on
            the days that it was chosen by.
    """

    recipe: StockRecipe
    selection: SplitPart
    trials: int
    pruned: int
    failed: int
    best_trial_loss: float
    seed_losses: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Of the fresh seeds' losses."""
        return float(np.mean(self.seed_losses))

    @property
    def deviation(self) -> float:
        """Standard deviation between the fresh seeds; 0 for one."""
        return float(np.std(self.seed_losses, ddof=1)) if len(self.seed_losses) > 1 else 0.0

    def card(self) -> dict[str, Json]:
        """What an artifact's card records of the search."""
        return {
            "selection": {"first": self.selection.first, "last": self.selection.last},
            "trials": self.trials,
            "pruned": self.pruned,
            "failed": self.failed,
            "best_trial_loss": self.best_trial_loss,
            "seed_losses": list(self.seed_losses),
            "mean": self.mean,
            "standard_deviation": self.deviation,
        }


def search(
    asked: Search,
    storage: StudyStorage,
    *,
    consume: ReportConsumer,
    announce: Callable[[str], None] = lambda _said: None,
) -> SearchResult:
    """Run the trials that are missing, then fit the best recipe again from fresh seeds.

    Args:
        asked: what is searched.
        storage: where trials are kept.
        consume: progress of the epochs of every fit.
        announce: told of every trial and seed.

    Raises:
        MissingPackageError: optuna is not installed.
        ConfigurationError: see `open_study`; or no trial of an earlier run came to an end, and no more are asked for.
        LoopError: a trial failed before any came to an end.
    """
    with open_study(storage, asked.settings, asked.recipe.optimisation.seed) as study:
        return _searched(asked, study, consume, announce)


def _searched(asked: Search, study: "Study", consume: ReportConsumer, announce: Callable[[str], None]) -> SearchResult:
    from optuna.trial import TrialState

    complete, pruned, failed = TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL

    def ended(*states: TrialState) -> "Sequence[FrozenTrial]":
        return study.get_trials(deepcopy=False, states=states)

    while len(ended(complete, pruned, failed)) < asked.trials:
        announce(_told(len(ended(complete, pruned, failed)), asked.trials, ended(complete)))
        # The first error is raised: settings that no trial survives would fail every one of them.
        forgiven = (LoopError,) if ended(complete) else ()
        study.optimize(partial(_loss_of_trial, asked, consume), n_trials=1, catch=forgiven)
    if not ended(complete):
        raise ConfigurationError(
            f"none of the {len(ended(pruned, failed))} trials in study {study.study_name!r} finished; fix what made "
            "them fail and ask for more --trials, or choose another --storage"
        )
    recipe = suggested(study.best_trial, asked.recipe)
    return SearchResult(
        recipe=recipe,
        selection=asked.splits.selection,
        trials=len(ended(complete, pruned, failed)),
        pruned=len(ended(pruned)),
        failed=len(ended(failed)),
        best_trial_loss=study.best_value,
        seed_losses=tuple(_seed_losses(asked, recipe, consume, announce)),
    )


def _told(done: int, trials: int, complete: "Sequence[FrozenTrial]") -> str:
    losses = [trial.value for trial in complete if trial.value is not None]
    best = f"; the best selection loss so far is {min(losses):.5f}" if losses else ""
    return f"trial {done + 1} of {trials}{best}"


def _loss_of_trial(asked: Search, consume: ReportConsumer, trial: "Trial") -> float:
    """The best selection loss of one trial."""
    recipe = suggested(trial, asked.recipe)
    fitted = _fitted(asked, recipe, _TrialPruner(trial, consume))
    return fitted.best_loss


def _seed_losses(
    asked: Search, recipe: StockRecipe, consume: ReportConsumer, announce: Callable[[str], None]
) -> Iterator[float]:
    """Of seeds that no trial had."""
    for k in range(1, asked.seeds + 1):
        announce(f"fitting the best recipe from seed {k} of {asked.seeds}")
        seed = (recipe.optimisation.seed + k) % 2**32
        again = replace(recipe, optimisation=replace(recipe.optimisation, seed=seed))
        yield _fitted(asked, again, consume).best_loss


def _fitted(asked: Search, recipe: StockRecipe, consume: ReportConsumer) -> FittedNetwork:
    prepared = prepare(asked.history, asked.splits, recipe, None)
    return fit(prepared, recipe.optimisation, None, consume)


@final
class _TrialPruner:
    """Tells the study every epoch's selection loss, and ends a trial that has fallen behind."""

    def __init__(self, trial: "Trial", consume: ReportConsumer) -> None:
        self._trial = trial
        self._consume = consume

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Pass all reports on."""
        from optuna import TrialPruned

        for report in self._consume(reports):
            yield report
            if isinstance(report, EpochReport):
                self._trial.report(report.monitored, report.epoch)
                if self._trial.should_prune():
                    raise TrialPruned

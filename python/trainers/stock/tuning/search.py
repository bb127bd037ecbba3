"""Trials of recipes, compared by their best loss on the selection split; the test split is never used."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple, final
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from predictor import canonical
from predictor.canonical import Json
from predictor.errors import ConfigurationError, MissingPackageError, QuantraError
from predictor.jobs import JobRunner, LocalRunner
from predictor.networks import get_kind, list_config_settings, make_config
from trainers.loop import EpochReport, LoopError, Report
from trainers.progress import ConsumerChain, ReportConsumer
from trainers.stock.data import History
from trainers.stock.model_fit import fit, prepare
from trainers.stock.recipe import StockRecipe
from trainers.stock.splits import DataSplits, SplitPart

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import RDBStorage
    from optuna.trial import BaseTrial, FrozenTrial


SETTINGS: Final = "settings_sha256"

STARTUP_TRIALS: Final = 5
"""Random trials at the start, which are never pruned."""

WARMUP_EPOCHS: Final = 2

_SECRET: Final = re.compile(r"passw|pwd|secret|token", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyStorage:
    """A study in a database.

    Attributes:
        uri: SQLAlchemy address, such as `sqlite:///tune.db`; several machines can share a database server.
        name: Name of the study.
    """

    uri: str
    name: str

    def __post_init__(self) -> None:
        """Refuse a password, because every user of the machine can read the command line."""
        parts = urlsplit(self.uri)
        if parts.password or any(_SECRET.search(name) for name, _ in parse_qsl(parts.query)):
            raise ConfigurationError("the storage's address holds a password; put it into the database's password file")


def require_optuna() -> None:
    """Raise MissingPackageError, naming the extra, unless optuna is installed."""
    if find_spec("optuna") is None:
        raise MissingPackageError.of("optuna", "tune", "a search for settings")


@contextmanager
def open_study(storage: StudyStorage, settings: Mapping[str, Json], seed: int) -> "Generator[Study]":
    """Open or create a study; its database is closed at the end.

    `settings` are everything that the trials share: bars, features, the recipe that they vary.

    Raises:
        MissingPackageError: optuna is not installed.
        ConfigurationError: the storage cannot be opened, or the study has other settings.
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
            )
        except (SQLAlchemyError, ImportError) as error:  # ImportError: no driver for the database
            problem = f"the storage of study {storage.name!r} cannot be opened: {error.args[0]}"
            raise ConfigurationError(problem) from error
        _set_sampler(study, seed + len(study.trials))
        _check_same(study, settings)
        yield study


def _set_sampler(study: "Study", seed: int) -> None:
    import optuna

    study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS)


def _close(database: "RDBStorage") -> None:
    """Close the database, which optuna leaves to the garbage collector."""
    database.remove_session()
    database.engine.dispose()


def _check_same(study: "Study", settings: Mapping[str, Json]) -> None:
    digest = hashlib.sha256(canonical.to_bytes(dict(settings))).hexdigest()
    saved_settings = study.user_attrs.get(SETTINGS)
    if saved_settings is None:
        study.set_user_attr(SETTINGS, digest)
    elif saved_settings != digest:
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
"""Network sizes to try, if the kind has them; every width is a multiple of every number of heads."""


DROPOUT: Final = (0.0, 0.6)
LEARNING_RATE: Final = (1e-4, 1e-2)
WEIGHT_DECAY: Final = (1e-5, 1.0)
BATCH_SIZES: Final = (32, 64, 128, 256)


def suggest_recipe(trial: "BaseTrial", recipe: StockRecipe) -> StockRecipe:
    """The recipe with a trial's values."""
    settings = list_config_settings(recipe.config)
    sizes = {name: trial.suggest_categorical(name, choices) for name, choices in CHOICES.items() if name in settings}
    dropout = trial.suggest_float("dropout", *DROPOUT)
    return replace(
        recipe,
        config=make_config(get_kind(recipe.kind), {**settings, **sizes, "dropout": dropout}),
        optimisation=replace(
            recipe.optimisation,
            learning_rate=trial.suggest_float("learning_rate", *LEARNING_RATE, log=True),
            weight_decay=trial.suggest_float("weight_decay", *WEIGHT_DECAY, log=True),
            batch_size=trial.suggest_categorical("batch_size", BATCH_SIZES),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Search:
    """Inputs of a search.

    Attributes:
        history: Inputs and labels.
        splits: Its parts, of which training and selection are used.
        recipe: The recipe that trials vary.
        settings: Everything that the trials share, which identifies a stopped search.
        trials: Trials in total, earlier runs included.
        seeds: Seeds to refit the best recipe from.
    """

    history: History
    splits: DataSplits
    recipe: StockRecipe
    settings: Mapping[str, Json]
    trials: int
    seeds: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The best recipe and its losses.

    Attributes:
        recipe: Recipe of the best trial.
        selection: The part of the losses, which are pinball losses in units of each window's volatility.
        trials: Trials in total.
        pruned: Trials that were pruned.
        failed: Trials that raised an error, such as a loss that is not finite.
        best_trial_loss: Selection loss of the best trial, too optimistic as the smallest of many.
        seed_losses: Selection losses of the best recipe from fresh seeds, without the luck of one seed, but on the days
            that selected it.
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
        """Mean loss of the fresh seeds."""
        return float(np.mean(self.seed_losses))

    @property
    def deviation(self) -> float:
        """Standard deviation over the fresh seeds; 0 for one."""
        return float(np.std(self.seed_losses, ddof=1)) if len(self.seed_losses) > 1 else 0.0

    def card(self) -> dict[str, Json]:
        """The card's section on the search."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialJob:
    """A recipe to fit."""

    name: str
    recipe: StockRecipe
    number: int = -1
    """Number of the trial in the study; -1 for a fit that is not a trial."""
    finished: tuple[Mapping[int, float], ...] = ()
    """The finished trials' selection losses by epoch; the trial is pruned if it is worse than most of them."""


class TrialLosses(NamedTuple):
    """Selection losses of a fit."""

    best: float | None
    """None if it was pruned."""
    epochs: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrialTraining:
    """Data that recipes are fitted on."""

    history: History
    splits: DataSplits
    consume: ReportConsumer

    def worker(self) -> Callable[[TrialJob], TrialLosses]:
        """What fits a recipe."""
        return self._fit

    def _fit(self, job: TrialJob) -> TrialLosses:
        from optuna import TrialPruned

        best, pruner = None, _TrialPruner(job, self.consume)
        try:
            prepared = prepare(self.history, self.splits, job.recipe, None)
            best = fit(prepared, job.recipe.optimisation, None, pruner).best_loss
        except TrialPruned:
            pass
        except (ConfigurationError, LoopError) as error:
            raise ConfigurationError(f"{job.name}: {error}") from error
        return TrialLosses(best, pruner.losses)


def search(
    inputs: Search,
    storage: StudyStorage,
    *,
    consume: ReportConsumer,
    announce: Callable[[str], None] = lambda _line: None,
    runner: JobRunner | None = None,
) -> SearchResult:
    """Run the missing trials, then refit the best recipe from fresh seeds.

    With n processes, trial k is chosen, and later pruned, by the results up to trial k - n. So a new study gives the
    same trials for the same n.

    Raises:
        MissingPackageError: optuna is not installed.
        ConfigurationError: see `open_study`; or no trial is missing and none has finished.
        QuantraError: a trial failed before any finished, or a fit from a fresh seed failed.
    """
    runner = runner or LocalRunner()
    training = TrialTraining(
        history=inputs.history, splits=inputs.splits, consume=ConsumerChain() if runner.is_parallel else consume
    )
    with open_study(storage, inputs.settings, inputs.recipe.optimisation.seed) as study:
        from optuna.trial import TrialState

        _run_missing_trials(inputs, study, training, announce, runner)
        recipe = suggest_recipe(study.best_trial, inputs.recipe)
        trials = Counter(trial.state for trial in study.get_trials(deepcopy=False))
        return SearchResult(
            recipe=recipe,
            selection=inputs.splits.selection,
            trials=sum(trials[state] for state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)),
            pruned=trials[TrialState.PRUNED],
            failed=trials[TrialState.FAIL],
            best_trial_loss=study.best_value,
            seed_losses=_fit_fresh_seeds(recipe, inputs.seeds, training, announce, runner),
        )


def _run_missing_trials(
    inputs: Search,
    study: "Study",
    training: TrialTraining,
    announce: Callable[[str], None],
    runner: JobRunner,
) -> None:
    """Run trials until the study has as many as asked for, at least one of them complete."""
    from optuna.trial import TrialState

    complete, pruned, failed = TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL
    running: dict[int, Trial] = {}
    last = -1

    def list_trials(*states: TrialState) -> "Sequence[FrozenTrial]":
        return study.get_trials(deepcopy=False, states=states)

    def choose_trials() -> Iterator[TrialJob]:
        nonlocal last
        while (started := len(list_trials(complete, pruned, failed)) + len(running)) < inputs.trials:
            losses = [trial.value for trial in list_trials(complete) if trial.value is not None]
            best = f"; the best selection loss so far is {min(losses):.5f}" if losses else ""
            announce(f"trial {started + 1} of {inputs.trials}{best}{runner.remark}")
            trial = study.ask()
            # After the trials of an earlier run or of another machine, the same seed would draw them again.
            if trial.number != last + 1:
                _set_sampler(study, inputs.recipe.optimisation.seed + trial.number)
            last = trial.number
            running[trial.number] = trial
            yield TrialJob(
                name=f"trial {trial.number + 1}",
                recipe=suggest_recipe(trial, inputs.recipe),
                number=trial.number,
                finished=tuple(trial.intermediate_values for trial in list_trials(complete)),
            )

    def record_failure(job: TrialJob, error: QuantraError) -> None:
        study.tell(running.pop(job.number), state=failed)
        if not list_trials(complete):  # the shared settings may make every trial fail
            raise error
        announce(f"{error.message}; the search continues")

    missing = max(0, inputs.trials - len(list_trials(complete, pruned, failed)))
    trials = runner.run(
        training.worker, choose_trials(), count=missing, name=_name_job, in_order=True, on_failure=record_failure
    )
    for job, losses in trials:
        trial = running.pop(job.number)
        for epoch, loss in losses.epochs.items():
            trial.report(loss, epoch)
        study.tell(trial, losses.best, state=pruned if losses.best is None else None)
    if not list_trials(complete):
        raise ConfigurationError(
            f"no trial of the {len(list_trials(pruned, failed))} in study {study.study_name!r} finished; fix the cause "
            "and raise --trials, or choose another --storage"
        )


def _fit_fresh_seeds(
    recipe: StockRecipe, seeds: int, training: TrialTraining, announce: Callable[[str], None], runner: JobRunner
) -> tuple[float, ...]:
    """The selection loss of a recipe from each of the seeds after its own."""

    def choose_fits() -> Iterator[TrialJob]:
        for k in range(1, seeds + 1):
            announce(f"fitting the best recipe from seed {k} of {seeds}{runner.remark}")
            seed = (recipe.optimisation.seed + k) % 2**32
            seeded = replace(recipe, optimisation=replace(recipe.optimisation, seed=seed))
            yield TrialJob(name=f"the fit from seed {seed}", recipe=seeded)

    fits = runner.run(training.worker, choose_fits(), count=seeds, name=_name_job, in_order=True)
    return tuple(losses.best for _, losses in fits if losses.best is not None)


def _name_job(job: TrialJob) -> str:
    return job.name


@final
class _TrialPruner:
    """Records every epoch's selection loss, and stops a trial that is worse than most finished ones."""

    def __init__(self, job: TrialJob, consume: ReportConsumer) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        finished = [optuna.create_trial(value=0.0, intermediate_values=dict(losses)) for losses in job.finished]
        pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS, n_warmup_steps=WARMUP_EPOCHS)
        study = optuna.create_study(pruner=pruner)
        study.add_trials(finished)
        self._trial = study.ask()
        self._consume = consume
        self.losses: dict[int, float] = {}

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Pass all reports on."""
        from optuna import TrialPruned

        for report in self._consume(reports):
            yield report
            if isinstance(report, EpochReport):
                self.losses[report.epoch] = report.monitored
                self._trial.report(report.monitored, report.epoch)
                if self._trial.should_prune():
                    raise TrialPruned

"""Folds of a walk forward, and refits: each fold trains the recipe on earlier bars and stores its forecasts."""

import hashlib
import itertools
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, Final, final

import numpy as np
from numpy.typing import NDArray

from predictor import canonical
from predictor.artifact import Artifact
from predictor.artifact.artifact import read_arrays, write_arrays
from predictor.bars import BarPanel
from predictor.canonical import Json, Record
from predictor.covariates import CovariateSource
from predictor.dates import to_date
from predictor.errors import ArtifactError, ConfigurationError, format_date
from predictor.features import FeatureSet
from predictor.flags import Flag
from predictor.jobs import JobRunner
from predictor.networks import Edges, TargetKind
from predictor.replacement import claim_output, replace_file
from predictor.windows import Pipeline
from trainers.loop import LoopError
from trainers.progress import ConsumerChain, ReportConsumer
from trainers.stock.backtest.forecasts import DailyForecasts, forecast_daily
from trainers.stock.bar_requirements import count_sessions_needed
from trainers.stock.data import NO_COVARIATE_FILES, History
from trainers.stock.feature_cache import FeatureCache
from trainers.stock.model_fit import assemble_model, fit_artifact, fit_pipeline
from trainers.stock.recipe import StockRecipe
from trainers.stock.splits import DataSplits, RollingSplits, parse_day_flag

_WINDOW = re.compile(r"rolling:([1-9]\d*)")


def _parse_refit(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"--refit is {text!r}, but must be never or a number of sessions")
    return int(text)


def _parse_rolling(text: str) -> int:
    match = _WINDOW.fullmatch(text)
    if match is None:
        raise ValueError(f"--window is {text!r}, but must be expanding or rolling:N, such as rolling:1260")
    return int(match[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkForwardPlan:
    """Plan of a walk forward; sessions are yyyymmdd."""

    start: Annotated[
        int,
        Flag(
            "First decision day, such as 2011-01-03.",
            metavar="DATE",
            parse=partial(parse_day_flag, "--start"),
            shown_default="the first possible",
        ),
    ]
    """Decisions are made after the close; moves to the next session if the exchange is closed on this day."""
    end: Annotated[
        int,
        Flag(
            "Last session of the book.",
            metavar="DATE",
            parse=partial(parse_day_flag, "--end"),
            shown_default="the last bar",
        ),
    ]
    refit: Annotated[
        int | None,
        Flag(
            "Sessions between refits; never: keep the model unchanged.",
            metavar="never|N",
            parse=_parse_refit,
            none_text="never",
        ),
    ] = None
    """None for never."""
    rolling: Annotated[
        int | None,
        Flag(
            "Refit on all earlier bars, or on the last N sessions, including warm-up.",
            name="window",
            metavar="expanding|rolling:N",
            parse=_parse_rolling,
            none_text="expanding",
        ),
    ] = None
    """None for all sessions since the first bar."""
    embargo: Annotated[
        int, Flag("Sessions left out between a refit's training data and its first decision.", minimum=0)
    ] = 0

    def __post_init__(self) -> None:
        if self.start > self.end:
            raise ConfigurationError(
                f"the backtest ends on {format_date(self.end)}, before it starts on {format_date(self.start)}"
            )
        for name, minimum in (("refit", 1), ("rolling", 1), ("embargo", 0)):
            value: int | None = getattr(self, name)
            if value is not None and value < minimum:
                raise ConfigurationError(f"{name} is {value} sessions, but must be at least {minimum}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Consecutive decisions by one model; sessions are yyyymmdd, inclusive."""

    number: int
    """From 1."""
    first: int
    last: int
    learn_first: int
    """First session that the model may be trained on."""
    learn_last: int
    """Last session that the model may be trained on, before `first`; no label of the training is later."""


def describe_fold(fold: Fold) -> str:
    """The fold as text."""
    first, last, train_first, train_last = map(format_date, (fold.first, fold.last, fold.learn_first, fold.learn_last))
    return f"decides {first} to {last}, trained on {train_first} to {train_last}"


def find_decision_span(sessions: NDArray[np.int32], plan: WalkForwardPlan) -> tuple[int, int]:
    """Positions of the first and last session of a backtest in the bars' sessions [T].

    Raises:
        ConfigurationError: The bars have fewer than two sessions of it.
    """
    first = int(np.searchsorted(sessions, plan.start))
    last = int(np.searchsorted(sessions, plan.end, side="right")) - 1
    if last <= first:
        raise ConfigurationError(
            f"the bars, {format_date(int(sessions[0]))} to {format_date(int(sessions[-1]))}, do not have two sessions "
            f"from {format_date(plan.start)} to {format_date(plan.end)}; choose --start and --end within them"
        )
    return first, last


def split_sessions(sessions: NDArray[np.int32], plan: WalkForwardPlan) -> tuple[Fold, ...]:
    """The folds of a walk forward over the bars' sessions [T], oldest first.

    A refit sees no session later than `embargo` sessions before its first decision. All its labels end before that
    decision: decisions of the last lag + longest horizon sessions are purged, because their outcomes are unknown.

    Raises:
        ConfigurationError: The bars have too few sessions.
    """
    first, last = find_decision_span(sessions, plan)
    step = last - first + 1 if plan.refit is None else plan.refit
    starts = enumerate(range(first, last + 1, step), start=1)
    folds: list[Fold] = []
    for number, start in starts:
        last_label = start - 1 - plan.embargo
        if last_label < 0:
            raise ConfigurationError(
                f"no session before {format_date(int(sessions[start]))} to train on; start later, or give more bars"
            )
        oldest = 0 if plan.rolling is None else max(0, last_label + 1 - plan.rolling)
        folds.append(
            Fold(
                number=number,
                first=int(sessions[start]),
                last=int(sessions[min(start + step - 1, last)]),
                learn_first=int(sessions[oldest]),
                learn_last=int(sessions[last_label]),
            )
        )
    return tuple(folds)


SETTINGS: Final = "settings.json"

FORECASTS: Final = "forecasts"


@final
class ForecastStore:
    """The forecasts of one backtest's folds, in its run folder; its settings determine them."""

    def __init__(self, folder: Path, settings: Mapping[str, Json]) -> None:
        self.folder = folder
        self.digest = hashlib.sha256(canonical.to_bytes(settings)).hexdigest()
        self._settings = settings

    @contextmanager
    def claim(self, *, resume: bool) -> Generator[None]:
        """Create the folder, or continue in one with the same settings; no other process writes there in this context.

        Raises:
            ConfigurationError: The folder cannot be written, is in use, exists without `resume`, or has other settings.
        """
        self._check(resume=resume)  # without a file in another program's folder
        with ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(claim_output(self.folder))
                self._check(resume=resume)
                content = {"digest": self.digest, "settings": self._settings}
                replace_file(self.folder / SETTINGS, canonical.to_bytes(content))
                (self.folder / FORECASTS).mkdir(exist_ok=True)
            except OSError as error:
                problem = f"{self.folder} cannot be written: {error.strerror}; choose another --out"
                raise ConfigurationError(problem) from error
            yield

    def _check(self, *, resume: bool) -> None:
        path = self.folder / SETTINGS
        if not path.is_file():
            if self.folder.exists() and any(not found.name.startswith(".") for found in self.folder.iterdir()):
                problem = f"{self.folder} contains something other than a backtest; choose another --out"
                raise ConfigurationError(problem)
            return
        if not resume:
            raise ConfigurationError(
                f"{self.folder} already has a backtest; continue it with --resume, or choose another --out"
            )
        record = Record.from_bytes(path.read_bytes(), SETTINGS)
        if record.text("digest") == self.digest:
            return
        old = record.record("settings")
        new = Record.from_bytes(canonical.to_bytes(self._settings), SETTINGS)
        keys = sorted({*old.keys(), *new.keys()})
        different = [key for key in keys if not (old.has(key) and new.has(key) and old.json(key) == new.json(key))]
        raise ConfigurationError(
            f"{self.folder} has a backtest with other settings: {', '.join(different)}; choose another --out"
        )

    def has_fold(self, fold: Fold) -> bool:
        """Whether the fold's forecasts are stored."""
        return self._path(fold).is_file()

    def keep(self, fold: Fold, forecasts: DailyForecasts) -> None:
        """Store a fold's forecasts atomically."""
        arrays = {"sessions": forecasts.sessions, "values": forecasts.values}
        arrays |= {"horizons": np.array(forecasts.horizons), "levels": np.array(forecasts.levels)}
        if forecasts.scores is not None:
            arrays["scores"] = forecasts.scores
        kind = np.frombuffer(forecasts.kind.value.encode(), np.uint8)
        replace_file(self._path(fold), write_arrays(arrays | {"kind": kind}))

    def read(self, fold: Fold) -> DailyForecasts:
        """Read a fold's forecasts.

        Raises:
            ArtifactError: The file is missing or damaged.
        """
        path = self._path(fold)
        if not path.is_file():
            raise ArtifactError.of(f"{FORECASTS}/{path.name}", "the file is missing; run the backtest with --resume")
        arrays = read_arrays(path.read_bytes(), path.name)
        try:
            return DailyForecasts(
                sessions=arrays["sessions"].astype(np.int32),
                kind=TargetKind(arrays["kind"].astype(np.uint8).tobytes().decode()),
                horizons=tuple(arrays["horizons"].tolist()),
                levels=tuple(arrays["levels"].tolist()),
                values=arrays["values"].astype(np.float64),
                scores=arrays["scores"].astype(np.float64) if "scores" in arrays else None,
            )
        except (KeyError, ValueError) as error:
            raise ArtifactError.of(f"{FORECASTS}/{path.name}", f"is not a file of forecasts: {error}") from error

    def _path(self, fold: Fold) -> Path:
        return self.folder / FORECASTS / f"{fold.number:04d}.safetensors"


HistoryFactory = Callable[[BarPanel, Pipeline, CovariateSource, FeatureCache | None], History]
"""Creates the training history of a refit."""

MAX_ROWS = 256
"""Windows per forward pass."""


def make_tradable(recipe: StockRecipe) -> StockRecipe:
    """The recipe with labels that can be traded: lag 1, from the next close."""
    return replace(recipe, target=replace(recipe.target, lag=1))


def refit_splits(bars: BarPanel, recipe: StockRecipe) -> DataSplits:
    """Split all bars into training, selection and calibration, without a test split.

    Rolling splits keep their lengths; others keep their proportions.

    Raises:
        ConfigurationError: There are too few sessions.
    """
    if isinstance(recipe.parts, RollingSplits):
        return recipe.parts.of(bars.sessions)
    count = len(bars.sessions)
    cuts = _place_cuts(count, _measure_lengths(recipe))
    if any(b <= a for a, b in pairwise(cuts)):
        raise ConfigurationError(f"{count} sessions are too few to be split into training, selection and calibration")
    return DataSplits.by_dates([(int(bars.sessions[a]), int(bars.sessions[b - 1])) for a, b in pairwise(cuts)])


def count_fewest_sessions(recipe: StockRecipe, features: FeatureSet, bars: BarPanel) -> int:
    """Sessions that the first refit needs; more than the bars have if they are too few."""
    recipe = make_tradable(recipe)
    longest = max(recipe.target.horizons)
    needs = (count_sessions_needed(len(bars.symbols), features, recipe), longest, longest)
    if isinstance(recipe.parts, RollingSplits):
        return needs[0] + recipe.parts.selection + recipe.parts.calibration
    lengths = _measure_lengths(recipe)
    return next(
        count
        for count in itertools.count(1)
        if all(b - a >= need for need, (a, b) in zip(needs, pairwise(_place_cuts(count, lengths)), strict=True))
    )


def _place_cuts(count: int, lengths: tuple[float, ...]) -> list[int]:
    """Where the parts of these relative lengths begin among `count` sessions, and the end."""
    return [0, *(round(count * part_end / sum(lengths)) for part_end in accumulate(lengths))]


def _measure_lengths(recipe: StockRecipe) -> tuple[float, ...]:
    """Relative lengths of training, selection and calibration."""
    if not isinstance(recipe.parts, DataSplits):
        return recipe.shares.train, recipe.shares.selection, recipe.shares.calibration
    return tuple((to_date(part.last) - to_date(part.first)).days + 1 for part in recipe.parts.parts[:3])


def refit(
    bars: BarPanel,
    features: FeatureSet,
    recipe: StockRecipe,
    splits: DataSplits,
    *,
    covariates: CovariateSource = NO_COVARIATE_FILES,
    edges: Edges | None = None,
    cache: FeatureCache | None = None,
    create_history: HistoryFactory = History,
    consume: ReportConsumer | None = None,
) -> Artifact:
    """Train and calibrate a model without saving or scoring it.

    `consume` receives the reports of the epochs.

    Raises:
        ConfigurationError: The settings contradict each other or the bars.
        LoopError: The training failed.
    """
    pipeline = fit_pipeline(bars, features, recipe, splits, covariates, cache)
    history = create_history(bars, pipeline, covariates, cache)
    return fit_artifact(history, splits, recipe, consume=consume or ConsumerChain(), edges=edges)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RefitMaterial:
    """The bars and settings of a walk forward, which trains a model before each fold."""

    bars: BarPanel
    """All bars; each fold uses its own."""
    features: FeatureSet
    recipe: StockRecipe
    covariates: CovariateSource = NO_COVARIATE_FILES
    edges: Edges | None = None
    """Edges of a graph; None derives them from the training split."""
    cache: FeatureCache | None = None
    """Has the observed features on disk; None computes them in memory."""

    def worker(self) -> Callable[[Fold], DailyForecasts]:
        """Return a picklable function that forecasts a fold; its errors name the fold."""
        return self.forecast

    def forecast(self, fold: Fold) -> DailyForecasts:
        """Train on bars before the fold, then forecast each of its days.

        Raises:
            ConfigurationError: There are too few bars, or the training failed; the message names the fold.
        """
        bars = self.bars.between(fold.learn_first, fold.last)
        try:
            model = assemble_model(self.train(fold))
            return forecast_daily(model, bars, list_fold_sessions(bars, fold), self.covariates)
        except (ConfigurationError, LoopError) as error:
            raise ConfigurationError(f"{_name_fold(fold)}: {error}") from error

    def train(self, fold: Fold) -> Artifact:
        """Train the fold's model.

        Raises:
            ConfigurationError: There are too few bars.
            LoopError: The training failed.
        """
        bars = self.bars.between(fold.learn_first, fold.learn_last)
        splits = refit_splits(bars, self.recipe)
        return refit(
            bars, self.features, self.recipe, splits, covariates=self.covariates, edges=self.edges, cache=self.cache
        )


def _name_fold(fold: Fold) -> str:
    return f"fold {fold.number}, trained on {format_date(fold.learn_first)} to {format_date(fold.learn_last)}"


def list_fold_sessions(bars: BarPanel, fold: Fold) -> NDArray[np.int32]:
    """[D] decision days of the fold."""
    return bars.sessions[(bars.sessions >= fold.first) & (bars.sessions <= fold.last)]


def run_refits(
    folds: Sequence[Fold], material: RefitMaterial, store: ForecastStore, runner: JobRunner
) -> Iterator[Fold]:
    """Forecast every missing fold, and yield each fold once its forecasts are stored.

    Raises:
        QuantraError: Folds failed, after all others are stored.
    """
    missing = [fold for fold in folds if not store.has_fold(fold)]
    yield from (fold for fold in folds if fold not in missing)
    for fold, forecasts in runner.run(material.worker, missing, name=_name_fold):
        store.keep(fold, forecasts)
        yield fold

"""Evaluation of a model against baselines."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import partial
from importlib.util import find_spec
from itertools import chain
from math import isfinite
from typing import Annotated, Any, Final

import numpy as np

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.card import read_ancestors, start_note_of
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, format_date
from predictor.flags import Flag
from predictor.jobs import JobRunner, LocalRunner
from predictor.model import UNITS, Ensemble
from predictor.networks import Target
from trainers.options import ForecastDevice
from trainers.progress import ConsumerChain, ReportConsumer, StepProgress, no_progress
from trainers.stock.data import NO_COVARIATE_FILES, History, TrainingWindows
from trainers.stock.data_warnings import (
    Warn,
    check_bars,
    check_outcomes_vary,
    discard,
    drop_before_calendar,
    emit,
    find_model_warnings,
    list_networks,
    note_missing_bars,
)
from trainers.stock.edges import read_user_edges
from trainers.stock.evaluation.baselines import InformationSet, all_baselines
from trainers.stock.evaluation.bound_model import (
    BoundModel,
    EvaluatedModel,
    bind_model,
    describe_origins,
    find_calendar,
    find_last_seen,
)
from trainers.stock.evaluation.calibration import (
    CalibrationEffect,
    ForecastWindows,
    compare_calibration,
    forecast_adaptively,
)
from trainers.stock.evaluation.comparison import (
    LossComparison,
    SeedRefits,
    SeedScores,
    SkillScore,
    average_days,
    choose_other_seeds,
    compare,
    name_seed,
    pinball,
    score_seeds,
)
from trainers.stock.evaluation.evaluation_set import CONFIDENCE, RESAMPLES, EvaluationSet
from trainers.stock.evaluation.scores import (
    MODEL_NAME,
    BenchmarkResult,
    ModelScores,
    PitHistogram,
    SymbolScores,
    benchmark,
    by_symbol,
    describe_correlation,
    pit,
)
from trainers.stock.feature_cache import FeatureCache
from trainers.stock.recipe import read_recipe
from trainers.stock.splits import DataSplits, parse_day_flag, read_splits, select_unseen_part

SIZE: Final = 0.1
"""A model is left out if its p value is at most this."""

MISSING_PACKAGE: Final = (
    "the model confidence set is left out: the package arch is not installed; install it with "
    "pip install 'quantra[baselines]'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceSet:
    """The models that are not distinguishable from the best."""

    size: float
    """Share of samples in which the best model may be left out."""
    p_values: Mapping[str, float]
    """By model, largest first; a model is in the set if its p value is above `size`."""

    @property
    def members(self) -> tuple[str, ...]:
        """The models in the set."""
        return tuple(name for name, p in self.p_values.items() if p > self.size)

    @property
    def sentence(self) -> str:
        """The set as one line, such as `2 of 18 models are not distinguishable from the best at 10 %`."""
        equal = f"{len(self.members)} of {len(self.p_values)} models"
        return f"{equal} are not distinguishable from the best at {100 * self.size:g} %"


def note_missing_package() -> tuple[str, ...]:
    """A note if the package arch is not installed."""
    return () if find_spec("arch") is not None else (MISSING_PACKAGE,)


def find_confidence_set(test: EvaluationSet, daily: Mapping[str, FloatArray]) -> ConfidenceSet | None:
    """The confidence set of models; None without the package arch, or with too few days to tell skill from luck.

    Blocks of days are resampled as for intervals, and resamples are widened as those are. `daily` has the losses [D] of
    each day by model, see `comparison.average_days`.
    """
    if test.days_short or find_spec("arch") is None:
        return None
    from arch.bootstrap import MCS

    losses = np.stack(list(daily.values()), axis=1)
    losses = losses[np.isfinite(losses).all(axis=1)]
    means = losses.mean(axis=0)
    # Equal models have no variance of their difference, so they are tested once.
    distinct, model_of = np.unique(means + test.widening_factor * (losses - means), axis=1, return_inverse=True)
    p_values = np.ones(1)
    if distinct.shape[1] > 1:
        tested = MCS(distinct, SIZE, RESAMPLES, test.block, bootstrap="circular", seed=0)
        tested.compute()
        p_values = tested.pvalues["Pvalue"].sort_index().to_numpy(np.float64)
    rows = sorted(zip(daily, p_values[model_of.ravel()], means, strict=True), key=lambda row: (-row[1], row[2]))
    return ConfidenceSet(size=SIZE, p_values={name: float(p) for name, p, _ in rows})


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPeriod:
    """The evaluated forecasts; sessions are yyyymmdd."""

    seen_until: int
    """Last session that training, selection or calibration may have seen."""
    first: int
    """First decision day."""
    last: int
    days: int
    windows: int
    symbols: int

    @classmethod
    def of(cls, history: History, windows: TrainingWindows, last_seen: int) -> "EvaluationPeriod":
        """The decision days of these windows."""
        positions = np.unique(windows.positions)
        return cls(
            seen_until=last_seen,
            first=int(history.bars.sessions[positions[0]]),
            last=int(history.bars.sessions[positions[-1]]),
            days=len(positions),
            windows=len(windows),
            symbols=len(np.unique(windows.symbols)),
        )


_JSON_KEYS: Final = {"period": "days", "confidence": "level", "correlation_note": "correlated"}
"""Keys of fields whose names differ in the JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEvaluation:
    """Scores of an artifact on held-out days."""

    unit: str
    """Unit of losses, such as log return."""
    target: Target
    levels: tuple[float, ...]
    period: EvaluationPeriod
    confidence: float
    """Share of resamples inside each interval."""
    method: str
    """Method of the intervals, as text."""
    correlation_note: str
    """Whether IC and RankIC compare symbols or days."""
    rows: tuple[ModelScores, ...]
    """The model and the baselines, best first."""
    skill: SkillScore
    comparison: LossComparison
    """The model against the best baseline."""
    confidence_set: ConfidenceSet | None
    """Which of the rows are not distinguishable from the best; None if unknown."""
    calibration: CalibrationEffect
    pit: tuple[PitHistogram, ...]
    """[H]"""
    by_symbol: tuple[SymbolScores, ...]
    seeds: SeedScores | None
    """None if no other seed was requested."""
    notes: tuple[str, ...]
    start_note: str = ""
    """See `Card.start_note`."""
    warnings: tuple[str, ...] = ()
    """Warnings about the bars or the covariate files."""

    def __repr__(self) -> str:
        first, last = format_date(self.period.first), format_date(self.period.last)
        period = f"{first} to {last}, {self.period.days} days, {self.period.symbols} symbols"
        return f"Evaluation({period}: {self.skill.sentence})"

    def to_json(self) -> dict[str, Json]:
        """The evaluation as JSON; NaN and infinity become null."""
        plain = {_JSON_KEYS.get(name, name): value for name, value in asdict(self).items()}
        return {**encode_plain(plain), "sentence": self.skill.sentence}


def encode_plain(value: Any) -> Any:
    """Convert nested values to JSON."""
    if isinstance(value, dict):
        return {key: encode_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSettings:
    """Settings of an evaluation."""

    start: Annotated[
        int | None,
        Flag(
            "First decision day; empty: the first that the artifact has not seen.",
            metavar="DATE",
            parse=partial(parse_day_flag, "--start"),
            none_text="",
        ),
    ] = None
    """Yyyymmdd, as `end`."""
    end: Annotated[
        int | None,
        Flag(
            "Last decision day; empty: the last whose outcome is known.",
            metavar="DATE",
            parse=partial(parse_day_flag, "--end"),
            none_text="",
        ),
    ] = None
    seeds: Annotated[
        int,
        Flag("Trainings from different seeds, the artifact's own included; 1 trains none.", minimum=1),
    ] = 5
    adaptive: Annotated[bool, Flag("Also score adaptive conformal offsets, walking forward.", spelling="--aci")] = False
    device: ForecastDevice = "auto"
    """Device for training the other seeds."""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ConfigurationError(f"seeds is {self.seeds}, but must be at least 1 (the artifact's own seed)")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvaluationSetup:
    """A model and the windows that it is evaluated on."""

    model: EvaluatedModel
    bound_model: BoundModel
    splits: DataSplits
    covariates: CovariateSource
    """Covariate files of the model."""
    calibration: ForecastWindows
    """Of the calibration split."""
    tested: ForecastWindows
    """Of the evaluated days."""

    @property
    def test_set(self) -> EvaluationSet:
        """The evaluated windows with their outcomes."""
        return EvaluationSet.of(self.bound_model.history, self.tested.windows, self.model.manifest.quantiles)


def evaluate(
    model: EvaluatedModel,
    bars: BarPanel,
    settings: EvaluationSettings,
    *,
    consume: ReportConsumer,
    announce: Callable[[str], None],
    warn: Warn = discard,
    track_steps: StepProgress = no_progress,
    covariates: CovariateSource = NO_COVARIATE_FILES,
    cache: FeatureCache | None = None,
    runner: JobRunner | None = None,
) -> ModelEvaluation:
    """Evaluate a model against the baselines, on decision days after all data that it has seen.

    Args:
        model: A model or an ensemble.
        bars: From the training split on, on which baselines are fitted. Bars before the model's calendar are dropped.
        settings: The days, and the number of seeds.
        consume: Receives the reports of trainings with other seeds in this process.
        announce: Called with the name of each stage.
        warn: Called first with warnings about bars and files, which the evaluation contains too.
        track_steps: Shows the progress of scoring.
        covariates: Covariate files of the model.
        cache: Has features on disk; None computes them in memory.
        runner: Runs the trainings with other seeds; by default this process does.

    Raises:
        InSampleError: The model has seen the days, or all of the bars.
        ConfigurationError: The bars do not fit the calendar, have too few windows, or their outcomes are constant.
        ArtifactError: The card does not record the model's splits.
        CovariateMissingError: No file has a covariate that the model reads.
        QuantraError: Trainings with other seeds failed.
    """
    warnings = emit(
        find_model_warnings(list_networks(model), drop_before_calendar(bars, find_calendar(model)), covariates), warn
    )
    setup = _prepare_setup(model, bars, settings, announce, covariates, cache)
    test, forecasts = setup.test_set, setup.tested.forecasts
    result, confidence_set = _compare_baselines(setup, announce, track_steps)
    seeds, seed_notes = _score_seeds(setup, result, settings, cache, consume, announce, runner or LocalRunner())
    adaptive = None
    if settings.adaptive:
        adaptive = forecast_adaptively(setup.bound_model.history, setup.calibration, setup.tested, test.levels)
    return ModelEvaluation(
        unit=UNITS[test.target.kind],
        target=test.target,
        levels=test.levels,
        period=EvaluationPeriod.of(setup.bound_model.history, setup.tested.windows, find_last_seen(model)),
        confidence=CONFIDENCE,
        method=(
            f"circular block bootstrap, {RESAMPLES} resamples, blocks of {test.block} sessions, widened by "
            f"{100 * (test.widening_factor - 1):.0f} % because few blocks understate the uncertainty"
        ),
        correlation_note=describe_correlation(test),
        rows=tuple(sorted(result.rows, key=lambda row: row.mean.value)),
        skill=result.skill,
        comparison=compare(test, pinball(test, forecasts.calibrated), result.best, result.skill.baseline),
        confidence_set=confidence_set,
        calibration=compare_calibration(test, forecasts, adaptive, setup.model.manifest.conformal.effective_samples),
        pit=pit(test, forecasts.calibrated),
        by_symbol=by_symbol(test, bars.symbols, forecasts.calibrated, result.best),
        seeds=seeds,
        start_note=start_note_of(model.manifest.card),
        notes=(
            *describe_origins(model),
            *note_missing_bars(setup.bound_model.history, setup.tested.windows, setup.splits),
            *result.notes,
            *note_missing_package(),
            *seed_notes,
        ),
        warnings=warnings,
    )


def _prepare_setup(
    model: EvaluatedModel,
    bars: BarPanel,
    settings: EvaluationSettings,
    announce: Callable[[str], None],
    covariates: CovariateSource,
    cache: FeatureCache | None,
) -> EvaluationSetup:
    splits, calendar = read_splits(model.manifest.card), find_calendar(model)
    test = select_unseen_part(
        bars.sessions, find_last_seen(model), model.manifest.target, calendar, start=settings.start, end=settings.end
    )
    recent = drop_before_calendar(bars, calendar)
    check_bars(recent, calendar, splits)
    announce("computing features")
    bound_model = bind_model(model, recent, covariates, cache)
    check_outcomes_vary(EvaluationSet.of(bound_model.history, bound_model.windows(test), model.manifest.quantiles))
    announce("forecasting")
    calibration, tested = (
        ForecastWindows(windows=windows, forecasts=bound_model.forecasts(windows))
        for windows in (bound_model.windows(part) for part in (splits.calibration, test))
    )
    return EvaluationSetup(
        model=model,
        bound_model=bound_model,
        splits=splits,
        covariates=covariates,
        calibration=calibration,
        tested=tested,
    )


def _compare_baselines(
    setup: EvaluationSetup, announce: Callable[[str], None], track_steps: StepProgress
) -> tuple[BenchmarkResult, ConfidenceSet | None]:
    """Compare the model with the best baseline, and find all that are not distinguishable from the best."""
    announce(f"scoring {len(setup.tested.windows)} windows against the baselines")
    test, forecasts = setup.test_set, setup.tested.forecasts
    daily = {MODEL_NAME: average_days(test, pinball(test, forecasts.calibrated))}

    def on_losses(name: str, theirs: FloatArray) -> None:
        daily[name] = average_days(test, theirs)

    case = InformationSet.of(setup.bound_model.history, setup.splits, find_last_seen(setup.model), test.levels)
    result = benchmark(
        test, MODEL_NAME, forecasts, case, all_baselines(test.target.kind), on_losses=on_losses, track_steps=track_steps
    )
    return result, find_confidence_set(test, daily)


def _score_seeds(
    setup: EvaluationSetup,
    result: BenchmarkResult,
    settings: EvaluationSettings,
    cache: FeatureCache | None,
    consume: ReportConsumer,
    announce: Callable[[str], None],
    runner: JobRunner,
) -> tuple[SeedScores | None, tuple[str, ...]]:
    """Scores over the artifact's seed and other seeds, or a note why there are none."""
    model, other_count = setup.model, settings.seeds - 1
    if other_count == 0:
        return None, ()
    if isinstance(model, Ensemble):
        return None, ("an ensemble has no recipe, so it is not trained from other seeds",)
    if read_ancestors(model.manifest.card):
        return None, ("a fine-tuned artifact lacks its parent's weights, so it is not trained from other seeds",)
    if model.manifest.kind.is_adopted:
        return None, ("an adopted model is not trained here, so it is not trained from other seeds",)
    recipe = read_recipe(model.manifest.card["recipe"], "the artifact's recipe")
    refitting = SeedRefits(
        bars=setup.bound_model.history.bars,
        features=model.pipeline.features.features,
        recipe=replace(recipe, optimisation=replace(recipe.optimisation, device=settings.device)),
        splits=setup.splits,
        covariates=setup.covariates,
        edges=read_user_edges(
            model.manifest, model.engine.network.state_dict(), setup.bound_model.history.bars.symbols
        ),
        windows=setup.tested.windows,
        cache=cache,
        consume=ConsumerChain() if runner.is_parallel else consume,
    )
    first_seed = recipe.optimisation.seed

    def seeds() -> Iterator[int]:
        for k, seed in enumerate(choose_other_seeds(first_seed, other_count)):
            announce(f"training with seed {seed}, {k + 1} of {other_count} more seeds (--seeds 1: none){runner.remark}")
            yield seed

    trained = runner.run(refitting.worker, seeds(), count=other_count, name=name_seed, in_order=True)
    runs = chain([(first_seed, setup.tested.forecasts.calibrated)], trained)
    return score_seeds(setup.test_set, runs, result.best, result.skill.baseline), ()

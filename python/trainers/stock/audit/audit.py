"""An audit from bars to its record."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from predictor.audit_record import AuditRecord, FutureCheck, PermutationCheck
from predictor.bars import BarPanel
from predictor.bars.suspects import select_usable_bars
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, format_date
from predictor.features import FeatureSet
from predictor.flags import Flag
from predictor.jobs import JobRunner, LocalRunner
from predictor.model import Model
from predictor.networks import Edges
from trainers.loop import LoopError
from trainers.progress import ConsumerChain, ReportConsumer, StepProgress, no_progress
from trainers.stock.audit.checks import (
    LAGS,
    AuditedForecasts,
    ShuffledHistory,
    check_costs,
    check_lags,
    check_permutations,
    check_trials,
    count_trials,
    forecast_yardstick,
    measure_outcomes,
)
from trainers.stock.audit.leak_check import FittedNumbers, ModelStages, check_future
from trainers.stock.backtest.backtest import describe_closings
from trainers.stock.backtest.book import run_book
from trainers.stock.backtest.forecasts import DailyForecasts, forecast_daily
from trainers.stock.backtest.refits import refit
from trainers.stock.backtest.source import ModelSource
from trainers.stock.backtest.strategies import StrategySettings, TradingTerms, decide_weights
from trainers.stock.card import hash_bars
from trainers.stock.data import History
from trainers.stock.data_warnings import Warn, discard, emit
from trainers.stock.feature_cache import FeatureCache, map_bars
from trainers.stock.model_fit import assemble_model, fit_pipeline
from trainers.stock.recipe import StockRecipe
from trainers.stock.splits import DataSplits, describe_origin, find_last_seen_session

Announce = Callable[[str], None]

MIN_DAYS = 20
"""Minimum of decision days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditBudget:
    """Effort of an audit."""

    sessions: Annotated[int, Flag("Sessions at which later bars are replaced by noise.", minimum=1)] = 12
    permutations: Annotated[int, Flag("Trainings on shuffled labels.", minimum=1)] = 3
    epochs: Annotated[int, Flag("Maximum epochs of each of these trainings.", minimum=1)] = 3
    trials: Annotated[
        int | None, Flag("Configurations tried before this one; default: the number in the card.", minimum=1)
    ] = None

    def __post_init__(self) -> None:
        for name in ("sessions", "permutations", "epochs"):
            value: int = getattr(self, name)
            if value < 1:
                raise ConfigurationError(f"{name} is {value}, but must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class _AuditProgress:
    """Progress output."""

    announce: Announce
    track_steps: StepProgress
    consume: ReportConsumer
    runner: JobRunner


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _AuditedModel:
    """The audited model with its recipe and data."""

    model: Model
    recipe: StockRecipe
    """With the dates of the model's splits."""
    splits: DataSplits
    source: ModelSource
    bars: BarPanel
    """From the first training session on."""

    @property
    def last_seen(self) -> int:
        """Last session of any label that the model or its ancestors have seen."""
        trained_model = self.source.trained_model
        return find_last_seen_session(self.splits) if trained_model is None else trained_model.last_seen

    @property
    def labelled_bars(self) -> BarPanel:
        """The bars up to the last label."""
        return self.bars.until(find_last_seen_session(self.splits))


def audit(
    source: ModelSource,
    bars: BarPanel,
    *,
    terms: TradingTerms,
    strategy_settings: StrategySettings,
    depth: AuditBudget,
    announce: Announce,
    warn: Warn = discard,
    track_steps: StepProgress = no_progress,
    consume: ReportConsumer | None = None,
    runner: JobRunner | None = None,
) -> AuditRecord:
    """Check whether a leak, the lag, costs or luck explain a model's skill.

    Args:
        source: An artifact of one network, or a recipe, which is trained first.
        bars: Bars of the training and of later days, on which skill is measured.
        terms: Horizon and costs of the strategy.
        strategy_settings: The strategy.
        depth: Effort of the audit.
        announce: Called with the name of each stage.
        warn: Called first with warnings about bars and files, which the record contains too.
        track_steps: Shows the progress of forecasts and of the leak check.
        consume: Receives the reports of trainings in this process; None ignores them.
        runner: Runs the trainings on shuffled labels; by default this process does.

    Raises:
        ConfigurationError: The bars lack the training or later days, or the source is an ensemble.
        LoopError: The training of a recipe failed.
        QuantraError: Trainings on shuffled labels failed.
    """
    warnings = emit(source.find_warnings(bars), warn)
    terms = replace(terms, sessions_a_year=source.sessions_a_year)
    progress = _AuditProgress(
        announce=announce, track_steps=track_steps, consume=consume or ConsumerChain(), runner=runner or LocalRunner()
    )
    subject = _prepare_model(source, bars, progress)
    sessions, last_seen = subject.bars.sessions, subject.last_seen
    allowed = int(np.searchsorted(sessions, last_seen, side="right"))
    end = len(sessions) - LAGS[-1] - subject.recipe.target.horizons[-1]
    if end - allowed < MIN_DAYS:
        raise ConfigurationError(
            f"the bars have {max(0, end - allowed)} decision days with known outcomes after {format_date(last_seen)}, "
            f"the last session that the model has seen; at least {MIN_DAYS} are needed: give later bars"
        )
    positions = np.arange(allowed, end)
    first, last = int(sessions[positions[0]]), int(sessions[positions[-1]])
    announce(f"forecasting {len(positions)} days, {format_date(first)} to {format_date(last)}")
    audited = _forecast_days(subject, positions, terms, strategy_settings, track_steps)
    weights = decide_weights(
        audited.forecasts, audited.horizon, audited.strategy_settings, audited.terms.sessions_a_year
    )
    book = run_book(weights, audited.closes, audited.terms).since(audited.terms.delay)
    future = _check_future(subject, positions, depth, progress)
    closings = describe_closings(f"strategy {strategy_settings.strategy}", int(book.closed.sum()), terms)
    return AuditRecord(
        digest=source.digest,
        subject=source.description,
        bars=hash_bars(bars),
        first_session=first,
        last_session=last,
        future=future,
        permutation=_check_permutations(subject, audited, depth, progress),
        lags=check_lags(audited),
        costs=check_costs(book, terms, strategy_settings.strategy.value),
        trials=check_trials(book.net, count_trials(depth.trials, source.card), terms.sessions_a_year),
        notes=_list_notes(subject, depth, closings),
        warnings=warnings,
    )


def _prepare_model(source: ModelSource, bars: BarPanel, progress: _AuditProgress) -> _AuditedModel:
    recipe = source.known_recipe()
    if source.trained_model is None:
        splits = recipe.splits(bars.sessions)
        progress.announce("training the recipe")
        training_bars = bars.between(splits.train.first, find_last_seen_session(splits))
        artifact = refit(
            training_bars,
            source.features,
            recipe,
            splits,
            covariates=source.covariates,
            cache=source.cache,
            consume=progress.consume,
        )
        model = assemble_model(artifact)
    elif isinstance(source.trained_model.model, Model):
        splits, model = source.trained_model.splits, source.trained_model.model
    else:
        raise ConfigurationError("an ensemble cannot be audited; audit a member from its folder members")
    if bars.sessions[0] > splits.train.first:
        raise ConfigurationError(
            f"the bars begin on {format_date(int(bars.sessions[0]))}, but the training starts on "
            f"{format_date(splits.train.first)}, and an audit trains again; give the bars of the training"
        )
    audit_bars = map_bars(select_usable_bars(bars.between(splits.train.first, int(bars.sessions[-1]))), source.cache)
    return _AuditedModel(
        model=model, recipe=replace(recipe, parts=splits), splits=splits, source=source, bars=audit_bars
    )


def _forecast_days(
    subject: _AuditedModel,
    positions: NDArray[np.int64],
    terms: TradingTerms,
    strategy_settings: StrategySettings,
    track_steps: StepProgress,
) -> AuditedForecasts:
    """Forecasts and outcomes of the days.

    Raises:
        ConfigurationError: Too few days have both, or prices do not move.
    """
    bars, target = subject.bars, subject.recipe.target
    history = History(bars, subject.model.pipeline, subject.source.covariates, subject.source.cache)
    adjusted = history.adjusted
    levels = subject.model.manifest.quantiles
    audited = AuditedForecasts(
        forecasts=forecast_daily(
            subject.model, bars, bars.sessions[positions], subject.source.covariates, track_steps=track_steps
        ),
        plain=forecast_yardstick(history, subject.splits, levels, positions),
        outcomes=tuple(measure_outcomes(target, adjusted, lag)[positions] for lag in LAGS),
        closes=np.ascontiguousarray(adjusted.close.T[positions]),
        spread=target.spread,
        terms=terms,
        strategy_settings=strategy_settings,
    )
    last_outcomes = audited.outcomes[-1]
    is_scored = np.isfinite(audited.forecasts.median) & np.isfinite(last_outcomes)
    days = int(is_scored.any(axis=(1, 2)).sum())
    if days < MIN_DAYS:
        raise ConfigurationError(
            f"{days} decision days have a forecast and a known outcome, but at least {MIN_DAYS} are needed: give "
            "bars of stocks that trade on them"
        )
    if np.ptp(last_outcomes[is_scored]) == 0:
        raise ConfigurationError("prices are constant on the evaluated days; give other bars")
    return audited


def _check_future(
    subject: _AuditedModel, positions: NDArray[np.int64], depth: AuditBudget, progress: _AuditProgress
) -> FutureCheck:
    """Run the leak check at evenly spaced ones of these positions [D], and of the scaling of the features."""
    progress.announce(f"replacing the future with noise at {depth.sessions} sessions")
    source, splits = subject.source, subject.splits
    sampled = np.linspace(0, len(positions) - 1, min(depth.sessions, len(positions))).round().astype(np.int64)

    def fit(bars: BarPanel) -> bytes:
        pipeline = fit_pipeline(bars, source.features, subject.recipe, splits, source.covariates)
        return pipeline.features.to_json()

    last = int(np.searchsorted(subject.bars.sessions, splits.train.last, side="right")) - 1
    staging = partial(ModelStages, subject.model, source.covariates)
    return check_future(
        subject.bars, staging, positions[sampled].tolist(), FittedNumbers(fit=fit, last=last), progress.track_steps
    )


def _check_permutations(
    subject: _AuditedModel, audited: AuditedForecasts, depth: AuditBudget, progress: _AuditProgress
) -> PermutationCheck:
    runner, source, optimisation = progress.runner, subject.source, subject.recipe.optimisation
    short = replace(optimisation, max_epochs=min(optimisation.max_epochs, depth.epochs))
    material = ShuffledTraining(
        bars=subject.bars,
        sessions=audited.forecasts.sessions,
        features=source.features,
        recipe=replace(subject.recipe, optimisation=short),
        splits=subject.splits,
        covariates=source.covariates,
        edges=source.user_edges(subject.labelled_bars.symbols),
        cache=source.cache,
        track_steps=no_progress if runner.is_parallel else progress.track_steps,
        consume=ConsumerChain() if runner.is_parallel else progress.consume,
    )

    def seeds() -> Iterator[int]:
        for seed in range(depth.permutations):
            progress.announce(f"training on shuffled labels, {seed + 1} of {depth.permutations}{runner.remark}")
            yield seed

    forecasts = runner.run(material.worker, seeds(), count=depth.permutations, name=_name_training, in_order=True)
    return check_permutations(
        audited, (shuffled for _, shuffled in forecasts), epochs=depth.epochs, lag=subject.recipe.target.lag
    )


def _name_training(seed: int) -> str:
    return f"the training on shuffled labels {seed + 1}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShuffledTraining:
    """A recipe and the data to train it on shuffled labels."""

    bars: BarPanel
    sessions: NDArray[np.int32]
    """Sessions to forecast from."""
    features: FeatureSet
    recipe: StockRecipe
    splits: DataSplits
    covariates: CovariateSource
    edges: Edges | None
    cache: FeatureCache | None
    track_steps: StepProgress
    consume: ReportConsumer

    def worker(self) -> Callable[[int], DailyForecasts]:
        """What trains from the seed of a shuffle, and forecasts."""
        return self._forecast

    def _forecast(self, seed: int) -> DailyForecasts:
        try:
            artifact = refit(
                self.bars.until(find_last_seen_session(self.splits)),
                self.features,
                self.recipe,
                self.splits,
                covariates=self.covariates,
                edges=self.edges,
                cache=self.cache,
                create_history=partial(ShuffledHistory, splits=self.splits, seed=seed),
                consume=self.consume,
            )
        except (ConfigurationError, LoopError) as error:
            raise ConfigurationError(f"{_name_training(seed)}: {error}") from error
        return forecast_daily(
            assemble_model(artifact), self.bars, self.sessions, self.covariates, track_steps=self.track_steps
        )


def _list_notes(subject: _AuditedModel, depth: AuditBudget, closings: tuple[str, ...]) -> tuple[str, ...]:
    lag = subject.recipe.target.lag
    min_p_value = 1 / (depth.permutations + 1)
    count = (
        f"the p-value of shuffled labels is at least {min_p_value:.2g} with --permutations {depth.permutations}; the "
        "verdict uses their skill and its standard error over the days instead"
    )
    covariates = "covariates count as known on the dates in their files"
    return (
        f"skill is measured at lag {lag}, the model's own, unless a lag is named",
        count,
        "stocks that the bars file omits, such as delisted ones, are missing here too",
        *([covariates] if subject.model.pipeline.covariates else []),
        *(
            f"{note}; trainings on shuffled labels start from new weights"
            for note in describe_origin(subject.source.card)
        ),
        *closings,
    )

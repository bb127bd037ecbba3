"""A backtest from bars to its result."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.bars.suspects import select_usable_bars
from predictor.canonical import Json
from predictor.card import read_ancestors
from predictor.errors import ConfigurationError, format_date
from predictor.flags import ParsedFlags
from predictor.jobs import JobRunner, LocalRunner
from trainers.progress import StepProgress, no_progress
from trainers.stock.backtest.book import run_book
from trainers.stock.backtest.forecasts import DailyForecasts, forecast_daily, join_folds
from trainers.stock.backtest.refits import (
    Fold,
    ForecastStore,
    RefitMaterial,
    WalkForwardPlan,
    find_decision_span,
    list_fold_sessions,
    make_tradable,
    run_refits,
    split_sessions,
)
from trainers.stock.backtest.result import Backtest, BookTrack, create_track
from trainers.stock.backtest.source import ModelSource, find_first_decision, refuse_in_sample
from trainers.stock.backtest.strategies import (
    MOMENTUM,
    StrategySettings,
    TradingTerms,
    compute_benchmark_weights,
    decide_weights,
)
from trainers.stock.card import hash_bars, identify_features
from trainers.stock.evaluation.bound_model import describe_origins
from trainers.stock.feature_cache import map_bars

FoldProgress = Callable[[Iterator[Fold], int], Iterator[Fold]]
"""Shows the progress of folds: receives them and their number, and yields them again."""

DEFAULT_HORIZON = 5
SETTINGS_CHOSEN_NOTE = "if the recipe's settings were chosen on these days, the figures are too optimistic"
SURVIVORSHIP_NOTE = "stocks that the bars file omits, such as delisted ones, are missing here"

USER_EDGES_NOTE = (
    "the edges of the artifact's graph were given by the user and are the same on all days; it is unknown whether they "
    "were known then"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestFolder:
    """The run folder of a backtest."""

    path: Path
    resume: bool = False
    """Continue a backtest in this folder; otherwise a folder with a backtest is an error."""


def iterate_silently(folds: Iterator[Fold], _total: int) -> Iterator[Fold]:
    """Show no progress."""
    return folds


def choose_terms(terms: ParsedFlags[TradingTerms], source: ModelSource) -> TradingTerms:
    """The requested terms; without a horizon, that of 5 sessions if the source forecasts it, else its first."""
    usual = DEFAULT_HORIZON if DEFAULT_HORIZON in source.horizons else source.horizons[0]
    return terms.over(TradingTerms(horizon=usual))


def complete_plan(
    source: ModelSource, bars: BarPanel, flags: ParsedFlags[WalkForwardPlan], print_line: Callable[[str], None]
) -> WalkForwardPlan:
    """The plan; without a start it begins on the first possible day, and without an end it ends with the bars.

    `print_line` receives a start that was left out, as text.

    Raises:
        InSampleError, ConfigurationError: The bars lack the day, or the settings contradict each other.
    """
    start: int | None = flags.value("start", None)
    if start is None:
        start = find_first_decision(source, bars, flags.value("embargo", 0))
        reason = "after enough bars to train on" if source.trained_model is None else "that the model has not seen"
        print_line(f"decisions start on {format_date(start)}, the first day {reason}")
    return flags.over(WalkForwardPlan(start=start, end=flags.value("end", int(bars.sessions[-1]))))


def backtest(
    source: ModelSource,
    bars: BarPanel,
    plan: WalkForwardPlan,
    *,
    terms: TradingTerms,
    strategy_settings: StrategySettings,
    folder: BacktestFolder,
    runner: JobRunner | None = None,
    watch: FoldProgress = iterate_silently,
    track_steps: StepProgress = no_progress,
) -> Backtest:
    """Walk forward and trade the forecasts.

    Args:
        source: An artifact or a recipe.
        bars: A long history; returns are those of adjusted closes.
        plan: Period and frequency of refits. Without refits, an artifact stays unchanged, and a recipe is trained once
            before the first decision.
        terms: Horizon, delay and costs.
        strategy_settings: The strategy.
        folder: Stores the forecasts of each fold, so that an interrupted backtest can continue.
        runner: Runs the refits; by default this process does.
        watch: Shows the progress of folds.
        track_steps: Shows the progress of days of a model without refits.

    Raises:
        ConfigurationError: The settings contradict each other or the bars, a decision is in sample, or the folder
            belongs to another backtest.
        ArtifactError: Stored forecasts are damaged.
    """
    if source.trained_model is not None:
        first, _ = find_decision_span(bars.sessions, plan)
        refuse_in_sample(source.trained_model, bars.sessions, int(bars.sessions[first]), plan.embargo)
    if terms.horizon not in source.horizons:
        raise ConfigurationError(f"horizon {terms.horizon} is not forecast; the model has {list(source.horizons)}")
    # A fine-tuned artifact cannot be refitted, because its parent's weights are missing.
    if plan.refit is not None and read_ancestors(source.card):
        raise ConfigurationError(
            "the artifact is fine-tuned from weights that it does not contain, so it cannot be refitted; use --refit "
            "never, or give its recipe as JSON with --recipe FILE instead of the artifact"
        )
    folds = split_into_folds(source, bars, plan)
    store = ForecastStore(folder.path, collect_settings(source, bars, plan))
    with store.claim(resume=folder.resume):
        usable = map_bars(select_usable_bars(bars), source.cache)
        finished_folds = _forecast(source, usable, plan, folds, store, runner or LocalRunner(), track_steps)
        for _fold in watch(finished_folds, len(folds)):
            pass
    forecasts = join_folds([store.read(fold) for fold in folds])
    return trade_forecasts(
        source, bars, forecasts, folds, terms=terms, strategy_settings=strategy_settings, digest=store.digest
    )


def split_into_folds(source: ModelSource, bars: BarPanel, plan: WalkForwardPlan) -> tuple[Fold, ...]:
    """The folds; a single one for an artifact without refits."""
    if source.trained_model is None or plan.refit is not None:
        return split_sessions(bars.sessions, plan)
    first, last = find_decision_span(bars.sessions, plan)
    return (
        Fold(
            number=1,
            first=int(bars.sessions[first]),
            last=int(bars.sessions[last]),
            learn_first=source.trained_model.first_seen,
            learn_last=source.trained_model.last_seen,
        ),
    )


def _forecast(
    source: ModelSource,
    bars: BarPanel,
    plan: WalkForwardPlan,
    folds: tuple[Fold, ...],
    store: ForecastStore,
    runner: JobRunner,
    track_steps: StepProgress,
) -> Iterator[Fold]:
    """Store the missing forecasts, and yield each fold once its forecasts are stored."""
    if source.trained_model is None or plan.refit is not None:
        material = RefitMaterial(
            bars=bars,
            features=source.features,
            recipe=make_tradable(source.known_recipe()),
            covariates=source.covariates,
            edges=source.user_edges(bars.symbols),
            cache=source.cache,
        )
        yield from run_refits(folds, material, store, runner)
        return
    (fold,) = folds
    if not store.has_fold(fold):
        days = list_fold_sessions(bars, fold)
        store.keep(
            fold, forecast_daily(source.trained_model.model, bars, days, source.covariates, track_steps=track_steps)
        )
    yield fold


def collect_settings(source: ModelSource, bars: BarPanel, plan: WalkForwardPlan) -> dict[str, Json]:
    """All settings that determine the forecasts."""
    return {
        "source": source.digest,
        "recipe": None if source.recipe is None else source.recipe.settings(),
        "features": identify_features(source.features),
        "bars": hash_bars(bars),
        "covariates": source.covariates.digest(),
        "plan": asdict(plan),
    }


def trade_forecasts(
    source: ModelSource,
    bars: BarPanel,
    forecasts: DailyForecasts,
    folds: tuple[Fold, ...],
    *,
    terms: TradingTerms,
    strategy_settings: StrategySettings,
    digest: str,
) -> Backtest:
    """Trade existing forecasts; the calendar of the model determines the sessions per year."""
    terms = replace(terms, sessions_a_year=source.sessions_a_year)
    usable = map_bars(select_usable_bars(bars), source.cache)
    closes = np.ascontiguousarray(np.concatenate([block.close for _, block in usable.adjusted_blocks()]).T)
    first = int(np.searchsorted(bars.sessions, forecasts.sessions[0]))
    period = slice(first, first + len(forecasts.sessions))

    def track(name: str, weights: FloatArray) -> BookTrack:
        return create_track(name, forecasts.sessions, run_book(weights, closes[period], terms), terms)

    strategy = track(
        f"model, {strategy_settings.strategy}",
        decide_weights(forecasts, terms.horizon, strategy_settings, terms.sessions_a_year),
    )
    benchmark_weights = compute_benchmark_weights(
        closes[: period.stop], first, strategy_settings.share, terms.sessions_a_year
    )
    benchmarks = tuple(track(name, weights) for name, weights in benchmark_weights.items())
    return Backtest(
        symbols=bars.symbols,
        forecasts=source.description,
        digest=digest,
        terms=terms,
        strategy_settings=strategy_settings,
        folds=folds,
        strategy=strategy,
        benchmarks=benchmarks,
        notes=(
            *(() if source.trained_model is None else describe_origins(source.trained_model.model)),
            *_list_notes((strategy, *benchmarks), first, terms),
            *((SETTINGS_CHOSEN_NOTE,) if source.trained_model is None else ()),
            *(() if source.user_edges(bars.symbols) is None else (USER_EDGES_NOTE,)),
        ),
        warnings=source.find_warnings(bars),
    )


def describe_closings(name: str, closed: int, terms: TradingTerms) -> tuple[str, ...]:
    """A note on the positions of a book that were closed as delisted, if any were."""
    note = (
        f"halted positions of {name} closed as delisted: {closed}; their return of "
        f"{100 * terms.delisting_return:g} % on the last close is an assumption (--delisting-return)"
    )
    return (note,) if closed else ()


def _list_notes(tracks: tuple[BookTrack, ...], first: int, terms: TradingTerms) -> tuple[str, ...]:
    closed = [note for track in tracks for note in describe_closings(track.name, track.figures.closed, terms)]
    year = terms.sessions_a_year
    late_start = [f"{MOMENTUM} starts late: it needs {year} sessions of history, but only {first} precede the start"]
    return (SURVIVORSHIP_NOTE, *closed, *(late_start if first < year else []))

"""Warnings about data before a training run or an evaluation, which the card records."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from predictor.bars import BarPanel
from predictor.bars.suspects import describe_suspects, find_unexplained_splits
from predictor.catalog import CovariateInfo
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, format_date, format_names
from predictor.features import FeatureSet
from predictor.model import Ensemble, Model, find_bars_warnings, limit_warnings
from predictor.networks import get_kind
from predictor.sessions import SessionCalendar
from trainers.loop import launched_size
from trainers.stock.bar_requirements import check_sessions, describe_mixed_exchanges
from trainers.stock.data import NO_COVARIATE_FILES, History, TrainingWindows
from trainers.stock.evaluation.evaluation_set import EvaluationSet
from trainers.stock.feature_selection import list_needs
from trainers.stock.objectives import count_batches
from trainers.stock.recipe import StockRecipe
from trainers.stock.splits import DataSplits
from trainers.stock.training_data import ParentArtifact

MIN_STEPS: Final = 10
"""Optimizer steps per epoch; with fewer, the weights hardly change before early stopping."""


Warn = Callable[[str], None]


def discard(_line: str) -> None:
    """Ignore the line."""


def without_repeats(warn: Warn) -> Warn:
    """A function that passes each line on once: trainings of several kinds find the same faults in the data."""
    passed = set[str]()

    def warn_once(line: str) -> None:
        if line not in passed:
            passed.add(line)
            warn(line)

    return warn_once


def emit(lines: Sequence[str], warn: Warn) -> tuple[str, ...]:
    """Emit each warning, and return all."""
    for line in lines:
        warn(line)
    return tuple(lines)


def find_recipe_warnings(
    bars: BarPanel, features: FeatureSet, covariates: CovariateSource, recipe: StockRecipe, *, is_adjusted: bool = False
) -> tuple[str, ...]:
    """Warnings about the data of a training run.

    `is_adjusted` is whether the bars of an earlier training included splits and dividends.
    """
    reads_features = not get_kind(recipe.kind).is_scale_only
    needs = list_needs(features, covariates) if reads_features else ()
    mixed_exchanges = "" if recipe.calendar else describe_mixed_exchanges(bars)
    reads_volume = reads_features and features.reads_volume
    warnings = _find_warnings(bars, covariates, needs, reads_volume=reads_volume, is_adjusted=is_adjusted)
    return (mixed_exchanges, *warnings) if mixed_exchanges else warnings


def find_close_warnings(bars: BarPanel) -> tuple[str, ...]:
    """Warnings about the bars of a model that reads only closes."""
    return _find_warnings(bars, NO_COVARIATE_FILES, (), reads_volume=False, is_adjusted=False)


def find_model_warnings(models: Sequence[Model], bars: BarPanel, covariates: CovariateSource) -> tuple[str, ...]:
    """Warnings about the data that a model, or an ensemble of these members, is evaluated on."""
    return _find_warnings(
        bars,
        covariates,
        [need for model in models for need in model.pipeline.covariates],
        reads_volume=any(model.training_summary.reads_volume for model in models),
        is_adjusted=any(model.training_summary.is_adjusted for model in models),
    )


def list_networks(model: Model | Ensemble) -> tuple[Model, ...]:
    """The model itself, or the members of an ensemble."""
    return tuple(model.members.values()) if isinstance(model, Ensemble) else (model,)


def _find_warnings(
    bars: BarPanel,
    covariates: CovariateSource,
    needs: Sequence[CovariateInfo],
    *,
    reads_volume: bool,
    is_adjusted: bool,
) -> tuple[str, ...]:
    warnings = find_bars_warnings(bars, bars.symbols, reads_volume=reads_volume, is_adjusted=is_adjusted)
    return limit_warnings(
        (*warnings, *covariates.find_warnings(needs), *describe_suspects(bars), *find_unexplained_splits(bars).lines())
    )


def find_untrained_symbols(history: History, splits: DataSplits) -> tuple[str, ...]:
    """Symbols without a window in the training split.

    Raises:
        ConfigurationError: the training split holds no window.
    """
    trained = set(history.windows(splits.train).symbols.tolist())
    return tuple(symbol for s, symbol in enumerate(history.bars.symbols) if s not in trained)


def find_untrained_symbol_warnings(
    history: History, splits: DataSplits, parent: ParentArtifact | None = None
) -> tuple[str, ...]:
    """Warning about symbols without a window in the training split, unless the parent learnt from them.

    Raises:
        ConfigurationError: the training split holds no window.
    """
    parent_symbols = frozenset[str]() if parent is None else parent.symbols
    symbols = [symbol for symbol in find_untrained_symbols(history, splits) if symbol not in parent_symbols]
    if not symbols:
        return ()
    line = (
        f"{format_names(symbols)}: too few bars for a window of the training part, {splits.train.first} to "
        f"{splits.train.last}, so the model learns nothing from them; leave them out, give earlier bars, or move the "
        "parts (--splits)"
    )
    return (line,)


def find_step_warnings(history: History, splits: DataSplits, recipe: StockRecipe) -> tuple[str, ...]:
    """Warning about a training split that makes few steps per epoch.

    Raises:
        ConfigurationError: the training split holds no window.
    """
    if not get_kind(recipe.kind).is_trainable:
        return ()
    windows, settings = history.windows(splits.train), recipe.optimisation
    steps = -(-count_batches(history, windows, recipe) // (settings.accumulate * launched_size()))
    if steps >= MIN_STEPS:
        return ()
    line = (
        f"split train holds {len(windows)} windows, which is {steps} step{'' if steps == 1 else 's'} of the optimizer "
        "an epoch: the network may stay much as it starts; give a longer history, more symbols, or smaller batches"
    )
    return (line,)


def drop_before_calendar(bars: BarPanel, calendar: SessionCalendar) -> BarPanel:
    """Drop the bars before the first date of the model's calendar."""
    if bars.sessions[0] >= calendar.first or bars.sessions[-1] < calendar.first:
        return bars
    return bars.between(calendar.first, int(bars.sessions[-1]))


def check_bars(bars: BarPanel, calendar: SessionCalendar, splits: DataSplits) -> None:
    """Check that the bars fit the calendar and reach into the training split.

    Raises:
        ConfigurationError: they do not.
    """
    check_sessions(bars, calendar)
    first = int(bars.sessions[0])
    if first > splits.train.last:
        raise ConfigurationError(
            f"the bars begin on {format_date(first)}, after the training part ({format_date(splits.train.first)} to "
            f"{format_date(splits.train.last)}) on which the baselines are fitted; give bars that include it"
        )


def check_outcomes_vary(test: EvaluationSet) -> None:
    """Check that the outcomes of every horizon are known and vary.

    Raises:
        ConfigurationError: they do not.
    """
    for h, horizon in enumerate(test.horizons):
        outcomes = test.outcomes[np.isfinite(test.outcomes[:, h]), h]
        if outcomes.size == 0:
            raise ConfigurationError(
                f"no outcome {horizon} sessions ahead is known on the evaluated days; give later bars"
            )
        if np.ptp(outcomes) == 0:
            raise ConfigurationError(
                f"every outcome {horizon} sessions ahead is {outcomes[0]:g} on the evaluated days: forecasts of "
                "constant prices cannot be scored; give other bars"
            )


def note_missing_bars(history: History, windows: TrainingWindows, splits: DataSplits) -> tuple[str, ...]:
    """Notes on missing bars of the training split, and on symbols with gaps, an early end or constant prices."""
    bars, notes = history.bars, list[str]()
    first = int(bars.sessions[0])
    if first > splits.train.first:
        notes.append(
            f"the bars begin on {format_date(first)} and the training part on {format_date(splits.train.first)}: the "
            "baselines are fitted on the rest of it"
        )
    days = np.unique(windows.positions)
    evaluated = slice(days[0], days[-1] + 1 + history.pipeline.target.reach)
    for s, symbol in enumerate(bars.symbols):
        if not (windows.symbols == s).any():
            notes.append(f"{symbol} has no window on the evaluated days")
            continue
        present = bars.present[s, evaluated]
        rows = np.flatnonzero(present)
        if rows[-1] < len(present) - 1:
            last_day = format_date(int(bars.sessions[evaluated][rows[-1]]))
            notes.append(f"{symbol} has no bar after {last_day}: only outcomes known by then are scored")
        if (gap := int((~present[rows[0] : rows[-1]]).sum())) > 0:
            notes.append(f"{symbol} lacks {gap} bars on the evaluated days: outcomes that need them are left out")
        if np.nanmin(bars.close[s, evaluated]) == np.nanmax(bars.close[s, evaluated]):
            notes.append(f"{symbol} never moves on the evaluated days")
    return tuple(notes)

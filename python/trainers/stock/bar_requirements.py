"""Checks of the number and the calendar of bars before a training run."""

from math import ceil

import numpy as np
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.bars.suspects import find_sessions_with_changes
from predictor.dates import is_weekend
from predictor.errors import ConfigurationError, format_count, format_date, format_names
from predictor.features import FeatureSet
from predictor.networks import TAPS
from predictor.sessions import WEEKDAYS, SessionCalendar
from predictor.sessions.calendar import SUFFIXES, find_fitting_calendar
from predictor.windows import compute_lookback
from trainers.stock.recipe import StockRecipe
from trainers.stock.scale import MIN_WINDOWS
from trainers.stock.splits import DataSplits


def check_enough(
    sessions: NDArray[np.int32], symbols: int, features: FeatureSet, recipe: StockRecipe, splits: DataSplits
) -> None:
    """Refuse bars whose training split is too short at any prices.

    Raises:
        ConfigurationError: the training split is too short; the message names the number of sessions needed.
    """
    have = int(np.searchsorted(sessions, splits.train.last, side="right"))
    need = count_sessions_needed(symbols, features, recipe)
    if have >= need:
        return
    before, windows = count_bars_of_window(features, recipe), format_count(_count_windows(recipe), "forecast")
    raise ConfigurationError(
        f"the bars have {len(sessions)} sessions, and {have} of them are for training, but this model needs at least "
        f"{need} there: {before} bars before a forecast and {recipe.target.reach} after it, and {windows} to learn "
        f"from; {_advise(need, recipe, sessions, splits)}"
    )


def count_sessions_needed(symbols: int, features: FeatureSet, recipe: StockRecipe) -> int:
    """Fewest sessions of the training split."""
    return count_bars_of_window(features, recipe) + recipe.target.reach - 1 + ceil(_count_windows(recipe) / symbols)


def count_bars_of_window(features: FeatureSet, recipe: StockRecipe) -> int:
    """`Pipeline.bars_needed`, computed without a pipeline."""
    levels = recipe.window_normaliser.window if recipe.scale == "window" else TAPS
    return recipe.encoder_length + compute_lookback(features.lookback, levels, recipe.encoder_length) - 1


def _count_windows(recipe: StockRecipe) -> int:
    """Fewest windows of the training split: every scale but `window` is fitted on them."""
    return 1 if recipe.scale == "window" else MIN_WINDOWS


def _advise(need: int, recipe: StockRecipe, sessions: NDArray[np.int32], splits: DataSplits) -> str:
    if recipe.parts is not None or splits != recipe.splits(sessions):  # as in a refit, which has no test split
        return "give earlier bars, or make that part longer"
    shares = recipe.shares
    smallest = min(shares.selection, shares.calibration, shares.test)
    # Parts are cut at whole sessions, so each may lose one.
    total = max(ceil((need + 1) / shares.train), ceil((recipe.target.reach + 1) / smallest))
    return (
        f"give {total} sessions or more, of which training takes {100 * shares.train:.0f} %, or shorten what the model "
        "reads (--encoder-length) and forecasts (--horizons)"
    )


def recognise_calendar(bars: BarPanel) -> str:
    """The calendar that fits the dates of all symbols, without those on which bars are repeated; empty if none does."""
    return (
        "" if describe_mixed_exchanges(bars) else find_fitting_calendar(find_sessions_with_changes(bars), bars.symbols)
    )


def describe_mixed_exchanges(bars: BarPanel) -> str:
    """The exchanges of symbols, if they differ, as text; else empty.

    Symbols are of one exchange if they have the same suffix, and trade all on weekends or all not.
    """
    groups: dict[tuple[str, bool], list[int]] = {}
    weekend = is_weekend(bars.sessions)
    for row, symbol in enumerate(bars.symbols):
        suffix = SUFFIXES.get(symbol.rpartition(".")[2], "") if "." in symbol else ""
        groups.setdefault((suffix, bool(bars.present[row, weekend].any())), []).append(row)
    if len(groups) == 1:
        return ""
    fitting: dict[str, list[str]] = {}
    for rows in groups.values():
        symbols = [bars.symbols[row] for row in rows]
        name = find_fitting_calendar(bars.sessions[bars.present[rows].any(axis=0)], symbols)
        fitting.setdefault(name, []).extend(symbols)
    exchanges = [f"{name} fits {format_names(symbols)}" for name, symbols in fitting.items() if name]
    if len(exchanges) == 1:
        return ""
    return f"no calendar fits all symbols: {'; '.join(exchanges)}; train a model for each exchange"


def check_sessions(bars: BarPanel, calendar: SessionCalendar) -> None:
    """Refuse bars that do not match the model's calendar.

    Raises:
        CalendarEndedError: a bar is outside the calendar's dates.
        ConfigurationError: a bar is not on a session, or a symbol lacks every weekend of an every-day calendar.
    """
    strangers = calendar.unexpected(bars.sessions)
    if len(strangers):
        raise ConfigurationError(
            f"{calendar.name} held no session on {format_names(list(map(format_date, strangers.tolist())))}, and a "
            f"model counts sessions by its calendar: {calendar.remedy(strangers)}"
        )
    if not calendar.is_every_day:
        return
    resting: list[str] = []
    for row, symbol in enumerate(bars.symbols):
        sessions = bars.sessions[bars.present[row]]
        if not is_weekend(sessions).any() and is_weekend(calendar.missing(sessions)).any():
            resting.append(symbol)
    if resting:
        raise ConfigurationError(
            f"{format_names(resting)} {'has' if len(resting) == 1 else 'have'} no bar on any Saturday or Sunday, but "
            f"{calendar.name} counts every day as a session: train by the exchange's calendar, such as XNYS, "
            f"or {WEEKDAYS}, with --calendar, and apart from what trades on every day"
        )

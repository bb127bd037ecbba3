"""Checks and notes on the bars of an evaluation."""

from collections.abc import Iterator

import numpy as np

from predictor.bars import BarPanel
from predictor.errors import ConfigurationError, shown_date
from predictor.sessions import SessionCalendar
from trainers.stock.calendars import check_sessions
from trainers.stock.data import History, TrainingWindows
from trainers.stock.evaluation.evaluation_set import EvaluationSet
from trainers.stock.splits import DataSplits


def since_calendar(bars: BarPanel, calendar: SessionCalendar) -> BarPanel:
    """Drop the bars before the first date of the model's calendar; training did not have them."""
    if bars.sessions[0] >= calendar.first or bars.sessions[-1] < calendar.first:
        return bars
    return bars.between(calendar.first, int(bars.sessions[-1]))


def check_bars(bars: BarPanel, calendar: SessionCalendar, splits: DataSplits) -> None:
    """Check that the bars fit the calendar and reach into the training part.

    Raises:
        ConfigurationError: They do not.
    """
    check_sessions(bars, calendar)
    first = int(bars.sessions[0])
    if first > splits.train.last:
        raise ConfigurationError(
            f"the bars begin on {shown_date(first)}, after the training part ({shown_date(splits.train.first)} to "
            f"{shown_date(splits.train.last)}) on which the baselines are fitted; give bars that include it"
        )


def refuse_flat(test: EvaluationSet) -> None:
    """Check that the outcomes of every horizon are known and vary.

    Raises:
        ConfigurationError: They do not.
    """
    for h, horizon in enumerate(test.horizons):
        known = test.outcomes[np.isfinite(test.outcomes[:, h]), h]
        if known.size == 0:
            raise ConfigurationError(
                f"no outcome {horizon} sessions ahead is known on the evaluated days; give later bars"
            )
        if np.ptp(known) == 0:
            raise ConfigurationError(
                f"every outcome {horizon} sessions ahead is {known[0]:g} on the evaluated days: forecasts of constant "
                "prices cannot be scored; give other bars"
            )


def presence_notes(history: History, windows: TrainingWindows, splits: DataSplits) -> tuple[str, ...]:
    """Notes on missing bars of the training part, and on symbols with gaps, an early end or constant prices."""
    return (*_late_start(history.bars, splits), *_of_symbols(history, windows))


def _late_start(bars: BarPanel, splits: DataSplits) -> Iterator[str]:
    first = int(bars.sessions[0])
    if first > splits.train.first:
        yield (
            f"the bars begin on {shown_date(first)} and the training part on {shown_date(splits.train.first)}: the "
            "baselines are fitted on the rest of it"
        )


def _of_symbols(history: History, windows: TrainingWindows) -> Iterator[str]:
    bars = history.bars
    days = np.unique(windows.positions)
    reached = slice(days[0], days[-1] + 1 + history.pipeline.target.reach)
    for s, symbol in enumerate(bars.symbols):
        present = bars.present[s, reached]
        places = np.flatnonzero(present)
        if not (windows.symbols == s).any():
            yield f"{symbol} has no window on the evaluated days"
            continue
        if places[-1] < len(present) - 1:
            ended = shown_date(int(bars.sessions[reached][places[-1]]))
            yield f"{symbol} has no bar after {ended}: only outcomes known by then are scored"
        if (gap := int((~present[places[0] : places[-1]]).sum())) > 0:
            yield f"{symbol} lacks {gap} bars on the evaluated days: outcomes that need them are left out"
        if np.nanmin(bars.close[s, reached]) == np.nanmax(bars.close[s, reached]):
            yield f"{symbol} never moves on the evaluated days"

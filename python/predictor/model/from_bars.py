"""From an instance of bars to a network's inputs."""

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.covariates import check_sent
from predictor.errors import BarIncompleteError, BarsError, NoUsableSymbolError, SessionGapError, shown_date
from predictor.instance import GapPolicy, Instance
from predictor.model.prepared import LARGEST_SCALE, BoolArray, FloatArray, Prepared
from predictor.networks import Inputs
from predictor.sessions import SessionCalendar
from predictor.windows import Pipeline, latest_window

NO_EXCHANGE = (
    "target sessions count Monday to Friday, holidays included, because the model carries no exchange's calendar; "
    "train it with --calendar"
)
"""Said with every forecast of such a model."""


def prepare_bars(pipeline: Pipeline, instance: Instance, bars: BarPanel, now: datetime) -> Prepared:
    """Check bars against calendar and clock, and compute the inputs of those symbols that can be forecast.

    Raises:
        TooFewBarsError, BarsError, BarIncompleteError, SessionGapError, CalendarEndedError: the panel cannot be read.
        CovariateMissingError, UnknownCovariateError, CovariatesError: the covariates are not those of the model.
        NoUsableSymbolError: no symbol of it can be forecast.
    """
    sent = instance.covariates
    check_sent(pipeline.covariates, sent)
    sent.check(len(bars.symbols), bars.sessions)
    given, bars = bars.sessions, _on_calendar(pipeline, bars, instance, now)
    pipeline.check_length(bars)
    covariates = sent.on_sessions(given, bars.sessions, pipeline.following(int(bars.sessions[-1])))
    encoded = pipeline.encode_latest(bars, covariates)
    length = pipeline.encoder_length
    rows = latest_window(encoded, length)
    has_last = bars.present[:, -1]
    scale = encoded.scale[:, -1]
    usable = has_last & encoded.mask[:, -length:].any(axis=(1, 2)) & (scale <= LARGEST_SCALE)
    warnings = [*_unusable_warnings(bars, usable, scale), *map(str, bars.suspicious_jumps())]
    if not usable.any():
        raise NoUsableSymbolError("; ".join(warnings))
    if not pipeline.calendar.is_exchange:
        warnings.append(NO_EXCHANGE)
    warnings.extend(covariates.last(pipeline.bars_needed).warnings(bars.symbols))
    warnings.extend(pipeline.features.statics.warnings(bars.symbols, sent.numbers, sent.categories))
    keep = torch.from_numpy(usable)
    return Prepared(
        symbols=bars.symbols,
        usable=usable,
        inputs=rows if usable.all() else Inputs(*(group[keep] for group in rows)),
        sessions=bars.sessions[-length:],
        as_of=int(bars.sessions[-1]),
        target_sessions=pipeline.target_sessions(int(bars.sessions[-1])),
        anchor=bars.close[:, -1],
        warnings=tuple(warnings),
    )


def _on_calendar(pipeline: Pipeline, bars: BarPanel, instance: Instance, now: datetime) -> BarPanel:
    """The bars that the forecast depends on, checked against the exchange's sessions where those are known."""
    calendar = pipeline.calendar
    if not calendar.is_exchange:
        return bars
    if bars.calendar and bars.calendar != calendar.name:
        raise BarsError(f"the bars are of calendar {bars.calendar!r}, but the model's calendar is {calendar.name!r}")
    recent = bars.last(pipeline.bars_needed)
    strangers = calendar.unexpected(recent.sessions)
    if len(strangers):
        raise BarsError(f"{calendar.name} held no session on {_days(strangers)}; remove these bars")
    if not instance.allow_incomplete_last_bar:
        _check_complete(calendar, int(bars.sessions[-1]), now)
    missing = calendar.missing(recent.sessions)
    if len(missing) == 0 or instance.gap_policy is GapPolicy.IGNORE:
        return recent
    if instance.gap_policy is GapPolicy.REFUSE:
        raise SessionGapError(
            f"{calendar.name} held sessions on {_days(missing)} that the bars lack; send them, or choose the gap "
            "policy mask or ignore",
            metadata={"missing": _days(missing), "count": str(len(missing))},
        )
    return bars.on_sessions(np.union1d(bars.sessions, missing).astype(np.int32)).last(pipeline.bars_needed)


def _check_complete(calendar: SessionCalendar, last: int, now: datetime) -> None:
    if not calendar.is_complete(last, now):
        raise BarIncompleteError(
            f"the session of {_days([last])} has not closed yet, so its bar has no close; leave it out, or say "
            "allow_incomplete_last_bar",
            metadata={"date": _days([last])},
        )


def _unusable_warnings(bars: BarPanel, usable: BoolArray, scale: FloatArray) -> list[str]:
    return [
        f"{symbol}: no forecast, because {_why_unusable(bars, s, float(scale[s]))}"
        for s, symbol in enumerate(bars.symbols)
        if not usable[s]
    ]


def _why_unusable(bars: BarPanel, symbol: int, scale: float) -> str:
    if not bars.present[symbol, -1]:
        return f"it has no bar on the panel's last session {_days([int(bars.sessions[-1])])}"
    if np.isnan(scale):
        return "none of its last sessions has a value to measure its volatility by, such as a return"
    if scale > LARGEST_SCALE:
        return f"its volatility is {scale:.3g} a day, which no market has; check its prices"
    return "none of its last sessions has a known feature"


def _days(sessions: Sequence[int] | NDArray[np.int32]) -> str:
    """Up to five dates in ISO form."""
    shown = [shown_date(int(session)) for session in sessions[:5]]
    return ", ".join(shown) + (f" and {len(sessions) - 5} more" if len(sessions) > 5 else "")  # noqa: PLR2004

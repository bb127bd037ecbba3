"""From an instance of bars to a network's inputs."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.covariates import check_sent
from predictor.errors import BarIncompleteError, BarsError, SessionGapError, shown_date
from predictor.instance import GapPolicy, Instance
from predictor.model.judging import Found, check_length, refusals_of, warnings_of
from predictor.model.prepared import Prepared, nothing_usable
from predictor.networks import Inputs
from predictor.sessions import SessionCalendar
from predictor.windows import Pipeline

NO_EXCHANGE = (
    "target sessions count Monday to Friday, holidays included, because the model carries no exchange's calendar; "
    "train it with --calendar"
)
"""Said with every forecast of such a model."""
GUESSED_SESSIONS = (
    "the bars begin on {first}, after the first of the {encoder} sessions that the model reads; those before it are "
    "counted Monday to Friday too, so that a network that reads their calendar answers a little differently than "
    "beside a symbol whose bars tell them: send such bars too, or train with --calendar"
)
"""Said where such a model fills the encoder up with sessions that nobody sent."""


def prepare_bars(pipeline: Pipeline, instance: Instance, bars: BarPanel, now: datetime) -> Prepared:
    """Check bars against calendar and clock, and compute the inputs of those symbols that can be forecast.

    Raises:
        BarsError, BarIncompleteError, SessionGapError, CalendarEndedError: the panel cannot be read.
        CovariateMissingError, UnknownCovariateError, CovariatesError: the covariates are not those of the model.
        TooFewBarsError: every symbol has too few bars.
        NoUsableSymbolError: no symbol of it can be forecast, for this reason and others.
    """
    sent = instance.covariates
    check_sent(pipeline.covariates, sent)
    sent.check(len(bars.symbols), bars.sessions)
    given, bars = bars.sessions, _on_calendar(pipeline, bars, instance, now)
    covariates = sent.on_sessions(given, bars.sessions, pipeline.following(int(bars.sessions[-1])))
    adjusted, faults = bars.adjusted_each()
    encoded = pipeline.encode_recent(bars, adjusted, covariates)
    rows = pipeline.latest_window(encoded)
    found = Found.of(pipeline, bars, encoded, rows, faults)
    refusals = refusals_of(pipeline, found)
    if len(refusals) == len(bars.symbols):
        raise nothing_usable(refusals)
    usable = np.array([symbol not in refusals for symbol in bars.symbols])

    def warnings() -> Iterator[str]:
        yield from warnings_of(pipeline, found, refusals)
        if not pipeline.calendar.is_exchange:
            yield NO_EXCHANGE
            if len(given) < pipeline.encoder_length:
                yield GUESSED_SESSIONS.format(first=shown_date(int(given[0])), encoder=pipeline.encoder_length)
        yield from covariates.warnings(bars.symbols)
        yield from pipeline.features.statics.warnings(bars.symbols, sent.numbers, sent.categories)

    keep = torch.from_numpy(usable)
    return Prepared(
        symbols=bars.symbols,
        usable=usable,
        inputs=rows if usable.all() else Inputs(*(group[keep] for group in rows)),
        sessions=bars.sessions[-pipeline.encoder_length :],
        as_of=int(bars.sessions[-1]),
        target_sessions=pipeline.target_sessions(int(bars.sessions[-1])),
        base_session=pipeline.base_session(int(bars.sessions[-1])),
        anchor=bars.close[:, -1],
        warnings=tuple(warnings()),
        refusals=refusals,
    )


def _on_calendar(pipeline: Pipeline, bars: BarPanel, instance: Instance, now: datetime) -> BarPanel:
    """The sessions that the forecast depends on, checked against the exchange's where those are known."""
    calendar = pipeline.calendar
    if not calendar.is_exchange:
        check_length(pipeline, bars)
        return pipeline.recent(bars)
    if bars.calendar and bars.calendar != calendar.name:
        raise BarsError(f"the bars are of calendar {bars.calendar!r}, but the model's calendar is {calendar.name!r}")
    recent = bars.last(pipeline.bars_needed)
    strangers = calendar.unexpected(recent.sessions)
    if len(strangers):
        raise BarsError(f"{calendar.name} held no session on {_days(strangers)}; remove these bars")
    if not instance.allow_incomplete_last_bar:
        _check_complete(calendar, int(bars.sessions[-1]), now)
    missing = calendar.missing(recent.sessions)
    if len(missing) and instance.gap_policy is GapPolicy.REFUSE:
        raise SessionGapError(
            f"{calendar.name} held sessions on {_days(missing)} that the bars lack; send them, or choose the gap "
            "policy mask or ignore",
            metadata={"missing": _days(missing), "count": str(len(missing))},
        )
    check_length(pipeline, recent)
    masks = len(missing) and instance.gap_policy is GapPolicy.MASK
    return pipeline.recent(_masked(recent, missing, pipeline.bars_needed) if masks else recent)


def _masked(bars: BarPanel, missing: NDArray[np.int32], count: int) -> BarPanel:
    """The last `count` sessions of the bars and of those that they lack, which have no bar."""
    sessions = np.union1d(bars.sessions, missing)[-count:].astype(np.int32)
    return bars.between(int(sessions[0]), int(sessions[-1])).on_sessions(sessions)


def _check_complete(calendar: SessionCalendar, last: int, now: datetime) -> None:
    if not calendar.is_complete(last, now):
        raise BarIncompleteError(
            f"the session of {_days([last])} has not closed yet, so its bar has no close; leave it out, or say "
            "allow_incomplete_last_bar",
            metadata={"date": _days([last])},
        )


def _days(sessions: Sequence[int] | NDArray[np.int32]) -> str:
    """Up to five dates in ISO form."""
    shown = [shown_date(int(session)) for session in sessions[:5]]
    return ", ".join(shown) + (f" and {len(sessions) - 5} more" if len(sessions) > 5 else "")  # noqa: PLR2004

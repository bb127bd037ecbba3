"""From an instance, bars or feature windows, to a network's inputs."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.bars.checks import check_symbols
from predictor.covariates import check_sent
from predictor.errors import (
    BarIncompleteError,
    BarsError,
    FeatureMismatchError,
    InvalidInputError,
    SessionGapError,
    UnknownFeatureError,
    WindowShapeError,
    shown_date,
)
from predictor.instance import FeatureWindow, GapPolicy, Instance
from predictor.model.prepared import (
    LARGEST_PRICE,
    LARGEST_SCALE,
    PanelState,
    Prepared,
    can_anchor,
    check_length,
    nothing_usable,
    refusals_of,
    warnings_of,
)
from predictor.networks import Inputs
from predictor.sessions import SessionCalendar
from predictor.windows import Pipeline

NO_EXCHANGE = (
    "target sessions count Monday to Friday, holidays included, because the model carries no exchange's calendar; "
    "train it with --calendar"
)
"""A warning with every forecast of such a model."""
GUESSED_SESSIONS = (
    "the bars begin on {first}, after the first of the {encoder} sessions that the model reads; those before it are "
    "counted Monday to Friday too, so that a network that reads their calendar answers a little differently than "
    "beside a symbol whose bars tell them: send such bars too, or train with --calendar"
)
"""A warning where such a model fills the encoder up with sessions that were not sent."""


def prepare_bars(pipeline: Pipeline, instance: Instance, bars: BarPanel, now: datetime) -> Prepared:
    """Check bars against calendar and clock, and compute the inputs of those symbols that can be forecast.

    Raises:
        BarsError, BarIncompleteError, SessionGapError, CalendarEndedError: the panel cannot be read.
        CovariateMissingError, UnknownCovariateError, CovariatesError: the covariates are not those of the model.
        TooFewBarsError: every symbol has too few bars.
        NoUsableSymbolError: none of its symbols can be forecast, for this reason and others.
    """
    sent = instance.covariates
    check_sent(pipeline.covariates, sent)
    sent.check(len(bars.symbols), bars.sessions)
    given, bars = bars.sessions, _on_calendar(pipeline, bars, instance, now)
    covariates = sent.on_sessions(given, bars.sessions, pipeline.following(int(bars.sessions[-1])))
    adjusted, faults = bars.adjusted_each()
    encoded = pipeline.encode_recent(bars, adjusted, covariates)
    rows = pipeline.latest_window(encoded)
    panel = PanelState.of(pipeline, bars, encoded, rows, faults)
    refusals = refusals_of(pipeline, panel)
    if len(refusals) == len(bars.symbols):
        raise nothing_usable(refusals)
    usable = np.array([symbol not in refusals for symbol in bars.symbols])

    def warnings() -> Iterator[str]:
        yield from warnings_of(pipeline, panel, refusals)
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
    """The last `count` sessions of the bars and of the missing ones, which have no bar."""
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


WINDOW_TYPES: Mapping[str, type[np.generic]] = {
    "observed": np.float32,
    "known": np.float32,
    "static": np.float32,
    "mask": np.bool_,
    "location": np.float64,
    "scale": np.float64,
}
"""Groups of a feature window, in the order of `Inputs`."""

LARGEST: Mapping[str, float] = {
    "observed": 1e6,
    "known": 1e6,
    "static": 1e6,
    "location": 100.0,
    "scale": LARGEST_SCALE,
}
"""Bounds for a caller's windows: far beyond what features reach, and far below what overflows on the way to prices."""


def prepare_window(pipeline: Pipeline, window: FeatureWindow) -> Prepared:
    """Check a caller's windows.

    Raises:
        UnknownFeatureError: a feature is named that the model does not read.
        FeatureMismatchError: they were made with another schema.
        WindowShapeError: a group has another shape or type than the model reads.
        InvalidInputError: a number in them is invalid.
    """
    _check_window(pipeline, window)
    as_of, unknown = window.as_of_session, np.zeros(0, np.int32)
    return Prepared(
        symbols=window.symbols,
        usable=np.ones(len(window.symbols), np.bool_),
        inputs=_inputs(pipeline, window),
        sessions=unknown,
        as_of=as_of,
        target_sessions=pipeline.target_sessions(as_of) if as_of else unknown,
        base_session=pipeline.base_session(as_of) if as_of else 0,
        anchor=window.anchor_price,
        warnings=(),
    )


def _inputs(pipeline: Pipeline, window: FeatureWindow) -> Inputs:
    """The groups as the network reads them: with levels for every horizon, whether one or many were sent."""
    given = Inputs(*(torch.from_numpy(np.array(getattr(window, name))) for name in WINDOW_TYPES))
    shape = (len(window.symbols), len(pipeline.target.horizons))
    location, scale = (part.reshape(len(part), -1).expand(shape).contiguous() for part in (given.location, given.scale))
    return given._replace(location=location, scale=scale)


def _check_window(pipeline: Pipeline, window: FeatureWindow) -> None:
    _check_features(window.features, pipeline.features.features.names)
    ours = pipeline.features.schema_hash
    if window.schema_hash != ours:
        names = [f.name for f in pipeline.features.features.observed]
        raise FeatureMismatchError(
            f"the windows were made with schema {window.schema_hash[:80]!r}, the model's is {ours!r} with "
            f"features {names}; ask GetModel for the expressions",
            metadata={"expected": ours},
        )
    check_symbols(window.symbols)
    for name, want in _window_shapes(pipeline, window).items():
        _check_group(name, getattr(window, name), want)
    if window.observed[~window.mask].any():
        raise InvalidInputError("observed holds a value where mask says that the cell is unknown; it must be 0")
    unknown = np.flatnonzero(~window.mask.any(axis=(1, 2)))
    if unknown.size:
        raise InvalidInputError(
            f"mask says that nothing is known about {window.symbols[int(unknown[0])]}, which leaves nothing to "
            "forecast from; leave the symbol out"
        )
    if not (window.scale > 0).all():
        raise InvalidInputError("scale holds a value that is not positive")
    if window.anchor_price is not None:
        _check_anchor(window.anchor_price, len(window.symbols))
    if window.as_of_session and not pipeline.calendar.is_session(window.as_of_session):
        raise InvalidInputError(
            f"as_of_session {window.as_of_session} is not a session of {pipeline.calendar.name}; "
            "send the session of the last row, yyyymmdd, or 0 if it is unknown"
        )


def _check_features(given: tuple[str, ...], ours: tuple[str, ...]) -> None:
    """The caller's feature names, if it sent any, against the model's."""
    known, sent = frozenset(ours), frozenset(given)
    unknown = [name for name in given if name not in known]
    if unknown:
        raise UnknownFeatureError(
            f"features {unknown[:5]} are not the model's; it reads {list(ours)}",
            metadata={"unknown": ",".join(unknown[:5])},
        )
    if given and given != ours:
        missing = [name for name in ours if name not in sent]
        raise FeatureMismatchError(
            f"the features are in another order than the model's, or some are missing: missing {missing}; "
            f"it reads {list(ours)}",
            metadata={"missing": ",".join(missing)},
        )


def _window_shapes(pipeline: Pipeline, window: FeatureWindow) -> dict[str, tuple[int, ...]]:
    sizes, symbols, horizons = pipeline.sizes, len(window.symbols), len(pipeline.target.horizons)
    rows = (symbols, sizes.encoder_length)
    flat = not pipeline.normaliser.is_per_horizon or (horizons == 1 and window.location.ndim == 1)
    levels = (symbols,) if flat else (symbols, horizons)
    return {
        "observed": (*rows, sizes.observed),
        "known": (symbols, sizes.encoder_length + sizes.future_length, sizes.known),
        "static": (symbols, sizes.static),
        "mask": (*rows, sizes.observed),
        "location": levels,
        "scale": levels,
    }


def _check_group(name: str, group: NDArray[np.generic], shape: tuple[int, ...]) -> None:
    """One group of a caller's window: its shape, its type, and numbers that a network can take."""
    want = np.dtype(WINDOW_TYPES[name])
    if group.shape != shape or group.dtype != want:
        raise WindowShapeError(
            f"{name} is {group.dtype} of shape {list(group.shape)}, the model reads {want} of shape {list(shape)}"
        )
    if name in LARGEST and not (np.abs(group) <= LARGEST[name]).all():
        raise InvalidInputError(f"{name} holds a value that is not finite, or beyond {LARGEST[name]:g}")


def _check_anchor(prices: FloatArray, symbols: int) -> None:
    if prices.shape != (symbols,):
        raise WindowShapeError(f"anchor_price must hold one price for each of {symbols} symbols")
    if not can_anchor(prices).all():
        raise InvalidInputError(f"anchor_price holds a value that is not a price above 0 and up to {LARGEST_PRICE:g}")


def prepared_by(pipeline: Pipeline, instance: Instance, now: datetime) -> Prepared:
    """Check an instance and compute its inputs.

    Raises:
        QuantraError: the instance cannot be forecast; see predictor.errors.
    """
    if isinstance(instance.input, BarPanel):
        return prepare_bars(pipeline, instance, instance.input, now)
    return prepare_window(pipeline, instance.input)

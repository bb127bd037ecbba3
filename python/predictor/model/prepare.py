"""From instances, bars or feature windows, to a network's inputs: bars of several instances in one computation."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, final

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.bars.adjustment import adjust_each
from predictor.bars.checks import check_symbols
from predictor.covariates import Covariates, check_sent
from predictor.errors import (
    FeatureMismatchError,
    InvalidInputError,
    QuantraError,
    UnknownFeatureError,
    WindowShapeError,
)
from predictor.instance import Cancellation, FeatureWindow, Instance
from predictor.model.dates import DateReader
from predictor.model.prepared import (
    LARGEST_PRICE,
    LARGEST_SCALE,
    PanelState,
    Prepared,
    SymbolStates,
    can_anchor,
    nothing_usable,
    refusals_of,
    warnings_of,
)
from predictor.model.stacked import Reading, stacked, stacked_covariates
from predictor.networks import Inputs
from predictor.windows import Pipeline

ROWS_AT_ONCE: Final = 256
"""Symbols of several instances that are computed together at most: what each costs by itself is spread thin by then,
and what is held meanwhile stays at a few MiB however many instances wait."""


def prepare_each(
    dates: DateReader, instances: Sequence[Instance], now: datetime, deadline: Cancellation, *, together: bool
) -> list[Prepared | QuantraError]:
    """Check instances and compute their inputs: what each gets alone, or the error that belongs to it.

    Args:
        dates: of the pipeline that makes the inputs.
        instances: bars or windows.
        now: the present, with a time zone.
        deadline: looked at before each instance, and before each computation of several of them.
        together: whether several instances may share a computation.

    Raises:
        DeadlineExceededError, CallCancelledError: nobody waits for the answers any more.
    """
    preparation = _Preparation(dates, now, deadline, rows_at_once=ROWS_AT_ONCE if together else 0)
    for place, instance in enumerate(instances):
        preparation.take(place, instance)
    return preparation.finished()


@dataclass(slots=True)
class _Waiting:
    """Readings of one kind that will be computed together."""

    readings: dict[int, Reading] = field(default_factory=dict[int, Reading])
    """By the place of the instance."""
    rows: int = 0
    """Symbols of all of them."""


@final
class _Preparation:
    """Instances on their way to inputs; some wait until as many have come as are computed together."""

    def __init__(self, dates: DateReader, now: datetime, deadline: Cancellation, *, rows_at_once: int) -> None:
        self._pipeline = dates.pipeline
        self._dates = dates
        self._now = now
        self._deadline = deadline
        self._rows_at_once = rows_at_once
        self._waiting: dict[Hashable, _Waiting] = {}
        self._prepared: dict[int, Prepared | QuantraError] = {}

    def take(self, place: int, instance: Instance) -> None:
        """Check one."""
        self._deadline.check()
        read = self._read(instance)
        if isinstance(read, Reading):
            self._wait(place, read)
        else:
            self._prepared[place] = read

    def finished(self) -> list[Prepared | QuantraError]:
        """What became of all that were taken, in order."""
        for waiting in self._waiting.values():
            self._compute(waiting)
        return [self._prepared[place] for place in range(len(self._prepared))]

    def _read(self, instance: Instance) -> Reading | Prepared | QuantraError:
        try:
            if isinstance(instance.input, BarPanel):
                return read_bars(instance, instance.input, self._dates, self._now)
            return prepare_window(self._pipeline, instance.input)
        except QuantraError as error:
            return error

    def _wait(self, place: int, reading: Reading) -> None:
        waiting, rows = self._waiting.setdefault(reading.kind, _Waiting()), len(reading.bars.symbols)
        if waiting.rows and waiting.rows + rows > self._rows_at_once:
            self._compute(waiting)
        waiting.readings[place] = reading
        waiting.rows += rows

    def _compute(self, waiting: _Waiting) -> None:
        self._deadline.check()
        prepared = computed(self._pipeline, [*waiting.readings.values()])
        self._prepared.update(zip(waiting.readings, prepared, strict=True))
        waiting.readings.clear()
        waiting.rows = 0


def read_bars(instance: Instance, bars: BarPanel, dates: DateReader, now: datetime) -> Reading:
    """Check an instance's covariates and dates, before anything is computed from its bars.

    Raises:
        BarsError, BarIncompleteError, SessionGapError, CalendarEndedError: the panel cannot be read.
        CovariateMissingError, UnknownCovariateError, CovariatesError: the covariates are not those of the model.
        TooFewBarsError: every symbol has too few bars.
    """
    sent, asked = instance.covariates, dates.pipeline.covariates
    if asked or not sent.is_empty:
        check_sent(asked, sent)
        sent.check(len(bars.symbols), bars.sessions)
    read = dates.read(instance, bars, now)
    if sent.names:
        sent = sent.on_sessions(bars.sessions, read.sessions, read.following)
    return Reading(instance=instance, bars=bars, dates=read, covariates=sent)


def computed(pipeline: Pipeline, readings: Sequence[Reading]) -> list[Prepared | QuantraError]:
    """The inputs of the symbols that can be forecast, for readings of one kind; an error where there is none."""
    try:
        return _computed_together(pipeline, readings)
    except QuantraError as error:
        if len(readings) == 1:
            return [error]
        return [one for reading in readings for one in computed(pipeline, [reading])]


def _computed_together(pipeline: Pipeline, readings: Sequence[Reading]) -> list[Prepared | QuantraError]:
    stack, covariates = stacked(readings), stacked_covariates(readings)
    adjusted, faults = adjust_each(stack)
    encoded = pipeline.encode_recent(adjusted, covariates, _known(pipeline, readings, covariates))
    inputs = pipeline.latest_window(encoded)
    states = SymbolStates.of(pipeline, stack.close, encoded.series, inputs)
    is_plain = states.is_sound & ~states.is_flat & stack.without_remark
    anchors = stack.close[:, -1].copy()
    anchors.setflags(write=False)
    prepared: list[Prepared | QuantraError] = []
    for reading, rows, own in zip(readings, stack.rows, _split(inputs, stack.rows), strict=True):
        if is_plain[rows].all():
            prepared.append(_prepared(pipeline, reading, own, anchors[rows], {}, ()))
            continue
        own_faults = faults if len(readings) == 1 else adjust_each(stacked([reading]))[1]
        panel = PanelState(bars=reading.dates.recent(reading.bars), symbols=states.part(rows), faults=own_faults)
        prepared.append(_judged(pipeline, reading, panel, own, anchors[rows]))
    return prepared


def _known(pipeline: Pipeline, readings: Sequence[Reading], covariates: Covariates) -> NDArray[np.float32]:
    """[R or 1, T + D, K] known features of the symbols of readings of one kind."""
    first = readings[0].dates
    if first.known is None:
        return pipeline.latest_known(first.sessions, first.following, covariates)
    if all(reading.dates is first for reading in readings):
        return first.known
    shape = first.known.shape[1:]
    return np.concatenate(
        [
            np.broadcast_to(one.dates.known, (len(one.bars.symbols), *shape))
            for one in readings
            if one.dates.known is not None
        ]
    )


def _split(inputs: Inputs, rows: Sequence[slice]) -> Iterator[Inputs]:
    """The inputs of each reading."""
    if len(rows) == 1:
        return iter((inputs,))
    sizes = [part.stop - part.start for part in rows]
    return (Inputs(*groups) for groups in zip(*(group.split(sizes) for group in inputs), strict=True))


def _judged(
    pipeline: Pipeline, reading: Reading, panel: PanelState, rows: Inputs, anchor: FloatArray
) -> Prepared | QuantraError:
    """An instance of which there is something to say: the symbols that cannot be forecast are left out."""
    refusals = refusals_of(pipeline, panel)
    if len(refusals) == len(reading.bars.symbols):
        return nothing_usable(refusals)
    remarks = warnings_of(pipeline, panel, refusals)
    return _prepared(pipeline, reading, rows, anchor, refusals, tuple(remarks))


def _prepared(
    pipeline: Pipeline,
    reading: Reading,
    rows: Inputs,
    anchor: FloatArray,
    refusals: Mapping[str, QuantraError],
    remarks: tuple[str, ...],
) -> Prepared:
    symbols, dates = reading.bars.symbols, reading.dates
    usable = np.ones(len(symbols), np.bool_)
    if refusals:
        usable &= [symbol not in refusals for symbol in symbols]
        keep = torch.from_numpy(usable)
        rows = Inputs(*(group[keep] for group in rows))
    return Prepared(
        symbols=symbols,
        usable=usable,
        inputs=rows,
        sessions=dates.encoder,
        as_of=dates.as_of,
        target_sessions=dates.target_sessions.copy(),
        base_session=dates.base_session,
        anchor=anchor,
        warnings=(*remarks, *dates.warnings, *_unknown(pipeline, reading)),
        refusals=refusals,
    )


def _unknown(pipeline: Pipeline, reading: Reading) -> Iterator[str]:
    """What a reader has to know of the covariates."""
    symbols, sent = reading.bars.symbols, reading.instance.covariates
    if sent.names:
        yield from reading.covariates.warnings(symbols)
        yield from pipeline.features.statics.warnings(symbols, sent.numbers, sent.categories)


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

"""From instances, bars or feature windows, to a network's inputs: several instances in one computation."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final, Generic, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.bars.adjustment import adjust_each
from predictor.covariates import Covariates, check_sent
from predictor.errors import QuantraError
from predictor.instance import Cancellation, FeatureWindow, Instance
from predictor.model.dates import DateReader, check_age
from predictor.model.prepared import (
    PanelState,
    PreparedInstance,
    SymbolStates,
    nothing_usable,
    refusals_of,
    warnings_of,
)
from predictor.model.stacked import AlignedInstance, stacked, stacked_covariates
from predictor.model.window_inputs import check_form, windows_prepared
from predictor.networks import Inputs
from predictor.windows import Pipeline

ROWS_AT_ONCE: Final = 256
"""Symbols of several instances that are computed together at most: what each costs by itself is spread thin by then,
and what is held meanwhile stays at a few MiB however many instances wait."""


def prepare_each(
    dates: DateReader, instances: Sequence[Instance], now: datetime, deadline: Cancellation, *, together: bool
) -> list[PreparedInstance | QuantraError]:
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


ReadT = TypeVar("ReadT")


@final
@dataclass(slots=True)
class _PendingInstances(Generic[ReadT]):
    """Instances of one kind that will be computed together."""

    compute: Callable[[Sequence[ReadT]], Sequence[PreparedInstance | QuantraError]]
    read: dict[int, ReadT] = field(default_factory=dict[int, ReadT])
    """By the place of the instance."""
    rows: int = 0
    """Symbols of all of them."""


@final
class _Preparation:
    """Instances on their way to inputs; they wait until as many have come as are computed together."""

    def __init__(self, dates: DateReader, now: datetime, deadline: Cancellation, *, rows_at_once: int) -> None:
        self._pipeline = dates.pipeline
        self._dates = dates
        self._now = now
        self._deadline = deadline
        self._rows_at_once = rows_at_once
        self._bars: dict[Hashable, _PendingInstances[AlignedInstance]] = {}
        self._windows: _PendingInstances[FeatureWindow] = _PendingInstances(partial(windows_prepared, self._pipeline))
        self._prepared: dict[int, PreparedInstance | QuantraError] = {}

    def take(self, place: int, instance: Instance) -> None:
        """Check one."""
        self._deadline.check()
        read = self._read(instance)
        if isinstance(read, QuantraError):
            self._prepared[place] = read
        elif isinstance(read, FeatureWindow):
            self._wait(self._windows, place, read, len(read.symbols))
        else:
            waiting = self._bars.setdefault(read.kind, _PendingInstances(partial(computed, self._pipeline)))
            self._wait(waiting, place, read, len(read.bars.symbols))

    def finished(self) -> list[PreparedInstance | QuantraError]:
        """What became of all that were taken, in order."""
        for waiting in self._bars.values():
            self._compute(waiting)
        self._compute(self._windows)
        return [self._prepared[place] for place in range(len(self._prepared))]

    def _read(self, instance: Instance) -> AlignedInstance | FeatureWindow | QuantraError:
        calendar, most_age = self._pipeline.calendar, instance.max_age_sessions
        try:
            if isinstance(instance.input, BarPanel):
                reading = read_bars(instance, instance.input, self._dates, self._now)
                check_age(calendar, reading.dates.as_of, most_age, self._now)
                return reading
            check_form(self._pipeline, instance.input)
            check_age(calendar, instance.input.as_of_session, most_age, self._now)
        except QuantraError as error:
            return error
        return instance.input

    def _wait(self, waiting: _PendingInstances[ReadT], place: int, read: ReadT, rows: int) -> None:
        if waiting.rows and waiting.rows + rows > self._rows_at_once:
            self._compute(waiting)
        waiting.read[place] = read
        waiting.rows += rows

    def _compute(self, waiting: _PendingInstances[ReadT]) -> None:
        if not waiting.read:
            return
        self._deadline.check()
        self._prepared.update(zip(waiting.read, waiting.compute([*waiting.read.values()]), strict=True))
        waiting.read.clear()
        waiting.rows = 0


def read_bars(instance: Instance, bars: BarPanel, dates: DateReader, now: datetime) -> AlignedInstance:
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
    return AlignedInstance(instance=instance, bars=bars, dates=read, covariates=sent)


def computed(pipeline: Pipeline, readings: Sequence[AlignedInstance]) -> list[PreparedInstance | QuantraError]:
    """The inputs of the symbols that can be forecast, for readings of one kind; an error where there is none."""
    try:
        return _computed_together(pipeline, readings)
    except QuantraError as error:
        if len(readings) == 1:
            return [error]
        return [one for reading in readings for one in computed(pipeline, [reading])]


def _computed_together(
    pipeline: Pipeline, readings: Sequence[AlignedInstance]
) -> list[PreparedInstance | QuantraError]:
    stack, covariates = stacked(readings), stacked_covariates(readings)
    adjusted, faults = adjust_each(stack)
    encoded = pipeline.encode_recent(adjusted, covariates, _known(pipeline, readings, covariates))
    inputs = pipeline.latest_window(encoded)
    states = SymbolStates.of(pipeline, stack.close, encoded.series, inputs)
    is_plain = states.is_sound & ~states.is_flat & stack.without_remark
    anchors = stack.close[:, -1].copy()
    anchors.setflags(write=False)
    prepared: list[PreparedInstance | QuantraError] = []
    for reading, rows, own in zip(readings, stack.rows, _split(inputs, stack.rows), strict=True):
        if is_plain[rows].all():
            prepared.append(_prepared(pipeline, reading, own, anchors[rows], {}, ()))
            continue
        own_faults = faults if len(readings) == 1 else adjust_each(stacked([reading]))[1]
        panel = PanelState(bars=reading.dates.recent(reading.bars), symbols=states.part(rows), faults=own_faults)
        prepared.append(_judged(pipeline, reading, panel, own, anchors[rows]))
    return prepared


def _known(pipeline: Pipeline, readings: Sequence[AlignedInstance], covariates: Covariates) -> NDArray[np.float32]:
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
    pipeline: Pipeline, reading: AlignedInstance, panel: PanelState, rows: Inputs, anchor: FloatArray
) -> PreparedInstance | QuantraError:
    """An instance of which there is something to say: the symbols that cannot be forecast are left out."""
    refusals = refusals_of(pipeline, panel)
    if len(refusals) == len(reading.bars.symbols):
        return nothing_usable(refusals)
    remarks = warnings_of(pipeline, panel, refusals)
    return _prepared(pipeline, reading, rows, anchor, refusals, tuple(remarks))


def _prepared(
    pipeline: Pipeline,
    reading: AlignedInstance,
    rows: Inputs,
    anchor: FloatArray,
    refusals: Mapping[str, QuantraError],
    remarks: tuple[str, ...],
) -> PreparedInstance:
    symbols, dates = reading.bars.symbols, reading.dates
    usable = np.ones(len(symbols), np.bool_)
    if refusals:
        usable &= [symbol not in refusals for symbol in symbols]
        keep = torch.from_numpy(usable)
        rows = Inputs(*(group[keep] for group in rows))
    return PreparedInstance(
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


def _unknown(pipeline: Pipeline, reading: AlignedInstance) -> Iterator[str]:
    """What a reader has to know of the covariates."""
    symbols, sent = reading.bars.symbols, reading.instance.covariates
    if sent.names:
        yield from reading.covariates.warnings(symbols)
        yield from pipeline.features.statics.warnings(symbols, sent.numbers, sent.categories)

"""Preparation of network inputs from bars or feature windows, several instances at a time."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate, chain, pairwise
from typing import Final, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray, IndexArray
from predictor.bars import BarPanel
from predictor.bars.adjustment import adjust_each
from predictor.bars.jumps import MAX_CLOSE_JUMP, MAX_USUAL_MOVE
from predictor.bars.suspects import (
    SuspectBars,
    SuspectKind,
    TradedBars,
    find_suspects,
    make_suspect_error,
    may_be_suspect,
    remove_suspects,
    select_traded_bars,
)
from predictor.call_context import Deadline
from predictor.covariates import NO_COVARIATES, Covariates, check_covariates
from predictor.dates import to_optional_date_number
from predictor.errors import BarIncompleteError, BarsError, NoUsableSymbolError, QuantraError, format_date
from predictor.instance import FeatureWindow, Instance
from predictor.model.dates import DateReader, ForecastDates, check_age, drop_wrong_sessions
from predictor.model.prepared_instance import (
    PanelState,
    PreparedInstance,
    SymbolStates,
    find_refusals,
    find_warnings,
    make_no_usable_symbol_error,
)
from predictor.model.window_inputs import WindowReader
from predictor.networks import Inputs
from predictor.windows import Pipeline


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AlignedInstance:
    """An instance of bars, aligned with the model's calendar and covariates."""

    instance: Instance
    bars: BarPanel
    """All bars of the request."""
    dates: ForecastDates
    covariates: Covariates
    """Covariates on the sessions that the forecast depends on."""
    warnings: tuple[str, ...] = ()
    """Warnings about bars that were left out, or are suspect and accepted."""
    refusals: Mapping[str, QuantraError] = field(default_factory=dict[str, QuantraError])
    """The error of each symbol whose bars are impossible or suspect, or that did not trade."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols of the bars."""
        return self.bars.symbols

    @property
    def kind(self) -> Hashable:
        """Key of instances that can be stacked: with the same adjustment and the same axis of known covariates."""
        bars = self.bars
        recorded = (bars.adj_close is None, bars.split_ratio is None, bars.cash_dividend is None)
        return (recorded, self.dates if self.covariates.known else None)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StackedBars:
    """Raw bars, float64 [R, B], of the R symbols of several instances in order."""

    symbols: tuple[str, ...]
    """[R] symbols; several rows may share one."""
    sessions: NDArray[np.int32]
    """[B] sessions of the first instance."""
    open: FloatArray
    high: FloatArray
    low: FloatArray
    close: FloatArray
    volume: FloatArray
    adj_close: FloatArray | None
    split_ratio: FloatArray | None
    cash_dividend: FloatArray | None
    rows: tuple[slice, ...]
    """Rows of each instance."""

    @property
    def without_remark(self) -> BoolArray:
        """[R] whether the symbol has every bar and no unexplained price jump."""
        is_complete = np.all(~np.isnan(self.close), axis=1)
        if self.split_ratio is not None:
            return is_complete
        with np.errstate(all="ignore"):
            if self.adj_close is None:
                before, largest = self.close[:, :-1], MAX_USUAL_MOVE
                moves = np.stack([self.open[:, 1:] / before, self.close[:, 1:] / before])
            else:
                factors, largest = self.close / self.adj_close, MAX_CLOSE_JUMP
                moves = (factors[:, 1:] / factors[:, :-1])[None]
        usual = (moves <= largest) & (moves >= 1 / largest)
        return is_complete & np.all(usual, axis=(0, 2))

    @property
    def may_lack_data(self) -> BoolArray:
        """[R] whether `find_bars_warnings` may warn of the symbol's volumes."""
        return ~(np.minimum.reduce(self.volume, axis=1) > 0)


def stack_bars(aligned_instances: Sequence[AlignedInstance]) -> StackedBars:
    """Stack the bars of instances of one kind, on the sessions that each forecast depends on."""
    panels = [aligned.bars for aligned in aligned_instances]
    positions = [aligned.dates.positions for aligned in aligned_instances]
    count = len(aligned_instances[0].dates.sessions)
    ends = accumulate((len(bars.symbols) for bars in panels), initial=0)
    known = panels[0].columns  # of every instance, because they are of one kind

    def stack(name: str) -> FloatArray:
        pairs = zip(panels, positions, strict=True)
        parts = [_select_sessions(getattr(bars, name), indices, count) for bars, indices in pairs]
        return np.ascontiguousarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)

    return StackedBars(
        symbols=tuple(chain.from_iterable(bars.symbols for bars in panels)),
        sessions=aligned_instances[0].dates.sessions,
        open=stack("open"),
        high=stack("high"),
        low=stack("low"),
        close=stack("close"),
        volume=stack("volume"),
        adj_close=stack("adj_close") if "adj_close" in known else None,
        split_ratio=stack("split_ratio") if "split_ratio" in known else None,
        cash_dividend=stack("cash_dividend") if "cash_dividend" in known else None,
        rows=tuple(slice(first, end) for first, end in pairwise(ends)),
    )


def stack_covariates(aligned_instances: Sequence[AlignedInstance]) -> Covariates:
    """Stack the covariates [R, ...] of the instances."""
    first, *others = (aligned.covariates for aligned in aligned_instances)
    if not others or not first.names:
        return first if first.names else NO_COVARIATES
    all_covariates = (first, *others)

    def join(of: Callable[[Covariates], Mapping[str, FloatArray]]) -> dict[str, FloatArray]:
        return {name: np.concatenate([of(covariates)[name] for covariates in all_covariates]) for name in of(first)}

    return Covariates(
        observed=join(lambda covariates: covariates.observed),
        known=join(lambda covariates: covariates.known),
        future_sessions=first.future_sessions,
        numbers=join(lambda covariates: covariates.numbers),
        categories={
            name: tuple(chain.from_iterable(covariates.categories[name] for covariates in all_covariates))
            for name in first.categories
        },
    )


def _select_sessions(values: FloatArray, positions: IndexArray | None, count: int) -> FloatArray:
    """Select the columns [S, B] that a forecast depends on from [S, T]."""
    if positions is None:
        return values if values.shape[1] == count else values[:, -count:]
    columns = values[:, positions]
    columns[:, positions < 0] = np.nan
    return columns


InputT = TypeVar("InputT", AlignedInstance, FeatureWindow)

ROWS_AT_ONCE: Final = 256
"""Most symbols of several instances that are computed together.

The fixed cost per computation is small by then, and the memory stays at a few MiB."""


@final
class InstancePreparation:
    """Checks instances and computes their inputs for one pipeline. Thread-safe.

    Args:
        pipeline: computes the inputs.
        together: whether instances may share a computation.
    """

    def __init__(self, pipeline: Pipeline, *, together: bool) -> None:
        self.pipeline = pipeline
        self._rows_at_once = ROWS_AT_ONCE if together else 0
        self._dates = DateReader(pipeline)
        self._windows = WindowReader(pipeline)

    def prepare_each(
        self, instances: Sequence[Instance], now: datetime, deadline: Deadline
    ) -> list[PreparedInstance | QuantraError]:
        """Prepare instances; returns the inputs or the error of each.

        Args:
            instances: bars or windows.
            now: the present, with a time zone.
            deadline: checked before each instance of bars and before each joint computation.

        Raises:
            DeadlineExceededError, CallCancelledError: the call timed out or was cancelled.
        """
        prepared: dict[int, PreparedInstance | QuantraError] = {}
        windows, bars = dict[int, FeatureWindow](), dict[Hashable, dict[int, AlignedInstance]]()
        for index, instance in enumerate(instances):
            if isinstance(instance.input, BarPanel):
                deadline.check()
            try:
                aligned_input = self._read(instance, now)
            except QuantraError as error:
                prepared[index] = error.without_frames()
                continue
            if isinstance(aligned_input, FeatureWindow):
                windows[index] = aligned_input
            else:
                bars.setdefault(aligned_input.kind, {})[index] = aligned_input
        for aligned in bars.values():
            for part in self._split(aligned):
                deadline.check()
                prepared.update(zip(part, compute_inputs(self.pipeline, [*part.values()]), strict=True))
        for part in self._split(windows):
            deadline.check()
            prepared.update(zip(part, self._windows.prepare([*part.values()]), strict=True))
        return [prepared[index] for index in range(len(instances))]

    def _read(self, instance: Instance, now: datetime) -> AlignedInstance | FeatureWindow:
        """Check an instance; raises as `align_instance`, `WindowReader.check` and `check_age`."""
        calendar, max_age = self.pipeline.calendar, instance.max_age_sessions
        if isinstance(instance.input, BarPanel):
            aligned = align_instance(instance, instance.input, self._dates, now)
            check_age(calendar, aligned.dates.as_of, max_age, now)
            return aligned
        self._windows.check(instance.input)
        if max_age is not None:
            check_age(calendar, to_optional_date_number(instance.input.as_of_session), max_age, now)
        return instance.input

    def _split(self, inputs: Mapping[int, InputT]) -> Iterator[dict[int, InputT]]:
        """Yield parts of the instances, by index, that are computed together."""
        part, rows = dict[int, InputT](), 0
        for index, instance in inputs.items():
            rows += len(instance.symbols)
            if part and rows > self._rows_at_once:
                yield part
                part, rows = dict[int, InputT](), len(instance.symbols)
            part[index] = instance
        if part:
            yield part


def align_instance(instance: Instance, bars: BarPanel, dates: DateReader, now: datetime) -> AlignedInstance:
    """Check the covariates and dates of an instance before anything is computed from its bars.

    A symbol with a bar on a wrong session fails alone, unless most symbols have one.

    Raises:
        BarsError, BarIncompleteError, SessionGapError, CalendarEndedError: the panel cannot be read.
        CovariateMissingError, UnknownCovariateError, CovariatesError: the covariates do not match the model's.
        TooFewBarsError: every symbol has too few bars.
    """
    covariates, needs = instance.covariates, dates.pipeline.covariates
    if needs or not covariates.is_empty:
        check_covariates(needs, covariates)
        covariates.check(len(bars.symbols), bars.sessions)
    try:
        aligned = _align_bars(instance, bars, dates, now)
    except (BarsError, BarIncompleteError):
        possible, date_errors = drop_wrong_sessions(dates.pipeline, instance, bars, now)
        if not date_errors:
            raise
        aligned = _align_bars(instance, possible, dates, now)
        aligned = replace(aligned, refusals={**aligned.refusals, **date_errors})
    if not covariates.names:
        return aligned
    bar_dates = aligned.dates
    return replace(aligned, covariates=covariates.on_sessions(bars.sessions, bar_dates.sessions, bar_dates.following))


def _align_bars(instance: Instance, bars: BarPanel, dates: DateReader, now: datetime) -> AlignedInstance:
    traded = TradedBars(bars=bars) if instance.accept_suspect_bars else select_traded_bars(bars)
    bar_dates = dates.read(instance, traded.bars, now)
    idle = {
        symbol: NoUsableSymbolError(
            f"{symbol}: did not trade on {format_date(bar_dates.as_of)}: its bar repeats the close before with a "
            "volume of 0; send it by itself to forecast from its last traded session"
        )
        for symbol in traded.idle
    }
    return AlignedInstance(
        instance=instance,
        bars=traded.bars,
        dates=bar_dates,
        covariates=instance.covariates,
        warnings=traded.warnings,
        refusals={**idle, **instance.symbol_errors},
    )


def drop_suspect_bars(aligned: AlignedInstance) -> AlignedInstance:
    """Look for suspect bars among those that the forecast depends on.

    A single bar in the middle is left out. A symbol whose last bar or whole level is suspect is refused. An instance
    that accepts suspect bars keeps all of them. Every finding becomes a warning or an error.
    """
    suspects = find_suspects(aligned.dates.recent(aligned.bars))
    if aligned.instance.accept_suspect_bars:
        return replace(aligned, warnings=(*aligned.warnings, *map(str, suspects)))
    others = [suspect for suspect in suspects if not suspect.is_refused]
    refused: dict[str, list[SuspectBars]] = {}
    for suspect in suspects:
        if suspect.is_refused:
            refused.setdefault(suspect.symbol, []).append(suspect)
    left_out = {SuspectKind.BAR, SuspectKind.VOLUME}
    notes = [f"{suspect} It is left out." if suspect.kind in left_out else str(suspect) for suspect in others]
    return replace(
        aligned,
        bars=remove_suspects(aligned.bars, others),
        warnings=(*aligned.warnings, *notes),
        refusals={
            **aligned.refusals,
            **{symbol: make_suspect_error(symbol_suspects) for symbol, symbol_suspects in refused.items()},
        },
    )


def compute_inputs(
    pipeline: Pipeline, aligned_instances: Sequence[AlignedInstance]
) -> list[PreparedInstance | QuantraError]:
    """Compute the inputs of instances of one kind; an instance without a usable symbol gets an error."""
    try:
        return _compute_together(pipeline, aligned_instances)
    except QuantraError as error:
        if len(aligned_instances) == 1:
            return [error]
        return [prepared for aligned in aligned_instances for prepared in compute_inputs(pipeline, [aligned])]


def _compute_together(
    pipeline: Pipeline, aligned_instances: Sequence[AlignedInstance]
) -> list[PreparedInstance | QuantraError]:
    stack, covariates = stack_bars(aligned_instances), stack_covariates(aligned_instances)
    adjusted, faults = adjust_each(stack)
    doubtful = may_be_suspect(adjusted.high, adjusted.low, adjusted.close, stack.volume)
    if doubtful.any():
        before, parts = aligned_instances, zip(aligned_instances, stack.rows, strict=True)
        aligned_instances = [drop_suspect_bars(aligned) if doubtful[rows].any() else aligned for aligned, rows in parts]
        if any(after.bars is not first.bars for after, first in zip(aligned_instances, before, strict=True)):
            stack = stack_bars(aligned_instances)
            adjusted, faults = adjust_each(stack)
    encoded = pipeline.encode_recent(
        adjusted, covariates, _compute_known_features(pipeline, aligned_instances, covariates)
    )
    inputs = pipeline.latest_window(encoded)
    states = SymbolStates.of(pipeline, stack.close, encoded.series, inputs)
    starts = [rows.start for rows in stack.rows]
    is_plain = np.logical_and.reduceat(states.is_sound & ~states.is_flat & stack.without_remark, starts)
    may_lack_data = np.logical_or.reduceat(stack.may_lack_data, starts)
    anchors = stack.close[:, -1].copy()
    anchors.setflags(write=False)
    prepared: list[PreparedInstance | QuantraError] = []
    parts = zip(aligned_instances, stack.rows, is_plain.tolist(), may_lack_data.tolist(), strict=True)
    for aligned, rows, has_no_remark, lacks_data in parts:
        if has_no_remark and not aligned.refusals:
            plain = _build_prepared(pipeline, aligned, inputs, rows, anchors[rows], {}, (), may_lack_data=lacks_data)
            prepared.append(plain)
            continue
        own_faults = faults if len(aligned_instances) == 1 else adjust_each(stack_bars([aligned]))[1]
        panel = PanelState(bars=aligned.dates.recent(aligned.bars), symbols=states.part(rows), faults=own_faults)
        prepared.append(_prepare_checked(pipeline, aligned, panel, inputs, rows, anchors[rows]))
    return prepared


def _compute_known_features(
    pipeline: Pipeline, aligned_instances: Sequence[AlignedInstance], covariates: Covariates
) -> NDArray[np.float32]:
    """Compute the known features [R or 1, T + D, K] of instances of one kind."""
    first = aligned_instances[0].dates
    if first.known is None:
        return pipeline.latest_known(first.sessions, first.following, covariates)
    if all(aligned.dates is first for aligned in aligned_instances):
        return first.known
    shape = first.known.shape[1:]
    return np.concatenate(
        [
            np.broadcast_to(instance.dates.known, (len(instance.bars.symbols), *shape))
            for instance in aligned_instances
            if instance.dates.known is not None
        ]
    )


def _prepare_checked(
    pipeline: Pipeline, aligned: AlignedInstance, panel: PanelState, batch: Inputs, rows: slice, anchor: FloatArray
) -> PreparedInstance | QuantraError:
    """Prepare an instance that has warnings or errors; leaves out symbols that cannot be forecast."""
    refusals = {**find_refusals(pipeline, panel), **aligned.refusals}
    if len(refusals) == len(aligned.bars.symbols):
        return make_no_usable_symbol_error(refusals)
    remarks = find_warnings(pipeline, panel, refusals)
    return _build_prepared(pipeline, aligned, batch, rows, anchor, refusals, tuple(remarks), may_lack_data=True)


def _build_prepared(
    pipeline: Pipeline,
    aligned: AlignedInstance,
    batch: Inputs,
    rows: slice,
    anchor: FloatArray,
    refusals: Mapping[str, QuantraError],
    remarks: tuple[str, ...],
    *,
    may_lack_data: bool,
) -> PreparedInstance:
    symbols, dates = aligned.bars.symbols, aligned.dates
    usable = np.ones(len(symbols), np.bool_)
    if refusals:
        usable &= [symbol not in refusals for symbol in symbols]
        keep = torch.from_numpy(usable)
        batch = Inputs(*(group[rows][keep] for group in batch))
        rows = slice(0, len(batch.observed))
    covariates, unknown = aligned.instance.covariates, list[str]()
    if covariates.names:
        unknown.extend(aligned.covariates.warnings(symbols))
        unknown.extend(pipeline.features.statics.warnings(symbols, covariates.numbers, covariates.categories))
    return PreparedInstance(
        symbols=symbols,
        usable=usable,
        batch=batch,
        rows=rows,
        sessions=dates.encoder,
        as_of=dates.as_of,
        target_sessions=dates.target_sessions,
        base_session=dates.base_session,
        anchor=anchor,
        warnings=(*remarks, *aligned.warnings, *dates.warnings, *unknown),
        refusals=refusals,
        may_lack_data=may_lack_data or aligned.bars is not aligned.instance.input or dates.positions is not None,
    )

"""Splitting of instances into calls that respect the server's request limits.

Calls keep the caller's order and are filled up to the limits. An instance that fits in one call stays whole. A larger
one is split by symbols if its model forecasts each symbol independently. Sizes are upper bounds computed without
encoding. The .NET client computes the same bounds, so both clients split alike.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Self, final

import numpy as np

from predictor._pb import prediction_pb2 as pb
from predictor.arrays import IndexArray
from predictor.bars import BarPanel
from predictor.covariates import Covariates
from predictor.errors import CovariatesError, QuantraError, RequestTooLargeError
from predictor.forecast import Attribution, Forecast
from predictor.instance import Instance, InstanceOrError
from predictor.wire import instances, models
from predictor.wire.limits import RequestLimits


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model version as described by its server."""

    name: str
    version: int
    weights_hash: str
    bars_needed: int
    """Number of last sessions that a forecast depends on."""
    is_panel_model: bool
    """Whether the forecast of a symbol depends on the other symbols of its panel."""
    limits: RequestLimits
    """Size limits of one request."""

    @classmethod
    def of(cls, response: pb.GetModelResponse) -> Self:
        """Create it from the response of GetModel."""
        info = response.model
        return cls(
            name=info.name,
            version=info.version,
            weights_hash=info.weights_hash,
            bars_needed=info.bars_needed,
            is_panel_model=info.is_panel_model,
            limits=models.decode_limits(response.limits),
        )

    @property
    def reference(self) -> str:
        """Reference that pins this version: "NAME@VERSION"."""
        return f"{self.name}@{self.version}"

    def cut(self, instance: Instance) -> Instance:
        """Reduce the instance to the sessions that its forecast depends on.

        A model selects the last `bars_needed` sessions of the panel before it adjusts prices or computes features, so
        the reduced panel has the same forecast, bit for bit. An instance with inconsistent covariates is returned
        unchanged, and the server reports the error.
        """
        bars, count = instance.input, self.bars_needed
        if (
            not isinstance(bars, BarPanel)
            or not 0 < count < len(bars.sessions)
            or not _is_aligned(instance.covariates, bars)
        ):
            return instance
        return replace(instance, input=bars.last(count), covariates=instance.covariates.last(count))

    def made(self, result: Forecast | Attribution) -> bool:
        """Whether this version made the forecast or attribution."""
        return (result.version, result.weights_hash) == (self.version, self.weights_hash)

    def accepts_cuts_for(self, other: Self) -> bool:
        """Whether panels that were cut and split for `other` also suit this version."""
        return self.bars_needed <= other.bars_needed and self.is_panel_model == other.is_panel_model


def _is_aligned(covariates: Covariates, bars: BarPanel) -> bool:
    try:
        covariates.check(len(bars.symbols), bars.sessions)
    except CovariatesError:
        return False
    return True


SMALL: Final = 16 * 1024
"""Bytes up to which a request is sent uncut: querying the model's needs would cost more than it saves."""
FORWARD: Final = 256
"""Symbols per forward pass of a server with default settings.

Parts end at multiples of it, so that the network multiplies matrices of the same size as in one call. The last digits
of the result depend on that size.
"""


# Bytes on the wire, at most.
_NUMBER_BYTES: Final = 8
_DATE_BYTES: Final = 4
_TEXT_OVERHEAD: Final = 4
_NAME_OVERHEAD: Final = 16
_INSTANCE_OVERHEAD: Final = 1024
_CALL_OVERHEAD: Final = 64
_FIELD_OVERHEAD: Final = 8
_SIZE_SLACK: Final = 64 * 1024
"""Slack of the size bound in bytes: an instance above the limit by less is encoded to find its exact size."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSizes:
    """Upper bounds of the encoded size of an instance, in bytes."""

    head: int
    """Bytes that every part repeats."""
    rows: IndexArray
    """[S] bytes per symbol."""

    @classmethod
    def of(cls, instance: Instance) -> "InstanceSizes":
        """Compute the sizes of an instance."""
        head = _INSTANCE_OVERHEAD + _measure_text(instance.request_id)
        if isinstance(instance.input, BarPanel):
            bars, covariates = instance.input, instance.covariates
            head += sum(_NAME_OVERHEAD + _measure_text(name) for name in covariates.names)
            head += _DATE_BYTES * (len(bars.sessions) + len(covariates.future_sessions))
            sessions, future = len(bars.sessions), len(covariates.future_sessions)
            count = sessions * (len(bars.columns) + len(covariates.observed) + len(covariates.known))
            count += future * len(covariates.known) + len(covariates.numbers)
            rows = (
                np.array([_TEXT_OVERHEAD + _measure_text(symbol) for symbol in bars.symbols], np.intp)
                + _NUMBER_BYTES * count
            )
            for texts in covariates.categories.values():
                if len(texts) == len(rows):  # the server rejects other lengths
                    rows += [_TEXT_OVERHEAD + _measure_text(text) for text in texts]
            return cls(head=head, rows=rows)
        window = instance.input
        arrays = (window.observed, window.known, window.static, window.mask, window.location, window.scale)
        head += sum(_TEXT_OVERHEAD + _measure_text(name) for name in (*window.symbols, *window.features))
        head += sum(values.nbytes for values in arrays) + _NUMBER_BYTES * len(window.symbols)
        return cls(head=head, rows=np.zeros(len(window.symbols), np.intp))

    @property
    def total(self) -> int:
        """Bytes of the whole instance."""
        return self.head + int(self.rows.sum())


def _measure_text(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def is_small(instances: Sequence[InstanceOrError]) -> bool:
    """Whether the instances have so few bars that they are sent uncut."""
    panels = (
        instance for instance in instances if isinstance(instance, Instance) and isinstance(instance.input, BarPanel)
    )
    return sum(InstanceSizes.of(panel).total - _INSTANCE_OVERHEAD for panel in panels) <= SMALL


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PanelPart:
    """A range of symbols of one instance, sent in one call."""

    index: int
    """Index of the instance in the request."""
    first: int
    """Row of the first symbol."""
    end: int
    """Row after the last symbol."""
    size: int
    """Upper bound of the encoded size in bytes."""

    def of(self, instances: Sequence[Instance]) -> Instance:
        """Return the instance reduced to the symbols of this part."""
        instance = instances[self.index]
        is_whole = self.end - self.first == len(instance.input.symbols)
        return instance if is_whole else of_rows(instance, slice(self.first, self.end))


def of_rows(instance: Instance, rows: Sequence[int] | slice) -> Instance:
    """Reduce an instance of bars to some of its symbols."""
    assert isinstance(instance.input, BarPanel), "windows are never split"  # noqa: S101
    return replace(instance, input=instance.input.rows(rows), covariates=instance.covariates.rows(rows))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """Calls for some instances, in order, and the errors of instances that are too large for any call."""

    calls: tuple[tuple[PanelPart, ...], ...]
    refused: Mapping[int, QuantraError]
    """Errors by index of the instance."""

    @classmethod
    def of(cls, instances: Sequence[Instance], model: ServedModel, reference: str) -> "CallPlan":
        """Plan the calls for instances that were cut for `model`; requests name it by `reference`."""
        limits = replace(model.limits, size=model.limits.size - _CALL_OVERHEAD - _measure_text(reference))
        parts: list[PanelPart] = []
        refused: dict[int, QuantraError] = {}
        for index, instance in enumerate(instances):
            try:
                parts += _split(index, instance, model, limits)
            except RequestTooLargeError as error:
                refused[index] = error
        return cls(calls=tuple(_group(parts, limits)), refused=refused)


def check_size(instance: Instance, model: ServedModel, advice: str) -> None:
    """Check that an instance that cannot be split fits in one call.

    Args:
        instance: an instance cut for the model.
        model: the model version that receives it.
        advice: advice for the error message.

    Raises:
        RequestTooLargeError: the instance exceeds the limits; the message names both sizes.
    """
    sizes = InstanceSizes.of(instance)
    if not _is_within(sizes, instance, model.limits):
        raise _make_too_large_error(instance, sizes.total, model, advice)


def _split(index: int, instance: Instance, model: ServedModel, limits: RequestLimits) -> list[PanelPart]:
    sizes = InstanceSizes.of(instance)
    count = len(instance.input.symbols)
    if _is_within(sizes, instance, limits) or not isinstance(instance.input, BarPanel):
        return [PanelPart(index=index, first=0, end=count, size=sizes.total)]
    if model.is_panel_model:
        raise _make_too_large_error(
            instance,
            sizes.total,
            model,
            f"{model.reference} looks across the symbols of a panel, which therefore cannot be split; "
            "send fewer symbols",
        )
    if sizes.head + 2 * int(sizes.rows.max()) > limits.size:
        raise _make_too_large_error(
            instance, sizes.total, model, "not even two symbols fit into one call; send fewer sessions"
        )
    max_symbols = min(limits.symbols, max(1, limits.cells // len(instance.input.sessions)))
    ends = _find_part_ends(sizes, limits.size, max_symbols)
    return [
        PanelPart(index=index, first=first, end=end, size=sizes.head + int(sizes.rows[first:end].sum()))
        for first, end in pairwise([0, *ends])
    ]


def _is_within(sizes: InstanceSizes, instance: Instance, limits: RequestLimits) -> bool:
    symbols = len(instance.input.symbols)
    cells = symbols * len(instance.input.sessions) if isinstance(instance.input, BarPanel) else 0
    if symbols > limits.symbols or cells > limits.cells:
        return False
    return sizes.total <= limits.size or (
        sizes.total <= limits.size + _SIZE_SLACK
        and instances.encode(instance).ByteSize() + _FIELD_OVERHEAD <= limits.size
    )


def _find_part_ends(sizes: InstanceSizes, max_bytes: int, max_symbols: int) -> Iterator[int]:
    """Yield the end row of each part.

    Each part leaves room for one more symbol: a part without usable symbols is sent again together with a usable one.
    """
    room = max_bytes - sizes.head - int(sizes.rows.max())
    cumulative_bytes = np.cumsum(sizes.rows)
    first, count = 0, len(cumulative_bytes)
    while first < count:
        before = int(cumulative_bytes[first - 1]) if first else 0
        end = min(int(np.searchsorted(cumulative_bytes, before + room, side="right")), first + max_symbols)
        if end < count and end - first > FORWARD:  # end with a forward pass
            end = first + (end - first) // FORWARD * FORWARD
        first = end
        yield first


def _group(parts: Sequence[PanelPart], limits: RequestLimits) -> Iterator[tuple[PanelPart, ...]]:
    """Group consecutive parts into calls, as many as the limits allow."""
    call: list[PanelPart] = []
    size = rows = 0
    for part in parts:
        count = part.end - part.first
        is_full = size + part.size > limits.size or rows + count > limits.rows or len(call) == limits.instances
        if call and is_full:
            yield tuple(call)
            call, size, rows = [], 0, 0
        call.append(part)
        size, rows = size + part.size, rows + count
    if call:
        yield tuple(call)


def _make_too_large_error(instance: Instance, size: int, model: ServedModel, advice: str) -> RequestTooLargeError:
    bars, limits = instance.input, model.limits
    sessions = f" of {len(bars.sessions)} sessions" if isinstance(bars, BarPanel) else ""
    return RequestTooLargeError(
        f"{len(bars.symbols)} symbols{sessions} take up to {size} bytes, but a request may have {limits.size} bytes "
        f"and {limits.symbols} symbols; {advice}",
        metadata={"have": str(size), "most": str(limits.size), "symbols": str(len(bars.symbols))},
    )

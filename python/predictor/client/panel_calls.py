"""How what is asked becomes calls that a server takes: in the order of the caller, each as full as it may be.

An instance that fits goes whole. A larger one is split by symbols, where its model reads each symbol by itself. Sizes
are bounds from above that need no encoding, the same in the .NET client, so that both split alike.
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
from predictor.instance import FeatureWindow, Instance, ReadInstance
from predictor.wire import instances, models
from predictor.wire.limits import RequestLimits


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One version of a model, as its server told of it."""

    name: str
    version: int
    weights_hash: str
    bars_needed: int
    """Sessions that a forecast depends on; those before them change nothing."""
    is_panel_model: bool
    """Whether the forecast of a symbol depends on the others of its panel."""
    limits: RequestLimits
    """How large one request may be."""

    @classmethod
    def of(cls, answer: pb.GetModelResponse) -> Self:
        """What the answer to GetModel says."""
        info = answer.model
        return cls(
            name=info.name,
            version=info.version,
            weights_hash=info.weights_hash,
            bars_needed=info.bars_needed,
            is_panel_model=info.is_panel_model,
            limits=models.decode_limits(answer.limits),
        )

    @property
    def reference(self) -> str:
        """This version and no other, as "NAME@VERSION"."""
        return f"{self.name}@{self.version}"

    def cut(self, instance: Instance) -> Instance:
        """The instance with the sessions that its forecast depends on, and no others.

        A model reads the last `bars_needed` sessions of the panel's own axis: it takes them before it adjusts prices or
        computes a feature, so the forecast of these is that of the whole panel, to the last bit. What does not fit
        together is left as it is, for the server to say so.
        """
        bars, most = instance.input, self.bars_needed
        if not isinstance(bars, BarPanel) or not 0 < most < len(bars.sessions) or not _fits(instance.covariates, bars):
            return instance
        return replace(instance, input=bars.last(most), covariates=instance.covariates.last(most))

    def has_made(self, answer: Forecast | Attribution) -> bool:
        """Whether an answer is this version's."""
        return (answer.version, answer.weights_hash) == (self.version, self.weights_hash)

    def is_content_with(self, cut: Self) -> bool:
        """Whether panels that were cut and split for another version suffice for this one too."""
        return self.bars_needed <= cut.bars_needed and self.is_panel_model == cut.is_panel_model


def _fits(covariates: Covariates, bars: BarPanel) -> bool:
    try:
        covariates.check(len(bars.symbols), bars.sessions)
    except CovariatesError:
        return False
    return True


SMALL: Final = 16 * 1024
"""Bytes of a request that is sent as it is: to learn what could be left out of it would cost more."""

FORWARD: Final = 256
"""Symbols of one forward pass of a server that was told nothing else: parts end where these end, so that a network
multiplies the same matrices as in one call, whose last digits depend on their size."""


_NUMBER: Final = 8

_DATE: Final = 4

_TEXT_HEAD: Final = 4

_NAME_HEAD: Final = 16

_INSTANCE_HEAD: Final = 1024

_CALL_HEAD: Final = 64

_FIELD_HEAD: Final = 8

_DOUBT: Final = 64 * 1024
"""Bytes by which a bound from above may be wrong; an instance so little too large is encoded to know."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSizes:
    """Bytes of an instance on the wire, at most."""

    head: int
    """What every part has."""
    rows: IndexArray
    """[S] of each symbol."""

    @classmethod
    def of(cls, instance: Instance) -> "InstanceSizes":
        """Those of an instance."""
        head = _INSTANCE_HEAD + _length(instance.request_id)
        if isinstance(instance.input, BarPanel):
            return cls(
                head=head + _beside_rows(instance.input, instance.covariates),
                rows=_rows(instance.input, instance.covariates),
            )
        return cls(head=head + _window(instance.input), rows=np.zeros(len(instance.input.symbols), np.intp))

    @property
    def total(self) -> int:
        """Of the whole instance."""
        return self.head + int(self.rows.sum())


def _rows(bars: BarPanel, beside: Covariates) -> IndexArray:
    """As `InstanceSizes.rows`."""
    days, ahead = len(bars.sessions), len(beside.future_sessions)
    count = days * (len(bars.columns) + len(beside.observed) + len(beside.known))
    count += ahead * len(beside.known) + len(beside.numbers)
    rows = np.array([_TEXT_HEAD + _length(symbol) for symbol in bars.symbols], np.intp) + _NUMBER * count
    for texts in beside.categories.values():
        if len(texts) == len(rows):  # the server says so where it is not
            rows += [_TEXT_HEAD + _length(text) for text in texts]
    return rows


def _beside_rows(bars: BarPanel, beside: Covariates) -> int:
    names = sum(_NAME_HEAD + _length(name) for name in beside.names)
    return names + _DATE * (len(bars.sessions) + len(beside.future_sessions))


def _window(window: FeatureWindow) -> int:
    arrays = (window.observed, window.known, window.static, window.mask, window.location, window.scale)
    names = sum(_TEXT_HEAD + _length(name) for name in (*window.symbols, *window.features))
    return names + sum(values.nbytes for values in arrays) + _NUMBER * len(window.symbols)


def _length(text: str) -> int:
    """Bytes of a text."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def is_small(asked: Sequence[ReadInstance]) -> bool:
    """Whether these are sent as they are: there are few bars among them."""
    panels = (one for one in asked if isinstance(one, Instance) and isinstance(one.input, BarPanel))
    return sum(InstanceSizes.of(panel).total - _INSTANCE_HEAD for panel in panels) <= SMALL


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PanelPart:
    """Symbols of one instance that go into one call."""

    place: int
    """Of the instance among those asked."""
    first: int
    """Row of its first symbol."""
    end: int
    """Row behind its last one."""
    size: int
    """Bytes, at most."""

    @property
    def rows(self) -> slice:
        """Its rows in the instance."""
        return slice(self.first, self.end)

    def of(self, asked: Sequence[Instance]) -> Instance:
        """What is asked about them."""
        whole = asked[self.place]
        return whole if self.end - self.first == len(whole.input.symbols) else of_rows(whole, self.rows)


def of_rows(instance: Instance, rows: Sequence[int] | slice) -> Instance:
    """The instance of some of its symbols; it must be one of bars."""
    assert isinstance(instance.input, BarPanel), "windows are never split"  # noqa: S101
    return replace(instance, input=instance.input.rows(rows), covariates=instance.covariates.rows(rows))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """The calls for some instances, in their order, and those instances that no call can hold."""

    calls: tuple[tuple[PanelPart, ...], ...]
    refused: Mapping[int, QuantraError]
    """By place."""

    @classmethod
    def of(cls, asked: Sequence[Instance], model: ServedModel, reference: str) -> "CallPlan":
        """The calls that ask a model, named by `reference`, about instances that were cut for it."""
        limits = replace(model.limits, size=model.limits.size - _CALL_HEAD - _length(reference))
        parts: list[PanelPart] = []
        refused: dict[int, QuantraError] = {}
        for place, instance in enumerate(asked):
            try:
                parts += _parts(place, instance, model, limits)
            except RequestTooLargeError as error:
                refused[place] = error
        return cls(calls=tuple(_packed(parts, limits)), refused=refused)


def check_size(instance: Instance, model: ServedModel, what: str) -> None:
    """Refuse an instance that one call cannot hold, where it cannot be split either.

    Args:
        instance: cut for the model.
        model: is asked.
        what: is asked of it, for the message, with what to do.

    Raises:
        RequestTooLargeError: naming both sizes.
    """
    sizes = InstanceSizes.of(instance)
    if not _is_within(sizes, instance, model.limits):
        raise _too_large(instance, sizes.total, model, what)


def _parts(place: int, instance: Instance, model: ServedModel, limits: RequestLimits) -> list[PanelPart]:
    sizes = InstanceSizes.of(instance)
    count = len(instance.input.symbols)
    if _is_within(sizes, instance, limits) or not isinstance(instance.input, BarPanel):
        return [PanelPart(place=place, first=0, end=count, size=sizes.total)]
    if model.is_panel_model:
        raise _too_large(
            instance,
            sizes.total,
            model,
            f"{model.reference} looks across the symbols of a panel, so it cannot be split: send fewer symbols",
        )
    if sizes.head + 2 * int(sizes.rows.max()) > limits.size:
        raise _too_large(instance, sizes.total, model, "not even two symbols fit at once: send fewer sessions")
    most = min(limits.symbols, max(1, limits.cells // len(instance.input.sessions)))
    ends = _ends(sizes, limits.size, most)
    return [
        PanelPart(place=place, first=first, end=end, size=sizes.head + int(sizes.rows[first:end].sum()))
        for first, end in pairwise([0, *ends])
    ]


def _is_within(sizes: InstanceSizes, instance: Instance, limits: RequestLimits) -> bool:
    symbols = len(instance.input.symbols)
    cells = symbols * len(instance.input.sessions) if isinstance(instance.input, BarPanel) else 0
    if symbols > limits.symbols or cells > limits.cells:
        return False
    return sizes.total <= limits.size or (
        sizes.total <= limits.size + _DOUBT and instances.encode(instance).ByteSize() + _FIELD_HEAD <= limits.size
    )


def _ends(sizes: InstanceSizes, most_bytes: int, most_symbols: int) -> Iterator[int]:
    """Where each part ends. Each leaves room for one symbol more, beside which its own can be asked about again."""
    room = most_bytes - sizes.head - int(sizes.rows.max())
    until = np.cumsum(sizes.rows)
    first, count = 0, len(until)
    while first < count:
        before = int(until[first - 1]) if first else 0
        end = min(int(np.searchsorted(until, before + room, side="right")), first + most_symbols)
        first = end if end == count else _aligned(first, end)
        yield first


def _aligned(first: int, end: int) -> int:
    """The end of a part, moved back to where a forward pass ends if it has more than one."""
    return first + (end - first) // FORWARD * FORWARD if end - first > FORWARD else end


def _packed(parts: Sequence[PanelPart], limits: RequestLimits) -> Iterator[tuple[PanelPart, ...]]:
    """As many parts, one after the other, as each call may hold."""
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


def _too_large(instance: Instance, size: int, model: ServedModel, advice: str) -> RequestTooLargeError:
    bars, limits = instance.input, model.limits
    days = f" of {len(bars.sessions)} sessions" if isinstance(bars, BarPanel) else ""
    return RequestTooLargeError(
        f"{len(bars.symbols)} symbols{days} take up to {size} bytes, and one request may have {limits.size} bytes and "
        f"{limits.symbols} symbols; {advice}",
        metadata={"have": str(size), "most": str(limits.size), "symbols": str(len(bars.symbols))},
    )

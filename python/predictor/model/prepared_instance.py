"""What the network is about to read, which symbols cannot be forecast and why, and what makes a forecast doubtful.

Each symbol is judged by itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray
from predictor.artifact import Manifest
from predictor.bars import BarPanel
from predictor.card import UNADJUSTED, ancestors_of, data_of
from predictor.errors import (
    BarsError,
    InvalidInputError,
    NoUsableSymbolError,
    QuantraError,
    TooFewBarsError,
    listed,
    shown_date,
)
from predictor.instance import Instance
from predictor.networks import DailySeries, Inputs
from predictor.windows import Pipeline, SymbolHistory

LARGEST_SCALE = 10.0
"""Daily volatility, a log return: a factor of 22 000 a day. Beyond it a price fan would overflow."""

LARGEST_PRICE = 1e100
"""Its inverse is the smallest. Beyond it a price fan would leave what a double holds."""

MOST_WARNINGS: Final = 20
"""Warnings beside one forecast; those beyond them, as from broken bars, are counted."""
LONGEST_WARNING: Final = 1000
"""Characters of one; five symbols of 64 and a sentence about them fit."""
MOST_TOLD: Final = 5
"""Symbols that an instance's error names one by one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedInstance:
    """An instance that was checked and encoded: one row of inputs for each symbol that can be forecast."""

    symbols: tuple[str, ...]
    usable: BoolArray
    """[S] which symbols have a row in `inputs`."""
    inputs: Inputs
    """[N] rows, N = how many are usable."""
    sessions: NDArray[np.int32]
    """[T] of the encoder; empty if unknown."""
    as_of: int
    """yyyymmdd; 0 if unknown."""
    target_sessions: NDArray[np.int32]
    """[H] session that each horizon ends on; empty if `as_of` is 0."""
    base_session: int
    """Session that horizons count from, yyyymmdd; 0 if `as_of` is 0."""
    anchor: FloatArray | None
    """[S] last raw close."""
    warnings: tuple[str, ...]
    """All of them; `bounded` when a model answers."""
    refusals: Mapping[str, QuantraError] = field(default_factory=dict[str, QuantraError])
    """Why each symbol that is not usable cannot be forecast."""

    def only(self, symbols: Sequence[str]) -> "PreparedInstance":
        """The same for some symbols, in their order; for all where none is named.

        Raises:
            InvalidInputError: one is not in the instance, or is named twice.
        """
        if not symbols:
            return self
        _check_among(symbols, self.symbols)
        places = places_of(symbols, self.symbols)
        rows = torch.from_numpy((np.cumsum(self.usable) - 1)[places][self.usable[places]])
        return replace(
            self,
            symbols=tuple(symbols),
            usable=self.usable[places],
            refusals={symbol: self.refusals[symbol] for symbol in symbols if symbol in self.refusals},
            inputs=Inputs(*(group[rows] for group in self.inputs)),
            anchor=None if self.anchor is None else self.anchor[places],
        )

    def told(self, warnings: tuple[str, ...]) -> "PreparedInstance":
        """The same with other warnings; for each of many instances, so without the cost of `replace`."""
        return PreparedInstance(
            symbols=self.symbols,
            usable=self.usable,
            inputs=self.inputs,
            sessions=self.sessions,
            as_of=self.as_of,
            target_sessions=self.target_sessions,
            base_session=self.base_session,
            anchor=self.anchor,
            warnings=warnings,
            refusals=self.refusals,
        )

    @property
    def usable_symbols(self) -> tuple[str, ...]:
        """[N] whose rows `inputs` holds."""
        if not self.refusals:
            return self.symbols
        return tuple(symbol for symbol, known in zip(self.symbols, self.usable, strict=True) if known)


def can_anchor(prices: FloatArray) -> BoolArray:
    """Which prices, of any shape, a fan can start from; never NaN."""
    return (prices >= 1 / LARGEST_PRICE) & (prices <= LARGEST_PRICE)


def bounded(lines: Iterable[str]) -> tuple[str, ...]:
    """The first MOST_WARNINGS lines, each shortened, and how many more were left out."""
    every = tuple(line if len(line) <= LONGEST_WARNING else f"{line[:LONGEST_WARNING]} …" for line in lines)
    left = len(every) - MOST_WARNINGS
    return every if left <= 0 else (*every[:MOST_WARNINGS], f"{left} more warnings were left out")


def nothing_usable(refusals: Mapping[str, QuantraError]) -> QuantraError:
    """The error for an instance none of whose symbols can be forecast: their own, where all have the same."""
    first, *others = refusals.values()
    if not others and isinstance(first, TooFewBarsError):
        return first
    told = "; ".join(error.message for error in list(refusals.values())[:MOST_TOLD])
    more = f"; and {len(refusals) - MOST_TOLD} more symbols" if len(refusals) > MOST_TOLD else ""
    if all(isinstance(error, TooFewBarsError) for error in refusals.values()):
        return TooFewBarsError(told + more, metadata=first.metadata)
    return NoUsableSymbolError(f"no symbol can be forecast: {told}{more}")


def places_of(symbols: Sequence[str], there: Sequence[str]) -> list[int]:
    """The place of each of these symbols among those that are there."""
    place = {symbol: k for k, symbol in enumerate(there)}
    return [place[symbol] for symbol in symbols]


def _check_among(symbols: Sequence[str], there: Sequence[str]) -> None:
    """Refuse symbols that are not there, or named twice.

    Raises:
        InvalidInputError: naming the first.
    """
    known = set(there)
    for symbol, count in Counter(symbols).items():
        if symbol not in known:
            raise InvalidInputError(f"there is no symbol {symbol!r} to explain; the instance has {listed(there)}")
        if count > 1:
            raise InvalidInputError(f"symbol {symbol!r} is to be explained twice; name it once")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SymbolStates:
    """What is known about R symbols on the way to their inputs, each by itself: they may be of several instances."""

    counts: SymbolHistory
    """[R] each, at the last session."""
    scale: FloatArray
    """[R] the largest over the horizons; NaN where nothing is known."""
    is_flat: BoolArray
    """[R] whether a scale is the smallest possible."""
    knows_something: BoolArray
    """[R] whether any feature of the encoder is known."""
    is_sound: BoolArray
    """[R] whether it can be forecast; a symbol that cannot be adjusted is not."""

    @classmethod
    def of(cls, pipeline: Pipeline, close: FloatArray, series: DailySeries, rows: Inputs) -> Self:
        """Look at the inputs of symbols with these raw closes [R, B] and daily series [R, B]."""
        counts = pipeline.latest_counts(~np.isnan(close), series)
        scale = rows.scale.numpy()
        largest = np.maximum.reduce(scale, axis=1)
        knows_something = np.logical_or.reduce(rows.mask.numpy(), axis=(1, 2))
        sound = can_anchor(close[:, -1]) & (largest <= LARGEST_SCALE) & knows_something
        return cls(
            counts=counts,
            scale=largest,
            is_flat=np.logical_or.reduce(scale <= pipeline.normaliser.floor, axis=1),
            knows_something=knows_something,
            is_sound=sound & (counts.bars >= pipeline.least_bars) & (counts.values >= pipeline.least_values),
        )

    def part(self, rows: slice) -> "SymbolStates":
        """Those of some symbols."""
        return SymbolStates(
            counts=SymbolHistory(*(count[rows] for count in self.counts)),
            scale=self.scale[rows],
            is_flat=self.is_flat[rows],
            knows_something=self.knows_something[rows],
            is_sound=self.is_sound[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PanelState:
    """What is known about the S symbols of one instance."""

    bars: BarPanel
    """The sessions that the forecast depends on."""
    symbols: SymbolStates
    """[S] each."""
    faults: Mapping[int, BarsError]
    """Errors of bars that cannot be adjusted, by row."""


def refusals_of(pipeline: Pipeline, panel: PanelState) -> dict[str, QuantraError]:
    """Why each symbol that cannot be forecast cannot, by symbol, in the order of the panel."""
    rows = sorted({*np.flatnonzero(~panel.symbols.is_sound).tolist(), *panel.faults})
    return {panel.bars.symbols[s]: _refusal(pipeline, panel, s) for s in rows}


def _refusal(pipeline: Pipeline, panel: PanelState, s: int) -> QuantraError:
    bars, counts, symbol = panel.bars, panel.symbols.counts, panel.bars.symbols[s]
    if s in panel.faults:
        return panel.faults[s]
    if np.isnan(bars.close[s, -1]):
        return _no_last_bar(symbol, bars)
    if impossible := _impossible(panel, s):
        return NoUsableSymbolError(f"{symbol}: has {impossible}, which no market has; check its prices")
    if counts.bars[s] < pipeline.least_bars:
        return _too_few_bars(pipeline, symbol, int(counts.bars[s]))
    if counts.values[s] < pipeline.least_values:
        what = f"values in the last {pipeline.normaliser.window} sessions to measure its volatility by"
        have, best = int(counts.values[s]), pipeline.bars_needed
        return TooFewBarsError.of(symbol, have=have, need=pipeline.least_values, what=what, best=best)
    return NoUsableSymbolError(f"{symbol}: has no known feature in the last {pipeline.encoder_length} sessions")


def check_length(pipeline: Pipeline, bars: BarPanel) -> None:
    """Refuse bars of too few sessions for any symbol, before they are widened to those that a forecast depends on.

    Raises:
        TooFewBarsError: naming the symbols.
        NoUsableSymbolError: some of them have no last bar.
    """
    if len(bars.sessions) >= pipeline.least_bars:
        return
    counts = bars.present.sum(axis=1)
    missing = np.isnan(bars.close[:, -1])
    raise nothing_usable(
        {
            symbol: _no_last_bar(symbol, bars) if missing[s] else _too_few_bars(pipeline, symbol, int(counts[s]))
            for s, symbol in enumerate(bars.symbols)
        }
    )


def _no_last_bar(symbol: str, bars: BarPanel) -> NoUsableSymbolError:
    last = shown_date(int(bars.sessions[-1]))
    return NoUsableSymbolError(f"{symbol}: has no bar on the panel's last session, {last}")


def _too_few_bars(pipeline: Pipeline, symbol: str, have: int) -> TooFewBarsError:
    what = f"bars in the last {pipeline.encoder_length} sessions"
    return TooFewBarsError.of(symbol, have=have, need=pipeline.least_bars, what=what, best=pipeline.bars_needed)


def _impossible(panel: PanelState, s: int) -> str:
    """The value that no market has."""
    close = panel.bars.close[s, -1]
    if panel.symbols.scale[s] > LARGEST_SCALE:
        return f"a volatility of {panel.symbols.scale[s]:.3g} a day"
    return "" if can_anchor(close) else f"a last close of {close:.3g}"


def warnings_of(pipeline: Pipeline, panel: PanelState, refusals: Mapping[str, QuantraError]) -> Iterator[str]:
    """Which symbols have no forecast, and which have one that is worth less than others."""
    for error in list(refusals.values())[:MOST_TOLD]:
        yield f"no forecast of {error.message}"
    if len(refusals) > MOST_TOLD:
        yield f"no forecast of {len(refusals) - MOST_TOLD} more symbols either; the answer holds the reason of each"
    yield from panel.bars.suspicious_jumps().lines()
    symbols = panel.bars.symbols
    present = panel.bars.present.sum(axis=1)
    thin = [s for s, symbol in enumerate(symbols) if present[s] < pipeline.bars_needed and symbol not in refusals]
    if thin:
        fewest = min(thin, key=lambda s: present[s])
        yield (
            f"{listed([symbols[s] for s in thin])}: forecast from fewer than the {pipeline.bars_needed} bars that the "
            f"model reads, {symbols[fewest]} from {present[fewest]}; what its features lack counts as unknown"
        )
    flat = [
        symbol for symbol, still in zip(symbols, panel.symbols.is_flat, strict=True) if still and symbol not in refusals
    ]
    if flat:
        yield (
            f"{listed(flat)}: its price hardly moves, so the forecast is as wide as the smallest volatility that the "
            f"model knows, {pipeline.normaliser.floor:g} a day"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSummary:
    """What is known of one network's training."""

    symbols: frozenset[str] | None
    """Symbols that it, or a model whose weights it started from, was trained on; None = unknown."""
    is_adjusted: bool
    """Whether its bars recorded splits and dividends; False where that is unknown."""
    knows_by_name: bool
    """Whether it has a node for each of its symbols, and so names unknown symbols itself."""
    reads_volume: bool
    bars_needed: int

    @classmethod
    def of(cls, manifest: Manifest, pipeline: Pipeline) -> Self:
        """What an artifact's parts say.

        Raises:
            ArtifactError: the card says something of bars or ancestors, but not what it must.
        """
        data = data_of(manifest.card)
        before = (frozenset(one.symbols) for one in ancestors_of(manifest.card))
        return cls(
            symbols=None if data is None else data.taught.union(*before),
            is_adjusted=data is not None and data.adjustment != UNADJUSTED,
            knows_by_name=manifest.kind.is_panel_model,
            reads_volume=manifest.kind.learns and pipeline.features.features.reads_volume,
            bars_needed=pipeline.bars_needed,
        )


def doubts(networks: Sequence[TrainingSummary], instance: Instance, forecast: Sequence[str]) -> Iterator[str]:
    """One line per doubt, however many symbols and networks share it.

    Args:
        networks: the model's own, or those of an ensemble's members.
        instance: the question.
        forecast: those of its symbols that have a forecast.
    """
    if isinstance(instance.input, BarPanel):
        readers = [one.bars_needed for one in networks if one.reads_volume]
        yield from bars_doubts(
            instance.input.last(max(readers, default=1)),
            forecast,
            reads_volume=bool(readers),
            is_adjusted=any(one.is_adjusted for one in networks),
        )
    new = _unseen(networks, forecast)
    if new:
        whom = "the model was" if len(networks) == 1 else "all members were"
        yield (
            f"{listed(new)}: not among the symbols that {whom} trained on, so its scores tell nothing of them; judge "
            "it on their bars (quantra evaluate), or train with them"
        )


def bars_doubts(bars: BarPanel, symbols: Sequence[str], *, reads_volume: bool, is_adjusted: bool) -> Iterator[str]:
    """What bars lack that a model reads or was trained with.

    Args:
        bars: all that is read.
        symbols: those of them that count.
        reads_volume: whether a network reads volumes.
        is_adjusted: whether it was trained on bars that record splits and dividends.
    """
    silent = bars.without_volume if reads_volume else ()
    counted = frozenset(symbols) if silent else frozenset[str]()
    without = [symbol for symbol in silent if symbol in counted]
    if without:
        yield (
            f"{listed(without)}: every volume that the model reads is 0, so its features of volumes say nothing; give "
            "the shares traded, or use features that read none"
        )
    if is_adjusted and bars.is_unadjusted:
        yield (
            "the model was trained on bars that tell of splits and dividends, and these do not, so one among them "
            "would look like a crash; give adj_close, or split_ratio and cash_dividend, unless there was none"
        )


def _unseen(networks: Sequence[TrainingSummary], symbols: Sequence[str]) -> list[str]:
    """The symbols that some network was not trained on; a network with a node for each symbol names its own."""
    by_name = [one.symbols for one in networks if one.knows_by_name and one.symbols is not None]
    by_row = [one.symbols for one in networks if not one.knows_by_name and one.symbols is not None]
    if all(known.issuperset(symbols) for known in by_row):
        return []
    return [
        symbol
        for symbol in symbols
        if any(symbol not in known for known in by_row) and all(symbol in known for known in by_name)
    ]

"""Prepared network inputs, with the errors and warnings of each symbol."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Final, Self

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray
from predictor.artifact import Manifest
from predictor.bars import BarPanel
from predictor.card import UNADJUSTED, read_ancestors, read_data_facts
from predictor.errors import (
    BarsError,
    BarSuspectError,
    InvalidInputError,
    NoUsableSymbolError,
    QuantraError,
    TooFewBarsError,
    format_date,
    format_names,
)
from predictor.instance import Instance
from predictor.networks import DailySeries, Inputs
from predictor.windows import Pipeline, SymbolHistory

MAX_SCALE = 10.0
"""Largest daily volatility as a log return, a factor of 22 000 per day. A larger one would overflow a price fan."""

MAX_PRICE = 1e100
"""Largest usable price; its inverse is the smallest. A price fan beyond these limits would overflow float64."""

MAX_WARNINGS: Final = 20
"""Most warnings per forecast; any further ones are only counted."""
MAX_WARNING_LENGTH: Final = 1000
"""Most characters per warning: enough for a sentence and five symbols of 64 characters."""
MAX_LISTED: Final = 5
MANY_UNKNOWN: Final = 0.2
"""Share of days with an empty volume above which a warning gives the share."""
MANY_ZERO: Final = 0.5
"""Share of days with a volume of 0 from which a warning gives the share."""
"""Most symbols that an error lists by name."""


@dataclass(slots=True, kw_only=True, eq=False)  # not frozen: each call creates one, and freezing is slow
class PreparedInstance:
    """A checked and encoded instance, with one row of inputs per symbol that can be forecast."""

    symbols: tuple[str, ...]
    usable: BoolArray
    """[S] which symbols have a row in `inputs`."""
    batch: Inputs
    """Inputs of all instances that were prepared together."""
    rows: slice
    """N rows of `batch`, one per usable symbol."""
    sessions: NDArray[np.int32]
    """[T] encoder sessions; empty if unknown."""
    as_of: int
    """yyyymmdd; 0 if unknown."""
    target_sessions: tuple[date, ...]
    """[H] session that each horizon ends on; empty if `as_of` is 0."""
    base_session: date | None
    """Session that horizons count from; None if `as_of` is 0."""
    anchor: FloatArray | None
    """[S] last raw close."""
    warnings: tuple[str, ...]
    """All warnings; the forecast holds the `limit_warnings` ones."""
    refusals: Mapping[str, QuantraError] = field(default_factory=dict[str, QuantraError])
    """The error of each symbol that cannot be forecast."""
    may_lack_data: bool = False
    """Whether `find_bars_warnings` may warn of volumes; False for windows."""

    @property
    def inputs(self) -> Inputs:
        """The N rows of this instance."""
        return self.batch.rows(self.rows.start, self.rows.stop)

    def only(self, symbols: Sequence[str]) -> "PreparedInstance":
        """Select symbols, in the order given; an empty sequence selects all.

        Raises:
            InvalidInputError: a symbol is not in the instance or appears twice.
        """
        if not symbols:
            return self
        _check_among(symbols, self.symbols)
        indices = find_indices(symbols, self.symbols)
        rows = torch.from_numpy((np.cumsum(self.usable) - 1)[indices][self.usable[indices]])
        inputs = self.inputs
        return replace(
            self,
            symbols=tuple(symbols),
            usable=self.usable[indices],
            refusals={symbol: self.refusals[symbol] for symbol in symbols if symbol in self.refusals},
            batch=Inputs(*(group[rows] for group in inputs)),
            rows=slice(0, len(rows)),
            anchor=None if self.anchor is None else self.anchor[indices],
        )

    def with_warnings(self, warnings: tuple[str, ...]) -> "PreparedInstance":
        """Copy with other warnings."""
        return replace(self, warnings=warnings)

    @property
    def usable_symbols(self) -> tuple[str, ...]:
        """[N] symbols of the rows of `inputs`."""
        if not self.refusals:
            return self.symbols
        return tuple(symbol for symbol, known in zip(self.symbols, self.usable, strict=True) if known)


def can_anchor(prices: FloatArray) -> BoolArray:
    """Whether a price fan can start from each price, of any shape; False for NaN."""
    return (prices >= 1 / MAX_PRICE) & (prices <= MAX_PRICE)


def limit_warnings(lines: Iterable[str]) -> tuple[str, ...]:
    """Shorten the first MAX_WARNINGS lines and count the rest in a last line."""
    texts = tuple(line if len(line) <= MAX_WARNING_LENGTH else f"{line[:MAX_WARNING_LENGTH]} …" for line in lines)
    omitted = len(texts) - MAX_WARNINGS
    return texts if omitted <= 0 else (*texts[:MAX_WARNINGS], f"{omitted} more warnings were left out")


def make_no_usable_symbol_error(refusals: Mapping[str, QuantraError]) -> QuantraError:
    """Return the error of an instance without a usable symbol: the symbols' own error if all share it."""
    first, *others = refusals.values()
    if not others and isinstance(first, TooFewBarsError | BarSuspectError):
        return first
    messages = "; ".join(error.message for error in list(refusals.values())[:MAX_LISTED])
    suffix = f"; and {len(refusals) - MAX_LISTED} more symbols" if len(refusals) > MAX_LISTED else ""
    if all(isinstance(error, TooFewBarsError) for error in refusals.values()):
        return TooFewBarsError(messages + suffix, metadata=first.metadata)
    if all(isinstance(error, BarSuspectError) for error in refusals.values()):
        return BarSuspectError(messages + suffix, metadata=first.metadata)
    return NoUsableSymbolError(f"no symbol can be forecast: {messages}{suffix}")


def find_indices(symbols: Sequence[str], among: Sequence[str]) -> list[int]:
    """Return the position of each symbol in `among`."""
    index_of = {symbol: k for k, symbol in enumerate(among)}
    return [index_of[symbol] for symbol in symbols]


def _check_among(symbols: Sequence[str], among: Sequence[str]) -> None:
    """Raise InvalidInputError for the first symbol that is missing from `among` or appears twice."""
    known = set(among)
    for symbol, count in Counter(symbols).items():
        if symbol not in known:
            raise InvalidInputError(f"there is no symbol {symbol!r} to explain; the instance has {format_names(among)}")
        if count > 1:
            raise InvalidInputError(f"symbol {symbol!r} appears twice among those to explain; name it once")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SymbolStates:
    """State of R symbols during preparation; they may belong to several instances."""

    counts: SymbolHistory
    """Counts [R] at the last session."""
    scale: FloatArray
    """[R] largest scale over the horizons; NaN if unknown."""
    is_flat: BoolArray
    """[R] whether a scale is at its lower bound."""
    knows_something: BoolArray
    """[R] whether any feature of the encoder is known."""
    is_sound: BoolArray
    """[R] whether the symbol can be forecast; False if its bars cannot be adjusted."""

    @classmethod
    def of(cls, pipeline: Pipeline, close: FloatArray, series: DailySeries, rows: Inputs) -> Self:
        """Build the state from raw closes [R, B], daily series [R, B] and inputs."""
        counts = pipeline.latest_counts(~np.isnan(close), series)
        scale = rows.scale.numpy()
        largest = np.maximum.reduce(scale, axis=1)
        knows_something = np.logical_or.reduce(rows.mask.numpy(), axis=(1, 2))
        is_valid = can_anchor(close[:, -1]) & (largest <= MAX_SCALE) & knows_something
        return cls(
            counts=counts,
            scale=largest,
            is_flat=np.logical_or.reduce(scale <= pipeline.normaliser.floor, axis=1),
            knows_something=knows_something,
            is_sound=is_valid & (counts.bars >= pipeline.least_bars) & (counts.values >= pipeline.least_values),
        )

    def part(self, rows: slice) -> "SymbolStates":
        """Select the symbols in `rows`."""
        return SymbolStates(
            counts=SymbolHistory(*(count[rows] for count in self.counts)),
            scale=self.scale[rows],
            is_flat=self.is_flat[rows],
            knows_something=self.knows_something[rows],
            is_sound=self.is_sound[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PanelState:
    """State of the S symbols of one instance during preparation."""

    bars: BarPanel
    """The sessions that the forecast depends on."""
    symbols: SymbolStates
    """State [S] of each symbol."""
    faults: Mapping[int, BarsError]
    """Adjustment errors by row."""


def find_refusals(pipeline: Pipeline, panel: PanelState) -> dict[str, QuantraError]:
    """Return the error of each symbol that cannot be forecast, in panel order."""
    rows = sorted({*np.flatnonzero(~panel.symbols.is_sound).tolist(), *panel.faults})
    return {panel.bars.symbols[s]: _make_symbol_error(pipeline, panel, s) for s in rows}


def _make_symbol_error(pipeline: Pipeline, panel: PanelState, s: int) -> QuantraError:
    bars, counts, symbol = panel.bars, panel.symbols.counts, panel.bars.symbols[s]
    if s in panel.faults:
        return panel.faults[s]
    if np.isnan(bars.close[s, -1]):
        return _make_last_bar_error(symbol, bars)
    scale, close = panel.symbols.scale[s], bars.close[s, -1]
    if scale > MAX_SCALE or not can_anchor(close):
        impossible = f"a volatility of {scale:.3g} per day" if scale > MAX_SCALE else f"a last close of {close:.3g}"
        return NoUsableSymbolError(f"{symbol}: has {impossible}, which is impossible; check its prices")
    if counts.bars[s] < pipeline.least_bars:
        return _make_few_bars_error(pipeline, symbol, int(counts.bars[s]))
    if counts.values[s] < pipeline.least_values:
        unit = f"values in the last {pipeline.normaliser.window} sessions for its volatility"
        have, best = int(counts.values[s]), pipeline.bars_needed
        return TooFewBarsError.of(symbol, have=have, need=pipeline.least_values, unit=unit, best=best)
    return NoUsableSymbolError(f"{symbol}: has no known feature in the last {pipeline.encoder_length} sessions")


def check_length(pipeline: Pipeline, bars: BarPanel) -> None:
    """Reject bars that are too short for every symbol, before missing sessions are filled in.

    Raises:
        TooFewBarsError: naming the symbols.
        NoUsableSymbolError: the bars are too short and some symbols have no last bar.
    """
    if len(bars.sessions) >= pipeline.least_bars:
        return
    counts = bars.present.sum(axis=1)
    missing = np.isnan(bars.close[:, -1])
    raise make_no_usable_symbol_error(
        {
            symbol: _make_last_bar_error(symbol, bars)
            if missing[s]
            else _make_few_bars_error(pipeline, symbol, int(counts[s]))
            for s, symbol in enumerate(bars.symbols)
        }
    )


def _make_last_bar_error(symbol: str, bars: BarPanel) -> NoUsableSymbolError:
    last = format_date(int(bars.sessions[-1]))
    return NoUsableSymbolError(f"{symbol}: has no bar on the panel's last session, {last}")


def _make_few_bars_error(pipeline: Pipeline, symbol: str, have: int) -> TooFewBarsError:
    unit = f"bars in the last {pipeline.encoder_length} sessions"
    return TooFewBarsError.of(symbol, have=have, need=pipeline.least_bars, unit=unit, best=pipeline.bars_needed)


def find_warnings(pipeline: Pipeline, panel: PanelState, refusals: Mapping[str, QuantraError]) -> Iterator[str]:
    """Yield a warning for each group of symbols with no forecast or a less reliable one."""
    for error in list(refusals.values())[:MAX_LISTED]:
        yield f"no forecast of {error.message}"
    if len(refusals) > MAX_LISTED:
        yield f"no forecast of {len(refusals) - MAX_LISTED} more symbols either; the response has the reason for each"
    symbols = panel.bars.symbols
    forecast_rows = [row for row, symbol in enumerate(symbols) if symbol not in refusals]
    yield from panel.bars.rows(forecast_rows).suspicious_jumps().lines() if forecast_rows else ()
    present = panel.bars.present.sum(axis=1)
    thin = [s for s, symbol in enumerate(symbols) if present[s] < pipeline.bars_needed and symbol not in refusals]
    if thin:
        fewest = min(thin, key=lambda s: present[s])
        yield (
            f"{format_names([symbols[s] for s in thin])}: forecast from fewer than the {pipeline.bars_needed} bars "
            f"that the model reads, {symbols[fewest]} from {present[fewest]}; missing feature values count as unknown"
        )
    flat = [
        symbol for symbol, still in zip(symbols, panel.symbols.is_flat, strict=True) if still and symbol not in refusals
    ]
    if flat:
        yield (
            f"{format_names(flat)}: its price is nearly constant, so the width of the forecast comes from the model's "
            f"minimum volatility, {pipeline.normaliser.floor:g} per day"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSummary:
    """Facts about the training of one network."""

    symbols: frozenset[str] | None
    """Training symbols, including those of the models that it was fine-tuned from; None if unknown. Of an
    adopted model, those that it was calibrated and scored on."""
    is_adopted: bool
    """Whether the network was trained by others."""
    is_adjusted: bool
    """Whether the training bars recorded splits and dividends; False if unknown."""
    has_node_per_symbol: bool
    """Whether the network has a node per symbol, and therefore warns of unknown symbols itself."""
    reads_volume: bool
    bars_needed: int

    @classmethod
    def of(cls, manifest: Manifest, pipeline: Pipeline) -> Self:
        """Read the summary from an artifact's manifest and pipeline.

        Raises:
            ArtifactError: the card's entry on bars or parent models is malformed.
        """
        data = read_data_facts(manifest.card)
        before = (frozenset(network.symbols) for network in read_ancestors(manifest.card))
        return cls(
            symbols=None if data is None else data.trained_symbols.union(*before),
            is_adopted=manifest.kind.is_adopted,
            is_adjusted=data is not None and data.adjustment != UNADJUSTED,
            has_node_per_symbol=manifest.kind.is_panel_model,
            reads_volume=manifest.kind.is_trainable and pipeline.features.features.reads_volume,
            bars_needed=pipeline.bars_needed,
        )

    def may_warn(self, instance: Instance, prepared: PreparedInstance) -> bool:
        """Whether `find_data_warnings` or the network may warn of an instance, without looking at its bars."""
        is_known = not self.has_node_per_symbol and (self.symbols is None or self.symbols.issuperset(prepared.symbols))
        if not is_known or prepared.may_lack_data:
            return True
        return self.is_adjusted and isinstance(instance.input, BarPanel) and instance.input.is_unadjusted


def find_data_warnings(
    networks: Sequence[TrainingSummary], instance: Instance, forecast: Sequence[str]
) -> Iterator[str]:
    """Yield one warning per data problem, shared by all its symbols and networks.

    Args:
        networks: the model's network, or those of an ensemble's members.
        instance: the instance to forecast.
        forecast: the symbols that have a forecast.
    """
    if isinstance(instance.input, BarPanel):
        readers = [network.bars_needed for network in networks if network.reads_volume]
        yield from find_bars_warnings(
            instance.input.last(max(readers, default=1)),
            forecast,
            reads_volume=bool(readers),
            is_adjusted=any(network.is_adjusted for network in networks),
        )
    new = _find_unseen_symbols(networks, forecast)
    if new and all(network.is_adopted for network in networks):
        yield (
            f"{format_names(new)}: not among the symbols that the model was calibrated on, so its scores do not "
            "apply to them; evaluate it on their bars (quantra evaluate), or adopt it again with them"
        )
    elif new:
        whom = "the model was" if len(networks) == 1 else "all members were"
        yield (
            f"{format_names(new)}: not among the symbols that {whom} trained on, so its scores do not apply to them; "
            "evaluate it on their bars (quantra evaluate), or train with them"
        )


def find_bars_warnings(
    bars: BarPanel, symbols: Sequence[str], *, reads_volume: bool, is_adjusted: bool
) -> Iterator[str]:
    """Yield a warning for each kind of data that the model was trained with and the bars lack.

    Args:
        bars: the bars of the instance.
        symbols: the symbols to check.
        reads_volume: whether a network reads volumes.
        is_adjusted: whether the model was trained on bars that record splits and dividends.
    """
    if reads_volume and not (bars.volume > 0).all():
        yield from _list_volume_warnings(bars, frozenset(symbols))
    if is_adjusted and bars.is_unadjusted:
        yield (
            "the model was trained on bars with splits and dividends, and these bars record none, so one among them "
            "would look like a crash; give adj_close, or split_ratio and cash_dividend, unless there was none"
        )


def _list_volume_warnings(bars: BarPanel, symbols: Collection[str]) -> Iterator[str]:
    """Yield a warning for each kind of symbols that lack volumes, and a note on days whose volume is unknown."""
    present = bars.present
    days = np.maximum(present.sum(axis=1), 1)
    unknown = (present & np.isnan(bars.volume)).sum(axis=1)
    silent = present.any(axis=1) & ~np.any(bars.volume > 0, axis=1)
    zero = (bars.volume == 0).sum(axis=1) / days
    is_sparse = unknown / days > MANY_UNKNOWN

    def named(rows: BoolArray) -> list[int]:
        return [row for row in np.flatnonzero(rows).tolist() if bars.symbols[row] in symbols]

    def line(rows: Sequence[int], text: str) -> str:
        return f"{format_names([bars.symbols[row] for row in rows])}: {text}"

    advice = "give the shares traded, or train with features that read no volume (--features prices)"
    masked = "the volume features are masked where their window contains one"
    if rows := named(silent):
        text = f"every volume that the model reads is 0 or empty, so its volume features carry no information; {advice}"
        yield line(rows, text)
    if rows := named(~silent & is_sparse):
        share = (unknown / days)[rows].max()
        yield line(rows, f"the volume is empty on up to {share:.0%} of the days that the model reads; {advice}")
    if rows := named(~silent & (zero >= MANY_ZERO)):
        yield line(rows, f"the volume is 0 on up to {zero[rows].max():.0%} of the days that the model reads; {advice}")
    if rows := named(~silent & ~is_sparse & (unknown > 0)):
        yield line(rows, f"days with an empty volume: {unknown[rows].sum()}; {masked}")


def _find_unseen_symbols(networks: Sequence[TrainingSummary], symbols: Sequence[str]) -> list[str]:
    """Return symbols that a network was not trained on; networks with one node per symbol warn themselves."""
    by_name = [network.symbols for network in networks if network.has_node_per_symbol and network.symbols is not None]
    by_row = [
        network.symbols for network in networks if not network.has_node_per_symbol and network.symbols is not None
    ]
    if all(known.issuperset(symbols) for known in by_row):
        return []
    return [
        symbol
        for symbol in symbols
        if any(symbol not in known for known in by_row) and all(symbol in known for known in by_name)
    ]

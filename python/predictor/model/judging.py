"""Which symbols of a panel can be forecast, and what a reader must know about the others: each is judged by itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from predictor.arrays import BoolArray, FloatArray
from predictor.bars import BarPanel
from predictor.errors import BarsError, NoUsableSymbolError, QuantraError, TooFewBarsError, listed, shown_date
from predictor.model.prepared import LARGEST_SCALE, MOST_TOLD, can_anchor, nothing_usable
from predictor.networks import Inputs
from predictor.windows import Counts, Encoded, Pipeline


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PanelState:
    """What is known about S symbols on the way to their inputs."""

    bars: BarPanel
    """The sessions that the forecast depends on."""
    counts: Counts
    """[S] each, at the last session."""
    scale: FloatArray
    """[S] the largest over the horizons; NaN where nothing is known."""
    is_flat: BoolArray
    """[S] whether a scale is the smallest possible."""
    knows_something: BoolArray
    """[S] whether any feature of the encoder is known."""
    faults: Mapping[int, BarsError]
    """Errors of bars that cannot be adjusted, by row."""

    @classmethod
    def of(
        cls, pipeline: Pipeline, bars: BarPanel, encoded: Encoded, rows: Inputs, faults: Mapping[int, BarsError]
    ) -> Self:
        """Look at a panel's inputs."""
        counts = pipeline.counts(bars.present, encoded.series)
        scale = rows.scale.numpy()
        return cls(
            bars=bars,
            counts=Counts(*(part[:, -1] for part in counts)),
            scale=scale.max(axis=1),
            is_flat=np.any(scale <= pipeline.normaliser.floor, axis=1),
            knows_something=np.any(rows.mask.numpy(), axis=(1, 2)),
            faults=faults,
        )


def refusals_of(pipeline: Pipeline, panel: PanelState) -> dict[str, QuantraError]:
    """Why each symbol that cannot be forecast cannot, by symbol, in the order of the panel."""
    bars, counts = panel.bars, panel.counts
    sound = can_anchor(bars.close[:, -1])
    sound &= (counts.bars >= pipeline.least_bars) & (counts.values >= pipeline.least_values)
    sound &= (panel.scale <= LARGEST_SCALE) & panel.knows_something
    rows = sorted({*np.flatnonzero(~sound).tolist(), *panel.faults})
    return {bars.symbols[s]: _refusal(pipeline, panel, s) for s in rows}


def _refusal(pipeline: Pipeline, panel: PanelState, s: int) -> QuantraError:
    bars, counts, symbol = panel.bars, panel.counts, panel.bars.symbols[s]
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
    if panel.scale[s] > LARGEST_SCALE:
        return f"a volatility of {panel.scale[s]:.3g} a day"
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
    flat = [symbol for symbol, still in zip(symbols, panel.is_flat, strict=True) if still and symbol not in refusals]
    if flat:
        yield (
            f"{listed(flat)}: its price hardly moves, so the forecast is as wide as the smallest volatility that the "
            f"model knows, {pipeline.normaliser.floor:g} a day"
        )

"""Training data: one encoded history, and which of its windows each part learns from or is judged by."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from predictor.bars import BarPanel
from predictor.errors import ConfigurationError
from predictor.networks import Inputs, normalise
from predictor.windows import Encoded, Pipeline
from trainers.stock.splits import Part, decisions

FloatArray = NDArray[np.float64]


class Batch(NamedTuple):
    """N windows and what came after them."""

    inputs: Inputs
    target: Tensor
    """float32 [N, H] in units of each window's volatility, NaN where the future is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Windows:
    """N windows by place, all of whose symbols have a bar, a scale and at least one target."""

    symbols: NDArray[np.int64]
    """[N] row of the panel."""
    positions: NDArray[np.int64]
    """[N] position on the date axis."""

    def __len__(self) -> int:
        return len(self.symbols)


class History:
    """A panel's inputs and labels on the whole date axis; windows are gathered from it, never stored."""

    def __init__(self, bars: BarPanel, pipeline: Pipeline) -> None:
        self.bars = bars
        self.pipeline = pipeline
        self.adjusted = bars.adjusted()
        self.encoded: Encoded = pipeline.encode(bars)
        self.labels: FloatArray = pipeline.target.labels(self.adjusted)
        self._observed = torch.from_numpy(np.ascontiguousarray(self.encoded.observed))
        self._mask = torch.from_numpy(np.ascontiguousarray(self.encoded.mask))
        self._known = torch.from_numpy(np.ascontiguousarray(self.encoded.known))
        self._location = torch.from_numpy(self.encoded.location)
        self._scale = torch.from_numpy(self.encoded.scale)
        self._labels = torch.from_numpy(self.labels)
        self._spread = torch.from_numpy(pipeline.target.spread)
        self._back = torch.arange(1 - pipeline.encoder_length, 1)
        self._across = torch.arange(1 - pipeline.encoder_length, pipeline.target.reach + 1)

    def windows(self, part: Part) -> Windows:
        """The windows whose targets lie inside the part, by date, then symbol.

        Raises:
            ConfigurationError: there are none.
        """
        positions = decisions(part, self.bars.sessions, self.pipeline.target)
        positions = positions[positions >= self.pipeline.bars_needed - 1]
        usable = self._usable()[:, positions]
        order, symbols = np.nonzero(usable.T)
        if len(order) == 0:
            raise ConfigurationError(
                f"split {part.name}, {part.first} to {part.last}, holds no window: each needs "
                f"{self.pipeline.bars_needed} bars before it and {self.pipeline.target.reach} sessions after it"
            )
        return Windows(symbols=symbols.astype(np.int64), positions=positions[order])

    def _usable(self) -> NDArray[np.bool_]:
        """[S, T] where a forecast can be made and at least one horizon's outcome is known."""
        known = self.encoded.mask.any(axis=2) & self.bars.present & np.isfinite(self.encoded.scale)
        return known & np.isfinite(self.labels).any(axis=2)

    def gather(self, windows: Windows) -> Batch:
        """Inputs and targets of these windows."""
        s = torch.from_numpy(windows.symbols)
        t = torch.from_numpy(windows.positions)
        rows, back = s[:, None], t[:, None] + self._back
        location, scale = self._location[s, t], self._scale[s, t]
        units = normalise(self._labels[s, t], location, scale, self._spread)
        inputs = Inputs(
            observed=self._observed[rows, back],
            known=self._known[t[:, None] + self._across],
            static=torch.zeros(len(s), 0),
            mask=self._mask[rows, back],
            location=location,
            scale=scale,
        )
        return Batch(inputs=inputs, target=units.to(torch.float32))

    def outcomes(self, windows: Windows) -> FloatArray:
        """[N, H] what came, in the target's own unit; NaN where unknown."""
        return self.labels[windows.symbols, windows.positions]

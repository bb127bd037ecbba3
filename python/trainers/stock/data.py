"""Training data: one encoded history, and which of its windows each part learns from or is judged by."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from predictor.bars import AdjustedBars, BarPanel
from predictor.covariates import CovariateSource, check_sent
from predictor.errors import ConfigurationError
from predictor.networks import Inputs, normalise
from predictor.windows import Encoded, Pipeline
from trainers.stock.splits import Part, decisions

FloatArray = NDArray[np.float64]

NO_SOURCE = CovariateSource()

ROWS = 1024
"""Windows gathered at once where the whole of a part is wanted; bounds the memory of a long history."""


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

    def thinned(self, most: int) -> "Windows":
        """So many of them at most, evenly over their order: always the same draw, one of each stretch.

        Every k-th of them would be the same few symbols on every day, wherever k divides the number of symbols.
        """
        if len(self) <= most:
            return self
        drawn = np.arange(most) + np.random.default_rng(0).random(most)
        kept = np.unique((drawn * (len(self) / most)).astype(np.int64))
        return Windows(symbols=self.symbols[kept], positions=self.positions[kept])


class History:
    """A panel's inputs and labels on the whole date axis; windows are gathered from it, never stored."""

    def __init__(self, bars: BarPanel, pipeline: Pipeline, covariates: CovariateSource = NO_SOURCE) -> None:
        """Compute everything but the windows.

        Args:
            bars: S symbols, T sessions.
            pipeline: what the network reads.
            covariates: files of what stands beside the bars.

        Raises:
            CovariateMissingError: the pipeline reads a covariate that no file has.
            CovariatesError: a known covariate became known after the target looks at it.
        """
        self.bars = bars
        self.pipeline = pipeline
        self.covariates = covariates
        adjusted = self.adjusted
        self.daily: FloatArray = pipeline.target.daily(adjusted)
        self.labels: FloatArray = pipeline.target.labels(adjusted)
        del adjusted  # as large as the bars, and the inputs are computed next
        self.encoded: Encoded = _encoded(bars, pipeline, covariates)
        self._observed = torch.from_numpy(np.ascontiguousarray(self.encoded.observed))
        self._mask = torch.from_numpy(np.ascontiguousarray(self.encoded.mask))
        axis = _calendar_axis(bars, pipeline)
        covariates.check_known_ahead(pipeline.covariates, axis, pipeline.target.reach)
        self._known = _known(bars, pipeline, covariates, axis)
        self._place = torch.from_numpy(np.searchsorted(axis, bars.sessions))
        self._static = torch.from_numpy(self.encoded.static)
        self._location = torch.from_numpy(self.encoded.location)
        self._scale = torch.from_numpy(self.encoded.scale)
        self._labels = torch.from_numpy(self.labels)
        self._spread = torch.from_numpy(pipeline.target.spread)
        self._back = torch.arange(1 - pipeline.encoder_length, 1)
        self._ahead = torch.arange(1, pipeline.target.reach + 1)

    @property
    def adjusted(self) -> AdjustedBars:
        """The bars without the jumps of splits and dividends, computed anew: few ask, and they are large."""
        return self.bars.adjusted()

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
        s, t = _places(windows)
        rows, back = s[:, None], t[:, None] + self._back
        known = torch.cat([self._place[back], self._place[t][:, None] + self._ahead], dim=1)
        location, scale = self.level(windows)
        inputs = Inputs(
            observed=self._observed[rows, back],
            known=self._known[rows, known],
            static=self._static[s],
            mask=self._mask[rows, back],
            location=location,
            scale=scale,
        )
        return Batch(inputs=inputs, target=self.targets(windows))

    def batches(self, windows: Windows) -> Iterator[Batch]:
        """All of these windows in order, a bounded number at a time."""
        for k in range(0, len(windows), ROWS):
            rows = slice(k, k + ROWS)
            yield self.gather(Windows(symbols=windows.symbols[rows], positions=windows.positions[rows]))

    def level(self, windows: Windows) -> tuple[Tensor, Tensor]:
        """Location and scale of each window, float64 [N] both."""
        s, t = _places(windows)
        return self._location[s, t], self._scale[s, t]

    def targets(self, windows: Windows) -> Tensor:
        """What came, float32 [N, H] in units of each window's volatility; NaN where unknown."""
        s, t = _places(windows)
        return normalise(self._labels[s, t], *self.level(windows), self._spread).to(torch.float32)

    def outcomes(self, windows: Windows) -> FloatArray:
        """[N, H] what came, in the target's own unit; NaN where unknown."""
        return self.labels[windows.symbols, windows.positions]


def _places(windows: Windows) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(windows.symbols), torch.from_numpy(windows.positions)


def _encoded(bars: BarPanel, pipeline: Pipeline, covariates: CovariateSource) -> Encoded:
    """The inputs of a whole history, with all that is known by its last session."""
    last = int(bars.sessions[-1])
    beside = covariates.beside(pipeline.covariates, bars, pipeline.following(last), known_by=last)
    check_sent(pipeline.covariates, beside)
    return pipeline.encode(bars, beside)


def _known(bars: BarPanel, pipeline: Pipeline, covariates: CovariateSource, axis: NDArray[np.int32]) -> Tensor:
    """[S, A, K] on the calendar's sessions; where nothing differs between symbols they share one row of memory."""
    last = int(bars.sessions[-1])
    beside = covariates.known(pipeline.covariates, bars.symbols, axis, known_by=last)
    return torch.from_numpy(pipeline.known(axis, beside)).expand(len(bars.symbols), -1, -1)


def _calendar_axis(bars: BarPanel, pipeline: Pipeline) -> NDArray[np.int32]:
    """The calendar's sessions from the first bar to the farthest target: the future that serving will count on.

    It holds every session of the bars, and also those that the bars lack, such as holidays of an unknown exchange.
    """
    first, last = int(bars.sessions[0]), int(bars.sessions[-1])
    return pipeline.calendar.sessions(first, int(pipeline.calendar.following(last, pipeline.target.reach)[-1]))

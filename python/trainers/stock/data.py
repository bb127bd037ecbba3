"""Training data: an encoded history, its windows, and panels of whole days."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from predictor.arrays import BoolArray, FloatArray
from predictor.bars import AdjustedBars, BarPanel
from predictor.bars.suspects import select_usable_bars
from predictor.covariates import CovariateSource, check_covariates
from predictor.errors import ConfigurationError
from predictor.networks import Inputs, normalise
from predictor.windows import Pipeline
from trainers.loop import ResidentSource, measure_free_bytes
from trainers.stock.feature_cache import FeatureCache, map_bars, release_bars
from trainers.stock.splits import SplitPart, list_decisions

NO_COVARIATE_FILES = CovariateSource()

WINDOWS_PER_BATCH = 1024
"""Windows per batch when a whole part is gathered, which bounds memory."""

WINDOWS_PER_BLOCK: Final = 8192
"""Windows per block when location and scale are computed."""


class WindowBatch(NamedTuple):
    """N windows and their outcomes."""

    inputs: Inputs
    target: Tensor
    """float32 [N, H] in units of each window's scale, NaN where the future is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingWindows:
    """N windows by symbol and position; each can be forecast and has at least one known target."""

    symbols: NDArray[np.int64]
    """[N] row of the panel."""
    positions: NDArray[np.int64]
    """[N] position on the date axis."""

    def __len__(self) -> int:
        return len(self.symbols)

    def blocks(self, max_windows: int) -> "Iterator[tuple[slice, TrainingWindows]]":
        """Blocks of at most `max_windows` windows, each with its slice of the N."""
        for k in range(0, len(self), max_windows):
            rows = slice(k, k + max_windows)
            yield rows, TrainingWindows(symbols=self.symbols[rows], positions=self.positions[rows])

    def subsample(self, max_windows: int) -> "TrainingWindows":
        """At most `max_windows` windows, one random draw from each of as many equal stretches; always the same draw.

        Every k-th window would be of the same few symbols if k divides the number of symbols.
        """
        if len(self) <= max_windows:
            return self
        draws = np.arange(max_windows) + np.random.default_rng(0).random(max_windows)
        indices = np.unique((draws * (len(self) / max_windows)).astype(np.int64))
        return TrainingWindows(symbols=self.symbols[indices], positions=self.positions[indices])


class StoredInputs(NamedTuple):
    """Inputs of S symbols and T sessions on one device, from which windows are gathered."""

    observed: Tensor
    """float32 [S, T, F]"""
    mask: Tensor
    """bool [S, T, F]"""
    known: Tensor
    """float32 [S, A, K] on the calendar's sessions; symbols share one row if their values are equal."""
    static: Tensor
    """float32 [S, C]"""
    calendar_index: Tensor
    """int64 [T] index of each session among the calendar's."""
    past_offsets: Tensor
    """int64 offsets of a window's sessions from its last, up to 0."""
    future_offsets: Tensor
    """int64 offsets of the sessions after it, from 1."""

    def gather(self, symbols: Tensor, positions: Tensor, location: Tensor, scale: Tensor) -> Inputs:
        """The windows of N symbols that end at N positions, int64 [N] both, with their location and scale [N, H]."""
        rows, window = symbols[:, None], positions[:, None] + self.past_offsets
        return Inputs(
            observed=self.observed[rows, window],
            known=self.gather_known(symbols, positions),
            static=self.static[symbols],
            mask=self.mask[rows, window],
            location=location,
            scale=scale,
        )

    def gather_known(self, symbols: Tensor, positions: Tensor) -> Tensor:
        """The known features of such windows, float32 [N, encoder + future sessions, K]."""
        past = self.calendar_index[positions[:, None] + self.past_offsets]
        future = self.calendar_index[positions][:, None] + self.future_offsets
        return self.known[symbols[:, None], torch.cat([past, future], dim=1)]


class History:
    """Inputs and labels of a panel on the whole date axis; windows are gathered on demand."""

    def __init__(
        self,
        bars: BarPanel,
        pipeline: Pipeline,
        covariates: CovariateSource = NO_COVARIATE_FILES,
        cache: FeatureCache | None = None,
    ) -> None:
        """Compute inputs and labels.

        A cache has features, labels and series on disk; None computes them in memory.

        Raises:
            CovariateMissingError: the pipeline reads a covariate that no file has.
            CovariatesError: a known covariate became known too late for the target.
        """
        self.bars = bars = map_bars(select_usable_bars(bars), cache)
        self.pipeline = pipeline
        self.covariates = covariates
        self._cache = cache
        labels, series = (None, None) if cache is None else cache.load_targets(bars, pipeline)
        self.labels: FloatArray = self.compute_by_symbol(pipeline.target.labels) if labels is None else labels
        first, last = int(bars.sessions[0]), int(bars.sessions[-1])
        values = covariates.values_for(pipeline.covariates, bars, pipeline.following(last), known_by=last)
        check_covariates(pipeline.covariates, values)
        observed = None
        if cache is not None:
            compute = partial(pipeline.observed_blocks, bars, values)
            observed = cache.load_observed(bars, pipeline.features, covariates, compute)
        self.encoded = pipeline.encode(bars, values, observed=observed, series=series)
        # The calendar's sessions from the first bar to the farthest target, including those without a bar.
        axis = pipeline.calendar.sessions(first, int(pipeline.calendar.following(last, pipeline.target.reach)[-1]))
        covariates.check_known_ahead(pipeline.covariates, axis, pipeline.target.reach)
        known = covariates.known(pipeline.covariates, bars.symbols, axis, known_by=last)
        self.stored = StoredInputs(
            observed=torch.from_numpy(np.ascontiguousarray(self.encoded.observed)),
            mask=torch.from_numpy(np.ascontiguousarray(self.encoded.mask)),
            # Symbols share one row of memory if their values are equal.
            known=torch.from_numpy(pipeline.known(axis, known)).expand(len(bars.symbols), -1, -1),
            static=torch.from_numpy(self.encoded.static),
            calendar_index=torch.from_numpy(np.searchsorted(axis, bars.sessions)),
            past_offsets=torch.arange(1 - pipeline.encoder_length, 1),
            future_offsets=torch.arange(1, pipeline.target.reach + 1),
        )
        release_bars(bars)
        self._labels = torch.from_numpy(self.labels)
        self._spread = torch.from_numpy(pipeline.target.spread)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what it is computed from."""
        return type(self), (self.bars, self.pipeline, self.covariates, self._cache)

    @property
    def adjusted(self) -> AdjustedBars:
        """The bars adjusted for splits and dividends; not cached, because they are large."""
        return self.bars.adjusted()

    @cached_property
    def daily(self) -> FloatArray:
        """[S, T] daily series of the target; NaN where unknown."""
        return self.compute_by_symbol(self.pipeline.target.daily)

    def compute_by_symbol(self, compute: Callable[[AdjustedBars], FloatArray]) -> FloatArray:
        """[S, …] results of `compute`, applied to the adjusted bars of a few symbols at a time."""
        values = np.empty(0)
        for rows, adjusted in self.bars.adjusted_blocks():
            computed = compute(adjusted)
            if rows.start == 0:
                values = np.empty((len(self.bars.symbols), *computed.shape[1:]))
            values[rows] = computed
        return values

    @property
    def forecastable(self) -> BoolArray:
        """[S, T] whether a symbol can be forecast."""
        pipeline, present = self.pipeline, self.bars.present
        has_enough = pipeline.has_enough(pipeline.counts(present, self.encoded.series))
        return has_enough & present & self.encoded.mask.any(axis=2)

    def windows(self, part: SplitPart) -> TrainingWindows:
        """The windows with targets inside the part, by date, then symbol.

        Raises:
            ConfigurationError: the bars have no such windows.
        """
        positions = list_decisions(part, self.bars.sessions, self.pipeline.target)
        positions = positions[positions >= self.pipeline.bars_needed - 1]
        usable = self.forecastable[:, positions] & np.isfinite(self.labels[:, positions]).any(axis=2)
        order, symbols = np.nonzero(usable.T)
        if len(order) == 0:
            raise make_missing_windows_error(part, self.pipeline)
        return TrainingWindows(symbols=symbols.astype(np.int64, copy=False), positions=positions[order])

    def gather(self, windows: TrainingWindows) -> WindowBatch:
        """Inputs and targets of these windows."""
        location, scale = self.location_and_scale(windows)
        inputs = self.stored.gather(*locate_windows(windows), location, scale)
        return WindowBatch(inputs=inputs, target=self.normalised(windows, location, scale))

    def batches(self, windows: TrainingWindows) -> Iterator[WindowBatch]:
        """Batches of these windows, in order."""
        return (self.gather(block) for _, block in windows.blocks(WINDOWS_PER_BATCH))

    def location_and_scale(self, windows: TrainingWindows) -> tuple[Tensor, Tensor]:
        """Location and scale of each window at each horizon, float64 [N, H] both.

        They are not cached: for all sessions and horizons they would take more memory than the features.
        """
        shape = (len(windows), len(self.pipeline.target.horizons))
        location, scale = np.empty(shape), np.empty(shape)
        for rows, block in windows.blocks(WINDOWS_PER_BLOCK):
            location[rows], scale[rows] = self.pipeline.compute_levels(
                self.encoded.series, block.symbols, block.positions
            )
        return torch.from_numpy(location), torch.from_numpy(scale)

    def location_and_scale_of_days(self, positions: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Location and scale of every symbol on each of D days, float64 [S, D, H] both; NaN where unknown."""
        count, days = len(self.bars.symbols), len(positions)
        all_windows = TrainingWindows(symbols=np.repeat(np.arange(count), days), positions=np.tile(positions, count))
        location, scale = self.location_and_scale(all_windows)
        return location.unflatten(0, (count, days)), scale.unflatten(0, (count, days))

    def targets(self, windows: TrainingWindows) -> Tensor:
        """Outcomes, float32 [N, H] in units of each window's scale; NaN where unknown."""
        return self.normalised(windows, *self.location_and_scale(windows))

    def normalised(self, windows: TrainingWindows, location: Tensor, scale: Tensor) -> Tensor:
        """`targets` for windows with known location and scale [N, H]."""
        s, t = locate_windows(windows)
        return normalise(self._labels[s, t], location, scale, self._spread).to(torch.float32)

    def outcomes(self, windows: TrainingWindows) -> FloatArray:
        """[N, H] outcomes in the target's unit; NaN where unknown."""
        return self.labels[windows.symbols, windows.positions]


def make_missing_windows_error(part: SplitPart, pipeline: Pipeline) -> ConfigurationError:
    """The error for a part without windows."""
    return ConfigurationError(
        f"split {part.name}, {part.first} to {part.last}, holds no window: each needs {pipeline.bars_needed} bars "
        f"before it and {pipeline.target.reach} sessions after it"
    )


def locate_windows(windows: TrainingWindows) -> tuple[Tensor, Tensor]:
    """Symbols and positions of windows, int64 [N] both."""
    return torch.from_numpy(windows.symbols), torch.from_numpy(windows.positions)


WindowGatherer = Callable[[TrainingWindows], WindowBatch]
"""Gathers windows, as `History.gather` does."""


class PanelBatch(NamedTuple):
    """P panels of S stocks each: N = P * S rows, panel by panel, absent stocks included."""

    inputs: Inputs
    """Absent rows are unknown, with location 0 and scale 1."""
    nodes: Tensor
    """int64 [N] node of each row in the universe, -1 if unknown."""
    target: Tensor
    """float32 [N, H] in units of each window's volatility, NaN where unknown and for absent rows."""
    panels: int


@final
class PanelGatherer:
    """Panels of all stocks by the position of their day on the date axis.

    A stock is present on a day if it can be forecast; a known covariate of a stock that is not traded does not count.
    """

    def __init__(
        self, gather: WindowGatherer, *, forecastable: BoolArray, nodes: NDArray[np.int64] | None = None
    ) -> None:
        """Bind to a history.

        `nodes` [S] are those of the stocks in the network's universe, -1 if unknown; None if they are in its order.
        """
        self._gather_windows = gather
        self._forecastable = forecastable
        self._stocks = np.arange(len(forecastable), dtype=np.int64)
        self._nodes = self._stocks if nodes is None else nodes

    def gather(self, positions: NDArray[np.int64]) -> PanelBatch:
        """The panels of the days at positions [P] of the date axis."""
        symbols = np.tile(self._stocks, len(positions))
        windows = TrainingWindows(symbols=symbols, positions=np.repeat(positions, len(self._stocks)))
        batch = self._gather_windows(windows)
        inputs = batch.inputs
        device = inputs.observed.device
        present = torch.from_numpy(self._forecastable[windows.symbols, windows.positions]).to(device)
        cells = present[:, None, None]
        return PanelBatch(
            inputs=inputs._replace(
                observed=torch.where(cells, inputs.observed, 0.0),
                mask=inputs.mask & cells,
                location=torch.where(present[:, None], inputs.location, 0.0),
                scale=torch.where(present[:, None], inputs.scale, 1.0),
            ),
            nodes=torch.from_numpy(self._nodes[symbols]).to(device),
            target=torch.where(present[:, None], batch.target, torch.nan),
            panels=len(positions),
        )

    def source(
        self, positions: NDArray[np.int64], *, days_per_batch: int, seed: int = 0, shuffle: bool = True
    ) -> ResidentSource[PanelBatch]:
        """Batches of the days at positions [D]; the order depends only on seed and epoch."""

        def gather(index: Tensor) -> PanelBatch:
            batch = self.gather(positions[index.numpy()])
            return batch._replace(inputs=batch.inputs.as_float32())

        return ResidentSource(gather, samples=len(positions), batch_size=days_per_batch, seed=seed, shuffle=shuffle)


@final
class PanelSplitter:
    """Splits a batch into whole panels when memory runs out; the ranking loss compares stocks within a panel."""

    def samples(self, batch: PanelBatch) -> int:
        """Number of panels."""
        return batch.panels

    def cost(self, batch: PanelBatch) -> int:
        """Rows per panel."""
        return len(batch.nodes) // batch.panels

    def cut(self, batch: PanelBatch, start: int, stop: int) -> PanelBatch:
        """The panels `start` to `stop`, the latter excluded."""
        rows = self.cost(batch)
        first, last = start * rows, stop * rows
        return PanelBatch(
            inputs=batch.inputs.rows(first, last),
            nodes=batch.nodes[first:last],
            target=batch.target[first:last],
            panels=stop - start,
        )


MAX_MEMORY_FRACTION: Final = 1 / 4
"""A history moves to the device if its inputs take at most this fraction of the free memory there; network, optimizer
and activations need the rest. From the host, every window would be transferred again in every epoch."""


def count_bytes(inputs: StoredInputs) -> int:
    """Bytes of the inputs; rows that symbols share count once."""
    return sum(_drop_shared_rows(tensor).numel() * tensor.element_size() for tensor in inputs)


@final
class DeviceHistory:
    """A history whose inputs are gathered on a device; targets and scale are computed on the host, in float64."""

    def __init__(self, history: History, device: torch.device) -> None:
        self.bars = history.bars
        self.pipeline = history.pipeline
        self._history = history
        self._device = device
        self._inputs = StoredInputs(*(_move(tensor, device) for tensor in history.stored))

    @property
    def forecastable(self) -> BoolArray:
        """As `History.forecastable`."""
        return self._history.forecastable

    def gather(self, windows: TrainingWindows) -> WindowBatch:
        """As `History.gather`, the same bits on the device."""
        location, scale = self._history.location_and_scale(windows)
        target = self._history.normalised(windows, location, scale)
        small = (*locate_windows(windows), location, scale, target)
        symbols, positions, location, scale, target = (tensor.to(self._device, non_blocking=True) for tensor in small)
        return WindowBatch(inputs=self._inputs.gather(symbols, positions, location, scale), target=target)


TrainingHistory = History | DeviceHistory
"""A history on the host or on a device."""


def place_history(history: History, device: torch.device) -> TrainingHistory:
    """The history, with its inputs on the device if it is a GPU with enough free memory."""
    free = measure_free_bytes(device)
    if free is None or count_bytes(history.stored) > MAX_MEMORY_FRACTION * free:
        return history
    return DeviceHistory(history, device)


def _drop_shared_rows(tensor: Tensor) -> Tensor:
    """One row if all rows share its memory, else all."""
    return tensor[:1] if tensor.ndim and tensor.stride(0) == 0 else tensor


def _move(tensor: Tensor, device: torch.device) -> Tensor:
    """Move to the device; rows that share memory still share it."""
    return _drop_shared_rows(tensor).to(device).expand(tensor.shape)

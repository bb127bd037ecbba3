"""Integrated gradients (Sundararajan, Taly & Yan 2017, "Axiomatic attribution for deep networks", equation 1).

The contribution of a number is its distance from the baseline times the mean gradient of the forecast along the
straight path from the baseline. With more nodes, contributions approach the difference of the two forecasts. The
number of nodes doubles until the remaining gap is small and the gradients are smooth between the nodes.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, pairwise
from typing import Final, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from predictor.arrays import FloatArray
from predictor.call_context import Deadline
from predictor.errors import ConfigurationError, ExplainUnsupportedError, InvalidInputError, RequestTooLargeError
from predictor.explain.integration import NODE_COUNTS, Gradients, PathIntegrator, Point, limit_roughness
from predictor.explain.path import (
    Baseline,
    PanelForecasts,
    PathParts,
    RowForecasts,
    StraightPath,
    copy_outside_inference,
)
from predictor.networks import Inputs, OutputMap


def build_attribution_view(network: nn.Module) -> nn.Module:
    """A second module tree over the network's parameters and buffers, for input gradients.

    The view is in eval mode except for its RNNs, which are in train mode with dropout 0. It shares weights but no flags
    with the network, so both can run at once in any number of threads. Move the network to its device and dtype first.
    After `load_state_dict(assign=True)` on the network, the view keeps the old weights.

    Args:
        network: an eager module (not compiled, scripted or exported), loaded outside `torch.inference_mode`.

    Raises:
        ConfigurationError: a parameter or buffer was created in `torch.inference_mode`.
        ExplainUnsupportedError: the module cannot be copied, for instance because it holds a lock.
    """
    tensors = list(chain(network.parameters(), network.buffers()))
    if any(tensor.is_inference() for tensor in tensors):
        raise ConfigurationError(
            f"{type(network).__name__} has weights created in torch.inference_mode, which block gradients; "
            "load it outside of it"
        )
    view = _copy_around(network, {id(tensor): tensor for tensor in tensors})
    view.eval()
    for rnn in [child for child in view.modules() if isinstance(child, nn.RNNBase)]:
        rnn.dropout = 0.0
        rnn.training = True
    return view


def _copy_around(network: nn.Module, shared: dict[int, object]) -> nn.Module:
    """A deep copy that shares these objects, by id."""
    try:
        return copy.deepcopy(network, shared)
    except (TypeError, RuntimeError) as cause:
        raise ExplainUnsupportedError(
            f"{type(network).__name__} cannot be copied for explanations ({cause}); "
            "keep locks, handles and intermediate tensors out of modules"
        ) from cause


GAP_FLOOR: Final = 0.05
"""Smallest denominator of the relative gap, in units of the window's volatility over the horizon."""

MAX_NUMBERS: Final = 2**25
"""Maximum number of contributions in a response, per cell: 256 MiB."""
BATCH_NUMBERS: Final = 2**22
"""Contributions per batch, including those of other stocks: 32 MiB, and a few times that during the computation."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contributions:
    """Signed contributions to one horizon and quantile for N windows, in the target's unit.

    A window's contributions add up to `prediction - baseline_prediction` within `relative_gap`.
    Legend: T encoder sessions, D future sessions, F observed, K known, C static features.
    """

    observed: FloatArray
    """[N, T, F] exactly 0 for unknown cells."""
    known: FloatArray
    """[N, T + D, K]"""
    static: FloatArray
    """[N, C]"""
    location: FloatArray
    """[N]"""
    scale: FloatArray
    """[N]"""
    conformal: FloatArray
    """[N] sum over all conformal offsets."""
    neighbours: FloatArray
    """[N, M - 1] all inputs of each other stock that the forecast depends on; width 0 for none."""
    prediction: FloatArray
    """[N]"""
    baseline_prediction: FloatArray
    """[N] forecast at the baseline with the window's mask."""
    relative_gap: FloatArray
    """[N] |sum - difference| / max(|difference|, floor); the floor is 5 % of the window's volatility over the
    horizon (scale x spread)."""
    converged: NDArray[np.bool_]
    """[N] whether the gap is within the tolerance."""
    nodes: NDArray[np.int32]
    """[N] number of quadrature nodes."""

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the contributions of several groups of windows."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def total(self) -> FloatArray:
        """[N] sum of all contributions."""
        return (
            self.observed.sum((1, 2))
            + self.known.sum((1, 2))
            + self.static.sum(1)
            + self.location
            + self.scale
            + self.conformal
            + self.neighbours.sum(1)
        )

    def with_gap(self, floor: FloatArray, tolerance: float) -> "Contributions":
        """The same contributions with their gap, measured against at least `floor` [N]."""
        difference = self.prediction - self.baseline_prediction
        gap = np.abs(self.total() - difference) / np.maximum(np.abs(difference), floor)
        return replace(self, relative_gap=gap, converged=gap <= tolerance)


@final
class ConvergenceTally:
    """Contributions, gaps and node counts of P points and N windows; each pair settles independently."""

    def __init__(self, *, ends: Tensor, floor: Tensor, distance: PathParts) -> None:
        """Start without settled pairs.

        Args:
            ends: [2, P, N] forecasts at the baseline and at the windows, in the target's unit.
            floor: [P, N] smallest denominator of the gaps.
            distance: float64 [N, ...] distance of each number from the baseline.
        """
        self._baseline, self._prediction = ends
        self._floor = floor
        self._parts = distance
        self._distance = distance.cells()
        self._cells = ends.new_zeros(ends.shape[1], *self._distance.shape)
        self._nodes = torch.zeros_like(floor, dtype=torch.int32)
        self._gap = torch.full_like(floor, torch.inf)
        self._converged = torch.zeros_like(floor, dtype=torch.bool)
        self._is_open = torch.ones_like(floor, dtype=torch.bool)

    @property
    def open_points(self) -> Tensor:
        """Indices of points with an open window."""
        return self._is_open.any(1).nonzero().squeeze(1)

    @property
    def open_rows(self) -> Tensor:
        """Indices of windows with an open point."""
        return self._is_open.any(0).nonzero().squeeze(1)

    def store(self, gradients: Gradients, count: int, tolerance: float) -> None:
        """Store the gradients [open points, open rows, ...] of `count` nodes for the open pairs.

        A pair has converged when its gap is small. It settles when its cells are smooth, too: with few nodes, errors of
        cells can cancel in their sum, which determines the gap.
        """
        pairs = (self.open_points[:, None], self.open_rows[None, :])
        is_open = self._is_open[pairs]
        cells, rough = (part * self._distance[self.open_rows] for part in gradients)
        self._cells[pairs] = torch.where(is_open[..., None], cells, self._cells[pairs])
        self._nodes[self._is_open] = count
        difference = (self._prediction - self._baseline)[pairs]
        reference = torch.maximum(difference.abs(), self._floor[pairs])
        gap = (cells.sum(2) - difference).abs() / reference
        self._gap[pairs] = torch.where(is_open, gap, self._gap[pairs])
        smooth = _sum_sizes(rough) <= limit_roughness(count, tolerance) * torch.maximum(_sum_sizes(cells), reference)
        self._converged = self._gap <= tolerance
        self._is_open[pairs] = is_open & ~(self._converged[pairs] & smooth)

    @property
    def is_settled(self) -> bool:
        """Whether all pairs have settled."""
        return not bool(self._is_open.any())

    def contributions(self) -> list[Contributions]:
        """Contributions per point."""
        return [self._collect_contributions(p) for p in range(len(self._baseline))]

    def _collect_contributions(self, p: int) -> Contributions:
        parts, neighbours = _split_stocks(self._parts.split_cells(self._cells[p]))
        return Contributions(
            observed=parts.observed.cpu().numpy(),
            known=parts.known.cpu().numpy(),
            static=parts.static.cpu().numpy(),
            location=parts.location.sum(1).cpu().numpy(),
            scale=parts.scale.sum(1).cpu().numpy(),
            conformal=parts.offsets.sum((1, 2)).cpu().numpy(),
            neighbours=neighbours.cpu().numpy(),
            prediction=self._prediction[p].cpu().numpy(),
            baseline_prediction=self._baseline[p].cpu().numpy(),
            relative_gap=self._gap[p].cpu().numpy(),
            converged=self._converged[p].cpu().numpy(),
            nodes=self._nodes[p].cpu().numpy(),
        )


def _split_stocks(parts: PathParts) -> tuple[PathParts, Tensor]:
    """Contributions of the explained stock's inputs, and the total [N, M - 1] of each other stock."""
    if parts.location.dim() == 2:  # noqa: PLR2004 - [N, H]: the network reads row by row
        return parts, parts.location.new_zeros(len(parts.location), 0)
    groups = parts[:-1]
    others = torch.stack([part[:, 1:].flatten(2).sum(2) for part in groups]).sum(0)
    observed, known, static, location, scale = (part[:, 0] for part in groups)
    return PathParts(observed, known, static, location, scale, parts.offsets), others


def _sum_sizes(cells: Tensor) -> Tensor:
    """[P, N] sum of absolute cells [P, N, width]."""
    return cells.abs().sum(2)


@final
class Explainer:
    """Explains the forecasts of one model. Stateless and thread-safe.

    Each row is explained separately. For a network that reads several stocks, a row is a panel of all stocks that its
    forecast depends on.
    """

    def __init__(
        self, view: nn.Module, output: OutputMap, baseline: Baseline, *, max_rows: int, members: int | None = None
    ) -> None:
        """Store the parts.

        Args:
            view: float32 `attribution_view` of the network.
            output: the model's output map; copied to the device of the view.
            baseline: the baseline.
            max_rows: maximum number of rows (windows x nodes) per forward; limits the memory, and the time between
                checks of the deadline.
            members: number of stocks (M) that a graph network reads per forecast, including the explained one; 1
                without neighbours. None for a row-wise network.

        Raises:
            ConfigurationError: the view is not an attribution view, or max_rows is below 1.
        """
        # Every module must be in the mode that `build_attribution_view` sets.
        for name, module in view.named_modules():
            recurrent = isinstance(module, nn.RNNBase)
            if module.training != recurrent or (recurrent and module.dropout):
                raise ConfigurationError(
                    f"module {name or type(module).__name__!r} is not in an attribution view's mode; "
                    "pass build_attribution_view(network), not the network"
                )
        if max_rows < 1:
            raise ConfigurationError(f"max_rows is {max_rows}, but must be at least 1")
        self._baseline = baseline
        tensors = chain(view.parameters(), view.buffers())
        device = next((tensor.device for tensor in tensors), torch.device("cpu"))
        with torch.inference_mode(mode=False):
            self._output = replace(
                output,
                spread=copy_outside_inference(output.spread, device),
                offsets=copy_outside_inference(output.offsets, device),
            )
        self._reads_rows, self._members = members is None, members or 1
        forecasting = RowForecasts(view, self._output) if self._reads_rows else PanelForecasts(view, self._output)
        self._integrator = PathIntegrator(forecasting, max_rows=max(1, max_rows // self._members))

    def explain(
        self,
        inputs: Inputs,
        points: Sequence[Point],
        *,
        deadline: Deadline,
        tolerance: float = 0.01,
        node_counts: Sequence[int] = NODE_COUNTS,
        nodes: Tensor | None = None,
    ) -> list[Contributions]:
        """Compute the contributions to each point, in order. Points share the forward passes.

        Args:
            inputs: N windows, on any device and from any inference mode. For a graph network, every group has an
                additional dimension, [N, M, ...]: first the explained stock, then those that it depends on.
            points: indices (h, q) of the horizons and quantiles to explain.
            deadline: checked before every forward.
            tolerance: largest relative gap (see `Contributions.relative_gap`) that counts as converged.
            node_counts: ascending numbers of quadrature nodes. Each further number is for windows and points that have
                not converged before, or whose gradients were rough. A single number is a fixed rule.
            nodes: int64 [N, M] indices of the stocks in the network's graph; None for a row-wise network.

        Raises:
            InvalidInputError: windows or points are empty, a point is outside the forecast, or a forecast is not
                finite.
            RequestTooLargeError: the response would have more than MAX_NUMBERS contributions.
            WindowShapeError: the windows do not match the baseline.
            ConfigurationError: tolerance is not positive, or the node counts are empty or not ascending.
            DeadlineExceededError, CallCancelledError: the call timed out or was cancelled.
            torch.OutOfMemoryError: a single row does not fit into memory.
        """
        if not tolerance > 0:
            raise ConfigurationError(f"tolerance is {tolerance:g}, but must be positive")
        if not node_counts or any(count <= before for before, count in pairwise([0, *node_counts])):
            raise ConfigurationError(f"node counts are {list(node_counts)}, but must be ascending numbers above 0")
        self._check_request(inputs, points, nodes)
        distinct = tuple(dict.fromkeys(points))
        # enables gradients and full precision in any mode of the caller; `enable_grad` does not end inference mode
        device = self._output.offsets.device.type
        with torch.inference_mode(mode=False), torch.enable_grad(), torch.autocast(device, enabled=False):
            paths = build_paths(self._baseline, inputs, self._output.offsets, nodes, copies=len(distinct))
            blocks = [self._explain_batch(path, distinct, deadline, tolerance, node_counts) for path in paths]
        contributions = (Contributions.joined(parts) for parts in zip(*blocks, strict=True))
        of_point = dict(zip(distinct, contributions, strict=True))
        return [of_point[point] for point in points]

    def _explain_batch(
        self,
        path: StraightPath,
        points: Sequence[Point],
        deadline: Deadline,
        tolerance: float,
        node_counts: Sequence[int],
    ) -> list[Contributions]:
        """Compute the contributions per point; increases the nodes of open pairs."""
        forecasts = self._integrator.ends(path, deadline)
        ends = torch.stack([forecasts[..., h, q] for h, q in points], dim=1)
        if not bool(ends.isfinite().all()):
            raise make_not_finite_error()
        horizons = [h for h, _ in points]
        floor = GAP_FLOOR * self._output.spread[horizons][:, None] * path.scale[:, horizons].T
        tally = ConvergenceTally(ends=ends, floor=floor, distance=path.distance())
        for count in node_counts:
            open_points = [points[p] for p in tally.open_points.tolist()]
            gradients = self._integrator.gradients(path.take(tally.open_rows), open_points, count, deadline)
            tally.store(gradients, count, tolerance)
            if tally.is_settled:
                break
        return tally.contributions()

    def _check_request(self, inputs: Inputs, points: Sequence[Point], nodes: Tensor | None) -> None:
        if (nodes is None) != self._reads_rows:
            raise ConfigurationError(
                f"the network reads {self._members} stocks per forecast, and their nodes in its graph are "
                f"{'missing' if nodes is None else 'not needed'}"
            )
        check_request(inputs, points, self._output, members=self._members)


def build_paths(
    baseline: Baseline, inputs: Inputs, offsets: Tensor, nodes: Tensor | None, *, copies: int
) -> Iterator[StraightPath]:
    """Yield the paths of batches of windows, so small that `copies` of their numbers fit into memory."""
    windows = len(inputs.location)
    size = max(1, BATCH_NUMBERS // (copies * _count_numbers(inputs) // windows))
    for first in range(0, windows, size):
        batch_nodes = None if nodes is None else nodes[first : first + size]
        yield StraightPath.between(baseline, inputs.rows(first, first + size), offsets, batch_nodes)


def check_request(inputs: Inputs, points: Sequence[Point], output: OutputMap, *, members: int = 1) -> None:
    """Check what is to be explained; raises as `Explainer.explain`."""
    if not points or not len(inputs.location):
        raise InvalidInputError(
            f"there are {len(inputs.location)} windows and {len(points)} points to explain, "
            "but there must be at least one of each"
        )
    have = len(points) * _count_numbers(inputs) // members
    if have > MAX_NUMBERS:
        raise RequestTooLargeError(
            f"{len(points)} targets of {len(inputs.location)} symbols have {have} contributions, more than the "
            f"limit of {MAX_NUMBERS}; ask for fewer targets or symbols",
            metadata={"have": str(have), "most": str(MAX_NUMBERS)},
        )
    horizons, quantiles = output.offsets.shape
    for h, q in points:
        if not (0 <= h < horizons and 0 <= q < quantiles):
            raise InvalidInputError(
                f"point {(h, q)} is outside the forecast of {horizons} horizons and {quantiles} quantiles"
            )


def make_not_finite_error() -> InvalidInputError:
    """The error for a forecast that cannot be explained."""
    return InvalidInputError("the forecast of a window is not finite, so there is nothing to explain")


def _count_numbers(inputs: Inputs) -> int:
    """Count of the varied numbers, without the conformal offsets."""
    return sum(group.numel() for group in inputs) - inputs.mask.numel()


MAX_ROWS: Final = 5_000_000
"""Maximum number of rows of one explanation in the worst case; most windows need three nodes, a 255th of that.

It allows 100 symbols at every horizon for a network with eleven rows per window, and 500 symbols with twelve targets
for a network with one row. It does not allow 300 symbols with 24 targets.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationCost:
    """Size of an explanation request."""

    symbols: int
    targets: int
    """Number of distinct targets."""
    rows_per_window: int
    """Rows that the networks read per window: 1 each, or the number of stocks in its small panel."""
    forecasts: int = 0
    """Forecasts of a window by methods without gradients, which are for all targets; 0 for integrated gradients."""

    @property
    def rows(self) -> int:
        """Rows of all passes, by integrated gradients if every window and target needs the most nodes."""
        return self.symbols * self.rows_per_window * (self.forecasts or self.targets * sum(NODE_COUNTS))

    def check(self) -> None:
        """Reject a request that could block other explanations for too long.

        Raises:
            RequestTooLargeError: more than MAX_ROWS; the metadata has the number.
        """
        if self.rows > MAX_ROWS:
            raise RequestTooLargeError(
                f"explaining {self.targets} targets of {self.symbols} symbols may take {self.rows} rows of the "
                f"network, more than the limit of {MAX_ROWS} per request; ask for fewer targets or symbols",
                metadata={"have": str(self.rows), "most": str(MAX_ROWS)},
            )

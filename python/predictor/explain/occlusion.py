"""Occlusion: how a forecast changes when a part of its input is hidden (Zeiler & Fergus 2014).

The contributions are not additive: parts that say the same thing replace each other, and parts that matter only
together count twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, final

import numpy as np
import torch
from torch import Tensor

from predictor.arrays import FloatArray, PositionArray
from predictor.call_context import Deadline
from predictor.explain.integrated_gradients import GAP_FLOOR, Contributions, check_request, make_not_finite_error
from predictor.explain.integration import NODE_COUNTS, FeatureForecasts, Point
from predictor.explain.path import PathParts, StraightPath
from predictor.networks import Inputs, OutputMap

MAX_GROUPS: Final = 20


def group_bars(length: int) -> list[PositionArray]:
    """Positions of each group of consecutive sessions among `length`, oldest first; none has the last session."""
    return np.array_split(np.arange(length - 1), max(1, min(MAX_GROUPS, length - 1)))


@final
class BarOcclusionExplainer:
    """Explains the forecasts of a network that reads unscaled bars. Stateless and thread-safe.

    The contribution of a group of bars is the forecast minus the forecast without these bars, in equal parts for each
    of its known bars. The last bar always stays, because returns count from it. The baseline knows nothing else.
    """

    def __init__(self, forecast: Callable[[Inputs, Deadline], Tensor], output: OutputMap) -> None:
        """Store the parts; `forecast` computes calibrated quantiles [N, H, Q], as `Engine.compute_quantiles`."""
        self._forecast = forecast
        self._output = output

    def explain(
        self,
        inputs: Inputs,
        points: Sequence[Point],
        *,
        deadline: Deadline,
        tolerance: float = 0.01,
        node_counts: Sequence[int] = NODE_COUNTS,  # noqa: ARG002 - the signature of `Explainer`
        nodes: Tensor | None = None,  # noqa: ARG002
    ) -> list[Contributions]:
        """Compute the contributions to each point, in order; see `Explainer.explain`."""
        check_request(inputs, points, self._output)
        groups = group_bars(inputs.mask.shape[1])
        values = self._forecast_without(inputs, np.arange(0), deadline)
        if not np.isfinite(values).all():
            raise make_not_finite_error()
        baseline = self._forecast_without(inputs, np.arange(inputs.mask.shape[1] - 1), deadline)
        effects = np.stack([values - self._forecast_without(inputs, group, deadline) for group in groups], axis=1)
        known = inputs.mask[..., 0].cpu().numpy()
        spread, scale = self._output.spread.numpy(), inputs.scale.cpu().numpy()
        return [
            replace(
                _make_without_effects(values[:, h, q], baseline[:, h, q], groups=len(groups)),
                observed=_share_among_bars(effects[:, :, h, q], groups, known)[..., None],
            ).with_gap(GAP_FLOOR * spread[h] * scale[:, h], tolerance)
            for h, q in points
        ]

    def _forecast_without(self, inputs: Inputs, sessions: PositionArray, deadline: Deadline) -> FloatArray:
        """[N, H, Q] calibrated forecasts in the target's unit if the bars of some sessions are unknown."""
        mask = inputs.mask.clone()
        mask[:, sessions] = False
        return self._forecast(inputs._replace(mask=mask), deadline).numpy()


def _share_among_bars(effects: FloatArray, groups: Sequence[PositionArray], known: FloatArray) -> FloatArray:
    """[N, T] the effects [N, G] of groups in equal parts for their known bars, of `known` [N, T]."""
    shares = np.zeros(known.shape)
    for g, group in enumerate(groups):
        cells = known[:, group]
        shares[:, group] = np.where(cells, (effects[:, g] / np.maximum(cells.sum(axis=1), 1))[:, None], 0.0)
    return shares


@final
class FeatureOcclusionExplainer:
    """Explains the forecasts of any model of several features. Stateless and thread-safe.

    The contribution of a feature is the forecast minus the forecast with the feature at the baseline of integrated
    gradients in all sessions. Location, scale, conformal offsets, and the neighbours together, count as features.
    """

    def __init__(self, features: FeatureForecasts) -> None:
        """Store the forecasts."""
        self._features = features

    def explain(
        self,
        inputs: Inputs,
        points: Sequence[Point],
        *,
        deadline: Deadline,
        tolerance: float = 0.01,
        node_counts: Sequence[int] = NODE_COUNTS,  # noqa: ARG002 - the signature of `Explainer`
        nodes: Tensor | None = None,
    ) -> list[Contributions]:
        """Compute the contributions to each point, in order, without their sessions; see `Explainer.explain`."""
        features, output = self._features, self._features.output
        check_request(inputs, points, output, members=features.members)
        with torch.inference_mode(), torch.autocast(output.offsets.device.type, enabled=False):
            path = StraightPath.between(features.baseline, inputs, output.offsets, nodes)
            values = features.forecast(path, path.end, deadline)
            if not bool(values.isfinite().all()):
                raise make_not_finite_error()
            baseline = features.forecast(path, path.start, deadline)
            groups = features.list_columns(path.end)
            effects = PathParts(
                *(values[:, None] - self._hide_each(path, k, part, values, deadline) for k, part in enumerate(groups))
            )
            neighbours = values[:, None] - self._hide_neighbours(path, values, deadline)
        floor = GAP_FLOOR * output.spread * path.scale
        return [
            replace(
                _make_without_effects(
                    values[:, h, q].cpu().numpy(),
                    baseline[:, h, q].cpu().numpy(),
                    groups=sum(map(len, groups)),
                ),
                observed=effects.observed[:, None, :, h, q].cpu().numpy(),
                known=effects.known[:, None, :, h, q].cpu().numpy(),
                static=effects.static[..., h, q].cpu().numpy(),
                location=effects.location[:, 0, h, q].cpu().numpy(),
                scale=effects.scale[:, 0, h, q].cpu().numpy(),
                conformal=effects.offsets[:, 0, h, q].cpu().numpy(),
                neighbours=neighbours[..., h, q].cpu().numpy(),
            ).with_gap(floor[:, h].cpu().numpy(), tolerance)
            for h, q in points
        ]

    def _hide_each(
        self, path: StraightPath, k: int, groups: Sequence[list[int]], values: Tensor, deadline: Deadline
    ) -> Tensor:
        """[N, width, H, Q] forecasts without each group of columns of part `k`, at the group's first column.

        Other columns have the forecasts `values` [N, H, Q].
        """
        forecasts = values[:, None].repeat(1, path.end[k].shape[-1], 1, 1)
        for columns in groups:
            parts = PathParts(*(part.clone() for part in path.end))
            index = self._features.index_of(k, columns)
            parts[k][index] = path.start[k][index]
            forecasts[:, columns[0]] = self._features.forecast(path, parts, deadline)
        return forecasts

    def _hide_neighbours(self, path: StraightPath, values: Tensor, deadline: Deadline) -> Tensor:
        """[N, 1, H, Q] forecasts with all neighbours at the baseline; [N, 0, H, Q] without neighbours."""
        if self._features.members == 1:
            return values[:, None][:, :0]
        parts = PathParts(*(part.clone() for part in path.end))
        for part, reference in zip(parts[:-1], path.start[:-1], strict=True):
            part[:, 1:] = reference[:, 1:]
        return self._features.forecast(path, parts, deadline)[:, None]


def _make_without_effects(values: FloatArray, baseline: FloatArray, *, groups: int) -> Contributions:
    """The forecasts [N] of windows and baseline, without contributions; `groups` is how many were hidden."""
    count = len(values)
    return Contributions(
        observed=np.zeros((count, 1, 0)),
        known=np.zeros((count, 1, 0)),
        static=np.zeros((count, 0)),
        location=np.zeros(count),
        scale=np.zeros(count),
        conformal=np.zeros(count),
        neighbours=np.zeros((count, 0)),
        prediction=values,
        baseline_prediction=baseline,
        relative_gap=np.zeros(count),
        converged=np.ones(count, np.bool_),
        nodes=np.full(count, groups, np.int32),
    )

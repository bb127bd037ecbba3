"""Occlusion: how a forecast changes when a group of past bars is unknown (Zeiler & Fergus 2014).

The contributions are not additive: bars that say the same thing replace each other, and bars that matter only together
count twice.
"""

from collections.abc import Callable, Sequence
from typing import Final, final

import numpy as np
from torch import Tensor

from predictor.arrays import FloatArray, PositionArray
from predictor.explain.integrated_gradients import GAP_FLOOR, Contributions, check_request, not_finite_error
from predictor.explain.integration import NODE_COUNTS, Point
from predictor.instance import Cancellation
from predictor.networks import Inputs, OutputMap

MOST_GROUPS: Final = 20


def group_bars(length: int) -> list[PositionArray]:
    """Positions of each group of consecutive sessions among `length`, oldest first; none has the last session."""
    return np.array_split(np.arange(length - 1), max(1, min(MOST_GROUPS, length - 1)))


@final
class OcclusionExplainer:
    """Explains the forecasts of a network of one observed feature. Stateless and thread-safe.

    The contribution of a group of bars is the forecast minus the forecast without these bars, in equal parts for each
    of its known bars. The last bar always stays, because returns count from it. The baseline knows nothing else.
    """

    def __init__(self, forecast: Callable[[Inputs, Cancellation], Tensor], output: OutputMap) -> None:
        """Store the parts; `forecast` computes calibrated quantiles [N, H, Q], as `Engine.values`."""
        self._forecast = forecast
        self._output = output

    def explain(
        self,
        inputs: Inputs,
        points: Sequence[Point],
        *,
        deadline: Cancellation,
        tolerance: float = 0.01,
        node_counts: Sequence[int] = NODE_COUNTS,  # noqa: ARG002 - the signature of `Explainer`
        nodes: Tensor | None = None,  # noqa: ARG002
    ) -> list[Contributions]:
        """Compute the contributions to each point, in order; see `Explainer.explain`."""
        check_request(inputs, points, self._output)
        groups = group_bars(inputs.mask.shape[1])
        values = self._values_without(inputs, np.arange(0), deadline)
        if not np.isfinite(values).all():
            raise not_finite_error()
        baseline = self._values_without(inputs, np.arange(inputs.mask.shape[1] - 1), deadline)
        effects = np.stack([values - self._values_without(inputs, group, deadline) for group in groups], axis=1)
        known = inputs.mask[..., 0].cpu().numpy()
        spread, scale = self._output.spread.numpy(), inputs.scale.cpu().numpy()
        return [
            _join(
                _share_among_bars(effects[:, :, h, q], groups, known),
                values[:, h, q],
                baseline[:, h, q],
                least=GAP_FLOOR * spread[h] * scale[:, h],
                tolerance=tolerance,
            )
            for h, q in points
        ]

    def _values_without(self, inputs: Inputs, sessions: PositionArray, deadline: Cancellation) -> FloatArray:
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


def _join(
    observed: FloatArray, values: FloatArray, baseline: FloatArray, *, least: FloatArray, tolerance: float
) -> Contributions:
    """Contributions of bars [N, T] to values [N], with the gap between their sum and the distance to the baseline."""
    count = len(values)
    distance = values - baseline
    gap = np.abs(observed.sum(axis=1) - distance) / np.maximum(np.abs(distance), least)
    return Contributions(
        observed=observed[..., None],
        known=np.zeros((count, observed.shape[1], 0)),
        static=np.zeros((count, 0)),
        location=np.zeros(count),
        scale=np.zeros(count),
        conformal=np.zeros(count),
        neighbours=np.zeros((count, 0)),
        prediction=values,
        baseline_prediction=baseline,
        relative_gap=gap,
        converged=gap <= tolerance,
        nodes=np.full(count, len(group_bars(observed.shape[1])), np.int32),
    )

"""Stages from bars to forecast, and the tolerance of each against its recorded result.

Comparing only the output could hide errors of earlier stages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.artifact.manifest import GOLDEN_ARRAYS
from predictor.bars import BarPanel
from predictor.call_context import NEVER
from predictor.covariates import Covariates
from predictor.dates import to_date_number, to_optional_date_number
from predictor.errors import ArtifactError
from predictor.explain import compute_gauss_legendre
from predictor.forecast import Forecast
from predictor.golden.bars import SYMBOLS, make_synthetic_bars, make_synthetic_covariates
from predictor.instance import Instance
from predictor.model import Model, PreparedInstance
from predictor.networks import GraphForecaster, Inputs

Stages = dict[str, NDArray[np.generic]]

AFTER_ALL_SESSIONS: Final = datetime(9999, 1, 1, tzinfo=UTC)
"""A time at which every session has closed."""

ATTRIBUTION_NODES: Final = 32
"""Nodes of the recorded attribution: fixed, because another machine could converge one doubling earlier or later."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Tolerance of a value: |actual - expected| <= absolute + relative * size.

    The size is the largest |expected| of the stage; for features, the maximum of |expected| and the fitted scale.
    """

    absolute: float
    relative: float


TOLERANCES: Final[Mapping[str, Tolerance]] = {
    "adjusted": Tolerance(0, 1e-12),
    "features": Tolerance(0, 1e-12),
    "observed": Tolerance(1e-6, 0),
    "known": Tolerance(1e-6, 0),
    "static": Tolerance(1e-6, 0),
    "mask": Tolerance(0, 0),
    "har_terms": Tolerance(1e-12, 1e-12),
    "har_level": Tolerance(0, 1e-12),
    "har": Tolerance(1e-12, 1e-12),
    "garch_level": Tolerance(0, 1e-12),
    "garch_next": Tolerance(0, 1e-12),
    "garch": Tolerance(1e-12, 1e-12),
    "location": Tolerance(1e-15, 1e-12),
    "scale": Tolerance(0, 1e-12),
    "units": Tolerance(1e-6, 0),
    "values": Tolerance(1e-6, 0),
    "scores": Tolerance(1e-6, 0),
    "as_of_session": Tolerance(0, 0),
    "target_sessions": Tolerance(0, 0),
    "prices": Tolerance(0, 1e-6),
    "anchor_price": Tolerance(0, 0),
    "attribution_positions": Tolerance(1e-14, 0),
    "attribution_weights": Tolerance(1e-14, 0),
    "attribution_observed": Tolerance(1e-7, 1e-4),
    "attribution_known": Tolerance(1e-7, 1e-4),
    "attribution_static": Tolerance(1e-7, 1e-4),
    "attribution_alone": Tolerance(1e-7, 1e-4),
    "attribution_ends": Tolerance(1e-6, 0),
    "attribution_sum": Tolerance(1e-6, 1e-4),
}
"""Results differ between processors mainly in log (one unit in the last place) and in float32 sums."""

STEP_TOLERANCE: Final = Tolerance(1e-12, 1e-12)
"""Default tolerance of a step to a normaliser's levels, which is float64 with at most a logarithm."""

NETWORK_STAGES: Final = frozenset(
    {
        "units",
        "values",
        "scores",
        "prices",
        "attribution_observed",
        "attribution_known",
        "attribution_static",
        "attribution_alone",
        "attribution_ends",
        "attribution_sum",
    }
)
"""Stages that depend on the network's float32 arithmetic."""

MAX_FLOAT32_ERROR: Final = 1e-4
"""Upper bound of the recorded float32 error that loosens the tolerance of the network's stages."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageComparison:
    """Compares stages with their recorded results.

    Attributes:
        slack: tolerated relative error of the network's arithmetic in the stages after it.
        scale: float64 [F] fitted scale of each feature.
    """

    slack: float
    scale: FloatArray

    def check(self, name: str, actual: NDArray[np.generic], expected: NDArray[np.generic]) -> None:
        """Raise ArtifactError with the stage's name if its shape differs or a value exceeds its tolerance."""
        if actual.shape != expected.shape:
            raise make_golden_error(f"stage {name} has shape {actual.shape}, recorded was {expected.shape}")
        if actual.dtype != expected.dtype:
            raise make_golden_error(f"stage {name} is {actual.dtype}, recorded was {expected.dtype}")
        a, b = actual.astype(np.float64), expected.astype(np.float64)
        known = np.isfinite(b)
        if not np.array_equal(np.isfinite(a), known) or not np.array_equal(a[~known], b[~known], equal_nan=True):
            raise make_golden_error(f"stage {name} is finite in other cells than recorded")
        difference = np.abs(np.subtract(a, b, where=known, out=np.zeros_like(b)))
        allowed = self._compute_allowed(name, b)
        worst = int(np.argmax(difference - allowed)) if b.size else 0
        if b.size and difference.flat[worst] > allowed.flat[worst]:
            raise make_golden_error(
                f"stage {name} is off by {difference.flat[worst]:.3g}, allowed is {allowed.flat[worst]:.3g}; the "
                "artifact's parts do not match, or this machine's libraries compute differently: train the "
                "model again here"
            )

    def _compute_allowed(self, name: str, expected: FloatArray) -> FloatArray:
        """Allowed difference of each value, in the shape of the stage."""
        tolerance, size = TOLERANCES.get(name, STEP_TOLERANCE), np.where(np.isfinite(expected), np.abs(expected), 0.0)
        largest = size.max(initial=0.0)
        unit = np.maximum(size, self.scale) if name == "features" else np.full_like(size, largest)
        allowed = tolerance.absolute + tolerance.relative * unit
        return np.maximum(allowed, self.slack * largest) if name in NETWORK_STAGES else allowed


def make_golden_error(problem: str) -> ArtifactError:
    """The error for arrays of the golden instance that differ from what this program computes."""
    return ArtifactError.of(GOLDEN_ARRAYS, f"golden instance: {problem}")


class GoldenRequest(NamedTuple):
    """The request of the golden instance: bars and covariates."""

    bars: BarPanel
    covariates: Covariates


def build_request(model: Model) -> GoldenRequest:
    """Build the golden request of a model; with a graph, the first two symbols are linked stocks."""
    pipeline = model.pipeline
    linked = _find_linked_stocks(model) or SYMBOLS[:2]
    others = (name if name not in linked else f"{name}-2" for name in SYMBOLS[2:])
    bars = replace(make_synthetic_bars([pipeline]), symbols=(*linked, *others))
    future = pipeline.following(int(bars.sessions[-1]))
    return GoldenRequest(bars, make_synthetic_covariates(pipeline.covariates, bars, future))


def _find_linked_stocks(model: Model) -> tuple[str, str] | None:
    """A stock of the model's graph and one of its neighbours; None without edges."""
    network = model.engine.network
    edges = network.neighbours.cpu().numpy() if isinstance(network, GraphForecaster) else np.empty((0, 0), np.int64)
    linked = np.argwhere(edges >= 0)
    if not len(linked):
        return None
    stock, column = (int(k) for k in linked[0])
    universe = model.manifest.universe
    return universe[stock], universe[int(edges[stock, column])]


def prepare(model: Model, request: GoldenRequest) -> PreparedInstance:
    """Prepare the request as network inputs."""
    bars, covariates = request
    instance = Instance(input=bars, covariates=covariates, allow_incomplete_last_bar=True, accept_suspect_bars=True)
    return model.prepare(instance, AFTER_ALL_SESSIONS)


def prepare_golden_inputs(model: Model) -> Inputs:
    """Inputs of the golden instance, one row per symbol; after a check they equal the recorded ones."""
    return prepare(model, build_request(model)).inputs


def compute_stages(model: Model, request: GoldenRequest) -> Stages:
    """All stages by name, in the order and shapes of the computation.

    Attributions of adopted models are differences of their forecasts, and slow.
    """
    prepared = prepare(model, request)
    forecast = model.forecast([prepared])[0]
    pipeline = model.pipeline
    adjusted, window = request.bars.adjusted(), pipeline.normaliser.window
    columns = (adjusted.open, adjusted.high, adjusted.low, adjusted.close, adjusted.volume, adjusted.money)
    features = pipeline.features.features.evaluate(adjusted, request.covariates.observed)
    series = pipeline.normaliser.series(pipeline.target, adjusted)
    groups = {name: group.numpy() for name, group in prepared.inputs._asdict().items()}
    if not model.pipeline.normaliser.is_per_horizon:
        groups |= {name: groups[name][:, 0] for name in ("location", "scale")}
    return {
        "adjusted": np.stack(columns),
        "features": features[:, -pipeline.encoder_length :],
        **pipeline.normaliser.stages(tuple(values[:, -window:] for values in series)),
        **groups,
        "units": model.runner.compute_units(prepared).numpy(),
        **list_forecast_stages(forecast),
        **({} if forecast.scores is None else {"scores": forecast.scores}),
        **({} if model.manifest.kind.is_adopted else _compute_attribution(model, prepared)),
    }


def list_forecast_stages(forecast: Forecast) -> Stages:
    """Parts of the forecast by name, in the shapes of `Forecast`."""
    stages: Stages = {
        "values": forecast.values,
        "as_of_session": np.array([to_optional_date_number(forecast.as_of_session)], np.int32),
        "target_sessions": np.array([to_date_number(day) for day in forecast.target_sessions], np.int32),
    }
    if forecast.prices is not None:
        stages["prices"] = forecast.prices
    if forecast.anchor_price is not None:
        stages["anchor_price"] = forecast.anchor_price
    return stages


def _compute_attribution(model: Model, prepared: PreparedInstance) -> Stages:
    """Attribution of the longest horizon's median: the rule, both ends of the path, all contributions and their sum."""
    manifest = model.manifest
    point = model.default_targets()[-1].index_in(manifest.target.horizons, manifest.quantiles)
    (contributions,) = model.runner.contributions(prepared, [point], deadline=NEVER, node_counts=(ATTRIBUTION_NODES,))
    positions, weights = compute_gauss_legendre(ATTRIBUTION_NODES)
    return {
        "attribution_positions": positions,
        "attribution_weights": weights,
        "attribution_ends": np.stack([contributions.baseline_prediction, contributions.prediction], axis=-1),
        "attribution_observed": contributions.observed,
        "attribution_known": contributions.known,
        "attribution_static": contributions.static,
        "attribution_alone": np.stack(
            [
                contributions.location,
                contributions.scale,
                contributions.conformal,
                contributions.neighbours.sum(axis=1),
            ],
            axis=-1,
        ),
        "attribution_sum": contributions.total(),
    }

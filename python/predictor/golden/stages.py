"""Everything between bars and answer, stage by stage: the output alone would hide a mistake on the way to it."""

from datetime import UTC, datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.deadline import Deadline
from predictor.explain import gauss_legendre
from predictor.instance import Instance
from predictor.model import Model, Prepared

Stages = dict[str, NDArray[np.generic]]

LONG_AFTER: Final = datetime(9999, 1, 1, tzinfo=UTC)
"""A present in which every session has closed."""

NODES: Final = 32
"""Of the recorded attribution: a fixed rule, because another machine could converge one doubling earlier or later."""


def prepare(model: Model, bars: BarPanel) -> Prepared:
    """The bars as the network reads them."""
    return model.prepare(Instance(input=bars, allow_incomplete_last_bar=True), LONG_AFTER)


def stages_of(model: Model, bars: BarPanel) -> Stages:
    """Every stage by name, in the order of computation; S symbols, N of them usable."""
    prepared = prepare(model, bars)
    inputs = {name: group.numpy() for name, group in prepared.inputs._asdict().items()}
    return {
        **_before_scaling(model, bars),
        **inputs,
        "units": model.asking.units(prepared).numpy(),
        **_forecast(model, prepared),
        **_attribution(model, prepared),
    }


def units_in_float64(model: Model, bars: BarPanel) -> NDArray[np.float64]:
    """The network's output in float64 arithmetic: how far float32 itself is off."""
    return model.units_in_float64(prepare(model, bars)).numpy()


def _before_scaling(model: Model, bars: BarPanel) -> Stages:
    adjusted, length = bars.adjusted(), model.pipeline.encoder_length
    columns = (adjusted.open, adjusted.high, adjusted.low, adjusted.close, adjusted.volume, adjusted.money)
    features = model.pipeline.features.features.evaluate(adjusted)
    return {"adjusted": np.stack(columns), "features": features[:, -length:]}


def _forecast(model: Model, prepared: Prepared) -> Stages:
    forecast = model.forecast([prepared])[0]
    found: Stages = {
        "values": forecast.values,
        "as_of_session": np.array([forecast.as_of_session], np.int32),
        "target_sessions": forecast.target_sessions,
    }
    if forecast.prices is not None:
        found["prices"] = forecast.prices
    if forecast.anchor_price is not None:
        found["anchor_price"] = forecast.anchor_price
    return found


def _attribution(model: Model, prepared: Prepared) -> Stages:
    """The longest horizon's median: the rule, both ends of the path, every contribution and their sum."""
    manifest = model.manifest
    point = model.default_targets()[-1].index_in(manifest.target.horizons, manifest.quantiles)
    (found,) = model.asking.contributions(prepared, [point], deadline=Deadline(), node_counts=(NODES,))
    positions, weights = gauss_legendre(NODES)
    return {
        "attribution_positions": positions,
        "attribution_weights": weights,
        "attribution_ends": np.stack([found.baseline_prediction, found.prediction], axis=-1),
        "attribution_observed": found.observed,
        "attribution_known": found.known,
        "attribution_static": found.static,
        "attribution_alone": np.stack(
            [found.location, found.scale, found.conformal, found.neighbours.sum(axis=1)], axis=-1
        ),
        "attribution_sum": found.total(),
    }

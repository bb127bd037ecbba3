"""Small real artifacts: features fitted on real bars, networks with seeded random weights."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from market import bokeh_panel
from numpy.typing import NDArray
from torch import Tensor

from predictor import artifact, golden
from predictor.artifact import Artifact, BaselineSpec, Conformal, Manifest
from predictor.bars import BarPanel
from predictor.features import FittedFeatures, load_default_features
from predictor.model import Model, ModelIdentity
from predictor.model.prepared_instance import PreparedInstance
from predictor.networks import (
    FittedLevel,
    FittedNormaliser,
    FittedScale,
    Garch,
    GraphConfig,
    GRUConfig,
    Har,
    HybridConfig,
    LSTMConfig,
    NetworkConfig,
    Target,
    TargetKind,
    TFTConfig,
    TreesConfig,
    UnconditionalConfig,
    WindowNormaliser,
    build_network,
    get_kind,
)
from predictor.sessions import SessionCalendar
from predictor.skill import Skill
from predictor.windows import Pipeline

QUANTILES = (0.1, 0.5, 0.9)
SMALL: Mapping[str, NetworkConfig] = {
    "lstm": LSTMConfig(hidden=8, layers=2),
    "gru": GRUConfig(hidden=8, layers=2),
    "hybrid": HybridConfig(hidden=8, layers=1, heads=2),
    "tft": TFTConfig(hidden=8, heads=2),
    "graph": GraphConfig(hidden=8, heads=2, neighbours=2, frequencies=2),
    "trees": TreesConfig(trees=4, leaves=4),
    "har": UnconditionalConfig(),
    "garch": UnconditionalConfig(),
}
"""Settings of each kind of network, small enough for tests."""
UNIVERSE = ("AAPL", "GOOG", "IBM", "MSFT")
NEIGHBOURS = torch.tensor([[1, 2], [0, -1], [3, 0], [2, 1]])
"""Neighbours: AAPL has GOOG and IBM, GOOG has AAPL, IBM has MSFT and AAPL, MSFT has IBM and GOOG."""
NEARNESS = torch.tensor([[0.5, 0.3], [0.5, 0.0], [0.9, 0.3], [0.9, 0.1]])


def small_models(folder: Path, *, name: str = "small", seed: int = 0, target: Target | None = None) -> Path:
    """Write `folder/NAME/1` and return `folder`, which `quantra serve --models` takes."""
    save_small_artifact(folder / name / "1", seed=seed, target=target)
    return folder


def save_small_artifact(folder: Path, kind: str = "lstm", *, seed: int = 0, target: Target | None = None) -> Path:
    """Write one artifact: 60 sessions, default features, horizons 1, 5, 10, 20, calendar XNYS, random weights."""
    return save_artifact(folder, small_artifact(kind, seed=seed, target=target))


def with_skill(made: Artifact, skill: Skill) -> Artifact:
    """The artifact with a skill in its card."""
    told = {
        "baseline": skill.rival,
        "improvement": skill.improvement,
        "lower": skill.lower,
        "upper": skill.upper,
        "level": skill.level,
        "sentence": skill.sentence,
        "days_short": skill.days_short,
    }
    return replace(made, manifest=replace(made.manifest, card={**made.manifest.card, "skill": told}))


NO_SKILL = Skill(
    rival="GARCH(1,1)-t, calibrated",
    improvement=-0.00449,
    lower=-0.02251,
    upper=0.01049,
    level=0.9,
    sentence="The model's loss is 0.4 % larger than that of the best baseline.",
)
"""An inconclusive skill, as for most models of returns."""


def save_artifact(folder: Path, made: Artifact) -> Path:
    """Write an artifact with its golden instance."""
    artifact.save(folder, made, golden.record(small_model(made)))
    return folder


def small_model(made: Artifact, name: str = "small") -> Model:
    """Load the artifact as a model."""
    identity = ModelIdentity(name=name, version=1, weights_hash="0" * 64)
    return Model.assemble(identity, made, device=torch.device("cpu"), max_rows=256)


def small_artifact(
    kind: str = "lstm", *, seed: int = 0, target: Target | None = None, dropout: float = 0.1, fitted: bool = False
) -> Artifact:
    """The parts of a small model, with nonzero conformal offsets so that they show in forecasts.

    A graph knows the stocks of `UNIVERSE`; each of these has neighbours. Levels are the window's own, or `fitted`, as
    they always are where there is no network.
    """
    chosen = target or Target()
    pipeline = small_pipeline(chosen)
    if fitted or get_kind(kind).is_scale_only:
        pipeline = replace(pipeline, normaliser=fitted_normaliser(chosen, kind))
    horizons = len(chosen.horizons)
    manifest = Manifest(
        kind=get_kind(kind),
        config=replace(SMALL[kind], dropout=dropout) if get_kind(kind).is_trainable else SMALL[kind],
        target=chosen,
        quantiles=QUANTILES,
        normaliser=pipeline.normaliser,
        encoder_length=pipeline.encoder_length,
        conformal=Conformal(offsets=((-0.05, 0.0, 0.08),) * horizons, effective_samples=(100.0,) * horizons),
        baseline=BaselineSpec(
            name="train_mean", known=(0.0,) * pipeline.sizes.known, location=(0.0,) * horizons, scale=(0.02,) * horizons
        ),
        universe=UNIVERSE if get_kind(kind).is_panel_model else (),
        card={"note": "a small model with random weights, for tests"},
    )
    return Artifact(manifest=manifest, pipeline=pipeline, weights=random_weights(manifest, pipeline, seed))


def constant_artifact(*, fitted: bool = False, seed: int = 0) -> Artifact:
    """An LSTM with the same output for every window, so that contributions of levels can be computed by hand.

    The baseline's levels differ from horizon to horizon.
    """
    made = small_artifact(fitted=fitted, seed=seed)
    baseline = replace(
        made.manifest.baseline, location=(0.001, 0.002, 0.003, 0.004), scale=(0.011, 0.013, 0.017, 0.019)
    )
    weights = {**made.weights, "head.weight": torch.zeros_like(made.weights["head.weight"])}
    return replace(made, manifest=replace(made.manifest, baseline=baseline), weights=weights)


def constant_rows(model: Model, prepared: PreparedInstance, h: int, q: int) -> dict[str, NDArray[np.float64]]:
    """Contributions [N] of the constant LSTM's levels to a horizon and quantile, integrated by hand.

    The forecast is location + spread * scale * (units + offset), where location, scale and offset go from the
    baseline's to the window's own in proportion.
    """
    baseline, spread = model.manifest.baseline, model.manifest.target.spread[h]
    units, offset = (
        model.runner.compute_units(prepared)[:, h, q].double().numpy(),
        model.manifest.conformal.offsets[h][q],
    )
    location, scale = (level[:, h].numpy() for level in (prepared.inputs.location, prepared.inputs.scale))
    return {
        "location": location - baseline.location[h],
        "scale": spread * (scale - baseline.scale[h]) * (units + offset / 2),
        "conformal": spread * (scale + baseline.scale[h]) / 2 * offset,
    }


def fitted_normaliser(target: Target, kind: str = "lstm") -> FittedNormaliser:
    """A normaliser with realistic fitted numbers, different per horizon: a mix, except for models without a network."""
    horizons = range(len(target.horizons))
    har = Har(
        intercepts=tuple(0.1 + 0.02 * h for h in horizons),
        weights=tuple((0.09, 0.35 - 0.02 * h, 0.2, 0.2 + 0.05 * h) for h in horizons),
    )
    if target.kind is TargetKind.LOG_VOLATILITY:
        return FittedLevel(har=har, residuals=tuple(0.45 - 0.03 * h for h in horizons))
    garch = Garch(alpha=0.07, beta=0.91, reversion=tuple(1 - 0.04 * h for h in horizons))
    alone = {"har": FittedScale(har=har), "garch": FittedScale(garch=garch, har_share=0.0)}
    return alone.get(kind) or FittedScale(har=har, garch=garch, har_share=0.6)


def random_weights(manifest: Manifest, pipeline: Pipeline, seed: int) -> dict[str, Tensor]:
    """Weights of a fresh network, with the edges of `UNIVERSE` for a graph."""
    sizes = replace(pipeline.sizes, nodes=len(manifest.universe))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build_network(
            manifest.kind, manifest.config, sizes=sizes, target=manifest.target, levels=manifest.quantiles
        )
        weights = network.state_dict()
        if manifest.kind.is_scale_only:
            weights["head.bias"].normal_()
        elif isinstance(manifest.config, TreesConfig):
            weights |= random_trees(weights)
    if manifest.universe:
        weights["neighbours"][:] = NEIGHBOURS
        weights["weights"][:] = NEARNESS
    return weights


def random_trees(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Trees of three splits and four leaves over the first 100 columns."""
    splits, leaves = weights["columns"].shape, weights["values"].shape
    return {
        "columns": torch.randint(0, 100, splits, dtype=torch.int16),
        "thresholds": torch.randn(splits, dtype=torch.float64) / 2,
        "unknown_left": torch.rand(splits) < 0.5,
        "left": torch.tensor([1, ~0, ~2], dtype=torch.int8).repeat(*splits[:-1], 1),
        "right": torch.tensor([2, ~1, ~3], dtype=torch.int8).repeat(*splits[:-1], 1),
        "values": torch.randn(leaves, dtype=torch.float64) / 4,
        "counts": torch.randint(1, 100, leaves, dtype=torch.int32),
    }


def small_pipeline(target: Target) -> Pipeline:
    """Default features, fitted on AAPL up to 2008."""
    centred = target.kind is TargetKind.LOG_VOLATILITY
    return Pipeline(
        features=_fitted(),
        target=target,
        normaliser=WindowNormaliser(centred=centred, decay=1.0 if centred else 0.94),
        calendar=_calendar(),
        encoder_length=60,
    )


def recent_bars(*symbols: str) -> BarPanel:
    """The last 200 sessions of real bars."""
    return bokeh_panel(*(symbols or ("AAPL",))).last(200)


@cache
def _fitted() -> FittedFeatures:
    features = load_default_features()
    return FittedFeatures.fit(features, features.columns(bokeh_panel("AAPL").until(20081231).adjusted()))


@cache
def _calendar() -> SessionCalendar:
    return SessionCalendar.from_exchange("XNYS", 20000103, 20180301)

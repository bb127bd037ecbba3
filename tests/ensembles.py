"""Small artifacts of every kind of network, and ensembles of them, for tests."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from artifacts import small_artifact, small_model
from torch import Tensor

from predictor import artifact, golden
from predictor.artifact import Artifact, Conformal, EnsembleManifest, Manifest, Stored
from predictor.features import FittedFeatures
from predictor.model import Ensemble, Identity
from predictor.networks import (
    GraphConfig,
    GRUConfig,
    HybridConfig,
    LSTMConfig,
    NetworkConfig,
    Target,
    TFTConfig,
    build_network,
    kind_named,
)
from predictor.windows import Pipeline

SMALL: Mapping[str, NetworkConfig] = {
    "lstm": LSTMConfig(hidden=8, layers=2),
    "gru": GRUConfig(hidden=8, layers=2),
    "hybrid": HybridConfig(hidden=8, layers=1, heads=2),
    "tft": TFTConfig(hidden=8, heads=2),
    "graph": GraphConfig(hidden=8, heads=2, neighbours=2, frequencies=2),
}
UNIVERSE = ("AAPL", "GOOG", "IBM", "MSFT")
OFFSETS = ((-0.03, 0.0, 0.02), (-0.02, 0.0, 0.04), (0.01, 0.0, -0.01), (0.05, 0.0, 0.06))


def artifact_of(
    kind: str = "lstm",
    *,
    encoder_length: int = 60,
    features: Sequence[int] = (),
    seed: int = 0,
    target: Target | None = None,
    decay: float = 0.94,
) -> Artifact:
    """A small artifact: a network of random weights, which reads the features at these places, or all."""
    made = small_artifact(target=target)
    normaliser = replace(made.pipeline.normaliser, decay=1.0 if made.pipeline.normaliser.centred else decay)
    pipeline = replace(made.pipeline, encoder_length=encoder_length, normaliser=normaliser)
    if features:
        pipeline = replace(pipeline, features=_chosen(pipeline.features, list(features)))
    manifest = replace(
        made.manifest,
        kind=kind_named(kind),
        config=SMALL[kind],
        encoder_length=encoder_length,
        normaliser=normaliser,
        universe=UNIVERSE if kind_named(kind).is_panel_model else (),
    )
    return Artifact(manifest=manifest, pipeline=pipeline, weights=_weights(manifest, pipeline, seed))


def _chosen(fitted: FittedFeatures, places: list[int]) -> FittedFeatures:
    """Those features alone."""
    observed = tuple(fitted.features.observed[k] for k in places)
    scaling = replace(fitted.scaling, center=fitted.scaling.center[places], scale=fitted.scaling.scale[places])
    return replace(fitted, features=replace(fitted.features, observed=observed), scaling=scaling)


def _weights(manifest: Manifest, pipeline: Pipeline, seed: int) -> dict[str, Tensor]:
    """Random ones, and a few edges where there is a graph."""
    sizes = replace(pipeline.sizes, nodes=len(manifest.universe))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build_network(
            manifest.kind, manifest.config, sizes=sizes, target=manifest.target, levels=manifest.quantiles
        )
    weights = network.state_dict()
    if manifest.universe:
        weights["neighbours"][:] = torch.tensor([[1, 2], [0, -1], [3, 0], [2, 1]])
        weights["weights"][:] = torch.tensor([[0.5, 0.3], [0.5, 0.0], [0.9, 0.3], [0.9, 0.1]])
    return weights


def save_artifact(folder: Path, made: Artifact) -> Path:
    """Write it with its golden instance."""
    artifact.save(folder, made, golden.record(small_model(made)))
    return folder


def save_ensemble(folder: Path, members: Mapping[str, Path]) -> Path:
    """Write an ensemble of artifacts that lie in these folders; its offsets are not zero."""
    stored = {name: artifact.load(member) for name, member in members.items()}
    manifest = manifest_of(stored)
    artifact.save_ensemble(folder, manifest, members, golden.record_ensemble(ensemble_of(manifest, stored)))
    return folder


def manifest_of(members: Mapping[str, Stored]) -> EnsembleManifest:
    """The manifest of an ensemble of these members."""
    common = artifact.check_fit({name: member.artifact for name, member in members.items()})
    return EnsembleManifest(
        members={name: member.manifest_hash for name, member in members.items()},
        target=common.target,
        quantiles=common.quantiles,
        calendar=common.calendar,
        conformal=Conformal(offsets=OFFSETS, effective_samples=(100.0,) * 4),
        card={"note": "an ensemble with random weights, for tests"},
    )


def ensemble_of(manifest: EnsembleManifest, members: Mapping[str, Stored]) -> Ensemble:
    """The ensemble, ready to answer."""
    models = {name: small_model(member.artifact, name) for name, member in members.items()}
    return Ensemble(Identity(name="joint", version=1, weights_hash="1" * 64), manifest, models)

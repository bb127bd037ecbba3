"""Small artifacts with few inputs, and ensembles of artifacts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from artifacts import random_weights, save_small_artifact, small_artifact, small_model

from predictor import artifact, golden
from predictor.artifact import Artifact, Conformal, EnsembleManifest, StoredArtifact
from predictor.features import FittedFeatures
from predictor.model import Ensemble, ModelIdentity
from predictor.networks import Target, WindowNormaliser

UNEVEN = ((0.9, 0.5, 0.2), (0.1, 0.5, 0.8))
"""Weights of two members at three quantiles."""
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
    """A small artifact: a network of random weights that reads the features at these places, or all."""
    made = small_artifact(kind, target=target)
    normaliser = made.pipeline.normaliser
    if isinstance(normaliser, WindowNormaliser) and not normaliser.centred:
        normaliser = replace(normaliser, decay=decay)
    pipeline = replace(made.pipeline, encoder_length=encoder_length, normaliser=normaliser)
    if features:
        pipeline = replace(pipeline, features=_chosen(pipeline.features, list(features)))
    manifest = replace(made.manifest, encoder_length=encoder_length, normaliser=normaliser)
    return Artifact(manifest=manifest, pipeline=pipeline, weights=random_weights(manifest, pipeline, seed))


def _chosen(fitted: FittedFeatures, places: list[int]) -> FittedFeatures:
    """Only the features at these places."""
    observed = tuple(fitted.features.observed[k] for k in places)
    scaling = replace(fitted.scaling, center=fitted.scaling.center[places], scale=fitted.scaling.scale[places])
    return replace(fitted, features=replace(fitted.features, observed=observed), scaling=scaling)


def save_ensemble(folder: Path, members: Mapping[str, Path], weights: tuple[tuple[float, ...], ...] = ()) -> Path:
    """Write an ensemble of the artifacts in these folders, with nonzero offsets."""
    stored = {name: artifact.load(member) for name, member in members.items()}
    manifest = manifest_of(stored, weights)
    artifact.save_ensemble(folder, manifest, members, golden.record_ensemble(ensemble_of(manifest, stored)))
    return folder


def manifest_of(members: Mapping[str, StoredArtifact], weights: tuple[tuple[float, ...], ...] = ()) -> EnsembleManifest:
    """The manifest of an ensemble of these members."""
    common = artifact.check_compatible({name: member.artifact for name, member in members.items()})
    return EnsembleManifest(
        members={name: member.manifest_hash for name, member in members.items()},
        target=common.target,
        quantiles=common.quantiles,
        calendar=common.calendar,
        conformal=Conformal(offsets=OFFSETS, effective_samples=(100.0,) * 4),
        weights=weights,
        card={"note": "an ensemble with random weights, for tests"},
    )


def ensemble_of(manifest: EnsembleManifest, members: Mapping[str, StoredArtifact]) -> Ensemble:
    """Load the ensemble as a model."""
    models = {name: small_model(member.artifact, name) for name, member in members.items()}
    return Ensemble(ModelIdentity(name="joint", version=1, weights_hash="1" * 64), manifest, models)


def mixed_members(folder: Path) -> dict[str, StoredArtifact]:
    """An LSTM, and trees whose every split reads the feature `gap`, which the LSTM does not read."""
    made = {kind: artifact.load(save_small_artifact(folder / kind / "1", kind)) for kind in ("lstm", "trees")}
    names = made["lstm"].artifact.pipeline.features.features.names
    trees = made["trees"].artifact
    columns = torch.full_like(trees.weights["columns"], names.index("gap"))
    made["trees"] = replace(made["trees"], artifact=replace(trees, weights={**trees.weights, "columns": columns}))
    return made

"""The artifact: a folder that carries everything a forecast needs, and that proves it arrived whole.

    manifest.json            what the model is; size and SHA-256 of every other file
    manifest.sha256          the manifest's own digest, in the form that `sha256sum --check` reads
    weights.safetensors      the network's parameters
    features.json            feature expressions, operator-set version, fitted numbers
    calendar.json            the exchange's sessions
    golden/golden.json       the golden instance: bars, what every stage must make of them, the expected refusals
    golden/arrays.safetensors

An ensemble's folder holds whole artifacts under `members/`, see predictor.artifact.ensemble.

Nothing in it can execute. Loading verifies every digest first, then reads strictly; any doubt is an ArtifactError
that names file and cause, and there is no fallback.
"""

from predictor.artifact.artifact import Artifact, Golden, StoredArtifact
from predictor.artifact.ensemble import (
    COMBINATION,
    EnsembleManifest,
    SharedMemberFacts,
    StoredEnsemble,
    check_fit,
    ensemble_weights_hash,
    inside,
    is_ensemble,
    load_ensemble,
    save_ensemble,
)
from predictor.artifact.folder import (
    AGAIN,
    check_place,
    is_artifact,
    load,
    named,
    packed,
    save,
    unpacked,
    verified_manifest,
    write_folder,
)
from predictor.artifact.manifest import (
    CONTENTS,
    DIGEST,
    FORMAT_VERSION,
    MANIFEST,
    MEMBERS,
    BaselineSpec,
    Conformal,
    Manifest,
    write_manifest,
)

__all__ = [
    "AGAIN",
    "COMBINATION",
    "CONTENTS",
    "DIGEST",
    "FORMAT_VERSION",
    "MANIFEST",
    "MEMBERS",
    "Artifact",
    "BaselineSpec",
    "Conformal",
    "EnsembleManifest",
    "Golden",
    "Manifest",
    "SharedMemberFacts",
    "StoredArtifact",
    "StoredEnsemble",
    "check_fit",
    "check_place",
    "ensemble_weights_hash",
    "inside",
    "is_artifact",
    "is_ensemble",
    "load",
    "load_ensemble",
    "named",
    "packed",
    "save",
    "save_ensemble",
    "unpacked",
    "verified_manifest",
    "write_folder",
    "write_manifest",
]

"""The artifact: a folder that carries everything a forecast needs, and that proves it arrived whole.

    manifest.json            what the model is; size and SHA-256 of every other file
    manifest.sha256          the manifest's own digest, in the form that `sha256sum --check` reads
    weights.safetensors      the network's parameters
    features.json            feature expressions, operator-set version, fitted numbers
    calendar.json            the exchange's sessions
    golden/golden.json       the golden instance: bars, what every stage must make of them, the expected refusals
    golden/arrays.safetensors

Nothing in it can execute. Loading verifies every digest first, then reads strictly; any doubt is an ArtifactError
that names file and cause, and there is no fallback.
"""

from predictor.artifact.folder import is_artifact, load, save
from predictor.artifact.manifest import BaselineSpec, Conformal, Manifest, write_manifest
from predictor.artifact.names import CONTENTS, DIGEST, FORMAT_VERSION, MANIFEST
from predictor.artifact.parts import Artifact, Golden, Stored

__all__ = [
    "CONTENTS",
    "DIGEST",
    "FORMAT_VERSION",
    "MANIFEST",
    "Artifact",
    "BaselineSpec",
    "Conformal",
    "Golden",
    "Manifest",
    "Stored",
    "is_artifact",
    "load",
    "save",
    "write_manifest",
]

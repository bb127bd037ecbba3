"""The artifact: a folder with everything that a forecast needs, protected by digests.

    manifest.json            definition of the model; size and SHA-256 of every other file
    manifest.sha256          digest of the manifest, in the format of `sha256sum --check`
    weights.safetensors      the network's parameters
    features.json            feature expressions, operator-set version, fitted numbers
    calendar.json            the exchange's sessions
    golden/golden.json       the golden instance: bars, expected results of every stage, expected errors
    golden/arrays.safetensors

An ensemble's folder holds complete artifacts under `members/`, see predictor.artifact.ensemble.

No file can execute code. Loading first verifies every digest, then parses strictly. Every problem is an ArtifactError
with file and cause; there is no fallback.
"""

from predictor.artifact.artifact import Artifact, Golden, StoredArtifact
from predictor.artifact.ensemble import (
    CommonSettings,
    EnsembleManifest,
    StoredEnsemble,
    check_compatible,
    is_ensemble,
    load_ensemble,
    prefix_error_path,
    save_ensemble,
)
from predictor.artifact.folder import (
    REPLACE_ADVICE,
    check_new_folder,
    find_next_version,
    is_artifact,
    load,
    name_folder_in_errors,
    pack_artifact,
    read_verified_manifest,
    save,
    unpack_artifact,
    write_folder,
)
from predictor.artifact.manifest import (
    CONTENTS,
    DIGEST,
    MANIFEST,
    MEMBERS,
    BaselineSpec,
    Conformal,
    Manifest,
    encode_manifest,
)

__all__ = [
    "CONTENTS",
    "DIGEST",
    "MANIFEST",
    "MEMBERS",
    "REPLACE_ADVICE",
    "Artifact",
    "BaselineSpec",
    "CommonSettings",
    "Conformal",
    "EnsembleManifest",
    "Golden",
    "Manifest",
    "StoredArtifact",
    "StoredEnsemble",
    "check_compatible",
    "check_new_folder",
    "encode_manifest",
    "find_next_version",
    "is_artifact",
    "is_ensemble",
    "load",
    "load_ensemble",
    "name_folder_in_errors",
    "pack_artifact",
    "prefix_error_path",
    "read_verified_manifest",
    "save",
    "save_ensemble",
    "unpack_artifact",
    "write_folder",
]

"""Writing and reading an artifact's folder: whole or not at all, and verified before anything in it is used."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from predictor import canonical
from predictor.artifact.files import (
    check_absent,
    check_format,
    check_no_strangers,
    listed_files,
    listing,
    sha256,
    verified_manifest,
    with_manifest,
    write_folder,
)
from predictor.artifact.manifest import Manifest, read_manifest, write_manifest
from predictor.artifact.names import (
    CALENDAR,
    CONTENTS,
    DIGEST,
    FEATURES,
    FORMAT,
    FORMAT_VERSION,
    GOLDEN_ARRAYS,
    GOLDEN_TEXT,
    MANIFEST,
    WEIGHTS,
)
from predictor.artifact.parts import Artifact, Golden, Stored
from predictor.artifact.tensors import read_arrays, read_tensors, write_arrays, write_tensors
from predictor.canonical import Json, Record
from predictor.errors import ArtifactError, ConfigurationError
from predictor.features import FittedFeatures
from predictor.sessions import SessionCalendar
from predictor.windows import Pipeline


class Verified(NamedTuple):
    """Bytes whose digests are right."""

    text: bytes
    """The manifest."""
    version: int
    """Of its format."""
    record: Record
    """The same, to be read on."""
    files: dict[str, bytes]
    """Every other file by name."""


def save(folder: Path, artifact: Artifact, golden: Golden) -> None:
    """Write the artifact whole or not at all: into a new folder, flushed to disk, then renamed.

    Raises:
        ConfigurationError: something stands at `folder` already.
    """
    check_absent(folder)  # before the work, not after it
    files = _contents(artifact, golden)
    write_folder(folder, with_manifest(_manifest_json(artifact, files), files))


def load(folder: Path) -> Stored:
    """Read and verify an artifact.

    Raises:
        ArtifactError: a file is missing, foreign, changed, cut, too large or of a newer format; or a value in it
            is not what it must be.
    """
    text, version, record, files = verified(folder)
    manifest = read_manifest(record, version)
    pipeline = _pipeline(manifest, files)
    _check_facts(record, pipeline)
    record.end()
    return Stored(
        artifact=Artifact(manifest=manifest, pipeline=pipeline, weights=read_tensors(files[WEIGHTS], WEIGHTS)),
        golden=read_golden(files),
        weights_hash=sha256(files[WEIGHTS]),
        manifest_hash=sha256(text),
    )


def is_artifact(folder: Path) -> bool:
    """Whether the folder claims to be an artifact; `load` finds out whether it is a whole one."""
    return (folder / MANIFEST).is_file()


def verified(folder: Path) -> Verified:
    """The files of an artifact, before anything in them is read.

    Raises:
        ArtifactError: a file is missing, foreign, changed, cut, too large or of a newer format.
    """
    text = verified_manifest(folder)
    record = Record.from_bytes(text, MANIFEST)
    version = check_format(record, FORMAT)
    check_no_strangers(folder, (MANIFEST, DIGEST, *CONTENTS))
    return Verified(text, version, record, listed_files(folder, record, CONTENTS))


def write_golden(golden: Golden) -> dict[str, bytes]:
    """The golden instance's files by name."""
    return {GOLDEN_TEXT: canonical.to_bytes(golden.text), GOLDEN_ARRAYS: write_arrays(golden.arrays)}


def read_golden(files: Mapping[str, bytes]) -> Golden:
    """The golden instance from its files.

    Raises:
        ArtifactError: one of them is not what it must be.
    """
    return Golden(
        text=_object(files[GOLDEN_TEXT], GOLDEN_TEXT), arrays=read_arrays(files[GOLDEN_ARRAYS], GOLDEN_ARRAYS)
    )


# --- writing


def _contents(artifact: Artifact, golden: Golden) -> dict[str, bytes]:
    return {
        WEIGHTS: write_tensors(artifact.weights),
        FEATURES: artifact.pipeline.features.to_json(),
        CALENDAR: artifact.pipeline.calendar.to_json(),
        **write_golden(golden),
    }


def _manifest_json(artifact: Artifact, files: Mapping[str, bytes]) -> Json:
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "files": listing(files),
        **_facts(artifact.pipeline),
        **write_manifest(artifact.manifest),
    }


def _facts(pipeline: Pipeline) -> dict[str, Json]:
    """What the manifest repeats of the files beside it, for readers of the manifest alone."""
    calendar = pipeline.calendar
    return {
        "schema_hash": pipeline.features.schema_hash,
        "calendar": {"name": calendar.name, "first": calendar.first, "last": calendar.last},
    }


# --- reading


def _pipeline(manifest: Manifest, files: Mapping[str, bytes]) -> Pipeline:
    try:
        return Pipeline(
            features=FittedFeatures.from_json(files[FEATURES]),
            target=manifest.target,
            normaliser=manifest.normaliser,
            calendar=SessionCalendar.from_json(files[CALENDAR]),
            encoder_length=manifest.encoder_length,
            minimum=manifest.minimum,
        )
    except ConfigurationError as error:
        raise ArtifactError.of(MANIFEST, error.message) from error


def _check_facts(record: Record, pipeline: Pipeline) -> None:
    for key, fact in _facts(pipeline).items():
        said = record.json(key)
        if said != fact:
            raise record.refusal(key, f"is {said}, but the file that it repeats says {fact}")


def _object(data: bytes, source: str) -> Mapping[str, Json]:
    value = canonical.from_bytes(data, source)
    if not isinstance(value, Mapping):
        raise ArtifactError.of(source, "must be an object")
    return value

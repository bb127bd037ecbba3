"""Writing and reading an artifact's folder: whole or not at all, and verified before anything in it is used."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from predictor import canonical
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

MAX_TENSOR_BYTES = 2 << 30
MAX_TEXT_BYTES = 16 << 20
MAX_DIGEST_BYTES = 1024


def save(folder: Path, artifact: Artifact, golden: Golden) -> None:
    """Write the artifact whole or not at all: into a new folder, flushed to disk, then renamed.

    Raises:
        ConfigurationError: something stands at `folder` already.
    """
    if folder.exists():
        raise ConfigurationError(f"{folder} exists already; an artifact is never overwritten: choose another --out")
    files = _contents(artifact, golden)
    manifest = canonical.to_bytes(_manifest_json(artifact, files))
    files[MANIFEST] = manifest
    files[DIGEST] = f"{_sha256(manifest)}  {MANIFEST}\n".encode()
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write_all(draft, files)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # after the rename there is none
    _flush_folder(folder.parent)


def load(folder: Path) -> Stored:
    """Read and verify an artifact.

    Raises:
        ArtifactError: a file is missing, foreign, changed, cut, too large or of a newer format; or a value in it
            is not what it must be.
    """
    files, record = _verified_files(folder)
    manifest = read_manifest(record)
    pipeline = _pipeline(manifest, files)
    _check_facts(record, pipeline)
    record.end()
    return Stored(
        artifact=Artifact(manifest=manifest, pipeline=pipeline, weights=read_tensors(files[WEIGHTS], WEIGHTS)),
        golden=Golden(
            text=_object(files[GOLDEN_TEXT], GOLDEN_TEXT), arrays=read_arrays(files[GOLDEN_ARRAYS], GOLDEN_ARRAYS)
        ),
        weights_hash=_sha256(files[WEIGHTS]),
    )


def is_artifact(folder: Path) -> bool:
    """Whether the folder claims to be an artifact; `load` finds out whether it is a whole one."""
    return (folder / MANIFEST).is_file()


# --- writing


def _contents(artifact: Artifact, golden: Golden) -> dict[str, bytes]:
    return {
        WEIGHTS: write_tensors(artifact.weights),
        FEATURES: artifact.pipeline.features.to_json(),
        CALENDAR: artifact.pipeline.calendar.to_json(),
        GOLDEN_TEXT: canonical.to_bytes(golden.text),
        GOLDEN_ARRAYS: write_arrays(golden.arrays),
    }


def _manifest_json(artifact: Artifact, files: Mapping[str, bytes]) -> Json:
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "files": {name: {"bytes": len(data), "sha256": _sha256(data)} for name, data in files.items()},
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


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        path.chmod(0o644)
    for inner in {(folder / name).parent for name in files}:
        inner.chmod(0o755)
        _flush_folder(inner)


def _flush_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut, where the system offers that for folders."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- reading


def _verified_files(folder: Path) -> tuple[dict[str, bytes], Record]:
    if not folder.is_dir():
        raise ArtifactError(f"{folder} is no folder, so no artifact")
    raw = _read(folder, MANIFEST, MAX_TEXT_BYTES)
    _check_manifest_digest(raw, _read(folder, DIGEST, MAX_DIGEST_BYTES))
    record = Record(canonical.from_bytes(raw, MANIFEST), MANIFEST)
    _check_format(record)
    listed = record.record("files")
    if set(listed.keys()) != set(CONTENTS):
        raise ArtifactError.of(MANIFEST, f"lists files {list(listed.keys())}, expected {sorted(CONTENTS)}")
    _check_no_strangers(folder)
    files = {name: _read_verified(folder, name, listed.record(name)) for name in CONTENTS}
    return files, record


def _pipeline(manifest: Manifest, files: Mapping[str, bytes]) -> Pipeline:
    try:
        return Pipeline(
            features=FittedFeatures.from_json(files[FEATURES]),
            target=manifest.target,
            normaliser=manifest.normaliser,
            calendar=SessionCalendar.from_json(files[CALENDAR]),
            encoder_length=manifest.encoder_length,
        )
    except ConfigurationError as error:
        raise ArtifactError.of(MANIFEST, error.message) from error


def _check_facts(record: Record, pipeline: Pipeline) -> None:
    for key, fact in _facts(pipeline).items():
        said = record.json(key)
        if said != fact:
            raise record.refusal(key, f"is {said}, but the file that it repeats says {fact}")


def _check_manifest_digest(manifest: bytes, digest_file: bytes) -> None:
    expected = f"{_sha256(manifest)}  {MANIFEST}\n".encode()
    if digest_file != expected:
        raise ArtifactError.of(MANIFEST, f"its SHA-256 is not the one in {DIGEST}; the artifact was changed or damaged")


def _check_format(record: Record) -> None:
    name, version = record.text("format"), record.integer("format_version")
    if name != FORMAT:
        raise ArtifactError.of(MANIFEST, f"format is {name!r}, expected {FORMAT!r}")
    if version != FORMAT_VERSION:
        raise ArtifactError.of(
            MANIFEST,
            f"format version is {version}, this program reads {FORMAT_VERSION}; "
            "update quantra, or train the model again",
        )


def _check_no_strangers(folder: Path) -> None:
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    own = {MANIFEST, DIGEST, *CONTENTS}
    strangers = sorted(found - own - {Path(name).parent.as_posix() for name in own})
    if strangers:
        raise ArtifactError.of(strangers[0], "does not belong to the artifact")


def _read_verified(folder: Path, name: str, entry: Record) -> bytes:
    size, digest = entry.integer("bytes"), entry.text("sha256")
    entry.end()
    data = _read(folder, name, MAX_TEXT_BYTES if name.endswith(".json") else MAX_TENSOR_BYTES)
    if len(data) != size:
        raise ArtifactError.of(name, f"has {len(data)} bytes, the manifest says {size}; the file was cut or changed")
    if _sha256(data) != digest:
        raise ArtifactError.of(name, "its SHA-256 is not the manifest's; the file was changed or damaged")
    return data


def _read(folder: Path, name: str, limit: int) -> bytes:
    path = folder / name
    if path.is_symlink():
        raise ArtifactError.of(name, "is a link; an artifact holds its files itself")
    if not path.is_file():
        raise ArtifactError.of(name, "the file is missing")
    try:
        if path.stat().st_size > limit:
            raise ArtifactError.of(name, f"is larger than {limit} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError.of(name, f"cannot be read: {error.strerror}") from error


def _object(data: bytes, source: str) -> Mapping[str, Json]:
    value = canonical.from_bytes(data, source)
    if not isinstance(value, Mapping):
        raise ArtifactError.of(source, "must be an object")
    return value


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

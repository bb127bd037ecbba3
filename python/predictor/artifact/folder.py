"""Atomic writing and verified reading of an artifact's folder."""

import hashlib
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from predictor import canonical
from predictor.artifact.artifact import (
    Artifact,
    Golden,
    StoredArtifact,
    read_arrays,
    read_tensors,
    write_arrays,
    write_tensors,
)
from predictor.artifact.manifest import (
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
    Manifest,
    decode_manifest,
    encode_manifest,
)
from predictor.canonical import Json, Record
from predictor.draft_folder import publish_folder
from predictor.errors import ArtifactError, ConfigurationError
from predictor.features import FittedFeatures
from predictor.replacement import check_folder
from predictor.sessions import SessionCalendar
from predictor.windows import Pipeline

MAX_TENSOR_BYTES = 2 << 30

MAX_TEXT_BYTES = 16 << 20

MAX_DIGEST_BYTES = 1024

_MAX_SUGGESTED: Final = 3

REPLACE_ADVICE = "copy the artifact again from where it was trained, or train it again"
"""Advice for incomplete or damaged artifacts, which cannot be repaired."""


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files atomically, readable for all users.

    Args:
        folder: new folder.
        files: contents by path relative to the folder, with `/` as separator.

    Raises:
        ConfigurationError: `folder` exists already.
    """
    check_absent(folder)
    with publish_folder(folder) as draft:
        for name, data in files.items():
            path = draft / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.parent.chmod(0o755)
            path.write_bytes(data)
            path.chmod(0o644)


def check_new_folder(folder: Path) -> None:
    """Check before a training run that its artifact's folder can be written.

    Raises:
        ConfigurationError: `folder` exists already, or its parent is not writable.
    """
    check_absent(folder)
    check_folder(folder)


def check_absent(folder: Path) -> None:
    """Raise ConfigurationError if `folder` exists already."""
    if folder.exists():
        is_version = folder.name.isdecimal()
        advice = f"use --out {find_next_version(folder.parent)}" if is_version else "choose another --out"
        raise ConfigurationError(f"{folder} exists already; an artifact is never overwritten: {advice}")


def find_next_version(model: Path) -> Path:
    """The folder of the next version in the folder of a model, which need not exist."""
    entries = model.iterdir() if model.is_dir() else ()
    return model / str(1 + max((int(path.name) for path in entries if path.name.isdecimal()), default=0))


def add_manifest(manifest: Json, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Add the manifest and its digest to the files."""
    text = canonical.to_bytes(manifest)
    return {**files, MANIFEST: text, DIGEST: encode_digest(text)}


def list_entries(files: Mapping[str, bytes]) -> dict[str, Json]:
    """Size and SHA-256 of each file, for the manifest."""
    return {name: {"bytes": len(data), "sha256": sha256(data)} for name, data in files.items()}


def encode_digest(manifest: bytes) -> bytes:
    """Content of the digest file, in the format of `sha256sum --check`."""
    return f"{sha256(manifest)}  {MANIFEST}\n".encode()


def sha256(data: bytes) -> str:
    """The digest in hex."""
    return hashlib.sha256(data).hexdigest()


def read_verified_manifest(folder: Path) -> bytes:
    """Read the manifest and verify its digest.

    Raises:
        ArtifactError: the folder, the manifest or its digest is missing, or the digest does not match.
    """
    if not folder.is_dir():
        raise ArtifactError(f"the folder is missing; {REPLACE_ADVICE}")
    manifest = read(folder, MANIFEST, MAX_TEXT_BYTES)
    if read(folder, DIGEST, MAX_DIGEST_BYTES) != encode_digest(manifest):
        raise ArtifactError.of(
            MANIFEST, f"its SHA-256 is not the one in {DIGEST}; the artifact was changed or damaged: {REPLACE_ADVICE}"
        )
    return manifest


def check_format(record: Record, expected: str) -> None:
    """Check the format and its version in a manifest.

    Raises:
        ArtifactError: the format differs, or this program does not support its version.
    """
    name, version = record.text("format"), record.integer("format_version")
    if name != expected:
        raise ArtifactError.of(MANIFEST, f"format is {name!r}, expected {expected!r}")
    if version != FORMAT_VERSION:
        raise ArtifactError.of(
            MANIFEST,
            f"format version is {version}, this program reads {FORMAT_VERSION}; "
            "update quantra, or train the model again",
        )


def read_listed_files(folder: Path, record: Record, contents: Collection[str]) -> dict[str, bytes]:
    """Read the files in the manifest and verify their sizes and SHA-256.

    Raises:
        ArtifactError: the list differs from `contents`, or a file is missing, a link, too large, truncated or changed.
    """
    listed = record.record("files")
    if set(listed.keys()) != set(contents):
        raise ArtifactError.of(MANIFEST, f"lists files {list(listed.keys())}, expected {sorted(contents)}")
    return {name: _read_verified(folder, name, listed.record(name)) for name in contents}


def check_no_other_files(folder: Path, files: Collection[str], *, separate_folders: Collection[str] = ()) -> None:
    """Raise ArtifactError if the folder contains anything besides its files and their folders.

    Args:
        folder: folder to check.
        files: paths of its files.
        separate_folders: folders that are checked separately.
    """
    listed = {*files, *separate_folders}
    folders = {parent.as_posix() for name in listed for parent in Path(name).parents}
    paths = (p.relative_to(folder) for p in folder.rglob("*"))
    present = {p.as_posix() for p in paths if not any(q.as_posix() in separate_folders for q in p.parents)}
    unknown = sorted(present - listed - folders)
    if unknown:
        raise ArtifactError.of(unknown[0], "does not belong to the artifact")


def read(folder: Path, name: str, limit: int) -> bytes:
    """Read a file of the folder.

    Raises:
        ArtifactError: the file is missing, larger than `limit` bytes or not readable, or it or its folder is a link.
    """
    path = folder / name
    for part in (Path(name), *Path(name).parents[:-1]):
        if (folder / part).is_symlink():
            raise ArtifactError.of(part.as_posix(), "is a link; an artifact holds its files, not links to them")
    if not path.is_file():
        raise ArtifactError.of(name, f"the file is missing; {REPLACE_ADVICE}")
    try:
        if path.stat().st_size > limit:
            raise ArtifactError.of(name, f"is larger than {limit} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError.of(name, f"cannot be read: {error.strerror}") from error


def _read_verified(folder: Path, name: str, entry: Record) -> bytes:
    size, digest = entry.integer("bytes"), entry.text("sha256")
    entry.end()
    data = read(folder, name, MAX_TEXT_BYTES if name.endswith(".json") else MAX_TENSOR_BYTES)
    if len(data) != size:
        raise ArtifactError.of(
            name,
            f"has {len(data)} bytes, the manifest says {size}; the file was truncated or changed: {REPLACE_ADVICE}",
        )
    if sha256(data) != digest:
        raise ArtifactError.of(
            name, f"its SHA-256 is not the manifest's; the file was changed or damaged: {REPLACE_ADVICE}"
        )
    return data


class ArtifactFiles(NamedTuple):
    """Files with valid digests."""

    text: bytes
    """The manifest."""
    record: Record
    """The manifest, for further reading."""
    files: dict[str, bytes]
    """All other files by name."""


def save(folder: Path, artifact: Artifact, golden: Golden) -> None:
    """Write the artifact atomically.

    Raises:
        ConfigurationError: `folder` exists already.
    """
    check_absent(folder)  # fail before the work
    write_folder(folder, pack_artifact(artifact, golden))


def pack_artifact(artifact: Artifact, golden: Golden) -> dict[str, bytes]:
    """The files of an artifact's folder by name, in memory; `write_folder` writes them."""
    files = {
        WEIGHTS: write_tensors(artifact.weights),
        FEATURES: artifact.pipeline.features.to_json(),
        CALENDAR: artifact.pipeline.calendar.to_json(),
        **encode_golden(golden),
    }
    manifest: Json = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "files": list_entries(files),
        **_list_repeated_facts(artifact.pipeline),
        **encode_manifest(artifact.manifest),
    }
    return add_manifest(manifest, files)


def unpack_artifact(files: Mapping[str, bytes]) -> StoredArtifact:
    """Read files from `pack_artifact` as `load` reads a folder, without comparing digests.

    Raises:
        ArtifactError: a value in a file is invalid.
    """
    text = files[MANIFEST]
    record = Record.from_bytes(text, MANIFEST)
    check_format(record, FORMAT)
    record.json("files")  # not needed: the contents are in `files`
    return _parse_artifact(ArtifactFiles(text, record, dict(files)))


def load(folder: Path) -> StoredArtifact:
    """Read and verify an artifact.

    Raises:
        ArtifactError: a file is missing, unexpected, changed, truncated, too large or of a newer format, or a value
            in it is invalid.
    """
    return _parse_artifact(read_verified_files(folder))


def _parse_artifact(verified_files: ArtifactFiles) -> StoredArtifact:
    text, record, files = verified_files
    manifest = decode_manifest(record)
    pipeline = _read_pipeline(manifest, files)
    for key, fact in _list_repeated_facts(pipeline).items():
        stated = record.json(key)
        if stated != fact:
            raise record.make_error(key, f"is {stated}, but its file says {fact}")
    record.end()
    return StoredArtifact(
        artifact=Artifact(manifest=manifest, pipeline=pipeline, weights=read_tensors(files[WEIGHTS], WEIGHTS)),
        golden=decode_golden(files),
        weights_hash=sha256(files[WEIGHTS]),
        manifest_hash=sha256(text),
    )


def is_artifact(folder: Path) -> bool:
    """Whether the folder has a manifest; `load` verifies the artifact."""
    return (folder / MANIFEST).is_file()


def read_verified_files(folder: Path) -> ArtifactFiles:
    """Read and verify the files of an artifact without parsing them.

    Raises:
        ArtifactError: a file is missing, unexpected, changed, truncated, too large or of a newer format.
    """
    text = read_verified_manifest(folder)
    record = Record.from_bytes(text, MANIFEST)
    check_format(record, FORMAT)
    check_no_other_files(folder, (MANIFEST, DIGEST, *CONTENTS))
    return ArtifactFiles(text, record, read_listed_files(folder, record, CONTENTS))


def encode_golden(golden: Golden) -> dict[str, bytes]:
    """Files of the golden instance by name."""
    return {GOLDEN_TEXT: canonical.to_bytes(golden.text), GOLDEN_ARRAYS: write_arrays(golden.arrays)}


def decode_golden(files: Mapping[str, bytes]) -> Golden:
    """Read the golden instance from its files.

    Raises:
        ArtifactError: a file is invalid.
    """
    text = canonical.from_bytes(files[GOLDEN_TEXT], GOLDEN_TEXT)
    if not isinstance(text, Mapping):
        raise ArtifactError.of(GOLDEN_TEXT, "must be an object")
    return Golden(text=text, arrays=read_arrays(files[GOLDEN_ARRAYS], GOLDEN_ARRAYS))


def _list_repeated_facts(pipeline: Pipeline) -> dict[str, Json]:
    """Facts of other files that the manifest repeats, for readers of the manifest only."""
    calendar = pipeline.calendar
    return {
        "schema_hash": pipeline.features.schema_hash,
        "calendar": {"name": calendar.name, "first": calendar.first, "last": calendar.last},
    }


def _read_pipeline(manifest: Manifest, files: Mapping[str, bytes]) -> Pipeline:
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


@contextmanager
def name_folder_in_errors(folder: Path) -> Generator[None]:
    """Prefix errors in the block with the artifact's path, for paths that the user wrote.

    A server does not use this, because its messages name models, never paths.

    Raises:
        ArtifactError: the folder is not an artifact; or an error of the block, with the path.
    """
    if not folder.is_dir():
        raise ArtifactError(f"{folder} is not a folder, so it is not an artifact{_suggest_artifacts(folder.parent)}")
    if not is_artifact(folder):
        advice = _suggest_artifacts(folder) or f"; {REPLACE_ADVICE}"
        problem = f"{folder} has no {MANIFEST}, so it is not an artifact{advice}"
        raise ArtifactError(problem, metadata={"file": MANIFEST})
    try:
        yield
    except ArtifactError as error:
        joint = "/" if "file" in error.metadata else ": "
        raise ArtifactError(f"{folder}{joint}{error.message}", metadata=error.metadata) from error


def _suggest_artifacts(folder: Path) -> str:
    """Suggest artifacts in the folder or in its subfolders, newest first; empty if there are none."""
    versions = _list_versions(folder) or [
        version for model_folder in _list_folders(folder) for version in _list_versions(model_folder)[:1]
    ]
    suggestions = [str(version) for version in versions[:_MAX_SUGGESTED]]
    return f"; did you mean {' or '.join(suggestions)}?" if suggestions else ""


def _list_versions(model_folder: Path) -> list[Path]:
    """Artifacts `1`, `2` and so on in a model's folder, newest first."""
    numbered = [path for path in _list_folders(model_folder) if path.name.isdecimal() and is_artifact(path)]
    return sorted(numbered, key=lambda path: int(path.name), reverse=True)


def _list_folders(folder: Path) -> list[Path]:
    """Subfolders by name; empty if the folder is not readable."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []

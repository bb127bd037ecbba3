"""One checkpoint: what goes in, how it is written, and how it is read back, every file of it verified first."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from trainers.loop.checkpoint.compatibility import Json
from trainers.loop.checkpoint.folder import META, STATE, SUFFIX, DamagedError, reason
from trainers.loop.checkpoint.tensors import (
    FileDigest,
    check_group,
    check_state,
    group_bytes,
    new_file,
    read_group,
    read_state,
    state_bytes,
    write_group,
    write_state,
)

FORMAT = 1
META_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A training between two windows.

    Attributes:
        tensors: Tensors by name, in groups such as `modules` or `average`; a file per group, none for an empty one.
        state: Everything else, of optimizers, schedulers, scalers and generators: tensors and plain Python values in
            any nesting.
        epoch: The epoch, counted from 0.
        window: Windows of that epoch that are done.
        windows: All windows since the start of the training.
        best: Whether the newest recorded value is the best one.
    """

    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]
    epoch: int
    window: int
    windows: int
    best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """A checkpoint that was written.

    Attributes:
        folder: Where it stands.
        bytes: Its size.
        seconds: Time it took, old checkpoints' removal included.
    """

    folder: Path
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCheckpoint:
    """A checkpoint that was read; all tensors are on the CPU and share no memory with its files.

    Attributes:
        tensors: Tensors by name, in their groups; a group that was empty is absent.
        state: Everything else, as it was saved.
        settings: What identifies the training.
        epoch: The epoch, counted from 0.
        window: Windows of that epoch that are done.
        windows: All windows since the start of the training.
        folder: Where it stands.
        damaged: Newer checkpoints that could not be used, each with the reason.
    """

    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]
    settings: Mapping[str, Json]
    epoch: int
    window: int
    windows: int
    folder: Path
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMetadata:
    """The content of `meta.json`.

    Attributes:
        epoch: The epoch, counted from 0.
        window: Windows of that epoch that are done.
        windows: All windows since the start of the training.
        best: Whether the newest recorded value was the best one.
        settings: What identifies the training.
        torch: The version of torch that wrote it.
        files: All files but this one, by name.
    """

    epoch: int
    window: int
    windows: int
    best: bool
    settings: Mapping[str, Json]
    torch: str
    files: Mapping[str, FileDigest]

    def text(self) -> bytes:
        """The file: JSON with a digest of itself, so that a changed digit is noticed."""
        return _sealed({"format": FORMAT, **asdict(self)})

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Read what `text()` wrote.

        Raises:
            DamagedError: A single byte is different, or another version wrote it.
        """
        content = _unsealed(text)
        if content.get("format") != FORMAT:
            raise DamagedError(f"meta.json is of format {content.get('format')}; this version reads {FORMAT}")
        try:
            return cls(
                epoch=int(content["epoch"]),
                window=int(content["window"]),
                windows=int(content["windows"]),
                best=bool(content["best"]),
                settings=dict(content["settings"]),
                torch=str(content["torch"]),
                files={name: FileDigest(**mark) for name, mark in content["files"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedError(f"meta.json lacks something or has something else in its place: {error}") from error


def check_snapshot(snapshot: Snapshot) -> None:
    """Check that it can be written and read back.

    Raises:
        CheckpointError: Something in it cannot; the message names it.
    """
    for group, tensors in snapshot.tensors.items():
        check_group(group, tensors)
    check_state(snapshot.state)


def snapshot_bytes(snapshot: Snapshot) -> int:
    """About what a checkpoint takes on the disk, and not less."""
    return META_BYTES + state_bytes(snapshot.state) + sum(map(group_bytes, snapshot.tensors.values()))


def write_checkpoint(folder: Path, snapshot: Snapshot, settings: Mapping[str, Json]) -> int:
    """Write all files to the disk, `meta.json` last; returns their bytes.

    Raises:
        OSError: One cannot be written.
    """
    files: dict[str, FileDigest] = {}
    for group, tensors in snapshot.tensors.items():
        if tensors:
            with new_file(folder / f"{group}{SUFFIX}") as sink:
                write_group(sink, tensors)
            files[f"{group}{SUFFIX}"] = sink.mark()
    with new_file(folder / STATE) as sink:
        write_state(sink, snapshot.state)
    files[STATE] = sink.mark()
    with new_file(folder / META) as sink:
        meta = CheckpointMetadata(
            epoch=snapshot.epoch,
            window=snapshot.window,
            windows=snapshot.windows,
            best=snapshot.best,
            settings=settings,
            torch=str(torch.__version__),
            files=files,
        )
        sink.write(meta.text())
    return sum(mark.bytes for mark in (*files.values(), sink.mark()))


def read_checkpoint(folder: Path) -> LoadedCheckpoint:
    """Verify and read a checkpoint.

    Raises:
        DamagedError: It is not byte by byte what was written; the message says where.
    """
    try:
        meta = read_meta(folder)
        _verify(folder, meta.files)
        groups = [name for name in meta.files if name.endswith(SUFFIX)]
        return LoadedCheckpoint(
            tensors={name.removesuffix(SUFFIX): read_group(folder / name) for name in groups},
            state=read_state(folder / STATE),
            settings=meta.settings,
            epoch=meta.epoch,
            window=meta.window,
            windows=meta.windows,
            folder=folder,
        )
    except OSError as error:
        raise DamagedError(f"it cannot be read: {reason(error)}") from error


def read_tensors(folder: Path, group: str) -> dict[str, Tensor] | None:
    """Verify all of a checkpoint, and read one group of its tensors of any shape; None without such a group.

    Raises:
        DamagedError: It is not byte by byte what was written; the message says where.
    """
    try:
        meta = read_meta(folder)
        _verify(folder, meta.files)
        return read_group(folder / f"{group}{SUFFIX}") if f"{group}{SUFFIX}" in meta.files else None
    except OSError as error:
        raise DamagedError(f"it cannot be read: {reason(error)}") from error


def read_meta(folder: Path) -> CheckpointMetadata:
    """What a checkpoint says of itself.

    Raises:
        DamagedError: `meta.json` is missing or not what was written.
        OSError: It cannot be read.
    """
    try:
        return CheckpointMetadata.parse((folder / META).read_bytes())
    except FileNotFoundError as error:
        raise DamagedError(f"{META} is missing") from error


def _verify(folder: Path, files: Mapping[str, FileDigest]) -> None:
    present = {path.name for path in folder.iterdir()}
    for name in sorted({STATE, META, *files} - present):
        raise DamagedError(f"{name} is missing")
    for name in sorted(present - {META, *files}):
        raise DamagedError(f"{name} does not belong to it")
    for name, mark in files.items():
        _verify_file(folder / name, mark)


def _verify_file(path: Path, mark: FileDigest) -> None:
    size = path.stat().st_size
    if size != mark.bytes:
        raise DamagedError(f"{path.name} has {size} bytes and should have {mark.bytes}")
    with path.open("rb") as file:
        if file_digest(file, "sha256").hexdigest() != mark.sha256:
            raise DamagedError(f"{path.name} does not match its digest")


def _sealed(content: Mapping[str, object]) -> bytes:
    digest = sha256(_rendered(content)).hexdigest()
    return _rendered({"content": content, "sha256": digest})


def _unsealed(text: bytes) -> dict[str, Any]:
    """Writing it again must give the same bytes: that is stricter than any reading of JSON."""
    try:
        sealed: Any = json.loads(text)
        content: dict[str, Any] = sealed["content"]
        same = _sealed(content) == text
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedError(f"meta.json is not the JSON that was written: {error}") from error
    if not same or not isinstance(content, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  it was just read
        raise DamagedError("meta.json does not match its own digest")
    return content


def _rendered(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False).encode()

"""Reading one checkpoint, every file of it verified first."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

from torch import Tensor

from trainers.loop.checkpoint.damage import DamagedError
from trainers.loop.checkpoint.meta import Meta
from trainers.loop.checkpoint.names import META, STATE, SUFFIX
from trainers.loop.checkpoint.sink import Mark
from trainers.loop.checkpoint.space import reason
from trainers.loop.checkpoint.state import read_state
from trainers.loop.checkpoint.tensors import read_group


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """All that a checkpoint holds."""

    meta: Meta
    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]


def read_checkpoint(folder: Path) -> Content:
    """Verify and read a checkpoint.

    Raises:
        DamagedError: It is not byte by byte what was written; the message says where.
    """
    try:
        meta = read_meta(folder)
        _verify(folder, meta.files)
        return Content(
            meta=meta,
            tensors={
                name.removesuffix(SUFFIX): read_group(folder / name) for name in meta.files if name.endswith(SUFFIX)
            },
            state=read_state(folder / STATE),
        )
    except OSError as error:
        raise DamagedError(f"it cannot be read: {reason(error)}") from error


def read_tensors(folder: Path, group: str) -> dict[str, Tensor] | None:
    """Verify all of a checkpoint, and read one group of its tensors alone; None if it has no such group.

    Raises:
        DamagedError: It is not byte by byte what was written; the message says where.
    """
    try:
        meta = read_meta(folder)
        _verify(folder, meta.files)
        return read_group(folder / f"{group}{SUFFIX}") if f"{group}{SUFFIX}" in meta.files else None
    except OSError as error:
        raise DamagedError(f"it cannot be read: {reason(error)}") from error


def read_meta(folder: Path) -> Meta:
    """What a checkpoint says of itself.

    Raises:
        DamagedError: `meta.json` is missing or not what was written.
        OSError: It cannot be read.
    """
    try:
        return Meta.parse((folder / META).read_bytes())
    except FileNotFoundError as error:
        raise DamagedError(f"{META} is missing") from error


def _verify(folder: Path, files: Mapping[str, Mark]) -> None:
    present = {path.name for path in folder.iterdir()}
    for name in sorted({STATE, META, *files} - present):
        raise DamagedError(f"{name} is missing")
    for name in sorted(present - {META, *files}):
        raise DamagedError(f"{name} does not belong to it")
    for name, mark in files.items():
        _verify_file(folder / name, mark)


def _verify_file(path: Path, mark: Mark) -> None:
    size = path.stat().st_size
    if size != mark.bytes:
        raise DamagedError(f"{path.name} has {size} bytes and should have {mark.bytes}")
    with path.open("rb") as file:
        if file_digest(file, "sha256").hexdigest() != mark.sha256:
            raise DamagedError(f"{path.name} does not match its digest")

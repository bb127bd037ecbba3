"""Writing one checkpoint into an empty folder."""

from collections.abc import Mapping
from pathlib import Path

import torch

from trainers.loop.checkpoint.meta import Meta
from trainers.loop.checkpoint.names import META, STATE, SUFFIX
from trainers.loop.checkpoint.settings import Json
from trainers.loop.checkpoint.sink import Mark, new_file
from trainers.loop.checkpoint.snapshot import Snapshot
from trainers.loop.checkpoint.state import check_state, state_bytes, write_state
from trainers.loop.checkpoint.tensors import check_group, group_bytes, write_group

META_BYTES = 4096


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
    files: dict[str, Mark] = {}
    for group, tensors in snapshot.tensors.items():
        if tensors:
            with new_file(folder / f"{group}{SUFFIX}") as sink:
                write_group(sink, tensors)
            files[f"{group}{SUFFIX}"] = sink.mark()
    with new_file(folder / STATE) as sink:
        write_state(sink, snapshot.state)
    files[STATE] = sink.mark()
    with new_file(folder / META) as sink:
        sink.write(_meta(snapshot, settings, files).text())
    return sum(mark.bytes for mark in (*files.values(), sink.mark()))


def _meta(snapshot: Snapshot, settings: Mapping[str, Json], files: Mapping[str, Mark]) -> Meta:
    return Meta(
        epoch=snapshot.epoch,
        window=snapshot.window,
        windows=snapshot.windows,
        best=snapshot.best,
        settings=settings,
        torch=str(torch.__version__),
        files=files,
    )

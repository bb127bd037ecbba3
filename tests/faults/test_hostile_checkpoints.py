"""Forged checkpoints with valid digests: resuming never uses far more memory than their files.

`tests/trainers/loop/test_checkpoints.py` tests pickles that would run code.
"""

import io
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pytest
import torch

from trainers.loop import CheckpointError
from trainers.loop.checkpoint.snapshot import CheckpointMetadata, Snapshot
from trainers.loop.checkpoint.store import Checkpoints
from trainers.loop.checkpoint.tensors import MAX_EXPANDED_BYTES, MAX_HEADER_BYTES, FileDigest

STATE, WEIGHTS = "state.pt", "modules.safetensors"
SOUND = Snapshot(
    tensors={"modules": {"weight": torch.ones(3)}},
    state={"moments": torch.ones(3)},
    epoch=0,
    window=1,
    windows=1,
    best=False,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two checkpoints."""
    monkeypatch.setattr(os, "fsync", lambda _handle: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    checkpoints = Checkpoints(tmp_path)
    with checkpoints.open():
        for windows in (1, 2):
            checkpoints.save(replace(SOUND, windows=windows))
    return tmp_path


def forge(folder: Path, name: str, data: bytes) -> None:
    """Replace a file of the newest checkpoint and correct all digests."""
    newest = folder / "window-000000002"
    newest.joinpath(name).write_bytes(data)
    meta = CheckpointMetadata.parse(newest.joinpath("meta.json").read_bytes())
    mark = FileDigest(bytes=len(data), sha256=sha256(data).hexdigest())
    newest.joinpath("meta.json").write_bytes(replace(meta, files={**meta.files, name: mark}).text())


def cause(folder: Path) -> str:
    """Why the newest checkpoint was refused; the previous one is loaded."""
    found = Checkpoints(folder).load()
    assert found is not None
    assert found.windows == 1
    (damaged,) = found.damaged
    return damaged.removeprefix("window-000000002: ")


def archived(state: object) -> bytes:
    """The object as torch saves it."""
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def rezipped(data: bytes, method: int, again: int = 0) -> bytes:
    """The same archive, compressed or not; `again` more directory entries point to its first member."""
    file = io.BytesIO()
    with ZipFile(io.BytesIO(data)) as source, ZipFile(file, "w", method) as target:
        for member in source.infolist():
            target.writestr(member.filename, source.read(member))
        target.filelist.extend([max(target.filelist, key=lambda member: member.file_size)] * again)
    return file.getvalue()


def header(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


def many_entries(count: int) -> bytes:
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return header(json.dumps({str(k): entry for k in range(count)}, separators=(",", ":")).encode())


STATES: Mapping[str, tuple[Callable[[], bytes], str]] = {
    "2^40 elements of one number": (
        lambda: archived({"a": torch.zeros(1).expand(2**40)}),
        "would take 4398.0 GB in full",
    ),
    "many that are large together": (
        lambda: archived({str(k): torch.zeros(1).expand(2**20) for k in range(20)}),
        "would take 83.9 MB in full",
    ),
    "zeros, compressed": (
        lambda: rezipped(archived({"a": torch.zeros(1 << 20)}), ZIP_DEFLATED),
        "is compressed, unlike any checkpoint",
    ),
    "one member many times": (
        lambda: rezipped(archived({"a": torch.zeros(1 << 10)}), ZIP_STORED, again=100),
        "claims to hold more than its own size",
    ),
    "no archive": (lambda: b"PK\x05\x06" + b"\0" * 9, "is not an archive"),
    "a list": (lambda: archived([torch.ones(3)]), "holds a list instead of a state"),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_that_is_more_than_its_file_is_damage(folder: Path, name: str) -> None:
    make, why = STATES[name]
    forge(folder, STATE, make())
    assert cause(folder).startswith(f"{STATE} ")
    assert why in cause(folder)


def test_the_forgers_tools_alone_do_no_damage(folder: Path) -> None:
    forge(folder, STATE, rezipped(archived(dict(SOUND.state)), ZIP_STORED))
    found = Checkpoints(folder).load()
    assert found is not None
    assert found.windows == 2
    assert torch.equal(found.state["moments"], torch.ones(3))


def test_a_state_is_not_read_where_weights_alone_are_wanted(folder: Path) -> None:
    forge(folder, STATE, STATES["2^40 elements of one number"][0]())
    assert torch.equal(Checkpoints(folder).weights("newest")["weight"], torch.ones(3))


@pytest.mark.parametrize("data", [many_entries(60_000), header(b"")[:4] + b"\x01" * 4, (1 << 62).to_bytes(8, "little")])
def test_a_header_larger_than_any_is_damage(folder: Path, data: bytes) -> None:
    forge(folder, WEIGHTS, data)
    assert "its header claims" in cause(folder)


def test_a_small_view_of_one_number_comes_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    with checkpoints.open():
        checkpoints.save(replace(SOUND, state={"moments": torch.ones(1).expand(5)}))
    found = checkpoints.load()
    assert found is not None
    assert torch.equal(found.state["moments"], torch.ones(5))


def test_what_would_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    many = torch.ones(1).expand(MAX_EXPANDED_BYTES // 4 + 1)
    long_names = {f"{k}{'x' * 1000}": torch.ones(1) for k in range(MAX_HEADER_BYTES // 1000)}
    with checkpoints.open():
        with pytest.raises(CheckpointError, match=r"expanded tensors of the state would take 67\.1 MB in full"):
            checkpoints.save(replace(SOUND, state={"moments": many}))
        with pytest.raises(CheckpointError, match=r"names and shapes of the 2097 tensors in 'modules'"):
            checkpoints.save(replace(SOUND, tensors={"modules": long_names}))

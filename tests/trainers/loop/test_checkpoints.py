"""Checkpoints: restored state, retention, damage, full disks, locks and kills."""

import errno
import io
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from predictor.draft_folder import rename
from trainers.loop.checkpoint.snapshot import CheckpointMetadata, LoadedCheckpoint, Snapshot
from trainers.loop.checkpoint.store import Checkpoints
from trainers.loop.checkpoint.tensors import FileDigest, check_state, state_bytes
from trainers.loop.errors import CheckpointError, ResumeMismatchError, SettingsError

HERE = Path(__file__).parent
FILES = ["meta.json", "modules.safetensors", "state.pt"]
NOBODY = 65534
posix = pytest.mark.skipif(os.name != "posix", reason="POSIX only")


def snapshot(windows: int = 1, *, best: bool = False, numbers: int = 10, **state: object) -> Snapshot:
    """A snapshot after so many windows, with `numbers` float32 weights and moments."""
    return Snapshot(
        tensors={"modules": {"net.weight": torch.arange(numbers, dtype=torch.float32) + windows}, "average": {}},
        state={"moments": torch.arange(numbers, dtype=torch.float32) * windows, **state},
        epoch=1,
        window=windows - 1,
        windows=windows,
        best=best,
    )


def save(folder: Path, *snapshots: Snapshot, **settings: Any) -> list[Path]:
    """Save several checkpoints; return their folders."""
    checkpoints = Checkpoints(folder, **settings)
    with checkpoints.open():
        return [checkpoints.save(each)[0] for each in snapshots]


def loaded(folder: Path, **settings: Any) -> LoadedCheckpoint:
    """The newest good checkpoint, which must be there."""
    found = Checkpoints(folder, **settings).load()
    assert found is not None
    return found


def names(folder: Path) -> list[str]:
    """Files in the folder, without its lock."""
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def after_a_round_trip(folder: Path, value: object) -> Any:
    """The value after saving and loading."""
    save(folder, snapshot(value=value))
    return loaded(folder).state["value"]


def assert_same(found: object, expected: object) -> None:
    """Assert equal types and bit-identical values at every level."""
    assert type(found) is type(expected)
    if isinstance(expected, Tensor):
        assert isinstance(found, Tensor)
        assert found.dtype == expected.dtype
        assert torch.equal(found.reshape(-1).view(torch.uint8), expected.reshape(-1).view(torch.uint8))
    elif isinstance(expected, dict):
        assert isinstance(found, dict)
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, list | tuple):
        assert isinstance(found, list | tuple)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert repr(found) == repr(expected)


# --- restored state


def test_everything_comes_back(tmp_path: Path) -> None:
    made = snapshot(7, best=True, text="ä", nested={"list": [1, 2.5, None, (True, b"x")]})
    checkpoints = Checkpoints(tmp_path)
    with checkpoints.open():
        saved, size = checkpoints.save(made)
    found = loaded(tmp_path)
    assert_same(found.tensors, {"modules": made.tensors["modules"]})
    assert_same(found.state, made.state)
    assert (found.epoch, found.window, found.windows, found.damaged) == (1, 6, 7, ())
    assert found.folder == saved == tmp_path / "window-000000007"
    assert size == sum(path.stat().st_size for path in saved.iterdir())
    assert sorted(path.name for path in saved.iterdir()) == FILES


def test_a_folder_may_be_a_text(tmp_path: Path) -> None:
    checkpoints = Checkpoints(f"{tmp_path}/run")
    with checkpoints.open():
        checkpoints.save(snapshot())
    assert checkpoints.folder == tmp_path / "run"
    assert not Checkpoints(tmp_path / "run").is_empty


def test_a_folder_without_checkpoints_holds_none(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "new" / "folder")
    assert checkpoints.load() is None
    with checkpoints.open():
        assert checkpoints.load() is None


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
)
def test_tensors_of_any_type_and_shape_come_back(tmp_path: Path, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    grid = torch.randint(0, 2, (3, 4), generator=generator).to(dtype)
    tensors = {"scalar": grid[0, 0], "empty": grid[:0], "turned": grid.T, "part": grid[1:, 1], "odd": grid[0, :3]}
    save(tmp_path, Snapshot(tensors={"best": tensors}, state={}, epoch=0, window=0, windows=0, best=False))
    found = loaded(tmp_path).tensors["best"]
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == dtype
        assert torch.equal(found[name], tensor)


def test_tensors_that_share_memory_come_back_each_with_its_content(tmp_path: Path) -> None:
    table = nn.Embedding(5, 3)
    tied = {"input": table.weight, "output": table.weight, "row": table.weight[1]}
    save(tmp_path, Snapshot(tensors={"modules": tied}, state={}, epoch=0, window=0, windows=1, best=False))
    found = loaded(tmp_path).tensors["modules"]
    assert all(torch.equal(found[name], tensor) for name, tensor in tied.items())


def test_tensor_files_are_plain_safetensors(tmp_path: Path) -> None:
    made = snapshot()
    (saved,) = save(tmp_path, made)
    found = safetensors.torch.load_file(saved / "modules.safetensors")
    assert_same(found, made.tensors["modules"])


def test_loaded_tensors_survive_the_removal_of_their_checkpoint(tmp_path: Path) -> None:
    (saved,) = save(tmp_path, snapshot(numbers=100_000))
    found = loaded(tmp_path)
    with (saved / "modules.safetensors").open("r+b") as file:
        file.write(b"\xff" * 400_000)
    assert torch.equal(
        found.tensors["modules"]["net.weight"], snapshot(numbers=100_000).tensors["modules"]["net.weight"]
    )


def test_a_sparse_tensor_is_refused_by_name(tmp_path: Path) -> None:
    made = Snapshot(
        tensors={"modules": {"graph": torch.eye(2).to_sparse()}}, state={}, epoch=0, window=0, windows=1, best=False
    )
    with pytest.raises(CheckpointError, match=r"'graph' in 'modules' is torch.float32, torch.sparse_coo"):
        save(tmp_path, made)
    assert names(tmp_path) == []


# --- states of optimizers, schedulers and generators


def _stepped(schedule: Callable[[Optimizer], LRScheduler], *, fused: bool) -> dict[str, Any]:
    network = nn.Linear(3, 2)
    optimizer = AdamW(network.parameters(), lr=0.1, fused=fused)
    scheduler = schedule(optimizer)
    for _ in range(3):
        network(torch.ones(4, 3)).square().sum().backward()
        optimizer.step()
        scheduler.step()
    return {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}


def _sequence(optimizer: Optimizer) -> LRScheduler:
    parts: list[LRScheduler] = [lr_scheduler.LinearLR(optimizer), lr_scheduler.CosineAnnealingLR(optimizer, 5)]
    return lr_scheduler.SequentialLR(optimizer, parts, milestones=[2])


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    "schedule",
    [
        partial(lr_scheduler.OneCycleLR, max_lr=0.1, total_steps=10),
        partial(lr_scheduler.CosineAnnealingWarmRestarts, T_0=2),
        partial(lr_scheduler.MultiStepLR, milestones=[1, 2]),
        partial(lr_scheduler.LambdaLR, lr_lambda=lambda step: 0.5**step),
        partial(lr_scheduler.CyclicLR, base_lr=0.1, max_lr=0.2, cycle_momentum=False),
        _sequence,
    ],
    ids=["one cycle", "warm restarts", "milestones", "lambda", "cyclic", "sequence"],
)
def test_optimizers_and_schedulers_come_back(
    tmp_path: Path, schedule: Callable[[Optimizer], LRScheduler], *, fused: bool
) -> None:
    torch.manual_seed(0)
    state = _stepped(schedule, fused=fused)
    assert_same(after_a_round_trip(tmp_path, state), state)


def test_a_scheduler_that_watches_a_value_comes_back(tmp_path: Path) -> None:
    scheduler = lr_scheduler.ReduceLROnPlateau(SGD([nn.Parameter(torch.ones(1))], lr=0.1), patience=0)
    for value in (1.0, 2.0):
        scheduler.step(value)
    assert_same(after_a_round_trip(tmp_path, scheduler.state_dict()), scheduler.state_dict())


def test_the_state_of_a_loss_scaler_comes_back(tmp_path: Path) -> None:
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(()))
    assert_same(after_a_round_trip(tmp_path, scaler.state_dict()), scaler.state_dict())


def test_generators_come_back(tmp_path: Path) -> None:
    bits: dict[str, Any] = dict(np.random.default_rng(5).bit_generator.state)
    legacy: dict[str, Any] = dict(np.random.RandomState(3).get_state(legacy=False))
    keys: dict[str, Any] = legacy["state"]
    state = {
        "python": random.Random(1).getstate(),
        "torch": torch.Generator().manual_seed(2).get_state(),
        "numpy": bits,
        "legacy": {**legacy, "state": {"key": keys["key"].tolist(), "pos": keys["pos"]}},
    }
    assert_same(after_a_round_trip(tmp_path, state), state)


class Subclass(Tensor):
    """A tensor subclass that torch.load refuses."""


READABLE: dict[str, object] = {
    "none": None,
    "bool": True,
    "largest int": 2**2039 - 1,
    "smallest int": 1 - 2**2039,
    "infinity": float("inf"),
    "nan": float("nan"),
    "complex": 1j,
    "half a character": "\ud800",
    "bytes": b"\x00\xff",
    "bytearray": bytearray(b""),
    "ordered": OrderedDict(b=1, a=2),
    "counter": Counter("aab"),
    "keys": {(1, "a"): 2, torch.float32: 3, None: 4},
    "set": {1},
    "empty": [(), [], {}, set[int](), ""],
    "dtype": torch.bfloat16,
    "device": torch.device("cuda:1"),
    "size": torch.Size([2, 3]),
    "layout": torch.strided,
    "parameter": nn.Parameter(torch.ones(2)),
}


@pytest.mark.parametrize("name", READABLE)
def test_plain_values_come_back(tmp_path: Path, name: str) -> None:
    assert_same(after_a_round_trip(tmp_path, READABLE[name]), READABLE[name])


def _with_attribute(value: object) -> Tensor:
    tensor = torch.ones(1)
    setattr(tensor, "extra", value)  # noqa: B010  Tensor declares no such attribute
    return tensor


REFUSED: dict[str, tuple[object, str]] = {
    "numpy float": ({"a": [0, np.float64(1)]}, r"state\['x'\]\['a'\]\[1\] is a numpy.float64"),
    "numpy int": ((np.int64(1),), r"state\['x'\]\[0\] is a numpy.int64"),
    "numpy key": ({np.int64(1): 0}, r"the key np.int64\(1\) of state\['x'\] is a numpy.int64"),
    "array": (np.ones(2), r"state\['x'\] is a numpy.ndarray"),
    "function": ({"lr_lambda": torch.relu}, r"state\['x'\]\['lr_lambda'\] is a builtins.builtin_function"),
    "lambda": ([lambda: 0], r"state\['x'\]\[0\] is a builtins.function"),
    "class": (int, r"state\['x'\] is a builtins.type"),
    "default": (defaultdict(list), r"state\['x'\] is a collections.defaultdict"),
    "frozen set": (frozenset([1]), r"state\['x'\] is a builtins.frozenset"),
    "fraction": ({1: Fraction(1, 2)}, r"state\['x'\]\[1\] is a fractions.Fraction"),
    "huge int": (2**2039, r"state\['x'\] is a builtins.int"),
    "no bytes": (b"", r"state\['x'\] is a builtins.bytes"),
    "generator": (torch.Generator(), r"state\['x'\] is a torch.*Generator"),
    "subclass": (torch.ones(1).as_subclass(Subclass), r"state\['x'\] is a .*Subclass"),
    "attribute": (_with_attribute(Fraction(1)), r"state\['x'\].extra is a fractions.Fraction"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_not_be_read_back_is_refused_before_it_is_written(tmp_path: Path, name: str) -> None:
    value, match = REFUSED[name]
    save(tmp_path, snapshot(1))
    with pytest.raises(CheckpointError, match=match):
        save(tmp_path, snapshot(2, x=value))
    assert names(tmp_path) == ["window-000000001"]


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_is_refused_that_torch_would_read_back(name: str) -> None:
    buffer = io.BytesIO()
    with pytest.raises((pickle.PicklingError, pickle.UnpicklingError, AttributeError)):  # noqa: PT012  either may refuse
        torch.save({"x": REFUSED[name][0]}, buffer)
        buffer.seek(0)
        torch.load(buffer, weights_only=True)


def test_a_state_that_contains_itself_is_walked_once() -> None:
    inner: list[object] = []
    inner.append(inner)
    check_state({"inner": inner})


def test_the_size_of_a_state_is_known_before_it_is_written(tmp_path: Path) -> None:
    shared = torch.ones(50_000)
    state = {"views": [shared[:10], shared[10:]], "rng": random.getstate(), "small": [torch.ones(())] * 3}
    torch.save(state, tmp_path / "state.pt")
    real = (tmp_path / "state.pt").stat().st_size
    assert real <= state_bytes(state) <= 1.2 * real


# --- damage


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES: list[Callable[[Path], None]] = [_cut, _flip, _empty, Path.unlink]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_taken(
    tmp_path: Path, damage: Callable[[Path], None], file: str
) -> None:
    *_, newest = save(tmp_path, snapshot(1), snapshot(2, numbers=1000))  # so that the byte in the middle is a weight's
    damage(newest / file)
    found = loaded(tmp_path)
    assert found.windows == 1
    (named,) = found.damaged
    assert named.startswith(f"window-000000002: {file} ")


def test_every_byte_of_meta_is_watched(tmp_path: Path) -> None:
    (saved,) = save(tmp_path, snapshot(1, best=True), settings={"lr": 0.1})
    path = saved / "meta.json"
    good = path.read_bytes()
    for place in range(0, len(good), 7):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(CheckpointError, match=r"all checkpoints in .* are damaged .*meta\.json"):
            Checkpoints(tmp_path, settings={"lr": 0.1}).load()


@pytest.mark.parametrize("text", ["[]", '{"content": 1, "sha256": ""}', '"x"', '{"content": {"a": NaN}}', "\x00"])
def test_a_meta_file_of_something_else_is_damage(tmp_path: Path, text: str) -> None:
    (saved,) = save(tmp_path, snapshot(1))
    (saved / "meta.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"window-000000001: meta.json"):
        Checkpoints(tmp_path).load()


def test_a_file_that_does_not_belong_is_damage(tmp_path: Path) -> None:
    *_, newest = save(tmp_path, snapshot(1), snapshot(2))
    (newest / "extra.safetensors").write_bytes(b"")
    assert loaded(tmp_path).damaged == ("window-000000002: extra.safetensors does not belong to it",)


def test_an_empty_folder_is_damage(tmp_path: Path) -> None:
    save(tmp_path, snapshot(1))
    (tmp_path / "window-000000002").mkdir()
    assert loaded(tmp_path).damaged == ("window-000000002: meta.json is missing",)


def test_a_file_in_place_of_a_checkpoint_is_damage(tmp_path: Path) -> None:
    save(tmp_path, snapshot(1))
    (tmp_path / "window-000000002").write_bytes(b"")
    (damaged,) = loaded(tmp_path).damaged
    assert damaged.startswith("window-000000002: it cannot be read")


def test_checkpoints_that_are_all_damaged_are_all_named(tmp_path: Path) -> None:
    for saved in save(tmp_path, snapshot(1), snapshot(2)):
        (saved / "state.pt").unlink()
    with pytest.raises(CheckpointError, match=r"window-000000002: state.pt is missing; window-000000001: state.pt"):
        Checkpoints(tmp_path).load()


def test_a_newer_format_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainers.loop.checkpoint.snapshot.FORMAT", 2)
    save(tmp_path, snapshot(1))
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"meta.json has format 2; this version reads 1"):
        Checkpoints(tmp_path).load()


class Exploit:
    """An object that writes a file when unpickled."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self._target),))


def _sealed(folder: Path) -> None:
    """Update `meta.json` to the replaced state file."""
    meta = CheckpointMetadata.parse((folder / "meta.json").read_bytes())
    data = (folder / "state.pt").read_bytes()
    mark = FileDigest(bytes=len(data), sha256=sha256(data).hexdigest())
    content = {name: getattr(meta, name) for name in ("epoch", "window", "windows", "best", "settings", "torch")}
    (folder / "meta.json").write_bytes(CheckpointMetadata(**content, files={**meta.files, "state.pt": mark}).text())


def _bare_pickle(value: object, path: Path) -> None:
    path.write_bytes(pickle.dumps(value, protocol=2))


def _read_bare_pickle(path: Path) -> object:
    return pickle.loads(path.read_bytes())  # noqa: S301  it must do harm to prove the point


@pytest.mark.parametrize(
    ("write", "read"), [(torch.save, partial(torch.load, weights_only=False)), (_bare_pickle, _read_bare_pickle)]
)
def test_a_pickle_that_would_run_code_is_damage_and_does_not_run(
    tmp_path: Path, write: Callable[[object, Path], object], read: Callable[[Path], object]
) -> None:
    *_, newest = save(tmp_path, snapshot(1), snapshot(2))
    write({"moments": Exploit(tmp_path / "owned")}, newest / "state.pt")
    _sealed(newest)
    found = loaded(tmp_path)
    assert found.windows == 1
    assert found.damaged[0].startswith("window-000000002: state.pt holds more than tensors and plain values")
    assert not (tmp_path / "owned").exists()
    read(newest / "state.pt")
    assert (tmp_path / "owned").exists(), "the exploit works where it is allowed to"


# --- retention


def test_the_newest_are_kept_and_the_newest_of_the_best(tmp_path: Path) -> None:
    save(tmp_path, *(snapshot(windows, best=windows in (2, 3)) for windows in range(1, 8)), keep=2)
    assert names(tmp_path) == ["window-000000003", "window-000000006", "window-000000007"]


def test_a_best_one_among_the_newest_takes_no_place_of_its_own(tmp_path: Path) -> None:
    save(tmp_path, *(snapshot(windows, best=windows in (2, 6)) for windows in range(1, 8)), keep=2)
    assert names(tmp_path) == ["window-000000006", "window-000000007"]


def test_a_window_that_is_saved_again_takes_the_place_of_the_first(tmp_path: Path) -> None:
    save(tmp_path, snapshot(1), snapshot(2, mark="first"), snapshot(2, mark="second"), snapshot(2, mark="third"))
    assert loaded(tmp_path).state["mark"] == "third"
    assert names(tmp_path) == ["window-000000001", "window-000000002-3"]


def test_the_present_one_stands_until_the_one_that_replaces_it_does(tmp_path: Path) -> None:
    save(tmp_path, snapshot(2, mark="first"))
    with pytest.raises(CheckpointError):
        save(tmp_path, snapshot(2, mark=np.ones(1)))
    assert loaded(tmp_path).state["mark"] == "first"


def test_damaged_newer_ones_never_push_out_the_good_one(tmp_path: Path) -> None:
    *_, newest = save(tmp_path, snapshot(10), snapshot(20))
    (newest / "state.pt").unlink()
    assert loaded(tmp_path).windows == 10
    save(tmp_path, snapshot(15), keep=1)
    assert names(tmp_path) == ["window-000000015"]
    assert loaded(tmp_path).damaged == ()


def test_clearing_removes_the_checkpoints_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    checkpoints = Checkpoints(tmp_path)
    with checkpoints.open():
        checkpoints.save(snapshot(1))
        checkpoints.clear()
    assert names(tmp_path) == ["notes.txt"]
    assert checkpoints.load() is None


def test_a_checkpoint_whose_removal_breaks_off_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path)
    with checkpoints.open():
        checkpoints.save(snapshot(1))
        monkeypatch.setattr(shutil, "rmtree", _fails_to_remove)
        with pytest.raises(CheckpointError, match="cannot be removed: this user may not write there"):
            checkpoints.clear()
    assert checkpoints.load() is None


def test_what_a_killed_process_left_is_removed_on_opening(tmp_path: Path) -> None:
    for name in (".draft-x", ".removed-window-000000001"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.pt").write_bytes(b"half")
    with Checkpoints(tmp_path).open():
        assert names(tmp_path) == []


# --- settings


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"keep": 0}, "keep is 0"),
        ({"every_windows": 0}, "every_windows is 0"),
        ({"every_seconds": 0.0}, "every_seconds is 0"),
        ({"every_seconds": float("nan")}, "every_seconds is nan"),
        ({"every_seconds": float("inf")}, "every_seconds is inf"),
        ({"settings": {"lr": float("nan")}}, "Out of range float"),
        ({"settings": {"path": Path("x")}}, "not JSON serializable"),
    ],
)
def test_settings_outside_their_range_are_refused(tmp_path: Path, settings: dict[str, Any], match: str) -> None:
    with pytest.raises(SettingsError, match=match):
        Checkpoints(tmp_path, **settings)


def test_another_trainings_checkpoint_is_refused_and_every_difference_named(tmp_path: Path) -> None:
    save(tmp_path, snapshot(1), settings={"seed": 1, "network": {"layers": 2, "width": 8}, "old": "x"})
    with pytest.raises(ResumeMismatchError) as refused:
        Checkpoints(tmp_path, settings={"seed": 2, "network": {"layers": 3, "width": 8}, "new": [1]}).load()
    for difference in (
        "seed was 1 and is now 2",
        "network.layers was 2 and is now 3",
        'old was "x" and is now absent',
        "new was absent and is now [1]",
    ):
        assert difference in refused.value.message
    assert "width" not in refused.value.message


def test_tuples_and_lists_are_the_same_setting(tmp_path: Path) -> None:
    save(tmp_path, snapshot(1), settings={"horizons": (1, 5)})
    assert loaded(tmp_path, settings={"horizons": [1, 5]}).windows == 1


# --- timing


def test_a_checkpoint_is_due_after_so_many_windows(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, every_windows=3, every_seconds=None)
    assert [windows for windows in range(1, 10) if checkpoints.is_due(windows)] == [3, 6, 9]


def test_a_checkpoint_is_due_after_so_many_seconds(tmp_path: Path) -> None:
    now = [0.0]
    checkpoints = Checkpoints(tmp_path, every_seconds=10.0, clock=lambda: now[0])
    now[0] = 5.0
    with checkpoints.open():
        due: list[float] = []
        for now[0] in (10.0, 14.9, 15.0, 16.0, 24.0, 25.0):
            if checkpoints.is_due(1):
                due.append(now[0])
                checkpoints.save(snapshot(1))
    assert due == [15.0, 25.0]


def test_a_save_that_fails_is_tried_again_when_the_next_is_due(tmp_path: Path) -> None:
    now = [0.0]
    checkpoints = Checkpoints(tmp_path, every_seconds=10.0, clock=lambda: now[0])
    with checkpoints.open():
        now[0] = 10.0
        with pytest.raises(CheckpointError):
            checkpoints.save(snapshot(1, bad=np.ones(1)))
        assert not checkpoints.is_due(1)
        now[0] = 20.0
        assert checkpoints.is_due(1)


# --- disk


@posix
def test_every_file_is_on_the_disk_before_the_checkpoint_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, renamed = os.fsync, Path.rename

    def seen_fsync(handle: int) -> None:
        steps.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        fsync(handle)

    def seen_rename(source: Path, target: Path) -> Path:
        steps.append(f"{source.name} becomes {target.name}")
        return renamed(source, target)

    tmp_path.joinpath("saves").mkdir()
    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(Path, "rename", seen_rename)
    save(tmp_path / "saves", snapshot(1))
    draft = steps[3]
    assert draft.startswith(".draft-window-000000001-")
    assert steps == [
        "state.pt",
        "modules.safetensors",
        "meta.json",
        draft,
        f"{draft} becomes window-000000001",
        "saves",
    ]


@posix
def test_another_user_can_read_a_checkpoint(tmp_path: Path) -> None:
    mask = os.umask(0o077)
    try:
        (saved,) = save(tmp_path, snapshot(1))
    finally:
        os.umask(mask)
    assert saved.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in saved.iterdir()} == {0o644}


def test_a_rename_that_a_scanner_blocks_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unblocked, blocked = Path.rename, [True, True]

    def blocked_rename(source: Path, target: Path) -> Path:
        if blocked:
            blocked.pop()
            raise PermissionError(errno.EACCES, "in use")
        return unblocked(source, target)

    monkeypatch.setattr(Path, "rename", blocked_rename)
    (tmp_path / "old").mkdir()
    with pytest.raises(PermissionError):
        rename(tmp_path / "old", tmp_path / "new", [])
    rename(tmp_path / "old", tmp_path / "new", [0.0])
    assert names(tmp_path) == ["new"]


@pytest.mark.parametrize("kind", [OSError(errno.EIO, "I/O"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["fsync", "rename"])
def test_a_save_that_breaks_off_leaves_the_old_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, kind: BaseException
) -> None:
    save(tmp_path, snapshot(1))

    def broken(*_: object) -> None:
        raise kind

    checkpoints = Checkpoints(tmp_path)
    with checkpoints.open():
        monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (Path, "rename")), broken)
        expected = CheckpointError if isinstance(kind, OSError) else KeyboardInterrupt
        with pytest.raises(expected):
            checkpoints.save(snapshot(2))
        monkeypatch.undo()
    assert names(tmp_path) == ["window-000000001"]
    assert loaded(tmp_path).windows == 1


def test_a_failing_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path)
    with checkpoints.open():
        monkeypatch.setattr(os, "fsync", _fails_with_eio)
        with pytest.raises(CheckpointError, match=r"after 2 windows .*input or output error.*earlier .* unchanged"):
            checkpoints.save(snapshot(2))


def _fails_with_eio(handle: int) -> None:
    raise OSError(errno.EIO, f"Input/output error on {handle}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk of 4 MiB."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small disk takes Linux and root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "tmpfs", disk], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"mounting is not allowed here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_reported_with_its_numbers_and_the_old_checkpoints_stay(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_disk / "saves"
    save(folder, *(snapshot(windows, numbers=140_000) for windows in (1, 2, 3)))
    monkeypatch.delattr(tempfile, "mkdtemp")  # nothing is started without enough room
    with pytest.raises(
        CheckpointError, match=rf"disk full: the checkpoint needs 1\.1 MB, {folder} has [78]\d\d\.\d kB free; free some"
    ):
        save(folder, snapshot(4, numbers=140_000))
    assert names(folder) == ["window-000000001", "window-000000002", "window-000000003"]
    assert loaded(folder).windows == 3


@pytest.mark.parametrize(
    ("room", "file"), [(100_000, "modules.safetensors"), (700_000, "state.pt"), (1_128_000, "meta.json")]
)
def test_a_disk_filled_by_others_is_reported_and_the_old_checkpoint_stays(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, room: int, file: str
) -> None:
    folder = small_disk / "saves"
    save(folder, snapshot(1, numbers=140_000))
    asked, begun = shutil.disk_usage, list[str]()

    def filled_once_asked(path: Path) -> object:
        answer = asked(path)
        if not (small_disk / "other").exists():
            (small_disk / "other").write_bytes(bytes(answer.free - room))
        return answer

    monkeypatch.setattr(shutil, "disk_usage", filled_once_asked)
    opened = Path.open

    def seen_open(path: Path, *arguments: Any, **options: Any) -> Any:
        begun.append(path.name)
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", seen_open)
    with pytest.raises(CheckpointError, match=rf"disk full: the checkpoint needs 1\.1 MB, {folder} has .*B free"):
        save(folder, snapshot(2, numbers=140_000))
    assert begun[-1] == file
    assert names(folder) == ["window-000000001"]
    assert loaded(folder).windows == 1


def test_saving_continues_once_there_is_room_again(small_disk: Path) -> None:
    checkpoints = Checkpoints(small_disk / "saves")
    (small_disk / "other").write_bytes(bytes(3_500_000))
    with checkpoints.open():
        with pytest.raises(CheckpointError, match="disk full"):
            checkpoints.save(snapshot(1, numbers=140_000))
        (small_disk / "other").unlink()
        checkpoints.save(snapshot(2, numbers=140_000))
    assert loaded(small_disk / "saves").windows == 2


def test_a_read_only_disk_is_reported(small_disk: Path) -> None:
    save(small_disk / "saves", snapshot(1))
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(CheckpointError, match="cannot hold checkpoints: the disk is read-only; mount it writable"):
        save(small_disk / "saves", snapshot(2))
    assert loaded(small_disk / "saves").windows == 1


@posix
def test_a_folder_that_becomes_read_only_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)  # so that the folders above need not be searched without privileges
    checkpoints = Checkpoints(Path("saves"))
    with checkpoints.open():
        checkpoints.save(snapshot(1))
        checkpoints.folder.chmod(0o555)
        with _without_privileges(), pytest.raises(CheckpointError, match="this user may not write there"):
            checkpoints.save(snapshot(2))
        checkpoints.folder.chmod(0o755)
        assert names(checkpoints.folder) == ["window-000000001"]
        assert loaded(checkpoints.folder).windows == 1


def test_a_folder_removed_while_training_is_reported(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "saves")
    with checkpoints.open():
        shutil.rmtree(tmp_path / "saves")
        with pytest.raises(CheckpointError, match="no longer exists"):
            checkpoints.save(snapshot(1))


def test_a_file_in_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "saves").write_bytes(b"")
    with pytest.raises(CheckpointError, match="a file of that name exists"):
        save(tmp_path / "saves", snapshot(1))


def test_what_is_written_although_old_ones_cannot_be_removed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    with checkpoints.open():
        checkpoints.save(snapshot(1))
        monkeypatch.setattr(shutil, "rmtree", _fails_to_remove)
        with pytest.raises(CheckpointError, match=r"window-000000002 is written, but older .* cannot be removed"):
            checkpoints.save(snapshot(2))
        monkeypatch.undo()
    assert loaded(tmp_path).windows == 2


def _fails_to_remove(path: Path, *, ignore_errors: bool = False) -> None:
    if not ignore_errors:
        raise OSError(errno.EACCES, f"Permission denied: {path}")


class _without_privileges:  # noqa: N801  it is used as a function
    """Run as the user `nobody` if this is root, for whom file permissions do not count."""

    def __enter__(self) -> None:
        if os.geteuid() == 0:
            os.seteuid(NOBODY)

    def __exit__(self, *_: object) -> None:
        os.seteuid(os.getuid())


# --- one process at a time


def test_saving_without_holding_the_folder_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    with checkpoints.open():
        pass
    with pytest.raises(CheckpointError, match=r"use `with checkpoints.open\(\):` first"):
        checkpoints.save(snapshot(1))


def test_two_trainings_of_one_process_cannot_hold_a_folder(tmp_path: Path) -> None:
    refused = pytest.raises(CheckpointError, match=rf"in use by process {os.getpid()} on ")
    with Checkpoints(tmp_path).open(), refused, Checkpoints(tmp_path).open():
        pass
    with Checkpoints(tmp_path).open():
        pass


@posix
def test_a_folder_is_held_until_its_process_dies_and_not_by_its_children(tmp_path: Path) -> None:
    command = [sys.executable, HERE / "holding_process.py", tmp_path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CheckpointError, match=rf"in use by process {holder.pid} on "):
            save(tmp_path, snapshot(1))
        holder.kill()
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
        save(tmp_path, snapshot(1))  # its child is still waiting for the end of its input
    assert loaded(tmp_path).windows == 1


# --- kill -9


@pytest.mark.slow
@posix
def test_a_save_killed_at_any_step_leaves_the_old_checkpoint_or_the_new_one(tmp_path: Path) -> None:
    command = [sys.executable, HERE / "dying_saver.py", tmp_path]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    *killed, survivor = map(json.loads, told.splitlines())
    assert len(killed) >= 30
    assert all(line["killed"] for line in killed)
    assert not survivor["killed"]
    for line in (*killed, survivor):
        assert line["now"] in (line["before"], line["before"] + 1), line
        assert line["equal"], line
        assert line["drafts"] == line["damaged"] == [], line
    assert {line["now"] - line["before"] for line in killed} == {0, 1}

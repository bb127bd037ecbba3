"""The faults of files that somebody made up: pickles that act, tensors that lie, archives that unpack.

All digests are right, so that each meets the check behind them, in an artifact, in a training that resumes and in one
that starts from another's weights.
"""

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, final

from benchmarks.faults import forgery
from benchmarks.faults.damaged import files_of, told
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.loader import Kind, Loader, Read, loading
from benchmarks.faults.models import NAME, WEIGHTS
from benchmarks.report import at_most

STATE, GROUP, ARRAYS = "state.pt", "modules.safetensors", "golden/arrays.safetensors"
NEWEST: Final = "window-000000002"
FULL_NAMES, QUICK_NAMES = 1_000_000, 40_000
SHARE: Final = 5
"""A library alone reads a fifth of these names; all of them take half a minute."""
FULL_BYTES, QUICK_BYTES = 256 << 20, 32 << 20
ELEMENTS: Final = 1 << 40
MOST_S, MOST_MIB = 1.0, 100.0
"""What refusing one file may take."""
UNPICKLE: Final = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"
"""What a program does that trusts its files."""
SOURCES: Final = Path(__file__).parents[2] / "python"


@final
@dataclass(frozen=True, slots=True)
class Forged:
    """One file in the place of another, and how it was read."""

    what: str
    kind: Kind
    name: str
    read: Read
    acted: bool = False
    """Whether it did what it does when it is unpickled."""

    @property
    def is_refused(self) -> bool:
        """As it must be."""
        return self.read.outcome == "refused" and not self.acted


@final
@dataclass(frozen=True, slots=True)
class Copies:
    """Where forged files go: a new copy of what is sound, each time."""

    place: Place
    loader: Loader

    def artifact(self, what: str, name: str, data: bytes) -> Forged:
        """Forge one of an artifact's files, or add one, and load it."""
        folder = self._fresh(self.place.material.small / NAME / "1")
        forgery.into_artifact(folder, name, data)
        return Forged(what, "artifact", name, self.loader.read("artifact", folder))

    def checkpoint(self, kind: Kind, what: str, name: str, data: bytes) -> Forged:
        """Forge one of the newest checkpoint's files, and resume or start from it."""
        folder = self._fresh(self.place.material.checkpoints)
        forgery.into_checkpoint(folder / NEWEST, name, data)
        return Forged(what, kind, name, self.loader.read(kind, folder))

    def _fresh(self, sound: Path) -> Path:
        target = self.place.work / "forged"
        shutil.rmtree(target, ignore_errors=True)
        return Path(shutil.copytree(sound, target))


def run(place: Place) -> Iterator[Finding]:
    """One process reads all, but for those that only libraries alone would read."""
    with loading(place.log) as loader:
        copies = Copies(place, loader)
        yield _pickles(place, copies)
        yield _tensors(place, copies)
        yield _archives(place, copies)


# --- pickles


def _pickles(place: Place, copies: Copies) -> Finding:
    """In the place of every file there is, as a bare pickle and as an archive of torch's."""
    marker = place.work / "acted"
    forms = {"bare": forgery.acting(marker), "archive": forgery.archive_of(forgery.acting(marker), {})}
    found = [
        _watched(marker, forged) for what, data in forms.items() for forged in _everywhere(place, copies, what, data)
    ]
    loaded = [one for one in found if one.read.outcome == "loaded" and not _is_unread(one)]
    acted, broke = [one for one in found if one.acted], [one for one in found if one.read.outcome == "broke"]
    does_act = _acts(place, marker, forms["bare"])
    loose = sum("weights_only=False" in path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    return Finding(
        fault="files that act when they are unpickled",
        done="in the place of every file of an artifact and of a checkpoint, a bare pickle and torch's archive, with "
        "all digests made right; loaded, resumed from, and started from",
        calls=len(found),
        wrong=len({id(one) for one in (*acted, *loaded, *broke)}),
        lost=sum(one.read.outcome == "died" for one in found),
        rows=[
            at_most("that acted", len(acted), 0, detail=_names(acted)),
            at_most("taken for whole", len(loaded), 0, detail=_names(loaded)),
            at_most("refused by an accident", len(broke), 0, detail=_names(broke)),
            at_most("sources that say weights_only=False", loose, 0, detail="files of python/"),
            at_most("pickles that are none", int(not does_act), 0, detail="the same bytes must act where pickle reads"),
        ],
        detail=told(Counter(one.read.outcome for one in found)) + "; a start from weights does not read state.pt",
        naive=f"naive: the same bytes, given to pickle: {'acted' if does_act else 'did not act'}",
    )


def _everywhere(place: Place, copies: Copies, what: str, data: bytes) -> Iterator[Callable[[], Forged]]:
    for name in files_of(place.material.small / NAME / "1"):
        yield lambda name=name: copies.artifact(what, name, data)
    kinds: tuple[Kind, ...] = ("resume", "warm start")
    for kind in kinds:
        for name in files_of(place.material.checkpoints / NEWEST):
            yield lambda kind=kind, name=name: copies.checkpoint(kind, what, name, data)


def _watched(marker: Path, forge: Callable[[], Forged]) -> Forged:
    """What came of it, and whether it acted meanwhile."""
    forged, acted = forge(), marker.exists()
    if acted:
        marker.rmdir()
    return Forged(forged.what, forged.kind, forged.name, forged.read, acted)


def _is_unread(one: Forged) -> bool:
    """Whether nobody asked for what was forged."""
    return (one.kind, one.name) == ("warm start", STATE)


def _acts(place: Place, marker: Path, data: bytes) -> bool:
    path = place.work / "bare.pkl"
    path.write_bytes(data)
    subprocess.run([sys.executable, "-c", UNPICKLE, path], check=True)
    return marker.exists()


def _names(forged: Sequence[Forged]) -> str:
    return "; ".join(f"{one.kind}: {one.what} as {one.name}: {one.read.said[:80]}" for one in forged) or "none"


# --- tensors


def _tensors(place: Place, copies: Copies) -> Finding:
    """Headers that lie or have no end, in every file of tensors that is read."""
    count = place.count(FULL_NAMES, QUICK_NAMES)
    many = forgery.many_names(count)
    files = {**dict(forgery.lying()), f"{count} names in {len(many) >> 20} MiB": many}
    found = [
        *(copies.artifact(what, name, data) for what, data in files.items() for name in (WEIGHTS, ARRAYS)),
        *(copies.checkpoint("resume", what, GROUP, data) for what, data in files.items()),
        *(copies.checkpoint("warm start", what, GROUP, data) for what, data in files.items()),
        copies.artifact("a weight that is no number", WEIGHTS, _poisoned(place)),
    ]
    path = place.work / "fewer.safetensors"
    path.write_bytes(forgery.many_names(count // SHARE))
    alone = copies.loader.read("safetensors", path)
    return _refusals(
        place,
        found,
        fault="tensors that lie",
        done="overlaps, sizes that lie or wrap round, headers without end, NaN: in the place of weights and golden "
        "arrays, and of a checkpoint's tensors; all digests right",
        naive=f"naive: a header of {count // SHARE} names, read by safetensors alone: {alone.outcome} after "
        f"{alone.took_s:.1f} s, with {alone.more_mib:.0f} MiB more",
    )


def _poisoned(place: Place) -> bytes:
    return forgery.not_a_number((place.material.small / NAME / "1" / WEIGHTS).read_bytes())


def _refusals(place: Place, found: Sequence[Forged], *, fault: str, done: str, naive: str) -> Finding:
    """All must be refused, quickly and in little memory."""
    wrong = [one for one in found if not one.is_refused and one.read.outcome != "died"]
    slowest = max(found, key=lambda one: one.read.took_s)
    largest = max(found, key=lambda one: one.read.more_mib)
    return Finding(
        fault=fault,
        done=done,
        calls=len(found),
        wrong=len(wrong),
        lost=sum(one.read.outcome == "died" for one in found),
        rows=[
            at_most("not refused", len(wrong), 0, detail=_names(wrong)),
            at_most("slowest refusal, s", slowest.read.took_s, MOST_S, detail=slowest.what, judged=not place.quick),
            at_most("most memory of a refusal, MiB", largest.read.more_mib, MOST_MIB, detail=largest.what),
        ],
        detail=told(Counter(one.read.outcome for one in found)),
        naive=naive,
    )


# --- archives


def _archives(place: Place, copies: Copies) -> Finding:
    """What is small on the disk and large in memory, where a training's state is, and beside a model's weights."""
    size = place.count(FULL_BYTES, QUICK_BYTES)
    files: Mapping[str, bytes] = {
        "a tensor of 2^40 elements": forgery.expanded(ELEMENTS),
        f"{size >> 20} MiB in an archive": forgery.compressed(size),
    }
    found = [
        *(copies.artifact(what, "weights.pt", data) for what, data in files.items()),
        *(copies.artifact(what, WEIGHTS, data) for what, data in files.items()),
        *(copies.checkpoint("resume", what, STATE, data) for what, data in files.items()),
    ]
    unread = [copies.checkpoint("warm start", what, STATE, data) for what, data in files.items()]
    most = max(one.read.more_mib for one in unread)
    finding = _refusals(
        place,
        found,
        fault="archives that are larger than they look",
        done=f"{', '.join(f'{what} ({len(data)} bytes)' for what, data in files.items())}: as a file beside a model's "
        "weights, in their place, and as a training's state",
        naive=_libraries(place, copies.loader, files),
    )
    row = at_most("most memory of a start from weights, MiB", most, MOST_MIB, detail="it does not read the state")
    return replace(
        finding,
        calls=finding.calls + len(unread),
        wrong=finding.wrong + sum(one.read.outcome != "loaded" for one in unread),
        rows=[*finding.rows, row],
        detail=f"{finding.detail}; started from weights alone: {told(Counter(one.read.outcome for one in unread))}",
    )


def _libraries(place: Place, loader: Loader, files: Mapping[str, bytes]) -> str:
    """What torch alone makes of them."""
    path, reads = place.work / "alone.pt", list[str]()
    for what, data in files.items():
        path.write_bytes(data)
        read = loader.read("torch", path)
        reads.append(f"{what}: {read.outcome}, {read.more_mib:.0f} MiB more")
    return f"naive: torch.load(weights_only=True): {'; '.join(reads)}"

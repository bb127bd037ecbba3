"""The fault of artifacts that a disk or a copy damaged: does a loader, or a server, ever take one for whole?"""

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, final

import grpc

from benchmarks.faults.calls import LIST, PREDICT, Ended, ask_once, codes, predict_request, values_of
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.loader import Kind, Loader, Read, loading
from benchmarks.faults.models import NAME, WEIGHTS
from benchmarks.faults.reloads import Admin
from benchmarks.faults.served import Server, free_port, serving
from benchmarks.faults.speech import Native
from benchmarks.faults.target import Target
from benchmarks.report import at_most
from predictor._pb import prediction_pb2 as pb

DAMAGES, QUICK_DAMAGES = 300, 20
WITNESS: Final = {"manifest.sha256": "manifest.json"}
"""Files that are not told themselves but by what they prove."""
OTHER: Final = "whole"
"""A model beside the damaged ones."""


def run(place: Place) -> Iterator[Finding]:
    """A loader's part, then a server's."""
    folder = Path(shutil.copytree(place.material.small / NAME / "1", place.work / "artifact"))
    with loading(place.log) as loader:
        for damage in (
            Damage(flipped, "artifacts with a flipped bit", "one bit of one byte of one file, all three at random"),
            Damage(cut, "artifacts cut short", "one file at random ends at a byte at random"),
        ):
            yield _loaded(place, folder, loader, damage)
    yield _served(place)


def flipped(dice: Random, data: bytes) -> bytes:
    """One bit turned."""
    at = dice.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]


def cut(dice: Random, data: bytes) -> bytes:
    """The beginning."""
    return data[: dice.randrange(len(data))]


def files_of(folder: Path) -> list[str]:
    """All files of an artifact, by their names in it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@final
@dataclass(frozen=True, slots=True)
class Damage:
    """What is done to a file, by its title and in words."""

    change: Callable[[Random, bytes], bytes]
    title: str
    done: str


@final
@dataclass(frozen=True, slots=True)
class Damaged:
    """A file of a folder that is damaged again and again, and whole in between."""

    folder: Path
    name: str

    def read(self, loader: Loader, kind: Kind, change: Callable[[bytes], bytes]) -> Read:
        """What comes of the folder, or of the file alone where the kind is a file's."""
        path = self.folder / self.name
        whole = path.read_bytes()
        path.write_bytes(change(whole))
        try:
            return loader.read(kind, self.folder if kind == "artifact" else path)
        finally:
            path.write_bytes(whole)

    def is_told(self, read: Read) -> bool:
        """Whether the damage was found and says where."""
        return read.outcome == "refused" and read.said.startswith(f"{WITNESS.get(self.name, self.name)}: ")


def _loaded(place: Place, folder: Path, loader: Loader, damage: Damage) -> Finding:
    dice, names, count = Random(11), files_of(folder), place.count(DAMAGES, QUICK_DAMAGES)  # noqa: S311 - damage
    tried = [Damaged(folder, dice.choice(names)) for _ in range(count)]
    found = [(one, one.read(loader, "artifact", lambda data: damage.change(dice, data))) for one in tried]
    outcomes = Counter(read.outcome for _, read in found)
    unnamed = sum(not one.is_told(read) for one, read in found) - outcomes["loaded"] - outcomes["died"]
    after = loader.read("artifact", folder)
    return Finding(
        fault=damage.title,
        done=f"{damage.done}; {len(names)} files, the manifest and its digest too; a process loads it",
        calls=count + 1,
        wrong=outcomes["loaded"] + unnamed + (after.outcome != "loaded"),
        lost=outcomes["died"],
        rows=[
            at_most("taken for whole", outcomes["loaded"], 0, detail=told(outcomes)),
            at_most("refused without naming the file", unnamed, 0, detail="an ArtifactError begins with its name"),
        ],
        detail=f"{told(outcomes)}; whole again: {after.outcome}",
        naive=_naive(place, folder, loader, damage),
    )


def told(outcomes: Counter[str]) -> str:
    """How often each outcome came, in words."""
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())


def _naive(place: Place, folder: Path, loader: Loader, damage: Damage) -> str:
    """The same damage to a file of weights that nothing but its library reads."""
    shutil.copy(folder / WEIGHTS, place.work)
    shutil.copy(place.material.pickled_weights(), place.work)
    dice, count = Random(12), place.count(DAMAGES, QUICK_DAMAGES)  # noqa: S311 - damage
    kinds: dict[str, Kind] = {WEIGHTS: "safetensors", place.material.pickled_weights().name: "torch"}
    loads = {
        kind: sum(
            Damaged(place.work, name).read(loader, kind, lambda data: damage.change(dice, data)).outcome == "loaded"
            for _ in range(count)
        )
        for name, kind in kinds.items()
    }
    return "naive: " + ", ".join(f"{kind} alone loads {n} of {count}" for kind, n in loads.items())


# --- in a server's folder


def _served(place: Place) -> Finding:
    """A version for every file of the artifact, in which it is damaged; beside them a whole version and a whole model.

    Then the whole version is damaged too, and the server told to read it again.
    """
    models = place.work / "models"
    whole = shutil.copytree(place.material.version(1), models / NAME / "1")
    shutil.copytree(place.material.version(2), models / OTHER / "1")
    dice, names = Random(13), files_of(whole)  # noqa: S311 - damage
    for version, name in enumerate(names, 2):
        copy = shutil.copytree(whole, models / NAME / str(version))
        path = copy / name
        path.write_bytes((flipped if version % 2 else cut)(dice, path.read_bytes()))
    port = free_port()
    options = ("--log-level", "warning", "--max-batch-rows", "1", "--admin-listen", f"127.0.0.1:{port}")
    with serving(models, place.log, *options) as server:
        judged = Judged.of(server, place, names)
        before = _forecast(server, place, NAME)
        path = models / NAME / "1" / WEIGHTS
        path.write_bytes(flipped(dice, path.read_bytes()))
        reload = Admin(Target(port), Native()).reload()
        stayed = values_of(_forecast(server, place, NAME).body) == values_of(before.body)
    unrefused = int(not reload.startswith("DATA_LOSS"))
    return Finding(
        fault="damaged versions in a server's folder",
        done=f"{len(names)} versions of a model, each with another damaged file, beside a whole one and a whole model; "
        "then the whole one is damaged and read again",
        calls=judged.calls + 2,
        wrong=judged.answering + judged.unnamed + judged.listed + unrefused + (not stayed),
        lost=judged.failed,
        rows=[
            at_most("damaged versions that answer", judged.answering, 0, detail=judged.refusals),
            at_most(
                "damaged versions that are not named", judged.unnamed, 0, detail="a line of the log, with the file"
            ),
            at_most("damaged versions that are listed", judged.listed, 0, detail="ListModels"),
            at_most("whole ones that fail", judged.failed, 0, detail=f"{NAME}, {NAME}@1, {OTHER}"),
            at_most("reloads of a damaged version that are not refused", unrefused, 0, detail=reload),
            at_most("what was served before is not any more", int(not stayed), 0, detail="the same bits afterwards"),
        ],
        detail=f"{judged.refusals}; reload: {reload}",
    )


@final
@dataclass(frozen=True, slots=True)
class Judged:
    """What a server makes of its folder."""

    calls: int
    answering: int
    """Damaged versions that answer."""
    unnamed: int
    """Damaged versions without a line in the log that names version and file."""
    listed: int
    """Versions beyond the two whole ones."""
    failed: int
    """Calls of whole versions."""
    refusals: str
    """How the damaged ones refuse."""

    @classmethod
    def of(cls, server: Server, place: Place, names: Sequence[str]) -> "Judged":
        """Ask for every version; `names` are the damaged files of version 2 on."""
        log = server.log.read_text(encoding="utf-8")
        damaged = [_forecast(server, place, f"{NAME}@{version}") for version, _ in enumerate(names, 2)]
        whole = [_forecast(server, place, model) for model in (NAME, f"{NAME}@1", OTHER)]
        listing = asyncio.run(ask_once(server.target, LIST, b""))
        return cls(
            calls=len(damaged) + len(whole) + 1,
            answering=sum(end.code is grpc.StatusCode.OK for end in damaged),
            unnamed=sum(
                f"not served: {NAME}/{version}: {WITNESS.get(name, name)}: " not in log
                for version, name in enumerate(names, 2)
            ),
            listed=max(0, len(pb.ListModelsResponse.FromString(listing.body).models) - 2),
            failed=sum(end.code is not grpc.StatusCode.OK for end in whole),
            refusals=f"the damaged ones: {codes(damaged)}; the whole ones: {codes(whole)}",
        )


def _forecast(server: Server, place: Place, model: str) -> Ended:
    return asyncio.run(ask_once(server.target, PREDICT, predict_request(place.material.one_stock(), model=model)))

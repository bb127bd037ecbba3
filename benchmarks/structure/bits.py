"""What the code before trained, loaded by the code before and by the code now: do both answer the same bits?

Every artifact is trained by the code before. A training that was stopped half-way goes on in a copy of its folder with
either code, and the artifacts that come of it are compared byte by byte.
"""

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.structure import trainings
from benchmarks.structure.checkout import Checkout, ProgramError
from benchmarks.structure.table import Line

ENSEMBLE: Final = ("lstm", "gru")
STOPPED: Final = ("--model", "lstm", "--epochs", "3", "--hidden", "8", "--dropout", "0.2", "--ema", "0.99")
STOPPED_AT: Final = (1, 7)
SHOWN: Final = 5


def rows(before: Checkout, now: Checkout, folder: Path, *, quick: bool) -> Iterator[Line]:
    """One row for each artifact, as soon as it is judged, the ensemble's and the resumed training's at the end.

    Args:
        before: The code that trains.
        now: The code that must answer the same.
        folder: Empty; everything is written there.
        quick: Only the members of the ensemble, it and the resumed training.
    """
    trainings.write_files(folder)
    for name, settings in trainings.ARTIFACTS.items():
        if name in ENSEMBLE or not quick:
            print(f"{name} …", file=sys.stderr, flush=True)
            yield _judged(name, before, now, trainings.train(before, folder, name, settings), _beside(settings))
    yield _judged("ensemble", before, now, trainings.join(before, folder, "ensemble", ENSEMBLE), ())
    yield _resumed(before, now, folder)


def _beside(settings: Sequence[str]) -> tuple[str, ...]:
    return (trainings.MOOD, trainings.PHASE, trainings.STATIC) if "--covariates" in settings else ()


def _judged(name: str, before: Checkout, now: Checkout, artifact: Path, beside: Sequence[str]) -> Line:
    folder = artifact.parents[2]
    arguments = ["-m", "benchmarks.structure.answers", str(artifact), trainings.BARS, *beside]
    told: dict[str, str] = json.loads(before.run(arguments, folder))
    try:
        again: dict[str, str] = json.loads(now.run(arguments, folder))
    except ProgramError as error:
        return _line(f"{name}: facts that differ", ["all"], len(told), str(error))
    return _line(f"{name}: facts that differ", _different(told, again), len(told), _digest(told))


def _resumed(before: Checkout, now: Checkout, folder: Path) -> Line:
    trainings.train_half(before, folder, "stopped", STOPPED, STOPPED_AT)
    once = _resumed_files(before, folder, folder / "before")
    try:
        again = _resumed_files(now, folder, folder / "now")
    except ProgramError as error:
        return _line("resumed training: files that differ", ["all"], len(once), str(error))
    return _line("resumed training: files that differ", _different(once, again), len(once), _digest(once))


def _resumed_files(checkout: Checkout, folder: Path, copy: Path) -> dict[str, str]:
    """The files of the artifact that comes of the stopped training, which goes on in a copy of its folder."""
    shutil.copytree(folder / "models" / "stopped", copy / "models" / "stopped")
    shutil.copy(folder / trainings.BARS, copy)
    return _files(trainings.resume(checkout, copy, "stopped", STOPPED))


def _files(artifact: Path) -> dict[str, str]:
    paths = sorted(path for path in artifact.rglob("*") if path.is_file())
    return {path.relative_to(artifact).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def _different(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _digest(facts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _line(name: str, different: Sequence[str], count: int, said: str) -> Line:
    detail = f"of {count}; {said}" if not different else f"of {count}: {'; '.join(different[:SHOWN])}; {said}"
    return Line(name=name, before=None, now=len(different), reach="<= 0", met=not different, detail=detail)

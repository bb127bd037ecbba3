"""A process that reads files which may be anything, one after the other, and says what came of each.

Run as `python -m benchmarks.faults.loader`: a line of JSON for every line of JSON, a kind and a path. Whatever such a
file does, it does to that process: it may end, take the machine's memory up to a bound, or never answer.
"""

import contextlib
import json
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

from benchmarks.faults.served import MIB, Vitals, forget_peak

START_S: Final = 120.0
LONGEST_S: Final = 120.0
"""How long one file may take."""
MOST_BYTES: Final = 8 << 30
"""What the process may hold."""

Kind: TypeAlias = Literal["artifact", "resume", "warm start", "safetensors", "torch"]
"""A version of a model; a training's folder, twice; and the two libraries alone, which check nothing."""


@final
@dataclass(frozen=True, slots=True)
class Read:
    """What came of one file."""

    outcome: Literal["loaded", "refused", "broke", "died"]
    """Broke: another error than the one for this purpose. Died: the process did, or did not answer."""
    said: str = ""
    """The error."""
    took_s: float = 0.0
    more_mib: float = 0.0
    """The most memory meanwhile, above that before."""


@final
class Loader:
    """The process. Once it died, or was ended because it did not answer, every further file has died too."""

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        self._popen = popen

    def read(self, kind: Kind, path: Path) -> Read:
        """Let it read a file or folder."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(json.dumps([kind, str(path)]) + "\n")
            self._popen.stdin.flush()
        except BrokenPipeError:
            return Read("died")
        line = self.line(LONGEST_S)
        if not line:
            self._popen.kill()
            return Read("died")
        return Read(**json.loads(line))

    def line(self, within_s: float) -> str:
        """What it says next; empty if it ended, or says nothing in time."""
        assert self._popen.stdout is not None
        ready, _, _ = select.select([self._popen.stdout], [], [], within_s)
        return self._popen.stdout.readline() if ready else ""


@contextmanager
def loading(log: Path) -> Generator[Loader]:
    """A process that has imported what it needs; it is ended with the block. What it prints goes to the log."""
    command = [sys.executable, "-m", "benchmarks.faults.loader"]
    with (
        log.open("a", encoding="utf-8") as file,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True) as popen,
    ):
        loader = Loader(popen)
        try:
            if loader.line(START_S) != "begun\n":
                raise RuntimeError(f"no loader in {START_S:g} s: {log.read_text(encoding='utf-8')[-500:]}")
            yield loader
        finally:
            popen.kill()


# --- in the process


def main() -> None:
    """Read what stdin names until it ends."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    readers = _readers()
    print("begun", flush=True)
    for line in sys.stdin:
        kind, path = json.loads(line)
        print(json.dumps(asdict(_read(readers[kind], Path(path)))), flush=True)


def _read(reader: Callable[[Path], str], path: Path) -> Read:
    forget_peak(os.getpid())
    before, start = Vitals.of(os.getpid()), time.perf_counter()
    try:
        refusal = reader(path)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        outcome, said = "broke", f"{type(error).__name__}: {error}"
    else:
        outcome, said = "refused" if refusal else "loaded", refusal
    took_s, more = time.perf_counter() - start, Vitals.of(os.getpid()).peak - before.resident
    return Read(outcome, said[:500], took_s, more / MIB)


def _readers() -> Mapping[str, Callable[[Path], str]]:
    """By kind, what reads a path and gives the refusal; empty if it was loaded."""
    import safetensors.torch
    import torch

    from predictor.errors import ArtifactError
    from predictor.registry import Runtime, load_model
    from trainers.loop import CheckpointError, Checkpoints

    torch.set_num_threads(1)
    runtime = Runtime(torch.device("cpu"), 256)

    def artifact(path: Path) -> str:
        try:
            load_model(path, ("stock", 1), runtime)
        except ArtifactError as error:
            return error.message
        return ""

    def resume(path: Path) -> str:
        found = Checkpoints(path).load()
        return "nothing there" if found is None else "; ".join(found.damaged)

    def warm_start(path: Path) -> str:
        try:
            Checkpoints(path).weights("newest")
        except CheckpointError as error:
            return str(error)
        return ""

    def bare(load: Callable[[Path], object]) -> Callable[[Path], str]:
        def read(path: Path) -> str:
            with contextlib.suppress(Exception):
                load(path)
                return ""
            return "refused"

        return read

    return {
        "artifact": artifact,
        "resume": resume,
        "warm start": warm_start,
        "safetensors": bare(safetensors.torch.load_file),
        "torch": bare(lambda path: torch.load(path, weights_only=True)),
    }


if __name__ == "__main__":
    main()

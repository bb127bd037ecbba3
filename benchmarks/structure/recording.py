"""Which own files run a function while something is done; runs with the packages of either checkout.

python -m benchmarks.structure.recording PACKAGES MODEL BARS     prints {name: [files]} as JSON
python -m benchmarks.structure.recording --serve PACKAGES MODELS  a server that records between two lines of its input

A file counts if Python runs a function of it; bodies of modules and classes do not count, nor methods that
`dataclasses` generates, which have no file. Every thread that Python starts is watched.
"""

import inspect
import json
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Final, final

from benchmarks.structure.checkout import GENERATED

WARM, CALLS = 3, 5
SESSIONS = 200
BEGIN: Final = "begin"


@final
class Recorder:
    """Notes the files of functions that are called while it is on.

    Args:
        folder: Of the packages whose files count.
    """

    def __init__(self, folder: Path) -> None:
        self._start = f"{folder}{os.sep}"
        self._on = False
        self._files: set[str] = set()
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def begin(self) -> None:
        """Forget what was noted, and note from here on."""
        self._files.clear()
        self._on = True

    def end(self) -> list[str]:
        """The files since `begin`."""
        self._on = False
        return sorted(name.removeprefix(self._start) for name in self._files)

    def of(self, work: Callable[[], object]) -> list[str]:
        """The files of work that has been done a few times before, so that nothing is made for the first time."""
        for _ in range(WARM):
            work()
        self.begin()
        for _ in range(CALLS):
            work()
        return self.end()

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if self._on and event == "call":
            code = frame.f_code
            name = code.co_filename
            is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)  # which bodies of modules and classes are not
            if is_function and name.startswith(self._start) and f"{os.sep}{GENERATED}{os.sep}" not in name:
                self._files.add(name)


def record(packages: Path, artifact: Path, bars_file: Path) -> dict[str, list[str]]:
    """The files of a prediction and an explanation here, a prediction over gRPC, and a window of a training."""
    recorder = Recorder(packages)
    from predictor import BarPanel, Forecaster

    bars = BarPanel.read(bars_file).select(["AAPL"]).last(SESSIONS)
    with Forecaster.load(artifact, device="cpu") as forecaster:
        return {
            "predict": recorder.of(lambda: forecaster.predict(bars)),
            "explain": recorder.of(lambda: forecaster.feature_importance(bars)),
            "served": served_files(packages, artifact, bars_file),
            "window": window_files(recorder),
        }


def window_files(recorder: Recorder) -> list[str]:
    """Of one window of a training with one batch a window, after the first ones and before the last."""
    import torch

    from trainers.loop import Loop, Loss, Phase, ResidentSource, adamw

    network = torch.nn.Linear(3, 1)

    def loss(batch: torch.Tensor) -> Loss:
        return Loss(network(batch).square().mean(), len(batch))

    phase = Phase[torch.Tensor]("fit", loss, network.parameters(), adamw(network.parameters(), lr=0.01))
    source = ResidentSource[torch.Tensor].of(torch.ones(40, 3), batch_size=4)
    with Loop([phase], modules={"network": network}, device="cpu").running() as run:
        reports = run.epochs(source, max_epochs=1)
        for _ in range(WARM):
            next(reports)
        recorder.begin()
        next(reports)
        return recorder.end()


def served_files(packages: Path, artifact: Path, bars_file: Path) -> list[str]:
    """Of predictions over gRPC, on the server's side."""
    from predictor import BarPanel
    from predictor.client import QuantraClient

    bars = BarPanel.read(bars_file).select(["AAPL"]).last(SESSIONS)
    with _server(packages, artifact.parents[1]) as (commands, lines):
        address = f"127.0.0.1:{json.loads(next(lines))['port']}"
        with QuantraClient(address, model=artifact.parent.name) as client:
            for _ in range(WARM):
                client.predict(bars)
            print(BEGIN, file=commands, flush=True)
            next(lines)
            for _ in range(CALLS):
                client.predict(bars)
            print("end", file=commands, flush=True)
            return json.loads(next(lines))


@contextmanager
def _server(packages: Path, models: Path) -> Generator[tuple[IO[str], Iterator[str]]]:
    """Its input and the lines that it prints."""
    command = [sys.executable, "-m", "benchmarks.structure.recording", "--serve", str(packages), str(models)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdin, process.stdout
        finally:
            process.terminate()


def serve(packages: Path, models: Path) -> None:
    """`python -m predictor.server`, and beside it a thread that hears when to begin and to end."""
    recorder = Recorder(packages)
    threading.Thread(target=_obey, args=(recorder,), daemon=True).start()
    sys.argv = ["predictor.server", "--models", str(models), "--listen", "127.0.0.1:0", "--log-level", "error"]
    runpy.run_module("predictor.server", run_name="__main__", alter_sys=True)


def _obey(recorder: Recorder) -> None:
    for line in sys.stdin:
        if line.strip() == BEGIN:
            recorder.begin()
            print("recording", flush=True)
        else:
            print(json.dumps(recorder.end()), flush=True)


def main() -> int:
    """Serve, or print what was recorded."""
    match [Path(argument) for argument in sys.argv[1:]]:
        case [Path(name="--serve"), packages, models]:
            serve(packages, models)
        case [packages, artifact, bars_file]:
            print(json.dumps(record(packages, artifact, bars_file)))
        case given:
            raise SystemExit(f"wants PACKAGES MODEL BARS, has {given}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

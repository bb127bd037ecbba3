"""Training of one model at a time, by `quantra train stock` in a separate process."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, final

from predictor import artifact
from predictor.bars import ReadingOptions
from predictor.durations import format_duration
from predictor.errors import ConfigurationError, QuantraError

BEST: Final = "best"
"""As `trainers.stock.ensembles.member_training.BEST`, which takes half a second to import."""
KINDS: Final[Mapping[str, str]] = {
    BEST: "several kinds, combined into one model",
    "har": "a regression on past volatility, seconds",
    "trees": "forests of decision trees, seconds to minutes",
    "lstm": "a recurrent network, minutes",
    "tft": "a transformer, many minutes",
}
"""The kinds that the page trains, with what each costs."""
QUANTRA: Final = (sys.executable, "-m", "quantra")
MAX_MINUTES: Final = 24 * 60
STOP_S: Final = 20.0
"""Seconds in which a training run writes its last checkpoint when the server stops."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_WARNINGS: Final = 20
_MAX_SHOWN_CHARACTERS: Final = 300


class TrainingPhase(StrEnum):
    """Where a training run is."""

    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    FINISHED = "finished"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """What to train, from which files."""

    name: str
    kind: str
    minutes: int
    """Budget of the kind `best`."""
    options: ReadingOptions
    calendar: str

    def __post_init__(self) -> None:
        """Reject names that are not folders of models, and unknown kinds."""
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"{self.name[:70]!r} is not a name of a model; use up to 64 letters, digits, dots, dashes and "
                "underscores, and begin with a letter or a digit"
            )
        if self.kind not in KINDS:
            raise ConfigurationError(f"{self.kind[:20]!r} is not a kind that is trained here; use {', '.join(KINDS)}")
        if not 1 <= self.minutes <= MAX_MINUTES:
            raise ConfigurationError(f"the budget is {self.minutes} minutes; give 1 to {MAX_MINUTES}")

    def words(self, models: Path, bars: Sequence[Path]) -> list[str]:
        """The words after `quantra`; the command continues a training run that was stopped."""
        files = [word for path in bars for word in ("--bars", str(path))]
        options = {
            "layout": self.options.layout,
            "date-order": self.options.date_order,
            "time-zone": self.options.time_zone,
            "decimal": self.options.decimal,
            "volume-unit": self.options.volume_unit,
            "calendar": self.calendar,
            "budget": f"{self.minutes}m" if self.kind == BEST else "",
        }
        flags = [word for name, value in options.items() if value for word in (f"--{name}", str(value))]
        out = models / self.name / "1"
        output_flags = ("--model", self.kind, "--out", str(out), "--resume", "--parent-watch", "--json")
        return ["train", "stock", *files, *flags, *output_flags]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTraining:
    """How far a training run is. Immutable; each line of the process makes a new one."""

    request: TrainingRequest
    phase: TrainingPhase = TrainingPhase.RUNNING
    stage: str = "Starting"
    epoch: int = 0
    """Counted from 1; 0 outside of epochs."""
    epochs: int = 0
    share: float = 0.0
    """Finished share of all epochs."""
    loss: float | None = None
    selection: float | None = None
    """Loss on the selection part after the last epoch."""
    left_s: float | None = None
    """Most seconds until the last epoch ends; a training run may stop earlier."""
    warnings: tuple[str, ...] = ()
    message: str = ""
    """Why it failed, or what the new model is worth."""

    @property
    def is_active(self) -> bool:
        """Whether the process runs."""
        return self.phase in {TrainingPhase.RUNNING, TrainingPhase.STOPPING}

    @property
    def reference(self) -> str:
        """The version that it makes."""
        return f"{self.request.name}@1"

    @property
    def numbers(self) -> str:
        """The losses and the time left, as text; empty outside of epochs."""
        if not self.epoch:
            return ""
        parts = [f"epoch {self.epoch} of at most {self.epochs}"]
        parts += [] if self.loss is None else [f"loss {self.loss:.4f}"]
        parts += [] if self.selection is None else [f"selection loss {self.selection:.4f}"]
        parts += [] if self.left_s is None else [f"at most {format_duration(self.left_s)} left"]
        return ", ".join(parts)

    def as_json(self) -> Mapping[str, Any]:
        """What the page shows while it waits."""
        return {"phase": self.phase, "stage": self.stage, "numbers": self.numbers, "share": self.share}


@final
@dataclass(slots=True)
class _EpochClock:
    """The time left of a training run, by the rate of its windows since the first one."""

    first: float | None = None
    started_s: float = 0.0

    def left_s(self, share: float) -> float | None:
        """Seconds until the whole is done; None before there is a rate."""
        if self.first is None:
            self.first, self.started_s = share, time.monotonic()
        progress = share - self.first
        return (1.0 - share) / progress * (time.monotonic() - self.started_s) if progress > 0 else None


@final
class ModelTraining:
    """Runs one training at a time, and remembers the last one. Thread-safe.

    The process ends with this one: it stops as soon as its standard input closes. `describe` serves a finished version,
    and returns what it is worth; it raises QuantraError if it cannot be served.
    """

    def __init__(self, models: Path, describe: Callable[[str], str], program: Sequence[str] = QUANTRA) -> None:
        self._models, self._describe, self._program = models, describe, program
        self._lock = threading.Lock()
        self._state: ShownTraining | None = None
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._bars: TemporaryDirectory[str] | None = None
        self._is_closed = False

    @property
    def state(self) -> ShownTraining | None:
        """The state of the last training; None if there was none."""
        return self._state

    def start(self, request: TrainingRequest, copy_bars: Callable[[Path], None]) -> None:
        """Start a training run on a copy of the bars, which `copy_bars` writes into a folder.

        Raises:
            ConfigurationError: Another one runs, or the model exists.
        """
        with self._lock:
            self._check_free()
            if artifact.find_next_version(self._models / request.name).name != "1":
                raise ConfigurationError(
                    f"there is a model {request.name} already; choose another name, or make its next version: "
                    f"quantra retrain {request.name} --models {self._models} --bars bars.csv"
                )
            self._forget_bars()
            self._bars = TemporaryDirectory(prefix="quantra-training-")
            copy_bars(Path(self._bars.name))
            self._launch(request)

    def resume(self) -> None:
        """Continue the training that was stopped or that failed, from its last checkpoint.

        Raises:
            ConfigurationError: Another one runs, or there is none.
        """
        with self._lock:
            self._check_free()
            if self._bars is None or self._state is None:
                raise ConfigurationError("no training was stopped; start one")
            self._launch(self._state.request)

    def stop(self) -> None:
        """Ask the training to write a checkpoint and end; does nothing if none runs."""
        with self._lock:
            if self._process is None or self._state is None or not self._state.is_active:
                return
            self._state = replace(self._state, phase=TrainingPhase.STOPPING)
            assert self._process.stdin is not None  # noqa: S101 - a pipe
            self._process.stdin.close()

    def close(self) -> None:
        """Stop the training, kill it if it does not end, and delete its copy of the bars."""
        self._is_closed = True
        self.stop()
        if self._process is not None and self._reader is not None:
            self._reader.join(STOP_S)
            self._process.kill()
            self._reader.join()
        self._forget_bars()

    def _check_free(self) -> None:
        if self._is_closed:
            raise ConfigurationError("the server is stopping; start it again")
        if self._state is not None and self._state.is_active:
            raise ConfigurationError(
                f"{self._state.request.name} is being trained, and one training runs at a time; stop it, or wait"
            )

    def _forget_bars(self) -> None:
        if self._bars is not None:
            self._bars.cleanup()
            self._bars = None

    def _launch(self, request: TrainingRequest) -> None:
        assert self._bars is not None  # noqa: S101 - copied before
        bars = sorted(Path(self._bars.name).iterdir())
        self._process = subprocess.Popen(  # noqa: S603 - no shell, and checked values
            [*self._program, *request.words(self._models, bars)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # the last line that is not JSON explains an end without an error
            text=True,
            encoding="utf-8",
            start_new_session=os.name == "posix",  # Ctrl+C reaches it through this process only
        )
        self._state = ShownTraining(request=request)
        self._reader = threading.Thread(target=self._follow, args=(self._process,), name="training", daemon=True)
        self._reader.start()

    def _follow(self, process: "subprocess.Popen[str]") -> None:
        """Read the lines of the process until it ends."""
        assert process.stdin is not None  # noqa: S101 - a pipe
        assert process.stdout is not None  # noqa: S101 - as above
        clock, printed = _EpochClock(), "it printed nothing"
        with process.stdout as lines:
            for line in lines:
                try:
                    report = json.loads(line)
                except ValueError:
                    printed = line.strip() or printed
                    continue
                with self._lock:
                    self._state = _advance(self._last_state, report, clock)
        code = process.wait()
        process.stdin.close()
        self._end(code, printed)

    @property
    def _last_state(self) -> ShownTraining:
        assert self._state is not None  # noqa: S101 - a process was started
        return self._state

    def _end(self, code: int, printed: str) -> None:
        """Note how the training ended; `printed` is the last line that it wrote for people."""
        state = self._last_state
        if code == 0:
            try:
                end_state = replace(
                    state, phase=TrainingPhase.FINISHED, message=self._describe(state.reference), epoch=0, share=1.0
                )
            except QuantraError as error:
                end_state = replace(state, phase=TrainingPhase.FAILED, message=error.message)
        elif state.phase is TrainingPhase.STOPPING and not state.message:
            end_state = replace(state, phase=TrainingPhase.STOPPED)
        else:
            why = state.message or f"the training process ended with code {code}: {printed[:_MAX_SHOWN_CHARACTERS]}"
            if self._bars is not None:  # names of files in place of their temporary paths
                why = why.replace(f"{self._bars.name}{os.sep}", "")
            end_state = replace(state, phase=TrainingPhase.FAILED, message=why)
        with self._lock:
            self._state = end_state
            if end_state.phase is TrainingPhase.FINISHED:
                self._forget_bars()


def _advance(state: ShownTraining, report: Mapping[str, Any], clock: _EpochClock) -> ShownTraining:
    """The state after one line of `quantra train stock --json`."""
    match report:
        case {"kind": "stage", "stage": str(stage)}:
            clock.first = None
            return replace(state, stage=stage[:1].upper() + stage[1:], epoch=0, loss=None, selection=None, left_s=None)
        case {"kind": "warning", "warning": str(warning)}:
            return replace(state, warnings=(*state.warnings, warning)[:_MAX_WARNINGS])
        case {
            "kind": "window",
            "epoch": int(epoch),
            "epochs": int(epochs),
            "window": int(window),
            "windows": int(windows),
        }:
            share = (epoch + (window + 1) / windows) / epochs
            left_s = clock.left_s(share)
            return replace(state, epoch=epoch + 1, epochs=epochs, share=share, loss=report.get("loss"), left_s=left_s)
        case {"kind": "epoch", "validation": {"mean": float(selection)}}:
            return replace(state, selection=selection)
        case {"kind": "stopped"}:
            return replace(state, phase=TrainingPhase.STOPPING)
        case {"error": {"message": str(message)}}:
            return replace(state, message=message)
        case _:
            return state

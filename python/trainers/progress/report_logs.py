"""Logs of reports: lines of JSON on a stream or in a file, and curves for TensorBoard."""

import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import fields, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, final

from trainers.loop import (
    CheckpointReport,
    EpochReport,
    Report,
    SettingsError,
    StepReport,
    TrainingNotice,
    ValidationReport,
)

KINDS: Mapping[type, str] = {
    StepReport: "window",
    EpochReport: "epoch",
    CheckpointReport: "checkpoint",
    TrainingNotice: "notice",
    ValidationReport: "validation",
}

LogPosition = tuple[int, float]
"""Epoch and window, both counted from 0; infinity means after the last window of the epoch."""


def as_json(report: Report | ValidationReport) -> str:
    """The report as one line of JSON.

    Its fields are `kind` (`window`, `epoch`, `checkpoint`, `notice` or `validation`) and the report's. Numbers that are
    not finite are null.
    """
    return json.dumps({"kind": KINDS[type(report)], **_replace_non_finite(report)}, allow_nan=False)


@final
class JsonLines:
    """Writes one JSON object per report to a stream, and flushes it at once."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, report: Report | ValidationReport) -> None:
        """Write one report."""
        self._stream.write(as_json(report) + "\n")
        self._stream.flush()

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Write every report, then pass it on."""
        for report in reports:
            self.write(report)
            yield report


def _write_each(reports: Iterable[Report], write: Callable[[Report], None], problem: str) -> Iterator[Report]:
    """Write every report, then pass it on; a failed write becomes a notice, and later reports are not written."""
    passing = iter(reports)
    for report in passing:
        try:
            write(report)
        except OSError as error:
            yield TrainingNotice(message=f"{problem}: {error.strerror}; training continues")
            yield report
            break
        yield report
    yield from passing


def _replace_non_finite(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _replace_non_finite(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: _replace_non_finite(part) for name, part in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@final
class JsonlLog:
    """Appends one JSON object per report to a file, which a resumed training continues.

    A resumed training repeats the windows after its last checkpoint. So the first window or epoch that it reports
    removes the older lines of that position and later, and the log holds each window once. A training run that starts
    over removes all lines; otherwise older notices stay. Incomplete and damaged lines are dropped.

    Args:
        path: The file; its folder is created by the first report.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Write every report, then pass it on.

        Raises:
            OSError: The file cannot be opened. If a later write fails, such as on a full disk, the consumer emits a
                notice and passes further reports on without writing them.
        """
        with closing(_OpenLog(self._path)) as log:
            yield from _write_each(reports, log.add, f"{self._path} can no longer be written")


@final
class _OpenLog:
    """The open log, written without a buffer so that a full disk raises at once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._older = drop_torn_line(path)
        self._file = path.open("ab", buffering=0)

    def add(self, report: Report) -> None:
        """Write a report; the first window or epoch removes the older lines of its position and later."""
        if self._older and isinstance(report, StepReport | EpochReport):
            remove_reports(self._path, self._older, locate_report(report))
            self._older = 0
            self._file.close()
            self._file = self._path.open("ab", buffering=0)
        line = f"{as_json(report)}\n".encode()
        while line:  # an almost full disk accepts a part
            line = line[self._file.write(line) :]

    def close(self) -> None:
        self._file.close()


def locate_report(report: StepReport | EpochReport) -> LogPosition:
    """The epoch and window of a report."""
    return report.epoch, math.inf if isinstance(report, EpochReport) else report.window


def drop_torn_line(path: Path) -> int:
    """Remove an incomplete last line.

    Returns:
        The bytes that remain; 0 if the file does not exist.
    """
    if not path.exists():
        return 0
    with path.open("r+b") as stream:
        whole = sum(len(line) for line in stream if line.endswith(b"\n"))
        stream.truncate(whole)
    return whole


def remove_reports(path: Path, older: int, position: LogPosition) -> None:
    """Rewrite a log atomically, without its reports of `position` and later.

    Args:
        path: The log.
        older: Bytes at the start to filter, whole lines; the rest stays.
        position: First epoch and window to remove.
    """
    rewritten = path.with_name(f"{path.name}.tmp")
    try:
        with path.open("rb") as log, rewritten.open("wb") as kept:
            while log.tell() < older:
                line = log.readline()
                if _is_earlier(line, position):
                    kept.write(line)
            shutil.copyfileobj(log, kept)
            kept.flush()
            os.fsync(kept.fileno())
        rewritten.replace(path)
    finally:
        rewritten.unlink(missing_ok=True)  # after a failure, such as a full disk


def _is_earlier(line: bytes, position: LogPosition) -> bool:
    if position <= (0, 0):
        return False
    try:
        logged = json.loads(line)
    except ValueError:  # damaged, for example by a power cut
        return False
    match logged:
        case {"kind": "window", "epoch": int(epoch), "window": int(window)}:
            return (epoch, window) < position
        case {"kind": "epoch", "epoch": int(epoch)}:
            return epoch < position[0]
        case {"kind": "checkpoint", "epoch": int(epoch), "window": int(window)}:
            return (epoch, window) <= position  # it counts the windows before it, and may be the one that was resumed
        case _:
            return True


FLUSH_SECONDS = 10


@final
class TensorBoardLog:
    """Writes scalars for `tensorboard --logdir FOLDER`. Needs the extra `tensorboard`.

    `windows/PHASE` has one point per step: loss, its parts, gradient norm, learning rate and loss scale. A skipped
    window takes no step and has none. `epochs` has one point per epoch, at the number of epochs done: every phase's
    loss and skipped windows, the validation and its parts. Numbers that are not finite are left out.

    Each of these folders has its own steps, so that a resumed training hides exactly the points that it repeats.

    Args:
        folder: Where to write; created by the first report.

    Raises:
        SettingsError: The package tensorboard is not installed.
    """

    def __init__(self, folder: Path) -> None:
        if find_spec("tensorboard") is None:
            raise SettingsError(
                "a log for TensorBoard needs the package tensorboard: pip install 'quantra[tensorboard]'"
            )
        self._folder = folder

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Write the numbers of every report, then pass it on.

        If a write fails, such as on a full disk, emit a notice, and pass further reports on without writing them.
        """
        curves = _Curves(self._folder)
        with ExitStack() as stack:
            stack.callback(curves.close)

            def write(report: Report) -> None:
                try:
                    curves.add(report)
                except OSError:
                    stack.pop_all()  # closing would write and fail again
                    raise

            yield from _write_each(reports, write, f"no more curves can be written to {self._folder}")


@final
class _Curves:
    """The curves of every phase by step, and those of the epochs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._epochs = _Points(folder / "epochs")
        self._phases: dict[str, _Points] = {}

    def add(self, report: Report) -> None:
        if isinstance(report, StepReport):
            if report.stepped:
                points = self._phases.setdefault(report.phase, _Points(self._folder / "windows" / report.phase))
                numbers = {"loss": report.loss, "grad_norm": report.grad_norm, "learning_rate": report.learning_rate}
                scale = {} if report.loss_scale is None else {"loss_scale": report.loss_scale}
                points.add(report.step, numbers | _prefix_names("parts", report.parts) | scale)
            return
        if isinstance(report, EpochReport):
            numbers = _prefix_names("loss", {name: totals.loss for name, totals in report.phases.items()})
            numbers |= _prefix_names("skipped", {name: float(totals.skipped) for name, totals in report.phases.items()})
            if report.validation is not None:
                numbers |= {"validation": report.validation.mean} | _prefix_names("validation", report.validation.parts)
            self._epochs.add(report.epoch + 1, numbers)
        # At least with a checkpoint: a resumed training does not repeat what came before it.
        for points in (self._epochs, *self._phases.values()):
            points.flush()

    def close(self) -> None:
        for points in (self._epochs, *self._phases.values()):
            points.close()


@final
class _Points:
    """Points in one folder; the first hides points of an earlier training at its step and later."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self._folder), purge_step=step, flush_secs=FLUSH_SECONDS)
        for name, number in numbers.items():
            if math.isfinite(number):
                self._writer.add_scalar(name, number, step)

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _prefix_names(group: str, numbers: Mapping[str, float]) -> dict[str, float]:
    return {f"{group}/{name}": number for name, number in numbers.items()}

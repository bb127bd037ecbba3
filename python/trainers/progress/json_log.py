"""Reports as lines of JSON, on a stream or in a log file."""

import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import IO, Any, final

from trainers.loop import CheckpointReport, EpochReport, Report, StepReport, TrainingNotice, ValidationReport

KINDS: Mapping[type, str] = {
    StepReport: "window",
    EpochReport: "epoch",
    CheckpointReport: "checkpoint",
    TrainingNotice: "notice",
    ValidationReport: "validation",
}

Place = tuple[int, float]
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
    removes the older lines of that place and later, and the log holds each window once. A training run that starts over
    removes all lines; otherwise older notices stay. Incomplete and damaged lines are dropped.

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
            passing = iter(reports)
            for report in passing:
                try:
                    log.add(report)
                except OSError as error:
                    problem = f"{self._path} can no longer be written: {error.strerror}"
                    yield TrainingNotice(message=f"{problem}; training continues")
                    yield report
                    break
                yield report
            yield from passing


@final
class _OpenLog:
    """The open log, written without a buffer so that a full disk raises at once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._older = drop_torn_line(path)
        self._file = path.open("ab", buffering=0)

    def add(self, report: Report) -> None:
        """Write a report; the first window or epoch removes the older lines of its place and later."""
        if self._older and isinstance(report, StepReport | EpochReport):
            remove_reports(self._path, self._older, place_of(report))
            self._older = 0
            self._file.close()
            self._file = self._path.open("ab", buffering=0)
        line = f"{as_json(report)}\n".encode()
        while line:  # an almost full disk accepts a part
            line = line[self._file.write(line) :]

    def close(self) -> None:
        self._file.close()


def place_of(report: StepReport | EpochReport) -> Place:
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


def remove_reports(path: Path, older: int, place: Place) -> None:
    """Rewrite a log atomically, without its reports of `place` and later.

    Args:
        path: The log.
        older: Bytes at the start to filter, whole lines; the rest stays.
        place: First epoch and window to remove.
    """
    rewritten = path.with_name(f"{path.name}.tmp")
    try:
        with path.open("rb") as log, rewritten.open("wb") as kept:
            while log.tell() < older:
                line = log.readline()
                if _is_earlier(line, place):
                    kept.write(line)
            shutil.copyfileobj(log, kept)
            kept.flush()
            os.fsync(kept.fileno())
        rewritten.replace(path)
    finally:
        rewritten.unlink(missing_ok=True)  # after a failure, such as a full disk


def _is_earlier(line: bytes, place: Place) -> bool:
    if place <= (0, 0):
        return False
    try:
        logged = json.loads(line)
    except ValueError:  # damaged, for example by a power cut
        return False
    match logged:
        case {"kind": "window", "epoch": int(epoch), "window": int(window)}:
            return (epoch, window) < place
        case {"kind": "epoch", "epoch": int(epoch)}:
            return epoch < place[0]
        case {"kind": "checkpoint", "epoch": int(epoch), "window": int(window)}:
            return (epoch, window) <= place  # it counts the windows before it, and may be the one that was resumed
        case _:
            return True

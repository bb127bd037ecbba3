"""Reports as lines of JSON, for programs, and the log file, which is the same after an interruption as without one."""

import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import IO, Any, final

from trainers.loop import CheckpointReport, EpochReport, Report, TrainingNotice, ValidationReport, WindowReport

KINDS: Mapping[type, str] = {
    WindowReport: "window",
    EpochReport: "epoch",
    CheckpointReport: "checkpoint",
    TrainingNotice: "notice",
    ValidationReport: "validation",
}

Place = tuple[int, float]
"""Epoch and window, both counted from 0; infinity means after the last window of the epoch."""


def as_json(report: Report | ValidationReport) -> str:
    """The report as one line of JSON.

    Its fields are the report's, preceded by `kind`: `window`, `epoch`, `checkpoint`, `notice` or `validation`. Numbers
    that are not finite, which JSON does not know, are null.
    """
    return json.dumps({"kind": KINDS[type(report)], **_plain(report)}, allow_nan=False)


@final
class JsonLines:
    """Writes one JSON object per report to a stream, at once, as programs that watch a training want it."""

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


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@final
class JsonlLog:
    """Appends one JSON object per report to a file, so that a resumed training goes on in the same log.

    A training that was killed has reported more than its last checkpoint holds, and a resumed one repeats that part.
    So the first window or epoch that is reported takes its own place and all that follow out of the older lines:
    each window is in the log once. A training that starts again removes everything. Otherwise older notices
    stay, because they happened. A last line that a kill tore is dropped, and so is a damaged one among the older.

    Args:
        path: The file; its folder is made when the first report comes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Write every report, then pass it on.

        Raises:
            OSError: The file cannot be opened. Where it cannot be written later, because the disk is full, say, a
                notice says so, and the reports go on without it.
        """
        with closing(_OpenLog(self._path)) as log:
            passing = iter(reports)
            for report in passing:
                try:
                    log.add(report)
                except OSError as error:
                    problem = f"{self._path} can no longer be written: {error.strerror}"
                    yield TrainingNotice(message=f"{problem}; training goes on")
                    yield report
                    break
                yield report
            yield from passing


@final
class _OpenLog:
    """The file while it is written; nothing waits in a buffer that a full disk could hold back."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._older = drop_torn_line(path)
        self._file = path.open("ab", buffering=0)

    def add(self, report: Report) -> None:
        """Write a report; the first window or epoch takes older lines of it and of what follows out."""
        if self._older and isinstance(report, WindowReport | EpochReport):
            take_out(self._path, self._older, place_of(report))
            self._older = 0
            self._file.close()
            self._file = self._path.open("ab", buffering=0)
        line = f"{as_json(report)}\n".encode()
        while line:  # a disk that is almost full takes a part
            line = line[self._file.write(line) :]

    def close(self) -> None:
        self._file.close()


def place_of(report: WindowReport | EpochReport) -> Place:
    """Where the training is at this report."""
    return report.epoch, math.inf if isinstance(report, EpochReport) else report.window


def drop_torn_line(path: Path) -> int:
    """Cut off a last line that has no end.

    Returns:
        The bytes that are left; 0 if there is no file.
    """
    if not path.exists():
        return 0
    with path.open("r+b") as stream:
        whole = sum(len(line) for line in stream if line.endswith(b"\n"))
        stream.truncate(whole)
    return whole


def take_out(path: Path, older: int, place: Place) -> None:
    """Rewrite a log without what it says of `place` and later, in one step that a kill cannot halve.

    Args:
        path: The log.
        older: Its first so many bytes are looked through, whole lines; what follows stays.
        place: The place.
    """
    rewritten = path.with_name(f"{path.name}.tmp")
    try:
        with path.open("rb") as log, rewritten.open("wb") as kept:
            while log.tell() < older:
                line = log.readline()
                if _stays(line, place):
                    kept.write(line)
            shutil.copyfileobj(log, kept)
            kept.flush()
            os.fsync(kept.fileno())
        rewritten.replace(path)
    finally:
        rewritten.unlink(missing_ok=True)  # where the disk is full


def _stays(line: bytes, place: Place) -> bool:
    if place <= (0, 0):
        return False
    try:
        logged = json.loads(line)
    except ValueError:  # damaged, as a power cut leaves it: no reader of the log could use it
        return False
    match logged:
        case {"kind": "window", "epoch": int(epoch), "window": int(window)}:
            return (epoch, window) < place
        case {"kind": "epoch", "epoch": int(epoch)}:
            return epoch < place[0]
        case {"kind": "checkpoint", "epoch": int(epoch), "window": int(window)}:
            return (epoch, window) <= place  # it counts the windows before it: this may be the one that was resumed
        case _:
            return True

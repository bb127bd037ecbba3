"""The log file of a training, which says the same whether the training was interrupted or not."""

import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import final

from trainers.loop import EpochReport, Report, WindowReport
from trainers.progress.lines import JsonLines

Place = tuple[int, float]
"""Epoch and window, both counted from 0; infinity stands behind the last window of the epoch."""


@final
class JsonlLog:
    """Appends one JSON object a report to a file, so that a resumed training goes on in the same log.

    A training that was killed has told more than its last checkpoint knows, and a resumed one does that part again.
    So the first window or epoch that is reported takes its own place and all that follow out of the older lines:
    each window stands in the log once. A training that starts anew takes everything out. Otherwise older notices
    stay, because they happened. A last line that a kill tore is dropped, and so is a damaged one among the older.

    Args:
        path: The file; its folder is made when the first report comes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Write every report, then hand it on."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        older = drop_torn_line(self._path)
        passing = iter(reports)
        first = None
        with self._path.open("a", encoding="utf-8") as stream:
            lines = JsonLines(stream)
            for report in passing:
                if isinstance(report, WindowReport | EpochReport):
                    first = report
                    break
                lines.write(report)
                yield report
        if first is None:
            return
        take_out(self._path, older, place_of(first))
        with self._path.open("a", encoding="utf-8") as stream:
            yield from JsonLines(stream)(chain([first], passing))


def place_of(report: WindowReport | EpochReport) -> Place:
    """Where the training stands with this report."""
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
    if not older:
        return
    rewritten = path.with_name(f"{path.name}.tmp")
    with path.open("rb") as log, rewritten.open("wb") as kept:
        while log.tell() < older:
            line = log.readline()
            if _stays(line, place):
                kept.write(line)
        shutil.copyfileobj(log, kept)
        kept.flush()
        os.fsync(kept.fileno())
    rewritten.replace(path)


def _stays(line: bytes, place: Place) -> bool:
    if place <= (0, 0):
        return False
    try:
        told = json.loads(line)
    except ValueError:  # damaged, as a power cut leaves it: no reader of the log could use it
        return False
    match told:
        case {"kind": "window", "epoch": int(epoch), "window": int(window)}:
            return (epoch, window) < place
        case {"kind": "epoch", "epoch": int(epoch)}:
            return epoch < place[0]
        case {"kind": "checkpoint", "epoch": int(epoch), "window": int(window)}:
            return (epoch, window) <= place  # it counts the windows before it: this may be the one that was resumed
        case _:
            return True

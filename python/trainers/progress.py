"""Consumers of the loop's reports: each takes reports, does its part, and hands them on.

for report in JsonlLog(path)(RichProgress(console)(run.epochs(train, max_epochs=50))):
...
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from time import perf_counter
from typing import IO, TYPE_CHECKING, Any, Protocol, final

from trainers.loop import EpochReport, Report, ValidationReport, WindowReport

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

KINDS: Mapping[type, str] = {WindowReport: "window", EpochReport: "epoch", ValidationReport: "validation"}


class Consumer(Protocol):
    """Takes reports and hands them on."""

    def __call__(self, reports: Iterable[Report]) -> Iterator[Report]:
        """The same reports, in the same order."""
        ...


def as_json(report: Report | ValidationReport) -> str:
    """The report as one line of JSON.

    Its fields are the report's, preceded by `kind`: `window`, `epoch` or `validation`. Numbers that are not finite,
    which JSON does not know, are null.
    """
    return json.dumps({"kind": KINDS[type(report)], **_plain(report)}, allow_nan=False)


@final
class JsonLines:
    """Writes one JSON object a report to a stream, at once, as programs that watch a training want it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, report: Report | ValidationReport) -> None:
        """Write one report."""
        self._stream.write(as_json(report) + "\n")
        self._stream.flush()

    def __call__(self, reports: Iterable[Report]) -> Iterator[Report]:
        """Write every report, then hand it on."""
        for report in reports:
            self.write(report)
            yield report


@final
class JsonlLog:
    """Appends one JSON object a report to a file, so that a resumed training goes on in the same log."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, reports: Iterable[Report]) -> Iterator[Report]:
        """Write every report, then hand it on."""
        with self._path.open("a", encoding="utf-8") as stream:
            yield from JsonLines(stream)(reports)


@final
class PlainProgress:
    """One line of text an epoch, for streams that are no terminal."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __call__(self, reports: Iterable[Report]) -> Iterator[Report]:
        """Write a line after every epoch; hand every report on."""
        for report in reports:
            if isinstance(report, EpochReport):
                self._stream.write(_epoch_line(report) + "\n")
                self._stream.flush()
            yield report


@final
class RichProgress:
    """A live bar: epoch, windows, loss, validation and windows a second. Needs the extra `cli`.

    Args:
        console: Where the bar is drawn.
    """

    def __init__(self, console: "Console") -> None:
        self._console = console

    def __call__(self, reports: Iterable[Report]) -> Iterator[Report]:
        """Draw while the reports pass; the bar stays as it is at the end."""
        with _rich_bar(self._console) as bar:
            task = bar.add_task("starting", total=None, state="")
            view = _View()
            for report in reports:
                view.see(report)
                bar.update(task, description=view.title, completed=view.window, total=view.windows, state=view.state)
                yield report


def progress_for(stream: IO[str]) -> Consumer:
    """A live bar if the stream is a terminal, plain lines if not."""
    if not stream.isatty():
        return PlainProgress(stream)
    from rich.console import Console

    return RichProgress(Console(file=stream))


@dataclass(slots=True)
class _View:
    """What the bar shows: the latest of every number."""

    title: str = "starting"
    window: int = 0
    windows: int | None = None
    loss: float = math.nan
    validation: float = math.nan
    speed: float = math.nan
    started: float = 0.0

    def see(self, report: Report) -> None:
        """Take the numbers of a report."""
        self.title = _title(report)
        if isinstance(report, EpochReport):
            self.loss = report.loss
            self.windows = self.window = report.windows
            self.validation = self.validation if report.validation is None else report.validation.mean
            self.started = 0.0
            return
        now = perf_counter()
        self.started = self.started or now - report.seconds - report.data_seconds
        self.window, self.windows = report.window + 1, report.windows
        self.speed = self.window / (now - self.started)
        self.loss = report.loss

    @property
    def state(self) -> str:
        """The numbers beside the bar."""
        shown = [f"loss {self.loss:.4f}"]
        if math.isfinite(self.validation):
            shown.append(f"validation {self.validation:.4f}")
        if math.isfinite(self.speed):
            shown.append(f"{self.speed:.0f} windows/s")
        return "  ".join(shown)


def _rich_bar(console: "Console") -> "Progress":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Column

    # In a narrow terminal the bar gives way, not the numbers: folded lines would leave debris when redrawn.
    return Progress(
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=None),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[state]}", table_column=Column(no_wrap=True)),
        console=console,
        expand=True,
    )


def _epoch_line(report: EpochReport) -> str:
    parts = [_title(report)]
    several = len(report.phases) > 1
    for name, phase in report.phases.items():
        label = f"{name} loss" if several else "loss"
        parts.append(f"{label} {phase.loss:.6g}" + (f" ({phase.skipped} skipped)" if phase.skipped else ""))
    if report.validation is not None:
        parts.append(f"validation {report.validation.mean:.6g}")
    parts.append(f"{report.windows} windows in {report.seconds:.1f} s")
    return "  ".join(parts)


def _title(report: Report) -> str:
    return f"epoch {report.epoch + 1}/{report.epochs}"


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

"""What a person at the screen sees: a live bar on a terminal, plain lines elsewhere."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from time import perf_counter
from typing import IO, TYPE_CHECKING, final

from trainers.loop import EpochReport, Report, WindowReport
from trainers.progress.consumer import Consumer, PlainProgress, duration, remark, title, waiting

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


@final
class RichProgress:
    """A live bar of the epoch's windows and their numbers; notices are shown above it. Needs the extra `cli`.

    Args:
        console: Where the bar is drawn.
    """

    def __init__(self, console: "Console") -> None:
        self._console = console

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Draw while the reports pass; the bar stays as it is at the end."""
        with _rich_bar(self._console) as bar:
            task = bar.add_task("starting", total=None, state="")
            view = _View()
            for report in reports:
                line = remark(report)
                if line is not None:
                    # As it is: a message may hold brackets and paths.
                    bar.console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
                view.see(report)
                bar.update(task, description=view.title, completed=view.window, total=view.windows, state=view.state)
                yield report


@dataclass(slots=True)
class _View:
    """What the bar shows: the latest of every number."""

    title: str = "starting"
    window: int = 0
    windows: int | None = None
    losses: dict[str, float] = field(default_factory=dict[str, float])
    validation: float | None = None
    micro: int | None = None
    pace: "_Pace | None" = None

    def see(self, report: Report) -> None:
        """Take the numbers of a report."""
        if isinstance(report, EpochReport):
            self.title = title(report)
            self.losses = {name: totals.loss for name, totals in report.phases.items()}
            self.windows = self.window = report.windows
            self.validation = self.validation if report.validation is None else report.validation.mean
            self.pace = None
        elif isinstance(report, WindowReport):
            self.title = title(report)
            self.losses[report.phase] = report.loss
            self.window, self.windows = report.window + 1, report.windows
            self.micro = report.micro
            self.pace = self.pace or _Pace(report)
            self.pace.see(report)

    @property
    def state(self) -> str:
        """The numbers next to the bar."""
        several = len(self.losses) > 1
        shown = [f"{name if several else 'loss'} {loss:.4f}" for name, loss in self.losses.items()]
        if self.validation is not None:
            shown.append(f"validation {self.validation:.4f}")
        if self.pace is not None:
            shown.extend(self.pace.rates())
        if self.micro is not None:
            shown.append(f"cut to {self.micro}")
        return "  ".join(shown)


@final
class _Pace:
    """How fast an epoch's windows come, from the first that was seen, which after a resume is not the first of all."""

    def __init__(self, first: WindowReport) -> None:
        self._started = perf_counter() - first.seconds - first.data_seconds
        self._before = self._latest = first.window - 1
        self._waited = 0.0
        self._seconds = math.nan
        self._ahead = self._later = 0

    def see(self, report: WindowReport) -> None:
        """Count a window, once however many phases report it."""
        self._seconds = perf_counter() - self._started
        self._ahead = 0 if report.windows is None else report.windows - report.window - 1
        self._later = 0 if report.windows is None else (report.epochs - report.epoch - 1) * report.windows
        if report.window != self._latest:
            self._latest = report.window
            self._waited += report.data_seconds

    def rates(self) -> Iterator[str]:
        """Steps per second, the time left if no epoch is spared, and the wait for data where it is notable."""
        rate = (self._latest - self._before) / self._seconds
        yield f"{rate:.0f} steps/s"
        if self._ahead + self._later:  # of all epochs; a training may stop early
            yield f"≤ {duration((self._ahead + self._later) / rate)} left"
        waited = waiting(self._waited / self._seconds)
        if waited is not None:
            yield waited


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


def progress_for(stream: IO[str]) -> Consumer:
    """A live bar if the stream is a terminal or a notebook that can draw one, plain lines if not."""
    if find_spec("rich") is None:
        return PlainProgress(stream)
    from rich.console import Console

    console = Console(file=stream)
    # In a notebook, rich redraws through a widget, and shows nothing before the end where there is none.
    draws = find_spec("ipywidgets") is not None if console.is_jupyter else stream.isatty()
    return RichProgress(console) if draws else PlainProgress(stream)

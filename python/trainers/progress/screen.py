"""Progress on the screen: a live bar on a terminal or in a notebook, else plain lines."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from time import perf_counter
from typing import IO, TYPE_CHECKING, Final, Protocol, TypeVar, final

from predictor.durations import format_duration
from trainers.loop import EpochReport, Report, StepReport
from trainers.progress.consumer import PlainProgress, ReportConsumer, format_waiting, remark, title

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn


_BAR_WIDTH: Final = 20
"""Characters, in a notebook."""

_REDRAWN_S: Final = 0.2
"""Seconds between updates of a notebook's line."""


@final
class RichProgress:
    """A live bar of the epoch's windows and their numbers; notices are shown above it. Needs the extra `cli`.

    Args:
        console: Where the bar is drawn.
    """

    def __init__(self, console: "Console") -> None:
        self._console = console

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Draw while the reports pass; the final bar stays."""
        with _make_rich_bar(self._console) as bar:
            task = bar.add_task("starting", total=None, state="")
            view = _BarContent()
            for report in reports:
                line = remark(report)
                if line is not None:
                    # No markup: a message may hold brackets and paths.
                    bar.console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
                view.see(report)
                bar.update(task, description=view.title, completed=view.window, total=view.windows, state=view.state)
                yield report


@final
class NotebookProgress:
    """A live line of text in a notebook's cell, with the epoch's windows and their numbers; it needs no widgets.

    Args:
        stream: The cell's output, for notices.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Write while the reports pass; the final line stays."""
        from IPython.display import DisplayHandle

        view, handle, next_at = _BarContent(), DisplayHandle(), 0.0
        handle.display(_wrap_text(view.title), raw=True)
        try:
            for report in reports:
                line = remark(report)
                if line is not None:
                    self._stream.write(f"{line}\n")
                view.see(report)
                if perf_counter() >= next_at:
                    handle.update(_wrap_text(view.line), raw=True)
                    next_at = perf_counter() + _REDRAWN_S
                yield report
        finally:
            handle.update(_wrap_text(view.line), raw=True)


def _wrap_text(line: str) -> dict[str, str]:
    return {"text/plain": line}


@dataclass(slots=True)
class _BarContent:
    """The latest numbers, which the bar shows."""

    title: str = "starting"
    window: int = 0
    windows: int | None = None
    losses: dict[str, float] = field(default_factory=dict[str, float])
    validation: float | None = None
    micro_batch_limit: int | None = None
    pace: "_WindowRate | None" = None

    def see(self, report: Report) -> None:
        """Take the numbers of a report."""
        if isinstance(report, EpochReport):
            self.title = title(report)
            self.losses = {name: totals.loss for name, totals in report.phases.items()}
            self.windows = self.window = report.windows
            self.validation = self.validation if report.validation is None else report.validation.mean
            self.pace = None
        elif isinstance(report, StepReport):
            self.title = title(report)
            self.losses[report.phase] = report.loss
            self.window, self.windows = report.window + 1, report.windows
            self.micro_batch_limit = report.micro_batch_limit
            self.pace = self.pace or _WindowRate(report)
            self.pace.see(report)

    @property
    def line(self) -> str:
        """Title, bar and numbers as text."""
        if not self.windows:
            return f"{self.title}  {self.state}".rstrip()
        full = _BAR_WIDTH * self.window // self.windows
        return f"{self.title} {'━' * full}{'┄' * (_BAR_WIDTH - full)} {self.window}/{self.windows} {self.state}"

    @property
    def state(self) -> str:
        """The numbers next to the bar."""
        several = len(self.losses) > 1
        shown = [f"{name if several else 'loss'} {loss:.4f}" for name, loss in self.losses.items()]
        if self.validation is not None:
            shown.append(f"validation {self.validation:.4f}")
        if self.pace is not None:
            shown.extend(self.pace.rates())
        if self.micro_batch_limit is not None:
            shown.append(f"cut to {self.micro_batch_limit}")
        return "  ".join(shown)


@final
class _WindowRate:
    """Rate of an epoch's windows since the first report, which after a resume is not the epoch's first window."""

    def __init__(self, first: StepReport) -> None:
        self._started = perf_counter() - first.seconds - first.data_seconds
        self._before = self._latest = first.window - 1
        self._waited = 0.0
        self._seconds = math.nan
        self._ahead = self._later = 0

    def see(self, report: StepReport) -> None:
        """Count a window once, even if several phases report it."""
        self._seconds = perf_counter() - self._started
        self._ahead = 0 if report.windows is None else report.windows - report.window - 1
        self._later = 0 if report.windows is None else (report.epochs - report.epoch - 1) * report.windows
        if report.window != self._latest:
            self._latest = report.window
            self._waited += report.data_seconds

    def rates(self) -> Iterator[str]:
        """Steps per second, the time left without early stopping, and a notable wait for data."""
        rate = (self._latest - self._before) / self._seconds
        yield f"{rate:.0f} steps/s"
        if self._ahead + self._later:  # of all epochs; early stopping may end it sooner
            yield f"≤ {format_duration((self._ahead + self._later) / rate)} left"
        waited = format_waiting(self._waited / self._seconds)
        if waited is not None:
            yield waited


def _make_rich_bar(console: "Console") -> "Progress":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Column

    # In a narrow terminal the bar shrinks, not the numbers: wrapped lines would not be redrawn cleanly.
    return Progress(
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=None),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[state]}", table_column=Column(no_wrap=True)),
        console=console,
        expand=True,
    )


def progress_for(stream: IO[str]) -> ReportConsumer:
    """A live bar for a notebook's cell or a terminal (with the extra `cli`), else plain lines."""
    if is_cell(stream):
        return NotebookProgress(stream)
    if find_spec("rich") is None or not stream.isatty():
        return PlainProgress(stream)
    from rich.console import Console

    return RichProgress(Console(file=stream))


def is_cell(stream: IO[str]) -> bool:
    """Whether the stream is the output of a notebook's cell, which wraps text itself."""
    if "ipykernel.iostream" not in sys.modules:
        return False
    from ipykernel.iostream import OutStream

    return isinstance(stream, OutStream)


MAX_LINES: Final = 20
"""Most lines per task without a terminal."""


StepT = TypeVar("StepT")


class StepProgress(Protocol):
    """Iterates over the steps of a task, and shows its progress."""

    def __call__(self, steps: Sequence[StepT], /, *, title: str, tell: Callable[[StepT], str]) -> Iterator[StepT]:
        """The same steps, in the same order.

        Args:
            steps: steps of similar duration.
            title: name of the task.
            tell: returns a step as text.
        """
        ...


def no_progress(steps: Sequence[StepT], /, *, title: str, tell: Callable[[StepT], str]) -> Iterator[StepT]:  # noqa: ARG001 - as others
    """Iterate without showing progress."""
    return iter(steps)


def progress_on(stream: IO[str]) -> StepProgress:
    """A live bar for a terminal, which needs the extra `cli`; else at most MAX_LINES lines."""
    return _OnABar(stream) if stream.isatty() else _InLines(stream)


@final
class _InLines:
    """Writes a line for each step, or for every n-th of more than MAX_LINES steps."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __call__(self, steps: Sequence[StepT], /, *, title: str, tell: Callable[[StepT], str]) -> Iterator[StepT]:
        every = -(-len(steps) // MAX_LINES)
        for count, step in enumerate(steps):
            if count % every == 0:
                self._stream.write(f"{title} {count + 1}/{len(steps)}  {tell(step)}\n")
                self._stream.flush()
            yield step


@final
class _OnABar:
    """A bar with the number of finished steps, the current step and the time left."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __call__(self, steps: Sequence[StepT], /, *, title: str, tell: Callable[[StepT], str]) -> Iterator[StepT]:
        with _make_bar(self._stream) as bar:
            task = bar.add_task(title, total=len(steps), state="")
            for step in steps:
                bar.update(task, state=tell(step))
                yield step
                bar.advance(task)


def show_finished(
    steps: Iterable[StepT], *, total: int, tell: Callable[[StepT], str], title: str, stream: IO[str]
) -> Iterator[StepT]:
    """Yield finished steps, such as those of other processes, and show each of them.

    Args:
        steps: finished steps.
        total: their number.
        tell: returns a step as text.
        title: name of the steps.
        stream: where they are shown.
    """
    if not stream.isatty():
        for count, step in enumerate(steps, start=1):
            stream.write(f"{title} {count}/{total}  {tell(step)}\n")
            stream.flush()
            yield step
        return
    from rich.progress import SpinnerColumn

    with _make_bar(stream, SpinnerColumn(finished_text=" "), stays=True) as bar:  # a step may take minutes
        task = bar.add_task(title, total=total, state="")
        for step in steps:
            bar.update(task, advance=1, state=tell(step))
            yield step


def _make_bar(stream: IO[str], *first: "ProgressColumn", stays: bool = False) -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    state = TextColumn("{task.fields[state]}", markup=False)
    return Progress(
        *first,
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        state,
        console=Console(file=stream),
        transient=not stays,
    )

"""Consumers of reports: chains, plain lines, and a live bar on a terminal or in a notebook."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from time import perf_counter
from typing import IO, TYPE_CHECKING, Final, Protocol, TypeVar, final

from predictor.durations import format_duration
from trainers.loop import CheckpointReport, EpochReport, PhaseTotals, Report, StepReport, TrainingNotice

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

NOTABLE_WAIT = 0.1
"""Share of the time above which waiting for data is shown."""

KIB = 1024
TIMES = {1: "once", 2: "twice"}


ReportConsumer = Callable[[Iterable[Report]], Iterator[Report]]
"""Takes reports and yields the same reports, in the same order."""


@final
class ConsumerChain:
    """Several consumers as one; without any, it only passes reports on.

    Args:
        consumers: In the order in which they see a report.
    """

    def __init__(self, consumers: Sequence[ReportConsumer] = ()) -> None:
        self._consumers = tuple(consumers)

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Pass every report through all consumers."""
        passing = iter(reports)
        for consumer in self._consumers:
            passing = consumer(passing)
        return passing


@final
class ReportCallback:
    """Calls a function with every report, then passes it on."""

    def __init__(self, call: Callable[[Report], object]) -> None:
        self._call = call

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Call the function with every report; its exception ends the training."""
        for report in reports:
            self._call(report)
            yield report


def format_epoch_number(report: StepReport | EpochReport) -> str:
    """The epoch, counted from 1."""
    return f"epoch {report.epoch + 1}/{report.epochs}"


def format_remark(report: Report) -> str | None:
    """The line for a notice or a failed checkpoint; None for other reports."""
    match report:
        case TrainingNotice():
            return f"! {report.message}"
        case CheckpointReport(problem=str(problem)):
            return f"! the checkpoint {report.folder} was not written; training continues: {problem}"
        case _:
            return None


def format_waiting(share: float) -> str | None:
    """The share of time spent waiting for data, 0 to 1, as text; None if it is small or unknown."""
    return f"{share:.0%} waiting for data" if share > NOTABLE_WAIT else None


def format_size(count: int) -> str:
    """A number of bytes in the largest unit that keeps it at 1 or more, but at least KiB."""
    if count < KIB**2:
        return f"{count / KIB:.0f} KiB"
    return f"{count / KIB**2:.0f} MiB" if count < KIB**3 else f"{count / KIB**3:.1f} GiB"


def format_times(count: int) -> str:
    """Once, twice, 3 times and so on."""
    return TIMES.get(count, f"{count} times")


@final
class PlainProgress:
    """Writes one line of text per epoch, notice and failed checkpoint."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Write lines, and pass every report on."""
        for report in reports:
            line = _format_epoch(report) if isinstance(report, EpochReport) else format_remark(report)
            if line is not None:
                self._stream.write(line + "\n")
                self._stream.flush()
            yield report


def _format_epoch(report: EpochReport) -> str:
    several = len(report.phases) > 1
    parts = [
        format_epoch_number(report),
        *(_format_phase(name if several else "", totals) for name, totals in report.phases.items()),
    ]
    if report.validation is not None:
        parts.append(f"validation {report.validation.mean:.6g}")
    parts.append(f"{report.windows} steps in {report.seconds:.1f} s")
    parts.extend(_list_pace(report))
    if report.peak_bytes is not None:
        parts.append(f"peak memory {format_size(report.peak_bytes)}")
    return "  ".join(parts)


def _format_phase(name: str, totals: PhaseTotals) -> str:
    problems: list[str] = []
    if totals.skipped:
        problems.append(f"{totals.skipped} skipped")
    if totals.zero_gradients:
        problems.append(f"{totals.zero_gradients} with zero gradients")
    if totals.shortages:
        problems.append(f"memory ran out {format_times(totals.shortages)}")
    text = f"{name} loss {totals.loss:.6g}".lstrip()
    return f"{text} ({', '.join(problems)})" if problems else text


def _list_pace(report: EpochReport) -> Iterator[str]:
    """Targets per second of the first phase, and the wait for data, without the time of the validation."""
    training = report.seconds - (0.0 if report.validation is None else report.validation.seconds)
    if training <= 0:  # too short for the clock
        return
    yield f"{next(iter(report.phases.values())).count / training:.0f} targets/s"
    waited = format_waiting(report.data_seconds / training)
    if waited is not None:
        yield waited


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
                line = format_remark(report)
                if line is not None:
                    # No markup: a message may hold brackets and paths.
                    bar.console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
                view.update(report)
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
                line = format_remark(report)
                if line is not None:
                    self._stream.write(f"{line}\n")
                view.update(report)
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

    def update(self, report: Report) -> None:
        """Take the numbers of a report."""
        if isinstance(report, EpochReport):
            self.title = format_epoch_number(report)
            self.losses = {name: totals.loss for name, totals in report.phases.items()}
            self.windows = self.window = report.windows
            self.validation = self.validation if report.validation is None else report.validation.mean
            self.pace = None
        elif isinstance(report, StepReport):
            self.title = format_epoch_number(report)
            self.losses[report.phase] = report.loss
            self.window, self.windows = report.window + 1, report.windows
            self.micro_batch_limit = report.micro_batch_limit
            self.pace = self.pace or _WindowRate(report)
            self.pace.update(report)

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
        texts = [f"{name if several else 'loss'} {loss:.4f}" for name, loss in self.losses.items()]
        if self.validation is not None:
            texts.append(f"validation {self.validation:.4f}")
        if self.pace is not None:
            texts.extend(self.pace.rates())
        if self.micro_batch_limit is not None:
            texts.append(f"cut to {self.micro_batch_limit}")
        return "  ".join(texts)


@final
class _WindowRate:
    """Rate of an epoch's windows since the first report, which after a resume is not the epoch's first window."""

    def __init__(self, first: StepReport) -> None:
        self._started = perf_counter() - first.seconds - first.data_seconds
        self._before = self._latest = first.window - 1
        self._waited = 0.0
        self._seconds = math.nan
        self._ahead = self._later = 0

    def update(self, report: StepReport) -> None:
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
    return _StepBar(stream) if stream.isatty() else _StepLines(stream)


@final
class _StepLines:
    """Writes a line for each step, or for every n-th of more than MAX_LINES steps."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __call__(self, steps: Sequence[StepT], /, *, title: str, tell: Callable[[StepT], str]) -> Iterator[StepT]:
        interval = -(-len(steps) // MAX_LINES)
        for count, step in enumerate(steps):
            if count % interval == 0:
                self._stream.write(f"{title} {count + 1}/{len(steps)}  {tell(step)}\n")
                self._stream.flush()
            yield step


@final
class _StepBar:
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

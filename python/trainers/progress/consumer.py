"""The protocol of report consumers, chains of them, and plain progress as text."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, final

from trainers.loop import CheckpointReport, EpochReport, PhaseTotals, Report, StepReport, TrainingNotice

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


def title(report: StepReport | EpochReport) -> str:
    """The epoch, counted from 1."""
    return f"epoch {report.epoch + 1}/{report.epochs}"


def remark(report: Report) -> str | None:
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


def times(count: int) -> str:
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
            line = _format_epoch(report) if isinstance(report, EpochReport) else remark(report)
            if line is not None:
                self._stream.write(line + "\n")
                self._stream.flush()
            yield report


def _format_epoch(report: EpochReport) -> str:
    several = len(report.phases) > 1
    parts = [title(report), *(_format_phase(name if several else "", totals) for name, totals in report.phases.items())]
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
        problems.append(f"memory ran out {times(totals.shortages)}")
    shown = f"{name} loss {totals.loss:.6g}".lstrip()
    return f"{shown} ({', '.join(problems)})" if problems else shown


def _list_pace(report: EpochReport) -> Iterator[str]:
    """Targets per second of the first phase, and the wait for data, without the time of the validation."""
    training = report.seconds - (0.0 if report.validation is None else report.validation.seconds)
    if training <= 0:  # too short for the clock
        return
    yield f"{next(iter(report.phases.values())).count / training:.0f} targets/s"
    waited = format_waiting(report.data_seconds / training)
    if waited is not None:
        yield waited

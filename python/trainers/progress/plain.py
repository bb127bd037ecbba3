"""Lines of text, for streams that are no terminal."""

from collections.abc import Iterable, Iterator
from typing import IO, final

from trainers.loop import EpochReport, PhaseTotals, Report
from trainers.progress.words import remark, size, times, title, waiting


@final
class PlainProgress:
    """One line of text an epoch, and one for whatever else a person should know."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Write a line where a report is worth one; hand every report on."""
        for report in reports:
            line = _epoch_line(report) if isinstance(report, EpochReport) else remark(report)
            if line is not None:
                self._stream.write(line + "\n")
                self._stream.flush()
            yield report


def _epoch_line(report: EpochReport) -> str:
    several = len(report.phases) > 1
    parts = [title(report), *(_phase(name if several else "", totals) for name, totals in report.phases.items())]
    if report.validation is not None:
        parts.append(f"validation {report.validation.mean:.6g}")
    parts.append(f"{report.windows} windows in {report.seconds:.1f} s")
    parts.extend(_pace(report))
    if report.peak_bytes is not None:
        parts.append(f"peak memory {size(report.peak_bytes)}")
    return "  ".join(parts)


def _phase(name: str, totals: PhaseTotals) -> str:
    troubles: list[str] = []
    if totals.skipped:
        troubles.append(f"{totals.skipped} skipped")
    if totals.zero_gradients:
        troubles.append(f"{totals.zero_gradients} without any gradient")
    if totals.shortages:
        troubles.append(f"memory ran out {times(totals.shortages)}")
    shown = f"{name} loss {totals.loss:.6g}".lstrip()
    return f"{shown} ({', '.join(troubles)})" if troubles else shown


def _pace(report: EpochReport) -> Iterator[str]:
    """Targets a second of the first phase, and the wait for data; of the time without the validation."""
    training = report.seconds - (0.0 if report.validation is None else report.validation.seconds)
    if training <= 0:  # too short for the clock
        return
    yield f"{next(iter(report.phases.values())).count / training:.0f} targets/s"
    waited = waiting(report.data_seconds / training)
    if waited is not None:
        yield waited

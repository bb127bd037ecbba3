"""What reports say in words, for people."""

from trainers.loop import CheckpointReport, EpochReport, Notice, Report, WindowReport

NOTABLE_WAIT = 0.1
"""Share of the time above which waiting for data is worth a word."""

KIB = 1024
TIMES = {1: "once", 2: "twice"}


def title(report: WindowReport | EpochReport) -> str:
    """The epoch, counted from 1 as people do."""
    return f"epoch {report.epoch + 1}/{report.epochs}"


def remark(report: Report) -> str | None:
    """The line that a report is worth by itself: a notice, or a checkpoint that failed; None for all others."""
    match report:
        case Notice():
            return f"! {report.message}"
        case CheckpointReport(problem=str(problem)):
            return f"! the checkpoint {report.folder} was not written, and training goes on: {problem}"
        case _:
            return None


def waiting(share: float) -> str | None:
    """How much of the time data was waited for, 0 to 1; None where it is little or unknown."""
    return f"{share:.0%} waiting for data" if share > NOTABLE_WAIT else None


def size(count: int) -> str:
    """A number of bytes in the largest unit that keeps it at 1 or more, KiB at least."""
    if count < KIB**2:
        return f"{count / KIB:.0f} KiB"
    return f"{count / KIB**2:.0f} MiB" if count < KIB**3 else f"{count / KIB**3:.1f} GiB"


def times(count: int) -> str:
    """Once, twice, 3 times and so on."""
    return TIMES.get(count, f"{count} times")

"""A profiler trace of some windows, to view in a browser."""

from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from trainers.loop.errors import SettingsError
from trainers.loop.reports import Report, StepReport, TrainingNotice

TRACE_NAME = "trace.json"


def profile_training(reports: Iterable[Report], folder: Path, *, skip: int = 5, windows: int = 10) -> Generator[Report]:
    """Yield every report, and trace some windows together with the caller's work between them.

    The trace is `trace.json` in the folder, for https://ui.perfetto.dev or chrome://tracing. It is written after
    its last window. If the reports end earlier, the caller stops or an error occurs, it holds the windows so far.

    Args:
        reports: The loop's reports; the loop trains while the caller waits for the next one.
        folder: Created if missing. In a group of processes, give every process its own.
        skip: Windows before the trace; the first are slow because they allocate memory and select kernels.
        windows: Largest number of windows to record.

    Returns:
        The reports and, after the last, a notice of the trace or of why it is missing.

    Raises:
        SettingsError: A number is out of range.
    """
    if skip < 0 or windows < 1:
        raise SettingsError(f"skip is {skip} and windows is {windows}; they must be at least 0 and 1")
    return _record(reports, folder / TRACE_NAME, skip=skip, windows=windows)


def _record(reports: Iterable[Report], path: Path, *, skip: int, windows: int) -> Generator[Report]:
    # There is one cycle, so `acc_events` changes nothing, but torch 2.11 would warn that it is not set.
    recording = profile(activities=_list_activities(), record_shapes=True, acc_events=True)
    seen = 0
    last: tuple[int, int] | None = None
    with ExitStack() as stack:
        if not skip:
            stack.enter_context(_recorded(recording, path))
        for report in reports:
            # A window counts at its first report, when all its phases are complete.
            if isinstance(report, StepReport) and (report.epoch, report.window) != last:
                last = (report.epoch, report.window)
                seen += 1
                if seen == skip:
                    stack.enter_context(_recorded(recording, path))
                elif seen == skip + windows:
                    stack.close()
            yield report
    yield _make_trace_notice(path, seen=seen, skip=skip, windows=windows)


@contextmanager
def _recorded(recording: profile, path: Path) -> Generator[None]:
    """Record inside the context, and write the trace at its end."""
    recording.start()
    try:
        yield
    finally:
        recording.stop()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        recording.export_chrome_trace(str(path))


def _make_trace_notice(path: Path, *, seen: int, skip: int, windows: int) -> TrainingNotice:
    """Return a notice on the recorded windows."""
    recorded = min(seen - skip, windows)
    if recorded <= 0:
        return TrainingNotice(
            message=f"too few windows for a trace: the run had {seen}, and the first {skip} are skipped; train longer "
            "or skip fewer"
        )
    if not path.exists():  # torch does not raise an error when it cannot write
        return TrainingNotice(message=f"the trace of {recorded} windows could not be written to {path}")
    return TrainingNotice(message=f"recorded {recorded} of {windows} windows in {path}")


def _list_activities() -> list[ProfilerActivity]:
    """Return the CPU activity, and that of the GPU if torch can record it."""
    gpus = [
        activity
        for activity, present in (
            (ProfilerActivity.CUDA, torch.cuda.is_available()),
            (ProfilerActivity.XPU, torch.xpu.is_available()),
        )
        if present
    ]
    return [ProfilerActivity.CPU, *gpus]

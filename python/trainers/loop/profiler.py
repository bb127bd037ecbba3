"""A profiler trace of some windows, to view in a browser."""

from collections.abc import Generator, Iterable
from pathlib import Path
from typing import final

import torch
from torch.profiler import ProfilerActivity, profile

from trainers.loop.errors import SettingsError
from trainers.loop.reports import Report, TrainingNotice, WindowReport

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
    return _recorded(reports, ProfilerTrace(folder / TRACE_NAME, skip=skip, windows=windows))


def _recorded(reports: Iterable[Report], trace: "ProfilerTrace") -> Generator[Report]:
    try:
        trace.begin()
        for report in reports:
            if isinstance(report, WindowReport):
                trace.add(report)
            yield report
        trace.finish()
        yield trace.notice()
    finally:
        trace.finish()


@final
class ProfilerTrace:
    """A trace of some windows, written once.

    Args:
        path: The file to write.
        skip: Windows before the trace.
        windows: Maximum number of windows in the trace.
    """

    def __init__(self, path: Path, *, skip: int, windows: int) -> None:
        self._path = path
        self._skip = skip
        self._windows = windows
        self._seen = 0
        self._last: tuple[int, int] | None = None
        self._recording: profile | None = None

    def begin(self) -> None:
        """Start now unless windows are to be skipped."""
        if not self._skip:
            self._start()

    def add(self, report: WindowReport) -> None:
        """Count a window at its first report, when all its phases are complete; start or finish if due."""
        if (report.epoch, report.window) == self._last:
            return
        self._last = (report.epoch, report.window)
        self._seen += 1
        if self._seen == self._skip:
            self._start()
        elif self._seen == self._skip + self._windows:
            self.finish()

    def finish(self) -> None:
        """Write the trace if it is being recorded."""
        if self._recording is None:
            return
        recording, self._recording = self._recording, None
        recording.stop()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        recording.export_chrome_trace(str(self._path))

    def notice(self) -> TrainingNotice:
        """Return a notice on the recorded windows."""
        recorded = min(self._seen - self._skip, self._windows)
        if recorded <= 0:
            return TrainingNotice(
                message=f"too few windows for a trace: the run had {self._seen}, and the first {self._skip} are "
                "skipped; train longer or skip fewer"
            )
        if not self._path.exists():  # torch does not raise an error when it cannot write
            return TrainingNotice(message=f"the trace of {recorded} windows could not be written to {self._path}")
        return TrainingNotice(message=f"recorded {recorded} of {self._windows} windows in {self._path}")

    def _start(self) -> None:
        # There is one cycle, so `acc_events` changes nothing, but torch 2.11 would warn that it is not set.
        self._recording = profile(activities=_list_activities(), record_shapes=True, acc_events=True)
        self._recording.start()


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

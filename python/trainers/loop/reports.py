"""The reports of a training run, the totals that they come from, and a profiler trace of some windows."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from signal import Signals
from typing import Any, final

import torch
from torch.profiler import ProfilerActivity, profile

from trainers.loop.errors import SettingsError, join_names
from trainers.loop.loss import WeightedMean
from trainers.loop.phase import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """Report of one phase for one accumulation window.

    Attributes:
        phase: The phase's name.
        epoch: The epoch, counted from 0.
        epochs: Maximum number of epochs of the run.
        window: The window within the epoch, counted from 0.
        windows: Windows in the epoch; None if the source does not know its length.
        step: Steps that the phase's optimizer has taken, including this one; a skipped step does not count.
        loss: Mean loss over the window's targets, before the step.
        parts: Further means over the window's targets; for a loss of several terms, the unweighted mean of each term.
        count: Targets in the window; for a loss of several terms, those of all terms that are trained on.
        grad_norm: Norm of the phase's gradient, before clipping.
        learning_rate: Learning rate of the optimizer's first group in this step.
        stepped: False if the step was skipped because the loss or a gradient was not finite, or all gradients were
            zero.
        zero_gradient: Whether all gradients were exactly zero in a phase that allows it, so that no step was taken.
        loss_scale: The scaler's scale after the window; None without a scaler.
        micro_batch_limit: The limit on the size of a micro-batch since memory ran out, in the cost units of the loop's
            `splitter`, which are samples by default; None while batches are not cut. Every process of a group has a
            separate limit.
        shortages: How often memory ran out in the window in this process and the window was repeated in smaller
            micro-batches.
        seconds: Duration of the phase.
        data_seconds: Time spent waiting for the window's batches. Reading ahead while a GPU computes does not count;
            it is part of the phase's duration.
    """

    phase: str
    epoch: int
    epochs: int
    window: int
    windows: int | None
    step: int
    loss: float
    parts: Mapping[str, float]
    count: int
    grad_norm: float
    learning_rate: float
    stepped: bool
    loss_scale: float | None
    micro_batch_limit: int | None
    shortages: int
    seconds: float
    data_seconds: float
    zero_gradient: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTotals:
    """Totals of one phase for one epoch.

    Attributes:
        loss: Mean loss over the targets of the windows whose step was taken; NaN without any.
        parts: Further means over the same targets.
        count: Number of these targets.
        step: Steps that the phase's optimizer has taken since the start of the run.
        skipped: Windows of the epoch whose step was skipped because a value was not finite.
        zero_gradients: Windows of the epoch without a step because all gradients were zero, which the phase allows.
        shortages: How often memory ran out in the epoch and a window was repeated in smaller micro-batches.
    """

    loss: float
    parts: Mapping[str, float]
    count: int
    step: int
    skipped: int
    shortages: int
    zero_gradients: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """A score over a whole source.

    Attributes:
        mean: Mean over the targets, each batch weighted by its count.
        parts: Further means over the same targets.
        count: Total number of targets.
        seconds: Duration of the validation.
    """

    mean: float
    parts: Mapping[str, float]
    count: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """Report of one epoch.

    Attributes:
        epoch: The epoch, counted from 0.
        epochs: Maximum number of epochs of the run.
        windows: Windows in the epoch.
        phases: The totals of every phase, by name, in the order of the phases.
        validation: The score after the epoch; None without validation.
        seconds: Duration of the epoch, including validation.
        data_seconds: The part of it spent waiting for batches.
        peak_bytes: Peak memory use so far, of the device if it is known, otherwise of the process; None if neither is
            known.
    """

    epoch: int
    epochs: int
    windows: int
    phases: Mapping[str, PhaseTotals]
    validation: ValidationReport | None
    seconds: float
    data_seconds: float
    peak_bytes: int | None

    @property
    def loss(self) -> float:
        """Mean training loss of the first phase."""
        return next(iter(self.phases.values())).loss

    @property
    def monitored(self) -> float:
        """The value for early stopping: the validation mean if there was a validation, else the training loss."""
        return self.loss if self.validation is None else self.validation.mean


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReport:
    """A checkpoint that was written or could not be written.

    Attributes:
        epoch: The epoch that it belongs to, counted from 0.
        window: Windows of that epoch that it includes.
        folder: Its path, also if writing failed.
        bytes: Its size; 0 if writing failed.
        seconds: Time taken to write it.
        problem: Why writing failed; None if it succeeded. The training continues either way.
    """

    epoch: int
    window: int
    folder: str
    bytes: int
    seconds: float
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingNotice:
    """An event that the user should know about, such as a resumed run or a memory shortage.

    Attributes:
        message: The event, in one line.
    """

    message: str


Report = StepReport | EpochReport | CheckpointReport | TrainingNotice


def make_shortage_notice(report: StepReport, coupled: Sequence[str]) -> TrainingNotice:
    """Return the notice that memory ran out in a window.

    Args:
        report: The window's report.
        coupled: The layers that mix the samples of a batch.
    """
    if report.micro_batch_limit is None:
        return TrainingNotice(
            message=f"memory ran out in phase {report.phase!r}, epoch {report.epoch + 1}, window {report.window + 1}; "
            "no sample was skipped and no batch was cut: windows are no longer copied to the device in advance"
        )
    gradient = f"but {join_names(coupled)} see fewer samples at a time" if coupled else "with the same gradient"
    return TrainingNotice(
        message=f"memory ran out in phase {report.phase!r}, epoch {report.epoch + 1}, window {report.window + 1}; "
        "no sample was skipped: batches are processed in micro-batches of at most "
        f"{report.micro_batch_limit}, {gradient}"
    )


def make_validation_shortage_notice(limit: int | None) -> TrainingNotice:
    """Return the notice that memory ran out in a validation; `limit` is the new maximum cost of a micro-batch."""
    return TrainingNotice(
        message="memory ran out in the validation; no sample was skipped: batches are scored in micro-batches of at "
        f"most {limit}"
    )


def describe_stop(stop: int, report: CheckpointReport | None) -> str:
    """Return the message for a run that a signal (number `stop`) ended, with its last checkpoint if any."""
    name = Signals(stop).name
    if report is None:
        return f"stopped by {name} at the end of a window; nothing was saved, because there is no checkpoint folder"
    if report.problem is not None:
        return f"stopped by {name} at the end of a window, but the checkpoint could not be written: {report.problem}"
    window = f"window {report.window} of epoch {report.epoch + 1}" if report.window else f"epoch {report.epoch}"
    return f"stopped by {name} after {window}; the checkpoint is {report.folder}"


def make_kept_graphs_notices(phases: Sequence[Phase[Any]], accumulate: int) -> list[TrainingNotice]:
    """Return a notice for every phase that uses the forward of a later phase, which keeps graphs in memory.

    Args:
        phases: All phases in order.
        accumulate: Batches in a window.
    """
    names = [phase.name for phase in phases]
    return [
        TrainingNotice(
            message=f"phase {phase.name!r} runs before {phase.uses!r} and uses its forward: the graphs of a window "
            f"({accumulate} batch{'es' if accumulate > 1 else ''}) are kept in memory until then"
        )
        for phase in phases
        if phase.uses is not None and names.index(phase.name) < names.index(phase.uses)
    ]


PhaseResult = tuple[StepReport, WeightedMean]
"""A phase's report of a window, and the loss that the report's numbers come from."""


@dataclass(slots=True)
class _PhaseTally:
    """Totals of one phase, as in `PhaseTotals`."""

    mean: WeightedMean = field(default_factory=WeightedMean)
    skipped: int = 0
    zero_gradients: int = 0
    shortages: int = 0


@final
class EpochTotals:
    """Totals over the windows of an epoch.

    Args:
        names: The phases.

    Attributes:
        windows: Windows of the epoch so far.
        seconds: Duration of the windows, summed over all runs that trained in the epoch.
        data_seconds: Time spent waiting for their batches.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._tallies = {name: _PhaseTally() for name in names}
        self.windows = 0
        self.seconds = 0.0
        self.data_seconds = 0.0

    def add(self, results: Sequence[PhaseResult], *, seconds: float, data_seconds: float) -> None:
        """Add a window; skipped steps and zero gradients are only counted."""
        self.windows += 1
        self.seconds += seconds
        self.data_seconds += data_seconds
        for report, loss in results:
            tally = self._tallies[report.phase]
            tally.shortages += report.shortages
            if report.zero_gradient:
                tally.zero_gradients += 1
            elif not report.stepped:
                tally.skipped += 1
            elif loss.has_terms:
                tally.mean.merge(loss)
            else:
                tally.mean.add(report.loss, report.count, report.parts)

    def totals(self, steps: Mapping[str, int]) -> dict[str, PhaseTotals]:
        """Return the totals of every phase, given its number of steps."""
        return {
            name: PhaseTotals(
                loss=tally.mean.mean(),
                parts=tally.mean.parts(),
                count=tally.mean.count,
                step=steps[name],
                skipped=tally.skipped,
                zero_gradients=tally.zero_gradients,
                shortages=tally.shortages,
            )
            for name, tally in self._tallies.items()
        }

    def state(self) -> dict[str, Any]:
        """Return the sums for a checkpoint."""
        tallies = {
            name: [tally.mean.state(), tally.skipped, tally.zero_gradients, tally.shortages]
            for name, tally in self._tallies.items()
        }
        return {
            "windows": self.windows,
            "seconds": self.seconds,
            "data_seconds": self.data_seconds,
            "tallies": tallies,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the sums."""
        self.windows = state["windows"]
        self.seconds = state["seconds"]
        self.data_seconds = state["data_seconds"]
        for name, (mean, *counts) in state["tallies"].items():
            self._tallies[name] = _PhaseTally(WeightedMean(), *counts)
            self._tallies[name].mean.load(mean)


@final
class TrainingState:
    """Progress of a training run.

    Args:
        phases: The names of the phases.
        order_seed: Seed of the order of sources that draw from torch's generator.

    Attributes:
        epoch: Number of complete epochs.
        windows: Windows done since the start of the training.
        epoch_totals: The totals of the current epoch.
        history: The reports of the complete epochs.
        order_seed: As above.
        order: Fingerprint of the order at the start of the epoch; empty if unknown.
    """

    def __init__(self, phases: Sequence[str], *, order_seed: int) -> None:
        self._phases = phases
        self.epoch = 0
        self.windows = 0
        self.epoch_totals = EpochTotals(phases)
        self.history: list[EpochReport] = []
        self.order_seed = order_seed
        self.order = ""

    def complete_epoch(self, report: EpochReport) -> None:
        """Record the report of a complete epoch."""
        self.history.append(report)
        self.epoch += 1
        self.epoch_totals = EpochTotals(self._phases)

    def state(self) -> dict[str, Any]:
        """Return the progress as plain values, for a checkpoint."""
        return {
            "epoch": self.epoch,
            "windows": self.windows,
            "epoch_totals": self.epoch_totals.state(),
            "history": [asdict(report) for report in self.history],
            "order_seed": self.order_seed,
            "order": self.order,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the progress."""
        self.epoch = state["epoch"]
        self.windows = state["windows"]
        self.epoch_totals.load(state["epoch_totals"])
        self.history = []
        for values in state["history"]:
            report: dict[str, Any] = {**values}
            report["phases"] = {name: PhaseTotals(**totals) for name, totals in values["phases"].items()}
            if values["validation"] is not None:
                report["validation"] = ValidationReport(**values["validation"])
            self.history.append(EpochReport(**report))
        self.order_seed = state["order_seed"]
        self.order = state["order"]


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
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    activities += [ProfilerActivity.XPU] if torch.xpu.is_available() else []
    recording = profile(activities=activities, record_shapes=True, acc_events=True)
    window_count = 0
    last: tuple[int, int] | None = None
    with ExitStack() as stack:
        if not skip:
            stack.enter_context(_recorded(recording, path))
        for report in reports:
            # A window counts at its first report, when all its phases are complete.
            if isinstance(report, StepReport) and (report.epoch, report.window) != last:
                last = (report.epoch, report.window)
                window_count += 1
                if window_count == skip:
                    stack.enter_context(_recorded(recording, path))
                elif window_count == skip + windows:
                    stack.close()
            yield report
    yield _make_trace_notice(path, window_count=window_count, skip=skip, windows=windows)


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


def _make_trace_notice(path: Path, *, window_count: int, skip: int, windows: int) -> TrainingNotice:
    """Return a notice on the recorded windows."""
    recorded = min(window_count - skip, windows)
    if recorded <= 0:
        return TrainingNotice(
            message=f"too few windows for a trace: the run had {window_count}, and the first {skip} are skipped; train "
            "longer or skip fewer"
        )
    if not path.exists():  # torch does not raise an error when it cannot write
        return TrainingNotice(message=f"the trace of {recorded} windows could not be written to {path}")
    return TrainingNotice(message=f"recorded {recorded} of {windows} windows in {path}")

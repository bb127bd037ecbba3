"""TensorBoard logs of a training run."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, final

from trainers.loop import EpochReport, Report, SettingsError, StepReport, TrainingNotice

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FLUSH_SECONDS = 10


@final
class TensorBoardLog:
    """Writes scalars for `tensorboard --logdir FOLDER`. Needs the extra `tensorboard`.

    `windows/PHASE` has one point per step: loss, its parts, gradient norm, learning rate and loss scale. A skipped
    window takes no step and has none. `epochs` has one point per epoch, at the number of epochs done: every phase's
    loss and skipped windows, the validation and its parts. Numbers that are not finite are left out.

    Each of these folders has its own steps, so that a resumed training hides exactly the points that it repeats.

    Args:
        folder: Where to write; created by the first report.

    Raises:
        SettingsError: The package tensorboard is not installed.
    """

    def __init__(self, folder: Path) -> None:
        if find_spec("tensorboard") is None:
            raise SettingsError(
                "a log for TensorBoard needs the package tensorboard: pip install 'quantra[tensorboard]'"
            )
        self._folder = folder

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Write the numbers of every report, then pass it on.

        If a write fails, such as on a full disk, emit a notice, and pass further reports on without writing them.
        """
        curves = _Curves(self._folder)
        with ExitStack() as stack:
            stack.callback(curves.close)
            passing = iter(reports)
            for report in passing:
                try:
                    curves.add(report)
                except OSError as error:
                    stack.pop_all()  # closing would write and fail again
                    problem = f"no more curves can be written to {self._folder}: {error.strerror}"
                    yield TrainingNotice(message=f"{problem}; training continues")
                    yield report
                    break
                yield report
            yield from passing


@final
class _Curves:
    """The curves of every phase by step, and those of the epochs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._epochs = _Points(folder / "epochs")
        self._phases: dict[str, _Points] = {}

    def add(self, report: Report) -> None:
        if isinstance(report, StepReport):
            self._add_window(report)
            return
        if isinstance(report, EpochReport):
            numbers = _prefix_names("loss", {name: totals.loss for name, totals in report.phases.items()})
            numbers |= _prefix_names("skipped", {name: float(totals.skipped) for name, totals in report.phases.items()})
            if report.validation is not None:
                numbers |= {"validation": report.validation.mean} | _prefix_names("validation", report.validation.parts)
            self._epochs.add(report.epoch + 1, numbers)
        self._flush()  # at least with a checkpoint: a resumed training does not repeat what came before it

    def _add_window(self, report: StepReport) -> None:
        if not report.stepped:
            return
        points = self._phases.setdefault(report.phase, _Points(self._folder / "windows" / report.phase))
        numbers = {"loss": report.loss, "grad_norm": report.grad_norm, "learning_rate": report.learning_rate}
        scale = {} if report.loss_scale is None else {"loss_scale": report.loss_scale}
        points.add(report.step, numbers | _prefix_names("parts", report.parts) | scale)

    def close(self) -> None:
        for points in (self._epochs, *self._phases.values()):
            points.close()

    def _flush(self) -> None:
        for points in (self._epochs, *self._phases.values()):
            points.flush()


@final
class _Points:
    """Points in one folder; the first hides points of an earlier training at its step and later."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        if self._writer is None:
            self._writer = _create_writer(self._folder, step)
        for name, number in numbers.items():
            if math.isfinite(number):
                self._writer.add_scalar(name, number, step)

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _create_writer(folder: Path, purge_step: int) -> "SummaryWriter":
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=purge_step, flush_secs=FLUSH_SECONDS)


def _prefix_names(group: str, numbers: Mapping[str, float]) -> dict[str, float]:
    return {f"{group}/{name}": number for name, number in numbers.items()}

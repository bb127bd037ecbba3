"""Settings of every trainer with their flags, for `predictor.cli.flags.with_flags`."""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Annotated

from predictor.flags import Flag
from trainers.loop.device import PrecisionName
from trainers.loop.reports import profile_training
from trainers.loop.run_parts import OomChoice
from trainers.loop.step.guards import Nonfinite
from trainers.progress import ConsumerChain, JsonLines, JsonlLog, ReportConsumer, TensorBoardLog, progress_for

DEVICES = re.compile(r"auto|cpu|mps|(cuda|xpu)(:\d+)?")


def check_device(name: str) -> None:
    """Check the name of a device.

    Raises:
        ValueError: it is not a device; the message lists them.
    """
    if DEVICES.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not a device; use auto, cpu, cuda, cuda:N, xpu, xpu:N or mps")


def _check_clip(norm: float) -> None:
    if not norm > 0:
        raise ValueError(f"{norm:g} is not a norm to clip at; it must be above 0, or inf for no clipping")


def _check_decay(decay: float) -> None:
    if not 0 < decay < 1:
        raise ValueError(f"{decay:g} is not a decay; it must be above 0 and below 1, such as 0.999")


def _check_seconds(seconds: float) -> None:
    if not seconds > 0:
        raise ValueError(f"{seconds:g} is not a time between checkpoints; it must be above 0, or inf for epochs only")


ForecastDevice = Annotated[
    str,
    Flag(
        "Device to compute on: auto, cpu, cuda or cuda:N. Forecasts are float64, which Apple's GPU lacks.",
        metavar="DEVICE",
        check=check_device,
    ),
]
Device = Annotated[
    str,
    Flag(
        "Device to compute on: auto picks the fastest available; or cpu, cuda, cuda:N, xpu, xpu:N, mps.",
        metavar="DEVICE",
        check=check_device,
    ),
]
Threads = Annotated[int, Flag("CPU threads; one is fastest for a small network.", minimum=1)]


@dataclass(frozen=True, kw_only=True)
class ComputationOptions:
    """Settings that affect the numbers of every training; the defaults suit a small network."""

    accumulate: Annotated[
        int,
        Flag("Batches per optimizer step: like one batch that many times larger, in no more memory.", minimum=1),
    ] = 1
    clip: Annotated[
        float,
        Flag("Largest norm of the gradients, longer ones are clipped; inf: never.", metavar="NORM", check=_check_clip),
    ] = 1.0
    ema: Annotated[
        float | None,
        Flag(
            "Score and keep an exponential moving average of the weights, with this decay per step, such as 0.999.",
            metavar="DECAY",
            check=_check_decay,
        ),
    ] = None
    precision: Annotated[
        PrecisionName, Flag("Number format of the computation: auto uses 16 bits where the device is fast with them.")
    ] = "auto"
    device: Device = "auto"
    oom: Annotated[OomChoice, Flag("When memory runs out: split batches, which gives the same gradients, or fail.")] = (
        "split"
    )
    nonfinite: Annotated[
        Nonfinite, Flag("When a loss or gradient is infinite or NaN: skip the step, or raise an error.")
    ] = "skip"
    compiled: Annotated[
        bool,
        Flag("Use torch.compile: a slow start, then often faster steps; not for LSTMs.", spelling="--compile"),
    ] = False
    deterministic: Annotated[bool, Flag("Make a repeated training give the same bits; may be slower.")] = False
    seed: Annotated[
        int,
        Flag("Random seed of the initial weights, dropout and order of samples.", minimum=0, maximum=2**32 - 1),
    ] = 0


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Settings of a training run and its reports, which do not affect its numbers."""

    threads: Threads = 1
    resume: Annotated[bool, Flag("Continue from the last checkpoint of a training run that was stopped.")] = False
    checkpoint_seconds: Annotated[
        float,
        Flag(
            "Time between checkpoints, besides the one after every epoch; inf: after epochs only.",
            metavar="SECONDS",
            check=_check_seconds,
        ),
    ] = 60.0
    keep: Annotated[int, Flag("Newest checkpoints to keep, besides the best one.", minimum=1)] = 3
    profile: Annotated[bool, Flag("Profile some optimizer steps, as a torch trace next to the log.")] = False
    tensorboard: Annotated[bool, Flag("Also write curves for TensorBoard; needs the extra tensorboard.")] = False
    parent_watch: Annotated[
        bool, Flag("Stop as at Ctrl+C when standard input ends, as when the parent process ends.")
    ] = False
    as_json: Annotated[
        bool, Flag("Write reports as JSON lines to standard output, for programs.", spelling="--json")
    ] = False


def consumer(options: RunOptions, folder: Path, stream: IO[str], *, rank: int = 0) -> ReportConsumer:
    """The consumer of a run's reports: its log, the screen, and the profile and TensorBoard log if requested.

    Args:
        options: The flags.
        folder: The run's folder, for `reports.jsonl`, `tensorboard/` and `profile/`; created by the first report.
        stream: The screen.
        rank: Of this process in its group; all but the first only pass reports on.

    Raises:
        SettingsError: TensorBoard is requested but not installed.
    """
    if rank > 0:
        return ConsumerChain()
    consumers: list[ReportConsumer] = []
    if options.profile:
        consumers.append(partial(profile_training, folder=folder / "profile"))
    consumers.append(JsonlLog(folder / "reports.jsonl"))
    if options.tensorboard:
        consumers.append(TensorBoardLog(folder / "tensorboard"))
    consumers.append(JsonLines(stream) if options.as_json else progress_for(stream))
    return ConsumerChain(consumers)

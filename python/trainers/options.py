"""The flags that every trainer has, each written once.

A command takes those it wants, and hands them on as one value:

    def stock(*, device: DeviceOption = LOOP.device, accumulate: AccumulateOption = LOOP.accumulate) -> None:
        options = LoopOptions(device=device, accumulate=accumulate)

where `LOOP` is `LoopOptions()`, or the task's own defaults. Values out of range are bad usage, exit code 2. Needs the
extra `cli`.
"""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Annotated

import typer

from trainers.loop.device.precision import PrecisionName
from trainers.loop.parts import OomChoice
from trainers.loop.profiling import profiled
from trainers.loop.window.guards import Nonfinite
from trainers.progress import Chain, Consumer, JsonLines, JsonlLog, TensorBoardLog, progress_for

DEVICES = re.compile(r"auto|cpu|mps|(cuda|xpu)(:\d+)?")


def _device(name: str) -> str:
    if DEVICES.fullmatch(name) is None:
        raise typer.BadParameter(f"{name!r} is no device; take auto, cpu, cuda, cuda:N, xpu, xpu:N or mps")
    return name


def _clip(norm: float) -> float:
    if not norm > 0:
        raise typer.BadParameter(f"{norm:g} is no norm to clip at; it must be above 0, or inf to clip never")
    return norm


def _decay(decay: float | None) -> float | None:
    if decay is not None and not 0 < decay < 1:
        raise typer.BadParameter(f"{decay:g} is no decay; it must be above 0 and below 1, such as 0.999")
    return decay


def _seconds(seconds: float) -> float:
    if not seconds > 0:
        raise typer.BadParameter(
            f"{seconds:g} is no time between checkpoints; it must be above 0, or inf for epochs alone"
        )
    return seconds


DeviceOption = Annotated[
    str,
    typer.Option(
        callback=_device,
        metavar="DEVICE",
        help="What computes: auto takes the fastest that is there; or cpu, cuda, cuda:N, xpu, xpu:N, mps.",
    ),
]
AnsweringDeviceOption = Annotated[
    str,
    typer.Option(
        callback=_device,
        metavar="DEVICE",
        help="What computes: auto, cpu, cuda or cuda:N. What an artifact answers is float64, which Apple's GPU lacks.",
    ),
]
PrecisionOption = Annotated[
    PrecisionName,
    typer.Option(help="Number format of the computation: auto takes 16 bits where the device is fast at them."),
]
AccumulateOption = Annotated[
    int,
    typer.Option(
        min=1, help="Batches an optimizer step: as if one batch were so many times larger, in no more memory."
    ),
]
ClipOption = Annotated[
    float,
    typer.Option(callback=_clip, metavar="NORM", help="Gradients longer than this are shortened to it; inf: never."),
]
OomOption = Annotated[
    OomChoice,
    typer.Option(help="When memory runs out: split batches, which gives the same gradients, or fail."),
]
NonfiniteOption = Annotated[
    Nonfinite,
    typer.Option(help="When a loss or gradient is infinite or not a number: skip the step, or raise an error."),
]
EmaOption = Annotated[
    float | None,
    typer.Option(
        callback=_decay,
        metavar="DECAY",
        help="Score and keep a moving average of the weights, which decays by this factor a step, such as 0.999.",
    ),
]
CompileOption = Annotated[
    bool,
    typer.Option("--compile", help="Use torch.compile: a slow start, then often faster steps; not for LSTMs."),
]
DeterministicOption = Annotated[
    bool,
    typer.Option("--deterministic", help="Compute so that a repeated training gives the same bits; may be slower."),
]
SeedOption = Annotated[
    int,
    typer.Option(min=0, max=2**32 - 1, help="Where random choices start: first weights, dropout, order of samples."),
]
ThreadsOption = Annotated[int, typer.Option(min=1, help="CPU threads; one is fastest for a small network.")]
ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Go on from the last checkpoint of a training that was stopped."),
]
CheckpointSecondsOption = Annotated[
    float,
    typer.Option(
        callback=_seconds,
        metavar="SECONDS",
        help="Save a checkpoint so often, besides the one after every epoch; inf: after epochs only.",
    ),
]
KeepOption = Annotated[int, typer.Option(min=1, help="Checkpoints to keep: the newest, and beside them the best.")]
ProfileOption = Annotated[
    bool,
    typer.Option("--profile", help="Record where some windows spend their time, as a torch trace beside the log."),
]
TensorBoardOption = Annotated[
    bool,
    typer.Option("--tensorboard", help="Also write curves for TensorBoard; needs the extra tensorboard."),
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Write reports as JSON lines to standard output, for programs."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """The values of the shared flags; the defaults suit a small network.

    Attributes:
        device: `auto`, `cpu`, `cuda[:N]`, `xpu[:N]` or `mps`.
        precision: `auto`, `fp32`, `bf16` or `fp16`.
        accumulate: Batches in an accumulation window, that is in one optimizer step.
        clip: Largest norm of a step's gradient; infinite for none.
        oom: What to do when memory runs out: split the batch, or fail.
        nonfinite: What to do with a loss or gradient that is not finite: skip the step, or raise.
        ema: Decay of the weights' moving average in one step; None for no average.
        compiled: Whether torch.compile is used.
        deterministic: Whether only algorithms are used that give the same bits in every run.
        seed: Of everything random, 0 to 2**32 - 1.
        threads: CPU threads.
        resume: Whether to go on from the last checkpoint.
        checkpoint_seconds: Seconds between checkpoints within an epoch.
        keep: How many of the newest checkpoints are kept.
        profile: Whether torch's profiler records some windows.
        tensorboard: Whether to log for TensorBoard.
        as_json: Whether the screen gets JSON lines.
    """

    device: str = "auto"
    precision: PrecisionName = "auto"
    accumulate: int = 1
    clip: float = 1.0
    oom: OomChoice = "split"
    nonfinite: Nonfinite = "skip"
    ema: float | None = None
    compiled: bool = False
    deterministic: bool = False
    seed: int = 0
    threads: int = 1
    resume: bool = False
    checkpoint_seconds: float = 60.0
    keep: int = 3
    profile: bool = False
    tensorboard: bool = False
    as_json: bool = False


def consumer(options: LoopOptions, folder: Path, stream: IO[str], *, rank: int = 0) -> Consumer:
    """What takes the reports of a run: its log, what the flags ask for, and the screen.

    Args:
        options: The flags.
        folder: The run's folder, for `reports.jsonl`, `tensorboard/` and `profile/`; made when the first report comes.
        stream: The screen.
        rank: Of this process in its group; all but the first only hand the reports on.

    Raises:
        SettingsError: A log for TensorBoard is asked for, and its package is not installed.
    """
    if rank > 0:
        return Chain()
    consumers: list[Consumer] = []
    if options.profile:
        consumers.append(partial(profiled, folder=folder / "profile"))
    consumers.append(JsonlLog(folder / "reports.jsonl"))
    if options.tensorboard:
        consumers.append(TensorBoardLog(folder / "tensorboard"))
    consumers.append(JsonLines(stream) if options.as_json else progress_for(stream))
    return Chain(consumers)

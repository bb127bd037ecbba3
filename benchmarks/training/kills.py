"""A training that is killed again and again while it writes checkpoints, and resumed each time."""

import contextlib
import hashlib
import multiprocessing
import os
import random
import signal
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from benchmarks.report import Row, at_most, unmeasured
from benchmarks.training.job import unchanging
from trainers.loop import CheckpointReport, Checkpoints, Loop, Loss, Phase, ResidentSource, WindowReport, adamw

SAMPLES, BATCH, INPUTS = 2000, 20, 16
WINDOWS_PER_EPOCH = SAMPLES // BATCH
WINDOWS_PER_KILL, LONGEST_LIFE, EVERY = 12, 8, 2
LONGEST_PAUSE_S = 0.02
NAME = "checkpoints lost"


class Samples(NamedTuple):
    """Inputs and targets."""

    x: Tensor
    y: Tensor


@final
@dataclass(slots=True)
class Fate:
    """What became of a process.

    Attributes:
        first: The first window that it worked, counted over all epochs; None if it worked none.
        saved: Windows in its newest checkpoint; 0 if it wrote none.
        weights: Hash of the weights at the end; None if it did not get there.
    """

    first: int | None = None
    saved: int = 0
    weights: str | None = None


def rows(*, quick: bool) -> list[Row]:
    """Kill a training at random moments, at the end compare its weights with those of one that was left alone."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return [unmeasured(NAME, "this system cannot fork processes", reach="<= 0")]
    kills = 20 if quick else 200
    epochs = -(-kills * WINDOWS_PER_KILL // WINDOWS_PER_EPOCH)
    with tempfile.TemporaryDirectory() as folder:
        whole = _run(Path(folder) / "whole", epochs, killed_after=None)
        killed, lost, resumed = _killed_often(Path(folder) / "killed", epochs, kills)
    detail = f"{killed} kills with SIGKILL at random moments, a checkpoint every {EVERY} windows"
    return [
        at_most(NAME, lost, 0, detail=detail, judged=killed == kills),
        at_most(
            "weights of the resumed training that differ (0: equal to the bit)",
            float(resumed.weights != whole.weights),
            0,
            detail=f"{epochs} epochs of {WINDOWS_PER_EPOCH} windows, dropout, AdamW; against one never killed",
        ),
    ]


def _killed_often(folder: Path, epochs: int, kills: int) -> tuple[int, int, Fate]:
    """Kills that happened, checkpoints that were there before and not used afterwards, and the last process's fate."""
    chance = random.Random(0)  # noqa: S311  no secret depends on it
    killed = lost = newest = 0
    while True:
        fate = _run(folder, epochs, killed_after=chance.randint(1, LONGEST_LIFE) if killed < kills else None)
        lost += fate.first is not None and fate.first < newest
        newest = max(newest, fate.saved)
        if fate.weights is not None:
            return killed, lost, fate
        killed += 1


def _run(folder: Path, epochs: int, *, killed_after: int | None) -> Fate:
    """A process that trains to the end, or is killed a moment after so many windows."""
    context = multiprocessing.get_context("fork")  # torch is imported already: a process starts at once
    listening, telling = context.Pipe(duplex=False)
    process = context.Process(target=_train, args=(folder, epochs, telling))
    process.start()
    telling.close()
    fate, windows = Fate(), 0
    with contextlib.suppress(EOFError):  # the end of what it has to say
        while True:
            told = listening.recv()
            _note(fate, told)
            windows += told[0] == "window"
            if killed_after is not None and windows == killed_after:
                time.sleep(killed_after * LONGEST_PAUSE_S / LONGEST_LIFE)
                os.kill(process.pid or 0, signal.SIGKILL)
                killed_after = None
    process.join()
    return fate


def _note(fate: Fate, told: tuple[str, int | str]) -> None:
    match told:
        case ("window", int(number)):
            fate.first = number if fate.first is None else fate.first
        case ("saved", int(windows)):
            fate.saved = windows
        case (_, weights):
            fate.weights = str(weights)


def _train(folder: Path, epochs: int, telling: Connection) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(INPUTS, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
    samples = Samples(torch.randn(SAMPLES, INPUTS), torch.randn(SAMPLES, 1))
    optimizer = adamw(network.parameters(), lr=1e-3)
    phase = Phase[Samples](
        name="main",
        loss=lambda batch: Loss(nn.functional.mse_loss(network(batch.x), batch.y), len(batch.x)),
        parameters=network.parameters(),
        optimizer=optimizer,
        scheduler=unchanging(optimizer),
    )
    checkpoints = Checkpoints(folder, every_windows=EVERY, every_seconds=None)
    source = ResidentSource[Samples].of(samples, batch_size=BATCH)
    done = 0
    with Loop([phase], modules={"network": network}, device="cpu").running(checkpoints) as run:
        for report in run.epochs(source, max_epochs=epochs):
            if isinstance(report, WindowReport):
                done = report.epoch * WINDOWS_PER_EPOCH + report.window + 1
                telling.send(("window", done - 1))
            elif isinstance(report, CheckpointReport) and report.problem is None:
                telling.send(("saved", done))
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in network.parameters())
    telling.send(("weights", hashlib.sha256(weights).hexdigest()))

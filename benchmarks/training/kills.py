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
from trainers.loop.checkpoint.folder import DRAFT, REMOVED

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
    with tempfile.TemporaryDirectory() as folder:
        deaths = killed_often(Path(folder), kills)
    detail = f"{deaths.killed} kills with SIGKILL at random moments, a checkpoint every {EVERY} windows"
    epochs = epochs_for(kills)
    return [
        at_most(NAME, deaths.lost, 0, detail=detail, judged=deaths.killed == kills),
        at_most(
            "weights of the resumed training that differ (0: equal to the bit)",
            float(not deaths.equal),
            0,
            detail=f"{epochs} epochs of {WINDOWS_PER_EPOCH} windows, dropout, AdamW; against one never killed",
        ),
    ]


@final
@dataclass(frozen=True, slots=True)
class Deaths:
    """What became of a training that was killed often.

    Attributes:
        killed: Kills that happened.
        lost: Checkpoints that were there before one, and not used after it.
        half_done: What the kills left half written, or half removed.
        left: What of that is still there when the training has ended.
        equal: Whether it ended with the weights of one that was never killed, to the bit.
    """

    killed: int
    lost: int
    half_done: int
    left: int
    equal: bool


def epochs_for(kills: int) -> int:
    """Epochs of a training that is killed so often before its end."""
    return -(-kills * WINDOWS_PER_KILL // WINDOWS_PER_EPOCH)


def killed_often(folder: Path, kills: int) -> Deaths:
    """Train twice in a new folder: once left alone, and once killed at random moments and resumed."""
    chance, epochs = random.Random(0), epochs_for(kills)  # noqa: S311  no secret depends on it
    whole = _run(folder / "whole", epochs, killed_after=None)
    killed = lost = newest = half_done = 0
    while True:
        life = chance.randint(1, LONGEST_LIFE) if killed < kills else None
        fate = _run(folder / "killed", epochs, killed_after=life)
        lost += fate.first is not None and fate.first < newest
        newest = max(newest, fate.saved)
        left = _half_done(folder / "killed")
        if fate.weights is not None:
            return Deaths(killed, lost, half_done, left, fate.weights == whole.weights)
        killed, half_done = killed + 1, half_done + left


def _half_done(folder: Path) -> int:
    return sum(path.name.startswith((DRAFT, REMOVED)) for path in folder.iterdir())


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

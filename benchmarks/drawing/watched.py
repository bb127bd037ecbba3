"""What watching a training by rewards changes of it: nothing, bit by bit; and what a look costs."""

import statistics
import time
from collections.abc import Iterable, Iterator
from typing import Final, final

import numpy as np
import torch
from torch import Tensor

from benchmarks.drawing.digits import Workplace
from benchmarks.report import Row, at_most, shown
from trainers.dit.cache import Cache
from trainers.dit.models import ImageModel
from trainers.dit.monitor import Collapse, Monitor
from trainers.dit.recipe import ImageRecipe, Watching
from trainers.dit.rewards import Checked, Material, rewards_of
from trainers.dit.sampling import Sampling
from trainers.dit.training import fit
from trainers.dit.watching import Watch
from trainers.loop import Notice, Report, WindowReport, seed_everything

STEPS, EVERY = 200, 50
REWARDS: Final = ("classifier", "frechet")


@final
class Course:
    """Notes down how a training goes; it takes the reports.

    Args:
        model: that is trained.

    Attributes:
        weights: after the last step so far, not averaged: float32 [weights].
        losses: of every step.
        looks: processor seconds of each look.
    """

    def __init__(self, model: ImageModel) -> None:
        self._module = model.network.module
        self.weights = torch.zeros(0)
        self.losses: list[float] = []
        self.looks: list[float] = []

    def __call__(self, reports: Iterable[Report]) -> Iterator[Report]:
        """The reports, each after it was noted."""
        start = time.thread_time()
        for report in reports:
            if isinstance(report, Notice) and report.message.startswith("after "):
                self.looks.append(time.thread_time() - start)
            if isinstance(report, WindowReport):
                self.losses.append(report.loss)
                self.weights = torch.cat([weight.detach().flatten() for weight in self._module.parameters()]).cpu()
            yield report
            start = time.thread_time()


def rows(work: Workplace, *, quick: bool) -> list[Row]:
    """What differs, and the seconds of a look; a quick run takes fewer steps and draws fewer images."""
    steps, every = (4, 2) if quick else (STEPS, EVERY)
    watching = Watching(monitor_images=16 if quick else Watching().monitor_images, monitor_every=every)
    alone, watched = trained(work, steps, None), trained(work, steps, watching)
    drawn = f"{watching.monitor_images} images, {watching.monitor_steps} steps, guidance {watching.monitor_guidance:g}"
    return [
        at_most(
            f"watched / not watched, {steps} steps: bits that differ",
            differing_bits(alone.weights, watched.weights),
            0,
            detail=f"of {len(alone.weights)} weights of 32 bits; {len(watched.looks)} looks by {' and '.join(REWARDS)}",
        ),
        at_most(
            f"watched / not watched, {steps} steps: losses that differ",
            sum(one != other for one, other in zip(alone.losses, watched.losses, strict=True)),
            0,
            detail=f"of {len(alone.losses)}",
        ),
        shown("a look, s", statistics.median(watched.looks), detail=f"{drawn}; processor time"),
    ]


def trained(work: Workplace, steps: int, watching: Watching | None) -> Course:
    """The course of a training with or without looks, from the same first weights and seed."""
    model = ImageModel.load(work.base(0)).learning("flow")
    recipe = ImageRecipe(steps=steps, device="cpu")
    monitor = None if watching is None else _monitor(work, model, watching)
    course = Course(model)
    seed_everything(recipe.seed)
    fit(model, Cache.open(work.cache), recipe, None, course, monitor)
    return course


def differing_bits(one: Tensor, other: Tensor) -> int:
    """Of two tensors of the same numbers of 32 bits, float32 [N] each."""
    first, second = (tensor.contiguous().numpy().view(np.uint8) for tensor in (one, other))
    return int(np.unpackbits(first ^ second).sum())


def _monitor(work: Workplace, model: ImageModel, watching: Watching) -> Monitor:
    """As `train --monitor` makes it, with a second reward beside."""
    own, held = work.pictures(work.images), work.pictures(work.held_out)
    material = Material(own, held, None, watching.monitor_images)
    rewards: list[Checked] = rewards_of(REWARDS, material)
    sampling = Sampling(steps=watching.monitor_steps, guidance=watching.monitor_guidance)
    watch = Watch(model, material, rewards, sampling)
    return Monitor(watch, REWARDS[0], every=watching.monitor_every, collapse=Collapse(patience=0))

"""A GAN's step whose phases share the generator's forward, against the same loop with one forward per phase.

The generator's forward costs four times the discriminator's, which reads real and generated samples. All layers have
the same width, so the number of layers determines the cost.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.optim import SGD

from benchmarks.report import Row, at_most, shown
from benchmarks.training.job import Batch, ClockedBatches
from trainers.loop import IterableSource, Loop, Loss, Phase

WIDTH, SAMPLES, READY = 256, 256, 8
GENERATOR_LAYERS, DISCRIMINATOR_LAYERS = 4, 1
WARM, WINDOWS = 5, 40
NAME, REACH = "GAN, a shared forward / two forwards", 0.88


@final
@dataclass(frozen=True, slots=True)
class Gan:
    """A generator and a discriminator with the same weights each time, and their losses."""

    generator: nn.Module
    discriminator: nn.Module

    @classmethod
    def fresh(cls) -> "Gan":
        """Create untrained networks."""
        torch.manual_seed(0)
        return cls(_layers(GENERATOR_LAYERS), nn.Sequential(_layers(DISCRIMINATOR_LAYERS), nn.Linear(WIDTH, 1)))

    def make(self, batch: Batch) -> Tensor:
        """The generator's forward: samples [N, WIDTH] from noise."""
        return self.generator(batch["y"])

    def fool(self, batch: Batch, made: Tensor) -> Loss:
        """The generator's loss: small if its samples are classified as real."""
        return Loss(softplus(-self.discriminator(made)).mean(), len(batch["x"]))

    def tell(self, batch: Batch, made: Tensor) -> Loss:
        """The discriminator's loss: small if it distinguishes real from generated samples."""
        real, fake = self.discriminator(batch["x"]), self.discriminator(made)
        return Loss((softplus(-real) + softplus(fake)).mean(), len(batch["x"]))

    def sharing(self) -> list[Phase[Batch]]:
        """Phases with one forward per window: the discriminator reads the samples that the generator then trains on."""
        critic, maker = self._parameters()
        return [
            Phase("discriminator", self.tell, critic, _optimizer(critic), uses="generator"),
            Phase("generator", self.fool, maker, _optimizer(maker), forward=self.make),
        ]

    def apart(self) -> list[Phase[Batch]]:
        """Phases with one forward each."""

        def tell(batch: Batch) -> Loss:
            with torch.no_grad():
                made = self.make(batch)
            return self.tell(batch, made)

        def fool(batch: Batch) -> Loss:
            return self.fool(batch, self.make(batch))

        critic, maker = self._parameters()
        return [
            Phase("discriminator", tell, critic, _optimizer(critic)),
            Phase("generator", fool, maker, _optimizer(maker)),
        ]

    def _parameters(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        return list(self.discriminator.parameters()), list(self.generator.parameters())


def rows(*, quick: bool) -> list[Row]:
    """Rows for the ratio, and the milliseconds behind it."""
    rounds = 2 if quick else 11
    shared, apart = zip(*[(_seconds(Gan.sharing), _seconds(Gan.apart)) for _ in range(rounds)], strict=True)
    ratio = statistics.median(one / two for one, two in zip(shared, apart, strict=True))
    detail = f"{GENERATOR_LAYERS} layers against {DISCRIMINATOR_LAYERS}, of {WIDTH}; per-round median of {rounds}"
    return [
        at_most(NAME, ratio, REACH, detail=detail, judged=not quick),
        shown("GAN, a shared forward, ms per window", 1e3 * statistics.median(shared), detail=f"{SAMPLES} samples"),
        shown("GAN, two forwards, ms per window", 1e3 * statistics.median(apart), detail="processor time"),
    ]


def _seconds(phases: Callable[[Gan], Sequence[Phase[Batch]]]) -> float:
    """Processor time of a window of a new training."""
    gan = Gan.fresh()
    modules = {"generator": gan.generator, "discriminator": gan.discriminator}
    clocked = ClockedBatches(_batches(), warm=WARM, steps=WINDOWS)
    with Loop(phases(gan), modules=modules, device="cpu", precision="fp32").running() as run:
        for _ in run.epochs(IterableSource(clocked), max_epochs=1):
            pass
    return clocked.seconds / WINDOWS


def _batches() -> list[Batch]:
    """Real samples as x and noise as y."""
    random = torch.Generator().manual_seed(1)
    return [
        {name: torch.randn(SAMPLES, WIDTH, generator=random) for name in ("x", "y")}  # pyright: ignore[reportReturnType]  the keys of a Batch
        for _ in range(READY)
    ]


def _layers(count: int) -> nn.Sequential:
    return nn.Sequential(*[layer for _ in range(count) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())])


def _optimizer(parameters: Sequence[nn.Parameter]) -> SGD:
    return SGD(parameters, lr=1e-3)

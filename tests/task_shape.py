"""Interface of a task that stands in for a real one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from trainers.loop import BatchSplitter, FrozenModule, IterableSource, Loop, Loss, Phase, Precision, Validation


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Options of a task.

    Attributes:
        strain: Called with the samples that a phase is about to work, shape [samples, …]; returns them, or runs out of
            memory.
        random: Whether the task draws random numbers; without them its update depends on the samples alone.
        double: Whether it computes in float64.
    """

    strain: Callable[[Tensor], Tensor] | None = None
    random: bool = True
    double: bool = False

    def strained(self, samples: Tensor) -> Tensor:
        """Pass the samples through `strain`."""
        return samples if self.strain is None else self.strain(samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskShape:
    """A small task that resembles a real one.

    Attributes:
        modules: All of them by name.
        phases: With optimizers and schedulers.
        batches: The training's, of different sizes.
        splitter: How they are cut.
        precision: With a scaler or without.
        score: What is validated, on the same batches.
    """

    modules: Mapping[str, nn.Module | FrozenModule]
    phases: Sequence[Phase[Any]]
    batches: Sequence[Any]
    splitter: BatchSplitter[Any]
    precision: Precision
    score: Callable[[Any], Loss]

    def loop(self, *, accumulate: int, ema: float | None = 0.9) -> Loop[Any]:
        """A loop for the task."""
        return Loop(
            self.phases,
            modules=self.modules,
            device="cpu",
            precision=self.precision,
            accumulate=accumulate,
            splitter=self.splitter,
            ema=ema,
        )

    def source(self) -> IterableSource[Any]:
        """The batches."""
        return IterableSource(self.batches)

    def validation(self) -> Validation[Any]:
        """The score over two of the batches."""
        return Validation(self.score, IterableSource(self.batches[:2]))

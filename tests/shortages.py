"""Simulated out-of-memory errors."""

from collections.abc import Callable
from typing import Any, Literal, final

import torch
from torch import Tensor

Stage = Literal["forward", "backward"]


def cuda_shortage() -> RuntimeError:
    """The out-of-memory error of torch on CUDA and XPU."""
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore lines")


@final
class Shortage:
    """A layer that runs out of memory for more than `fits` samples.

    Args:
        stage: Whether they do not fit in the forward or in the backward.
        fits: The most samples that do.
        since: The call, counted from 1, from which on memory is so short.
        error: Makes what the allocator raises.

    Attributes:
        sizes: The samples of every call, also of those that failed.
        failures: How many did.
    """

    def __init__(
        self, stage: Stage, fits: int, *, since: int = 1, error: Callable[[], BaseException] = cuda_shortage
    ) -> None:
        self._stage = stage
        self._fits = fits
        self._since = since
        self._error = error
        self.sizes: list[int] = []
        self.failures = 0

    def __call__(self, x: Tensor) -> Tensor:
        """Return `x` [samples, …] unchanged, unless it does not fit."""
        self.sizes.append(len(x))
        fails = len(x) > self._fits and len(self.sizes) >= self._since
        if self._stage == "forward":
            if fails:
                self.fail()
            return x
        return _Backward.apply(x, self.fail if fails else None)  # pyright: ignore[reportReturnType]

    def fail(self) -> None:
        """Raise the out-of-memory error."""
        self.failures += 1
        raise self._error()


class _Backward(torch.autograd.Function):
    """The identity with a backward that may fail."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, fail: Callable[[], None] | None) -> Tensor:
        ctx.fail = fail
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        if ctx.fail is not None:
            ctx.fail()
        return grads[0], None

"""An optimizer's step and a loss's backward without what torch wraps around them, a fifth of a small training step."""

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor
from torch.autograd import Variable
from torch.optim import Optimizer
from torch.optim.optimizer import (
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
    _use_grad_for_differentiable,  # pyright: ignore[reportPrivateUsage]  to know it again
)

Step = Callable[[Optimizer], object]


@final
class DirectStep:
    """Calls an optimizer's step.

    The public one opens a record for torch's profiler, looks for hooks, and turns gradients off in a way that compilers
    can follow. While a profiler is at work or there are hooks, and in the first step, after which a scheduler looks
    whether it was called, the public one is called; also where anybody has put another in its place.

    Args:
        optimizer: Whose step it is.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._inner: Step | None = None
        self._first = True

    def __call__(self) -> None:
        """Take the step."""
        if self._first:
            self._first = False
            self._inner = _without_gradients(_inner_step(self._optimizer))
        elif self._inner is not None and not self._is_watched():
            self._inner(self._optimizer)
            return
        self._optimizer.step()

    def _is_watched(self) -> bool:
        """Whether a profiler or a hook waits for the step."""
        optimizer = self._optimizer
        return bool(
            optimizer._optimizer_step_pre_hooks  # noqa: SLF001  torch tells it nowhere else
            or optimizer._optimizer_step_post_hooks  # noqa: SLF001
            or _global_optimizer_pre_hooks
            or _global_optimizer_post_hooks
            or _is_profiled()
        )


def backward(roots: tuple[Tensor, ...], seeds: tuple[Tensor, ...]) -> None:
    """`torch.autograd.backward(roots, seeds)` for scalars, which need none of the checks that torch makes.

    Args:
        roots: Scalars, each with a graph.
        seeds: What the backward starts from, each of the dtype and device of its root.
    """
    if type(roots[0]) is Tensor and not _is_profiled():
        Variable._execution_engine.run_backward(  # noqa: SLF001  what `torch.autograd.backward` itself calls
            roots, seeds, False, False, (), allow_unreachable=True, accumulate_grad=True
        )
    elif len(roots) == 1:
        roots[0].backward(seeds[0])
    else:
        torch.autograd.backward(roots, seeds)


def _is_profiled() -> bool:
    return torch.autograd._profiler_enabled()  # noqa: SLF001  # pyright: ignore[reportPrivateImportUsage]  as above


def _without_gradients(step: Step | None) -> Step | None:
    """The step inside of what turns gradients off, which is done here in a third of the time; others as they are."""
    inner: Step | None = getattr(step, "__wrapped__", None)
    if inner is None or getattr(step, "__code__", None) is not _TURNING_OFF:
        return step

    def taken(optimizer: Optimizer) -> None:
        before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(optimizer.defaults["differentiable"])  # noqa: SLF001  what the public one calls
        try:
            inner(optimizer)
        finally:
            torch._C._set_grad_enabled(before)  # noqa: SLF001

    return taken


_TURNING_OFF = _use_grad_for_differentiable(lambda: None).__code__


def _inner_step(optimizer: Optimizer) -> Step | None:
    """The step inside of torch's wrapper; None if the step is not simply that of the class."""
    kind: Any = type(optimizer).step
    patched = vars(optimizer).get("step")
    own = patched is None or getattr(patched, "__wrapped__", None) is kind  # a scheduler puts a counter around it
    return getattr(kind, "__wrapped__", None) if own and getattr(kind, "hooked", False) else None

"""Copies of the trained weights: moving average and best weights."""

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from trainers.loop.errors import NoBestWeightsError, ResumeMismatchError, SettingsError
from trainers.loop.loss import check_finite_score
from trainers.loop.step.guards import Nonfinite
from trainers.loop.weights.initial_weights import list_named_tensors

LARGE = 256 * 2**20
"""Bytes, the size of 64 million float32 parameters. Copies that are larger in total are kept on the host, because a
training already needs four times its weights (weights, gradients and two moments), and further copies would leave less
memory for batches. Copies are made or restored only a few times per epoch, and transferring 256 MiB takes some
hundredths of a second at 8 GB/s or more."""

HOST = torch.device("cpu")


def copy_tensors(tensors: Sequence[Tensor], *, large: int = LARGE) -> list[Tensor]:
    """Return detached copies of tensors of any shape, on the same device or, if they are large, on the host.

    Host copies of CUDA tensors are in pinned memory, which allows direct transfers.
    """
    on_host = is_large(tensors, large=large)
    return [to_host(tensor) if on_host else tensor.detach().clone() for tensor in tensors]


def is_large(tensors: Sequence[Tensor], *, large: int = LARGE) -> bool:
    """Return whether the tensors [...] are on an accelerator and so large that their copies are kept on the host."""
    elsewhere = any(tensor.device != HOST for tensor in tensors)
    return elsewhere and sum(tensor.numel() * tensor.element_size() for tensor in tensors) > large


def to_host(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor of any shape on the host."""
    return torch.empty_like(tensor, device=HOST, requires_grad=False, pin_memory=tensor.is_cuda).copy_(tensor.detach())


@final
class BestWeights:
    """Keeps the weights of the lowest value in memory, on their device or, if they are large, on the host.

    Args:
        modules: The trained modules by name; their parameters and buffers are kept.
        nonfinite: Whether a value that is not finite counts as no improvement (`skip`) or raises (`raise`).

    Attributes:
        value: The lowest value; None before the first finite one.
        stale: Number of values since then that were not lower.
        tensors: The kept weights by name; empty before the first finite value.
    """

    def __init__(self, modules: Mapping[str, nn.Module], nonfinite: Nonfinite = "raise") -> None:
        self._modules = modules
        self._nonfinite = nonfinite
        self.tensors: dict[str, Tensor] = {}
        self.value: float | None = None
        self.stale = 0

    def record(self, value: float) -> bool:
        """Record a value, lower is better; if it is the lowest so far, keep the weights and return True.

        Raises:
            NonFiniteError: The value is not finite, and `nonfinite` is `raise`.
        """
        value = float(value)  # a checkpoint with a numpy.float64, which is a float, could not be read
        if self._nonfinite == "raise":
            check_finite_score(value, "the recorded value")
        if not math.isfinite(value) or (self.value is not None and value >= self.value):
            self.stale += 1
            return False
        self.value, self.stale = value, 0
        self.tensors.clear()  # frees the old copy first, so that there is never more than one
        here = list_named_tensors(self._modules)
        self.tensors = dict(zip(here, copy_tensors([*here.values()]), strict=True))
        return True

    def restore(self) -> None:
        """Load the weights of the best value into the modules, in place.

        Raises:
            NoBestWeightsError: No finite value was recorded.
        """
        if self.value is None and self.has_value:
            raise NoBestWeightsError(
                f"no recorded value was finite ({self.stale} values), so there are no best weights; look for such "
                "values in the validation data, and check the training loss"
            )
        if self.value is None:
            raise NoBestWeightsError("no value was recorded yet; call stalled() or best.record() first")
        with torch.no_grad():
            for name, tensor in list_named_tensors(self._modules).items():
                tensor.copy_(self.tensors[name])

    @property
    def has_value(self) -> bool:
        """Whether any value was recorded, including before a resume."""
        return self.value is not None or self.stale > 0

    def state(self) -> dict[str, Any]:
        """Return value and staleness for a checkpoint, which saves the tensors separately."""
        return {"value": self.value, "stale": self.stale}

    def load(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Restore a state and its tensors, in the weights' shapes, on the device where `record` keeps them."""
        self.value, self.stale = state["value"], state["stale"]
        here = list_named_tensors(self._modules)
        on_host = is_large([*here.values()])
        self.tensors = {name: tensor.to(HOST if on_host else here[name].device) for name, tensor in tensors.items()}


@final
class AveragedWeights:
    """An exponential moving average of parameters; it stays on their device, because every step updates it.

    Polyak and Juditsky, "Acceleration of stochastic approximation by averaging" (1992), with exponential weights. The
    average of float16 and bfloat16 parameters is kept in float32, because these types cannot represent its change in
    one step. Buffers, such as the statistics of BatchNorm, are not averaged.

    Args:
        parameters: The parameters, of any shapes, on the device that trains them.
        decay: The weight of the previous average in a step, above 0 and below 1; 0.999 averages over about 1000 steps.
        module: The name of the module of the parameters; None for those of all modules.

    Attributes:
        tensors: The averages, in the order of the parameters; for checkpoints.
        decay: The weight of the previous average in a step.
        module: The name of the module.

    Raises:
        SettingsError: The decay is out of range.
    """

    def __init__(self, parameters: Sequence[Parameter], decay: float, *, module: str | None = None) -> None:
        if not 0 < decay < 1:
            raise SettingsError(f"the decay of the average is {decay}; it must be above 0 and below 1, such as 0.999")
        self._parameters = tuple(parameters)
        self.decay = decay
        self.module = module
        with torch.inference_mode(mode=False), torch.no_grad():  # inference tensors could not be updated later
            self.tensors = tuple(
                parameter.to(torch.promote_types(parameter.dtype, torch.float32), copy=True)
                for parameter in self._parameters
            )

    def update(self, step: int) -> None:
        """Move the average towards the parameters.

        Early steps use a smaller decay, (1 + step) / (10 + step), so that the initial weights soon lose influence.

        Args:
            step: Number of steps taken, including the last one; 1 or more.
        """
        decay = min(self.decay, (1 + step) / (10 + step))
        with torch.no_grad():
            now = [parameter.to(tensor.dtype) for parameter, tensor in zip(self._parameters, self.tensors, strict=True)]
            # One pass over all tensors; torch has no public function for it.
            torch._foreach_lerp_(list(self.tensors), now, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    @contextmanager
    def applied(self) -> Generator[None]:
        """Replace the parameters by the average inside the context, and restore them exactly at the end.

        Only contents are copied, so that optimizers and the flat weights of recurrent layers stay valid. It needs the
        memory of another copy of the parameters, on the host if they are large. Complete all backward passes first.
        """
        originals = copy_tensors(self._parameters)
        try:
            _copy(self.tensors, self._parameters)
            yield
        finally:
            _copy(originals, self._parameters)

    def settle(self) -> None:
        """Replace the parameters by the average permanently."""
        _copy(self.tensors, self._parameters)

    def restart(self) -> None:
        """Restart from the current parameters."""
        _copy(self._parameters, self.tensors)

    def load(self, tensors: Sequence[Tensor]) -> None:
        """Restore the averages of a checkpoint from tensors on any device.

        Raises:
            ResumeMismatchError: The shapes differ from those of the parameters.
        """
        shapes = [list(tensor.shape) for tensor in tensors]
        expected = [list(tensor.shape) for tensor in self.tensors]
        if shapes != expected:
            raise ResumeMismatchError(
                f"the checkpoint's averages have the shapes {shapes}, but the parameters have {expected}: it belongs "
                "to another network"
            )
        _copy(tensors, self.tensors)


def _copy(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source)

"""Copies of the trained weights: their moving average, and the best so far."""

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from trainers.loop.errors import NoBestWeightsError, ResumeMismatchError, SettingsError
from trainers.loop.loss import check_finite_score
from trainers.loop.weights.initial_weights import named_tensors
from trainers.loop.window.guards import Nonfinite

LARGE = 256 * 2**20
"""Bytes of all copies together, those of 64 million float32 parameters. Larger ones lie on the host: a training holds
four times its weights anyway (weights, gradients and two moments), and each further copy is memory that batches cannot
have. They are made or put back a few times per epoch at most, and 256 MiB pass a GPU's link in some hundredths of a
second (reckoned at 8 GB/s or more); smaller ones are not worth the wait."""

HOST = torch.device("cpu")


def copies_of(tensors: Sequence[Tensor], *, large: int = LARGE) -> list[Tensor]:
    """A copy of every tensor of any shape, without its graph: beside it, or all on the host where they are large.

    Beside a CUDA device they lie in pinned memory, which it reads and writes without a detour.
    """
    aside = is_large(tensors, large=large)
    return [to_host(tensor) if aside else tensor.detach().clone() for tensor in tensors]


def is_large(tensors: Sequence[Tensor], *, large: int = LARGE) -> bool:
    """Whether copies of these tensors of any shape, of which some are on an accelerator, are kept on the host."""
    elsewhere = any(tensor.device != HOST for tensor in tensors)
    return elsewhere and sum(tensor.numel() * tensor.element_size() for tensor in tensors) > large


def to_host(tensor: Tensor) -> Tensor:
    """A copy of a tensor of any shape on the host."""
    return torch.empty_like(tensor, device=HOST, requires_grad=False, pin_memory=tensor.is_cuda).copy_(tensor.detach())


@final
class BestWeights:
    """Keeps the weights of the lowest value in memory: on the device they are on, or on the host where they are large.

    Args:
        modules: The trained modules by name; their parameters and buffers are kept.
        nonfinite: Whether a value that is not finite counts as no improvement (`skip`) or raises.

    Attributes:
        value: The lowest value; None before the first finite one.
        stale: Values since then that were not lower.
    """

    def __init__(self, modules: Mapping[str, nn.Module], nonfinite: Nonfinite = "raise") -> None:
        self._modules = modules
        self._nonfinite = nonfinite
        self._kept: dict[str, Tensor] = {}
        self.value: float | None = None
        self.stale = 0

    def record(self, value: float) -> bool:
        """Note a value, lower being better; True if it is the best so far, whose weights are then kept.

        Raises:
            NonFiniteError: The value is infinite or not a number, and that is to raise.
        """
        value = float(value)  # a float64 of NumPy is one too, and no checkpoint could be read back with it
        if self._nonfinite == "raise":
            check_finite_score(value, "the recorded value")
        if not math.isfinite(value) or (self.value is not None and value >= self.value):
            self.stale += 1
            return False
        self.value, self.stale = value, 0
        self._kept.clear()  # first, so that there is never more than one copy
        here = named_tensors(self._modules)
        self._kept = dict(zip(here, copies_of([*here.values()]), strict=True))
        return True

    def restore(self) -> None:
        """Put the weights of the best value back into the modules, in place.

        Raises:
            NoBestWeightsError: No value was recorded that is finite.
        """
        if self.value is None and self.begun:
            raise NoBestWeightsError(
                f"none of the {self.stale} recorded values was finite, so no weights are the best; look for such "
                "values in the data that is scored, and at the training's own loss"
            )
        if self.value is None:
            raise NoBestWeightsError("no value was recorded yet; call stalled() or best.record() with one first")
        with torch.no_grad():
            for name, tensor in named_tensors(self._modules).items():
                tensor.copy_(self._kept[name])

    @property
    def begun(self) -> bool:
        """Whether any value was recorded, also before a resume."""
        return self.value is not None or self.stale > 0

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The kept weights by name; none before the first value."""
        return self._kept

    def state(self) -> dict[str, Any]:
        """Value and staleness, for a checkpoint, which keeps the tensors apart."""
        return {"value": self.value, "stale": self.stale}

    def load(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Go on from such a state and its tensors, in the weights' shapes, moved to where `record` keeps them."""
        self.value, self.stale = state["value"], state["stale"]
        here = named_tensors(self._modules)
        aside = is_large([*here.values()])
        self._kept = {name: tensor.to(HOST if aside else here[name].device) for name, tensor in tensors.items()}


@final
class AveragedWeights:
    """An exponential moving average of parameters, on their device, however large: it moves in every step.

    Polyak and Juditsky, "Acceleration of stochastic approximation by averaging" (1992), with exponential weights. The
    average of float16 and bfloat16 parameters is kept in float32, because its movement in one step is less than they
    can express. Buffers, such as the statistics of BatchNorm, are not averaged.

    Args:
        parameters: Of any shapes; on the device that trains them.
        decay: What stays of the average in a step, above 0 and below 1; 0.999 averages over some 1000 steps.
        module: The name of the module whose parameters they are; None for those of all modules.

    Attributes:
        tensors: The averages, in the order of the parameters; for checkpoints.
        decay: As given.
        module: As given.

    Raises:
        SettingsError: The decay is out of its range.
    """

    def __init__(self, parameters: Sequence[Parameter], decay: float, *, module: str | None = None) -> None:
        if not 0 < decay < 1:
            raise SettingsError(f"the decay of the average is {decay}; it must be above 0 and below 1, such as 0.999")
        self._parameters = tuple(parameters)
        self.decay = decay
        self.module = module
        with torch.inference_mode(mode=False), torch.no_grad():  # inference tensors could not be updated later
            self.tensors = tuple(parameter.to(_wide(parameter.dtype), copy=True) for parameter in self._parameters)

    def update(self, step: int) -> None:
        """Move the average towards the parameters.

        Early on it forgets faster, at a decay of (1 + step) / (10 + step), so that the first weights soon weigh little.

        Args:
            step: Steps that were taken, the last one included; 1 or more.
        """
        decay = min(self.decay, (1 + step) / (10 + step))
        with torch.no_grad():
            now = [parameter.to(tensor.dtype) for parameter, tensor in zip(self._parameters, self.tensors, strict=True)]
            # One pass over all tensors; torch gives it no public name.
            torch._foreach_lerp_(list(self.tensors), now, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    @contextmanager
    def applied(self) -> Generator[None]:
        """The parameters hold the average inside; afterwards, also after an error, exactly what they held before.

        Only contents are copied, so that optimizers and the flat weights of recurrent layers stay valid. It takes the
        memory of one more copy of the parameters, which lies on the host where they are large. No graph may be alive
        that is still to go backward.
        """
        kept = copies_of(self._parameters)
        try:
            _copy(self.tensors, self._parameters)
            yield
        finally:
            _copy(kept, self._parameters)

    def settle(self) -> None:
        """Put the average into the parameters for good."""
        _copy(self.tensors, self._parameters)

    def restart(self) -> None:
        """Start again from the parameters as they are."""
        _copy(self._parameters, self.tensors)

    def load(self, tensors: Sequence[Tensor]) -> None:
        """Take the averages of a checkpoint, wherever its tensors are.

        Raises:
            ResumeMismatchError: Their shapes are not those of the parameters.
        """
        shapes = [list(tensor.shape) for tensor in tensors]
        expected = [list(tensor.shape) for tensor in self.tensors]
        if shapes != expected:
            raise ResumeMismatchError(
                f"the checkpoint's averages have the shapes {shapes}, but the parameters have {expected}: it was made "
                "by another network"
            )
        _copy(tensors, self.tensors)


def _copy(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)

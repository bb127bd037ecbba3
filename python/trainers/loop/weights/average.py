"""The exponential moving average of parameters, which often scores better than the parameters themselves."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import final

import torch
from torch import Tensor
from torch.nn import Parameter

from trainers.loop.errors import ResumeMismatchError, SettingsError
from trainers.loop.weights.keeping import copies_of


@final
class Average:
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
        """Begin anew from the parameters as they are."""
        _copy(self._parameters, self.tensors)

    def load(self, tensors: Sequence[Tensor]) -> None:
        """Take the averages of a checkpoint, wherever its tensors are.

        Raises:
            ResumeMismatchError: Their shapes are not those of the parameters.
        """
        found = [list(tensor.shape) for tensor in tensors]
        expected = [list(tensor.shape) for tensor in self.tensors]
        if found != expected:
            raise ResumeMismatchError(
                f"the checkpoint's averages have the shapes {found}, but the parameters have {expected}: it was made "
                "by another network"
            )
        _copy(tensors, self.tensors)


def _copy(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)

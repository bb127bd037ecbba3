"""The call of the optimizer, which may run out of memory when it makes its states."""

from collections.abc import Callable, Sequence
from typing import final

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from trainers.loop.device.memory import is_out_of_memory, release
from trainers.loop.errors import OutOfMemoryError


@final
class Stepper:
    """Steps an optimizer.

    The first step makes the optimizer's states. Where memory runs out before it has changed a weight, half-made states
    are removed and the step is taken once more: the window's activations are gone by then. A step that fails half-way
    is an error, because some weights have moved and others have not.

    Args:
        optimizer: Whose step it is.
        parameters: What it trains.
    """

    def __init__(self, optimizer: Optimizer, parameters: Sequence[Parameter]) -> None:
        self._optimizer = optimizer
        self._parameters = parameters
        self._first = True

    def step(self, take: Callable[[], object]) -> None:
        """Take the step by calling `take`.

        Raises:
            OutOfMemoryError: Memory ran out, and a second attempt is not possible or failed too.
        """
        known = set(self._optimizer.state) if self._first else None
        sums = self._sums() if self._first else []
        cause = _shortage(take)
        if cause is not None and known is not None:
            self._undo(known, sums, cause)
            cause = _shortage(take)
        if cause is not None:
            raise OutOfMemoryError(
                f"memory ran out in the optimizer's step ({cause}); its states need as much memory as the weights once "
                "or twice over. Use a fused optimizer (trainers.loop.adamw), one with smaller states, or a smaller "
                "network, and go on from the last checkpoint"
            )
        self._first = False

    def _undo(self, known: set[Tensor], sums: Sequence[int], cause: str) -> None:
        """Remove what a failed first step has made."""
        if self._sums() != sums:
            raise OutOfMemoryError(
                f"memory ran out in the middle of the optimizer's first step ({cause}): some weights have moved and "
                "others have not. Start again with a fused optimizer (trainers.loop.adamw) or a smaller network"
            )
        for parameter in set(self._optimizer.state) - known:
            del self._optimizer.state[parameter]
        release(self._parameters[0].device)

    def _sums(self) -> list[int]:
        """The bits of every weight, added up: another sum once one has moved. Torch does not count fused changes."""
        return [int(_bits(parameter).sum()) for parameter in self._parameters]


def _bits(parameter: Parameter) -> Tensor:
    """The elements as integers of the same size."""
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32}
    return parameter.detach().view(integers.get(parameter.itemsize, torch.int64))


def _shortage(take: Callable[[], object]) -> str | None:
    """Call it; the allocator's words if memory ran out."""
    try:
        take()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return str(error).partition("\n")[0]
    return None

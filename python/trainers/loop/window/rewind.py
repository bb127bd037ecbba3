"""Going back to the start of a window or of a piece, as if its forward had never run."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from trainers.loop.machine.generators import device_generator


@dataclass(frozen=True, slots=True)
class Mark:
    """What a forward may change: the generators of the CPU and of the device, and the buffers of the modules."""

    host: Tensor
    device: Tensor | None
    buffers: tuple[Tensor, ...]


@final
class Rewind:
    """Marks a state and goes back to it.

    A loss function that draws from Python's or NumPy's generators is right all the same, but not repeatable to the bit.

    Args:
        modules: Whose buffers a forward in training mode may change.
        device: Whose generator is kept beside the CPU's.
    """

    def __init__(self, modules: Iterable[nn.Module], device: torch.device) -> None:
        self._holders = [
            (part, name)
            for module in modules
            for part in module.modules()
            for name in dict(part.named_buffers("", recurse=False))
        ]
        self._generator = device_generator(device)
        self._kept: list[tuple[Tensor, int, Tensor] | None] = [None] * len(self._holders)

    def mark(self) -> Mark:
        """Note the state as it is now."""
        return Mark(
            torch.default_generator.get_state(),
            None if self._generator is None else self._generator.get_state(),
            self._copies() if self._holders else (),
        )

    def back(self, mark: Mark) -> None:
        """Make the state what it was."""
        torch.default_generator.set_state(mark.host)
        if self._generator is not None and mark.device is not None:
            self._generator.set_state(mark.device)
        with torch.no_grad():
            for (part, name), copy in zip(self._holders, mark.buffers, strict=True):
                part.get_buffer(name).copy_(copy)

    def _copies(self) -> tuple[Tensor, ...]:
        """A copy of every buffer; of one that has not changed since the last mark, the same copy."""
        copies: list[Tensor] = []
        for place, (part, name) in enumerate(self._holders):
            buffer, kept = part.get_buffer(name), self._kept[place]
            if kept is None or kept[0] is not buffer or kept[1] != buffer._version:  # noqa: SLF001  the count of in-place changes has no public name
                kept = self._kept[place] = (buffer, buffer._version, buffer.detach().clone())  # noqa: SLF001
            copies.append(kept[2])
        return tuple(copies)

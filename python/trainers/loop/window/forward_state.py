"""State to restore before a window or a piece is computed again."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, final

import torch
from torch import Tensor, nn

from trainers.loop.device import device_generator


@final
@dataclass(frozen=True, slots=True)
class Buffers:
    """The buffers of one module, submodules not included, as they were.

    Attributes:
        module: Whose they are.
        tensors: The buffers themselves, because a forward may put others in their place.
        versions: How often each had been changed in place.
        contents: Copies of them.
    """

    module: nn.Module
    tensors: Mapping[str, Tensor | None]
    versions: Sequence[int | None]
    contents: Mapping[str, Tensor]

    @classmethod
    def of(cls, module: nn.Module) -> Self:
        """Copy the buffers."""
        tensors = dict(module._buffers)  # noqa: SLF001  named_buffers() takes many times as long
        copies = {name: tensor.detach().clone() for name, tensor in tensors.items() if tensor is not None}
        return cls(module, tensors, _versions(tensors), copies)

    def current(self) -> bool:
        """Whether no buffer has changed since.

        Torch does not count the changes that BatchNorm makes to its running mean and variance, but those to its number
        of batches; so the buffers of a module count as changed together.
        """
        now = self.module._buffers  # noqa: SLF001  as above
        same = len(now) == len(self.tensors) and all(now.get(name) is tensor for name, tensor in self.tensors.items())
        return same and _versions(self.tensors) == self.versions

    def restore(self) -> None:
        """Make them what they were."""
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                setattr(self.module, name, tensor)
                if tensor is not None and not tensor.is_inference():
                    tensor.copy_(self.contents[name])


class ForwardState(NamedTuple):
    """What a forward may change: the generators of the CPU and of the device, and the buffers of the modules."""

    host: Tensor
    device: Tensor | None
    buffers: tuple[Buffers, ...]


@final
class Rewind:
    """Marks a state and goes back to it.

    A loss function that draws from Python's or NumPy's generators is right all the same, but not repeatable to the bit.

    Args:
        modules: Whose buffers a forward in training mode may change.
        device: The device whose generator is saved together with the CPU's.
    """

    def __init__(self, modules: Iterable[nn.Module], device: torch.device) -> None:
        holders = [part for module in modules for part in module.modules() if list(part.buffers(recurse=False))]
        self._generator = device_generator(device)
        self._kept = tuple(Buffers.of(part) for part in holders)

    def mark(self) -> ForwardState:
        """Save the current state; buffers that have not changed since the last save are not copied again."""
        if self._kept:
            self._kept = tuple(kept if kept.current() else Buffers.of(kept.module) for kept in self._kept)
        return ForwardState(
            torch.default_generator.get_state(),
            None if self._generator is None else self._generator.get_state(),
            self._kept,
        )

    def back(self, mark: ForwardState) -> None:
        """Make the state what it was."""
        torch.default_generator.set_state(mark.host)
        if self._generator is not None and mark.device is not None:
            self._generator.set_state(mark.device)
        self.put_buffers_back(mark)

    def put_buffers_back(self, mark: ForwardState, *, but: Collection[nn.Module] = ()) -> None:
        """Make only the buffers what they were, but for those of some modules."""
        for buffers in mark.buffers:
            if buffers.module not in but:
                buffers.restore()


def _versions(tensors: Mapping[str, Tensor | None]) -> list[int | None]:
    # A cache that a validation has remade is an inference tensor: nothing in a training can change it in place.
    return [
        None if tensor is None or tensor.is_inference() else tensor._version  # noqa: SLF001  no public name
        for tensor in tensors.values()
    ]

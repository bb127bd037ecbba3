"""The state to restore before a window or a micro-batch is computed again."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, final

import torch
from torch import Tensor, nn

from trainers.loop.device import find_device_generator


@final
@dataclass(frozen=True, slots=True)
class Buffers:
    """A copy of the buffers of one module without its submodules.

    Attributes:
        module: The module.
        tensors: The buffers themselves, because a forward may replace them.
        versions: How often each buffer had been changed in place.
        contents: Copies of the buffers.
    """

    module: nn.Module
    tensors: Mapping[str, Tensor | None]
    versions: Sequence[int | None]
    contents: Mapping[str, Tensor]

    @classmethod
    def of(cls, module: nn.Module) -> Self:
        """Copy the buffers of a module."""
        tensors = dict(module._buffers)  # noqa: SLF001  named_buffers() takes many times as long
        copies = {name: tensor.detach().clone() for name, tensor in tensors.items() if tensor is not None}
        return cls(module, tensors, _read_versions(tensors), copies)

    def current(self) -> bool:
        """Return whether the copy is up to date.

        Torch counts the changes of BatchNorm to its number of batches, but not those to its running mean and variance.
        Therefore a change of one buffer counts as a change of all.
        """
        now = self.module._buffers  # noqa: SLF001  as above
        same = len(now) == len(self.tensors) and all(now.get(name) is tensor for name, tensor in self.tensors.items())
        return same and _read_versions(self.tensors) == self.versions

    def restore(self) -> None:
        """Restore the buffers of the module."""
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                setattr(self.module, name, tensor)
                if tensor is not None and not tensor.is_inference():
                    tensor.copy_(self.contents[name])


class ForwardState(NamedTuple):
    """The state that a forward may change: generators of the CPU and the device, and buffers of the modules."""

    host: Tensor
    device: Tensor | None
    buffers: tuple[Buffers, ...]


@final
class Rewind:
    """Saves and restores the state of a forward.

    A loss function that draws from Python's or NumPy's generators stays correct, but is not reproducible bit by bit.

    Args:
        modules: Modules whose buffers a forward in training mode may change.
        device: The device whose generator is saved together with the CPU's.
    """

    def __init__(self, modules: Iterable[nn.Module], device: torch.device) -> None:
        holders = [part for module in modules for part in module.modules() if list(part.buffers(recurse=False))]
        self._generator = find_device_generator(device)
        self._kept = tuple(Buffers.of(part) for part in holders)

    def save(self) -> ForwardState:
        """Save the current state; buffers that have not changed since the last call are not copied again."""
        if self._kept:
            self._kept = tuple(kept if kept.current() else Buffers.of(kept.module) for kept in self._kept)
        return ForwardState(
            torch.default_generator.get_state(),
            None if self._generator is None else self._generator.get_state(),
            self._kept,
        )

    def restore(self, state: ForwardState) -> None:
        """Restore a saved state."""
        torch.default_generator.set_state(state.host)
        if self._generator is not None and state.device is not None:
            self._generator.set_state(state.device)
        self.restore_buffers(state)

    def restore_buffers(self, state: ForwardState, *, but: Collection[nn.Module] = ()) -> None:
        """Restore only the buffers, except those of some modules."""
        for buffers in state.buffers:
            if buffers.module not in but:
                buffers.restore()


def _read_versions(tensors: Mapping[str, Tensor | None]) -> list[int | None]:
    # A buffer that a validation has replaced is an inference tensor, which a training run cannot change in place.
    return [
        None if tensor is None or tensor.is_inference() else tensor._version  # noqa: SLF001  no public name
        for tensor in tensors.values()
    ]

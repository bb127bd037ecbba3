"""A forward that one phase owns and others use; it runs once per micro-batch, in the first of these phases.

If the owner runs after a user, the graphs of all micro-batches are kept until the owner's backward, which takes the
memory of a window. If it runs first, only values are kept. All phases use the same micro-batches. When memory runs out
in a later phase, the results are dropped, and the forward runs again in smaller micro-batches, from the generators and
buffers at the start of the window. If the owner has taken its step by then, the forward uses the new weights.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Self, TypeVar, final

import torch
from torch import Tensor, nn

from trainers.loop.data.batch_splitter import MicroBatch
from trainers.loop.data.tree import check_tree, find_opaque, iterate_leaves, iterate_tensors, map_tensors
from trainers.loop.device import Precision, find_device_generator
from trainers.loop.errors import ContractError, SettingsError, join_names
from trainers.loop.phase import FrozenParameters, Phase


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

    def is_current(self) -> bool:
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
        self._buffers = tuple(Buffers.of(part) for part in holders)

    def save(self) -> ForwardState:
        """Save the current state; buffers that have not changed since the last call are not copied again."""
        if self._buffers:
            self._buffers = tuple(
                buffers if buffers.is_current() else Buffers.of(buffers.module) for buffers in self._buffers
            )
        return ForwardState(
            torch.default_generator.get_state(),
            None if self._generator is None else self._generator.get_state(),
            self._buffers,
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


Batch = TypeVar("Batch")


@final
@dataclass(frozen=True, slots=True)
class ForwardResult:
    """The result of the forward for a micro-batch.

    Attributes:
        tree: The tensors, with their graph while the owner still needs it.
        versions: How often each tensor had been changed in place when the result was stored.
    """

    tree: Any
    versions: tuple[int, ...]

    @classmethod
    def of(cls, tree: Any) -> Self:
        """Store a tree with its current versions."""
        return cls(tree, tuple(tensor._version for _, tensor in iterate_tensors(tree, "result")))  # noqa: SLF001  no public name

    def detach(self) -> Any:
        """Return the tensors without a graph, in the same memory."""
        return map_tensors(self.tree, Tensor.detach)

    def without_graph(self, weight_addresses: AbstractSet[int]) -> "ForwardResult":
        """Return the result to keep for users after the owner has run: without a graph, and with weights copied.

        Args:
            weight_addresses: The memory addresses of the owner's weights, which its step will change.
        """

        def detach_tensor(tensor: Tensor) -> Tensor:
            is_weight = tensor.untyped_storage().data_ptr() in weight_addresses
            return tensor.detach().clone() if is_weight else tensor.detach()

        return ForwardResult.of(map_tensors(self.tree, detach_tensor))

    def find_changed(self) -> list[str]:
        """Return the paths of the tensors that were changed in place since."""
        return [
            path
            for (path, tensor), version in zip(iterate_tensors(self.tree, "result"), self.versions, strict=True)
            if tensor._version != version  # noqa: SLF001  as above
        ]


@final
class SharedForward(Generic[Batch]):
    """The forward of a phase, and its results in the current window.

    Args:
        phase: The phase that owns the forward.
        users: The phases that use it.
        frozen: The parameters of all other phases.
        modules: The modules that hold the owner's parameters, including submodules.
        device: The device to compute on.
        precision: The precision of the owner.

    Attributes:
        owner: The name of the owner.
        modules: The modules that hold the owner's parameters.

    Raises:
        SettingsError: The phase has no forward.
    """

    def __init__(
        self,
        phase: Phase[Batch],
        *,
        users: Sequence[str],
        frozen: FrozenParameters,
        modules: Collection[nn.Module],
        device: torch.device,
        precision: Precision,
    ) -> None:
        if phase.forward is None:
            raise SettingsError(f"phase {phase.name!r} has no forward to share")
        self.owner = phase.name
        self.modules = frozenset(modules)
        self._forward = phase.forward
        self._phases = frozenset((phase.name, *users))
        self._frozen = frozen
        self._device = device
        self._dtype = precision.dtype
        self._rewind = Rewind(modules, device)
        self._due: Sequence[str] = ()
        self._checked_structures: set[tuple[tuple[str, type], ...]] = set()
        self._weights = {
            tensor.untyped_storage().data_ptr()
            for part in modules
            for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False))
        }
        self._results: dict[tuple[int, int], ForwardResult] = {}
        self._start: ForwardState | None = None
        self._first: str | None = None

    def begin(self, due: Sequence[str]) -> None:
        """Start a window with the phases that are due in it, in order."""
        self._due = [name for name in due if name in self._phases]
        self._start = self._first = None

    def end(self) -> None:
        """End a window and drop results that an error may have left."""
        self._results.clear()

    def result(
        self, phase: str, number: int, micro_batch: MicroBatch[Batch], batch: Batch, frozen: FrozenParameters
    ) -> Any:
        """Return the result of the forward for a micro-batch: with its graph for the owner, detached for users.

        Args:
            phase: The phase that is running.
            number: The number of the batch in the window.
            micro_batch: The micro-batch of the batch.
            batch: The micro-batch on the device.
            frozen: The parameters that the running phase has frozen.
        """
        key = (number, micro_batch.start)
        result = self._results.get(key)
        if result is None:
            result = self._make(phase, batch, frozen)
            self._results[key] = result
        if phase != self.owner:
            return result.detach()
        if self._is_needed_after(phase):
            self._results[key] = result.without_graph(self._weights)
        else:
            del self._results[key]
        return result.tree

    def check_unchanged(self, phase: str, number: int, micro_batch: MicroBatch[Batch]) -> None:
        """Check that a phase has not changed a result in place, and drop the result if no later phase needs it.

        Raises:
            ContractError: The phase has changed the result.
        """
        key = (number, micro_batch.start)
        result = self._results.get(key)
        changed = [] if result is None else result.find_changed()
        if changed:
            raise ContractError(
                f"phase {phase!r} has written to {join_names(changed)} in place, but another phase still needs "
                f"this result of the forward of phase {self.owner!r}; write to a copy: use .clone(), or an operation "
                "without a trailing underscore"
            )
        if not self._is_needed_after(phase):
            self._results.pop(key, None)

    def was_run_by_other_phase(self, phase: str) -> bool:
        """Return whether a phase other than `phase` ran the forward in this window."""
        return self._first not in (None, phase)

    def describe_graphs(self) -> str:
        """Describe the kept graphs for a message; empty if there are none."""
        graphs = sum(
            any(tensor.requires_grad for _, tensor in iterate_tensors(result.tree)) for result in self._results.values()
        )
        if not graphs:
            return ""
        return (
            f", while the graphs of {graphs} forwards are kept for phase {self.owner!r}, which runs later in the "
            "window: put it first, or use fewer batches per window"
        )

    def restart(self) -> None:
        """Drop all results and restore the state at the start of the window, to run again in smaller micro-batches."""
        self._results.clear()
        if self._start is not None:
            self._rewind.restore(self._start)

    def drop(self, number: int, micro_batch: MicroBatch[Batch]) -> None:
        """Drop the result of a micro-batch that will be cut smaller."""
        self._results.pop((number, micro_batch.start), None)

    def restore_buffers(self) -> None:
        """Undo the changes of the forward to the buffers of the owner's modules in this window."""
        if self._start is not None:
            self._rewind.restore_buffers(self._start)

    def find_restored_by_owner(self, phase: str) -> Collection[nn.Module]:
        """Return the modules whose buffers the owner restores; none if it is the running phase or not due."""
        return self.modules if phase != self.owner and self.owner in self._due else ()

    def _is_needed_after(self, phase: str) -> bool:
        """Return whether a later phase of this window uses the forward."""
        return self._due[-1] != phase

    def _make(self, phase: str, batch: Batch, frozen: FrozenParameters) -> ForwardResult:
        if self._start is None:
            self._start, self._first = self._rewind.save(), phase
        if phase == self.owner:
            return self._run(batch)
        if self.owner not in self._due[self._due.index(phase) :]:
            with torch.no_grad():
                return self._run(batch)
        frozen.pause()
        try:
            with self._frozen:
                return self._run(batch)
        finally:
            frozen.resume()

    def _run(self, batch: Batch) -> ForwardResult:
        with nullcontext() if self._dtype is None else torch.autocast(self._device.type, dtype=self._dtype):
            tree = self._forward(batch)
        self._check(tree)
        return ForwardResult.of(tree)

    def _check(self, tree: object) -> None:
        """Check the first tree of every structure: all tensors must be reachable, to be detached."""
        kind = tuple([(path, type(leaf)) for path, leaf in iterate_leaves(tree, "result")])
        if kind in self._checked_structures:
            return
        check_tree(tree, "result")
        hidden = find_opaque(tree, "result")
        if hidden:
            raise ContractError(
                f"the forward of phase {self.owner!r} returned {join_names(hidden)}, whose tensors cannot be "
                "detached for other phases; return tensors in a dict, a tuple, a NamedTuple or a dataclass"
            )
        inference = [path for path, tensor in iterate_tensors(tree, "result") if tensor.is_inference()]
        if inference:
            raise ContractError(
                f"the forward of phase {self.owner!r} returned {join_names(inference)} from torch.inference_mode(), "
                "which backward rejects; leave that context, and use torch.no_grad() for frozen parts"
            )
        self._checked_structures.add(kind)

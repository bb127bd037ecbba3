"""A fake device that refuses what CUDA refuses: operations on tensors of two devices.

The `meta` device refuses most of that itself, but not indexing and matrix products. `OneDevice` inspects every
operation and allows host tensors only where CUDA does:

- copies between host and device;
- zero-dimensional tensors in pointwise operations (TensorIterator's `allow_cpu_scalars`);
- an index in brackets, which torch moves, and a zero-dimensional value assigned there.

Values on a device without memory are unknown. A single number reads as 1; in copies to the host, floats are 1,
integers 0 and booleans true; `nonzero` finds every element. Reads and copies from the host are recorded, because on a
GPU each one waits.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

META = torch.device("meta")
HOST = torch.device("cpu")
COPIES = ("aten::_to_copy", "aten::copy_")
READS = ("aten::_local_scalar_dense", "aten::nonzero")
INDEXING = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")


class TwoDevicesError(Exception):
    """An operation on tensors of two devices that CUDA would refuse."""


@final
class OneDevice(TorchDispatchMode):
    """A context that refuses operations on tensors of two devices, as CUDA would.

    Attributes:
        reads: The operations that read from the device.
        uploads: The shapes of what was copied to it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.uploads: list[list[int]] = []

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:  # in inference mode composite operations arrive here; their parts are checked
                parts = func.decompose(*args, **named)
            if parts is not NotImplemented:
                return parts
        tensors = [leaf for leaf in tree_flatten((args, named))[0] if isinstance(leaf, Tensor)]
        name = func.name().partition(".")[0]
        if name not in COPIES and len({tensor.device for tensor in tensors}) > 1:
            _check(func, name, args, tensors)
        return self._answered(func, name, args, named)

    def _answered(self, func: Any, name: str, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """The operation's result, or a placeholder for a value read from the device."""
        first = args[0] if args else None
        if isinstance(first, Tensor) and first.device == HOST:
            if name == "aten::_to_copy" and named.get("device") == META:
                self.uploads.append(list(first.shape))
            if name == "aten::copy_" and args[1].device == META:
                self.reads.append(name)
                return first.copy_(_unknown(first.shape, first.dtype))
        elif isinstance(first, Tensor) and (name in READS or named.get("device", META) != META):
            self.reads.append(name)
            return _read(name, first, named.get("dtype") or first.dtype)
        return func(*args, **named)


def _read(name: str, tensor: Tensor, dtype: torch.dtype) -> Any:
    """The placeholder for a tensor read from the device."""
    if name == "aten::_local_scalar_dense":
        return torch.ones((), dtype=dtype).item()
    if name == "aten::nonzero":
        return torch.ones(tensor.shape, dtype=torch.bool).nonzero().to(META)
    return _unknown(tensor.shape, dtype)


def _unknown(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    return torch.full(shape, fill_value=dtype.is_floating_point or dtype == torch.bool).to(dtype)


def _check(func: Any, name: str, args: Sequence[Any], tensors: Sequence[Tensor]) -> None:
    if name in INDEXING and _is_ours(args[0]) and all(map(_is_ours, args[2:3])):
        return  # indices may be on either device
    if torch.Tag.pointwise in func.tags and all(map(_is_ours, tensors)):
        return
    found = ", ".join(f"{list(tensor.shape)} on {tensor.device}" for tensor in tensors)
    raise TwoDevicesError(f"{func.name()} takes tensors of two devices: {found}")


def _is_ours(tensor: Tensor) -> bool:
    """Whether the tensor is on the device, or is zero-dimensional and counts as a number."""
    return tensor.device == META or tensor.ndim == 0

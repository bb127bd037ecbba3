"""Batches as trees of tensors, nested in tuples, NamedTuples, lists, dicts and dataclasses.

Container types are preserved. An object with a method `.to(device)` moves itself, and is indivisible unless it is a
dataclass. Other objects that hold tensors can be neither moved nor cut, and are rejected.
"""

import copy
from collections import UserDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import islice
from types import MappingProxyType, ModuleType
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from trainers.loop.errors import ContractError

Tree = TypeVar("Tree")

MAX_SEARCHED_ITEMS = 64
"""Maximum number of items of an unknown container that are searched for tensors."""

UNSET = object()
"""Sentinel for a field without a value."""

MAX_SEARCH_DEPTH = 3
"""Depth of nested objects that are searched."""


def map_tensors(tree: Tree, function: Callable[[Tensor], Tensor]) -> Tree:
    """Return the tree with `function` applied to every tensor of any shape; other leaves are unchanged."""
    return _map(tree, function, _keep)


def move(tree: Tree, device: torch.device) -> Tree:
    """Return the tree with its tensors on `device`; tensors that are already there are not copied."""
    # A non-blocking copy to the host might be read before it is complete.
    asynchronous = device.type == "cuda"

    def move_tensor(tensor: Tensor) -> Tensor:
        return tensor if tensor.device == device else tensor.to(device, non_blocking=asynchronous)

    def move_itself(value: Any) -> Any:
        copy = value.to(device)
        if copy is None:
            raise ContractError(
                f"the method .to(device) of a {type(value).__name__} returned None; it must return the object on the "
                "device"
            )
        return copy

    return _map(tree, move_tensor, move_itself)


def make_mover(device: torch.device) -> Callable[[Tree], Tree]:
    """Return a function that moves trees to `device`; on a machine without accelerators it does nothing.

    The function checks the first tree of every class, on every machine.

    Raises:
        ContractError: Raised by the function if a tree holds tensors that cannot be moved.
    """
    checked_classes: set[type] = set()
    stays = device.type == "cpu" and not torch.accelerator.is_available()

    def check_and_move(tree: Tree) -> Tree:
        if type(tree) not in checked_classes:
            check_tree(tree)
            checked_classes.add(type(tree))
        return tree if stays else move(tree, device)

    return check_and_move


def check_tree(tree: object, path: str = "batch") -> None:
    """Check that all tensors of a tree can be moved.

    Raises:
        ContractError: An object that is not a known container holds tensors and has no method `.to`.
    """
    for leaf_path, value in iterate_leaves(tree, path):
        if not isinstance(value, Tensor) and not _moves_itself(value) and _holds_tensor(value):
            raise ContractError(
                f"{leaf_path} is a {type(value).__name__} that holds tensors, which the loop cannot move to a device; "
                "use a dict, a NamedTuple, a dataclass, or an object whose method .to(device) returns it on the device"
            )


def iterate_tensors(tree: object, path: str = "batch") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor with its path, such as `batch.x` or `batch[0]['y']`, in the order of the tree."""
    return ((leaf_path, value) for leaf_path, value in iterate_leaves(tree, path) if isinstance(value, Tensor))


def iterate_leaves(tree: object, path: str = "batch") -> Iterator[tuple[str, object]]:
    """Yield every leaf, tensor or not, with its path."""
    children = None if isinstance(tree, Tensor) else _list_children(tree)
    if children is None:
        yield path, tree
        return
    for name, child in children:
        yield from iterate_leaves(child, path + name)


def iterate_non_tensors(tree: object) -> Iterator[object]:
    """Yield everything except the tensors: other leaves, and lists and tuples without tensors as one object each."""
    if isinstance(tree, Tensor):
        return
    children = [child for _, child in _list_children(tree) or ()]
    if not children or (type(tree) in (tuple, list) and next(iterate_tensors(tree), None) is None):
        yield tree
        return
    for child in children:
        yield from iterate_non_tensors(child)


def find_opaque(tree: object, path: str = "batch") -> list[str]:
    """Return paths and classes of the objects that may hide tensors inside."""
    return [
        f"{leaf_path} {type(value).__name__}"
        for leaf_path, value in iterate_leaves(tree, path)
        if not isinstance(value, Tensor) and _moves_itself(value)
    ]


def find_uncuttable(tree: object) -> list[str]:
    """Return paths and classes of the objects that cannot be cut to fewer samples.

    These are objects that may hide tensors inside, and dataclasses that compute fields in `__post_init__`.
    """
    return [*find_opaque(tree), *_find_computing(tree, "batch")]


def describe(tree: object) -> str:
    """Describe a tree for messages: paths, dtypes and shapes of its tensors, and the objects that move themselves."""
    parts = [f"{path} {_describe_tensor(tensor)}" for path, tensor in iterate_tensors(tree)] + find_opaque(tree)
    return ", ".join(parts) or f"no tensor in {type(tree).__name__}"


def _map(tree: Any, function: Callable[[Tensor], Tensor], themselves: Callable[[Any], Any]) -> Any:
    """Apply `function` to every tensor and `themselves` to every object that moves itself."""
    if isinstance(tree, Tensor):
        return function(tree)
    if _moves_itself(tree) and not (themselves is _keep and _is_dataclass(tree)):
        return themselves(tree)
    return _rebuild(tree, lambda child: _map(child, function, themselves))


def _rebuild(tree: Any, mapped: Callable[[Any], Any]) -> Any:
    """Return a container of the same type with mapped contents; other objects are unchanged."""
    if type(tree) in (tuple, list):
        return type(tree)([mapped(child) for child in tree])
    if isinstance(tree, dict | UserDict | MappingProxyType):
        contents = {key: mapped(child) for key, child in cast("Mapping[Any, Any]", tree).items()}
        if type(tree) is dict:
            return contents
        if isinstance(tree, MappingProxyType):
            return MappingProxyType(contents)
        same: Any = copy.copy(tree)  # keeps other state, such as the factory of a defaultdict
        for key, child in contents.items():
            same[key] = child
        return same
    if _is_named_tuple(tree):
        return type(tree)(*[mapped(child) for child in tree])
    if _is_dataclass(tree):  # without calling `__init__`, which might compute fields again
        same = copy.copy(tree)
        for field in fields(tree):
            value = getattr(tree, field.name, UNSET)
            if value is not UNSET:
                object.__setattr__(same, field.name, mapped(value))  # works for frozen dataclasses too
        return same
    return tree


def _keep(value: Any) -> Any:
    return value


def _list_children(tree: Any) -> Iterable[tuple[str, object]] | None:
    """Return the contents of a container with names for paths; None for other objects."""
    if type(tree) in (tuple, list):
        return [(f"[{position}]", child) for position, child in enumerate(tree)]
    if _is_dataclass(tree):
        return [(f".{field.name}", getattr(tree, field.name, None)) for field in fields(tree)]
    if _moves_itself(tree):
        return None
    if _is_named_tuple(tree):
        return [(f".{name}", child) for name, child in tree._asdict().items()]
    if isinstance(tree, dict | UserDict | MappingProxyType):
        return [(f"[{key!r}]", child) for key, child in cast("Mapping[Any, Any]", tree).items()]
    return None


def _find_computing(tree: object, path: str) -> Iterator[str]:
    """Yield the dataclasses with a `__post_init__`."""
    if _is_dataclass(tree) and callable(getattr(type(tree), "__post_init__", None)):
        yield f"{path} {type(tree).__name__} (its __post_init__)"
    if not isinstance(tree, Tensor):
        for name, child in _list_children(tree) or ():
            yield from _find_computing(child, path + name)


def _is_dataclass(tree: object) -> bool:
    return is_dataclass(tree) and not isinstance(tree, type | dict)


def _is_named_tuple(tree: object) -> bool:
    """NamedTuples have no common base class; `_fields` is the documented attribute."""
    return isinstance(tree, tuple) and isinstance(getattr(tree, "_fields", None), tuple)


def _moves_itself(value: object) -> bool:
    """Return whether the class has a method `.to`; a field of that name does not count."""
    return callable(getattr(type(value), "to", None))


def _holds_tensor(value: object, depth: int = MAX_SEARCH_DEPTH) -> bool:
    """Search containers of any type and object attributes for a tensor, up to a depth.

    Modules, functions and networks are skipped: their contents are not part of a batch.
    """
    if isinstance(value, Tensor):
        return True
    if not depth or isinstance(value, str | bytes | ModuleType) or callable(value):
        return False
    return any(_holds_tensor(part, depth - 1) for part in _iterate_parts(value))


def _iterate_parts(value: Any) -> Iterator[object]:
    yield from getattr(value, "__dict__", {}).values()
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            yield getattr(value, name, None)
    if isinstance(value, Mapping):
        yield from islice(cast("Mapping[Any, Any]", value).values(), MAX_SEARCHED_ITEMS)
    elif isinstance(value, Collection):
        yield from islice(cast("Collection[Any]", value), MAX_SEARCHED_ITEMS)


def _describe_tensor(tensor: Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    device = "" if tensor.device.type == "cpu" else f" on {tensor.device}"
    return f"{dtype}{list(tensor.shape)}{device}{' (inference tensor)' if tensor.is_inference() else ''}"

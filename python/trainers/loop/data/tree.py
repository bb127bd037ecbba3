"""Batches as trees: tensors inside tuples, NamedTuples, lists, dicts and dataclasses, in any nesting."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

Tree = TypeVar("Tree")


def map_tensors(tree: Tree, function: Callable[[Tensor], Tensor]) -> Tree:
    """The same tree with `function` applied to every tensor; every other leaf stays as it is."""
    return _mapped(tree, function)


def move(tree: Tree, device: torch.device) -> Tree:
    """The same tree with its tensors on `device`; tensors that are there already are not copied."""
    # A copy to the host that does not block may be read before it has arrived.
    asynchronous = device.type == "cuda"

    def moved(tensor: Tensor) -> Tensor:
        return tensor if tensor.device == device else tensor.to(device, non_blocking=asynchronous)

    return _mapped(tree, moved)


def mover(device: torch.device) -> Callable[[Tree], Tree]:
    """What moves trees to `device`; on a machine without any other, there is nothing to move and nothing to look at."""
    if device.type == "cpu" and not torch.accelerator.is_available():
        return lambda tree: tree
    return partial(move, device=device)


def leaves(tree: object, path: str = "batch") -> Iterator[tuple[str, Tensor]]:
    """Every tensor with its path, such as `batch.x` or `batch[0]['y']`, in the tree's own order."""
    if isinstance(tree, Tensor):
        yield path, tree
        return
    for name, child in _children(tree):
        yield from leaves(child, path + name)


def others(tree: object) -> Iterator[object]:
    """Everything beside the tensors: plain leaves, and whole lists and tuples that hold no tensor."""
    if isinstance(tree, Tensor):
        return
    children = [child for _, child in _children(tree)]
    if not children or (type(tree) in (tuple, list) and next(leaves(tree), None) is None):
        yield tree
        return
    for child in children:
        yield from others(child)


def describe(tree: object) -> str:
    """Paths, dtypes and shapes of the tensors, for messages."""
    return (
        ", ".join(f"{path} {_kind(tensor)}" for path, tensor in leaves(tree)) or f"no tensor in {type(tree).__name__}"
    )


def _mapped(tree: Any, function: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(tree, Tensor):
        return function(tree)
    if _is_named_tuple(tree):
        return type(tree)(*[_mapped(child, function) for child in tree])
    if isinstance(tree, (tuple, list)) and type(tree) in (tuple, list):
        return type(tree)([_mapped(child, function) for child in tree])
    if isinstance(tree, dict):
        return {key: _mapped(child, function) for key, child in tree.items()}
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{field.name: _mapped(getattr(tree, field.name), function) for field in fields(tree)})
    return tree


def _children(tree: Any) -> Iterable[tuple[str, object]]:
    if _is_named_tuple(tree):
        return [(f".{name}", child) for name, child in tree._asdict().items()]
    if isinstance(tree, (tuple, list)):
        return [(f"[{position}]", child) for position, child in enumerate(tree)]
    if isinstance(tree, dict):
        return [(f"[{key!r}]", child) for key, child in tree.items()]
    if is_dataclass(tree) and not isinstance(tree, type):
        return [(f".{field.name}", getattr(tree, field.name)) for field in fields(tree)]
    return ()


def _is_named_tuple(tree: object) -> bool:
    """NamedTuples have no common class; their `_fields` are what the language documents."""
    return isinstance(tree, tuple) and isinstance(getattr(tree, "_fields", None), tuple)


def _kind(tensor: Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    device = "" if tensor.device.type == "cpu" else f" on {tensor.device}"
    return f"{dtype}{list(tensor.shape)}{device}{' (inference tensor)' if tensor.is_inference() else ''}"

"""The state that is no tensor group: optimizers, schedulers, scalers, generators.

It is written by `torch.save` and read by `torch.load(weights_only=True)`, which builds only the types below and calls
nothing else. What it would refuse is refused here before it is written.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any, cast

import torch
from torch import Tensor, nn

from trainers.loop.checkpoint.damage import DamagedError
from trainers.loop.checkpoint.sink import Sink
from trainers.loop.errors import CheckpointError

MAPPINGS = (dict, OrderedDict, Counter)
SEQUENCES = (list, tuple, set, torch.Size)
TENSORS = (Tensor, nn.Parameter)
LEAVES = (type(None), bool, int, float, complex, str, bytes, bytearray, torch.dtype, torch.device, torch.layout)
MAX_INT_BITS = 2039  # and a sign: the pickle opcode with a length of one byte
TENSOR_BYTES = 768  # record, directory entry and padding in the archive, and its place in the pickle
VALUE_BYTES = 16
CHARACTER_BYTES = 4
ARCHIVE_BYTES = 4096
SHOWN_CHARACTERS = 60


def check_state(state: Mapping[str, Any]) -> None:
    """Check that a resumed training will be able to read the state back.

    Raises:
        CheckpointError: A value of a type that it will not; the message names its place.
    """
    for place, value in _leaves(state):
        if not _is_readable(value):
            kind = type(value)
            raise CheckpointError(
                f"{place} is a {kind.__module__}.{kind.__qualname__} ({_short(value)}), which a checkpoint cannot "
                "hold: resuming builds tensors and plain Python values only; make it one, with float(), int(), "
                ".tolist() or torch.as_tensor(), or leave it out of the state_dict() it comes from"
            )


def state_bytes(state: Mapping[str, Any]) -> int:
    """About the size of the file, rather more than less."""
    leaves = [value for _, value in _leaves(state)]
    tensors = [value for value in leaves if isinstance(value, Tensor)]
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in tensors
        if tensor.layout is torch.strided
    }
    characters = sum(len(value) for value in leaves if isinstance(value, str | bytes | bytearray))
    return (
        ARCHIVE_BYTES
        + sum(storages.values())
        + CHARACTER_BYTES * characters
        + TENSOR_BYTES * len(tensors)
        + VALUE_BYTES * len(leaves)
    )


def write_state(sink: Sink, state: Mapping[str, Any]) -> None:
    """Write the state as one archive.

    Raises:
        OSError: The file cannot be written.
    """
    try:
        torch.save(dict(state), cast("IO[bytes]", sink))  # it writes and flushes, and asks for no more
    except RuntimeError as error:
        if sink.failure is not None:  # torch goes on after a failed write and trips over its own position
            raise sink.failure from error
        raise


def read_state(path: Path) -> dict[str, Any]:
    """The state, all tensors on the CPU. Nothing that the file names is imported or called.

    Raises:
        DamagedError: It is no archive of tensors and plain Python values.
    """
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except (UnpicklingError, RuntimeError, EOFError) as error:
        raise DamagedError(f"{path.name} holds more than tensors and plain values, or is no archive") from error


def _leaves(state: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Every key and every value that is no container, with its place; a container that is met again is passed over."""
    seen: set[int] = set()
    waiting: list[tuple[str, object]] = [(f"state[{key!r}]", value) for key, value in reversed(list(state.items()))]
    while waiting:
        place, value = waiting.pop()
        if type(value) not in (*MAPPINGS, *SEQUENCES):
            yield place, value
        if id(value) not in seen:
            seen.add(id(value))
            waiting.extend(_inner(place, value))


def _inner(place: str, value: object) -> list[tuple[str, object]]:
    """The keys and items of a container, the attributes of a tensor; last first."""
    if type(value) in MAPPINGS:
        items = cast("Mapping[object, object]", value)
        keys = [(f"the key {key!r} of {place}", key) for key in items]
        return [*((f"{place}[{key!r}]", item) for key, item in reversed(list(items.items()))), *keys]
    if type(value) in SEQUENCES:
        values = list(cast("Iterable[object]", value))
        return [(f"{place}[{index}]", values[index]) for index in reversed(range(len(values)))]
    if type(value) in TENSORS:
        return [(f"{place}.{name}", item) for name, item in vars(value).items()]
    return []


def _is_readable(value: object) -> bool:
    """Subclasses are not: `numpy.float64` is a float, and no plain one."""
    if type(value) is int:
        return value.bit_length() <= MAX_INT_BITS
    if type(value) is bytes:
        return len(value) > 0  # pickle writes empty ones as a call of `bytes`, which is not allowed
    return type(value) in (*LEAVES, *TENSORS)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"

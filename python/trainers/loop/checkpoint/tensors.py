"""Groups of tensors as safetensors files, written without a second copy of the group in memory."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from trainers.loop.checkpoint.damage import DamagedError
from trainers.loop.checkpoint.sink import Sink
from trainers.loop.errors import CheckpointError

DTYPES: Mapping[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
ALIGNMENT_BYTES = 8
LENGTH_BYTES = 8


def check_group(group: str, tensors: Mapping[str, Tensor]) -> None:
    """Check that a safetensors file can hold every tensor.

    Raises:
        CheckpointError: One is sparse, without content, or of a type that the format does not know.
    """
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.dtype not in DTYPES:
            raise CheckpointError(
                f"{name!r} in {group!r} is {tensor.dtype}, {tensor.layout}, on {tensor.device}; a checkpoint holds "
                "dense tensors of real numbers: keep this one in the state"
            )


def group_bytes(tensors: Mapping[str, Tensor]) -> int:
    """The size of the group's file."""
    return len(_header(tensors)) + sum(tensor.nbytes for tensor in tensors.values())


def write_group(sink: Sink, tensors: Mapping[str, Tensor]) -> None:
    """Write every tensor out in full, those that share memory too.

    Raises:
        OSError: The file cannot be written.
    """
    sink.write(_header(tensors))
    for name in _order(tensors):
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)
        sink.write(flat.view(torch.uint8).numpy().data)


def read_group(path: Path) -> dict[str, Tensor]:
    """The tensors of a group, in memory of their own: the file may be removed while they are in use.

    Raises:
        DamagedError: It is not a safetensors file.
    """
    try:
        with safe_open(path, framework="pt") as file:  # pyright: ignore[reportUnknownVariableType]  typed as Any
            return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  it is no mapping
    except SafetensorError as error:
        raise DamagedError(f"{path.name} is no safetensors file: {error}") from error


def _header(tensors: Mapping[str, Tensor]) -> bytes:
    """Length and JSON of the format's header, padded so that the data begin aligned."""
    entries: dict[str, object] = {}
    end = 0
    for name in _order(tensors):
        tensor = tensors[name]
        start, end = end, end + tensor.nbytes
        entries[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT_BYTES)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def _order(tensors: Mapping[str, Tensor]) -> list[str]:
    """Wide types first, so that every tensor is aligned."""
    return sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))

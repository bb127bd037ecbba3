"""The files of a checkpoint, hashed while they are written: groups of tensors, and other state.

Groups are safetensors files, written without a second copy in memory. The state of optimizers, schedulers, scalers and
generators is written by `torch.save` and read by `torch.load(weights_only=True)`, which creates only the types below
and calls no other code. Values that it would reject are rejected before writing.
"""

import json
from collections import Counter, OrderedDict
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any, BinaryIO, cast, final
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from trainers.loop.checkpoint.folder import DamagedError, format_bytes
from trainers.loop.errors import CheckpointError

FILE_MODE = 0o644

MAPPINGS = (dict, OrderedDict, Counter)
SEQUENCES = (list, tuple, set, torch.Size)
TENSORS = (Tensor, nn.Parameter)
LEAVES = (type(None), bool, int, float, complex, str, bytes, bytearray, torch.dtype, torch.device, torch.layout)
MAX_INT_BITS = 2039  # and a sign bit: the maximum of the pickle opcode with a length of one byte
TENSOR_BYTES = 768  # record, directory entry and padding in the archive, and its entry in the pickle
VALUE_BYTES = 16
CHARACTER_BYTES = 4
ARCHIVE_BYTES = 4096
MAX_SHOWN_CHARACTERS = 60
MAX_EXPANDED_BYTES = 64 << 20
"""Maximum size in full of tensors that are views of fewer elements than they have, such as expanded ones."""
MAX_HEADER_BYTES = 2 << 20
"""Enough for names, types and shapes of about 20 000 tensors; parsing a much larger header takes seconds."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDigest:
    """Size and digest of a file.

    Attributes:
        bytes: The size.
        sha256: The digest, 64 hexadecimal digits.
    """

    bytes: int
    sha256: str


@final
class HashedFile:
    """A writer of one file that hashes its content.

    Attributes:
        failure: The error of the first failed write, because torch replaces it by another error.
    """

    __slots__ = ("_bytes", "_digest", "_file", "failure")

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = sha256()
        self._bytes = 0
        self.failure: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Write `data` and return its length in bytes."""
        try:
            written = self._file.write(data)
        except OSError as error:
            self.failure = self.failure or error
            raise
        self._digest.update(data)
        self._bytes += written
        return written

    def flush(self) -> None:
        """Flush the buffer to the system."""
        self._file.flush()

    def digest(self) -> FileDigest:
        """Return size and digest of the content so far."""
        return FileDigest(bytes=self._bytes, sha256=self._digest.hexdigest())


@contextmanager
def create_file(path: Path) -> Generator[HashedFile]:
    """Create a file that all users can read.

    Raises:
        OSError: It cannot be written.
    """
    with path.open("xb") as file:
        yield HashedFile(file)
    path.chmod(FILE_MODE)


def check_state(state: Mapping[str, Any]) -> None:
    """Check that a resumed training can read the state.

    Raises:
        CheckpointError: A value has a type that cannot be read, and the message names its path; or expanded tensors
            would take too much memory.
    """
    for path, value in _list_leaves(state):
        if not _is_readable(value):
            kind, text = type(value), repr(value)
            shown = text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[: MAX_SHOWN_CHARACTERS - 1]}…"
            raise CheckpointError(
                f"{path} is a {kind.__module__}.{kind.__qualname__} ({shown}), which a checkpoint cannot "
                "hold, only tensors and plain Python values; convert it with float(), int(), .tolist() or "
                "torch.as_tensor(), or remove it from its state_dict()"
            )
    expanded = _count_expanded_bytes(state)
    if expanded > MAX_EXPANDED_BYTES:
        raise CheckpointError(
            f"expanded tensors of the state would take {format_bytes(expanded)} in full, but the limit is "
            f"{format_bytes(MAX_EXPANDED_BYTES)}; save them unexpanded, and expand them when needed"
        )


def state_bytes(state: Mapping[str, Any]) -> int:
    """Estimate the size of the file; the estimate is rather too high than too low."""
    leaves = [value for _, value in _list_leaves(state)]
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


def write_state(sink: HashedFile, state: Mapping[str, Any]) -> None:
    """Write the state as one archive.

    Raises:
        OSError: The file cannot be written.
    """
    try:
        torch.save(dict(state), cast("IO[bytes]", sink))  # torch only calls write and flush
    except RuntimeError as error:
        if sink.failure is not None:  # torch continues after a failed write and fails later with another error
            raise sink.failure from error
        raise


def read_state(path: Path) -> dict[str, Any]:
    """Read the state with all tensors on the CPU, without importing or calling anything that the file names.

    Raises:
        DamagedError: The file is not an archive of tensors and plain Python values, or it would take far more memory
            than its size.
    """
    try:
        _check_archive(path)
        state: object = torch.load(path, weights_only=True, map_location="cpu")
    except (UnpicklingError, RuntimeError, EOFError, BadZipFile) as error:
        raise DamagedError(f"{path.name} holds more than tensors and plain values, or is not an archive") from error
    if type(state) is not dict:
        raise DamagedError(f"{path.name} holds a {type(state).__name__} instead of a state")
    result = cast("dict[str, Any]", state)
    expanded = _count_expanded_bytes(result)
    if expanded > MAX_EXPANDED_BYTES:
        raise DamagedError(f"{path.name} holds tensors that would take {format_bytes(expanded)} in full")
    return result


def _check_archive(path: Path) -> None:
    """Check that an archive is uncompressed, as torch writes it, and does not unpack to more than its size."""
    with ZipFile(path) as archive:
        members = archive.infolist()
    if any(member.compress_type != ZIP_STORED for member in members):
        raise DamagedError(f"{path.name} is compressed, unlike any checkpoint")
    if sum(member.file_size for member in members) > path.stat().st_size:
        raise DamagedError(f"{path.name} claims to hold more than its own size")


def _count_expanded_bytes(state: Mapping[str, Any]) -> int:
    """Return the total size in full of tensors that are views of fewer elements than they have."""
    tensors = [value for _, value in _list_leaves(state) if isinstance(value, Tensor) and value.layout is torch.strided]
    return sum(tensor.nbytes for tensor in tensors if tensor.nbytes > tensor.untyped_storage().nbytes())


def _list_leaves(state: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield every key and every value that is not a container, with its path; repeated containers are skipped."""
    seen: set[int] = set()
    pending: list[tuple[str, object]] = [(f"state[{key!r}]", value) for key, value in reversed(list(state.items()))]
    while pending:
        path, value = pending.pop()
        if type(value) not in (*MAPPINGS, *SEQUENCES):
            yield path, value
        if id(value) not in seen:
            seen.add(id(value))
            pending.extend(_list_children(path, value))


def _list_children(path: str, value: object) -> list[tuple[str, object]]:
    """Return the keys and items of a container, or the attributes of a tensor, in reverse order."""
    if type(value) in MAPPINGS:
        items = cast("Mapping[object, object]", value)
        keys = [(f"the key {key!r} of {path}", key) for key in items]
        return [*((f"{path}[{key!r}]", item) for key, item in reversed(list(items.items()))), *keys]
    if type(value) in SEQUENCES:
        values = list(cast("Iterable[object]", value))
        return [(f"{path}[{index}]", values[index]) for index in reversed(range(len(values)))]
    if type(value) in TENSORS:
        return [(f"{path}.{name}", item) for name, item in vars(value).items()]
    return []


def _is_readable(value: object) -> bool:
    """Return whether a value is of a readable type; subclasses, such as `numpy.float64` of float, are not."""
    if type(value) is int:
        return value.bit_length() <= MAX_INT_BITS
    if type(value) is bytes:
        return len(value) > 0  # pickle writes empty bytes as a call of `bytes`, which is not allowed
    return type(value) in (*LEAVES, *TENSORS)


def check_group(group: str, tensors: Mapping[str, Tensor]) -> None:
    """Check that a safetensors file can hold the tensors [...].

    Raises:
        CheckpointError: A tensor is sparse, has no content, or has a dtype that the format lacks; or there are too
            many tensors.
    """
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.dtype not in DTYPES:
            raise CheckpointError(
                f"{name!r} in {group!r} is {tensor.dtype}, {tensor.layout}, on {tensor.device}; a checkpoint holds "
                "dense tensors of real numbers: move this one to Loop(state=…)"
            )
    if len(_write_header(tensors)) - LENGTH_BYTES > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"the names and shapes of the {len(tensors)} tensors in {group!r} take more than "
            f"{format_bytes(MAX_HEADER_BYTES)}; use fewer and larger tensors, or shorter names"
        )


def group_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Return the size of the file for a group of tensors of any shape."""
    return len(_write_header(tensors)) + sum(tensor.nbytes for tensor in tensors.values())


def write_group(sink: HashedFile, tensors: Mapping[str, Tensor]) -> None:
    """Write every tensor, of any shape, in full, even if it shares memory with another.

    Raises:
        OSError: The file cannot be written.
    """
    sink.write(_write_header(tensors))
    for name in _order(tensors):
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)
        sink.write(flat.view(torch.uint8).numpy().data)


def read_group(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a group, in the shapes in which they were written.

    The tensors do not share memory with the file, which may be removed while they are in use.

    Raises:
        DamagedError: It is not a safetensors file, or its header exceeds the maximum size.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
    if length > MAX_HEADER_BYTES:
        raise DamagedError(f"{path.name} is not a safetensors file of a checkpoint: its header claims {length} bytes")
    try:
        with safe_open(path, framework="pt") as file:  # pyright: ignore[reportUnknownVariableType]  typed as Any
            return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  it is not a mapping
    except SafetensorError as error:
        raise DamagedError(f"{path.name} is not a safetensors file: {error}") from error


def _write_header(tensors: Mapping[str, Tensor]) -> bytes:
    """Return length and JSON of the header, padded to align the data."""
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
    """Sort wide types first, so that every tensor is aligned."""
    return sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))

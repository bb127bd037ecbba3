"""Tensors and arrays as safetensors: nothing in them can execute, and the header is bounded before it is read."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from predictor import canonical
from predictor.errors import ArtifactError

MAX_HEADER_BYTES = 1 << 20
MAX_ENTRIES = 10_000


def write_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """The same bytes for the same tensors."""
    return save_tensors({name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())})


def write_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """The same bytes for the same arrays."""
    return save_arrays({name: np.ascontiguousarray(array) for name, array in sorted(arrays.items())})


def read_tensors(data: bytes, source: str) -> dict[str, Tensor]:
    """Tensors by name; `source` names the file in errors.

    Raises:
        ArtifactError: the file is no safetensors file, or its header is too large.
    """
    _check_header(data, source)
    try:
        return load_tensors(data)
    except SafetensorError as error:
        raise ArtifactError.of(source, str(error)) from error
    except KeyError as error:  # what the reader raises for a kind of number that torch lacks
        raise ArtifactError.of(source, f"holds numbers of kind {error}, which is not read") from error


def read_arrays(data: bytes, source: str) -> dict[str, NDArray[np.generic]]:
    """Arrays by name, as `read_tensors`."""
    _check_header(data, source)
    try:
        return load_arrays(data)
    except SafetensorError as error:
        raise ArtifactError.of(source, str(error)) from error
    except KeyError as error:
        raise ArtifactError.of(source, f"holds numbers of kind {error}, which is not read") from error


def _check_header(data: bytes, source: str) -> None:
    """Bound the header before a reader allocates for it: 8 bytes of length, then JSON."""
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER_BYTES or length > len(data) - 8:
        raise ArtifactError.of(source, f"its header claims {length} bytes; at most {MAX_HEADER_BYTES} are read")
    header = canonical.from_bytes(data[8 : 8 + length], f"{source}: its header")
    if not isinstance(header, Mapping) or len(header) > MAX_ENTRIES:
        raise ArtifactError.of(source, f"its header must be an object of at most {MAX_ENTRIES} entries")

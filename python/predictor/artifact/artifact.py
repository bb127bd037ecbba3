"""The artifact in memory, and its tensors as safetensors.

A safetensors file cannot execute code, and the size of its header is checked before it is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from predictor import canonical
from predictor.artifact.manifest import WEIGHTS, Manifest
from predictor.canonical import Json
from predictor.errors import ArtifactError, ConfigurationError, format_names
from predictor.networks import Edges, GraphForecaster, InputSizes, TreesForecaster, build_network
from predictor.windows import Pipeline

MAX_HEADER_BYTES = 1 << 20

MAX_ENTRIES = 10_000


def write_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Serialize tensors of any shape deterministically."""
    return save_tensors({name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())})


def write_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """Serialize arrays of any shape deterministically."""
    return save_arrays({name: np.ascontiguousarray(array) for name, array in sorted(arrays.items())})


def read_tensors(data: bytes, source: str) -> dict[str, Tensor]:
    """Read tensors by name, in their original shapes; `source` names the file in errors.

    Raises:
        ArtifactError: the file is not a safetensors file, or its header is too large.
    """
    _check_header(data, source)
    try:
        return load_tensors(data)
    except SafetensorError as error:
        raise ArtifactError.of(source, str(error)) from error
    except KeyError as error:  # raised by the reader for a dtype that torch does not have
        raise ArtifactError.of(source, f"holds numbers of type {error}, which is not supported") from error


def read_arrays(data: bytes, source: str) -> dict[str, NDArray[np.generic]]:
    """Read arrays by name, in their original shapes; as `read_tensors`."""
    _check_header(data, source)
    try:
        return load_arrays(data)
    except SafetensorError as error:
        raise ArtifactError.of(source, str(error)) from error
    except KeyError as error:
        raise ArtifactError.of(source, f"holds numbers of type {error}, which is not supported") from error


def _check_header(data: bytes, source: str) -> None:
    """Check the header, 8 bytes of length and then JSON, before a reader allocates memory for it."""
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER_BYTES or length > len(data) - 8:
        raise ArtifactError.of(source, f"its header claims {length} bytes; at most {MAX_HEADER_BYTES} are read")
    header = canonical.from_bytes(data[8 : 8 + length], f"{source}: its header")
    if not isinstance(header, Mapping) or len(header) > MAX_ENTRIES:
        raise ArtifactError.of(source, f"its header must be an object of at most {MAX_ENTRIES} entries")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Artifact:
    """The verified parts of a model."""

    manifest: Manifest
    pipeline: Pipeline
    weights: Mapping[str, Tensor]

    @property
    def sizes(self) -> InputSizes:
        """Widths of the network's groups of inputs, and the number of stocks that it knows."""
        return replace(self.pipeline.sizes, nodes=len(self.manifest.universe))

    def network(self) -> nn.Module:
        """Build the network with these weights, in eval mode.

        Raises:
            ArtifactError: names, shapes or types of the weights do not match the network, a weight is not finite, an
                edge of its graph leads to a missing stock or from a stock to itself, or its trees are not trees.
        """
        with torch.device("meta"):  # finds mismatches before memory is allocated
            expected = self._create_network().state_dict()
        _check_names(expected, self.weights)
        for name, tensor in self.weights.items():
            shape, dtype = expected[name].shape, expected[name].dtype
            if tensor.shape != shape or tensor.dtype != dtype:
                problem = f"{name} is {tensor.dtype} {list(tensor.shape)}, expected {dtype} {list(shape)}"
                raise ArtifactError.of(WEIGHTS, problem)
            if not bool(torch.isfinite(tensor).all()):
                raise ArtifactError.of(WEIGHTS, f"{name} holds a value that is not finite")
        with torch.random.fork_rng(devices=[]):  # its initial weights are overwritten: keep the random state
            network = self._create_network()
        if isinstance(network, GraphForecaster):
            try:
                Edges(neighbours=self.weights["neighbours"], weights=self.weights["weights"])
            except ConfigurationError as error:
                raise ArtifactError.of(WEIGHTS, f"neighbours: {error.message}") from error
        network.load_state_dict(dict(self.weights), strict=True)
        if isinstance(network, TreesForecaster):
            try:
                _ = network.forests
            except ConfigurationError as error:
                raise ArtifactError.of(WEIGHTS, error.message) from error
        return network.eval()

    def _create_network(self) -> nn.Module:
        m = self.manifest
        return build_network(m.kind, m.config, sizes=self.sizes, target=m.target, levels=m.quantiles)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Golden:
    """The stored golden instance: facts and arrays, see predictor.golden."""

    text: Mapping[str, Json]
    arrays: Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredArtifact:
    """An artifact that was loaded from a folder."""

    artifact: Artifact
    golden: Golden
    weights_hash: str
    manifest_hash: str
    """SHA-256 of the manifest, which contains those of all other files and so identifies the artifact."""


def _check_names(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor]) -> None:
    missing, unknown = sorted(set(expected) - set(actual)), sorted(set(actual) - set(expected))
    if missing or unknown:
        sides = (("missing", missing), ("unknown", unknown))
        problems = [f"{word} weights {format_names(names)}" for word, names in sides if names]
        raise ArtifactError.of(WEIGHTS, ", ".join(problems))

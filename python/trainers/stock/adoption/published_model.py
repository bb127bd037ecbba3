"""A published model, read from a folder without executing anything in it.

Only `config.json`, `model.safetensors` and a license file are read, and the folder must not hold code or pickles.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from torch import Tensor

from predictor.artifact.artifact import read_tensors
from predictor.artifact.folder import MAX_TENSOR_BYTES, MAX_TEXT_BYTES, sha256
from predictor.canonical import Json, Record
from predictor.errors import ArtifactError, ConfigurationError, format_names
from predictor.features import FeatureSet
from predictor.networks import NetworkConfig, NetworkKind

CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
LICENSES: Final = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE")
PICKLES: Final = frozenset({".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"})
CODE: Final = frozenset({".dll", ".dylib", ".py", ".pyc", ".pyd", ".so"})
REMOTE_CODE: Final = ("auto_map", "custom_pipelines", "trust_remote_code")
"""Keys of a config by which transformers loads code from the folder or the network."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SourceFolder:
    """The verified contents of a folder."""

    folder: Path
    config: Mapping[str, Json]
    config_sha256: str
    tensors: Mapping[str, Tensor]
    weights_sha256: str
    license_file: str
    """Empty if unknown."""
    license_sha256: str

    @classmethod
    def read(cls, folder: Path, sha256_of_weights: str = "") -> Self:
        """Read a folder whose weights have this SHA-256 in hex, as the publisher states it; empty means any.

        Raises:
            ConfigurationError: a file is missing, a link, too large, malformed or another one than stated, or the
                folder holds code or pickles. The message has the path.
        """
        if not folder.is_dir():
            raise ConfigurationError(f"{folder} is not a folder; give one with {CONFIG} and {WEIGHTS}")
        _refuse_executables(folder)
        text, weights = _read(folder, CONFIG, MAX_TEXT_BYTES), _read(folder, WEIGHTS, MAX_TENSOR_BYTES)
        digest = sha256(weights)
        if sha256_of_weights and digest != sha256_of_weights.lower():
            raise ConfigurationError(
                f"{folder / WEIGHTS} has the SHA-256 {digest}, but {sha256_of_weights.lower()} was stated; download it "
                "again"
            )
        license_file = next((name for name in LICENSES if (folder / name).is_file()), "")
        try:
            config = Record.from_bytes(text, CONFIG)
            tensors = read_tensors(weights, WEIGHTS)
        except ArtifactError as error:
            raise ConfigurationError(f"{folder}/{error.message}") from error
        for key in REMOTE_CODE:
            if config.has(key):
                raise ConfigurationError(
                    f"{folder / CONFIG} has the key {key!r}, which loads code; only models whose code is in a package "
                    "can be adopted"
                )
        return cls(
            folder=folder,
            config={key: config.json(key) for key in config.keys()},  # noqa: SIM118 - a Record is not a dict
            config_sha256=sha256(text),
            tensors=tensors,
            weights_sha256=digest,
            license_file=license_file,
            license_sha256=sha256(_read(folder, license_file, MAX_TEXT_BYTES)) if license_file else "",
        )


def _refuse_executables(folder: Path) -> None:
    names = sorted(path.name for path in folder.iterdir())
    for endings, what in ((PICKLES, "pickles, which can execute code when they are read"), (CODE, "code")):
        refused = [name for name in names if Path(name).suffix.lower() in endings]
        if refused:
            raise ConfigurationError(
                f"{folder} holds {what}: {format_names(refused)}; adopt from a folder with only {CONFIG}, {WEIGHTS} "
                "and the license"
            )


def _read(folder: Path, name: str, limit: int) -> bytes:
    path = folder / name
    if path.is_symlink():
        raise ConfigurationError(f"{path} is a link; copy the file itself into the folder")
    if not path.is_file():
        raise ConfigurationError(f"{path} is missing; the folder must hold {CONFIG} and {WEIGHTS}")
    if (size := path.stat().st_size) > limit:
        raise ConfigurationError(f"{path} has {size} bytes, but at most {limit} are read")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedModel:
    """The verified contents of a model's folders, in Quantra's terms."""

    source: SourceFolder
    tokenizer: SourceFolder | None = None
    architecture: str
    """The published class."""
    packages: tuple[str, ...]
    """The packages that run it, the first of which has its classes; empty if Quantra has them."""
    kind: NetworkKind
    config: NetworkConfig
    weights: Mapping[str, Tensor]
    """By their names in the network of the kind."""
    features: FeatureSet
    max_value: float
    """Bound of the features' values."""
    max_encoder_length: int
    """Sessions that it can read."""

"""A published model, read from a folder without executing anything in it.

Only `config.json`, `model.safetensors` and a license file are read, and the folder must not hold code or pickles.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

import torch
from torch import Tensor

from predictor.artifact.artifact import read_tensors
from predictor.artifact.folder import MAX_TENSOR_BYTES, MAX_TEXT_BYTES, sha256
from predictor.canonical import Json, Record
from predictor.errors import ArtifactError, ConfigurationError, format_names
from predictor.features import FeatureDefinition, FeatureSet
from predictor.networks import (
    CHRONOS_2,
    CHRONOS_BOLT,
    KRONOS,
    ChronosConfig,
    KronosConfig,
    NetworkConfig,
    NetworkKind,
    require_chronos,
)

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
    for endings, contents in ((PICKLES, "pickles, which can execute code when they are read"), (CODE, "code")):
        refused = [name for name in names if Path(name).suffix.lower() in endings]
        if refused:
            raise ConfigurationError(
                f"{folder} holds {contents}: {format_names(refused)}; adopt from a folder with only {CONFIG}, "
                f"{WEIGHTS} and the license"
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


PACKAGES: Final = ("chronos-forecasting", "transformers")
LOG_CLOSE: Final = FeatureDefinition("log_close", "Log($close)", "logarithm of the adjusted close", "log price")
MAX_LOG_PRICE: Final = 100.0
ARCHITECTURES: Final[Mapping[str, NetworkKind]] = {
    "ChronosBoltModelForForecasting": CHRONOS_BOLT,
    "Chronos2Model": CHRONOS_2,
}
"""Kinds by the class of the package that runs them."""
FIXED: Final[Mapping[str, Json]] = {"feed_forward_proj": "relu", "dense_act_fn": "relu", "is_gated_act": False}
"""Settings of a config that the kinds support with this value only."""
PREFIX: Final = "model."
"""Of the published weights in our network."""
SHARED: Final = "shared.weight"
COPIES: Final = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
"""Weights of Chronos-Bolt that are copies of SHARED; a file may leave them out."""
UNUSED_CHRONOS_WEIGHTS: Final = frozenset({"lm_head.weight"})
"""Weights of a file that its model does not have."""


def read_chronos(source: SourceFolder) -> PublishedModel:
    """Read the folder of a Chronos-Bolt or Chronos-2 model.

    Raises:
        ConfigurationError: it has another architecture, or a setting is missing, out of range or not supported.
        MissingPackageError: the package of the model is not installed.
    """
    require_chronos()
    stated = source.config.get("architectures")
    architecture = stated[0] if isinstance(stated, list) and len(stated) == 1 else stated
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        raise ConfigurationError(
            f"{CONFIG} states the architecture {architecture!r}, but only {' and '.join(ARCHITECTURES)} can be adopted"
        )
    kind = ARCHITECTURES[architecture]
    try:
        config = read_chronos_sizes(source.config, kind)
    except ArtifactError as error:
        raise ConfigurationError(f"{source.folder}/{error.message}") from error
    return PublishedModel(
        source=source,
        architecture=architecture,
        packages=PACKAGES,
        kind=kind,
        config=config,
        weights=rename_chronos_weights(source.tensors, kind),
        features=FeatureSet(observed=(LOG_CLOSE,)),
        max_value=MAX_LOG_PRICE,
        max_encoder_length=config.context_length,
    )


def read_chronos_sizes(config: Mapping[str, Json], kind: NetworkKind) -> ChronosConfig:
    """The settings of a kind from a published config.

    Raises:
        ArtifactError: a setting is missing or of another type.
        ConfigurationError: a setting is out of range or not supported.
    """
    for name, value in FIXED.items():
        if config.get(name, value) != value:
            raise ConfigurationError(f"{CONFIG}: {name} is {config[name]!r}, but only {value!r} is supported")
    record = Record(config, CONFIG)
    inner = record.record("chronos_config")
    names = {field.name: type(field.default) for field in fields(kind.config)}
    settings = {
        name: _read_setting(inner if inner.has(name) else record, name, kind_of) for name, kind_of in names.items()
    }
    if inner.has("output_patch_size") and inner.integer("output_patch_size") != settings["input_patch_size"]:
        raise inner.make_error("output_patch_size", f"must be the input_patch_size, {settings['input_patch_size']}")
    inner.end()  # an unknown setting could change the numbers
    sizes = kind.config(**settings)
    assert isinstance(sizes, ChronosConfig)  # noqa: S101 - of every kind in ARCHITECTURES
    return sizes


def _read_setting(record: Record, name: str, kind: type[Any]) -> Any:
    if kind is str:
        return ",".join(map(repr, record.numbers(name)))
    return {int: record.integer, float: record.number, bool: record.flag}[kind](name)


def rename_chronos_weights(tensors: Mapping[str, Tensor], kind: NetworkKind) -> dict[str, Tensor]:
    """Published weights by their names in our network, in float32; `Artifact.network` checks names and shapes."""
    weights = {name: tensor for name, tensor in tensors.items() if name not in UNUSED_CHRONOS_WEIGHTS}
    if kind is CHRONOS_BOLT and SHARED in weights:
        weights |= {name: weights[SHARED].clone() for name in COPIES}
    return {
        f"{PREFIX}{name}": tensor.float() if tensor.is_floating_point() else tensor for name, tensor in weights.items()
    }


USUAL_CONTEXT: Final = 512
"""Sessions that the published models read and forecast together."""
USUAL_PATHS: Final = KronosConfig().paths
MAX_VALUE: Final = 1e30
KRONOS_FEATURES: Final = FeatureSet(
    observed=(
        FeatureDefinition("open", "$open", "adjusted open", "price"),
        FeatureDefinition("high", "$high", "adjusted high", "price"),
        FeatureDefinition("low", "$low", "adjusted low", "price"),
        FeatureDefinition("close", "$close", "adjusted close", "price"),
        FeatureDefinition("volume", "$volume", "adjusted volume", "shares"),
        FeatureDefinition(
            "amount", "$volume * ($open + $high + $low + $close) / 4", "volume times the mean price", "money"
        ),
    ),
    known=(
        FeatureDefinition("weekday", "$weekday", "Monday 0 to Sunday 6", "1"),
        FeatureDefinition("day_of_month", "$day_of_month", "1 to 31", "1"),
        FeatureDefinition("month_of_year", "$month_of_year", "1 to 12", "1"),
    ),
)
MODEL_SIZES: Final = ("s1_bits", "s2_bits", "d_model", "n_layers", "n_heads", "ff_dim")
TOKENIZER_SIZES: Final = ("d_model", "n_enc_layers", "n_dec_layers", "n_heads", "ff_dim")
UNREAD_KRONOS_SETTINGS: Final = frozenset(
    {"ffn_dropout_p", "attn_dropout_p", "resid_dropout_p", "token_dropout_p", "learn_te"}
    | {"beta", "gamma0", "gamma", "zeta", "group_size"}
)
"""Settings of the training, and whether the stamps' vectors were trained."""
UNUSED_KRONOS_WEIGHTS: Final = (
    ".inv_freq",
    "bsq.basis",
    "bsq.group_basis",
    "post_quant_embed_pre.weight",
    "post_quant_embed_pre.bias",
)
"""Ends of the names of published tensors that follow from the sizes or serve only the training."""


def read_kronos(source: SourceFolder, tokenizer: SourceFolder, *, paths: int, seed: int, reach: int) -> PublishedModel:
    """Read the folders of a Kronos model and of its tokenizer.

    `reach` sessions are forecast, from paths that the seed draws.

    Raises:
        ConfigurationError: a setting is missing, unknown or out of range, or the two do not match.
    """
    try:
        sizes = _read_kronos_sizes(source.config, MODEL_SIZES)
        others = _read_kronos_sizes(tokenizer.config, (*TOKENIZER_SIZES, "s1_bits", "s2_bits", "d_in"))
    except ArtifactError as error:
        raise ConfigurationError(f"{source.folder} or {tokenizer.folder}: {error.message}") from error
    bits = {name: others[name] for name in ("s1_bits", "s2_bits")}
    if bits != {name: sizes[name] for name in bits}:
        raise ConfigurationError(
            f"the model in {source.folder} has tokens of {sizes['s1_bits']} and {sizes['s2_bits']} bits, but the "
            f"tokenizer in {tokenizer.folder} of {bits['s1_bits']} and {bits['s2_bits']}; give the tokenizer that the "
            "model was trained with"
        )
    if others["d_in"] != len(KRONOS_FEATURES.observed):
        raise ConfigurationError(
            f"the tokenizer in {tokenizer.folder} reads {others['d_in']} numbers of a bar (d_in), but only "
            f"{len(KRONOS_FEATURES.observed)} are supported"
        )
    tokenizer_settings = {f"tokenizer_{name}": others[name] for name in TOKENIZER_SIZES}
    return PublishedModel(
        source=source,
        tokenizer=tokenizer,
        architecture="Kronos",
        packages=(),
        kind=KRONOS,
        config=KronosConfig(**sizes, **tokenizer_settings, paths=paths, seed=seed),
        weights={
            **dict(_rename_kronos_weights("model.", source.tensors)),
            **dict(_rename_kronos_weights("tokenizer.", tokenizer.tensors)),
        },
        features=KRONOS_FEATURES,
        max_value=MAX_VALUE,
        max_encoder_length=max(1, USUAL_CONTEXT - reach),
    )


def _read_kronos_sizes(config: Mapping[str, Json], names: tuple[str, ...]) -> dict[str, int]:
    """Whole numbers of a config, which has no unknown settings.

    Raises:
        ArtifactError: a setting is missing, unknown or of another type.
    """
    record = Record({name: value for name, value in config.items() if name not in UNREAD_KRONOS_SETTINGS}, CONFIG)
    sizes = {name: record.integer(name) for name in names}
    record.end()  # an unknown setting could change the numbers
    return sizes


def _rename_kronos_weights(prefix: str, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Published weights by their names in our network, in float64; vectors of stamps may have one name more."""
    for name, tensor in tensors.items():
        if not name.endswith(UNUSED_KRONOS_WEIGHTS):
            yield f"{prefix}{name.replace('_embed.emb.', '_embed.')}", tensor.to(torch.float64)

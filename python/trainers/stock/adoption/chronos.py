"""Chronos models from their published config and tensors."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from torch import Tensor

from predictor.canonical import Json, Record
from predictor.errors import ArtifactError, ConfigurationError
from predictor.features import FeatureDefinition, FeatureSet
from predictor.networks import CHRONOS_2, CHRONOS_BOLT, ChronosConfig, NetworkKind, require_chronos
from trainers.stock.adoption.published_model import CONFIG, PublishedModel, SourceFolder

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
UNUSED: Final = frozenset({"lm_head.weight"})
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
        config = read_sizes(source.config, kind)
    except ArtifactError as error:
        raise ConfigurationError(f"{source.folder}/{error.message}") from error
    return PublishedModel(
        source=source,
        architecture=architecture,
        packages=PACKAGES,
        kind=kind,
        config=config,
        weights=rename_weights(source.tensors, kind),
        features=FeatureSet(observed=(LOG_CLOSE,)),
        max_value=MAX_LOG_PRICE,
        max_encoder_length=config.context_length,
    )


def read_sizes(config: Mapping[str, Json], kind: NetworkKind) -> ChronosConfig:
    """The settings of a kind from a published config.

    Raises:
        ArtifactError: a setting is missing or of another type.
        ConfigurationError: a setting is out of range or not supported.
    """
    for name, value in FIXED.items():
        if config.get(name, value) != value:
            raise ConfigurationError(f"{CONFIG}: {name} is {config[name]!r}, but only {value!r} is supported")
    whole = Record(config, CONFIG)
    inner = whole.record("chronos_config")
    names = {field.name: type(field.default) for field in fields(kind.config)}
    settings = {name: _read(inner if inner.has(name) else whole, name, kind_of) for name, kind_of in names.items()}
    if inner.has("output_patch_size") and inner.integer("output_patch_size") != settings["input_patch_size"]:
        raise inner.make_error("output_patch_size", f"must be the input_patch_size, {settings['input_patch_size']}")
    inner.end()  # an unknown setting could change the numbers
    sizes = kind.config(**settings)
    assert isinstance(sizes, ChronosConfig)  # noqa: S101 - of every kind in ARCHITECTURES
    return sizes


def _read(record: Record, name: str, kind: type[Any]) -> Any:
    if kind is str:
        return ",".join(map(repr, record.numbers(name)))
    return {int: record.integer, float: record.number, bool: record.flag}[kind](name)


def rename_weights(tensors: Mapping[str, Tensor], kind: NetworkKind) -> dict[str, Tensor]:
    """Published weights by their names in our network, in float32; `Artifact.network` checks names and shapes."""
    weights = {name: tensor for name, tensor in tensors.items() if name not in UNUSED}
    if kind is CHRONOS_BOLT and SHARED in weights:
        weights |= {name: weights[SHARED].clone() for name in COPIES}
    return {
        f"{PREFIX}{name}": tensor.float() if tensor.is_floating_point() else tensor for name, tensor in weights.items()
    }

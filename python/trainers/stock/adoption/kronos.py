"""Kronos models from the published configs and tensors of the model and of its tokenizer."""

from collections.abc import Iterator, Mapping
from typing import Final

import torch
from torch import Tensor

from predictor.canonical import Json, Record
from predictor.errors import ArtifactError, ConfigurationError
from predictor.features import FeatureDefinition, FeatureSet
from predictor.networks import KRONOS, KronosConfig
from trainers.stock.adoption.published_model import CONFIG, PublishedModel, SourceFolder

USUAL_CONTEXT: Final = 512
"""Sessions that the published models read and forecast together."""
USUAL_PATHS: Final = KronosConfig().paths
MAX_VALUE: Final = 1e30
FEATURES: Final = FeatureSet(
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
UNREAD: Final = frozenset(
    {"ffn_dropout_p", "attn_dropout_p", "resid_dropout_p", "token_dropout_p", "learn_te"}
    | {"beta", "gamma0", "gamma", "zeta", "group_size"}
)
"""Settings of the training, and whether the stamps' vectors were trained."""
UNUSED: Final = (
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
        sizes = _read_sizes(source.config, MODEL_SIZES)
        others = _read_sizes(tokenizer.config, (*TOKENIZER_SIZES, "s1_bits", "s2_bits", "d_in"))
    except ArtifactError as error:
        raise ConfigurationError(f"{source.folder} or {tokenizer.folder}: {error.message}") from error
    bits = {name: others[name] for name in ("s1_bits", "s2_bits")}
    if bits != {name: sizes[name] for name in bits}:
        raise ConfigurationError(
            f"the model in {source.folder} has tokens of {sizes['s1_bits']} and {sizes['s2_bits']} bits, but the "
            f"tokenizer in {tokenizer.folder} of {bits['s1_bits']} and {bits['s2_bits']}; give the tokenizer that the "
            "model was trained with"
        )
    if others["d_in"] != len(FEATURES.observed):
        raise ConfigurationError(
            f"the tokenizer in {tokenizer.folder} reads {others['d_in']} numbers of a bar (d_in), but only "
            f"{len(FEATURES.observed)} are supported"
        )
    named = {f"tokenizer_{name}": others[name] for name in TOKENIZER_SIZES}
    return PublishedModel(
        source=source,
        tokenizer=tokenizer,
        architecture="Kronos",
        packages=(),
        kind=KRONOS,
        config=KronosConfig(**sizes, **named, paths=paths, seed=seed),
        weights={
            **dict(_rename_weights("model.", source.tensors)),
            **dict(_rename_weights("tokenizer.", tokenizer.tensors)),
        },
        features=FEATURES,
        max_value=MAX_VALUE,
        max_encoder_length=max(1, USUAL_CONTEXT - reach),
    )


def _read_sizes(config: Mapping[str, Json], names: tuple[str, ...]) -> dict[str, int]:
    """Whole numbers of a config, which has no unknown settings.

    Raises:
        ArtifactError: a setting is missing, unknown or of another type.
    """
    record = Record({name: value for name, value in config.items() if name not in UNREAD}, CONFIG)
    sizes = {name: record.integer(name) for name in names}
    record.end()  # an unknown setting could change the numbers
    return sizes


def _rename_weights(prefix: str, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Published weights by their names in our network, in float64; vectors of stamps may have one name more."""
    for name, tensor in tensors.items():
        if not name.endswith(UNUSED):
            yield f"{prefix}{name.replace('_embed.emb.', '_embed.')}", tensor.to(torch.float64)

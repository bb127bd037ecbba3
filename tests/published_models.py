"""Folders of models as their publishers offer them, with small random weights of the package's own classes."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from predictor.networks.chronos import Chronos2Config, ChronosBoltConfig
from predictor.networks.kronos import KronosConfig, KronosModel, KronosTokenizer

LEVELS = [0.1, 0.3, 0.5, 0.7, 0.9]
CONTEXT = 96
REACH = 24
PATCHES: dict[str, Any] = {
    "context_length": CONTEXT,
    "input_patch_size": 8,
    "input_patch_stride": 8,
    "quantiles": LEVELS,
    "use_reg_token": True,
}
SIZES: dict[str, Any] = {
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 2,
    "num_heads": 2,
    "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "relu",
    "dense_act_fn": "relu",
    "is_gated_act": False,
    "dropout_rate": 0.1,
    "initializer_factor": 0.05,
    "model_type": "t5",
    "torch_dtype": "float32",
}
BOLT: dict[str, Any] = {
    **SIZES,
    "architectures": ["ChronosBoltModelForForecasting"],
    "num_decoder_layers": 1,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
    "chronos_config": {**PATCHES, "prediction_length": REACH},
}
CHRONOS_2: dict[str, Any] = {
    **SIZES,
    "architectures": ["Chronos2Model"],
    "rope_theta": 10000.0,
    "chronos_config": {
        **PATCHES,
        "output_patch_size": 8,
        "max_output_patches": 3,
        "time_encoding_scale": CONTEXT,
        "use_arcsinh": True,
    },
}
CONFIGS = {"chronos-bolt": BOLT, "chronos-2": CHRONOS_2}
TIED = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


def random_model(kind: str, seed: int = 0) -> nn.Module:
    """A model of the package; its weights are larger than those of a new one, so that they matter."""
    shared: dict[str, Any] = {
        **{name: SIZES[name] for name in ("d_model", "d_kv", "d_ff", "num_layers", "num_heads")},
        "context_length": CONTEXT,
        "input_patch_size": 8,
        "input_patch_stride": 8,
        "use_reg_token": True,
        "quantiles": ",".join(map(str, LEVELS)),
    }
    config = (
        ChronosBoltConfig(
            **shared,
            num_decoder_layers=1,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=16,
            prediction_length=REACH,
        )
        if kind == "chronos-bolt"
        else Chronos2Config(**shared, max_output_patches=3, time_encoding_scale=CONTEXT)
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = config.build_model()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.2)
    return model.eval()


def write_published_folder(folder: Path, kind: str = "chronos-bolt", *, seed: int = 0, **changes: Any) -> Path:
    """Write a folder with these changes of its config; weights that are copies are left out, as by publishers."""
    folder.mkdir(parents=True)
    weights = {
        name: tensor.contiguous() for name, tensor in random_model(kind, seed).state_dict().items() if name not in TIED
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**CONFIGS[kind], **changes}))
    (folder / "LICENSE").write_text("Apache License 2.0\n")
    return folder


KRONOS_SIZES: dict[str, Any] = {
    "s1_bits": 4,
    "s2_bits": 4,
    "d_model": 16,
    "n_layers": 2,
    "n_heads": 2,
    "ff_dim": 24,
}
TOKENIZER_SIZES: dict[str, Any] = {"d_model": 12, "n_enc_layers": 2, "n_dec_layers": 3, "n_heads": 2, "ff_dim": 16}
RATES = dict.fromkeys(("ffn_dropout_p", "attn_dropout_p", "resid_dropout_p"), 0.1)
KRONOS: dict[str, Any] = {**KRONOS_SIZES, **RATES, "token_dropout_p": 0.1, "learn_te": True}
TOKENIZER: dict[str, Any] = {
    **TOKENIZER_SIZES,
    **RATES,
    **{name: KRONOS_SIZES[name] for name in ("s1_bits", "s2_bits")},
    "d_in": 6,
    "beta": 0.05,
    "gamma0": 1.0,
    "gamma": 1.1,
    "zeta": 0.05,
    "group_size": 4,
}


def kronos_config(**changes: int) -> KronosConfig:
    """The settings of `write_kronos_folders`."""
    of_tokenizer = {f"tokenizer_{name}": size for name, size in TOKENIZER_SIZES.items()}
    return KronosConfig(**{**KRONOS_SIZES, **of_tokenizer, "paths": 20, **changes})


def set_waves(module: nn.Module, size: float = 0.4) -> None:
    """Set the weights to values that follow from their names and places, as in recorded numbers."""
    with torch.no_grad():
        for k, (_, tensor) in enumerate(sorted(module.named_parameters())):
            places = torch.arange(tensor.numel(), dtype=torch.float64).reshape(tensor.shape)
            tensor.copy_(size * torch.sin(places * (0.7 + 0.013 * k) + k))


def write_kronos_folders(folder: Path, *, of_model: dict[str, Any] | None = None, **of_tokenizer: Any) -> Path:
    """Write the folders of a model and its tokenizer, `model` and `tokenizer`, with the tensors of published ones."""
    config = kronos_config()
    parts = {
        "model": (KronosModel(config), {**KRONOS, **(of_model or {})}),
        "tokenizer": (KronosTokenizer(config), {**TOKENIZER, **of_tokenizer}),
    }
    for name, (module, settings) in parts.items():
        set_waves(module)
        weights = {key: tensor.float().contiguous() for key, tensor in module.state_dict().items()}
        attentions = [key.removesuffix(".q_proj.weight") for key in weights if key.endswith("q_proj.weight")]
        weights |= {f"{key}.rotary.inv_freq": torch.ones(2) for key in attentions}
        if name == "tokenizer":
            weights |= {f"tokenizer.bsq.{key}": torch.arange(4) for key in ("basis", "group_basis")}
            weights |= {f"post_quant_embed_pre.{key}": torch.zeros(4) for key in ("weight", "bias")}
        (folder / name).mkdir(parents=True)
        save_file(weights, folder / name / "model.safetensors")
        (folder / name / "config.json").write_text(json.dumps(settings))
    return folder

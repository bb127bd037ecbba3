"""The weights of a `VitsModel`: what they are at the start, in training, and in the folder of a voice.

transformers draws every convolution for rectifiers, which VITS mostly does not have, and leaves no layer at zero. A new
voice's flow then tears its latents apart: its divergence begins at some thousand instead of some ten, and the decoder
learns little in the steps that pass until it has fallen. `draw_first` draws as the authors' own code does.
"""

from typing import Any, cast

from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import VitsModel
from transformers.models.vits.modeling_vits import VitsConvFlow, VitsHifiGan, VitsResidualCouplingLayer


def draw_first(model: VitsModel) -> None:
    """Draw the weights that a new model begins with, from torch's generator.

    As the code of Kim, Kong & Son (2021) has it: convolutions uniform by their fan-in, embeddings of the scale of the
    layers that follow, and flows that change nothing yet. Layers with weight norm keep what they are made with.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.ConvTranspose1d) and not parametrize.is_parametrized(module):
            module.reset_parameters()
    for module in model.modules():
        if isinstance(module, VitsResidualCouplingLayer):
            _zero(module.conv_post)
        if isinstance(module, VitsConvFlow):
            _zero(module.conv_proj)
    embedding = model.text_encoder.embed_tokens
    nn.init.normal_(embedding.weight, std=model.config.hidden_size**-0.5)


def weight_normed(decoder: VitsHifiGan) -> None:
    """Train the decoder's convolutions by direction and length, as the paper does."""
    apply: Any = decoder.apply_weight_norm
    apply()


def plain_weights(model: VitsModel) -> dict[str, Tensor]:
    """The weights as a new model of the same configuration has them, with none of the decoder's apart.

    The model itself stays as it is: taking weight norm away from a copy would take it from the model's own layers too,
    whose class the copy shares.
    """
    weights: dict[str, Tensor] = model.state_dict()
    for name, module in model.decoder.named_modules():
        if parametrize.is_parametrized(module):
            place = f"decoder.{name}"
            for part in ("original0", "original1"):
                del weights[f"{place}.parametrizations.weight.{part}"]
            weights[f"{place}.weight"] = cast("Tensor", module.weight).detach().contiguous()
    return weights


def _zero(layer: nn.Conv1d) -> None:
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)

"""Initial weights of a new voice."""

import math
from typing import Any

import pytest
import torch
from tiny_voice import tiny_config
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import VitsModel

from trainers.vits.voice import initialise_weights


def fresh_voice(*, stochastic: bool = False, seed: int = 1) -> VitsModel:
    torch.manual_seed(seed)
    model = VitsModel(tiny_config(stochastic=stochastic)).eval()
    initialise_weights(model)
    return model


def test_the_flow_of_a_new_voice_changes_no_latent_but_their_order() -> None:
    model = fresh_voice()
    latents = torch.randn(2, 16, 5, generator=torch.Generator().manual_seed(2))
    flowed: Tensor = model.flow(latents, torch.ones(2, 1, 5), reverse=False)
    assert torch.equal(flowed, latents)  # two layers, each of which turns the channels around


def test_the_stochastic_predictor_begins_with_flows_of_even_bins() -> None:
    predictor: Any = fresh_voice(stochastic=True).duration_predictor
    ends = [layer.conv_proj for layer in predictor.flows if type(layer).__name__ == "VitsConvFlow"]
    assert ends
    assert not any(weight.any() for end in ends for weight in end.parameters())


def test_convolutions_are_drawn_by_their_fan_in() -> None:
    """Uniform in ±1/√fan_in; thousands of weights nearly reach both ends."""
    model = fresh_voice()
    layer: Any = model.posterior_encoder.conv_pre
    bound, weight = 1 / math.sqrt(layer.in_channels), layer.weight.detach()
    assert 0.99 * bound < float(weight.abs().max()) <= bound
    assert float(weight.std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)


def test_tokens_reach_the_encoder_at_the_scale_of_one() -> None:
    model = fresh_voice()
    embedded = model.text_encoder.embed_tokens.weight * math.sqrt(model.config.hidden_size)
    assert float(embedded.detach().std()) == pytest.approx(1, rel=0.15)


def test_layers_with_weight_norm_keep_what_they_were_made_with() -> None:
    torch.manual_seed(1)
    before = {name: one.clone() for name, one in VitsModel(tiny_config()).state_dict().items()}
    after = fresh_voice().state_dict()
    kept = [name for name in before if "parametrizations" in name]
    assert kept
    assert all(torch.equal(before[name], after[name]) for name in kept)


def test_the_same_seed_draws_the_same_and_another_another() -> None:
    one, same, other = (fresh_voice(seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["decoder.conv_pre.weight"], other["decoder.conv_pre.weight"])


def test_every_layer_is_drawn_or_weight_normed() -> None:
    """None keeps the initialisation that transformers chose for rectifiers."""
    model = fresh_voice()
    layers = [one for one in model.modules() if isinstance(one, nn.Conv1d | nn.ConvTranspose1d)]
    for layer in layers:
        if not parametrize.is_parametrized(layer):
            fan_in = nn.init._calculate_fan_in_and_fan_out(layer.weight)[0]
            assert float(layer.weight.detach().abs().max()) <= 1 / math.sqrt(fan_in)

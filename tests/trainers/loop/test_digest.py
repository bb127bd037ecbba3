"""The digest by which frozen weights are known."""

import torch
from torch import nn

from trainers.loop.weights.named import digest


def test_equal_weights_have_one_digest_and_any_other_bit_another() -> None:
    torch.manual_seed(0)
    one, same = nn.Linear(3, 2), nn.Linear(3, 2)
    same.load_state_dict(one.state_dict())
    assert digest(one) == digest(same)
    with torch.no_grad():
        same.weight[0, 0].mul_(1.0 + 1e-6)
    assert digest(one) != digest(same)


def test_buffers_and_half_precision_count_too() -> None:
    layer = nn.BatchNorm1d(3)
    before = digest(layer)
    assert layer.running_mean is not None
    layer.running_mean.add_(1.0)
    assert digest(layer) not in {before, digest(nn.BatchNorm1d(3).to(torch.bfloat16))}

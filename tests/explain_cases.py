"""Networks, windows and settings shared by the tests of explanations."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from predictor.explain import Baseline, Explainer, FeatureForecasts, build_attribution_view
from predictor.networks import Inputs, InputSizes, LSTMConfig, LSTMForecaster, OutputMap, Target

ENCODER, FUTURE, OBSERVED, KNOWN, STATIC = 8, 5, 4, 2, 3
LEVELS = (0.1, 0.5, 0.9)
TARGET = Target(horizons=(1, 5))
SIZES = InputSizes(encoder_length=ENCODER, future_length=FUTURE, observed=OBSERVED, known=KNOWN, static=STATIC)
POINTS = [(h, q) for h in range(2) for q in range(3)]
BASELINE = Baseline(
    name="train_mean",
    known=np.array([0.1, -0.2], np.float32),
    static=np.array([0.3, 0.0, -0.3], np.float32),
    location=np.array([0.001, 0.002]),
    scale=np.array([0.01, 0.012]),
)


def lstm_forecaster(*, dropout: float = 0.3) -> LSTMForecaster:
    """A served LSTM with weights large enough that gradients bend along the path."""
    torch.manual_seed(3)
    network = LSTMForecaster(LSTMConfig(hidden=8, layers=2, dropout=dropout), sizes=SIZES, target=TARGET, levels=LEVELS)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(2.0)
    return network.eval().requires_grad_(requires_grad=False)


class NormalisedLSTM(nn.Module):
    """An LSTM with dropout and batch norm: everything that train mode would change."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(OBSERVED, 8, 2, batch_first=True, dropout=0.5)
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(8, len(TARGET.horizons) * len(LEVELS))

    def forward(self, inputs: Inputs) -> Tensor:
        states, _ = self.lstm(inputs.observed * inputs.mask)
        units = self.head(self.dropout(self.norm(states[:, -1])))
        return units.view(-1, len(TARGET.horizons), len(LEVELS)).cumsum(-1)


def normalised_lstm() -> NormalisedLSTM:
    torch.manual_seed(4)
    network = NormalisedLSTM()
    network.norm.running_mean = torch.full((8,), 0.05)
    network.norm.running_var = torch.full((8,), 0.1)
    return network.eval().requires_grad_(requires_grad=False)


class LinearNetwork(nn.Module):
    """Units [N, H, Q] = weights [H, Q, T, F] times the observed features."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = nn.Parameter(weights, requires_grad=False)

    def forward(self, inputs: Inputs) -> Tensor:
        return torch.einsum("ntf,hqtf->nhq", inputs.observed, self.weights)


def output_map(*, offset: float = 0.15) -> OutputMap:
    offsets = torch.tensor([[-offset, 0.0, offset]] * len(TARGET.horizons), dtype=torch.float64)
    return OutputMap(spread=torch.from_numpy(TARGET.spread), offsets=offsets, levels=LEVELS)


def windows(rows: int, *, seed: int = 0) -> Inputs:
    """Random windows in which a tenth of the observed cells is unknown."""
    source = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, ENCODER, OBSERVED, generator=source) > 0.1
    return Inputs(
        observed=torch.randn(rows, ENCODER, OBSERVED, generator=source) * mask,
        known=torch.rand(rows, ENCODER + FUTURE, KNOWN, generator=source) - 0.5,
        static=torch.randn(rows, STATIC, generator=source),
        mask=mask,
        location=torch.randn(rows, 2, generator=source, dtype=torch.float64) * 0.001,
        scale=torch.rand(rows, 2, generator=source, dtype=torch.float64) * 0.03 + 0.005,
    )


def explainer(network: nn.Module, *, max_rows: int = 512, baseline: Baseline = BASELINE) -> Explainer:
    return Explainer(build_attribution_view(network), output_map(), baseline, max_rows=max_rows)


def baseline_like(inputs: Inputs) -> Baseline:
    """A baseline with the location and scale of the first window."""
    return replace(BASELINE, location=inputs.location[0].numpy(), scale=inputs.scale[0].numpy())


def forecast(network: nn.Module, inputs: Inputs) -> Tensor:
    """The forecast as serving computes it, [N, H, Q]."""
    with torch.inference_mode():
        return output_map().map_tensors(network(inputs), inputs.location, inputs.scale)


class Footprint(NamedTuple):
    """Everything that an explanation could change on a network or in the process."""

    training: dict[str, bool]
    dropout: dict[str, float]
    state: dict[str, Tensor]
    gradients: dict[str, bool]
    requires_grad: dict[str, bool]
    random_state: Tensor
    cudnn: tuple[bool, bool, bool, bool]


def footprint(network: nn.Module) -> Footprint:
    cudnn = torch.backends.cudnn
    return Footprint(
        training={name: module.training for name, module in network.named_modules()},
        dropout={name: module.dropout for name, module in network.named_modules() if isinstance(module, nn.RNNBase)},
        state={name: value.clone() for name, value in network.state_dict().items()},
        gradients={name: parameter.grad is not None for name, parameter in network.named_parameters()},
        requires_grad={name: parameter.requires_grad for name, parameter in network.named_parameters()},
        random_state=torch.get_rng_state(),
        cudnn=(cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32),
    )


def assert_same_footprint(before: Footprint, after: Footprint) -> None:
    assert before.training == after.training
    assert before.dropout == after.dropout
    assert before.gradients == after.gradients
    assert before.requires_grad == after.requires_grad
    assert before.cudnn == after.cudnn
    assert torch.equal(before.random_state, after.random_state)
    assert before.state.keys() == after.state.keys()
    assert all(torch.equal(value, after.state[name]) for name, value in before.state.items())


def feature_forecasts(network: nn.Module) -> FeatureForecasts:
    """Of a network with one known feature of two columns, and static features of one and two."""
    return FeatureForecasts(
        network,
        output_map(),
        BASELINE,
        known_groups=(0, 0),
        static_groups=(0, 1, 1),
        device=torch.device("cpu"),
        max_rows=512,
    )

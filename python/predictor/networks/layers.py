"""Layers that several networks are made of, and the bounds of their sizes.

The bounds are for what an artifact may ask to be built; they are far beyond what daily bars can teach.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from predictor.errors import ConfigurationError
from predictor.flags import Flag
from predictor.networks.inputs import Inputs, InputSizes
from predictor.networks.target import Target

MOST_CELLS: Final = 2048
"""Observed cells that the path reads at most; more could hardly be fitted, and would hardly be worth it."""

HIGHWAY_ARITHMETIC: Final = (
    f"linear in the observed cells of the newest sessions, at most {MOST_CELLS}; times twice the sigmoid of a linear "
    "map of what the head reads; added to every quantile of a horizon"
)

_LEVELS: Final = 2**16

NORM_EPSILON: Final = 1e-5

CONTEXT_ARITHMETIC: Final[Mapping[str, str | float]] = {
    "context": "last state, static, known of the session that the horizon ends on",
    "activation": "elu, alpha 1",
    "norm": "layer norm, variance over n",
    "norm_epsilon": NORM_EPSILON,
}

MOST_HIDDEN: Final = 4096
MOST_LAYERS: Final = 16
MOST_HEADS: Final = 64

_OWN: Final = "the kind's own"
HiddenSize = Annotated[int, Flag("Width of the network.", own=_OWN)]
LayerCount = Annotated[int, Flag("Recurrent layers.", own=_OWN)]
BlockCount = Annotated[int, Flag("Transformer layers of the hybrid.", own=_OWN)]
HeadCount = Annotated[int, Flag("Attention heads.", own=_OWN)]
NeighbourCount = Annotated[int, Flag("Edges per stock of the graph.", own=_OWN)]
DropoutShare = Annotated[float, Flag("Share dropped in training.", own=_OWN)]


class Highway(nn.Module):
    """Autoregressive highway (Lai et al. 2018, LSTNet, section 3.6; Zeng et al. 2023, DLinear) with a gate.

    What is as simple as an average of the past needs no network, and no network learns it as well. The map has no bias,
    and is zero before it is fitted. Where it is only a makeshift, as for the days and weeks of traffic, the rest of the
    network would spend its training on undoing it: a gate closes it instead (Srivastava et al. 2015), which begins at 1
    and lies between 0 and 2. Shapes: N rows, H horizons, F observed features, R sessions that are read, W width.
    """

    def __init__(self, sizes: InputSizes, width: int, *, horizons: int) -> None:
        super().__init__()
        self.sessions: Final = max(1, min(sizes.encoder_length, MOST_CELLS // sizes.observed))
        self.weight = nn.Parameter(torch.zeros(horizons, self.sessions * sizes.observed))
        self.gate = nn.Linear(width, 1)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def cells(self, inputs: Inputs) -> Tensor:
        """[N, R F] what is read, oldest session first."""
        return inputs.observed[:, -self.sessions :].flatten(1)

    def linear(self, inputs: Inputs) -> Tensor:
        """[N, H] the linear map of these inputs, as if the gate were 1."""
        return nn.functional.linear(self.cells(inputs), self.weight)

    def forward(self, inputs: Inputs, states: Tensor) -> Tensor:
        """[N, H, 1] what is added to the quantiles of horizons whose states [N, H, W] the gate reads."""
        return 2 * self.gate(states).sigmoid() * self.linear(inputs).unsqueeze(-1)


def is_traced() -> bool:
    """Whether a compiler or an exporter follows the operations: it must see one plain path, and no blocks of rows."""
    return torch.compiler.is_compiling() or bool(torch.jit.is_tracing())  # pyright: ignore[reportPrivateImportUsage]


class Dropout(nn.Module):
    """Dropout (Srivastava et al. 2014) whose random numbers cost a fourth on a CPU.

    While training it sets a share of the values to 0, each by itself, and scales the others up so that means stay.

    torch draws a number for each value. This draws 64 random bits for four, so that the share is met to 1/65536.

    Args:
        share: Of values that are dropped, in [0, 1).
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    @property
    def drops(self) -> bool:
        """Whether anything is dropped now."""
        return self.training and self.share > 0

    @property
    def scale(self) -> float:
        """What the kept values are multiplied by."""
        return 1 / (1 - self.share)

    def forward(self, x: Tensor) -> Tensor:
        """Values of any shape."""
        return x * (self.kept(x.shape, x.device) * self.scale) if self.drops else x

    def kept(self, shape: torch.Size, device: torch.device) -> Tensor:
        """uint8 of a shape: 1 where a value is kept."""
        if is_traced():  # the compiler of torch 2.11 cannot take the byte of a truth as a number
            return (torch.rand(shape, device=device) >= self.share).to(torch.uint8)
        if device.type != "cpu":
            return (torch.rand(shape, device=device) >= self.share).view(torch.uint8)
        count = shape.numel()
        bits = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        dropped = min(round(self.share * _LEVELS), _LEVELS - 1) - _LEVELS // 2
        return (bits.view(torch.int16)[:count] >= dropped).view(torch.uint8).view(shape)


class HorizonContext(nn.Module):
    """The state meets, for each horizon, the static features and the known ones of the session it ends on.

    Legend: N rows, H horizons, W width of the state and of the context.
    """

    ends: Tensor

    def __init__(self, width: int, *, sizes: InputSizes, target: Target, dropout: float) -> None:
        super().__init__()
        ends = [sizes.encoder_length - 1 + target.lag + h for h in target.horizons]
        self.register_buffer("ends", torch.tensor(ends), persistent=False)
        self.mix = nn.Linear(width + sizes.static + sizes.known, width)
        self.norm = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.dropout = Dropout(dropout)

    def forward(self, state: Tensor, inputs: Inputs) -> Tensor:
        """Map the state [N, W] to [N, H, W]."""
        of_window = torch.cat([state, inputs.static], dim=-1)
        of_horizon = inputs.known.index_select(1, self.ends)
        window, horizon = self.mix.weight.split([of_window.shape[-1], of_horizon.shape[-1]], dim=1)
        # the window's part is one for all horizons, so it is computed once
        shared = functional.linear(of_window, window, self.mix.bias).unsqueeze(1)
        return self.dropout(self.norm(functional.elu(shared + functional.linear(of_horizon, horizon))))


def check_whole(name: str, value: int, most: int, *, least: int = 1) -> None:
    """Raise ConfigurationError, naming the setting, unless it lies between `least` and `most`."""
    if not least <= value <= most:
        raise ConfigurationError(f"{name} is {value}, but must be {least} to {most}")


def check_dropout(dropout: float) -> None:
    """Raise ConfigurationError unless the share lies in [0, 1)."""
    if not 0 <= dropout < 1:
        raise ConfigurationError(f"dropout is {dropout:g}, but must be at least 0 and below 1")


def check_heads(heads: int, hidden: int) -> None:
    """Raise ConfigurationError unless attention of that width divides into so many heads."""
    check_whole("heads", heads, MOST_HEADS)
    if hidden % heads:
        raise ConfigurationError(f"hidden is {hidden}, but must be a multiple of heads, {heads}")

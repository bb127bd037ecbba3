"""Layers that several networks share, and the bounds of their sizes.

The bounds limit what an artifact can build; they are far beyond what daily bars support.
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

MAX_CELLS: Final = 2048
"""Maximum number of observed cells that the highway reads; more are hard to fit and hardly useful."""

HIGHWAY_ARITHMETIC: Final = (
    f"linear in the observed cells of the newest sessions, at most {MAX_CELLS}; times twice the sigmoid of a linear "
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

MAX_HIDDEN: Final = 4096
MAX_LAYERS: Final = 16
MAX_HEADS: Final = 64

_OWN: Final = "depends on the kind"
HiddenSize = Annotated[int, Flag("Width of the network.", shown_default=_OWN)]
LayerCount = Annotated[int, Flag("Recurrent layers.", shown_default=_OWN)]
BlockCount = Annotated[int, Flag("Transformer layers of the hybrid.", shown_default=_OWN)]
HeadCount = Annotated[int, Flag("Attention heads.", shown_default=_OWN)]
NeighbourCount = Annotated[int, Flag("Edges per stock of the graph.", shown_default=_OWN)]
DropoutShare = Annotated[float, Flag("Share dropped in training.", shown_default=_OWN)]


class Highway(nn.Module):
    """Autoregressive highway (Lai et al. 2018, LSTNet, section 3.6; Zeng et al. 2023, DLinear) with a gate.

    A linear map represents simple functions such as averages of the past better than a network. It has no bias and is
    zero before it is fitted. A gate (Srivastava et al. 2015) starts at 1 and lies between 0 and 2. It closes the
    highway where a linear map fits badly, as for daily and weekly traffic; otherwise the rest of the network would
    have to undo it. Shapes: N rows, H horizons, F observed features, R sessions read, W width.
    """

    def __init__(self, sizes: InputSizes, width: int, *, horizons: int) -> None:
        super().__init__()
        self.sessions: Final = max(1, min(sizes.encoder_length, MAX_CELLS // sizes.observed))
        self.weight = nn.Parameter(torch.zeros(horizons, self.sessions * sizes.observed))
        self.gate = nn.Linear(width, 1)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def cells(self, inputs: Inputs) -> Tensor:
        """[N, R F] the cells read, oldest session first."""
        return inputs.observed[:, -self.sessions :].flatten(1)

    def linear(self, inputs: Inputs) -> Tensor:
        """[N, H] the linear map of the inputs, without the gate."""
        return nn.functional.linear(self.cells(inputs), self.weight)

    def forward(self, inputs: Inputs, states: Tensor) -> Tensor:
        """[N, H, 1] the term to add to the quantiles; the gate reads the horizons' states [N, H, W]."""
        return 2 * self.gate(states).sigmoid() * self.linear(inputs).unsqueeze(-1)


def is_traced() -> bool:
    """Whether a compiler or an exporter traces the operations; it must see one plain path without blocks of rows."""
    return torch.compiler.is_compiling() or bool(torch.jit.is_tracing())  # pyright: ignore[reportPrivateImportUsage]


class Dropout(nn.Module):
    """Dropout (Srivastava et al. 2014) with a quarter of the usual cost of random numbers on a CPU.

    During training it sets a share of the values to 0 independently and scales the others up to keep the mean. Torch
    draws a number per value; this draws 64 random bits for four values, so the share is exact to 1/65536.

    Args:
        share: Share of dropped values, in [0, 1).
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    @property
    def has_dropout(self) -> bool:
        """Whether the layer drops values now."""
        return self.training and self.share > 0

    @property
    def scale(self) -> float:
        """Factor of the kept values."""
        return 1 / (1 - self.share)

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout to values of any shape."""
        return x * (self.kept(x.shape, x.device) * self.scale) if self.has_dropout else x

    def kept(self, shape: torch.Size, device: torch.device) -> Tensor:
        """uint8 mask of a shape: 1 for kept values."""
        if is_traced():  # the compiler of torch 2.11 cannot view a bool as uint8
            return (torch.rand(shape, device=device) >= self.share).to(torch.uint8)
        if device.type != "cpu":
            return (torch.rand(shape, device=device) >= self.share).view(torch.uint8)
        count = shape.numel()
        bits = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        dropped = min(round(self.share * _LEVELS), _LEVELS - 1) - _LEVELS // 2
        return (bits.view(torch.int16)[:count] >= dropped).view(torch.uint8).view(shape)


class HorizonContext(nn.Module):
    """Combines the state, for each horizon, with the static features and the known features of its last session.

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
        # the window's part is the same for all horizons, so it is computed once
        shared = functional.linear(of_window, window, self.mix.bias).unsqueeze(1)
        return self.dropout(self.norm(functional.elu(shared + functional.linear(of_horizon, horizon))))


def check_whole(name: str, value: int, max_value: int, *, min_value: int = 1) -> None:
    """Raise ConfigurationError with the setting's name unless it lies between `min_value` and `max_value`."""
    if not min_value <= value <= max_value:
        raise ConfigurationError(f"{name} is {value}, but must be {min_value} to {max_value}")


def check_dropout(dropout: float) -> None:
    """Raise ConfigurationError unless the share lies in [0, 1)."""
    if not 0 <= dropout < 1:
        raise ConfigurationError(f"dropout is {dropout:g}, but must be at least 0 and below 1")


def check_heads(heads: int, hidden: int) -> None:
    """Raise ConfigurationError unless `heads` is in bounds and divides `hidden`."""
    check_whole("heads", heads, MAX_HEADS)
    if hidden % heads:
        raise ConfigurationError(f"hidden is {hidden}, but must be a multiple of heads, {heads}")

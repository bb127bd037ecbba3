"""The gates of the Temporal Fusion Transformer (Lim et al. 2021, section 4.1): a layer that can switch itself off."""

from math import sqrt
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from predictor.networks.layers import Dropout

NORM_EPSILON: Final = 1e-5


class GatedAddNorm(nn.Module):
    """LayerNorm(skip + GLU(x)), as in equations 4, 17, 20 and 22, with dropout before the gate.

    GLU(x) = value * sigmoid(switch) (equation 5); one linear layer gives first the values, then the switches.

    Args:
        inputs: Width of x.
        outputs: Width of the skip and of the result.
        dropout: Share of x that is dropped while training.
    """

    def __init__(self, inputs: int, outputs: int, *, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.gate = nn.Linear(inputs, 2 * outputs)
        self.norm = nn.LayerNorm(outputs, eps=NORM_EPSILON)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """Map x of shape [..., inputs] and skip [..., outputs] to [..., outputs]."""
        return self.norm(skip + functional.glu(self.gate(self.dropout(x)), dim=-1))


class GatedRest(nn.Module):
    """All of a gated residual network but its first layer and its skip: LayerNorm(skip + GLU(W1 ELU(first) + b1)).

    Args:
        hidden: Width of the first layer and of the context.
        outputs: Width of the skip and of the result.
        dropout: Share of values dropped before the gate while training.
        context: Whether there is a context, whose linear map is added to the first layer's result.
    """

    def __init__(self, hidden: int, outputs: int, *, dropout: float, context: bool = False) -> None:
        super().__init__()
        self.context = nn.Linear(hidden, hidden, bias=False) if context else None
        self.second = nn.Linear(hidden, hidden)
        self.add = GatedAddNorm(hidden, outputs, dropout=dropout)

    def forward(self, first: Tensor, skip: Tensor, context: Tensor | None = None) -> Tensor:
        """Map first of shape [..., hidden] and skip [..., outputs] to [..., outputs]; context broadcasts to first."""
        if self.context is not None and context is not None:
            first = first + self.context(context)
        return self.add(self.second(functional.elu(first)), skip)


class GatedResidual(nn.Module):
    """Gated residual network (equations 2 to 4): LayerNorm(x + GLU(W1 ELU(W2 x + W3 context + b2) + b1)).

    Args:
        width: Of x, of the context and of the result.
        dropout: Share of values dropped before the gate while training.
        context: Whether there is a context.
    """

    def __init__(self, width: int, *, dropout: float, context: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.rest = GatedRest(width, width, dropout=dropout, context=context)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Map x of shape [..., width], and a context that broadcasts to it, to [..., width]."""
        return self.rest(self.first(x), x, context)


class GatedResiduals(nn.Module):
    """Several gated residual networks side by side, all of one width and without context, as batched products.

    Shapes: V networks, R rows, H width.
    """

    def __init__(self, count: int, width: int, *, dropout: float) -> None:
        super().__init__()
        self.count = count
        self.dropout = Dropout(dropout)
        self.first, self.first_bias = _linears(count, width, width)
        self.second, self.second_bias = _linears(count, width, width)
        self.gate, self.gate_bias = _linears(count, width, 2 * width)
        self.gain = nn.Parameter(torch.ones(count, 1, width))
        self.shift = nn.Parameter(torch.zeros(count, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        """Map [V, R, H] to [V, R, H]; network v reads x[v]."""
        hidden = functional.elu(torch.baddbmm(self.first_bias, x, self.first))
        hidden = self.dropout(torch.baddbmm(self.second_bias, hidden, self.second))
        gated = functional.glu(torch.baddbmm(self.gate_bias, hidden, self.gate), dim=-1)
        return torch.addcmul(self.shift, functional.layer_norm(x + gated, x.shape[-1:], eps=NORM_EPSILON), self.gain)


def _linears(count: int, inputs: int, outputs: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Weights [V, inputs, outputs] and biases [V, 1, outputs] that start as those of `nn.Linear`."""
    bound = 1 / sqrt(inputs)
    weight = torch.empty(count, inputs, outputs).uniform_(-bound, bound)
    bias = torch.empty(count, 1, outputs).uniform_(-bound, bound)
    return nn.Parameter(weight), nn.Parameter(bias)

"""Gated residual networks of the Temporal Fusion Transformer (Lim et al. 2021, section 4.1)."""

from collections.abc import Iterator
from math import log, sqrt
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from predictor.networks.layers import Dropout, is_traced

NORM_EPSILON: Final = 1e-5


class GatedAddNorm(nn.Module):
    """LayerNorm(skip + GLU(x)), as in equations 4, 17, 20 and 22, with dropout before the gate.

    GLU(x) = value * sigmoid(switch) (equation 5); one linear layer returns first the values, then the switches.

    Args:
        inputs: Width of x.
        outputs: Width of the skip and of the result.
        dropout: Share of x dropped during training.
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
    """A gated residual network without its first layer and its skip: LayerNorm(skip + GLU(W1 ELU(first) + b1)).

    Args:
        hidden: Width of the first layer and of the context.
        outputs: Width of the skip and of the result.
        dropout: Share of values dropped before the gate during training.
        context: Whether to add a linear map of a context to the first layer's result.
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
        width: Width of x, the context and the result.
        dropout: Share of values dropped before the gate during training.
        context: Whether the network reads a context.
    """

    def __init__(self, width: int, *, dropout: float, context: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.rest = GatedRest(width, width, dropout=dropout, context=context)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Map x of shape [..., width] to [..., width]; context broadcasts to x."""
        return self.rest(self.first(x), x, context)


class GatedResiduals(nn.Module):
    """Parallel gated residual networks of one width and without context, as batched products.

    Shapes: V networks, R rows, H width.
    """

    def __init__(self, count: int, width: int, *, dropout: float) -> None:
        super().__init__()
        self.count = count
        self.dropout = Dropout(dropout)
        self.first, self.first_bias = _make_linears(count, width, width)
        self.second, self.second_bias = _make_linears(count, width, width)
        self.gate, self.gate_bias = _make_linears(count, width, 2 * width)
        self.gain = nn.Parameter(torch.ones(count, 1, width))
        self.shift = nn.Parameter(torch.zeros(count, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        """Map [V, R, H] to [V, R, H]; network v reads x[v]."""
        hidden = functional.elu(torch.baddbmm(self.first_bias, x, self.first))
        hidden = self.dropout(torch.baddbmm(self.second_bias, hidden, self.second))
        gated = functional.glu(torch.baddbmm(self.gate_bias, hidden, self.gate), dim=-1)
        return torch.addcmul(self.shift, functional.layer_norm(x + gated, x.shape[-1:], eps=NORM_EPSILON), self.gain)


def _make_linears(count: int, inputs: int, outputs: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Weights [V, inputs, outputs] and biases [V, 1, outputs], initialized like `nn.Linear`."""
    bound = 1 / sqrt(inputs)
    weight = torch.empty(count, inputs, outputs).uniform_(-bound, bound)
    bias = torch.empty(count, 1, outputs).uniform_(-bound, bound)
    return nn.Parameter(weight), nn.Parameter(bias)


CELLS: Final = 2**18
"""Values [V, rows, H] per block: 1 MB in float32; a few such tensors are in memory at once."""


class GatedSumWeights(NamedTuple):
    """Weights of the networks. The rows of `embedding` and `first` belong to the columns, the last to the constant."""

    embedding: Tensor
    """[V, M, H]"""
    first: Tensor
    """[V, M, H]"""
    first_bias: Tensor
    """[V, 1, H]"""
    second: Tensor
    """[V, H, H]"""
    second_bias: Tensor
    """[V, 1, H]"""
    gate: Tensor
    """[V, H, 2H]; scaled up during dropout."""
    gate_bias: Tensor
    """[V, 1, 2H]"""
    gain: Tensor
    """[V, 1, H]"""
    shift: Tensor
    """[V, 1, H]"""


def compute_gated_sum(x: Tensor, shares: Tensor, keep: Tensor | None, weights: GatedSumWeights) -> Tensor:
    """Weighted sum [R, H] of the networks' results.

    Args:
        x: [V, R, M] the columns and the constant 1.
        shares: [R, V] weight of each variable.
        keep: uint8 [V, R, H] 1 for values that dropout keeps; None for all.
        weights: weights of the networks.
    """
    if not _is_faster_in_blocks(x, weights):
        return _compute_without_blocks(x, shares, keep, weights)
    return _Blocks.apply(x, shares, keep, *_merge(weights, dropping=keep is not None))  # pyright: ignore[reportReturnType] - apply is untyped


def _is_faster_in_blocks(x: Tensor, weights: GatedSumWeights) -> bool:
    """Whether blocks pay: only on a CPU and above one block; a compiler makes its own blocks."""
    if is_traced() or x.device.type != "cpu":
        return False
    cells = x.shape[0] * x.shape[1] * weights.gain.shape[-1]
    return cells > CELLS and not torch.is_autocast_enabled("cpu")


def _compute_without_blocks(x: Tensor, shares: Tensor, keep: Tensor | None, weights: GatedSumWeights) -> Tensor:
    """The definition, without blocks."""
    hidden = functional.elu(torch.baddbmm(weights.first_bias, x, weights.first))
    hidden = torch.baddbmm(weights.second_bias, hidden, weights.second)
    hidden = hidden if keep is None else hidden * keep
    gated = functional.glu(torch.baddbmm(weights.gate_bias, hidden, weights.gate), dim=-1)
    normed = functional.layer_norm(torch.baddbmm(gated, x, weights.embedding), gated.shape[-1:], eps=NORM_EPSILON)
    return (torch.addcmul(weights.shift, normed, weights.gain) * shares.t().unsqueeze(-1)).sum(0)


class _Weights(NamedTuple):
    """`GatedSumWeights` with merged layers.

    The constant's row contains the first bias. Without dropout, the gate's layer contains the second layer.
    """

    embedding: Tensor
    first: Tensor
    second: Tensor | None
    second_bias: Tensor | None
    gate: Tensor
    gate_bias: Tensor
    gain: Tensor
    shift: Tensor


def _merge(weights: GatedSumWeights, *, dropping: bool) -> _Weights:
    first = weights.first + functional.pad(weights.first_bias, (0, 0, weights.first.shape[1] - 1, 0))
    embedding, _, _, second, second_bias, gate, gate_bias, gain, shift = weights
    if dropping:
        return _Weights(embedding, first, second, second_bias, gate, gate_bias, gain, shift)
    bias = torch.baddbmm(gate_bias, second_bias, gate)
    return _Weights(embedding, first, None, None, torch.bmm(second, gate), bias, gain, shift)


class _Blocks(torch.autograd.Function):
    """`compute_gated_sum` in blocks of rows, with its first derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shares: Tensor, keep: Tensor | None, *tensors: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, shares, keep, *tensors)
        arguments = _Arguments(x, shares, keep, _Weights(*tensors))  # pyright: ignore[reportArgumentType]
        result = shares @ arguments.weights.shift[:, 0]
        for block in _iterate_blocks(arguments):
            block.add_result(result[block.rows])
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, shares, keep, *tensors = ctx.saved_tensors
        arguments = _Arguments(x, shares, keep, _Weights(*tensors))
        learns = any(ctx.needs_input_grad[3:])
        grads = [torch.zeros_like(tensor) if learns and tensor is not None else None for tensor in tensors]
        gradients = _Gradients(
            x=torch.zeros_like(x) if ctx.needs_input_grad[0] else None,
            shares=grad @ arguments.weights.shift[:, 0].t(),
            weights=_Weights(*grads) if learns else None,  # pyright: ignore[reportArgumentType]
        )
        for block in _iterate_blocks(arguments):
            block.add_gradients(grad[block.rows].contiguous(), gradients)
        return gradients.x, gradients.shares, None, *grads


class _Arguments(NamedTuple):
    """The arguments of `compute_gated_sum`."""

    x: Tensor
    shares: Tensor
    keep: Tensor | None
    weights: _Weights


class _Gradients(NamedTuple):
    """The gradient of each argument; None if it is not needed."""

    x: Tensor | None
    shares: Tensor
    weights: _Weights | None


def _iterate_blocks(arguments: _Arguments) -> Iterator["_Block"]:
    """Iterate over all rows in blocks that share memory."""
    variables, rows, _ = arguments.x.shape
    width = arguments.weights.gain.shape[-1]
    length = max(1, min(rows, CELLS // (variables * width)))
    memory = arguments.x.new_empty(8, variables * length * width)
    for start in range(0, rows, length):
        yield _Block(slice(start, min(start + length, rows)), arguments, memory)


class _Block:
    """A block of rows. The next block reuses the memory of its results."""

    def __init__(self, rows: slice, arguments: _Arguments, memory: Tensor) -> None:
        self.rows = rows
        self._weights = arguments.weights
        self._x = arguments.x[:, rows]
        self._shares = arguments.shares[rows].t().unsqueeze(-1)
        self._keep = None if arguments.keep is None else arguments.keep[:, rows]
        variables, length, _ = self._x.shape
        shape = (variables, length, arguments.weights.gain.shape[-1])
        cells = shape[0] * shape[1] * shape[2]
        self._first, self._second, self._normed, self._scratch = (memory[k, :cells].view(shape) for k in range(4))
        self._gate, self._grad_gate = (memory[k : k + 2].view(-1)[: 2 * cells].view(*shape[:2], -1) for k in (4, 6))

    def add_result(self, result: Tensor) -> None:
        """Add everything except the shifts to these rows' result [rows, H]."""
        deviation = self._run()
        result += self._normed.mul_(self._shares / deviation).mul_(self._weights.gain).sum(0)

    def add_gradients(self, grad: Tensor, gradients: _Gradients) -> None:
        """Add the contribution of these rows, from the gradient [rows, H] of their result."""
        deviation = self._run()
        grad_sum = self._differentiate_norm(grad, deviation, gradients)
        torch.ops.aten.glu_backward.grad_input(grad_sum, self._gate, -1, grad_input=self._grad_gate)
        grad_first = self._differentiate_layers(gradients.weights)
        torch.ops.aten.elu_backward.grad_input(grad_first, 1, 1, 1, True, self._first, grad_input=grad_first)
        if gradients.x is not None:
            gradients.x[:, self.rows] += grad_sum @ self._weights.embedding.mT + grad_first @ self._weights.first.mT
        if gradients.weights is not None:
            gradients.weights.embedding.baddbmm_(self._x.mT, grad_sum)
            gradients.weights.first.baddbmm_(self._x.mT, grad_first)

    def _run(self) -> Tensor:
        """Compute `first` to `gate` and the centred `normed`; return its deviation [V, rows, 1]."""
        weights = self._weights
        _apply_elu_(torch.bmm(self._x, weights.first, out=self._first), self._scratch)
        if self._keep is not None and weights.second is not None and weights.second_bias is not None:
            torch.baddbmm(weights.second_bias, self._first, weights.second, out=self._second).mul_(self._keep)
        torch.baddbmm(weights.gate_bias, self._hidden, weights.gate, out=self._gate)
        torch.ops.aten.glu.out(self._gate, -1, out=self._normed).baddbmm_(self._x, weights.embedding)
        self._normed.sub_(_compute_mean(self._normed))
        return _compute_mean(torch.mul(self._normed, self._normed, out=self._scratch)).add_(NORM_EPSILON).sqrt_()

    @property
    def _hidden(self) -> Tensor:
        """Input of the gate's layer."""
        return self._first if self._keep is None else self._second

    def _differentiate_norm(self, grad: Tensor, deviation: Tensor, gradients: _Gradients) -> Tensor:
        """Gradient [V, rows, H] of the normed sum; adds those of the shares, the gain and the shift."""
        gain, width = self._weights.gain, grad.shape[-1]
        normed = self._normed.div_(deviation)
        product = torch.mul(normed, grad, out=self._scratch)
        if gradients.weights is not None:
            gradients.weights.gain.baddbmm_(self._shares.mT, product)
            gradients.weights.shift.add_(self._shares.mT @ grad)
        along = _compute_mean(product.mul_(gain))
        gradients.shares[self.rows] += along[..., 0].t() * width
        mean = (grad @ gain[:, 0].t()).t().unsqueeze(-1) / width
        grad_sum = torch.mul(grad, gain, out=self._scratch)
        return grad_sum.sub_(mean).sub_(normed.mul_(along)).mul_(self._shares / deviation)

    def _differentiate_layers(self, grads: _Weights | None) -> Tensor:
        """Gradient [V, rows, H] of ELU's result from that of the gate; adds those of both layers."""
        weights, grad_gate = self._weights, self._grad_gate
        if grads is not None:
            grads.gate.baddbmm_(self._hidden.mT, grad_gate)
            grads.gate_bias.add_(grad_gate.sum(1, keepdim=True))
        grad_hidden = torch.bmm(grad_gate, weights.gate.mT, out=self._normed)
        if self._keep is None or weights.second is None:
            return grad_hidden
        grad_hidden.mul_(self._keep)
        if grads is not None and grads.second is not None and grads.second_bias is not None:
            grads.second.baddbmm_(self._first.mT, grad_hidden)
            grads.second_bias.add_(grad_hidden.sum(1, keepdim=True))
        return torch.bmm(grad_hidden, weights.second.mT, out=self._second)


def _apply_elu_(values: Tensor, scratch: Tensor) -> Tensor:
    """ELU in place as max(x, 2^(min(x, 0) / ln 2) - 1): twice as fast as torch's, within 1e-7 of it."""
    falling = torch.clamp(values, max=0, out=scratch).mul_(1 / log(2)).exp2_().sub_(1)
    return torch.maximum(values, falling, out=values)


def _compute_mean(values: Tensor) -> Tensor:
    """[V, rows, 1] mean over the last axis of [V, rows, H]; as a product it is three times as fast on short rows."""
    width = values.shape[-1]
    return (values.view(-1, width) @ values.new_full((width, 1), 1 / width)).view(*values.shape[:2], 1)

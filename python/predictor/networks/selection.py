"""Variable selection (Lim et al. 2021, section 4.2): a weight for each variable, anew for each row."""

from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

from predictor.networks.gating import GatedResiduals, GatedRest


class VariableSelection(nn.Module):
    """Embeds each variable, passes each through its own gated residual network and sums them by weight.

    A variable of w columns is embedded by a linear map of them. All variables are computed at once, and each linear
    map of the embeddings is first multiplied with the embedding's own weights: the same algebra, without ever holding
    the embeddings. Shapes: N windows, T sessions, C columns, V variables, M columns of the widest, H width.

    Args:
        widths: Columns of each variable, in the order of the input's columns; at least one variable.
        width: H, of the embeddings and of the result; at least 2.
        dropout: Share of values dropped before gates while training.
        context: Whether static features have a say in the weights.
    """

    columns: Tensor

    def __init__(self, widths: tuple[int, ...], width: int, *, dropout: float, context: bool) -> None:
        super().__init__()
        count, widest = len(widths), max(widths)
        self.register_buffer("columns", _columns(widths), persistent=False)
        self.embedding = nn.Parameter(_embedding(widths, width))
        self.embedding_bias = nn.Parameter(torch.empty(count, 1, width).uniform_(-1, 1) / sqrt(widest))
        self.each = GatedResiduals(count, width, dropout=dropout)
        self.first = nn.Linear(count * width, width)
        self.skip = nn.Linear(count * width, count)
        self.rest = GatedRest(width, count, dropout=dropout, context=context)

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map columns [N, T, C] and a context [N, 1, H] to the selected [N, T, H] and the weights [N, T, V]."""
        padded = functional.pad(x, (0, 1))[..., self.columns]
        weights = self._weights(padded.flatten(-2), context)
        rows = padded.flatten(0, 1).transpose(0, 1)
        return self._sum(rows, weights.flatten(0, 1)).unflatten(0, x.shape[:2]), weights

    def _weights(self, x: Tensor, context: Tensor | None) -> Tensor:
        """[N, T, V] that sum to 1, from the columns [N, T, V * M] (equation 6)."""
        return self.rest(self._folded(x, self.first), self._folded(x, self.skip), context).softmax(dim=-1)

    def _folded(self, x: Tensor, layer: nn.Linear) -> Tensor:
        """What a linear layer makes of all embeddings, from the columns [..., V * M]."""
        count, _, width = self.embedding.shape
        weight = layer.weight.t().unflatten(0, (count, width))
        bias = layer.bias + (self.embedding_bias @ weight).sum((0, 1))
        return functional.linear(x, (self.embedding @ weight).flatten(0, 1).t(), bias)

    def _sum(self, x: Tensor, weights: Tensor) -> Tensor:
        """[R, H] from the columns [V, R, M] and the weights [R, V] (equations 7 and 8)."""
        each = self.each
        start = torch.baddbmm(each.first_bias, self.embedding_bias, each.first)
        first = torch.baddbmm(start, x, self.embedding @ each.first)
        embedded = torch.baddbmm(self.embedding_bias, x, self.embedding)
        normed = each.normed(first, embedded)
        return (each.scaled(normed) * weights.t().unsqueeze(-1)).sum(0)


def _columns(widths: tuple[int, ...]) -> Tensor:
    """[V, M] the columns of each variable; where it has fewer than M, the one after the last, which is empty."""
    columns = torch.full((len(widths), max(widths)), sum(widths))
    start = 0
    for variable, width in enumerate(widths):
        columns[variable, :width] = torch.arange(start, start + width)
        start += width
    return columns


def _embedding(widths: tuple[int, ...], width: int) -> Tensor:
    """[V, M, H] that start as `nn.Linear`; rows of columns that a variable does not have are 0 and stay so."""
    embedding = torch.zeros(len(widths), max(widths), width)
    for variable, columns in enumerate(widths):
        embedding[variable, :columns].uniform_(-1, 1).div_(sqrt(columns))
    return embedding

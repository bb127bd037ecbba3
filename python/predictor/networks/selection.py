"""Variable selection (Lim et al. 2021, section 4.2): a weight for each variable, anew for each row."""

from math import sqrt

import torch
from torch import Tensor, nn

from predictor.networks.gated_sum import GatedSumWeights, gated_sum
from predictor.networks.gating import GatedResiduals, GatedRest


class VariableSelection(nn.Module):
    """Embeds each variable, passes each through its own gated residual network and sums them by weight.

    A variable of w columns is embedded by a linear map of them. All variables are computed at once, and each layer
    that reads the embeddings is first multiplied with the embedding's own weights: the same algebra, without ever
    holding the embeddings. Shapes: N windows, T sessions, R = N * T rows, C columns, V variables, M columns of the
    widest, H width.

    Args:
        widths: Columns of each variable, in the order of the input's columns; at least one variable.
        width: H, of the embeddings and of the result; at least 2.
        dropout: Share of values dropped before gates while training.
        context: Whether static features have a say in the weights.
    """

    columns: Tensor
    fill: Tensor

    def __init__(self, widths: tuple[int, ...], width: int, *, dropout: float, context: bool) -> None:
        super().__init__()
        count = len(widths)
        self.register_buffer("columns", _columns(widths), persistent=False)
        self.register_buffer("fill", torch.tensor([[1.0, 0.0]]), persistent=False)
        self.embedding = nn.Parameter(_embedding(widths, width))
        """[V, M + 1, H] the weights of each column and, last, the bias."""
        bound = 1 / sqrt(count * width)
        self.joint = nn.Parameter(torch.empty(count, width, width + count).uniform_(-bound, bound))
        """[V, H, H + V] the two layers that read all embeddings: the first of the weights' network, and its skip."""
        self.joint_bias = nn.Parameter(torch.empty(width + count).uniform_(-bound, bound))
        self.rest = GatedRest(width, count, dropout=dropout, context=context)
        self.each = GatedResiduals(count, width, dropout=dropout)

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map columns [N, T, C] and a context [N, 1, H] to the selected [N, T, H] and the weights [N, T, V]."""
        variables = self._variables(x.flatten(0, 1))
        parts = (self.joint.shape[1], self.joint.shape[0])
        first, skip = self._joint(variables).unflatten(0, x.shape[:2]).split(parts, dim=-1)
        weights = self.rest(first, skip, context).softmax(dim=-1)
        return self._sum(variables, weights.flatten(0, 1)).unflatten(0, x.shape[:2]), weights

    def _variables(self, x: Tensor) -> Tensor:
        """[R, V, M + 1] the columns of each variable and a constant 1, from columns [R, C]."""
        count, columns = self.columns.shape
        filled = torch.cat([x, self.fill.expand(x.shape[0], -1)], dim=1)
        return filled.index_select(1, self.columns.flatten()).unflatten(1, (count, columns))

    def _joint(self, variables: Tensor) -> Tensor:
        """[R, H + V] what the layers make of all embeddings (equation 6)."""
        return torch.addmm(self.joint_bias, variables.flatten(1), torch.bmm(self.embedding, self.joint).flatten(0, 1))

    def _sum(self, variables: Tensor, weights: Tensor) -> Tensor:
        """[R, H] by weights [R, V] (equations 7 and 8)."""
        each, keep = self.each, None
        x = variables.transpose(0, 1).contiguous()
        if each.dropout.drops:
            keep = each.dropout.kept(torch.Size((*x.shape[:2], each.gain.shape[-1])), x.device)
        parameters = GatedSumWeights(
            embedding=self.embedding,
            first=torch.bmm(self.embedding, each.first),
            first_bias=each.first_bias,
            second=each.second,
            second_bias=each.second_bias,
            gate=each.gate if keep is None else each.gate * each.dropout.scale,
            gate_bias=each.gate_bias,
            gain=each.gain,
            shift=each.shift,
        )
        return gated_sum(x, weights, keep, parameters)


def _columns(widths: tuple[int, ...]) -> Tensor:
    """[V, M + 1] the place of each variable's columns; after them a constant 1, and the 0 that fills up the row."""
    one, zero = sum(widths), sum(widths) + 1
    columns = torch.full((len(widths), max(widths) + 1), zero)
    columns[:, -1] = one
    start = 0
    for variable, width in enumerate(widths):
        columns[variable, :width] = torch.arange(start, start + width)
        start += width
    return columns


def _embedding(widths: tuple[int, ...], width: int) -> Tensor:
    """[V, M + 1, H] that start as `nn.Linear`; rows of columns that a variable does not have are 0 and stay so."""
    embedding = torch.zeros(len(widths), max(widths) + 1, width)
    for variable, columns in enumerate(widths):
        embedding[variable, [*range(columns), -1]] = torch.empty(columns + 1, width).uniform_(-1, 1) / sqrt(columns)
    return embedding

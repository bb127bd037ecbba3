"""The Temporal Fusion Transformer (Lim et al. 2021, International Journal of Forecasting 37)."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from predictor.errors import ConfigurationError
from predictor.networks.gated_residuals import (
    NORM_EPSILON,
    GatedAddNorm,
    GatedResidual,
    GatedResiduals,
    GatedRest,
    GatedSumWeights,
    gated_sum,
)
from predictor.networks.inputs import ROW_ARITHMETIC, Inputs, InputSizes, row_width, session_rows
from predictor.networks.layers import (
    HIGHWAY_ARITHMETIC,
    MOST_HIDDEN,
    DropoutShare,
    HeadCount,
    HiddenSize,
    Highway,
    check_dropout,
    check_heads,
    check_whole,
    is_traced,
)
from predictor.networks.network_kind import Internals, NetworkKind, TrainingDefaults
from predictor.networks.output import HEAD_ARITHMETIC, QuantileHead
from predictor.networks.target import Target

ROWS: Final = 128
"""Windows forecast at once in eval mode: what is between layers then stays in a CPU's cache."""

TFT_ARITHMETIC: Mapping[str, str | float] = {
    "past_variables": ROW_ARITHMETIC,
    "future_variables": "known; their sum is 0 where there are none",
    "embedding": "linear, one for each variable of each group",
    "gate": "first half times sigmoid of the second",
    "activation": "elu, alpha 1",
    "lstm_gates": "input, forget, cell, output",
    "static_contexts": "selection, enrichment, initial state, initial cell; without static features none and 0",
    "attention": "value shared, heads averaged, each future session sees itself and all before it",
    "queries": "the sessions that horizons end on",
    "highway": HIGHWAY_ARITHMETIC,
    "norm": "layer norm, variance over n",
    "norm_epsilon": NORM_EPSILON,
    "head": HEAD_ARITHMETIC,
}
"""What the settings leave open and another implementation must know: orders, functions, epsilons."""


class InterpretableAttention(nn.Module):
    """Heads with queries and keys of their own and one shared value (section 4.4, equations 13 to 16).

    As the value is shared, the mean over the heads' results is the result of their mean attention: that one matrix
    of weights is all that moves values between sessions, and can be read.

    Args:
        width: Of queries, keys and the result.
        heads: A divisor of the width.
    """

    def __init__(self, width: int, *, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width // heads, bias=False)
        self.out = nn.Linear(width // heads, width, bias=False)

    def forward(self, queries: Tensor, sessions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from some sessions to all of them.

        Args:
            queries: [N, P, W] the sessions that ask.
            sessions: [N, S, W] those that may be looked at.
            mask: [P, S] added to the scores: 0 where a session may be looked at, minus infinity elsewhere.

        Returns:
            [N, P, W] the result and [N, P, S] the mean attention of the heads.
        """
        asked = self._split(self.query(queries) / sqrt(self.out.in_features))
        scores = asked @ self._split(self.key(sessions)).transpose(-1, -2)
        attention = (scores + mask).softmax(dim=-1).mean(dim=1)
        return self.out(attention @ self.value(sessions)), attention

    def _split(self, x: Tensor) -> Tensor:
        """[N, P, W] to [N, heads, P, W / heads]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class VariableSelection(nn.Module):
    """Embeds each variable, passes each through its own gated residual network and sums them by weight (section 4.2).

    A variable of w columns is embedded by a linear map of them. All variables are computed at once, and each layer
    that reads the embeddings is first multiplied with the embedding's own weights: the same algebra, without ever
    holding the embeddings. Shapes: N windows, T sessions, R = N * T rows, C columns, V variables, M columns of the
    widest, H width.

    Args:
        widths: Columns of each variable, in the order of the input's columns; at least one variable.
        width: H, of the embeddings and of the result; at least 2.
        dropout: Share of values dropped before gates while training.
        context: Whether static features influence the weights.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TFTConfig:
    """Sizes of the Temporal Fusion Transformer."""

    hidden: HiddenSize = 32
    """Width of every layer."""
    heads: HeadCount = 4
    """Heads of the attention; a divisor of the width."""
    dropout: DropoutShare = 0.1
    """Share of values dropped before each gate, in [0, 1), while training."""
    highway: bool = True
    """Whether a gated linear map of the observed features is added to the forecast. False: the paper's network."""

    def __post_init__(self) -> None:
        check_whole("hidden", self.hidden, MOST_HIDDEN, least=2)  # a layer norm of one value is constant
        check_heads(self.heads, self.hidden)
        check_dropout(self.dropout)


class StaticContexts(NamedTuple):
    """What static features give to the rest of the network."""

    selection: Tensor
    """[N, 1, W] for the selection of variables (c_s)."""
    enrichment: Tensor
    """[N, 1, W] for the enrichment of every session (c_e)."""
    start: tuple[Tensor, Tensor]
    """The LSTM's initial state and cell (c_h, c_c), each [1, N, W]."""


class StaticEncoder(nn.Module):
    """Static covariate encoders (section 4.3): a selection of the static variables, then four networks on it.

    Args:
        widths: Columns of each static variable.
        width: W, of the contexts.
        dropout: Share of values dropped before gates while training.
    """

    def __init__(self, widths: tuple[int, ...], width: int, *, dropout: float) -> None:
        super().__init__()
        self.selection = VariableSelection(widths, width, dropout=dropout, context=False)
        self.contexts = GatedResiduals(len(StaticContexts._fields) + 1, width, dropout=dropout)

    def forward(self, static: Tensor) -> tuple[StaticContexts, Tensor]:
        """The contexts and the selection weights [N, V] of static columns [N, C]."""
        selected, weights = self.selection(static.unsqueeze(1))
        contexts = self.contexts(selected.transpose(0, 1).expand(self.contexts.count, -1, -1))
        selection, enrichment, state, cell = contexts.unsqueeze(-2).unbind(0)
        start = (state.transpose(0, 1).contiguous(), cell.transpose(0, 1).contiguous())
        return StaticContexts(selection, enrichment, start), weights[:, 0]


class TFTForecaster(nn.Module):
    """Temporal Fusion Transformer over observed, known and static features; direct forecasts of all horizons.

    A session's variables are selected by weights (equations 6 to 8), past and future sessions are read by an LSTM
    each, static features set the LSTM's start, the selection and an enrichment of every session (equation 18), and
    each session that a horizon ends on attends to all sessions up to itself (equation 19). Other future
    sessions attend to nothing, as nothing reads what they would learn.

    Any group but the observed may be missing. Without static features, selection and enrichment have no context and
    the LSTM starts at 0. Without known features the future's selected input is 0, the sum over no variables, so that
    the decoder goes on from the encoder's last state alone.

    With `highway`, a gated linear map of all observed cells is added to each horizon's quantiles: the autoregressive
    part of LSTNet (Lai et al. 2018), here of all features; it starts at 0.
    """

    mask: Tensor
    ends: Tensor

    def __init__(self, config: TFTConfig, *, sizes: InputSizes, target: Target, levels: tuple[float, ...]) -> None:
        super().__init__()
        width, dropout, has_static = config.hidden, config.dropout, sizes.static > 0
        past = (1,) * row_width(sizes)
        self.encoder_length = sizes.encoder_length
        ends = [sizes.encoder_length - 1 + target.lag + h for h in target.horizons]
        self.static = StaticEncoder(_static_widths(sizes), width, dropout=dropout) if has_static else None
        self.past = VariableSelection(past, width, dropout=dropout, context=has_static)
        self.future = (
            VariableSelection((1,) * sizes.known, width, dropout=dropout, context=has_static) if sizes.known else None
        )
        self.encoder = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.LSTM(width, width, batch_first=True)
        self.local = GatedAddNorm(width, width, dropout=dropout)
        self.enrichment = GatedResidual(width, dropout=dropout, context=has_static)
        self.attention = InterpretableAttention(width, heads=config.heads)
        self.attended = GatedAddNorm(width, width, dropout=dropout)
        self.feed_forward = GatedResidual(width, dropout=dropout)
        self.last = GatedAddNorm(width, width, dropout=0.0)
        self.head = QuantileHead(width, horizons=len(ends), levels=levels)
        self.highway = Highway(sizes, width, horizons=len(ends)) if config.highway else None
        sessions = sizes.encoder_length + sizes.future_length
        self.register_buffer("mask", _causal_mask(ends, sessions), persistent=False)
        self.register_buffer("ends", torch.tensor(ends), persistent=False)

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float32 in units of the window's own volatility."""
        rows = inputs.observed.shape[0]  # not len(), which an exporter takes for a constant
        if self.training or is_traced() or rows <= ROWS:
            return self.with_internals(inputs)[0]
        return torch.cat([self.with_internals(inputs.rows(k, k + ROWS))[0] for k in range(0, rows, ROWS)])

    def with_internals(self, inputs: Inputs) -> tuple[Tensor, Internals]:
        """The quantiles [N, H, Q], with the weights that the network gave to variables and sessions."""
        contexts, static_weights = self._static(inputs.static)
        past, past_weights, future, future_weights = self._selected(inputs, contexts)
        local = self._local(past, future, contexts)
        decoded, attention = self._fused(local, contexts)
        quantiles = self.head(decoded)
        if self.highway is not None:
            quantiles = quantiles + self.highway(inputs, decoded)
        return quantiles, Internals(past_weights, future_weights, static_weights, attention)

    def _static(self, static: Tensor) -> tuple[StaticContexts | None, Tensor]:
        """The contexts, if there are static features, and their selection weights [N, V]."""
        return (None, static) if self.static is None else self.static(static)

    def _selected(self, inputs: Inputs, contexts: StaticContexts | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Selected past [N, T, W] and its weights, selected future [N, D, W] and its weights."""
        context = None if contexts is None else contexts.selection
        ahead = inputs.known[:, self.encoder_length :]
        past, past_weights = self.past(session_rows(inputs), context)
        if self.future is None:
            return past, past_weights, past.new_zeros(*ahead.shape[:2], past.shape[-1]), ahead
        return past, past_weights, *self.future(ahead, context)

    def _local(self, past: Tensor, future: Tensor, contexts: StaticContexts | None) -> Tensor:
        """[N, T + D, W] the LSTMs' reading of all sessions (section 4.5.1, equation 17)."""
        states, last = self.encoder(past) if contexts is None else self.encoder(past, contexts.start)
        ahead, _ = self.decoder(future, last)
        return self.local(torch.cat([states, ahead], dim=1), torch.cat([past, future], dim=1))

    def _fused(self, local: Tensor, contexts: StaticContexts | None) -> tuple[Tensor, Tensor]:
        """[N, H, W] for the head and the attention [N, H, T + D] (equations 18 to 22)."""
        enriched = self.enrichment(local, None if contexts is None else contexts.enrichment)
        queries = enriched.index_select(1, self.ends)
        attended, attention = self.attention(queries, enriched, self.mask)
        decoded = self.feed_forward(self.attended(attended, queries))
        return self.last(decoded, local.index_select(1, self.ends)), attention


def _static_widths(sizes: InputSizes) -> tuple[int, ...]:
    """Columns of each static variable.

    Raises:
        ConfigurationError: the variables' columns are not as many as there are.
    """
    widths = sizes.static_widths or (1,) * sizes.static
    if sum(widths) != sizes.static or min(widths) < 1:
        raise ConfigurationError(
            f"static_widths is {list(widths)}, but must be at least 1 each and sum to {sizes.static} static columns"
        )
    return widths


def _causal_mask(ends: list[int], sessions: int) -> Tensor:
    """[H, sessions] 0 up to the session that each horizon ends on, minus infinity after it."""
    after = torch.arange(sessions) > torch.tensor(ends).unsqueeze(-1)
    return torch.zeros(len(ends), sessions).masked_fill(after, float("-inf"))


TFT: Final = NetworkKind(
    "tft",
    1,
    TFTConfig,
    TFTForecaster,
    TFT_ARITHMETIC,
    training=TrainingDefaults(learning_rate=5e-3, weight_decay=0.01, schedule="cosine", max_epochs=4),
)

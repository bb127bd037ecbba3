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
    compute_gated_sum,
)
from predictor.networks.inputs import ROW_ARITHMETIC, Inputs, InputSizes, compute_row_width, make_session_rows
from predictor.networks.layers import (
    HIGHWAY_ARITHMETIC,
    MAX_HIDDEN,
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
"""Windows per batch in eval mode: intermediate results then stay in a CPU's cache."""

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
"""Conventions that another implementation needs besides the settings: orders, functions, epsilons."""


class InterpretableAttention(nn.Module):
    """Attention heads with separate queries and keys and a shared value (section 4.4, equations 13 to 16).

    Because the value is shared, the mean of the heads' results is the result of their mean attention. This one matrix
    of weights moves all values between sessions and can be interpreted.

    Args:
        width: Width of queries, keys and the result.
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
        """Attend from some sessions to all sessions.

        Args:
            queries: [N, P, W] attending sessions.
            sessions: [N, S, W] attended sessions.
            mask: [P, S] added to the scores: 0 if a session may be attended to, otherwise minus infinity.

        Returns:
            [N, P, W] the result and [N, P, S] the mean attention of the heads.
        """
        query = self._split(self.query(queries) / sqrt(self.out.in_features))
        scores = query @ self._split(self.key(sessions)).transpose(-1, -2)
        attention = (scores + mask).softmax(dim=-1).mean(dim=1)
        return self.out(attention @ self.value(sessions)), attention

    def _split(self, x: Tensor) -> Tensor:
        """[N, P, W] to [N, heads, P, W / heads]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class VariableSelection(nn.Module):
    """Embeds each variable, passes it through its own gated residual network and returns a weighted sum (section 4.2).

    A linear map of its columns embeds a variable. All variables are computed at once. Each layer that reads the
    embeddings is first multiplied by the embedding's weights, which avoids storing the embeddings. Shapes: N windows, T
    sessions, R = N * T rows, C columns, V variables, M columns of the widest, H width.

    Args:
        widths: Columns of each variable, in the order of the input's columns; at least one variable.
        width: H, width of the embeddings and of the result; at least 2.
        dropout: Share of values dropped before gates during training.
        context: Whether static features influence the weights.
    """

    columns: Tensor
    fill: Tensor

    def __init__(self, widths: tuple[int, ...], width: int, *, dropout: float, context: bool) -> None:
        super().__init__()
        count = len(widths)
        self.register_buffer("columns", _index_columns(widths), persistent=False)
        self.register_buffer("fill", torch.tensor([[1.0, 0.0]]), persistent=False)
        embedding = torch.zeros(count, max(widths) + 1, width)  # rows of missing columns are 0 and stay 0
        for variable, columns in enumerate(widths):
            embedding[variable, [*range(columns), -1]] = torch.empty(columns + 1, width).uniform_(-1, 1) / sqrt(columns)
        self.embedding = nn.Parameter(embedding)
        """[V, M + 1, H] weights of each column and, last, the bias."""
        bound = 1 / sqrt(count * width)
        self.joint = nn.Parameter(torch.empty(count, width, width + count).uniform_(-bound, bound))
        """[V, H, H + V] the two layers that read all embeddings: the weights' network's first layer and skip."""
        self.joint_bias = nn.Parameter(torch.empty(width + count).uniform_(-bound, bound))
        self.rest = GatedRest(width, count, dropout=dropout, context=context)
        self.each = GatedResiduals(count, width, dropout=dropout)

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map columns [N, T, C] and a context [N, 1, H] to the selected [N, T, H] and the weights [N, T, V]."""
        variables = self._gather_variables(x.flatten(0, 1))
        parts = (self.joint.shape[1], self.joint.shape[0])
        # the layers that read all embeddings (equation 6)
        joint = torch.bmm(self.embedding, self.joint).flatten(0, 1)
        hidden = torch.addmm(self.joint_bias, variables.flatten(1), joint)
        first, skip = hidden.unflatten(0, x.shape[:2]).split(parts, dim=-1)
        weights = self.rest(first, skip, context).softmax(dim=-1)
        return self._sum(variables, weights.flatten(0, 1)).unflatten(0, x.shape[:2]), weights

    def _gather_variables(self, x: Tensor) -> Tensor:
        """[R, V, M + 1] columns of each variable and a constant 1, from columns [R, C]."""
        count, columns = self.columns.shape
        filled = torch.cat([x, self.fill.expand(x.shape[0], -1)], dim=1)
        return filled.index_select(1, self.columns.flatten()).unflatten(1, (count, columns))

    def _sum(self, variables: Tensor, weights: Tensor) -> Tensor:
        """[R, H] weighted sum by weights [R, V] (equations 7 and 8)."""
        residuals, keep = self.each, None
        x = variables.transpose(0, 1).contiguous()
        if residuals.dropout.has_dropout:
            keep = residuals.dropout.kept(torch.Size((*x.shape[:2], residuals.gain.shape[-1])), x.device)
        parameters = GatedSumWeights(
            embedding=self.embedding,
            first=torch.bmm(self.embedding, residuals.first),
            first_bias=residuals.first_bias,
            second=residuals.second,
            second_bias=residuals.second_bias,
            gate=residuals.gate if keep is None else residuals.gate * residuals.dropout.scale,
            gate_bias=residuals.gate_bias,
            gain=residuals.gain,
            shift=residuals.shift,
        )
        return compute_gated_sum(x, weights, keep, parameters)


def _index_columns(widths: tuple[int, ...]) -> Tensor:
    """[V, M + 1] indices of each variable's columns, with padding and a final constant 1."""
    constant, zero = sum(widths), sum(widths) + 1
    columns = torch.full((len(widths), max(widths) + 1), zero)
    columns[:, -1] = constant
    start = 0
    for variable, width in enumerate(widths):
        columns[variable, :width] = torch.arange(start, start + width)
        start += width
    return columns


@dataclass(frozen=True, slots=True, kw_only=True)
class TFTConfig:
    """Sizes of the Temporal Fusion Transformer."""

    hidden: HiddenSize = 32
    """Width of every layer."""
    heads: HeadCount = 4
    """Heads of the attention; a divisor of the width."""
    dropout: DropoutShare = 0.1
    """Share of values dropped before each gate during training, in [0, 1)."""
    highway: bool = True
    """Whether to add a gated linear map of the observed features to the forecast. False: the paper's network."""

    def __post_init__(self) -> None:
        check_whole("hidden", self.hidden, MAX_HIDDEN, min_value=2)  # a layer norm of one value is constant
        check_heads(self.heads, self.hidden)
        check_dropout(self.dropout)


class StaticContexts(NamedTuple):
    """Contexts from static features for the rest of the network."""

    selection: Tensor
    """[N, 1, W] context of the variable selection (c_s)."""
    enrichment: Tensor
    """[N, 1, W] context of the enrichment of sessions (c_e)."""
    start: tuple[Tensor, Tensor]
    """The LSTM's initial state and cell (c_h, c_c), each [1, N, W]."""


class StaticEncoder(nn.Module):
    """Static covariate encoders (section 4.3): a selection of the static variables, then four networks.

    Args:
        widths: Columns of each static variable.
        width: W, width of the contexts.
        dropout: Share of values dropped before gates during training.
    """

    def __init__(self, widths: tuple[int, ...], width: int, *, dropout: float) -> None:
        super().__init__()
        self.selection = VariableSelection(widths, width, dropout=dropout, context=False)
        self.contexts = GatedResiduals(len(StaticContexts._fields) + 1, width, dropout=dropout)

    def forward(self, static: Tensor) -> tuple[StaticContexts, Tensor]:
        """Contexts and selection weights [N, V] of static columns [N, C]."""
        selected, weights = self.selection(static.unsqueeze(1))
        contexts = self.contexts(selected.transpose(0, 1).expand(self.contexts.count, -1, -1))
        selection, enrichment, state, cell = contexts.unsqueeze(-2).unbind(0)
        start = (state.transpose(0, 1).contiguous(), cell.transpose(0, 1).contiguous())
        return StaticContexts(selection, enrichment, start), weights[:, 0]


class TFTForecaster(nn.Module):
    """Temporal Fusion Transformer over observed, known and static features; direct forecasts of all horizons.

    Weights select the variables of each session (equations 6 to 8). One LSTM reads the past sessions and another the
    future ones. Static features set the LSTM's initial state, the selection and an enrichment of every session
    (equation 18). The last session of each horizon attends to all sessions up to itself (equation 19). Other future
    sessions do not attend, because nothing would read the result.

    All groups except the observed features are optional. Without static features, selection and enrichment have no
    context and the LSTM starts at 0. Without known features, the selected future input is 0, so the decoder continues
    from the encoder's last state.

    With `highway`, a gated linear map of all observed cells is added to each horizon's quantiles: the autoregressive
    part of LSTNet (Lai et al. 2018), here of all features. It starts at 0.
    """

    mask: Tensor
    ends: Tensor

    def __init__(self, config: TFTConfig, *, sizes: InputSizes, target: Target, levels: tuple[float, ...]) -> None:
        super().__init__()
        width, dropout, has_static = config.hidden, config.dropout, sizes.static > 0
        past = (1,) * compute_row_width(sizes)
        self.encoder_length = sizes.encoder_length
        ends = [sizes.encoder_length - 1 + target.lag + h for h in target.horizons]
        widths = sizes.static_widths or (1,) * sizes.static
        if has_static and (sum(widths) != sizes.static or min(widths) < 1):
            raise ConfigurationError(
                f"static_widths is {list(widths)}, but must be at least 1 each and sum to {sizes.static} static columns"
            )
        self.static = StaticEncoder(widths, width, dropout=dropout) if has_static else None
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
        after = torch.arange(sessions) > torch.tensor(ends).unsqueeze(-1)
        mask = torch.zeros(len(ends), sessions).masked_fill(after, float("-inf"))
        self.register_buffer("mask", mask, persistent=False)
        self.register_buffer("ends", torch.tensor(ends), persistent=False)

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float32 in units of the window's own volatility."""
        rows = inputs.observed.shape[0]  # not len(), which an exporter treats as a constant
        if self.training or is_traced() or rows <= ROWS:
            return self.with_internals(inputs)[0]
        return torch.cat([self.with_internals(inputs.rows(k, k + ROWS))[0] for k in range(0, rows, ROWS)])

    def with_internals(self, inputs: Inputs) -> tuple[Tensor, Internals]:
        """Quantiles [N, H, Q], and the weights of variables and sessions."""
        contexts, static_weights = (None, inputs.static) if self.static is None else self.static(inputs.static)
        past, past_weights, future, future_weights = self._select_variables(inputs, contexts)
        # the LSTMs read all sessions (section 4.5.1, equation 17)
        states, last = self.encoder(past) if contexts is None else self.encoder(past, contexts.start)
        ahead, _ = self.decoder(future, last)
        local = self.local(torch.cat([states, ahead], dim=1), torch.cat([past, future], dim=1))
        # the last sessions of the horizons attend to all sessions (equations 18 to 22)
        enriched = self.enrichment(local, None if contexts is None else contexts.enrichment)
        queries = enriched.index_select(1, self.ends)
        attended, attention = self.attention(queries, enriched, self.mask)
        decoded = self.last(self.feed_forward(self.attended(attended, queries)), local.index_select(1, self.ends))
        quantiles = self.head(decoded)
        if self.highway is not None:
            quantiles = quantiles + self.highway(inputs, decoded)
        return quantiles, Internals(past_weights, future_weights, static_weights, attention)

    def _select_variables(
        self, inputs: Inputs, contexts: StaticContexts | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Selected past [N, T, W] and its weights, selected future [N, D, W] and its weights."""
        context = None if contexts is None else contexts.selection
        ahead = inputs.known[:, self.encoder_length :]
        past, past_weights = self.past(make_session_rows(inputs), context)
        if self.future is None:
            return past, past_weights, past.new_zeros(*ahead.shape[:2], past.shape[-1]), ahead
        return past, past_weights, *self.future(ahead, context)


TFT: Final = NetworkKind(
    "tft",
    1,
    TFTConfig,
    TFTForecaster,
    TFT_ARITHMETIC,
    training=TrainingDefaults(learning_rate=5e-3, weight_decay=0.01, schedule="cosine", max_epochs=4),
)

"""The Temporal Fusion Transformer (Lim et al. 2021, International Journal of Forecasting 37)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from predictor.errors import ConfigurationError
from predictor.networks.attention import InterpretableAttention
from predictor.networks.gating import NORM_EPSILON, GatedAddNorm, GatedResidual, GatedResiduals
from predictor.networks.highway import HIGHWAY_ARITHMETIC, Highway
from predictor.networks.inputs import Inputs, InputSizes
from predictor.networks.quantiles import HEAD_ARITHMETIC, QuantileHead
from predictor.networks.rows import ROW_ARITHMETIC, row_width, session_rows
from predictor.networks.selection import VariableSelection
from predictor.networks.settings import MOST_HIDDEN, Dropout, Heads, Hidden, check_dropout, check_heads, check_whole
from predictor.networks.target import Target
from predictor.networks.tracing import is_traced

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TFTConfig:
    """Sizes of the Temporal Fusion Transformer."""

    hidden: Hidden = 32
    """Width of every layer."""
    heads: Heads = 4
    """Of the attention; they divide the width."""
    dropout: Dropout = 0.1
    """Share of values dropped before each gate, in [0, 1), while training."""
    highway: bool = True
    """Whether a gated linear map of the observed features is added to the forecast. False: the paper's network."""

    def __post_init__(self) -> None:
        check_whole("hidden", self.hidden, MOST_HIDDEN, least=2)  # a layer norm of one value is constant
        check_heads(self.heads, self.hidden)
        check_dropout(self.dropout)


class Internals(NamedTuple):
    """What the network says of itself. Weights along the last axis sum to 1.

    They tell what the network turned to, not what moved the forecast. Legend: N rows, T encoder sessions, D future
    sessions, H horizons, F observed, K known features, V static variables.
    """

    past: Tensor
    """[N, T, F + K + 1] selection weights of the observed features, the known features, the share of known cells."""
    future: Tensor
    """[N, D, K] selection weights of the known features."""
    static: Tensor
    """[N, V] selection weights of the static variables."""
    attention: Tensor
    """[N, H, T + D] what the session that a horizon ends on attends to, mean of the heads."""


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
    each session that a horizon ends on attends to all sessions up to itself (equation 19). Other sessions of the
    future ask nothing, as nothing reads what they would learn.

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
        """The same quantiles, with the weights that the network gave to variables and sessions."""
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
        asking = enriched.index_select(1, self.ends)
        found, attention = self.attention(asking, enriched, self.mask)
        decoded = self.feed_forward(self.attended(found, asking))
        return self.last(decoded, local.index_select(1, self.ends)), attention


def _static_widths(sizes: InputSizes) -> tuple[int, ...]:
    """Columns of each static variable.

    Raises:
        ConfigurationError: the variables have not as many columns as there are.
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

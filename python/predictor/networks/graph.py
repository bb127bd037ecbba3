"""The graph forecaster: a shared encoder of stocks, and attention over a graph of stocks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from predictor.errors import ConfigurationError
from predictor.networks.inputs import ROW_ARITHMETIC, Edges, Inputs, InputSizes, compute_row_width, make_session_rows
from predictor.networks.layers import (
    CONTEXT_ARITHMETIC,
    MAX_HIDDEN,
    NORM_EPSILON,
    DropoutShare,
    HeadCount,
    HiddenSize,
    HorizonContext,
    NeighbourCount,
    check_dropout,
    check_heads,
    check_whole,
)
from predictor.networks.network_kind import NetworkKind, TrainingDefaults
from predictor.networks.output import HEAD_ARITHMETIC, PanelOutput, QuantileHead
from predictor.networks.target import Target

RAMP: Final = 0.5
"""A frequency is removed completely if its power is at least 1 + RAMP times that of the strongest remaining one."""
TINY: Final = 1e-12
FLAT: Final = 1e-9
"""Share of the strongest power below which others are rounding errors, such as those of a constant column."""

FAN_ARITHMETIC: Final = (
    "real DFT of each window and column, unknown cells at the mean of the known ones; a frequency leaves by "
    f"clamp((power / (power of rank K + 1, plus {TINY:g}, plus {FLAT:g} of the largest power) - 1) / {RAMP:g}, 0, 1)"
)

MAX_NEIGHBOURS: Final = 256
MAX_FREQUENCIES: Final = 64
MAX_PATCH: Final = 64

NO_NEIGHBOUR_LOGIT: Final = -1e9
"""Logit of a missing neighbour; finite, so that a row without neighbours attends to nothing instead of NaN."""

GRAPH_ARITHMETIC: Mapping[str, str | float] = {
    "normalisation": FAN_ARITHMETIC,
    "row": f"{ROW_ARITHMETIC}; observed after normalisation",
    "patch": "rows of so many sessions after each other, oldest first; zeros before the window's first",
    "gates": "reset, update, new; the reset gate multiplies the state after its linear map",
    "state": "last state of the GRU plus elu of a linear map of what the normalisation took out",
    "attention": "over the row's neighbours; logit = query * key / sqrt(width of a head) + slope * weight; value = "
    "linear map of state and the last session's observed, less the row's own value; 0 without neighbours",
    "residual": "layer norm of state + a * sigmoid(b), a and b from the attended values",
    "level": "linear map of the window + linear map of the attended values, added to all quantiles of a horizon",
    "absent": "rows whose last session is wholly unknown; nobody attends to them",
    **CONTEXT_ARITHMETIC,
    "head": HEAD_ARITHMETIC,
}
"""Conventions that another implementation needs besides the settings: orders, functions, epsilons."""


class SplitWindow(NamedTuple):
    """Two parts of a window, which add up to it where it is known. Shapes as observed: [N, T, F]."""

    rest: Tensor
    """0 where unknown."""
    dominant: Tensor
    """The strongest frequencies; defined in unknown cells, too."""


class FrequencyAdaptiveNorm(nn.Module):
    """Splits windows into their strongest frequencies and the rest. Legend: N rows, T sessions, F columns.

    Ye et al., "Frequency Adaptive Normalization For Non-stationary Time Series Forecasting" (NeurIPS 2024). A mean and
    a standard deviation describe only the slowest change of a window; its strongest Fourier components describe trends
    and seasons. Each window and column is split separately, so nothing is fitted and no window affects another. A
    separate layer learns what the removed part means for the future.

    The paper removes the K strongest frequencies completely, so the output jumps where two frequencies are equally
    strong. Here the removed share of a frequency grows with its power relative to the strongest remaining one, and
    reaches 1 at 1.5 times that power. The output is therefore continuous in the input.

    The transform is two matrix products: as fast as an FFT at these lengths, and every exporter supports it.
    """

    analysis: Tensor
    synthesis: Tensor

    def __init__(self, length: int, *, frequencies: int) -> None:
        """Prepare the transform.

        Args:
            length: T.
            frequencies: maximum number of removed frequencies (K), including the mean.

        Raises:
            ConfigurationError: a window of this length does not have more frequencies than K.
        """
        super().__init__()
        self.bins: Final = length // 2 + 1
        if not 1 <= frequencies < self.bins:
            raise ConfigurationError(
                f"cannot remove {frequencies} frequencies from windows of {length} sessions, which have "
                f"{self.bins}; choose 1 to {self.bins - 1}"
            )
        self.frequencies: Final = frequencies
        angle = 2 * torch.pi / length * torch.outer(torch.arange(length), torch.arange(self.bins)).double()
        waves = torch.cat([angle.cos(), angle.sin()], dim=1)
        share = torch.full((self.bins,), 2.0 / length, dtype=torch.float64)
        share[0] = 1 / length
        if length % 2 == 0:
            share[-1] = 1 / length
        self.register_buffer("analysis", waves.float(), persistent=False)
        self.register_buffer("synthesis", (waves * share.repeat(2)).T.float().contiguous(), persistent=False)

    def forward(self, observed: Tensor, mask: Tensor) -> SplitWindow:
        """Split windows [N, T, F]; `mask` bool [N, T, F] is True where a cell is known."""
        known = mask.to(observed.dtype)
        mean = (observed * known).sum(1, keepdim=True) / known.sum(1, keepdim=True).clamp(min=1)
        filled = torch.where(mask, observed, mean).transpose(1, 2)
        waves = filled @ self.analysis
        power = waves[..., : self.bins].square() + waves[..., self.bins :].square()
        strongest = power.topk(self.frequencies + 1, dim=-1).values
        stays = strongest[..., -1:] + TINY + FLAT * strongest[..., :1]
        leaves = ((power / stays - 1) / RAMP).clamp(0, 1)
        dominant = ((waves * leaves.repeat(1, 1, 2)) @ self.synthesis).transpose(1, 2)
        return SplitWindow(rest=(observed - dominant) * known, dominant=dominant)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphConfig:
    """Sizes of the graph forecaster."""

    hidden: HiddenSize = 32
    """Width of a stock's state, of attention and of the layer before the heads."""
    heads: HeadCount = 4
    """Heads of attention; a divisor of `hidden`."""
    neighbours: NeighbourCount = 10
    """Maximum number of stocks that each stock attends to (k); edges may have fewer. 0 for no graph."""
    patch: int = 6
    """Sessions per step of the recurrent encoder; 1 is the finest and slowest."""
    frequencies: int = 4
    """Maximum number of frequencies that the normalisation removes from each window; 0 for none."""
    dropout: DropoutShare = 0.1
    """Share of values dropped from the attended values and before the heads during training, in [0, 1)."""

    def __post_init__(self) -> None:
        check_whole("hidden", self.hidden, MAX_HIDDEN)
        check_whole("patch", self.patch, MAX_PATCH)
        check_heads(self.heads, self.hidden)
        check_dropout(self.dropout)
        check_whole("neighbours", self.neighbours, MAX_NEIGHBOURS, min_value=0)
        check_whole("frequencies", self.frequencies, MAX_FREQUENCIES, min_value=0)


class GraphForecaster(nn.Module):
    """Forecasts a panel of stocks, each from its own window and those of its neighbours in a graph.

    Shared weights encode every stock. FAN splits its strongest frequencies from the rest; a GRU (Cho et al. 2014) reads
    the rest in patches of sessions (Nie et al. 2023, "PatchTST"), and a linear layer the removed part. One layer of
    graph attention (Veličković et al. 2018, with the dot products of Vaswani et al. 2017) reads the neighbours, so a
    forecast depends on the stock and its k neighbours only. A parallel linear path from the window to the horizons
    (Zeng et al. 2023, "DLinear") represents simple functions such as HAR's averages (Corsi 2009).

    Legend: N rows, S rows per panel, U stocks of the universe, k neighbours, T sessions, F observed features, W width,
    H horizons, Q quantiles.
    """

    neighbours: Tensor
    weights: Tensor

    def __init__(self, config: GraphConfig, *, sizes: InputSizes, target: Target, levels: tuple[float, ...]) -> None:
        super().__init__()
        width, horizons, window = config.hidden, len(target.horizons), sizes.encoder_length * sizes.observed
        self.fan = self.dominant = None
        if config.frequencies:
            self.fan = FrequencyAdaptiveNorm(sizes.encoder_length, frequencies=config.frequencies)
            self.dominant = nn.Linear(window, width)
        self.patch: Final = config.patch
        self.gru = nn.GRU(config.patch * compute_row_width(sizes), width, batch_first=True)
        self.attention = NeighbourAttention(width, heads=config.heads, values=width + sizes.observed)
        self.gate = nn.Linear(width, 2 * width)
        self.dropout = nn.Dropout(config.dropout)
        self.norm = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.context = HorizonContext(width, sizes=sizes, target=target, dropout=config.dropout)
        self.level = _make_zero_linear(window, horizons)
        self.level_around = _make_zero_linear(width, horizons)
        self.head = QuantileHead(width, horizons=horizons, levels=levels)
        self.score = nn.Linear(width, 1)
        self.score_level = nn.Linear(horizons, horizons)
        self.register_buffer("neighbours", torch.full((sizes.nodes, config.neighbours), -1))
        self.register_buffer("weights", torch.zeros(sizes.nodes, config.neighbours))

    @torch.no_grad()
    def connect(self, edges: Edges) -> None:
        """Set the edges of the graph; they are saved with the weights.

        Raises:
            ConfigurationError: the edges are for another number of stocks, or have more neighbours than the network.
        """
        nodes, count = edges.neighbours.shape
        have = list(self.neighbours.shape)
        if nodes != have[0] or count > have[1]:
            raise ConfigurationError(f"edges are for [stocks, neighbours] {[nodes, count]}, but the network has {have}")
        self.neighbours.fill_(-1)
        self.weights.fill_(0)
        self.neighbours[:, :count] = edges.neighbours
        self.weights[:, :count] = edges.weights

    @property
    def has_equal_scores(self) -> bool:
        """Whether every stock has the same score."""
        return not any(bool(tensor.any()) for layer in (self.score, self.score_level) for tensor in layer.parameters())

    @torch.no_grad()
    def equalize_scores(self) -> None:
        """Give every stock the same score, because the scores of an untrained network mean nothing."""
        for layer in (self.score, self.score_level):
            layer.weight.zero_()
            layer.bias.zero_()

    def forward(self, inputs: Inputs, nodes: Tensor, panels: int = 1) -> PanelOutput:
        """Quantiles in units of the window's scale, and scores within each panel.

        Args:
            inputs: N = panels * S rows, panel by panel. A row whose last session is completely unknown is absent: no
                other row attends to it, and its forecast has no meaning.
            nodes: int64 [N] index of each row in the universe, at most once per panel; -1 = unknown, no neighbours.
            panels: number of panels.
        """
        window = inputs.observed.flatten(1)
        state = self._state(inputs)
        neighbours, weights = self._find_neighbour_rows(inputs, nodes, panels)
        source = torch.cat([state, inputs.observed[:, -1]], dim=-1)
        attended = self.dropout(self.attention(state, source, neighbours, weights))
        context = self.context(self.norm(state + functional.glu(self.gate(attended), dim=-1)), inputs)
        level = self.level(window) + self.level_around(attended)
        return PanelOutput(
            quantiles=self.head(context) + level.unsqueeze(-1),
            scores=self.score(context).squeeze(-1) + self.score_level(level),
        )

    def _state(self, inputs: Inputs) -> Tensor:
        """[N, W] state of each stock, without its neighbours."""
        if self.fan is None or self.dominant is None:
            return self._encode(inputs)
        split = self.fan(inputs.observed, inputs.mask)
        state = self._encode(inputs._replace(observed=split.rest))
        return state + functional.elu(self.dominant(split.dominant.flatten(1)))

    def _encode(self, inputs: Inputs) -> Tensor:
        """[N, W] last state of the recurrent encoder over patches of sessions; the first is padded with zeros."""
        rows = make_session_rows(inputs)
        missing = -rows.shape[1] % self.patch
        patches = functional.pad(rows, (0, 0, missing, 0)).unflatten(1, (-1, self.patch)).flatten(2)
        return self.gru(patches)[0][:, -1]

    def _find_neighbour_rows(self, inputs: Inputs, nodes: Tensor, panels: int) -> tuple[Tensor, Tensor]:
        """The rows of each row's neighbours, int64 [N, k], -1 if missing or absent; and their weights.

        A weight is meaningful only if its neighbour's row is not -1.
        """
        rows, universe = nodes.shape[0], self.neighbours.shape[0]
        row = torch.arange(rows, device=nodes.device)
        panel = row // (rows // panels)
        present = inputs.mask[:, -1].any(-1)
        # Unknown and absent rows share an extra slot, which no neighbour has.
        first = panel * (universe + 1)
        slot = first + torch.where(present & (nodes >= 0), nodes, universe)
        row_of_slot = torch.full((panels * (universe + 1),), -1, device=nodes.device).scatter(0, slot, row)
        known_nodes = nodes.clamp(min=0)
        neighbour_nodes = torch.where((nodes >= 0)[:, None], self.neighbours[known_nodes], -1)
        rows = row_of_slot[first[:, None] + neighbour_nodes.clamp(min=0)]
        return torch.where(neighbour_nodes >= 0, rows, -1), self.weights[known_nodes]


class NeighbourAttention(nn.Module):
    """Multi-head attention of each row over its neighbours.

    The values are differences from the row's own values. So what is the same for all stocks, such as the market's level
    or the weekday, enters a forecast only through the row itself: there are few days to learn it from.
    """

    def __init__(self, width: int, *, heads: int, values: int) -> None:
        """Create the layers.

        Args:
            width: width of a row's state and of the result (W).
            heads: a divisor of the width.
            values: width of the values that rows pass to each other (V).
        """
        super().__init__()
        self.heads: Final = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(values, width, bias=False)
        self.slope = nn.Parameter(torch.zeros(heads))

    def forward(self, state: Tensor, source: Tensor, neighbours: Tensor, weights: Tensor) -> Tensor:
        """Attended values [N, W]; 0 for a row without neighbours.

        Args:
            state: [N, W]
            source: [N, V] values of each row.
            neighbours: int64 [N, k] rows of the neighbours, -1 = none.
            weights: [N, k] weights of the edges, such as correlations.
        """
        rows, width = state.shape
        there, row = (neighbours >= 0).unsqueeze(-1), neighbours.clamp(min=0)
        query = self.query(state).view(rows, 1, self.heads, -1)
        key = self.key(state).view(rows, self.heads, -1)[row]
        values = self.value(source).view(rows, self.heads, -1)
        logits = (query * key).sum(-1) / (width // self.heads) ** 0.5 + self.slope * weights.unsqueeze(-1)
        share = logits.masked_fill(~there, NO_NEIGHBOUR_LOGIT).softmax(dim=1) * there
        return (share.unsqueeze(-1) * (values[row] - values.unsqueeze(1))).sum(1).flatten(1)


def _make_zero_linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer that returns 0 before training, so that only the head determines the initial forecasts."""
    linear = nn.Linear(inputs, outputs, bias=False)
    nn.init.zeros_(linear.weight)
    return linear


# There are few days and many stocks: without a strong decay the network memorises the level of those days.
_TRAINING: Final = TrainingDefaults(learning_rate=2e-3, weight_decay=6.0, schedule="cosine", ema=0.99, max_epochs=6)
GRAPH: Final = NetworkKind(
    "graph", 1, GraphConfig, GraphForecaster, GRAPH_ARITHMETIC, is_panel_model=True, training=_TRAINING
)

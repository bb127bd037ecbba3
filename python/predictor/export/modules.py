"""The network and its output map as one module of ONNX operators.

torch traces a recurrent layer session by session, several times, which dominates the time of an export. So two modules
replace LSTMs and GRUs by ONNX's operators. They return correct shapes but no values; the program that runs the file
computes them.

Legend: N rows, T sessions, W width, G gates.
"""

from collections.abc import Mapping, Sequence
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.onnx.ops import symbolic_multi_out

from predictor.networks import GraphForecaster, Inputs, InputSizes, OutputMap, find_anchor_index, restore

NODES: Final = "nodes"
"""Additional input of a network that reads several stocks."""

GRU_GATES: Final = (1, 0, 2)
"""Indices of ONNX's gates (update, reset, new) in torch's order (reset, update, new)."""
LSTM_GATES: Final = (0, 3, 1, 2)
"""Indices of ONNX's gates (input, output, forget, cell) in torch's order (input, forget, cell, output)."""


class ExportModule(nn.Module):
    """Maps the model's groups of `Inputs` to calibrated quantiles in the target's unit.

    Shapes: N rows, H horizons, Q quantiles. For a network that reads several stocks, the N rows are one panel.
    """

    offsets: Tensor
    spread: Tensor

    def __init__(self, network: nn.Module, output: OutputMap, sizes: InputSizes, *, per_horizon: bool) -> None:
        """Store the parts; location and scale are [N, H] with `per_horizon`, otherwise [N]."""
        super().__init__()
        self.per_horizon: Final = per_horizon
        self.network = network
        self.sizes: Final = sizes
        self.anchor: Final = find_anchor_index(output.levels)
        self.across_stocks: Final = isinstance(network, GraphForecaster)
        self.register_buffer("offsets", output.offsets.clone())
        self.register_buffer("spread", output.spread.clone())

    @property
    def absent(self) -> tuple[str, ...]:
        """Groups without features."""
        return tuple(name for name in ("known", "static") if getattr(self.sizes, name) == 0)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the arguments of `forward`, in order."""
        groups = tuple(name for name in Inputs._fields if name not in self.absent)
        return (*groups, NODES) if self.across_stocks else groups

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the results of `forward`, in order."""
        return ("values", "scores") if self.across_stocks else ("values",)

    def arguments(self, inputs: Inputs, nodes: Tensor) -> tuple[Tensor, ...]:
        """The tensors of `input_names`; `nodes` int64 [N] is used only by networks that read several stocks."""
        if not self.per_horizon:
            inputs = inputs._replace(location=inputs.location[:, 0], scale=inputs.scale[:, 0])
        tensors = {**inputs._asdict(), NODES: nodes}
        return tuple(tensors[name] for name in self.input_names)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Quantiles float64 [N, H, Q], and for a network that reads several stocks also scores float32 [N, H]."""
        groups = dict(zip(self.input_names, tensors, strict=True))
        inputs = self._complete_inputs(groups)
        if not self.across_stocks:
            return (self._compute_values(self.network(inputs), inputs),)
        output = self.network(inputs, groups[NODES])
        return self._compute_values(output.quantiles, inputs), output.scores

    def _complete_inputs(self, groups: dict[str, Tensor]) -> Inputs:
        """Complete the inputs with groups of width 0."""
        rows, sizes = groups["location"].shape[0], self.sizes
        sessions = sizes.encoder_length + sizes.future_length
        empty = {
            "known": groups["observed"].new_zeros(rows, sessions, 0),
            "static": groups["observed"].new_zeros(rows, 0),
        }
        inputs = Inputs(*((groups | {name: empty[name] for name in self.absent})[name] for name in Inputs._fields))
        if self.per_horizon:
            return inputs
        location, scale = (part[:, None].expand(-1, len(self.spread)) for part in (inputs.location, inputs.scale))
        return inputs._replace(location=location, scale=scale)

    def _compute_values(self, units: Tensor, inputs: Inputs) -> Tensor:
        """The numbers of `OutputMap.values`; uncrosses level by level, because ONNX has no cumulative maximum."""
        levels = list((units.to(torch.float64) + self.offsets).unbind(-1))
        for q in range(self.anchor + 1, len(levels)):
            levels[q] = torch.maximum(levels[q], levels[q - 1])
        for q in range(self.anchor - 1, -1, -1):
            levels[q] = torch.minimum(levels[q], levels[q + 1])
        return restore(torch.stack(levels, dim=-1), inputs.location, inputs.scale, self.spread)


@final
class OnnxWeights(nn.Module):
    """Weights of one layer in ONNX's layout.

    Args:
        rnn: a unidirectional RNN with biases.
        layer: index of the layer.
        gates: indices of ONNX's gates in torch's order.
    """

    def __init__(self, rnn: nn.RNNBase, layer: int, gates: Sequence[int]) -> None:
        super().__init__()
        weights = dict(rnn.named_parameters())
        self.register_buffer("inputs", _stack([weights[f"weight_ih_l{layer}"]], gates))
        self.register_buffer("states", _stack([weights[f"weight_hh_l{layer}"]], gates))
        biases = [weights[f"bias_ih_l{layer}"], weights[f"bias_hh_l{layer}"]]
        self.register_buffer("biases", _stack(biases, gates))

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """Weights of inputs [1, G * W, ...] and states [1, G * W, W], and biases [1, 2 * G * W]."""
        return self.get_buffer("inputs"), self.get_buffer("states"), self.get_buffer("biases")


@final
class OnnxGRU(nn.Module):
    """Replaces a batch-first GRU with initial state 0."""

    def __init__(self, gru: nn.GRU) -> None:
        super().__init__()
        self.width: Final = gru.hidden_size
        self.layers = nn.ModuleList(OnnxWeights(gru, layer, GRU_GATES) for layer in range(gru.num_layers))

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """States [N, T, W] and last state [1, N, W] of the last layer."""
        states, settings = rows.transpose(0, 1), {"hidden_size": self.width, "linear_before_reset": 1}
        last = states
        for weights in self.layers:
            states, last = _run("GRU", states, weights(), settings, self.width)
        return states.transpose(0, 1), last


@final
class OnnxLSTM(nn.Module):
    """Replaces a batch-first LSTM; with several layers, its initial state must be 0."""

    def __init__(self, lstm: nn.LSTM) -> None:
        super().__init__()
        self.width: Final = lstm.hidden_size
        self.layers = nn.ModuleList(OnnxWeights(lstm, layer, LSTM_GATES) for layer in range(lstm.num_layers))

    def forward(self, rows: Tensor, start: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """States [N, T, W], and last state and cell, each [1, N, W], of the last layer."""
        states, initial = rows.transpose(0, 1), () if start is None else (None, *start)
        last = cell = states
        for weights in self.layers:
            states, last, cell = _run("LSTM", states, (*weights(), *initial), {"hidden_size": self.width}, self.width)
        return states.transpose(0, 1), (last, cell)


def replace_rnns(network: nn.Module) -> nn.Module:
    """Replace every LSTM and GRU of the network in place."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.GRU):
                module.register_module(name, OnnxGRU(child))
            elif isinstance(child, nn.LSTM):
                module.register_module(name, OnnxLSTM(child))
    return network


def _run(
    operator: str, rows: Tensor, others: Sequence[Tensor | None], settings: Mapping[str, int], width: int
) -> tuple[Tensor, ...]:
    """States [T, N, W] of rows [T, N, ...], and the final state (and cell), each [1, N, W]."""
    sessions, count, _ = rows.shape
    ends = 2 if operator == "LSTM" else 1
    states, *last = symbolic_multi_out(
        operator,
        (rows, *others),
        {**settings},
        dtypes=(rows.dtype,) * (1 + ends),
        shapes=((sessions, 1, count, width), *((1, count, width),) * ends),
    )
    return states.squeeze(1), *last


def _stack(parts: Sequence[Tensor], gates: Sequence[int]) -> Tensor:
    """[1, ...] torch's stacked gates in ONNX's order, concatenated over parts."""
    ordered = [part.detach().chunk(len(gates))[gate] for part in parts for gate in gates]
    return torch.cat(ordered).unsqueeze(0)

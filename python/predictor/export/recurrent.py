"""LSTMs and GRUs as ONNX's own operators.

torch traces a recurrent layer session by session, several times over, which takes most of an export. These modules
stand in for the layers meanwhile. They give the right shapes and no numbers: those come from whoever runs the file.

Legend: N rows, T sessions, W width, G gates.
"""

from collections.abc import Mapping, Sequence
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.onnx.ops import symbolic_multi_out

GRU_GATES: Final = (1, 0, 2)
"""ONNX's order (update, reset, new) in torch's (reset, update, new)."""
LSTM_GATES: Final = (0, 3, 1, 2)
"""ONNX's order (input, output, forget, cell) in torch's (input, forget, cell, output)."""


@final
class OnnxWeights(nn.Module):
    """The weights of one layer in ONNX's layout.

    Args:
        rnn: one direction, with biases.
        layer: which of its layers, from 0.
        gates: ONNX's order in torch's.
    """

    def __init__(self, rnn: nn.RNNBase, layer: int, gates: Sequence[int]) -> None:
        super().__init__()
        weights = dict(rnn.named_parameters())
        self.register_buffer("inputs", _stacked([weights[f"weight_ih_l{layer}"]], gates))
        self.register_buffer("states", _stacked([weights[f"weight_hh_l{layer}"]], gates))
        biases = [weights[f"bias_ih_l{layer}"], weights[f"bias_hh_l{layer}"]]
        self.register_buffer("biases", _stacked(biases, gates))

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """For inputs [1, G * W, ...], for states [1, G * W, W] and biases [1, 2 * G * W]."""
        return self.get_buffer("inputs"), self.get_buffer("states"), self.get_buffer("biases")


@final
class OnnxGRU(nn.Module):
    """Stands in for a GRU, batch first, that starts at 0."""

    def __init__(self, gru: nn.GRU) -> None:
        super().__init__()
        self.width: Final = gru.hidden_size
        self.layers = nn.ModuleList(OnnxWeights(gru, layer, GRU_GATES) for layer in range(gru.num_layers))

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The last layer's states [N, T, W], and its last state [1, N, W]."""
        states, settings = rows.transpose(0, 1), {"hidden_size": self.width, "linear_before_reset": 1}
        last = states
        for weights in self.layers:
            states, last = _run("GRU", states, weights(), settings, self.width)
        return states.transpose(0, 1), last


@final
class OnnxLSTM(nn.Module):
    """Stands in for an LSTM, batch first; one of several layers starts at 0."""

    def __init__(self, lstm: nn.LSTM) -> None:
        super().__init__()
        self.width: Final = lstm.hidden_size
        self.layers = nn.ModuleList(OnnxWeights(lstm, layer, LSTM_GATES) for layer in range(lstm.num_layers))

    def forward(self, rows: Tensor, start: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The last layer's states [N, T, W], and its last state and cell, each [1, N, W]."""
        states, given = rows.transpose(0, 1), () if start is None else (None, *start)
        last = cell = states
        for weights in self.layers:
            states, last, cell = _run("LSTM", states, (*weights(), *given), {"hidden_size": self.width}, self.width)
        return states.transpose(0, 1), (last, cell)


def with_onnx_rnns(network: nn.Module) -> nn.Module:
    """The network with a stand-in for every LSTM and GRU; the network itself is changed."""
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
    """States [T, N, W] of rows [T, N, ...], and what the layer ends with, each [1, N, W]."""
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


def _stacked(parts: Sequence[Tensor], gates: Sequence[int]) -> Tensor:
    """[1, ...] torch's stacked gates in ONNX's order, one part after the other."""
    ordered = [part.detach().chunk(len(gates))[gate] for part in parts for gate in gates]
    return torch.cat(ordered).unsqueeze(0)

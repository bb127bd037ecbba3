"""The Temporal Fusion Transformer written literally after its paper, with loops over variables, heads and sessions.

Nothing is optimised: every session attends, every variable is embedded, and no products of weights are precomputed.
It reads the weights of a `TFTForecaster` in eval mode.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from predictor.networks.gated_residuals import GatedAddNorm, GatedResidual, GatedResiduals
from predictor.networks.inputs import Inputs
from predictor.networks.tft import TFTForecaster, VariableSelection


def literal_quantiles(network: TFTForecaster, inputs: Inputs, *, static_widths: tuple[int, ...]) -> Tensor:
    """[N, H, Q]"""
    length, sessions = network.encoder_length, inputs.known.shape[1]
    share = inputs.mask.to(inputs.observed.dtype).mean(-1, keepdim=True)
    past = torch.cat([inputs.observed, inputs.known[:, :length], share], dim=-1)
    contexts = _contexts(network, inputs.static, static_widths)
    selected = [_select(network.past, past[:, t], contexts[0], (1,) * past.shape[-1]) for t in range(length)]
    for t in range(length, sessions):
        if network.future is None:
            selected.append(torch.zeros_like(selected[0]))
        else:
            known = inputs.known[:, t]
            selected.append(_select(network.future, known, contexts[0], (1,) * known.shape[-1]))
    states = _lstm(network, selected, contexts[2], contexts[3])
    local = [_gate(network.local, state, skip) for state, skip in zip(states, selected, strict=True)]
    enriched = [_residual(network.enrichment, row, contexts[1]) for row in local]
    attended = _attention(network, torch.stack(enriched, dim=1))
    fused = [_gate(network.attended, attended[:, t], enriched[t]) for t in range(sessions)]
    deep = [_gate(network.last, _residual(network.feed_forward, row, None), local[t]) for t, row in enumerate(fused)]
    quantiles = [_head(network, h, deep[int(end)]) for h, end in enumerate(network.ends)]
    if network.highway is not None:
        flat = inputs.observed.flatten(1)
        for h, end in enumerate(network.ends):
            trust = 2 * torch.sigmoid(deep[int(end)] @ network.highway.gate.weight[0] + network.highway.gate.bias)
            quantiles[h] = quantiles[h] + (trust * (flat * network.highway.weight[h]).sum(-1)).unsqueeze(-1)
    return torch.stack(quantiles, dim=1)


def _contexts(network: TFTForecaster, static: Tensor, widths: tuple[int, ...]) -> list[Tensor | None]:
    """Contexts for selection, enrichment, and the LSTM's state and cell, each [N, W]."""
    if network.static is None:
        return [None] * 4
    selected = _select(network.static.selection, static, None, widths)
    return [_one_of(network.static.contexts, k, selected) for k in range(4)]


def _select(selection: VariableSelection, row: Tensor, context: Tensor | None, widths: tuple[int, ...]) -> Tensor:
    """[N, W] of one session's columns [N, C] (equations 6 to 8)."""
    embedded: list[Tensor] = []
    start = 0
    for variable, width in enumerate(widths):
        weight = selection.embedding[variable]
        embedded.append(row[:, start : start + width] @ weight[:width] + weight[-1])
        start += width
    flat = torch.cat(embedded, dim=-1)
    joint = selection.joint.flatten(0, 1)
    width = embedded[0].shape[-1]
    first = flat @ joint[:, :width] + selection.joint_bias[:width]
    if context is not None and selection.rest.context is not None:
        first = first + context @ selection.rest.context.weight.t()
    skip = flat @ joint[:, width:] + selection.joint_bias[width:]
    weights = _gate(selection.rest.add, selection.rest.second(functional.elu(first)), skip).softmax(-1)
    processed = [_one_of(selection.each, v, embedded[v]) for v in range(len(widths))]
    return sum((weights[:, v : v + 1] * processed[v] for v in range(len(widths))), torch.zeros_like(embedded[0]))


def _one_of(networks: GatedResiduals, v: int, x: Tensor) -> Tensor:
    """Gated residual network number v (equations 2 to 4)."""
    hidden = functional.elu(x @ networks.first[v] + networks.first_bias[v])
    hidden = hidden @ networks.second[v] + networks.second_bias[v]
    value, switch = (hidden @ networks.gate[v] + networks.gate_bias[v]).chunk(2, dim=-1)
    return _norm(x + value * torch.sigmoid(switch), networks.gain[v, 0], networks.shift[v, 0])


def _residual(residual: GatedResidual, x: Tensor, context: Tensor | None) -> Tensor:
    hidden = x @ residual.first.weight.t() + residual.first.bias
    if context is not None and residual.rest.context is not None:
        hidden = hidden + context @ residual.rest.context.weight.t()
    return _gate(residual.rest.add, residual.rest.second(functional.elu(hidden)), x)


def _gate(gate: GatedAddNorm, x: Tensor, skip: Tensor) -> Tensor:
    value, switch = (x @ gate.gate.weight.t() + gate.gate.bias).chunk(2, dim=-1)
    return _norm(skip + value * torch.sigmoid(switch), gate.norm.weight, gate.norm.bias)


def _norm(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain + shift


def _lstm(network: TFTForecaster, rows: list[Tensor], state: Tensor | None, cell: Tensor | None) -> list[Tensor]:
    """The encoder over the past, then the decoder from where it ended."""
    state = torch.zeros_like(rows[0]) if state is None else state
    cell = torch.zeros_like(rows[0]) if cell is None else cell
    states: list[Tensor] = []
    for t, row in enumerate(rows):
        lstm = network.encoder if t < network.encoder_length else network.decoder
        state, cell = _cell(lstm, row, state, cell)
        states.append(state)
    return states


def _cell(lstm: nn.LSTM, row: Tensor, state: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    weights: list[Tensor] = list(lstm.parameters())
    gates = row @ weights[0].t() + weights[2] + state @ weights[1].t() + weights[3]
    let_in, forget, new, out = gates.chunk(4, dim=-1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(let_in) * torch.tanh(new)
    return torch.sigmoid(out) * torch.tanh(cell), cell


def _attention(network: TFTForecaster, rows: Tensor) -> Tensor:
    """Attention with a query for every session (equations 13 to 16)."""
    attention, sessions = network.attention, rows.shape[1]
    value = rows @ attention.value.weight.t()
    width = value.shape[-1]
    later = torch.ones(sessions, sessions, dtype=torch.bool).triu(1)
    heads: list[Tensor] = []
    for head in range(attention.heads):
        part = slice(head * width, (head + 1) * width)
        query = rows @ attention.query.weight[part].t()
        key = rows @ attention.key.weight[part].t()
        scores = (query @ key.transpose(1, 2) / width**0.5).masked_fill(later, float("-inf"))
        heads.append(scores.softmax(-1) @ value)
    mean = sum(heads, torch.zeros_like(value)) / len(heads)
    return mean @ attention.out.weight.t()


def _head(network: TFTForecaster, horizon: int, row: Tensor) -> Tensor:
    """[N, Q]"""
    head = network.head
    raw = row @ head.weight[horizon] + head.bias[horizon]
    quantiles = list(raw.unbind(-1))
    for q in range(head.anchor + 1, len(quantiles)):
        quantiles[q] = quantiles[q - 1] + functional.softplus(raw[:, q])
    for q in reversed(range(head.anchor)):
        quantiles[q] = quantiles[q + 1] - functional.softplus(raw[:, q])
    return torch.stack(quantiles, dim=-1)

"""Explanations on CUDA, where cuDNN refuses the backward pass of an RNN in eval mode."""

import threading

import numpy as np
import pytest
import torch
from explain_cases import (
    BASELINE,
    POINTS,
    NormalisedLSTM,
    explainer,
    lstm_forecaster,
    normalised_lstm,
    output_map,
    windows,
)
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from predictor.call_context import NEVER
from predictor.explain import Explainer, build_attribution_view
from predictor.networks import Inputs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

REFUSAL = "cudnn RNN backward can only be called in training mode"


def on_gpu(inputs: Inputs) -> Inputs:
    return Inputs(*(group.cuda() for group in inputs))


def gradient(rnn: nn.Module, rows: Tensor) -> Tensor:
    leaf = rows.clone().requires_grad_()
    output: Tensor = rnn(leaf)[0]
    (found,) = torch.autograd.grad(output.sum(), leaf)
    return found


def rnns() -> dict[str, nn.RNNBase]:
    return {
        "lstm": nn.LSTM(4, 8, 2, batch_first=True, dropout=0.3),
        "projected": nn.LSTM(4, 8, batch_first=True, proj_size=3),
        "bidirectional": nn.LSTM(4, 8, batch_first=True, bidirectional=True),
        "gru": nn.GRU(4, 8, batch_first=True),
        "tanh": nn.RNN(4, 8, batch_first=True),
        "relu": nn.RNN(4, 8, batch_first=True, nonlinearity="relu"),
    }


@pytest.mark.parametrize("name", list(rnns()))
def test_cudnn_refuses_the_backward_of_eval_mode(name: str) -> None:
    """If this no longer raises, the other tests of this module prove nothing."""
    assert torch.backends.cudnn.is_available()
    rnn = rnns()[name].cuda().eval()
    with pytest.raises(RuntimeError, match=REFUSAL):
        gradient(rnn, torch.randn(3, 5, 4, device="cuda"))


def test_cudnn_refuses_packed_sequences_too() -> None:
    rnn = nn.LSTM(4, 8, batch_first=True).cuda().eval()
    rows = torch.randn(3, 5, 4, device="cuda", requires_grad=True)
    packed, _ = rnn(pack_padded_sequence(rows, torch.tensor([5, 3, 2]), batch_first=True))
    with pytest.raises(RuntimeError, match=REFUSAL):
        torch.autograd.grad(packed.data.sum(), rows)


def test_cudnn_has_no_second_derivative_so_no_graph_of_gradients_is_ever_asked_for() -> None:
    rnn = nn.LSTM(4, 8, batch_first=True).cuda().train()
    rows = torch.randn(3, 5, 4, device="cuda", requires_grad=True)
    (first,) = torch.autograd.grad(rnn(rows)[0].sum(), rows, create_graph=True)
    with pytest.raises(RuntimeError, match="not implemented"):
        torch.autograd.grad(first.sum(), rows)


@pytest.mark.parametrize("name", list(rnns()))
def test_gradients_of_the_view_equal_those_without_cudnn(name: str) -> None:
    rnn = rnns()[name].cuda().eval()
    rows = torch.randn(3, 5, 4, device="cuda")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        found = gradient(build_attribution_view(rnn), rows)
    with torch.backends.cudnn.flags(enabled=False):
        expected = gradient(rnn, rows)

    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_contributions_equal_those_of_the_cpu() -> None:
    network, inputs = lstm_forecaster(), windows(4)
    on_cpu = explainer(network).explain(inputs, POINTS, deadline=NEVER)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        found = explainer(network.cuda()).explain(inputs, POINTS, deadline=NEVER)

    for one, other in zip(on_cpu, found, strict=True):
        assert one.converged.all() == other.converged.all()
        np.testing.assert_allclose(other.observed, one.observed, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(other.scale, one.scale, rtol=1e-3, atol=1e-6)


def test_train_mode_without_dropout_forecasts_the_same_on_cudnn() -> None:
    network, inputs = normalised_lstm().cuda(), on_gpu(windows(16))
    with torch.inference_mode():
        torch.testing.assert_close(build_attribution_view(network)(inputs), network(inputs), rtol=0, atol=1e-6)


def test_explanations_draw_no_random_numbers_of_the_device() -> None:
    before = torch.cuda.get_rng_state()
    explainer(normalised_lstm().cuda()).explain(windows(4), POINTS, deadline=NEVER)

    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_the_view_needs_no_memory_for_weights() -> None:
    network = nn.LSTM(256, 512, 2, batch_first=True).cuda()
    weights = sum(parameter.nbytes for parameter in network.parameters())
    before = torch.cuda.memory_allocated()
    view = build_attribution_view(network)

    assert view.training is True
    assert torch.cuda.memory_allocated() - before < weights / 100


def test_explanations_give_all_memory_back() -> None:
    tested = explainer(normalised_lstm().cuda())
    tested.explain(windows(4), POINTS, deadline=NEVER)
    before = torch.cuda.memory_allocated()
    for _ in range(20):
        tested.explain(windows(4), POINTS, deadline=NEVER)

    assert torch.cuda.memory_allocated() == before


def test_predictions_alongside_explanations_stay_the_same() -> None:
    network, inputs = normalised_lstm().cuda(), on_gpu(windows(8))
    with torch.inference_mode():
        expected = network(inputs)
    tested = explainer(network)
    thread = threading.Thread(target=lambda: tested.explain(windows(8), POINTS, deadline=NEVER))
    thread.start()
    found: list[Tensor] = []
    with torch.inference_mode():
        while thread.is_alive() or not found:
            found.append(network(inputs))

    assert max(float((one - expected).abs().max()) for one in found) <= 1e-6


def test_autocast_of_the_caller_does_not_reach_the_explanation() -> None:
    tested, inputs = explainer(normalised_lstm().cuda()), windows(3)
    (expected,) = tested.explain(inputs, [(1, 1)], deadline=NEVER)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        (found,) = tested.explain(inputs, [(1, 1)], deadline=NEVER)

    np.testing.assert_allclose(found.observed, expected.observed, rtol=1e-5, atol=1e-8)


def test_an_output_map_on_the_cpu_is_taken_to_the_views_device() -> None:
    view = build_attribution_view(normalised_lstm().cuda())
    (found,) = Explainer(view, output_map(), BASELINE, max_rows=64).explain(windows(2), [(0, 1)], deadline=NEVER)

    assert np.isfinite(found.total()).all()


class GreedyNetwork(nn.Module):
    """Allocates far too much memory for more than a few rows."""

    def __init__(self, network: NormalisedLSTM) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Inputs) -> Tensor:
        if len(inputs.observed) > 8:
            torch.empty(1 << 40, device="cuda")
        return self.network(inputs)


def test_a_lack_of_device_memory_halves_the_chunks() -> None:
    network = normalised_lstm().cuda()
    (whole,) = explainer(network).explain(windows(4), [(0, 1)], deadline=NEVER)
    (halved,) = explainer(GreedyNetwork(network)).explain(windows(4), [(0, 1)], deadline=NEVER)

    np.testing.assert_allclose(halved.observed, whole.observed, rtol=1e-4, atol=1e-7)

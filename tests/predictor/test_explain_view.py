"""The attribution view: gradients without side effects on the served network."""

import threading
from collections.abc import Callable

import pytest
import torch
from explain_cases import (
    POINTS,
    assert_same_footprint,
    explainer,
    footprint,
    forecast,
    lstm_forecaster,
    normalised_lstm,
    windows,
)
from torch import nn

from predictor.call_context import NEVER
from predictor.errors import ConfigurationError, ExplainUnsupportedError
from predictor.explain import build_attribution_view
from predictor.networks import Inputs


def test_the_view_shares_every_parameter_and_buffer() -> None:
    network = normalised_lstm()
    view = build_attribution_view(network)

    pairs = zip(network.state_dict(keep_vars=True).items(), view.state_dict(keep_vars=True).items(), strict=True)
    assert all(name == other and value is shared for (name, value), (other, shared) in pairs)


def test_only_the_views_rnns_are_in_train_mode_and_without_dropout() -> None:
    view = build_attribution_view(normalised_lstm())

    assert [name for name, module in view.named_modules() if module.training] == ["lstm"]
    assert [module.dropout for module in view.modules() if isinstance(module, nn.RNNBase)] == [0.0]


def test_making_a_view_changes_nothing_on_the_network() -> None:
    network = normalised_lstm().train()
    before = footprint(network)
    build_attribution_view(network)

    assert_same_footprint(before, footprint(network))


def test_the_view_forecasts_the_same_bytes_as_the_network() -> None:
    network, inputs = normalised_lstm(), windows(5)

    assert torch.equal(forecast(build_attribution_view(network), inputs), forecast(network, inputs))


def test_the_view_follows_weights_that_are_loaded_in_place() -> None:
    network, inputs = normalised_lstm(), windows(2)
    view = build_attribution_view(network)
    network.load_state_dict({name: value * 2 for name, value in network.state_dict().items()})

    assert torch.equal(forecast(view, inputs), forecast(network, inputs))


def test_a_module_that_cannot_be_copied_is_named() -> None:
    network = lstm_forecaster()
    network.__dict__["guard"] = threading.Lock()

    with pytest.raises(ExplainUnsupportedError, match=r"LSTMForecaster cannot be copied .* keep locks"):
        build_attribution_view(network)


def test_weights_of_inference_mode_are_refused() -> None:
    with torch.inference_mode():
        network = lstm_forecaster()

    with pytest.raises(ConfigurationError, match="load it outside"):
        build_attribution_view(network)


def explain_with_the_view(network: nn.Module, inputs: Inputs) -> None:
    tested = explainer(network)
    for _ in range(2):
        tested.explain(inputs, POINTS, deadline=NEVER)


def explain_in_train_mode(network: nn.Module, inputs: Inputs) -> None:
    """The naive way: switch the whole model to train mode and back, with gradients of a sum over all outputs."""
    observed = inputs.observed.clone().requires_grad_()
    network.train()
    try:
        network(inputs._replace(observed=observed)).sum().backward()
    finally:
        network.eval()


def changed_predictions(explain: Callable[[nn.Module, Inputs], None]) -> int:
    """How many predictions of four threads change while two threads explain, and once afterwards."""
    network, inputs = normalised_lstm(), windows(4)
    expected = forecast(network, inputs)
    changed: list[bool] = []

    def predict() -> None:
        while any(thread.is_alive() for thread in explaining):
            changed.append(not torch.equal(forecast(network, inputs), expected))

    explaining = [threading.Thread(target=explain, args=(network, inputs)) for _ in range(2)]
    predicting = [threading.Thread(target=predict) for _ in range(4)]
    for thread in (*explaining, *predicting):
        thread.start()
    for thread in (*explaining, *predicting):
        thread.join()
    return sum(changed) + (not torch.equal(forecast(network, inputs), expected))


def test_predictions_alongside_explanations_are_the_same_bytes() -> None:
    assert changed_predictions(explain_with_the_view) == 0


def test_switching_the_whole_model_would_change_predictions() -> None:
    assert changed_predictions(explain_in_train_mode) > 0


def test_explanations_of_several_threads_do_not_disturb_each_other() -> None:
    tested, inputs = explainer(lstm_forecaster()), windows(3)
    (expected,) = tested.explain(inputs, [(1, 1)], deadline=NEVER)
    found: list[bool] = []

    def run() -> None:
        (one,) = tested.explain(inputs, [(1, 1)], deadline=NEVER)
        found.append(bool((one.observed == expected.observed).all()))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [True] * 4

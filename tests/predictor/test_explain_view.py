"""The attribution view and RNN backward mode: gradients without side effects on the served network."""

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
from torch import Tensor, nn

from predictor.errors import ConfigurationError, ExplainUnsupportedError
from predictor.explain import attribution_view, rnn_backward_mode
from predictor.instance import Deadline
from predictor.networks import Inputs


def test_the_view_shares_every_parameter_and_buffer() -> None:
    network = normalised_lstm()
    view = attribution_view(network)

    pairs = zip(network.state_dict(keep_vars=True).items(), view.state_dict(keep_vars=True).items(), strict=True)
    assert all(name == other and value is shared for (name, value), (other, shared) in pairs)


def test_only_the_views_rnns_are_in_train_mode_and_without_dropout() -> None:
    view = attribution_view(normalised_lstm())

    assert [name for name, module in view.named_modules() if module.training] == ["lstm"]
    assert [module.dropout for module in view.modules() if isinstance(module, nn.RNNBase)] == [0.0]


def test_making_a_view_changes_nothing_on_the_network() -> None:
    network = normalised_lstm().train()
    before = footprint(network)
    attribution_view(network)

    assert_same_footprint(before, footprint(network))


def test_the_view_forecasts_the_same_bytes_as_the_network() -> None:
    network, inputs = normalised_lstm(), windows(5)

    assert torch.equal(forecast(attribution_view(network), inputs), forecast(network, inputs))


def test_the_view_follows_weights_that_are_loaded_in_place() -> None:
    network, inputs = normalised_lstm(), windows(2)
    view = attribution_view(network)
    network.load_state_dict({name: value * 2 for name, value in network.state_dict().items()})

    assert torch.equal(forecast(view, inputs), forecast(network, inputs))


def test_a_module_that_cannot_be_copied_is_named() -> None:
    network = lstm_forecaster()
    network.__dict__["guard"] = threading.Lock()

    with pytest.raises(ExplainUnsupportedError, match=r"LSTMForecaster cannot be copied .* keep locks"):
        attribution_view(network)


def test_weights_of_inference_mode_are_refused() -> None:
    with torch.inference_mode():
        network = lstm_forecaster()

    with pytest.raises(ConfigurationError, match="load it outside"):
        attribution_view(network)


def test_the_mode_switch_touches_rnns_alone_and_gives_each_its_state_back() -> None:
    network = nn.ModuleList([normalised_lstm(), normalised_lstm().train()])
    before = footprint(network)

    with rnn_backward_mode(network):
        inside = footprint(network)

    assert {name for name, value in inside.dropout.items() if value} == set()
    changed = {name for name, value in inside.training.items() if value != before.training[name]}
    assert changed == {"0.lstm"}
    assert_same_footprint(before, footprint(network))


def test_the_mode_switch_restores_after_an_exception() -> None:
    network = normalised_lstm()
    before = footprint(network)

    with pytest.raises(ZeroDivisionError), rnn_backward_mode(network):
        _ = 1 / 0

    assert_same_footprint(before, footprint(network))


def test_nested_switches_hold_until_the_last_one_leaves() -> None:
    network = normalised_lstm()
    before = footprint(network)

    with rnn_backward_mode(network):
        with rnn_backward_mode(network.lstm):
            pass
        assert network.lstm.training
        assert network.lstm.dropout == 0.0

    assert_same_footprint(before, footprint(network))


def test_switches_of_two_threads_may_end_in_any_order() -> None:
    network = normalised_lstm()
    before = footprint(network)
    first, second = rnn_backward_mode(network), rnn_backward_mode(network)

    first.__enter__()
    entered = threading.Thread(target=second.__enter__)
    entered.start()
    entered.join()
    first.__exit__(None, None, None)
    assert network.lstm.training
    second.__exit__(None, None, None)

    assert_same_footprint(before, footprint(network))


def test_predictions_inside_the_switch_are_the_same_bytes() -> None:
    network, inputs = normalised_lstm(), windows(4)
    served = forecast(network, inputs)

    with rnn_backward_mode(network):
        assert torch.equal(forecast(network, inputs), served)


class WatchedLSTM(nn.LSTM):
    """Records whether a concurrent forward pass could see train mode with dropout."""

    exposed = False

    def __setattr__(self, name: str, value: Tensor | nn.Module | float) -> None:
        super().__setattr__(name, value)
        if name in {"training", "dropout"} and "dropout" in self.__dict__:
            self.__dict__["exposed"] = self.exposed or (self.training and self.dropout > 0)


def watched() -> WatchedLSTM:
    lstm = WatchedLSTM(3, 4, 2, dropout=0.5).eval()
    lstm.__dict__["exposed"] = False
    return lstm


def test_no_moment_of_the_switch_lets_dropout_through() -> None:
    lstm = watched()
    with rnn_backward_mode(lstm):
        pass

    assert not lstm.exposed
    assert lstm.dropout == 0.5


@pytest.mark.parametrize("order", [("training", "dropout"), ("dropout", "training")])
def test_the_order_of_the_switch_decides(order: tuple[str, str]) -> None:
    lstm, values = watched(), {"training": True, "dropout": 0.0}
    for name in order:
        setattr(lstm, name, values[name])

    assert lstm.exposed == (order[0] == "training")


def explain_with_the_view(network: nn.Module, inputs: Inputs) -> None:
    tested = explainer(network)
    for _ in range(2):
        tested.explain(inputs, POINTS, deadline=Deadline())


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
    (expected,) = tested.explain(inputs, [(1, 1)], deadline=Deadline())
    found: list[bool] = []

    def run() -> None:
        (one,) = tested.explain(inputs, [(1, 1)], deadline=Deadline())
        found.append(bool((one.observed == expected.observed).all()))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [True] * 4

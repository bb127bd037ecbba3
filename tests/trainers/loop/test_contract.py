"""The contract of networks with named outputs: every wrong output is named, and none becomes a loss of zero."""

import re
from collections import OrderedDict
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from trainers.loop.errors import ContractError, SettingsError
from trainers.loop.named_outputs import Contract

NAMES = ("horizon_1", "horizon_5")
CONTRACT = Contract(NAMES)


def output(*shape: int) -> Tensor:
    return torch.zeros(*(shape or (4,)), requires_grad=True) * 2


def outputs() -> dict[str, Tensor]:
    return {name: output() for name in NAMES}


FOUND = outputs()


@pytest.mark.parametrize(
    "returned",
    [
        FOUND,
        {"predictions": FOUND},
        {"features": output(4, 8), "predictions": FOUND, "output_type": "several"},
        OrderedDict(reversed(FOUND.items())),
    ],
    ids=["flat", "wrapped", "beside others", "in another order"],
)
def test_the_outputs_are_found_and_ordered_by_the_names(returned: object) -> None:
    found = CONTRACT.read(returned)
    assert tuple(found) == NAMES
    assert all(found[name] is FOUND[name] for name in NAMES)


EXPECTED = "expected a dict with the keys 'horizon_1', 'horizon_5', or the same under 'predictions'"


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, f"the network returned None (is a `return` missing?); {EXPECTED}"),
        ((output(), output()), f"the network returned a tuple; {EXPECTED}"),
        ([output(), output()], f"the network returned a list; {EXPECTED}"),
        (output(4, 2), f"the network returned a tensor of shape [4, 2]; {EXPECTED}"),
        (
            {"features": output()},
            (
                f"the network returned a dict with the keys ['features']; {EXPECTED}; missing: 'horizon_1', "
                "'horizon_5'; unexpected: 'features'; did you pass another part of the network's output than "
                "output['predictions']?"
            ),
        ),
        (
            {"predictions": {"predictions": outputs()}},
            (
                f"the network returned a dict with the keys ['predictions'] under 'predictions'; {EXPECTED}; missing: "
                "'horizon_1', 'horizon_5'; unexpected: 'predictions'; 'predictions' stands within 'predictions': was "
                "it wrapped twice?"
            ),
        ),
        (
            {"predictions": None},
            f"the network returned None (is a `return` missing?) under 'predictions'; {EXPECTED}",
        ),
        (
            {"predictions": {}},
            (
                f"the network returned an empty dict under 'predictions'; {EXPECTED}; missing: 'horizon_1', "
                "'horizon_5'; did the network's loop over its outputs run at all?"
            ),
        ),
        (
            {1: output(), 5: output()},
            (
                f"the network returned a dict with the keys [1, 5]; {EXPECTED}; missing: 'horizon_1', 'horizon_5'; "
                "unexpected: 1, 5; keys must be names (str): did you use numbers for keys?"
            ),
        ),
        (
            {"predictions": {"1d": output(), "5d": output()}},
            (
                f"the network returned a dict with the keys ['1d', '5d'] under 'predictions'; {EXPECTED}; missing: "
                "'horizon_1', 'horizon_5'; unexpected: '1d', '5d'; do the network and the loss take their names from "
                "the same list?"
            ),
        ),
        ({"horizon_1": output()}, "missing: 'horizon_5'; did you"),
        ({"predictions": {**outputs(), "horizon_9": output()}}, "unexpected: 'horizon_9'; do the network"),
        (
            {**outputs(), "horizon_5": [output(), output()]},
            "the output 'horizon_5' is a list; expected a tensor of shape [any]",
        ),
        (
            {**outputs(), "horizon_5": None},
            "the output 'horizon_5' is None (is a `return` missing?); expected a tensor",
        ),
        (
            {**outputs(), "horizon_5": torch.zeros(4, dtype=torch.int64)},
            "the output 'horizon_5' is of torch.int64; expected floating point",
        ),
        ({**outputs(), "horizon_5": output(4, 1)}, "the output 'horizon_5' has shape [4, 1]; expected [any]"),
        ({**outputs(), "horizon_5": output().sum()}, "the output 'horizon_5' has shape []; expected [any]"),
        (
            {**outputs(), "horizon_5": output(3)},
            "the outputs have different shapes: 'horizon_1' [4], 'horizon_5' [3]; expected the same [any] in all",
        ),
        (
            {**outputs(), "horizon_5": output().detach()},
            "these outputs have no graph, so nothing would be learned from them: 'horizon_5'; look for .detach()",
        ),
    ],
)
def test_a_wrong_output_is_refused_with_what_was_found_and_expected(found: object, message: str) -> None:
    with pytest.raises(ContractError, match=re.escape(message)):
        CONTRACT.read(found)


def test_features_passed_for_predictions_are_an_error_and_no_zero_loss() -> None:
    whole = {"predictions": outputs(), "features": output(4, 8)}
    with pytest.raises(ContractError, match="missing: 'horizon_1', 'horizon_5'; unexpected: 'features'"):
        CONTRACT.read({"features": whole["features"]})


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_in_an_evaluation_outputs_need_no_graph(mode: type[torch.no_grad | torch.inference_mode]) -> None:
    with mode():
        assert tuple(CONTRACT.read(outputs())) == NAMES


def test_a_given_shape_is_checked_dimension_by_dimension() -> None:
    quantiles = Contract(NAMES, shape=(None, 3))
    made = {name: output(4, 3) for name in NAMES}
    assert tuple(quantiles.read(made)) == NAMES
    with pytest.raises(ContractError, match=r"'horizon_5' has shape \[4, 2\]; expected \[any, 3\]"):
        quantiles.read({**made, "horizon_5": output(4, 2)})


def test_without_a_key_around_them_the_outputs_are_the_whole() -> None:
    flat = Contract(NAMES, within=None)
    assert tuple(flat.read(outputs())) == NAMES
    with pytest.raises(ContractError, match=r"the keys \['predictions'\]; expected a dict .* 'horizon_5'; missing"):
        flat.read({"predictions": outputs()})


@pytest.mark.parametrize("names", [(), ("a", "a"), ("a", "predictions")])
def test_names_that_could_not_be_told_apart_are_refused(names: Sequence[str]) -> None:
    with pytest.raises(SettingsError, match="the names of the outputs are"):
        Contract(names)

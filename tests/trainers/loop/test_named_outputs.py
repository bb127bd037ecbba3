"""Networks with several named outputs: errors name the output, and targets may be missing."""

import math
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from trainers.loop.errors import ContractError, SettingsError
from trainers.loop.loss import Loss, WeightedMean
from trainers.loop.named_outputs import OutputContract, summed_loss

NAMES = ("horizon_1", "horizon_5")
CONTRACT = OutputContract(NAMES)


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
                "'horizon_1', 'horizon_5'; unexpected: 'predictions'; 'predictions' is nested in 'predictions': was "
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
                "'horizon_5'; did the network's loop over its outputs run?"
            ),
        ),
        (
            {1: output(), 5: output()},
            (
                f"the network returned a dict with the keys [1, 5]; {EXPECTED}; missing: 'horizon_1', 'horizon_5'; "
                "unexpected: 1, 5; keys must be names (str): did you use numbers?"
            ),
        ),
        (
            {"predictions": {"1d": output(), "5d": output()}},
            (
                f"the network returned a dict with the keys ['1d', '5d'] under 'predictions'; {EXPECTED}; missing: "
                "'horizon_1', 'horizon_5'; unexpected: '1d', '5d'; do the network and the loss use the same list "
                "of names?"
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
            "the output 'horizon_5' is torch.int64; expected floating point",
        ),
        ({**outputs(), "horizon_5": output(4, 1)}, "the output 'horizon_5' has shape [4, 1]; expected [any]"),
        ({**outputs(), "horizon_5": output().sum()}, "the output 'horizon_5' has shape []; expected [any]"),
        (
            {**outputs(), "horizon_5": output(3)},
            "the outputs have different shapes: 'horizon_1' [4], 'horizon_5' [3]; expected the same [any] in all",
        ),
        (
            {**outputs(), "horizon_5": output().detach()},
            "these outputs have no graph, so training would have no effect: 'horizon_5'; look for .detach()",
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
    quantiles = OutputContract(NAMES, shape=(None, 3))
    made = {name: output(4, 3) for name in NAMES}
    assert tuple(quantiles.read(made)) == NAMES
    with pytest.raises(ContractError, match=r"'horizon_5' has shape \[4, 2\]; expected \[any, 3\]"):
        quantiles.read({**made, "horizon_5": output(4, 2)})


def test_without_a_key_around_them_the_outputs_are_the_whole() -> None:
    flat = OutputContract(NAMES, within=None)
    assert tuple(flat.read(outputs())) == NAMES
    with pytest.raises(ContractError, match=r"the keys \['predictions'\]; expected a dict .* 'horizon_5'; missing"):
        flat.read({"predictions": outputs()})


@pytest.mark.parametrize("names", [(), ("a", "a"), ("a", "predictions")])
def test_ambiguous_names_are_refused(names: Sequence[str]) -> None:
    with pytest.raises(SettingsError, match="the names of the outputs are"):
        OutputContract(names)


squares = partial(functional.mse_loss, reduction="none")
MISSING = math.nan


def made(**values: list[float]) -> dict[str, Tensor]:
    return {name: torch.tensor(value) for name, value in values.items()}


PREDICTIONS = made(near=[1.0, 2.0, 3.0], far=[0.0, 0.0, 2.0])
TARGETS = made(near=[0.0, MISSING, 1.0], far=[MISSING, MISSING, 5.0])


def test_the_mean_is_over_all_targets_that_are_there() -> None:
    loss = summed_loss(PREDICTIONS, TARGETS, squares)
    assert loss.count == 3
    assert loss.mean.item() == pytest.approx((1 + 4 + 9) / 3)


def test_the_parts_tell_what_every_output_adds_to_the_mean() -> None:
    loss = summed_loss(
        {name: tensor.clone().requires_grad_() for name, tensor in PREDICTIONS.items()}, TARGETS, squares
    )
    assert {name: part.item() for name, part in loss.parts.items()} == pytest.approx({"near": 5 / 3, "far": 3.0})
    assert not any(part.requires_grad for part in loss.parts.values())


def added(losses: list[Loss]) -> tuple[float, Mapping[str, float]]:
    total = WeightedMean()
    for loss in losses:
        total.add(loss.mean.item(), loss.count, {name: part.item() for name, part in loss.parts.items()})
    return total.mean(), total.parts()


def test_any_partition_of_the_samples_gives_the_same_mean() -> None:
    pieces = [
        summed_loss(
            {name: tensor[part] for name, tensor in PREDICTIONS.items()},
            {name: tensor[part] for name, tensor in TARGETS.items()},
            squares,
        )
        for part in (slice(0, 1), slice(1, 3))
    ]
    assert added(pieces)[0] == pytest.approx(added([summed_loss(PREDICTIONS, TARGETS, squares)])[0])


def test_a_missing_target_leaves_neither_gradient_nor_nan() -> None:
    predictions = {name: tensor.clone().requires_grad_() for name, tensor in PREDICTIONS.items()}
    summed_loss(predictions, TARGETS, squares).mean.backward()
    gradients = [tensor.grad for tensor in predictions.values()]
    assert gradients[0] is not None
    assert gradients[1] is not None
    assert gradients[0].tolist() == pytest.approx([2 / 3, 0.0, 4 / 3])
    assert gradients[1].tolist() == pytest.approx([0.0, 0.0, -2.0])


def test_an_output_without_a_target_counts_nothing() -> None:
    loss = summed_loss(PREDICTIONS, TARGETS | made(far=[MISSING] * 3), squares)
    assert loss.count == 2
    assert loss.mean.item() == pytest.approx(2.5)


def test_no_target_at_all_is_a_count_of_zero() -> None:
    assert summed_loss(PREDICTIONS, made(near=[MISSING] * 3, far=[MISSING] * 3), squares).count == 0


def test_every_target_may_have_several_predictions() -> None:
    def pinball(quantiles: Tensor, target: Tensor) -> Tensor:
        error = target.unsqueeze(-1) - quantiles
        level = torch.tensor([0.1, 0.9])
        return torch.maximum(level * error, (level - 1) * error).mean(dim=-1)

    loss = summed_loss({"near": torch.tensor([[1.0, 3.0], [0.0, 0.0]])}, made(near=[2.0, MISSING]), pinball)
    assert loss.count == 1
    assert loss.mean.item() == pytest.approx(0.1)


def test_half_precision_outputs_are_compared_in_float32() -> None:
    halves = {name: tensor.bfloat16() for name, tensor in PREDICTIONS.items()}
    assert summed_loss(halves, TARGETS, squares).mean.dtype == torch.float32


@pytest.mark.parametrize("names", [("near",), ("near", "far", "further"), ("near", "distant"), ()])
def test_other_names_than_the_targets_are_an_error_and_no_zero_loss(names: tuple[str, ...]) -> None:
    predictions = dict.fromkeys(names, PREDICTIONS["near"])
    with pytest.raises(ContractError, match=r"predictions have the names \[.*\] and targets \['near', 'far'\]"):
        summed_loss(predictions, TARGETS, squares)


def test_no_names_at_all_are_an_error() -> None:
    with pytest.raises(ContractError, match="expected the same names, at least one"):
        summed_loss({}, {}, squares)


def test_a_shape_that_would_be_broadcast_is_an_error() -> None:
    with pytest.raises(ContractError, match=r"prediction of 'near' has shape \[1, 3\] and its target \[3\]"):
        summed_loss(PREDICTIONS | {"near": torch.zeros(1, 3)}, TARGETS, squares)


def test_a_criterion_that_reduces_is_an_error() -> None:
    with pytest.raises(ContractError, match=r'losses of shape \[\] for the 2 targets of \'near\'.*reduction="none"'):
        summed_loss(PREDICTIONS, TARGETS, functional.mse_loss)


def test_outputs_that_keep_the_contract_can_be_summed() -> None:
    trained = {name: tensor.clone().requires_grad_() * 1 for name, tensor in PREDICTIONS.items()}
    loss = summed_loss(OutputContract(("near", "far")).read({"predictions": trained}), TARGETS, squares)
    assert loss.mean.requires_grad

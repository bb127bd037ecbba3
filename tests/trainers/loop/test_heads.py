"""The loss of several outputs, with targets missing here and there."""

import math
from collections.abc import Mapping
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from trainers.loop.errors import ContractError
from trainers.loop.loss import Loss, WeightedMean
from trainers.loop.named_outputs import Contract, summed_loss

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
    with pytest.raises(ContractError, match="expected the same, one or more"):
        summed_loss({}, {}, squares)


def test_a_shape_that_would_be_broadcast_is_an_error() -> None:
    with pytest.raises(ContractError, match=r"prediction of 'near' has shape \[1, 3\] and its target \[3\]"):
        summed_loss(PREDICTIONS | {"near": torch.zeros(1, 3)}, TARGETS, squares)


def test_a_criterion_that_reduces_is_an_error() -> None:
    with pytest.raises(ContractError, match=r'losses of shape \[\] for the 2 targets of \'near\'.*reduction="none"'):
        summed_loss(PREDICTIONS, TARGETS, functional.mse_loss)


def test_outputs_that_keep_the_contract_can_be_summed() -> None:
    trained = {name: tensor.clone().requires_grad_() * 1 for name, tensor in PREDICTIONS.items()}
    loss = summed_loss(Contract(("near", "far")).read({"predictions": trained}), TARGETS, squares)
    assert loss.mean.requires_grad

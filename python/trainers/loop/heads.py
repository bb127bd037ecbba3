"""One loss for a network with several named outputs, some of whose targets may be missing."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from trainers.loop.errors import ContractError
from trainers.loop.loss import Loss

Criterion = Callable[[Tensor, Tensor], Tensor]


def summed_loss(predictions: Mapping[str, Tensor], targets: Mapping[str, Tensor], criterion: Criterion) -> Loss:
    """The mean loss over the targets of all outputs; a target that is not a number is missing and not counted.

    Every target weighs the same, so an output with few targets weighs little. `parts` tells what every output adds to
    the mean: together they are the mean, and they stay right however a window is cut into batches. Without any target
    the count is 0.

    Args:
        predictions: The network's outputs by name, [N, …], each beginning with the shape of its targets.
        targets: The targets by the same names, [N] or more; not a number where there is none.
        criterion: Losses of single targets, float [n], from predictions [n, …] and targets [n]; a criterion of
            `torch.nn` with reduction "none".

    Raises:
        ContractError: Predictions and targets differ in names or shapes, or the criterion has reduced its losses.
    """
    _check_names(predictions, targets)
    for name, target in targets.items():
        _check_shapes(name, predictions[name], target)
    present = {name: ~target.isnan() for name, target in targets.items()}
    counts = torch.stack([mask.sum() for mask in present.values()]).tolist()  # one wait for the device in all
    sums = {
        name: _sum(name, predictions[name][mask], targets[name][mask], criterion)
        for (name, mask), count in zip(present.items(), counts, strict=True)
        if count
    }
    count = sum(counts)
    if not count:
        return Loss(torch.zeros(()), 0)
    parts = {name: total / count for name, total in sums.items()}
    mean = torch.stack(list(parts.values())).sum()
    return Loss(mean, count, {name: part.detach() for name, part in parts.items()})


def _sum(name: str, predicted: Tensor, target: Tensor, criterion: Criterion) -> Tensor:
    losses = criterion(predicted.to(torch.promote_types(predicted.dtype, torch.float32)), target)
    if losses.shape != target.shape:
        raise ContractError(
            f"the criterion made losses of shape {list(losses.shape)} for the {len(target)} targets of {name!r}; "
            'expected one a target: give it reduction="none", and average over further dimensions'
        )
    return losses.sum()


def _check_names(predictions: Mapping[str, Tensor], targets: Mapping[str, Tensor]) -> None:
    if not targets or predictions.keys() != targets.keys():
        raise ContractError(
            f"predictions have the names {list(predictions)} and targets {list(targets)}; expected the same, one or "
            "more; where targets are missing, give not-a-number for them"
        )


def _check_shapes(name: str, prediction: Tensor, target: Tensor) -> None:
    if prediction.shape[: target.ndim] != target.shape:
        raise ContractError(
            f"the prediction of {name!r} has shape {list(prediction.shape)} and its target {list(target.shape)}; "
            "expected the same, or further dimensions of the prediction behind the target's"
        )

"""Networks with several named outputs, and a loss over all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from trainers.loop.errors import ContractError, SettingsError, join_names
from trainers.loop.loss import Loss, describe_value

Criterion = Callable[[Tensor, Tensor], Tensor]


@final
@dataclass(frozen=True, slots=True)
class OutputContract:
    """The required output of a network: a dict with exactly these names, and a tensor for each.

    Attributes:
        names: The names of the outputs, such as one per horizon; at least one, without duplicates.
        within: The key of a nested dict that may hold the outputs; other keys next to it are ignored. None if the
            output is never nested.
        shape: The shape of every output. None means a dimension of any size, the same in all outputs. The default
            is [N].

    Raises:
        SettingsError: There are no names, they have duplicates, or they contain `within`.
    """

    names: Sequence[str]
    within: str | None = "predictions"
    shape: Sequence[int | None] = (None,)

    def __post_init__(self) -> None:
        """Check the names."""
        if not self.names or len(set(self.names)) < len(self.names) or self.within in self.names:
            raise SettingsError(
                f"the names of the outputs are {list(self.names)} within {self.within!r}; give at least one name, "
                "without duplicates, and a different name for the key around them"
            )

    def read(self, output: object) -> dict[str, Tensor]:
        """Return the outputs by name, in the order of the names.

        They are read from the key `within` if the output has it, otherwise from the output itself. Finiteness is not
        checked.

        Args:
            output: The return value of the network.

        Raises:
            ContractError: The names differ; or an output is not a floating-point tensor of the shape; or it has no
                graph although gradients are enabled.
        """
        outputs = self._read_outputs(output)
        tensors = {name: self._check_tensor(name, outputs[name]) for name in self.names}
        if len({tensor.shape for tensor in tensors.values()}) > 1:
            shapes = ", ".join(f"{name!r} {list(tensor.shape)}" for name, tensor in tensors.items())
            raise ContractError(
                f"the outputs have different shapes: {shapes}; expected the same {self._shape()} in all"
            )
        detached = [repr(name) for name, tensor in tensors.items() if not tensor.requires_grad]
        if detached and torch.is_grad_enabled():
            raise ContractError(
                f"these outputs have no graph, so training would have no effect: {join_names(detached)}; look for "
                ".detach(), .data, torch.no_grad() or frozen heads in the network; to evaluate, use "
                "torch.inference_mode()"
            )
        return tensors

    def _read_outputs(self, output: object) -> Mapping[object, object]:
        """Return the dict whose keys are the names."""
        if not isinstance(output, Mapping):
            raise ContractError(f"the network returned {describe_value(output)}; {self._describe_expected()}")
        outputs: object = output.get(self.within, output)
        where = f" under {self.within!r}" if self.within in output else ""
        if not isinstance(outputs, Mapping):
            raise ContractError(f"the network returned {describe_value(outputs)}{where}; {self._describe_expected()}")
        missing = [name for name in self.names if name not in outputs]
        unexpected = [key for key in outputs if key not in self.names]
        if missing or unexpected:
            raise ContractError(
                f"the network returned {describe_value(outputs)}{where}; {self._describe_expected()}"
                + (f"; missing: {join_names([repr(name) for name in missing])}" if missing else "")
                + (f"; unexpected: {join_names([repr(key) for key in unexpected])}" if unexpected else "")
                + f"; {self._suggest_names(outputs, nested=bool(where))}"
            )
        return outputs

    def _check_tensor(self, name: str, value: object) -> Tensor:
        if not isinstance(value, Tensor):
            raise ContractError(
                f"the output {name!r} is {describe_value(value)}; expected a tensor of shape {self._shape()}"
            )
        if not value.is_floating_point():
            raise ContractError(
                f"the output {name!r} is {value.dtype}; expected floating point: argmax and rounding have no gradient"
            )
        if value.ndim != len(self.shape) or any(
            expected not in (None, size) for expected, size in zip(self.shape, value.shape, strict=True)
        ):
            raise ContractError(
                f"the output {name!r} has shape {list(value.shape)}; expected {self._shape()}: an extra dimension of "
                "size 1 would be broadcast against the targets; remove it with .squeeze(-1)"
            )
        return value

    def _describe_expected(self) -> str:
        place = f", or the same under {self.within!r}" if self.within is not None else ""
        return f"expected a dict with the keys {join_names([repr(name) for name in self.names])}{place}"

    def _suggest_names(self, outputs: Mapping[object, object], *, nested: bool) -> str:
        if self.within is not None and self.within in outputs:
            return f"{self.within!r} is nested in {self.within!r}: was it wrapped twice?"
        if not outputs:
            return "did the network's loop over its outputs run?"
        if any(not isinstance(key, str) for key in outputs):
            return "keys must be names (str): did you use numbers?"
        if self.within is not None and not nested:
            return f"did you pass another part of the network's output than output[{self.within!r}]?"
        return "do the network and the loss use the same list of names?"

    def _shape(self) -> str:
        return f"[{', '.join('any' if size is None else str(size) for size in self.shape)}]"


def summed_loss(predictions: Mapping[str, Tensor], targets: Mapping[str, Tensor], criterion: Criterion) -> Loss:
    """Return the mean loss over the targets of all outputs; NaN targets are missing and do not count.

    All targets have the same weight, so an output with few targets has little influence. `parts` holds the
    contribution of every output: the contributions sum to the mean, and they stay correct however a window is cut into
    batches. Without any target the count is 0.

    Args:
        predictions: The network's outputs by name, [N, …]; the leading dimensions are those of the targets.
        targets: The targets by the same names, [N] or more; NaN if missing.
        criterion: Computes the loss of every target, float [n], from predictions [n, …] and targets [n], such as a
            criterion of `torch.nn` with reduction "none".

    Raises:
        ContractError: Predictions and targets differ in names or shapes, or the criterion has reduced its losses.
    """
    _check_targets(predictions, targets)
    present = {name: ~target.isnan() for name, target in targets.items()}
    counts = torch.stack([mask.sum() for mask in present.values()]).tolist()  # synchronises with the device only once
    sums = {
        name: _sum_losses(name, predictions[name][mask], targets[name][mask], criterion)
        for (name, mask), count in zip(present.items(), counts, strict=True)
        if count
    }
    count = sum(counts)
    if not count:
        return Loss(torch.zeros(()), 0)
    parts = {name: total / count for name, total in sums.items()}
    mean = torch.stack(list(parts.values())).sum()
    return Loss(mean, count, {name: part.detach() for name, part in parts.items()})


def _sum_losses(name: str, predicted: Tensor, target: Tensor, criterion: Criterion) -> Tensor:
    losses = criterion(predicted.to(torch.promote_types(predicted.dtype, torch.float32)), target)
    if losses.shape != target.shape:
        raise ContractError(
            f"the criterion returned losses of shape {list(losses.shape)} for the {len(target)} targets of {name!r}; "
            'expected one per target: give it reduction="none", and average over other dimensions'
        )
    return losses.sum()


def _check_targets(predictions: Mapping[str, Tensor], targets: Mapping[str, Tensor]) -> None:
    if not targets or predictions.keys() != targets.keys():
        raise ContractError(
            f"predictions have the names {list(predictions)} and targets {list(targets)}; expected the same names, at "
            "least one; use NaN for missing targets"
        )
    for name, target in targets.items():
        shape = predictions[name].shape
        if shape[: target.ndim] != target.shape:
            raise ContractError(
                f"the prediction of {name!r} has shape {list(shape)} and its target {list(target.shape)}; expected the "
                "same, or additional trailing dimensions in the prediction"
            )

"""The best value so far, and a copy of the weights that gave it."""

import math
from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from trainers.loop.errors import NoBestWeightsError
from trainers.loop.loss import check_finite_score
from trainers.loop.weights.coverage import named_tensors
from trainers.loop.weights.keeping import HOST, copies_of, is_large
from trainers.loop.window.guards import Nonfinite


@final
class Best:
    """Keeps the weights of the lowest value in memory: on the device they are on, or on the host where they are large.

    Args:
        modules: The trained modules by name; their parameters and buffers are kept.
        nonfinite: Whether a value that is not finite counts as no improvement (`skip`) or raises.

    Attributes:
        value: The lowest value; None before the first finite one.
        stale: Values since then that were not lower.
    """

    def __init__(self, modules: Mapping[str, nn.Module], nonfinite: Nonfinite = "raise") -> None:
        self._modules = modules
        self._nonfinite = nonfinite
        self._kept: dict[str, Tensor] = {}
        self.value: float | None = None
        self.stale = 0

    def record(self, value: float) -> bool:
        """Note a value, lower being better; True if it is the best so far, whose weights are then kept.

        Raises:
            NonFiniteError: The value is infinite or not a number, and that is to raise.
        """
        value = float(value)  # a float64 of NumPy is one too, and no checkpoint could be read back with it
        if self._nonfinite == "raise":
            check_finite_score(value, "the recorded value")
        if not math.isfinite(value) or (self.value is not None and value >= self.value):
            self.stale += 1
            return False
        self.value, self.stale = value, 0
        self._kept.clear()  # first, so that there is never more than one copy
        here = named_tensors(self._modules)
        self._kept = dict(zip(here, copies_of([*here.values()]), strict=True))
        return True

    def restore(self) -> None:
        """Put the weights of the best value back into the modules, in place.

        Raises:
            NoBestWeightsError: No value was recorded that is finite.
        """
        if self.value is None and self.begun:
            raise NoBestWeightsError(
                f"none of the {self.stale} recorded values was finite, so no weights are the best; look for such "
                "values in the data that is scored, and at the training's own loss"
            )
        if self.value is None:
            raise NoBestWeightsError("no value was recorded yet; call stalled() or best.record() with one first")
        with torch.no_grad():
            for name, tensor in named_tensors(self._modules).items():
                tensor.copy_(self._kept[name])

    @property
    def begun(self) -> bool:
        """Whether any value was recorded, also before a resumption."""
        return self.value is not None or self.stale > 0

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The kept weights by name; none before the first value."""
        return self._kept

    def state(self) -> dict[str, Any]:
        """Value and staleness, for a checkpoint, which keeps the tensors apart."""
        return {"value": self.value, "stale": self.stale}

    def load(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Go on from such a state and its tensors, which are moved to where `record` keeps them."""
        self.value, self.stale = state["value"], state["stale"]
        here = named_tensors(self._modules)
        aside = is_large([*here.values()])
        self._kept = {name: tensor.to(HOST if aside else here[name].device) for name, tensor in tensors.items()}

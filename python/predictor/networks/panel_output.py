"""What a network over panels answers, and the check that an answer is that and nothing else."""

from typing import NamedTuple

from torch import Tensor


class PanelOutput(NamedTuple):
    """Forecasts of N rows, panel by panel. Legend: N rows, H horizons, Q quantiles."""

    quantiles: Tensor
    """float32 [N, H, Q] in units of the window's own volatility, rising along Q."""
    scores: Tensor
    """float32 [N, H]: larger is expected to do better than the others of the same panel; without a unit."""


def fault_of(found: object, *, rows: int, horizons: int, levels: int) -> str | None:
    """What keeps a network's answer from being a `PanelOutput` of these sizes; None if nothing does.

    A loss that took what it can find in a wrong answer, such as a dict with other keys, would teach nothing and say
    nothing. The sentence names what was found and what was expected.
    """
    if not isinstance(found, PanelOutput):
        return f"the network returned {_what(found)}; expected PanelOutput(quantiles, scores)"
    return _tensor_fault("quantiles", found.quantiles, (rows, horizons, levels)) or _tensor_fault(
        "scores", found.scores, (rows, horizons)
    )


def _tensor_fault(name: str, value: object, shape: tuple[int, ...]) -> str | None:
    if not isinstance(value, Tensor):
        return f"PanelOutput.{name} is {_what(value)}; expected a tensor of shape {list(shape)}"
    if value.shape != shape:
        return f"PanelOutput.{name} has shape {list(value.shape)}; expected {list(shape)}"
    if not value.is_floating_point():
        return f"PanelOutput.{name} is of {value.dtype}; expected floating point"
    return None


def _what(value: object) -> str:
    match value:
        case Tensor():
            return f"a tensor of shape {list(value.shape)}"
        case dict():
            return f"a dict with the keys {[str(key) for key in value]}"
        case tuple():
            return f"a {type(value).__name__} of {len(value)}"
        case None:
            return "None (is a `return` missing?)"
        case _:
            return f"a {type(value).__name__}"

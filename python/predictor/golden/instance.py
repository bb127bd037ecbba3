"""Recording the golden instance of a model, and running it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictor.artifact import Golden
from predictor.artifact.names import GOLDEN_TEXT
from predictor.bars import BarPanel
from predictor.canonical import Json, Record
from predictor.errors import ArtifactError, QuantraError, answer_of
from predictor.golden.bars import COLUMNS, columns_of, made_up, panel
from predictor.golden.stages import prepare, stages_of, units_in_float64
from predictor.golden.tolerance import MOST_FLOAT32_ERROR, Comparison, off
from predictor.model import Model

Arrays = Mapping[str, NDArray[np.generic]]


def record(model: Model) -> Golden:
    """Make the golden instance of a model, with the numbers that it computes here and now."""
    bars = made_up(model.pipeline)
    stages, exact = stages_of(model, bars), units_in_float64(model, bars)
    text: dict[str, Json] = {
        "symbols": list(bars.symbols),
        "float32_error": float(np.abs(exact - stages["units"].astype(np.float64)).max()),
        "refusals": {name: _refusal(model, bars, spoil) for name, spoil in REFUSALS.items()},
    }
    arrays: dict[str, NDArray[np.generic]] = {"bars.sessions": bars.sessions, "stage.units_float64": exact}
    arrays |= {f"bars.{name}": column for name, column in columns_of(bars).items()}
    arrays |= {f"stage.{name}": values for name, values in stages.items()}
    return Golden(text=text, arrays=arrays)


def check(model: Model, golden: Golden) -> None:
    """Run the golden instance.

    Raises:
        ArtifactError: a stage is off by more than its tolerance, or a bad input is not refused as recorded. The
            message names the file and the stage, which tells where to look.
    """
    symbols, float32_error, refusals = _facts(golden)
    try:
        bars = _bars(symbols, golden.arrays)
        found = stages_of(model, bars)
    except ArtifactError:
        raise
    except QuantraError as error:
        raise off(f"is refused: {error.message}") from error
    comparison = Comparison(
        slack=max(min(4 * float32_error, MOST_FLOAT32_ERROR), model.engine.relative_error),
        scale=model.pipeline.features.scaling.scale,
    )
    for name, values in found.items():
        comparison.check(name, values, _stored(golden.arrays, f"stage.{name}"))
    for name, spoil in REFUSALS.items():
        reason = _refusal(model, bars, spoil)
        if reason != refusals.get(name):
            problem = f"golden instance: {name} is answered {reason!r}, recorded was {refusals.get(name)!r}"
            raise ArtifactError.of(GOLDEN_TEXT, problem)


def _one_bar_too_few(bars: BarPanel) -> BarPanel:
    return bars.last(len(bars.sessions) - 1)


def _high_below_low(bars: BarPanel) -> BarPanel:
    high = bars.high.copy()
    high[1, -1] = bars.low[1, -1] / 2
    return replace(bars, high=high)


REFUSALS: Final[Mapping[str, Callable[[BarPanel], BarPanel]]] = {
    "one bar too few": _one_bar_too_few,
    "high below low": _high_below_low,
}
"""How the bars are spoiled, by the name under which the reason for the refusal is recorded."""


def _refusal(model: Model, bars: BarPanel, spoil: Callable[[BarPanel], BarPanel]) -> str:
    """The reason that spoiled bars are refused with; empty if they are not."""
    try:
        prepare(model, spoil(bars))
    except QuantraError as error:
        return answer_of(error).reason
    return ""


def _facts(golden: Golden) -> tuple[tuple[str, ...], float, Mapping[str, str]]:
    """Symbols, float32 error and refusals."""
    text = Record(golden.text, GOLDEN_TEXT)
    recorded = text.record("refusals")
    refusals = {name: recorded.text(name) for name in recorded.keys()}  # noqa: SIM118 - a Record is no dict
    symbols, float32_error = text.texts("symbols"), text.number("float32_error")
    text.end()
    return symbols, float32_error, refusals


def _bars(symbols: tuple[str, ...], arrays: Arrays) -> BarPanel:
    columns = {name: _stored(arrays, f"bars.{name}").astype(np.float64) for name in COLUMNS}
    return panel(symbols, _stored(arrays, "bars.sessions").astype(np.int32), columns)


def _stored(arrays: Arrays, name: str) -> NDArray[np.generic]:
    if name not in arrays:
        raise off(f"array {name!r} is missing")
    return arrays[name]

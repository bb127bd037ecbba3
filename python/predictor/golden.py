"""The golden instance: bars with every oddity, and what each stage of a forecast must make of them.

It is recorded when a model is trained and run whenever the artifact is loaded. A library that computes differently, a
broken machine, or weights and features that do not belong together show up here, stage by stage, before any forecast.
The bars are made up; symbol ODD has a missing bar, a flat stretch, a split, a dividend and a day without volume,
symbol EVEN has none of these and exactly as many bars as a forecast needs.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.artifact import Golden
from predictor.bars import BarPanel
from predictor.canonical import Json, Record
from predictor.deadline import Deadline
from predictor.errors import ArtifactError, QuantraError, answer_of
from predictor.forecast import Detail
from predictor.instance import Instance, Query
from predictor.model import Model
from predictor.networks import Inputs

Arrays = Mapping[str, NDArray[np.generic]]

SYMBOLS = ("ODD", "EVEN")
PRICE_FIELDS = ("open", "high", "low", "close", "volume", "split_ratio", "cash_dividend")
LONG_AFTER = datetime(9999, 1, 1, tzinfo=UTC)
"""A present in which every session has closed."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a stage may be off: |found - expected| <= absolute + relative * largest |expected|."""

    absolute: float
    relative: float


TOLERANCES: Mapping[str, Tolerance] = {
    "adjusted": Tolerance(0, 1e-12),
    "features": Tolerance(1e-12, 1e-9),
    "observed": Tolerance(1e-6, 0),
    "mask": Tolerance(0, 0),
    "known": Tolerance(1e-6, 0),
    "location": Tolerance(1e-15, 1e-12),
    "scale": Tolerance(0, 1e-12),
    "units": Tolerance(1e-6, 0),
    "values": Tolerance(1e-6, 0),
    "prices": Tolerance(0, 1e-6),
    "anchor_price": Tolerance(0, 0),
    "target_sessions": Tolerance(0, 0),
    "attribution_rows": Tolerance(1e-7, 1e-4),
    "attribution_cells": Tolerance(1e-7, 1e-4),
}
"""Bits differ between processors in log (one unit in the last place) and in float32 sums; hardly elsewhere."""

AFTER_THE_NETWORK = ("units", "values", "prices", "attribution_rows", "attribution_cells")
MOST_FLOAT32_ERROR = 1e-4
"""Bounds how far a recorded float32 error may loosen the check of the network's own stages."""


def record(model: Model) -> Golden:
    """Make the golden instance of a model, with the numbers that it computes here and now."""
    bars = _make_bars(model)
    arrays: dict[str, NDArray[np.generic]] = {f"bars.{name}": _column(bars, name) for name in PRICE_FIELDS}
    arrays["bars.sessions"] = bars.sessions
    stages = _stages(model, bars)
    arrays |= {f"stage.{name}": value for name, value in stages.items()}
    double = _units_in_float64(model, bars)
    arrays["stage.units_float64"] = double
    text: dict[str, Json] = {
        "symbols": list(SYMBOLS),
        "float32_error": float(np.abs(double - stages["units"].astype(np.float64)).max()),
        "refusals": {name: _refusal(model, spoil(bars)) for name, spoil in REFUSALS.items()},
    }
    return Golden(text=text, arrays=arrays)


def check(model: Model, golden: Golden) -> None:
    """Run the golden instance.

    Raises:
        ArtifactError: a stage is off by more than its tolerance, or a bad input is not refused as recorded. The
            message names the stage, which tells where to look.
    """
    try:
        bars, float32_error, refusals = _read(golden)
        found = _stages(model, bars)
    except ArtifactError:
        raise
    except QuantraError as error:
        raise ArtifactError(f"golden instance: is refused: {error.message}") from error
    slack = max(min(4 * float32_error, MOST_FLOAT32_ERROR), model.engine.relative_error)
    for name, value in found.items():
        _compare(name, value, _stored(golden.arrays, f"stage.{name}"), slack=slack)
    for name, spoil in REFUSALS.items():
        reason = _refusal(model, spoil(bars))
        if reason != refusals.get(name):
            raise ArtifactError(f"golden instance: {name} is answered {reason!r}, recorded was {refusals.get(name)!r}")


# --- the stages


def _stages(model: Model, bars: BarPanel) -> dict[str, NDArray[np.generic]]:
    """Everything between bars and answer, by name."""
    instance = Instance(input=bars, allow_incomplete_last_bar=True)
    prepared = model.prepare(instance, LONG_AFTER)
    adjusted = bars.adjusted()
    length = model.pipeline.encoder_length
    forecast = model.forecast([prepared])[0]
    query = Query(instance=instance, targets=model.default_targets()[-1:], detail=Detail.CELLS)
    attribution = model.explain(query, LONG_AFTER, Deadline())[0]
    inputs = {name: group.numpy() for name, group in prepared.inputs._asdict().items() if name != "static"}
    return {
        "adjusted": np.stack(
            [adjusted.open, adjusted.high, adjusted.low, adjusted.close, adjusted.volume, adjusted.money]
        ),
        "features": model.pipeline.features.features.evaluate(adjusted)[:, -length:],
        **inputs,
        "units": model.engine.units(prepared.inputs).numpy(),
        "values": forecast.values,
        **({"prices": forecast.prices} if forecast.prices is not None else {}),
        "anchor_price": bars.close[:, -1],
        "target_sessions": forecast.target_sessions,
        "attribution_rows": attribution.per_row,
        **({"attribution_cells": attribution.cells} if attribution.cells is not None else {}),
    }


def _units_in_float64(model: Model, bars: BarPanel) -> NDArray[np.float64]:
    """The network's output in float64 arithmetic: how far float32 itself is off."""
    prepared = model.prepare(Instance(input=bars, allow_incomplete_last_bar=True), LONG_AFTER)
    network = copy.deepcopy(model.engine.network).cpu().double()
    wide = (group if group.dtype == torch.bool else group.double() for group in prepared.inputs)
    with torch.inference_mode():
        return network(Inputs(*wide)).numpy()


def _compare(name: str, found: NDArray[np.generic], expected: NDArray[np.generic], *, slack: float) -> None:
    tolerance = TOLERANCES[name]
    if found.shape != expected.shape:
        raise ArtifactError(f"golden instance: stage {name} has shape {found.shape}, recorded was {expected.shape}")
    if found.dtype != expected.dtype:
        raise ArtifactError(f"golden instance: stage {name} is {found.dtype}, recorded was {expected.dtype}")
    a, b = found.astype(np.float64), expected.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        raise ArtifactError(f"golden instance: stage {name} is finite in other places than recorded")
    known = np.isfinite(b)
    off = float(np.abs(a[known] - b[known]).max(initial=0.0))
    largest = float(np.abs(b[known]).max(initial=0.0))
    allowed = tolerance.absolute + tolerance.relative * largest
    if name in AFTER_THE_NETWORK:
        allowed = max(allowed, slack * largest)
    if off > allowed:
        raise ArtifactError(
            f"golden instance: stage {name} is off by {off:.3g}, allowed is {allowed:.3g}; the artifact's parts do not "
            "belong together, or this machine's libraries compute differently: train the model again here"
        )


# --- refusals


def _one_bar_too_few(bars: BarPanel) -> Callable[[], Instance]:
    return lambda: Instance(input=bars.last(len(bars.sessions) - 1), allow_incomplete_last_bar=True)


def _high_below_low(bars: BarPanel) -> Callable[[], Instance]:
    high = bars.high.copy()
    high[1, -1] = bars.low[1, -1] / 2
    return lambda: Instance(input=replace(bars, high=high), allow_incomplete_last_bar=True)


REFUSALS: Mapping[str, Callable[[BarPanel], Callable[[], Instance]]] = {
    "one bar too few": _one_bar_too_few,
    "high below low": _high_below_low,
}


def _refusal(model: Model, spoiled: Callable[[], Instance]) -> str:
    """The reason that a spoiled instance is refused with; empty if it is not."""
    try:
        model.prepare(spoiled(), LONG_AFTER)
    except QuantraError as error:
        return answer_of(error).reason
    return ""


# --- the bars


def _make_bars(model: Model) -> BarPanel:
    """Made-up bars of both symbols on the last sessions whose horizons the calendar still holds."""
    calendar, count = model.pipeline.calendar, model.pipeline.bars_needed
    sessions = calendar.sessions(calendar.first, calendar.last)
    sessions = sessions[: -model.pipeline.target.reach][-count:]
    random = np.random.default_rng(20)
    daily = random.normal(0, 0.015, (2, count))
    close = np.array([[90.0], [40.0]]) * np.exp(np.cumsum(daily, axis=1))
    opening = close * np.exp(random.normal(0, 0.004, (2, count)))
    high = np.maximum(opening, close) * (1 + np.abs(random.normal(0, 0.006, (2, count))))
    low = np.minimum(opening, close) * (1 - np.abs(random.normal(0, 0.006, (2, count))))
    volume = np.rint(np.exp(random.normal(14, 0.3, (2, count))))
    columns: dict[str, NDArray[np.float64]] = {
        "open": opening,
        "high": high,
        "low": low,
        "close": close,
        "volume": volume,
        "split_ratio": np.ones((2, count)),
        "cash_dividend": np.zeros((2, count)),
    }
    _spoil(columns)
    return _panel(SYMBOLS, sessions, columns)


def _spoil(columns: Mapping[str, NDArray[np.float64]]) -> None:
    """Give symbol ODD a missing bar, a flat stretch, a split, a dividend and a day without volume, in this order."""
    missing, flat, flat_end, split, dividend, quiet = (
        int(share * columns["close"].shape[1]) for share in (0.54, 0.64, 0.82, 0.86, 0.93, 0.97)
    )
    for name in ("open", "high", "low", "close"):
        columns[name][0, flat:flat_end] = columns["close"][0, flat - 1]
        columns[name][0, split:] /= 3.0
    columns["split_ratio"][0, split] = 3.0
    columns["cash_dividend"][0, dividend] = 0.5
    columns["volume"][0, quiet] = 0.0
    for name in PRICE_FIELDS:
        columns[name][0, missing] = np.nan


def _column(bars: BarPanel, name: str) -> NDArray[np.float64]:
    column: NDArray[np.float64] | None = getattr(bars, name)
    return np.full(bars.close.shape, np.nan) if column is None else column


def _read(golden: Golden) -> tuple[BarPanel, float, Mapping[str, str]]:
    text = Record(golden.text, "golden instance")
    recorded = text.record("refusals")
    refusals = {name: recorded.text(name) for name in recorded.keys()}  # noqa: SIM118 - a Record is no dict
    float32_error = text.number("float32_error")
    symbols = text.texts("symbols")
    text.end()
    columns = {name: _stored(golden.arrays, f"bars.{name}").astype(np.float64) for name in PRICE_FIELDS}
    sessions = _stored(golden.arrays, "bars.sessions").astype(np.int32)
    return _panel(symbols, sessions, columns), float32_error, refusals


def _panel(
    symbols: tuple[str, ...], sessions: NDArray[np.int32], columns: Mapping[str, NDArray[np.float64]]
) -> BarPanel:
    return BarPanel(
        symbols=symbols,
        sessions=sessions,
        open=columns["open"],
        high=columns["high"],
        low=columns["low"],
        close=columns["close"],
        volume=columns["volume"],
        split_ratio=columns["split_ratio"],
        cash_dividend=columns["cash_dividend"],
    )


def _stored(arrays: Arrays, name: str) -> NDArray[np.generic]:
    if name not in arrays:
        raise ArtifactError(f"golden instance: array {name!r} is missing")
    return arrays[name]

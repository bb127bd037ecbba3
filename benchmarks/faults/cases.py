"""Instances that are wrong in one way each, and what each of them must come to."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from google.rpc.code_pb2 import Code

from benchmarks.faults.models import Material
from predictor._pb import prediction_pb2 as pb

PRICES: Final = ("open", "high", "low", "close")
COLUMNS: Final = (*PRICES, "volume", "adj_close")
HOLIDAY, SUNDAY, FUTURE, NO_DATE = 20121225, 20121223, 20990105, 20130230
"""Days on which the model's exchange was closed, one that its calendar does not reach, and none at all."""
_OUR_FAULT: Final = frozenset({Code.Value("UNKNOWN"), Code.Value("INTERNAL")})


@final
@dataclass(frozen=True, slots=True)
class Case:
    """One wrong instance.

    Attributes:
        what: In words.
        instance: To send.
        reason: Of the error that it must get; empty if it is to be answered.
        warning: What one of the answer's warnings says; for what is answered.
    """

    what: str
    instance: pb.Instance
    reason: str
    warning: str = ""


def fault_of(case: Case, result: pb.Result) -> str:
    """What is wrong with the result of a case; empty if it is as it must be."""
    if result.WhichOneof("outcome") != "forecast":
        error = result.error
        is_right = error.reason == case.reason and error.message and error.code not in _OUR_FAULT
        return "" if is_right else f"{case.what}: {error.reason or 'no outcome'}, not {case.reason or 'a forecast'}"
    forecast = result.forecast
    if case.reason:
        return f"{case.what}: a forecast, not {case.reason}"
    if not is_finite(forecast):
        return f"{case.what}: numbers that are none, as if they were a forecast"
    has_told = any(case.warning in warning for warning in forecast.warnings)
    return "" if has_told else f"{case.what}: no warning of {case.warning!r}"


def is_finite(forecast: pb.Forecast) -> bool:
    """Whether it has numbers, and each of them is one."""
    values = np.frombuffer(forecast.values + forecast.returns + forecast.prices, "<f8")
    return len(values) > 0 and bool(np.isfinite(values).all())


Change = Callable[[pb.Instance], None]


def changed(instance: pb.Instance, change: Change) -> pb.Instance:
    """A changed copy."""
    copy = pb.Instance()
    copy.CopyFrom(instance)
    change(copy)
    return copy


def bar(fields: Sequence[str], value: float, day: int = -5, row: int = 0) -> Change:
    """One bar of one symbol has this value in some fields."""

    def change(instance: pb.Instance) -> None:
        panel = instance.bars
        for name in fields:
            values = np.frombuffer(getattr(panel, name), "<f8").reshape(len(panel.symbols), -1).copy()
            values[row, day] = value
            setattr(panel, name, values.tobytes())

    return change


def cell(name: str, value: float) -> Change:
    """The last number of a window's tensor."""

    def change(instance: pb.Instance) -> None:
        tensor: pb.Tensor = getattr(instance.window, name)
        kind = "<f4" if tensor.type == pb.DATA_TYPE_FLOAT32 else "<f8"
        values = np.frombuffer(tensor.data, kind).copy()
        values[-1] = value
        tensor.data = values.tobytes()

    return change


def shape(name: str, *axes: int) -> Change:
    """A tensor that says it has these axes, with the bytes that it had."""

    def change(instance: pb.Instance) -> None:
        tensor: pb.Tensor = getattr(instance.window, name)
        tensor.shape[:] = axes

    return change


def days(move: Callable[[list[int]], list[int]]) -> Change:
    """The dates of the bars, otherwise."""

    def change(instance: pb.Instance) -> None:
        instance.bars.session_yyyymmdd[:] = move(list(instance.bars.session_yyyymmdd))

    return change


def assigned(**fields: object) -> Change:
    """Fields of the bars or of the window; lists take the place of what was there."""

    def change(instance: pb.Instance) -> None:
        target = instance.bars if instance.HasField("bars") else instance.window
        for name, value in fields.items():
            if isinstance(value, list):
                target.ClearField(name)  # pyright: ignore[reportArgumentType] - one of its fields
                getattr(target, name).extend(value)
            else:
                setattr(target, name, value)

    return change


def numbers(material: Material) -> Iterator[Case]:
    """Numbers that are none, or that no market and no feature has."""
    one, window = material.one_stock(), material.window()
    for value in (math.nan, math.inf, -math.inf):
        for name in ("high", "close", "volume", "adj_close"):
            yield Case(f"{name} {value}", changed(one, bar([name], value)), "BARS_INVALID")
        for name in ("observed", "known", "location", "scale"):
            yield Case(f"window {name} {value}", changed(window, cell(name, value)), "INVALID_INPUT")
        prices = assigned(anchor_price=[value])
        yield Case(f"anchor price {value}", changed(window, prices), "INVALID_INPUT")
    for value in (0.0, -1.0):
        yield Case(f"close {value:g}", changed(one, bar(["close"], value)), "BARS_INVALID")
        yield Case(f"scale {value:g}", changed(window, cell("scale", value)), "INVALID_INPUT")
    yield Case("no last bar", changed(one, bar(COLUMNS, math.nan, -1)), "NO_USABLE_SYMBOL")
    yield Case("a volume below 0", changed(one, bar(["volume"], -1.0)), "BARS_INVALID")
    yield Case("a close of 1e38", changed(one, bar(["close"], 1e38)), "BARS_INVALID")
    yield Case("a day of 1e38", changed(one, bar((*PRICES, "adj_close"), 1e38)), "NO_USABLE_SYMBOL")
    yield Case("window observed 1e38", changed(window, cell("observed", 1e38)), "INVALID_INPUT")
    yield Case("window scale 1e38", changed(window, cell("scale", 1e38)), "INVALID_INPUT")


def shapes(material: Material) -> Iterator[Case]:
    """Arrays of other shapes, and features that are not the model's."""
    one, window = material.one_stock(), material.window()
    rows, sessions, features = window.window.observed.shape
    axes: Mapping[str, tuple[str, Sequence[int]]] = {
        "two axes exchanged": ("WINDOW_SHAPE", (rows, features, sessions)),
        "a negative axis": ("MALFORMED_REQUEST", (rows, -sessions, -features)),
        "the smallest axis there is": ("MALFORMED_REQUEST", (rows, -(1 << 63), features)),
        "axes whose product is 0 in 64 bits": ("REQUEST_TOO_LARGE", (rows, 1 << 32, 1 << 32)),
        "the largest axis there is": ("REQUEST_TOO_LARGE", (rows, (1 << 63) - 1, features)),
        "an empty axis": ("MALFORMED_REQUEST", (rows, 0, features)),
        "no axes": ("MALFORMED_REQUEST", ()),
        "one axis too many": ("MALFORMED_REQUEST", (rows, sessions, features, 1)),
        "another number of rows": ("MALFORMED_REQUEST", (rows + 1, sessions, features)),
    }
    for what, (reason, lengths) in axes.items():
        yield Case(what, changed(window, shape("observed", *lengths)), reason)
    yield Case(
        "no observed features", changed(window, lambda one: one.window.ClearField("observed")), "MALFORMED_REQUEST"
    )
    yield Case("bytes of half a tensor", changed(window, _halved), "MALFORMED_REQUEST")
    yield Case("another type", changed(window, _of_type(pb.DATA_TYPE_FLOAT64)), "MALFORMED_REQUEST")
    yield Case("an unknown type", changed(window, _of_type(99)), "MALFORMED_REQUEST")
    yield Case("another schema", changed(window, assigned(schema_hash="0" * 16)), "FEATURE_MISMATCH")
    yield Case("an unknown feature", changed(window, assigned(features=["x"])), "UNKNOWN_FEATURE")
    yield Case("two symbols, one row", changed(window, assigned(symbols=["A", "B"])), "MALFORMED_REQUEST")
    yield Case("no symbols", changed(one, assigned(symbols=[])), "MALFORMED_REQUEST")
    yield Case("a symbol twice", changed(one, assigned(symbols=["A", "A"])), "MALFORMED_REQUEST")
    yield Case("closes of half a bar", changed(one, assigned(close=one.bars.close[:-4])), "MALFORMED_REQUEST")
    yield Case("no closes", changed(one, assigned(close=b"")), "MALFORMED_REQUEST")
    yield Case("adj_close and splits", changed(one, assigned(split_ratio=one.bars.close)), "BARS_INVALID")
    yield Case("an unknown covariate", changed(one, _with_covariate), "UNKNOWN_COVARIATE")
    yield Case("neither bars nor a window", pb.Instance(), "MALFORMED_REQUEST")


def features(material: Material, names: Sequence[str]) -> Iterator[Case]:
    """Windows whose features, `names` of the model, are missing or stand in another order."""
    window = material.window()
    yield Case("a feature missing", changed(window, assigned(features=list(names[:-1]))), "FEATURE_MISMATCH")
    yield Case("features in another order", changed(window, assigned(features=list(names[::-1]))), "FEATURE_MISMATCH")


def dates(material: Material) -> Iterator[Case]:
    """Days that no market had, and what a split without its column looks like."""
    one, window = material.one_stock(), material.window()
    yield Case("a day twice", changed(one, days(lambda had: [*had[:50], had[49], *had[51:]])), "BARS_INVALID")
    yield Case("two days exchanged", changed(one, days(_exchanged)), "BARS_INVALID")
    yield Case("the newest day first", changed(one, days(lambda had: had[::-1])), "BARS_INVALID")
    yield Case("a day that is none", changed(one, days(lambda had: [*had[:-1], NO_DATE])), "BARS_INVALID")
    yield Case("day 0", changed(one, days(lambda had: [0, *had[1:]])), "BARS_INVALID")
    yield Case("a bar of a holiday", changed(one, days(_in_place_of(HOLIDAY))), "BARS_INVALID")
    yield Case("a bar of a Sunday", changed(one, days(_in_place_of(SUNDAY))), "BARS_INVALID")
    yield Case("a bar of the future", changed(one, days(lambda had: [*had[:-1], FUTURE])), "CALENDAR_ENDED")
    yield Case("a session that is missing", changed(one, _without_a_day), "SESSION_GAP")
    yield Case("another exchange", changed(one, assigned(calendar="XLON")), "BARS_INVALID")
    yield Case("hourly bars", changed(one, assigned(interval=7)), "MALFORMED_REQUEST")
    yield Case("an unknown way with gaps", changed(one, assigned(gap_policy=9)), "MALFORMED_REQUEST")
    yield Case("a window of a Sunday", changed(window, assigned(as_of_session=SUNDAY)), "INVALID_INPUT")
    yield Case("a split without its column", changed(one, _split), "", "split or crash")


def _halved(instance: pb.Instance) -> None:
    tensor = instance.window.observed
    tensor.data = tensor.data[: len(tensor.data) // 2]


def _of_type(kind: int) -> Change:
    def change(instance: pb.Instance) -> None:
        instance.window.observed.type = kind  # pyright: ignore[reportAttributeAccessIssue] - any number goes over the wire

    return change


def _with_covariate(instance: pb.Instance) -> None:
    values = instance.bars.close
    instance.covariates.observed.append(pb.CovariateValues(name="weather", values=values))


def _exchanged(sessions: list[int]) -> list[int]:
    return [*sessions[:50], sessions[51], sessions[50], *sessions[52:]]


def _in_place_of(day: int) -> Callable[[list[int]], list[int]]:
    """The day in the place of the session after it."""
    return lambda sessions: sorted([*(one for one in sessions if one != min(s for s in sessions if s > day)), day])


def _without_a_day(instance: pb.Instance) -> None:
    panel = instance.bars
    panel.session_yyyymmdd[:] = [*panel.session_yyyymmdd[:-10], *panel.session_yyyymmdd[-9:]]
    for name in COLUMNS:
        values = np.frombuffer(getattr(panel, name), "<f8").reshape(len(panel.symbols), -1)
        setattr(panel, name, np.delete(values, -10, axis=1).tobytes())


def _split(instance: pb.Instance) -> None:
    """Prices half as high from one day on, and nothing that says why."""
    panel = instance.bars
    for name in PRICES:
        values = np.frombuffer(getattr(panel, name), "<f8").copy()
        values[-20:] /= 2
        setattr(panel, name, values.tobytes())
    panel.ClearField("adj_close")

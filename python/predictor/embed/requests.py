"""Requests to the values that every door exchanges."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.covariates import Covariates
from predictor.embed.fields import FLOAT32, FLOAT64, INT32, AnyArray, Fields, wrong
from predictor.errors import MalformedRequestError, QuantraError
from predictor.forecast import Detail, TargetPoint
from predictor.instance import LEAST_TOLERANCE, FeatureWindow, GapPolicy, Instance, Query
from predictor.wire.limits import MAX_FEATURES, MAX_SESSIONS, MAX_SYMBOLS, MAX_TARGETS, check_count, check_text

DEFAULT_TOLERANCE: Final = 0.01


def model(asked: Fields) -> str:
    """The reference of the model that the request names."""
    return _short(asked, "model")


def instance_or_error(asked: Fields) -> Instance | QuantraError:
    """One instance, or what is wrong with it."""
    try:
        return _instance(asked)
    except QuantraError as error:
        return error


def _instance(asked: Fields) -> Instance:
    request_id = _short(asked, "request_id")
    if asked.has("bars") == asked.has("window"):
        raise MalformedRequestError(f"{asked.path}: send bars or a window", metadata={"field": "input"})
    if asked.has("window") and asked.has("covariates"):
        raise MalformedRequestError(f"{asked.path}: covariates go with bars", metadata={"field": "covariates"})
    if asked.has("window"):
        return Instance(request_id=request_id, input=_window(asked.nested("window")))
    panel = _bars(asked.nested("bars"))
    return Instance(
        request_id=request_id,
        input=panel,
        covariates=_covariates(asked.nested("covariates")) if asked.has("covariates") else Covariates(),
        allow_incomplete_last_bar=asked.flag("allow_incomplete_last_bar"),
        gap_policy=GapPolicy(_one_of(asked, "gap_policy", tuple(GapPolicy))),
    )


def _one_of(asked: Fields, name: str, known: Sequence[str]) -> str:
    value = asked.text(name)
    if value not in known:
        raise wrong(f"{asked.path}.{name}", value, f"one of {', '.join(known)}")
    return value


def _symbols(asked: Fields) -> tuple[str, ...]:
    names = _names(asked, "symbols", MAX_SYMBOLS)
    if not names:
        raise MalformedRequestError("symbols: have 0, need at least 1; name each row", metadata={"field": "symbols"})
    return names


def _bars(asked: Fields) -> BarPanel:
    names = _symbols(asked)
    sessions = asked.array("sessions", INT32, 1)
    check_count(f"{asked.path}.sessions", sessions.size, MAX_SESSIONS)
    shape = (len(names), sessions.size)

    def column(name: str) -> NDArray[np.float64]:
        return _shaped(asked.array(name, FLOAT64, 2), shape, f"{asked.path}.{name}")

    def optional(name: str) -> NDArray[np.float64] | None:
        return column(name) if asked.has(name) else None

    return BarPanel(
        symbols=names,
        sessions=sessions,
        open=column("open"),
        high=column("high"),
        low=column("low"),
        close=column("close"),
        volume=column("volume"),
        adj_close=optional("adj_close"),
        split_ratio=optional("split_ratio"),
        cash_dividend=optional("cash_dividend"),
        calendar=_short(asked, "calendar"),
        currency=_short(asked, "currency"),
    )


def _covariates(asked: Fields) -> Covariates:
    """Values and texts by name; how they fit the bars is judged where the model is known."""

    def named(group: str) -> dict[str, Fields]:
        items = asked.objects(group, MAX_FEATURES)
        by_name = {_short(item, "name"): item for item in items}
        if len(by_name) != len(items):
            raise wrong(f"{asked.path}.{group}", [item.text("name") for item in items], "each name once")
        return by_name

    def values(group: str, rank: int) -> dict[str, NDArray[np.float64]]:
        return {name: one.array("values", FLOAT64, rank) for name, one in named(group).items()}

    return Covariates(
        observed=values("observed", 2),
        known=values("known", 2),
        future_sessions=asked.array("future_sessions", INT32, 1),
        numbers=values("numbers", 1),
        categories={name: _names(one, "values", MAX_SYMBOLS) for name, one in named("categories").items()},
    )


def _shaped(values: AnyArray, shape: tuple[int, ...], path: str) -> AnyArray:
    if values.shape != shape:
        raise wrong(path, list(values.shape), f"shape {list(shape)}")
    return values


def _window(asked: Fields) -> FeatureWindow:
    names = _symbols(asked)
    rows = (len(names),)
    observed = asked.array("observed", FLOAT32, 3)

    def by_symbol(name: str, kind: np.dtype[Any], *ranks: int) -> AnyArray:
        values = asked.array(name, kind, *ranks)
        return _shaped(values, rows + values.shape[1:], f"{asked.path}.{name}")

    def mask() -> NDArray[np.bool_]:
        return _shaped(asked.truths("mask", 3), observed.shape, f"{asked.path}.mask")

    return FeatureWindow(
        symbols=names,
        observed=by_symbol("observed", FLOAT32, 3),
        known=by_symbol("known", FLOAT32, 3),
        static=by_symbol("static", FLOAT32, 2),
        mask=mask() if asked.has("mask") else np.ones(observed.shape, np.bool_),
        location=by_symbol("location", FLOAT64, 1, 2),
        scale=by_symbol("scale", FLOAT64, 1, 2),
        schema_hash=_short(asked, "schema_hash"),
        anchor_price=by_symbol("anchor_price", FLOAT64, 1) if asked.has("anchor_price") else None,
        as_of_session=asked.whole("as_of_session"),
        features=_names(asked, "features", MAX_FEATURES),
    )


def _short(asked: Fields, field: str) -> str:
    """A text as short as a name."""
    text = asked.text(field)
    check_text(field, text)
    return text


def _names(asked: Fields, field: str, most: int) -> tuple[str, ...]:
    names = asked.texts(field, most)
    for name in names:
        check_text(field, name)
    return names


def query(asked: Fields) -> Query:
    """The question for an explanation."""
    tolerance = asked.number("tolerance")
    if tolerance != 0 and not LEAST_TOLERANCE <= tolerance < 1:
        wanted = f"a number from {LEAST_TOLERANCE:g} to below 1, or 0 for {DEFAULT_TOLERANCE:g}"
        raise wrong(f"{asked.path}.tolerance", tolerance, wanted)
    targets = asked.objects("targets", MAX_TARGETS)
    return Query(
        instance=_instance(asked.nested("instance")),
        targets=tuple(TargetPoint(target.whole("horizon"), target.number("quantile")) for target in targets),
        detail=Detail(_one_of(asked, "detail", tuple(Detail))),
        tolerance=tolerance or DEFAULT_TOLERANCE,
        symbols=_names(asked, "symbols", MAX_SYMBOLS),
    )

"""What a host describes in JSON and buffers is read field by field into what was meant."""

import json
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from artifacts import recent_bars
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.embed import requests
from predictor.embed.fields import Fields
from predictor.errors import MalformedRequestError
from predictor.forecast import Detail, TargetPoint
from predictor.instance import FeatureWindow, GapPolicy, Instance

Json = dict[str, Any]
AnyArray = NDArray[Any]
SYMBOLS = ("AAPL", "IBM")
POLICY: Json = {"request_id": "r", "gap_policy": "refuse", "allow_incomplete_last_bar": False}


class Buffers:
    """The arrays of a request, each named by its place."""

    def __init__(self) -> None:
        self.all: list[AnyArray] = []

    def place(self, values: AnyArray) -> Json:
        """Keep an array, and say where it is."""
        self.all.append(np.ascontiguousarray(values).ravel())
        return {"buffer": len(self.all) - 1, "shape": list(values.shape)}


def asked(values: Json, buffers: Buffers) -> Fields:
    return Fields.parse("request", json.dumps(values), buffers.all)


def read(values: Json, buffers: Buffers) -> Instance:
    found = requests.instance_or_error(asked(POLICY | values, buffers))
    assert isinstance(found, Instance)
    return found


def assert_same(mine: BarPanel | FeatureWindow, other: BarPanel | FeatureWindow) -> None:
    for field in fields(other):
        one, two = getattr(mine, field.name), getattr(other, field.name)
        if isinstance(two, np.ndarray):
            np.testing.assert_array_equal(one, two, err_msg=field.name)
        else:
            assert one == two, field.name


def described(value: BarPanel | FeatureWindow, buffers: Buffers) -> Json:
    """Every field of a panel or a window, as a host sends it."""
    told: Json = {}
    for field in fields(value):
        content = getattr(value, field.name)
        if isinstance(content, np.ndarray):
            told[field.name] = buffers.place(content.view(np.uint8) if content.dtype == np.bool_ else content)
        else:
            told[field.name] = content
    return told


def panel() -> BarPanel:
    """Bars with an adjusted close."""
    return recent_bars(*SYMBOLS).last(3)


def panel_with_splits() -> BarPanel:
    """The same bars with splits and dividends instead."""
    splits = np.array([[1.0, 2.0, 1.0], [1.0, 1.0, 3.0]])
    dividends = np.array([[0.0, 0.5, 0.0], [0.25, 0.0, 0.0]])
    return replace(panel(), adj_close=None, split_ratio=splits, cash_dividend=dividends)


def window() -> FeatureWindow:
    random = np.random.default_rng(0)
    return FeatureWindow(
        symbols=SYMBOLS,
        observed=random.normal(size=(2, 4, 3)).astype(np.float32),
        known=random.normal(size=(2, 6, 2)).astype(np.float32),
        static=random.normal(size=(2, 1)).astype(np.float32),
        mask=random.random((2, 4, 3)) > 0.5,
        location=random.normal(size=2),
        scale=1 + random.random(2),
        schema_hash="s" * 64,
        anchor_price=np.array([1.1, 2.2]),
        as_of_session=20130301,
        features=("gap", "ret_1", "vol_20"),
    )


@pytest.mark.parametrize("sent", [panel(), panel_with_splits()], ids=["adjusted close", "splits"])
def test_every_field_of_a_panel_is_read(sent: BarPanel) -> None:
    buffers = Buffers()
    found = read({"bars": described(sent, buffers)}, buffers).input
    assert isinstance(found, BarPanel)
    assert_same(found, sent)


def test_every_field_of_a_window_is_read() -> None:
    buffers, sent = Buffers(), window()
    found = read({"window": described(sent, buffers)}, buffers).input
    assert isinstance(found, FeatureWindow)
    assert_same(found, sent)


def test_each_group_of_covariates_is_read() -> None:
    buffers = Buffers()
    observed, known, cap = np.full((2, 3), 1.5), np.full((2, 5), 2.5), np.array([3.5, 4.5])
    told = {
        "observed": [{"name": "short_interest", "values": buffers.place(observed)}],
        "known": [{"name": "earnings", "values": buffers.place(known)}],
        "future_sessions": buffers.place(np.array([20130304, 20130305], np.int32)),
        "numbers": [{"name": "cap", "values": buffers.place(cap)}],
        "categories": [{"name": "sector", "values": ["Tech", ""]}],
    }
    found = read({"bars": described(panel(), buffers), "covariates": told}, buffers).covariates
    assert [list(group) for group in (found.observed, found.known, found.numbers)] == [
        ["short_interest"],
        ["earnings"],
        ["cap"],
    ]
    np.testing.assert_array_equal(found.observed["short_interest"], observed)
    np.testing.assert_array_equal(found.known["earnings"], known)
    np.testing.assert_array_equal(found.numbers["cap"], cap)
    assert found.future_sessions.tolist() == [20130304, 20130305]
    assert found.categories == {"sector": ("Tech", "")}


@pytest.mark.parametrize("policy", list(GapPolicy))
def test_the_gap_policy_is_the_one_that_was_asked_for(policy: GapPolicy) -> None:
    buffers = Buffers()
    assert read({"bars": described(panel(), buffers), "gap_policy": policy}, buffers).gap_policy is policy


@pytest.mark.parametrize("allowed", [True, False])
def test_a_last_bar_without_its_close_is_allowed_where_the_host_says_so(*, allowed: bool) -> None:
    buffers = Buffers()
    told = {"bars": described(panel(), buffers), "allow_incomplete_last_bar": allowed}
    assert read(told, buffers).allow_incomplete_last_bar is allowed


@pytest.mark.parametrize("tolerance", [-0.1, 9.9e-5, 1.0])
def test_a_tolerance_that_no_gap_can_meet_is_refused_naming_the_least(tolerance: float) -> None:
    buffers = Buffers()
    told: Json = {"instance": POLICY | {"bars": described(panel(), buffers)}, "tolerance": tolerance}
    with pytest.raises(MalformedRequestError, match=r"from 0\.0001 to below 1"):
        requests.query(asked(told, buffers))


@pytest.mark.parametrize(("sent", "meant"), [(0.25, 0.25), (1e-4, 1e-4), (0, 0.01)])
def test_a_question_for_reasons_is_read_whole(sent: float, meant: float) -> None:
    buffers = Buffers()
    told: Json = {
        "instance": POLICY | {"bars": described(panel(), buffers)},
        "targets": [{"horizon": 5, "quantile": 0.9}, {"horizon": 1, "quantile": 0.5}],
        "detail": "cells",
        "tolerance": sent,
        "symbols": ["IBM"],
    }
    query = requests.query(asked(told, buffers))
    assert query.targets == (TargetPoint(5, 0.9), TargetPoint(1, 0.5))
    assert (query.detail, query.tolerance, query.symbols) == (Detail("cells"), meant, ("IBM",))

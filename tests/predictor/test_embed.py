import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifacts import recent_bars, save_small_artifact, small_models
from market import without_last_bar
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.embed import Door, open_door
from predictor.forecast import Forecast, TargetPoint
from predictor.forecaster import Forecaster
from predictor.instance import Deadline, Instance, Query
from predictor.service import PredictionService

OPTIONS = json.dumps({"device": "cpu", "max_batch_rows": 256, "threads": 1})
COLUMNS = ("sessions", "open", "high", "low", "close", "volume", "adj_close")
Json = dict[str, Any]
AnyArray = NDArray[Any]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def door(models: Path) -> Iterator[Door]:
    opened, text = open_door(str(models), OPTIONS)
    assert opened is not None
    assert json.loads(text) == {"problems": []}
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def service(models: Path) -> Iterator[PredictionService]:
    with PredictionService.open(models, device="cpu") as opened:
        yield opened


def buffers_of(bars: BarPanel) -> list[AnyArray]:
    """Flat buffers, as a host has them."""
    return [np.ascontiguousarray(getattr(bars, name)).ravel() for name in COLUMNS]


def instance(bars: BarPanel, **changes: object) -> Json:
    arrays = {name: {"buffer": place, "shape": list(getattr(bars, name).shape)} for place, name in enumerate(COLUMNS)}
    described = {"symbols": bars.symbols, "calendar": bars.calendar, "currency": bars.currency, **arrays, **changes}
    return {"request_id": "r", "gap_policy": "refuse", "allow_incomplete_last_bar": False, "bars": described}


def question(*instances: Json, **changes: object) -> str:
    return json.dumps({"model": "small", "timeout_s": 30.0, "instances": instances, **changes})


def answer(door: Door, text: str, buffers: list[AnyArray]) -> tuple[Json, list[Any]]:
    reply, arrays = door.predict(text, buffers).reply()
    return json.loads(reply), arrays


def reason(reply: Json) -> str:
    return reply["error"]["reason"]


def test_a_forecast_has_the_services_numbers(door: Door, service: PredictionService) -> None:
    bars = recent_bars("AAPL", "IBM")
    reply, arrays = answer(door, question(instance(bars)), buffers_of(bars))
    expected = service.predict("small", [Instance(input=bars)], Deadline()).result()[0]
    assert isinstance(expected, Forecast)
    found = reply["results"][0]["forecast"]
    assert found["values"]["shape"] == [2, 4, 3]
    np.testing.assert_array_equal(arrays[found["values"]["buffer"]], expected.values)
    assert expected.prices is not None
    np.testing.assert_array_equal(arrays[found["prices"]["buffer"]], expected.prices)
    assert found["forecast_id"] == expected.forecast_id
    assert found["target_sessions"] == expected.target_sessions.tolist()


def test_an_explanation_has_the_services_numbers(door: Door, service: PredictionService) -> None:
    bars = recent_bars("AAPL")
    asked = {
        "model": "small",
        "timeout_s": 30,
        "instance": instance(bars),
        "targets": [{"horizon": 5, "quantile": 0.5}],
        "detail": "features",
        "tolerance": 0,
        "symbols": [],
    }
    text, arrays = door.explain(json.dumps(asked), buffers_of(bars)).reply()
    query = Query(instance=Instance(input=bars), targets=(TargetPoint(5, 0.5),))
    expected = service.explain("small", query, Deadline()).result().attributions[0]
    found = json.loads(text)["attributions"][0]
    np.testing.assert_array_equal(arrays[found["per_row"]["buffer"]], expected.per_row)
    assert found["cells"] is None
    assert found["row_kinds"] == list(expected.row_kinds)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that ranks and one that tells its internals."""
    folder = tmp_path_factory.mktemp("others")
    for kind in ("graph", "tft"):
        save_small_artifact(folder / kind / "1", kind)
    return folder


@pytest.fixture(scope="module")
def other_door(others: Path) -> Iterator[Door]:
    opened, _ = open_door(str(others), OPTIONS)
    assert opened is not None
    yield opened
    opened.close()


def test_a_ranking_has_the_forecasters_numbers(other_door: Door, others: Path) -> None:
    bars = without_last_bar(recent_bars("AAPL", "GOOG", "IBM"), "GOOG")
    reply, arrays = answer(other_door, question(instance(bars), model="graph"), buffers_of(bars))
    with Forecaster.load(others / "graph" / "1", device="cpu") as forecaster:
        expected = forecaster.predict(bars)
    found = reply["results"][0]["forecast"]
    assert expected.scores is not None and expected.ranks is not None  # noqa: PT018
    np.testing.assert_array_equal(arrays[found["scores"]["buffer"]], expected.scores)
    assert found["ranks"] == expected.ranks.tolist()
    assert found["universe_hash"] == expected.universe_hash


def test_a_model_that_does_not_rank_has_null_for_ranks(door: Door) -> None:
    bars = recent_bars("AAPL")
    found = answer(door, question(instance(bars)), buffers_of(bars))[0]["results"][0]["forecast"]
    assert (found["scores"], found["ranks"], found["universe_hash"]) == (None, None, "")


def test_internals_have_the_forecasters_numbers(other_door: Door, others: Path) -> None:
    bars = recent_bars("AAPL", "IBM")
    asked = {
        "model": "tft",
        "timeout_s": 30,
        "instance": instance(bars),
        "targets": [{"horizon": 5, "quantile": 0.5}],
        "detail": "features",
        "tolerance": 0,
        "symbols": [],
    }
    text, arrays = other_door.explain(json.dumps(asked), buffers_of(bars)).reply()
    with Forecaster.load(others / "tft" / "1", device="cpu") as forecaster:
        expected = forecaster.feature_importance(bars).internals
    found = json.loads(text)["attributions"][0]["internals"]
    assert [one["name"] for one in found] == [one.name for one in expected]
    for mine, one in zip(found, expected, strict=True):
        assert mine["labels"] == list(one.labels)
        np.testing.assert_array_equal(arrays[mine["values"]["buffer"]], one.values)


def test_every_array_of_a_reply_is_contiguous_float64(door: Door) -> None:
    bars = recent_bars("AAPL")
    _, arrays = answer(door, question(instance(bars)), buffers_of(bars))
    assert all(array.flags.c_contiguous and array.dtype == np.float64 for array in arrays)


def test_one_bad_instance_does_not_fail_the_others(door: Door) -> None:
    bars = recent_bars("AAPL")
    bad = instance(bars, symbols=[])
    reply, _ = answer(door, question(bad, instance(bars)), buffers_of(bars))
    assert [sorted(result) for result in reply["results"]] == [["error", "request_id"], ["forecast", "request_id"]]
    assert reason(reply["results"][0]) == "MALFORMED_REQUEST"


def test_an_error_has_the_same_four_facts_as_on_the_wire(door: Door) -> None:
    bars = recent_bars("AAPL").last(20)
    reply, _ = answer(door, question(instance(bars)), buffers_of(bars))
    error = reply["results"][0]["error"]
    assert (error["status"], error["reason"]) == ("INVALID_ARGUMENT", "TOO_FEW_BARS")
    assert error["metadata"]["have"] == "20"
    assert "20" in error["message"]


@pytest.mark.parametrize(
    "change",
    [
        {"open": {"buffer": 99, "shape": [1, 200]}},
        {"open": {"buffer": 1, "shape": [1, 199]}},
        {"open": {"buffer": 1, "shape": [200, 1]}},
        {"open": {"buffer": 1, "shape": [-1, -200]}},
        {"open": {"buffer": 1, "shape": [1, 200, 1]}},
        {"open": {"buffer": True, "shape": [1, 200]}},
        {"open": {"buffer": 0, "shape": [1, 200]}},
        {"open": [1.0, 2.0]},
        {"symbols": "AAPL"},
        {"symbols": [1]},
        {"calendar": None},
    ],
    ids=str,
)
def test_a_panel_that_breaks_the_layout_is_refused(door: Door, change: Json) -> None:
    bars = recent_bars("AAPL")
    reply, _ = answer(door, question(instance(bars, **change)), buffers_of(bars))
    assert reason(reply["results"][0]) == "MALFORMED_REQUEST"


@pytest.mark.parametrize("field", ["calendar", "currency"])
def test_a_text_that_is_too_long_for_a_name_is_refused_as_on_the_wire(door: Door, field: str) -> None:
    bars = recent_bars("AAPL")
    reply, _ = answer(door, question(instance(bars, **{field: "Z" * 257})), buffers_of(bars))
    error = reply["results"][0]["error"]
    assert (error["reason"], error["metadata"]) == (
        "REQUEST_TOO_LARGE",
        {"field": field, "have": "257", "most": "256"},
    )


@pytest.mark.parametrize("text", ["", "[]", "{", '{"model": 1}', '{"model": "small", "timeout_s": true}'])
def test_text_that_is_no_question_is_refused(door: Door, text: str) -> None:
    reply, _ = answer(door, text, [])
    assert reason(reply) == "MALFORMED_REQUEST"


def test_a_question_without_instances_is_refused(door: Door) -> None:
    reply, _ = answer(door, question(), [])
    assert reason(reply) == "MALFORMED_REQUEST"


def test_an_unknown_model_is_the_calls_error(door: Door) -> None:
    bars = recent_bars("AAPL")
    reply, _ = answer(door, question(instance(bars), model="large"), buffers_of(bars))
    assert reason(reply) == "MODEL_NOT_FOUND"
    assert reason(json.loads(door.get_model("small@7"))) == "VERSION_NOT_FOUND"


def test_the_models_are_described(door: Door) -> None:
    listed = json.loads(door.list_models())["models"]
    assert [model["name"] for model in listed] == ["small"]
    assert json.loads(door.get_model("small@1"))["model"] == listed[0]


def test_the_host_is_told_when_an_answer_is_there(door: Door) -> None:
    bars, told = recent_bars("AAPL"), threading.Event()
    pending = door.predict(question(instance(bars)), buffers_of(bars))
    pending.when_done(told.set)
    assert told.wait(timeout=30)
    assert "results" in json.loads(pending.reply()[0])


def test_a_call_whose_time_is_over_is_not_computed(door: Door) -> None:
    bars = recent_bars("AAPL")
    reply, _ = answer(door, question(instance(bars), timeout_s=0), buffers_of(bars))
    assert reason(reply) == "DEADLINE_EXCEEDED"


def test_a_folder_without_models_is_refused(tmp_path: Path) -> None:
    opened, text = open_door(str(tmp_path), OPTIONS)
    assert opened is None
    assert reason(json.loads(text)) == "CONFIGURATION_INVALID"


def test_an_alias_that_leads_nowhere_is_a_problem(tmp_path: Path) -> None:
    small_models(tmp_path)
    (tmp_path / "small" / "aliases.json").write_text('{"champion": 1, "canary": 9}')
    opened, text = open_door(str(tmp_path), OPTIONS)
    assert opened is not None
    (problem,) = json.loads(text)["problems"]
    assert problem["reason"] == "ARTIFACT_INVALID"
    assert "alias 'canary' names version 9, which is missing" in problem["message"]
    assert "version 9, which is missing" in json.loads(opened.get_model("small@canary"))["error"]["message"]
    opened.close()


def test_a_truth_value_that_is_neither_0_nor_1_is_refused(door: Door) -> None:
    buffers: list[AnyArray] = [np.zeros(60, np.float32), np.full(60, 2, np.uint8), np.zeros(0, np.float32), np.ones(1)]
    window = {
        "symbols": ["A"],
        "observed": {"buffer": 0, "shape": [1, 60, 1]},
        "known": {"buffer": 2, "shape": [1, 80, 0]},
        "static": {"buffer": 2, "shape": [1, 0]},
        "mask": {"buffer": 1, "shape": [1, 60, 1]},
        "location": {"buffer": 3, "shape": [1]},
        "scale": {"buffer": 3, "shape": [1]},
        "schema_hash": "x",
        "features": [],
        "as_of_session": 0,
    }
    asked = {"request_id": "w", "window": window}
    reply, _ = answer(door, question(asked), buffers)
    assert "0 or 1" in reply["results"][0]["error"]["message"]

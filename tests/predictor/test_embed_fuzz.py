"""Whatever JSON and buffers a host sends, the embedded door answers: with what was asked, or with an error's reason."""

import copy
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import covariate_files
import numpy as np
import pytest
from artifacts import recent_bars, small_models

from predictor.bars import BarPanel
from predictor.embed import Door, open_door
from predictor.errors import ANSWERS

OPTIONS = {"device": "cpu", "max_batch_rows": 256, "threads": 1}
COLUMNS = ("sessions", "open", "high", "low", "close", "volume", "adj_close")
REASONS = {answer.reason for answer in ANSWERS.values()} - {"INTERNAL"}
HUGE = 10**400
DEEP = 100_000
Json = dict[str, Any]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """Of a model, and of one that reads covariates."""
    folder = small_models(tmp_path_factory.mktemp("models"))
    covariate_files.save_artifact_with(
        folder / "covariates" / "1", covariate_files.source(tmp_path_factory.mktemp("files"))
    )
    opened, _ = open_door(str(folder), json.dumps(OPTIONS))
    assert opened is not None
    yield opened
    opened.close()


def place(buffer: int, *shape: int) -> Json:
    return {"buffer": buffer, "shape": list(shape)}


BARS: BarPanel = recent_bars("AAPL")
BUFFERS: Sequence[object] = (
    *(np.ascontiguousarray(getattr(BARS, name)).ravel() for name in COLUMNS),
    np.zeros(0), np.zeros(3, np.float32), b"abc", bytearray(), np.zeros(200)[::2], np.zeros(200, complex),
    np.zeros(200, ">f8"), np.zeros(3, "M8[s]"), np.full(200, np.nan), memoryview(b"abcd").cast("I"),
    np.zeros(200, np.int32), np.array(["text"], object), None, "text", 5,
)  # fmt: skip
INSTANCE: Json = {
    "request_id": "r",
    "gap_policy": "refuse",
    "allow_incomplete_last_bar": False,
    "bars": {
        "symbols": ["AAPL"],
        "calendar": "XNYS",
        "currency": "USD",
        **{name: place(k, *getattr(BARS, name).shape) for k, name in enumerate(COLUMNS)},
    },
}
COVARIATES: Json = {
    "observed": [{"name": "short_interest", "values": place(1, 1, 200)}],
    "known": [{"name": "rebalance", "values": place(1, 1, 200)}],
    "numbers": [{"name": "cap", "values": place(7, 0)}],
    "future_sessions": place(0, 200),
    "categories": [{"name": "sector", "values": ["Hardware"]}],
}
WINDOW: Json = {
    "symbols": ["A"],
    "observed": place(7, 1, 60, 0),
    "known": place(7, 1, 80, 0),
    "static": place(7, 1, 0),
    "mask": place(7, 1, 60, 0),
    "location": place(3, 1),
    "scale": place(3, 1),
    "anchor_price": place(3, 1),
    "schema_hash": "x",
    "features": ["a"],
    "as_of_session": 0,
}
PREDICT: Json = {
    "model": "covariates",
    "timeout_s": 30.0,
    "instances": [INSTANCE, {**INSTANCE, "covariates": COVARIATES}, {"request_id": "w", "window": WINDOW}],
}
EXPLAIN: Json = {
    "model": "small",
    "timeout_s": 30.0,
    "instance": INSTANCE,
    "targets": [{"horizon": 5, "quantile": 0.5}],
    "detail": "features",
    "tolerance": 0.1,
    "symbols": ["AAPL"],
}
VALUES: Sequence[object] = (
    None, True, False, 0, -1, 1, 10**30, -HUGE, 2**63, 5, 0.5, -0.0, 1e308, 1e-320, float("nan"), float("inf"),
    "", "a", "\ud800", "x" * 300, "\0", "small", "covariates", "mask", "ignore", [], {}, [[]], [None], [HUGE],
    ["\ud800"], ["AAPL", "AAPL"], {"buffer": 0}, place(10**30, 1), place(7, 10**30), place(7, 0, 10**30),
    place(7, 10**30, 0), place(7, True), place(3, True, 200), place(7, 0), place(7, 0, 0), place(7, 0, 0, 0),
    {"buffer": 1, "shape": [0.5]},
)  # fmt: skip


def replies(door: Door, text: str, buffers: Sequence[Any]) -> Iterator[Json]:
    """Both questions' replies, and the results in them."""
    for ask in (door.predict, door.explain):
        reply = json.loads(ask(text, buffers).reply()[0])
        yield reply
        yield from reply.get("results", [])


def check(door: Door, text: str, buffers: Sequence[Any] = ()) -> None:
    for reply in replies(door, text, buffers):
        assert "error" not in reply or reply["error"]["reason"] in REASONS, text


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where in a question something could stand instead."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


def spoiled(question: Json, draw: random.Random) -> Json:
    """The question with one to three of its parts replaced."""
    changed = copy.deepcopy(question)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        *way, last = draw.choice(list(places(changed)))
        part: Any = changed
        for key in way:
            part = part[key]
        a_place = place(
            draw.randrange(-1, len(BUFFERS) + 1), *draw.choices((0, 1, 2, 60, 200, 2**40), k=draw.randrange(4))
        )
        part[last] = copy.deepcopy(draw.choice((a_place, *VALUES)))
    return changed


@pytest.mark.parametrize("seed", range(4))
def test_a_question_with_anything_in_it_is_answered(door: Door, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(250):
        question = spoiled(draw.choice((PREDICT, EXPLAIN)), draw)
        check(door, json.dumps(question), draw.choice((BUFFERS, BUFFERS, BUFFERS[::-1], ())))


def test_the_questions_that_are_spoiled_are_good_ones(door: Door) -> None:
    """Else the fuzz would see the first check alone."""
    results = json.loads(door.predict(json.dumps({**PREDICT, "model": "small"}), BUFFERS).reply()[0])["results"]
    assert "forecast" in results[0]
    assert "attributions" in json.loads(door.explain(json.dumps(EXPLAIN), BUFFERS).reply()[0])


@pytest.mark.parametrize(
    "text",
    ["[" * DEEP, '{"a":' * DEEP, '{"model":' + "[" * 900 + "]" * 900 + "}", '"\ud800"', "\ud800", "\0", "nan",
     "1" * 5000, '{"model": "small", "timeout_s": ' + "1" * 5000 + "}"],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_text_that_is_hardly_json_is_refused(door: Door, text: str) -> None:
    for reply in replies(door, text, ()):
        assert reply["error"]["reason"] == "MALFORMED_REQUEST"


@pytest.mark.parametrize("time", ["NaN", "Infinity", "-Infinity", "1e999", str(HUGE), "true", "null", '"1"'])
def test_a_time_that_is_no_number_is_refused(door: Door, time: str) -> None:
    """NaN would never be over."""
    text = json.dumps({**PREDICT, "timeout_s": 0}).replace('"timeout_s": 0', f'"timeout_s": {time}')
    reply = json.loads(door.predict(text, BUFFERS).reply()[0])
    assert reply["error"]["reason"] == "MALFORMED_REQUEST"
    assert reply["error"]["message"].endswith("need a finite number")


@pytest.mark.parametrize("buffer", [None, "text", 5, np.array(["text"], object)], ids=str)
def test_what_offers_no_buffer_is_named(door: Door, buffer: object) -> None:
    buffers = [buffer, *BUFFERS[1:]]
    reply = json.loads(door.predict(json.dumps({**PREDICT, "model": "small"}), buffers).reply()[0])
    error = reply["results"][0]["error"]
    assert (error["reason"], error["metadata"]["field"]) == ("MALFORMED_REQUEST", "request.instances[0].bars.sessions")


def test_a_long_value_is_shown_short_and_not_read_whole(door: Door) -> None:
    reply = json.loads(door.predict(json.dumps({**PREDICT, "model": ["x"] * 1_000_000}), BUFFERS).reply()[0])
    assert len(reply["error"]["message"]) < 150


@pytest.mark.parametrize(
    ("folder", "options", "reason"),
    [
        (None, "[" * DEEP, "MALFORMED_REQUEST"),
        (None, json.dumps({**OPTIONS, "threads": 10**40}), "CONFIGURATION_INVALID"),
        (None, json.dumps({**OPTIONS, "device": "\ud800"}), "CONFIGURATION_INVALID"),
        ("x" * 5000, json.dumps(OPTIONS), "CONFIGURATION_INVALID"),
        ("\0", json.dumps(OPTIONS), "CONFIGURATION_INVALID"),
        ("\ud800", json.dumps(OPTIONS), "CONFIGURATION_INVALID"),
    ],
    ids=["deep", "threads", "device", "long", "nul", "surrogate"],
)
def test_a_door_that_cannot_open_says_why(tmp_path: Path, folder: str | None, options: str, reason: str) -> None:
    opened, text = open_door(str(tmp_path) if folder is None else folder, options)
    assert opened is None
    assert json.loads(text)["error"]["reason"] == reason

"""Secrets and paths that the test suite detects in log lines."""

import logging
from pathlib import Path

import pytest
from watched_logs import ROOT, SUITE, WatchedLogs, forbidden_content, token


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (f"refused: {token('reader')}", "a token"),
        ("metadata: Authorization: Bearer abc", "a token"),
        ("the close was 102.37000274658203", "a value in full"),
        ("feature 3 is -0.0012345678", "a value in full"),
        ("feature 3 is 1.25e-07", "a value in full"),
        (f"not served: {ROOT}/models/stock/1", "a path"),
        (f"{Path.home()}: the folder cannot be read", "a path"),
    ],
)
def test_what_a_line_may_not_hold_is_found(line: str, what: str) -> None:
    assert list(forbidden_content(line)) == [what]


def test_a_temporary_folder_is_a_path(tmp_path: Path) -> None:
    assert list(forbidden_content(f"{tmp_path}: the folder of models cannot be read")) == ["a path"]


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-24 00:21:49,086 WARNING predictor.server.host: not served: stock/4: golden/arrays.safetensors: is cut",
        "Predict stock@1: INVALID_ARGUMENT BARS_INVALID, 12.3 ms, request 4f1c09 from 127.0.0.1:45012",
        "/quantra.v1.PredictionService/Predict: 1.2 ms",
        "stock: 3 calls, 12 instances, 0.31 ms read, 12.50 ms forward",
    ],
)
def test_what_a_line_must_say_passes(line: str) -> None:
    assert not list(forbidden_content(line))


def test_records_of_the_library_are_checked_at_every_level() -> None:
    logs = WatchedLogs()
    with logs.listening():
        logging.getLogger("predictor.somewhere").debug("refused: %s", token("debug"))
        logging.getLogger("elsewhere").warning("refused: %s", token("elsewhere"))
    assert [breach.what for breach in logs.breaches] == ["a token"]
    assert "test_records_of_the_library_are_checked" in logs.breaches[0].test
    SUITE.breaches.remove(next(one for one in SUITE.breaches if token("debug") in one.line))


def test_a_token_for_tests_is_one() -> None:
    assert len(token("a")) == len(token("operator")) == 32
    assert token("a") != token("b")
    assert not any(character.isspace() for character in token("a"))

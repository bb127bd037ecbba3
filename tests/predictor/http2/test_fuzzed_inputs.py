"""Inputs that a fuzzer guided by coverage has found, and random ones; see `fuzz.py`."""

import base64
import zlib
from pathlib import Path

import pytest
from http2_fuzzing import run_input
from hypothesis import given
from hypothesis import strategies as st

INPUTS = (Path(__file__).parents[2] / "fixtures" / "http2_inputs.txt").read_text(encoding="ascii").split()
"""Together they run all lines of `predictor.http2` that any input of the fuzzer ran."""


@pytest.mark.parametrize("number", range(len(INPUTS)))
def test_windows_and_limits_hold_and_cuts_change_nothing(number: int) -> None:
    run_input(zlib.decompress(base64.b64decode(INPUTS[number])))


@given(st.binary(max_size=300))
def test_windows_and_limits_hold_for_random_steps(data: bytes) -> None:
    run_input(data)

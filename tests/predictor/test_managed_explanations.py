"""The committed explanations that the C# package without Python is tested with are still Python's own."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from managed_artifacts import decode
from managed_explanations import ARRAYS, EXPLANATIONS, FILE, describe_all

RECORDED: Mapping[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


@cache
def explained() -> dict[str, Any]:
    return json.loads(json.dumps(describe_all()))


def test_every_explanation_is_recorded() -> None:
    assert list(RECORDED) == list(EXPLANATIONS)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_explanation_is_what_python_computes(name: str) -> None:
    recorded, now = RECORDED[name], explained()[name]
    if isinstance(recorded["expected"], list):
        for old, new in zip(recorded["expected"], now["expected"], strict=True):
            check_arrays(old, new, ARRAYS)
            for old_internal, new_internal in zip(old["internals"], new["internals"], strict=True):
                check_arrays(old_internal, new_internal, ("values",))
    assert now == recorded


def check_arrays(old: dict[str, Any], new: dict[str, Any], names: tuple[str, ...]) -> None:
    """Compare and remove arrays, the last bits of whose float32 sums depend on the processor."""
    for name in names:
        expected, actual = decode(old.pop(name)), decode(new.pop(name))
        size = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
        tolerance = 1e-3 if name == "relative_gap" else 1e-5 * size
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)

"""The committed artifacts and results that the C# package without Python is tested with are still Python's own."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import managed_artifacts
import numpy as np
import pytest
from managed_artifacts import FOLDER, MODELS, Request

from predictor.model import Model

RECORDED: Mapping[str, Any] = json.loads((FOLDER / "requests.json").read_text(encoding="utf-8"))


@cache
def models() -> dict[str, Model]:
    """Load the artifacts, which checks their golden instances."""
    return managed_artifacts.load_models(FOLDER)


@cache
def requests() -> dict[str, Request]:
    return managed_artifacts.list_requests(lambda name: models()[name].pipeline.bars_needed)


def test_every_model_and_every_request_is_recorded() -> None:
    assert {path.name for path in (FOLDER / "models").iterdir()} == set(MODELS)
    assert list(RECORDED) == list(requests())


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_result_is_what_python_computes(name: str) -> None:
    request = requests()[name]
    described = json.loads(json.dumps(request.describe(models()[request.model], requests()["panel"].bars)))
    recorded, now = RECORDED[name]["expected"], described["expected"]
    for field in ("values", "returns", "prices"):  # the last bits of float32 sums depend on the processor
        old, new = (managed_artifacts.decode(one.pop(field, None)) for one in (recorded, now))
        np.testing.assert_allclose(new, old, rtol=1e-6, atol=1e-8)
    assert recorded.pop("forecast_id", "").__class__ is now.pop("forecast_id", "").__class__
    assert now == recorded
    assert {**described, "expected": {}} == {**RECORDED[name], "expected": {}}


def test_an_artifact_is_what_the_script_writes() -> None:
    for name, made in MODELS.items():
        kept = models()[name]
        assert made.artifact().pipeline.features.schema_hash == kept.pipeline.features.schema_hash
        assert made.artifact().manifest.config == kept.manifest.config

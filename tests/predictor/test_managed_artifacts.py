"""The committed artifacts and results that the C# package without Python is tested with are still Python's own."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import managed_artifacts
import numpy as np
import pytest
from managed_artifacts import ENSEMBLES, FOLDER, MODELS, Request

from predictor.model import Model, Predictor

RECORDED: Mapping[str, Any] = json.loads((FOLDER / "requests.json").read_text(encoding="utf-8"))


@cache
def models() -> dict[str, Predictor]:
    """Load the artifacts, which checks their golden instances."""
    return managed_artifacts.load_models(FOLDER)


@cache
def requests() -> dict[str, Request]:
    return managed_artifacts.list_requests(lambda name: models()[name].info((), is_default=True).bars_needed)


def test_every_model_and_every_request_is_recorded() -> None:
    assert {path.name for path in (FOLDER / "models").iterdir()} == {*MODELS, *ENSEMBLES}
    assert list(RECORDED) == list(requests())


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_result_is_what_python_computes(name: str) -> None:
    request = requests()[name]
    described = json.loads(json.dumps(request.describe(models()[request.model], requests()["panel"].bars)))
    recorded, now = RECORDED[name]["expected"], described["expected"]
    for field in ("values", "returns", "prices", "scores"):  # the last bits of float32 sums depend on the processor
        old, new = (managed_artifacts.decode(one.pop(field, None)) for one in (recorded, now))
        np.testing.assert_allclose(new, old, rtol=1e-6, atol=1e-6)
    assert recorded.pop("forecast_id", "").__class__ is now.pop("forecast_id", "").__class__
    assert now == recorded
    assert {**described, "expected": {}} == {**RECORDED[name], "expected": {}}


def test_recorded_paths_are_what_python_computes() -> None:
    recorded = json.loads((FOLDER / "paths.json").read_text(encoding="utf-8"))
    now = json.loads(json.dumps(managed_artifacts.describe_paths(models()["plain"])))
    old, new = (managed_artifacts.decode(one["expected"].pop("returns")) for one in (recorded, now))
    np.testing.assert_allclose(new, old, rtol=1e-6, atol=1e-8)
    old, new = (one["expected"].pop("estimates") for one in (recorded, now))
    np.testing.assert_allclose(new, old, rtol=1e-6)
    assert now == recorded


def test_an_artifact_is_what_the_script_writes() -> None:
    for name, made in MODELS.items():
        kept = models()[name]
        assert isinstance(kept, Model)
        features, own = made.artifact().pipeline.features, kept.pipeline.features
        assert (features.features, features.statics.names) == (own.features, own.statics.names)
        np.testing.assert_allclose(features.scaling.scale, own.scaling.scale, rtol=1e-9)
        assert made.artifact().manifest.config == kept.manifest.config

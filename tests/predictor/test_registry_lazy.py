"""Non-default versions are verified at startup and built on first use."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from artifacts import recent_bars
from ensembles import save_ensemble
from model_folders import RUNTIME, break_weights, forge_weights, replace_version, save_seeds

from predictor.call_context import NEVER
from predictor.errors import ArtifactError
from predictor.forecast import Forecast
from predictor.instance import ExplanationQuery, Instance
from predictor.model import Predictor
from predictor.registry import LazyModel, Registry, load_model, model_loader, set_alias
from predictor.registry.model_loader import StoredVersion

NOW = datetime(2020, 1, 1, tzinfo=UTC)
ASKED = Instance(input=recent_bars("AAPL"))


@pytest.fixture(scope="module")
def saved_artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Artifacts 0 and 1 with different weights, and an ensemble of them."""
    folder = save_seeds(tmp_path_factory.mktemp("saved"), 0, 1)
    save_ensemble(folder / "joint", {"a": folder / "0", "b": folder / "1"})
    return folder


@pytest.fixture
def models(saved_artifacts: Path, tmp_path: Path) -> Path:
    """Versions 1 and 2 of `small`; version 2 becomes the champion."""
    for version, seed in (("small/1", "0"), ("small/2", "1")):
        shutil.copytree(saved_artifacts / seed, tmp_path / "models" / version)
    return tmp_path / "models"


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Records every version that is built."""
    built: list[tuple[str, int]] = []
    build = model_loader.build

    def counted(stored: StoredVersion, identity: tuple[str, int], runtime: model_loader.Runtime) -> Predictor:
        built.append(identity)
        return build(stored, identity, runtime)

    monkeypatch.setattr(model_loader, "build", counted)
    return built


def test_what_a_plain_name_means_is_built_when_the_folder_is_opened(models: Path, builds: list[object]) -> None:
    set_alias(models / "small", "champion", 1)
    Registry.open(models, RUNTIME)
    assert builds == [("small", 1)]


def test_another_version_is_built_at_its_first_call_and_once(models: Path, builds: list[object]) -> None:
    registry = Registry.open(models, RUNTIME)
    assert builds == [("small", 2)]
    for _ in range(2):
        registry.find("small@1").predict([ASKED], NOW, NEVER)
    assert builds == [("small", 2), ("small", 1)]


def test_all_versions_are_listed_in_full_and_none_is_built_for_it(
    models: Path, saved_artifacts: Path, builds: list[object]
) -> None:
    shutil.copytree(saved_artifacts / "joint", models / "joint" / "1")
    shutil.copytree(saved_artifacts / "0", models / "joint" / "2")
    infos = {(i.name, i.version): i for i in Registry.open(models, RUNTIME).infos()}
    assert builds == [("joint", 2), ("small", 2)]
    for name, version in (("joint", 1), ("small", 1)):
        whole = load_model(models / name / str(version), (name, version), RUNTIME)
        assert infos[name, version] == whole.info((), is_default=False)


def test_a_version_answers_as_it_would_have_if_it_had_been_built_at_once(models: Path) -> None:
    late = Registry.open(models, RUNTIME).find("small@1")
    early = load_model(models / "small" / "1", ("small", 1), RUNTIME)
    assert late.identity == early.identity
    assert late.default_targets() == early.default_targets()
    assert _forecast(late).forecast_id == _forecast(early).forecast_id
    np.testing.assert_array_equal(_forecast(late).values, _forecast(early).values)
    query = ExplanationQuery(instance=ASKED, targets=late.default_targets()[:1])
    (one,), (other,) = (model.explain(query, NOW, NEVER) for model in (late, early))
    np.testing.assert_array_equal(one.per_row, other.per_row)


def test_a_batch_can_be_prepared_before_anything_else_is_asked(models: Path) -> None:
    batch = Registry.open(models, RUNTIME).find("small@1").prepare_batch([ASKED, ASKED], NOW, NEVER)
    assert len(batch.outcomes([1], NEVER)) == 1


def test_many_threads_that_ask_at_once_build_once(models: Path, builds: list[object]) -> None:
    model = Registry.open(models, RUNTIME).find("small@1")
    assert isinstance(model, LazyModel)
    together = threading.Barrier(8)

    def build(_: int) -> Predictor:
        together.wait()
        return model.build()

    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(build, range(8)))
    assert len(made) == 1
    assert builds == [("small", 2), ("small", 1)]


def test_a_version_that_cannot_be_built_says_so_at_every_call_and_is_built_once(
    models: Path, builds: list[object]
) -> None:
    forge_weights(models / "small" / "1", models / "small" / "2")
    registry = Registry.open(models, RUNTIME)
    assert registry.problems == ()
    messages: set[str] = set()
    for _ in range(3):
        with pytest.raises(ArtifactError) as caught:
            registry.find("small@1").predict([ASKED], NOW, NEVER)
        messages.add(caught.value.message)
        assert caught.value.metadata["version"] == "1"
    assert len(messages) == 1
    assert messages.pop().startswith("small/1: golden/arrays.safetensors: golden instance: stage units is off")
    assert builds == [("small", 2), ("small", 1)]


def test_damage_between_opening_and_the_first_call_is_found(models: Path) -> None:
    registry = Registry.open(models, RUNTIME)
    break_weights(models / "small" / "1")
    with pytest.raises(ArtifactError, match=r"^small/1: weights.safetensors: its SHA-256 is not the manifest's"):
        registry.find("small@1").predict([ASKED], NOW, NEVER)


def test_another_artifact_in_the_place_of_the_verified_one_is_not_built(models: Path, saved_artifacts: Path) -> None:
    registry = Registry.open(models, RUNTIME)
    replace_version(models / "small" / "1", saved_artifacts / "1")
    with pytest.raises(ArtifactError, match=r"^small/1: manifest.json: was changed after it was verified; reload"):
        registry.find("small@1").predict([ASKED], NOW, NEVER)


def test_a_folder_missing_at_the_first_call_is_reported_without_its_path(models: Path) -> None:
    registry = Registry.open(models, RUNTIME)
    shutil.rmtree(models / "small" / "1")
    with pytest.raises(ArtifactError, match=r"^small/1: its folder is gone; put it back, or unload the version$"):
        registry.find("small@1").explain(ExplanationQuery(instance=ASKED), NOW, NEVER)


def test_the_newest_that_cannot_be_built_leaves_the_next_one_as_the_default(
    models: Path, saved_artifacts: Path
) -> None:
    shutil.copytree(saved_artifacts / "0", models / "small" / "3")
    forge_weights(models / "small" / "3", models / "small" / "2")
    registry = Registry.open(models, RUNTIME)
    assert registry.find("small").identity.version == 2
    assert [p.message.split(":")[0] for p in registry.problems] == ["small/3"]
    assert registry.models["small"].refused == {3}


def _forecast(model: Predictor) -> Forecast:
    outcome = model.predict([ASKED], NOW, NEVER)[0]
    assert isinstance(outcome, Forecast)
    return outcome

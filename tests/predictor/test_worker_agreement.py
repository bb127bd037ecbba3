"""A worker that starts later serves the same models as the others."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from model_folders import replace_version, save_seeds

from predictor.registry import set_alias
from predictor.server.workers.worker import copy_served_models, encode_served
from predictor.service import PredictionService
from predictor.service.served_models import ServedModels


@pytest.fixture(scope="module")
def saved_artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Artifacts 0 and 1 with different weights."""
    return save_seeds(tmp_path_factory.mktemp("saved"), 0, 1)


@pytest.fixture
def models(saved_artifacts: Path, tmp_path: Path) -> Path:
    """Versions 1 and 2 of `small`, of which 1 is the champion, and version 1 of `other`."""
    for version, seed in (("small/1", "0"), ("small/2", "1"), ("other/1", "1")):
        shutil.copytree(saved_artifacts / seed, tmp_path / "models" / version)
    set_alias(tmp_path / "models" / "small", "champion", 1)
    return tmp_path / "models"


@pytest.fixture
def first_worker(models: Path) -> Iterator[ServedModels]:
    """Models of a worker that started first."""
    with closing(PredictionService.open(models, device="cpu")) as service:
        yield service.served


def start_worker(models: Path, others: ServedModels) -> tuple[list[str], list[str]]:
    """Models of a new worker after agreement, and the differences that remain."""
    with closing(PredictionService.open(models, device="cpu")) as service:
        problems = copy_served_models(service.served, encode_served(others))
        return [f"{one.name}@{one.version}" for one in service.served.infos()], problems


def test_where_nothing_has_changed_nothing_is_done(models: Path, first_worker: ServedModels) -> None:
    assert start_worker(models, first_worker) == (["other@1", "small@1", "small@2"], [])


def test_what_the_others_have_unloaded_is_unloaded_a_model_with_its_champion_too(
    models: Path, first_worker: ServedModels
) -> None:
    first_worker.unload("small")
    assert start_worker(models, first_worker) == (["other@1"], [])


def test_a_version_that_the_others_do_not_serve_is_unloaded_alone(
    models: Path, first_worker: ServedModels, saved_artifacts: Path
) -> None:
    first_worker.unload("small@2")
    shutil.copytree(saved_artifacts / "0", models / "other" / "2")
    set_alias(models / "other", "champion", 1)
    first_worker.load("other@1")
    assert start_worker(models, first_worker) == (["other@1", "small@1"], [])


def test_what_the_others_serve_and_the_folder_has_again_is_loaded(models: Path, first_worker: ServedModels) -> None:
    away = models.parent / "away"
    (models / "other").rename(away)
    with closing(PredictionService.open(models, device="cpu")) as service:
        away.rename(models / "other")
        assert copy_served_models(service.served, encode_served(first_worker)) == []
        assert "other" in {one.name for one in service.served.infos()}


def test_removed_versions_are_reported(models: Path, first_worker: ServedModels) -> None:
    shutil.rmtree(models / "other")
    served, (problem,) = start_worker(models, first_worker)
    assert served == ["small@1", "small@2"]
    assert problem.startswith("other@1 is served by the other workers but not here: there is no model 'other'")


def test_other_weights_under_the_same_version_are_reported(
    models: Path, first_worker: ServedModels, saved_artifacts: Path
) -> None:
    replace_version(models / "other" / "1", saved_artifacts / "0")
    _, problems = start_worker(models, first_worker)
    assert problems == ["other@1 has changed in the folder since the other workers read it; reload other"]


def test_what_came_between_a_change_and_its_taking_back_is_served_again(
    models: Path, first_worker: ServedModels, saved_artifacts: Path
) -> None:
    before = first_worker.current
    first_worker.unload("small")
    shutil.copytree(saved_artifacts / "0", models / "other" / "2")
    first_worker.refresh()
    first_worker.restore(before)
    first_worker.refresh()
    assert [f"{one.name}@{one.version}" for one in first_worker.infos()] == ["other@1", "other@2", "small@1", "small@2"]


def test_a_new_champion_is_reported(models: Path, first_worker: ServedModels) -> None:
    set_alias(models / "small", "champion", 2)
    _, problems = start_worker(models, first_worker)
    assert problems == ["small refers to small@1 in the other workers but not here; load small to read its aliases"]


def test_a_champion_that_no_file_names_is_that_of_the_others(saved_artifacts: Path, tmp_path: Path) -> None:
    for version, seed in (("1", "0"), ("2", "1")):
        shutil.copytree(saved_artifacts / seed, tmp_path / "models" / "small" / version)
    (tmp_path / "models" / "small" / "aliases.json").mkdir()  # makes it unwritable
    with closing(PredictionService.open(tmp_path / "models", device="cpu")) as others:
        shutil.copytree(saved_artifacts / "0", tmp_path / "models" / "small" / "3")
        with closing(PredictionService.open(tmp_path / "models", device="cpu")) as service:
            assert service.model("small").version == 3
            assert copy_served_models(service.served, encode_served(others.served)) == []
            assert [(one.version, one.is_default) for one in service.models()] == [(1, False), (2, True)]

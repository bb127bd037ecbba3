"""Loading, unloading and reloading: each gives a new registry or fails without effect."""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from artifacts import recent_bars
from model_folders import RUNTIME, break_weights, forge_weights, replace_version, save_seeds

from predictor.call_context import NEVER
from predictor.errors import ArtifactError, ConfigurationError, ModelNotFoundError, VersionNotFoundError
from predictor.instance import Instance
from predictor.model import Predictor
from predictor.registry import ALIASES, ModelsFolder, Registry, set_alias

NOW = datetime(2020, 1, 1, tzinfo=UTC)
PATHS = ["../models/small", "small/1", "/etc", "..", ".", "", "a\0b", "x" * 1_000_000, "other/../small"]
NO_VERSIONS = ["", "01", "-1", "1.0", "champion", "../1", "1/", "²", "9" * 5000, "1@1", "\0"]


@pytest.fixture(scope="module")
def saved_artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Artifacts 0, 1 and 2 with different weights."""
    return save_seeds(tmp_path_factory.mktemp("saved"), 0, 1, 2)


@pytest.fixture
def models(saved_artifacts: Path, tmp_path: Path) -> Path:
    """Versions 1 and 2 of `small`, of which 1 is the champion, and version 7 of `other`."""
    for version, seed in (("small/1", "0"), ("small/2", "1"), ("other/7", "1")):
        shutil.copytree(saved_artifacts / seed, tmp_path / "models" / version)
    set_alias(tmp_path / "models" / "small", "champion", 1)
    return tmp_path / "models"


@pytest.fixture
def folder(models: Path) -> ModelsFolder:
    return ModelsFolder(models, RUNTIME)


@pytest.fixture(scope="module")
def unchanged_folder(saved_artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelsFolder, Registry]:
    """A folder with version 1 of `small` and `other`, and its registry, for changes without effect."""
    models = tmp_path_factory.mktemp("standing")
    for name in ("small", "other"):
        shutil.copytree(saved_artifacts / "0", models / name / "1")
    folder = ModelsFolder(models, RUNTIME)
    return folder, folder.open()


# --- load


def test_a_new_version_is_loaded_and_the_others_stay_the_objects_they_are(
    folder: ModelsFolder, models: Path, saved_artifacts: Path
) -> None:
    before = folder.open()
    shutil.copytree(saved_artifacts / "2", models / "small" / "3")
    after = folder.load(before, "small@3")
    assert _served(after) == {"other": {7}, "small": {1, 2, 3}}
    assert _served(before) == {"other": {7}, "small": {1, 2}}
    assert _same_versions(before, after) == {"other@7", "small@1", "small@2"}
    assert after.find("small") is before.find("small")


def test_a_name_loads_all_its_versions_that_are_not_served_yet(
    folder: ModelsFolder, models: Path, saved_artifacts: Path
) -> None:
    before = folder.open()
    for version in ("3", "4"):
        shutil.copytree(saved_artifacts / "2", models / "small" / version)
    after = folder.load(before, "small")
    assert _served(after)["small"] == {1, 2, 3, 4}
    assert _same_versions(before, after) == {"other@7", "small@1", "small@2"}


def test_a_new_model_is_loaded_by_its_name(folder: ModelsFolder, models: Path, saved_artifacts: Path) -> None:
    before = folder.open()
    shutil.copytree(saved_artifacts / "2", models / "new" / "1")
    assert _served(folder.load(before, "new")) == {"new": {1}, "other": {7}, "small": {1, 2}}


def test_loading_reads_the_aliases_again(folder: ModelsFolder, models: Path) -> None:
    before = folder.open()
    set_alias(models / "small", "champion", 2)
    after = folder.load(before, "small")
    assert [registry.find("small").identity.version for registry in (before, after)] == [1, 2]
    assert after.find("small") is before.find("small@2")


@pytest.mark.parametrize("reference", ["small", "small@1", "small@2"])
def test_loading_what_is_served_already_changes_nothing(folder: ModelsFolder, reference: str) -> None:
    registry = folder.open()
    assert folder.load(registry, reference) is registry


def test_a_version_that_is_damaged_is_reported_and_the_others_are_loaded(
    folder: ModelsFolder, models: Path, saved_artifacts: Path
) -> None:
    before = folder.open()
    for version in ("3", "4"):
        shutil.copytree(saved_artifacts / "2", models / "small" / version)
    break_weights(models / "small" / "3")
    after = folder.load(before, "small")
    assert _served(after)["small"] == {1, 2, 4}
    (problem,) = after.problems
    assert problem.message.startswith("small/3: weights.safetensors: its SHA")


@pytest.mark.parametrize("reference", ["small", "small@3"])
def test_a_load_is_refused_if_nothing_that_it_names_can_be_loaded(
    folder: ModelsFolder, models: Path, saved_artifacts: Path, reference: str
) -> None:
    before = folder.open()
    shutil.copytree(saved_artifacts / "2", models / "small" / "3")
    break_weights(models / "small" / "3")
    with pytest.raises(ArtifactError, match=r"^nothing of small was changed: small/3: weights.safetensors: its SHA"):
        folder.load(before, reference)


def test_a_champion_that_cannot_be_built_is_refused_when_it_would_go_live(folder: ModelsFolder, models: Path) -> None:
    forge_weights(models / "small" / "2", models / "small" / "1")
    before = folder.open()
    set_alias(models / "small", "champion", 2)
    with pytest.raises(ArtifactError, match=r"small/2: golden/.*names version 2, which was refused .*served stays"):
        folder.load(before, "small")
    assert before.find("small").identity.version == 1


@pytest.mark.parametrize(
    ("content", "reference", "problem"),
    [
        ('{"champion": 9}', "small", "alias 'champion' names version 9, which is missing, so what was served"),
        ("not json", "small@2", "nothing of small was changed: small/aliases.json: is not strict JSON"),
    ],
)
def test_wrong_aliases_are_refused(
    folder: ModelsFolder, models: Path, content: str, reference: str, problem: str
) -> None:
    before = folder.open()
    (models / "small" / ALIASES).write_text(content)
    with pytest.raises(ArtifactError, match=problem):
        folder.load(before, reference)


def test_a_version_that_was_refused_and_then_mended_is_no_problem_any_more(
    folder: ModelsFolder, models: Path, saved_artifacts: Path
) -> None:
    break_weights(models / "small" / "2")
    before = folder.open()
    assert [p.metadata["version"] for p in before.problems] == ["2"]
    replace_version(models / "small" / "2", saved_artifacts / "2")
    after = folder.load(before, "small@2")
    assert after.problems == ()
    assert after.models["small"].refused == frozenset()


def test_a_problem_of_another_version_stays_one(folder: ModelsFolder, models: Path, saved_artifacts: Path) -> None:
    break_weights(models / "small" / "2")
    before = folder.open()
    shutil.copytree(saved_artifacts / "2", models / "small" / "3")
    assert folder.load(before, "small@3").problems == before.problems


@pytest.mark.parametrize("name", PATHS)
def test_a_name_is_never_made_into_a_path(unchanged_folder: tuple[ModelsFolder, Registry], name: str) -> None:
    folder, registry = unchanged_folder
    for step in (folder.load, folder.reload, folder.unload):
        for reference in (name, f"{name}@1"):
            with pytest.raises(ModelNotFoundError) as caught:
                step(registry, reference)
            assert len(caught.value.message) < 500


@pytest.mark.parametrize("selector", NO_VERSIONS)
def test_what_is_no_version_is_refused(unchanged_folder: tuple[ModelsFolder, Registry], selector: str) -> None:
    folder, registry = unchanged_folder
    for step in (folder.load, folder.reload, folder.unload):
        with pytest.raises(VersionNotFoundError, match="give NAME or NAME@VERSION, such as NAME@1") as caught:
            step(registry, f"small@{selector}")
        assert len(caught.value.message) < 500


def test_a_version_or_a_model_that_the_folder_lacks_is_not_found(folder: ModelsFolder, models: Path) -> None:
    registry = folder.open()
    (models / "empty").mkdir()
    with pytest.raises(VersionNotFoundError, match=r"model 'small' has no version 9; it has \[1, 2\]"):
        folder.load(registry, "small@9")
    with pytest.raises(ModelNotFoundError, match=r"no model 'big' in the folder of models; there are \['empty', 'oth"):
        folder.load(registry, "big")
    with pytest.raises(VersionNotFoundError, match="model 'empty' has no version in the folder of models; put"):
        folder.load(registry, "empty")


# --- unload


def test_an_unloaded_version_is_not_found_and_the_others_stay_the_objects_they_are(folder: ModelsFolder) -> None:
    before = folder.open()
    after = folder.unload(before, "small@2")
    assert _served(after) == {"other": {7}, "small": {1}}
    assert _same_versions(before, after) == {"other@7", "small@1"}
    with pytest.raises(VersionNotFoundError):
        after.find("small@2")
    assert before.find("small@2").identity.version == 2


def test_an_alias_of_an_unloaded_version_is_a_problem_that_says_so(folder: ModelsFolder, models: Path) -> None:
    set_alias(models / "small", "canary", 2)
    after = folder.unload(folder.open(), "small@2")
    assert [p.message for p in after.problems] == [
        "small/aliases.json: alias 'canary' names version 2, which is not loaded, so nothing answers to it"
    ]


def test_the_version_that_the_champion_names_is_not_unloaded_from_among_others(folder: ModelsFolder) -> None:
    before = folder.open()
    with pytest.raises(ConfigurationError, match="small@1 is what champion names; point champion at another version"):
        folder.unload(before, "small@1")
    assert _served(folder.unload(before, "small")) == {"other": {7}}


def test_the_last_version_goes_with_its_name(folder: ModelsFolder) -> None:
    before = folder.open()
    assert _served(folder.unload(folder.unload(before, "small@2"), "small@1")) == {"other": {7}}
    assert _served(folder.unload(before, "other@7")) == {"small": {1, 2}}


def test_when_nothing_is_served_a_question_without_a_name_is_answered_with_that(folder: ModelsFolder) -> None:
    registry = folder.unload(folder.unload(folder.open(), "small"), "other")
    assert registry.infos() == ()
    with pytest.raises(ModelNotFoundError, match="no model is served"):
        registry.find("")


@pytest.mark.parametrize(
    ("reference", "message"), [("big", r"no model 'big'"), ("small@9", r"no version 9; it has \[")]
)
def test_what_is_not_served_cannot_be_unloaded(folder: ModelsFolder, reference: str, message: str) -> None:
    with pytest.raises((ModelNotFoundError, VersionNotFoundError), match=message):
        folder.unload(folder.open(), reference)


def test_unloading_reads_nothing(folder: ModelsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    before = folder.open()

    def touched(*_: object, **__: object) -> None:
        raise AssertionError("a file was touched")

    for function in ("stat", "lstat", "open", "listdir", "scandir"):
        monkeypatch.setattr(os, function, touched)
    after = folder.unload(before, "small@2")
    monkeypatch.undo()
    assert _served(after)["small"] == {1}


def test_what_was_unloaded_can_be_loaded_again(folder: ModelsFolder) -> None:
    before = folder.open()
    after = folder.load(folder.unload(before, "small@2"), "small")
    assert _served(after) == _served(before)
    assert after.models["small"].unloaded == frozenset()


def test_a_version_loaded_without_the_champion_is_served_by_its_number_only(folder: ModelsFolder) -> None:
    """Another version under the plain name would be a silent fallback."""
    loaded = folder.load(folder.unload(folder.open(), "small"), "small@2")
    assert loaded.find("small@2").identity.version == 2
    with pytest.raises(ModelNotFoundError, match=r"'champion' names version 1, which is not loaded, so other versions"):
        loaded.find("small")
    assert _served(folder.load(loaded, "small@1"))["small"] == {1, 2}


def test_a_version_can_be_unloaded_while_the_champion_is_broken(
    folder: ModelsFolder, models: Path, saved_artifacts: Path
) -> None:
    shutil.copytree(saved_artifacts / "2", models / "small" / "3")
    break_weights(models / "small" / "1")
    left = folder.unload(folder.open(), "small@3")
    assert _served(left)["small"] == {2}
    with pytest.raises(ModelNotFoundError, match="alias 'champion' names version 1, which was refused"):
        left.find("small")


# --- reload


def test_reloading_what_did_not_change_changes_nothing(folder: ModelsFolder) -> None:
    registry = folder.open()
    assert folder.reload(registry, "small") is registry
    assert folder.reload(registry, "small@2") is registry


@pytest.mark.parametrize(("reference", "version"), [("small", 1), ("small@1", 1), ("small@2", 2)])
def test_another_artifact_in_a_versions_place_takes_over_when_it_is_reloaded(
    folder: ModelsFolder, models: Path, saved_artifacts: Path, reference: str, version: int
) -> None:
    before = folder.open()
    replace_version(models / "small" / str(version), saved_artifacts / "2")
    assert folder.load(before, reference) is before
    after = folder.reload(before, reference)
    assert _same_versions(before, after) == {"other@7", "small@1", "small@2"} - {f"small@{version}"}
    hashes = {registry.find(f"small@{version}").identity.weights_hash for registry in (before, after)}
    assert len(hashes) == 2


@pytest.mark.parametrize("version", [1, 2])
def test_a_damaged_artifact_leaves_the_version_that_is_served_and_the_others_change(
    folder: ModelsFolder, models: Path, saved_artifacts: Path, version: int
) -> None:
    before = folder.open()
    for one in (1, 2):
        replace_version(models / "small" / str(one), saved_artifacts / "2")
    break_weights(models / "small" / str(version))
    after = folder.reload(before, "small")
    assert _same_versions(before, after) == {"other@7", f"small@{version}"}
    (problem,) = after.problems
    assert problem.message.startswith(f"small/{version}: weights.safetensors: its")
    assert problem.message.endswith("; what was served stays")
    with pytest.raises(ArtifactError, match=f"nothing of small was changed: small/{version}: weights.safetensors: its"):
        folder.reload(before, f"small@{version}")


def test_other_versions_are_reloaded_while_the_champion_is_broken(
    folder: ModelsFolder, models: Path, saved_artifacts: Path
) -> None:
    break_weights(models / "small" / "1")
    before = folder.open()
    replace_version(models / "small" / "2", saved_artifacts / "2")
    after = folder.reload(before, "small")
    assert _same_versions(before, after) == {"other@7"}
    assert [p.message for p in after.problems] == [p.message for p in before.problems]


@pytest.mark.parametrize("version", [1, 2])
def test_an_artifact_that_cannot_be_built_never_takes_the_place_of_one_that_is_served(
    folder: ModelsFolder, models: Path, saved_artifacts: Path, version: int
) -> None:
    before = folder.open()
    forge_weights(models / "small" / str(version), saved_artifacts / "2")
    with pytest.raises(ArtifactError, match=f"nothing of small was changed: small/{version}: golden/arrays"):
        folder.reload(before, f"small@{version}")


def test_a_version_that_was_built_in_vain_is_tried_again_when_it_is_reloaded(
    folder: ModelsFolder, models: Path, saved_artifacts: Path
) -> None:
    before = folder.open()
    break_weights(models / "small" / "2")
    asked = [Instance(input=recent_bars("AAPL"))]
    with pytest.raises(ArtifactError):
        before.find("small@2").predict(asked, NOW, NEVER)
    replace_version(models / "small" / "2", saved_artifacts / "1")
    with pytest.raises(ArtifactError):
        before.find("small@2").predict(asked, NOW, NEVER)
    after = folder.reload(before, "small@2")
    assert len(after.find("small@2").predict(asked, NOW, NEVER)) == 1


def test_a_version_removed_from_the_folder_cannot_be_reloaded_and_is_still_served(
    folder: ModelsFolder, models: Path
) -> None:
    before = folder.open()
    shutil.rmtree(models / "small" / "2")
    with pytest.raises(VersionNotFoundError, match=r"no version 2; it has \[1\]"):
        folder.reload(before, "small@2")
    assert _served(folder.reload(before, "small"))["small"] == {1, 2}


def test_a_model_whose_champion_was_broken_is_served_when_it_was_mended(
    folder: ModelsFolder, models: Path, saved_artifacts: Path
) -> None:
    break_weights(models / "small" / "1")
    before = folder.open()
    assert _served(before) == {"other": {7}, "small": {2}}
    replace_version(models / "small" / "1", saved_artifacts / "0")
    for step in (folder.load, folder.reload):
        after = step(before, "small")
        assert _served(after)["small"] == {1, 2}
        assert after.problems == ()


def test_an_unreadable_folder_is_reported_without_its_path(folder: ModelsFolder, models: Path) -> None:
    registry = folder.open()
    shutil.rmtree(models)
    with pytest.raises(ArtifactError, match=r"^the folder of models cannot be read: No such file or directory$"):
        folder.load(registry, "small")


def _served(registry: Registry) -> dict[str, set[int]]:
    return {name: set(served.versions) for name, served in sorted(registry.models.items())}


def _same_versions(before: Registry, after: Registry) -> set[str]:
    """References of versions that are the same object in both registries."""
    old, new = _objects(before), _objects(after)
    return {reference for reference, model in new.items() if old.get(reference) is model}


def _objects(registry: Registry) -> dict[str, Predictor]:
    return {f"{name}@{v}": model for name, served in registry.models.items() for v, model in served.versions.items()}

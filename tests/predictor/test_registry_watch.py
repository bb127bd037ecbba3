"""The folder watcher: added, removed, changed and unservable versions, each reported once."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from artifacts import recent_bars
from model_folders import RUNTIME, WEIGHTS, break_weights, forge_weights, lock_lines, replace_version, save_seeds

from predictor.artifact import REPLACE_ADVICE
from predictor.call_context import NEVER
from predictor.errors import ArtifactError
from predictor.instance import Instance
from predictor.registry import (
    ALIASES,
    FolderState,
    FolderWatcher,
    ModelsFolder,
    Registry,
    RegistryChange,
    VersionLock,
    set_alias,
)

NOW = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Server:
    """A folder watcher and its latest registry."""

    watch: FolderWatcher
    registry: Registry

    def poll(self) -> RegistryChange:
        """Poll once and apply the new registry."""
        change = self.watch.poll(self.registry)
        self.registry = change.registry
        return change

    def problems(self) -> list[str]:
        """Problems that a poll reports for the first time."""
        return [problem.message for problem in self.poll().problems]

    @property
    def served(self) -> dict[str, set[int]]:
        return {name: set(served.versions) for name, served in sorted(self.registry.models.items())}


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
def server(models: Path) -> Server:
    return _watched(ModelsFolder(models, RUNTIME))


def test_polling_an_unchanged_folder_gives_the_same_registry(server: Server) -> None:
    before = server.registry
    for _ in range(3):
        assert server.poll() == RegistryChange(registry=before, problems=())
        assert server.registry is before


def test_files_that_belong_to_no_version_change_nothing(server: Server, models: Path) -> None:
    before = server.registry
    for name in ("small/.3.draft", "small/03", ".hidden/1", "notes"):
        (models / name).mkdir(parents=True)
        (models / name / "manifest.json").write_text("{}")
    (models / "README").write_text("about these models")
    assert server.poll() == RegistryChange(registry=before, problems=())
    assert server.registry is before


def test_a_new_version_is_loaded_unbuilt_and_the_others_stay_the_objects_they_are(
    server: Server, models: Path, saved_artifacts: Path
) -> None:
    before = server.registry
    shutil.copytree(saved_artifacts / "2", models / "small" / "3")
    assert server.problems() == []
    assert server.served == {"other": {7}, "small": {1, 2, 3}}
    for reference in ("small", "small@1", "small@2", "other"):
        assert server.registry.find(reference) is before.find(reference)
    break_weights(models / "small" / "3")
    with pytest.raises(ArtifactError):
        _ask(server, "small@3")


def test_a_new_version_that_becomes_the_champion_is_built_before_it_goes_live(
    server: Server, models: Path, saved_artifacts: Path
) -> None:
    shutil.copytree(saved_artifacts / "2", models / "other" / "8")
    set_alias(models / "other", "champion", 8)
    assert server.problems() == []
    assert server.registry.find("other").identity.version == 8
    shutil.rmtree(models / "other" / "8")
    assert _ask(server, "other@8") == 1


def test_a_new_model_is_loaded(server: Server, models: Path, saved_artifacts: Path) -> None:
    (models / "new").mkdir()
    assert server.problems() == []
    shutil.copytree(saved_artifacts / "2", models / "new" / "1")
    assert server.problems() == []
    assert server.served == {"new": {1}, "other": {7}, "small": {1, 2}}


def test_an_alias_that_moves_moves_what_is_live(server: Server, models: Path) -> None:
    before = server.registry
    set_alias(models / "small", "champion", 2)
    assert server.problems() == []
    assert server.registry.find("small") is before.find("small@2")
    shutil.rmtree(models)
    assert _ask(server, "small") == 1


def test_a_version_that_vanished_is_unloaded(server: Server, models: Path) -> None:
    shutil.rmtree(models / "small" / "2")
    assert server.problems() == []
    assert server.served["small"] == {1}


def test_a_model_that_vanished_is_unloaded(server: Server, models: Path) -> None:
    shutil.rmtree(models / "small")
    assert server.problems() == []
    assert server.served == {"other": {7}}


def test_a_model_is_dropped_when_its_versions_and_aliases_are_removed(server: Server, models: Path) -> None:
    shutil.rmtree(models / "other" / "7")
    (models / "other" / ALIASES).unlink()
    assert server.problems() == []
    assert server.served == {"small": {1, 2}}


def test_the_champions_version_stays_served_when_it_vanished_until_the_champion_moves(
    server: Server, models: Path
) -> None:
    live = server.registry.find("small")
    shutil.rmtree(models / "small" / "1")
    assert server.problems() == [
        (
            "small/aliases.json: alias 'champion' names version 1, which is missing, so what was served stays; "
            "put it back, or release another version with quantra alias small champion 2"
        )
    ]
    assert server.registry.find("small") is live
    assert server.problems() == []
    set_alias(models / "small", "champion", 2)
    assert server.problems() == []
    assert server.served["small"] == {2}
    assert server.registry.problems == ()


def test_a_half_copied_version_is_reported_once_and_loaded_when_complete(
    server: Server, models: Path, saved_artifacts: Path
) -> None:
    data = (saved_artifacts / "2" / WEIGHTS).read_bytes()
    shutil.copytree(saved_artifacts / "2", models / "small" / "3")
    told: list[str] = []
    for share in (0, 100, 5000):
        (models / "small" / "3" / WEIGHTS).write_bytes(data[:share])
        told += server.problems()
    assert [message.split(" bytes")[0] for message in told] == ["small/3: weights.safetensors: has 0"]
    assert server.served["small"] == {1, 2}
    (models / "small" / "3" / WEIGHTS).write_bytes(data)
    assert server.problems() == []
    assert server.served["small"] == {1, 2, 3}
    assert server.registry.problems == ()


def test_a_broken_version_is_tried_again_only_when_its_files_change(
    server: Server, models: Path, saved_artifacts: Path
) -> None:
    shutil.copytree(saved_artifacts / "2", models / "small" / "3")
    break_weights(models / "small" / "3")
    assert len(server.problems()) == 1
    before = server.registry
    assert server.poll() == RegistryChange(registry=before, problems=())
    assert server.registry is before
    set_alias(models / "small", "canary", 2)
    assert server.problems() == []
    assert len(server.registry.problems) == 1
    (models / "small" / "3" / "manifest.json").write_text("{}")
    assert [message.split(": its")[0] for message in server.problems()] == ["small/3: manifest.json"]


def test_a_recurring_problem_is_reported_again(server: Server, models: Path) -> None:
    for _ in range(2):
        (models / "small" / "3").mkdir()
        assert server.problems() == [f"small/3: manifest.json: the file is missing; {REPLACE_ADVICE}"]
        shutil.rmtree(models / "small" / "3")
        assert server.problems() == []
        assert server.registry.problems == ()


def test_a_version_that_was_broken_at_the_start_is_loaded_when_it_is_mended(
    models: Path, saved_artifacts: Path
) -> None:
    break_weights(models / "small" / "2")
    server = _watched(ModelsFolder(models, RUNTIME))
    assert server.problems() == []
    replace_version(models / "small" / "2", saved_artifacts / "1")
    assert server.problems() == []
    assert server.served["small"] == {1, 2}
    assert server.registry.problems == ()


def test_a_model_whose_champion_was_broken_comes_whole_when_it_is_mended(models: Path, saved_artifacts: Path) -> None:
    break_weights(models / "small" / "1")
    server = _watched(ModelsFolder(models, RUNTIME))
    assert server.served == {"other": {7}, "small": {2}}
    replace_version(models / "small" / "1", saved_artifacts / "0")
    assert server.problems() == []
    assert server.served["small"] == {1, 2}


@pytest.mark.parametrize("text", ["", "not json", '{"champion": "2"}', '{"champion": 9}', '{"a b": 1, "champion": 2}'])
def test_bad_aliases_keep_the_old_ones_and_are_reported_once(server: Server, models: Path, text: str) -> None:
    set_alias(models / "small", "canary", 2)
    server.poll()
    (models / "small" / ALIASES).write_text(text)
    assert [message.split(":")[0] for message in server.problems()] == ["small/aliases.json"]
    assert server.problems() == []
    assert server.registry.models["small"].aliases == {"canary": 2, "champion": 1}
    (models / "small" / ALIASES).write_text('{"champion": 2}')
    assert server.problems() == []
    assert server.registry.models["small"].aliases == {"champion": 2}


def test_aliases_that_break_in_another_way_are_reported_again(server: Server, models: Path) -> None:
    for version in (8, 9):
        (models / "small" / ALIASES).write_text(f'{{"champion": {version}}}')
        assert [message.split(",")[0] for message in server.problems()] == [
            f"small/aliases.json: alias 'champion' names version {version}"
        ]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name on this system")
def test_a_look_does_not_wait_for_a_pipe(server: Server, models: Path) -> None:
    (models / "other" / ALIASES).unlink()
    os.mkfifo(models / "other" / ALIASES)
    os.mkfifo(models / "other" / "7" / "pipe")
    assert server.problems() == ["other/7: pipe: does not belong to the artifact; what was served stays"]
    assert server.served["other"] == {7}


def test_versions_are_loaded_while_the_aliases_are_bad(server: Server, models: Path, saved_artifacts: Path) -> None:
    (models / "small" / ALIASES).write_text("not json")
    shutil.copytree(saved_artifacts / "2", models / "small" / "3")
    assert len(server.problems()) == 1
    assert server.served["small"] == {1, 2, 3}
    assert server.registry.find("small").identity.version == 1


def test_a_champion_whose_version_cannot_be_built_leaves_the_old_one_live(models: Path) -> None:
    forge_weights(models / "small" / "2", models / "small" / "1")
    server = _watched(ModelsFolder(models, RUNTIME))
    assert server.served["small"] == {1, 2}
    set_alias(models / "small", "champion", 2)
    live = server.registry.find("small")
    assert [message.split(":")[0] for message in server.problems()] == ["small/2", "small/aliases.json"]
    assert server.problems() == []
    assert server.registry.find("small") is live
    assert server.served["small"] == {1}


@pytest.mark.parametrize("version", [1, 2])
def test_a_version_that_was_replaced_in_place_is_reloaded(
    server: Server, models: Path, saved_artifacts: Path, version: int
) -> None:
    before = server.registry
    replace_version(models / "small" / str(version), saved_artifacts / "2")
    assert server.problems() == []
    other = 3 - version
    assert server.registry.find(f"small@{other}") is before.find(f"small@{other}")
    new, old = (registry.find(f"small@{version}") for registry in (server.registry, before))
    assert new.identity.weights_hash != old.identity.weights_hash
    assert _ask(server, f"small@{version}") == 1


@pytest.mark.parametrize("version", [1, 2])
def test_a_version_replaced_by_a_bad_one_stays_served_and_is_reported_once(
    server: Server, models: Path, saved_artifacts: Path, version: int
) -> None:
    _ask(server, f"small@{version}")
    before = server.registry
    forge_weights(models / "small" / str(version), saved_artifacts / "2")
    assert [message.split(": golden instance")[0] for message in server.problems()] == [
        f"small/{version}: golden/arrays.safetensors"
    ]
    assert server.problems() == []
    assert server.registry.find(f"small@{version}") is before.find(f"small@{version}")
    assert _ask(server, f"small@{version}") == 1


def test_files_that_were_only_touched_change_nothing(server: Server, models: Path) -> None:
    before = server.registry
    for version in ("small/1", "small/2", "other/7"):
        os.utime(models / version / WEIGHTS)
    assert server.poll() == RegistryChange(registry=before, problems=())
    assert server.registry is before


def test_a_link_that_is_turned_to_another_release_is_followed(models: Path, saved_artifacts: Path) -> None:
    place = models / "small" / "2"
    shutil.rmtree(place)
    place.symlink_to(saved_artifacts / "1", target_is_directory=True)
    server = _watched(ModelsFolder(models, RUNTIME))
    old = server.registry.find("small@2").identity.weights_hash
    place.unlink()
    place.symlink_to(saved_artifacts / "2", target_is_directory=True)
    assert server.problems() == []
    assert server.registry.find("small@2").identity.weights_hash != old


def test_a_missing_folder_changes_nothing_and_is_reported_once(
    server: Server, models: Path, saved_artifacts: Path
) -> None:
    before = server.registry
    models.rename(models.parent / "away")
    (message,) = server.problems()
    assert message.startswith("the folder of models cannot be read: ")
    assert server.poll() == RegistryChange(registry=before, problems=())
    assert server.registry is before
    shutil.copytree(saved_artifacts / "2", models.parent / "away" / "small" / "3")
    shutil.rmtree(models.parent / "away" / "other")
    (models.parent / "away").rename(models)
    assert server.problems() == []
    assert server.served == {"small": {1, 2, 3}}
    models.rename(models.parent / "away")
    assert len(server.problems()) == 1


def test_a_model_whose_folder_cannot_be_looked_into_stays_served(
    server: Server, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, iterdir = server.registry, Path.iterdir

    def denied(path: Path) -> Iterator[Path]:
        if path == models / "small":
            raise PermissionError(13, "Permission denied")
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", denied)
    assert server.problems() == ["small: the folder cannot be read: Permission denied"]
    assert server.problems() == []
    assert server.served == {"other": {7}, "small": {1, 2}}
    monkeypatch.undo()
    assert server.problems() == []
    assert server.registry == before


def test_what_an_operator_unloaded_stays_away_until_it_changes(
    server: Server, models: Path, saved_artifacts: Path
) -> None:
    folder = ModelsFolder(models, RUNTIME)
    server.registry = folder.unload(server.registry, "small@2")
    set_alias(models / "small", "blue", 1)
    assert server.problems() == []
    assert server.served["small"] == {1}
    replace_version(models / "small" / "2", saved_artifacts / "2")
    assert server.problems() == []
    assert server.served["small"] == {1, 2}


def test_what_an_operator_loaded_before_the_look_stays_the_object_it_is(
    server: Server, models: Path, saved_artifacts: Path
) -> None:
    shutil.copytree(saved_artifacts / "2", models / "small" / "3")
    server.registry = ModelsFolder(models, RUNTIME).load(server.registry, "small@3")
    loaded = server.registry
    server.poll()
    assert server.registry is loaded


def test_what_changed_while_the_folder_was_opened_is_seen_at_the_first_look(
    models: Path, saved_artifacts: Path
) -> None:
    folder = ModelsFolder(models, RUNTIME)
    watch = FolderWatcher(folder)
    registry = folder.open()
    shutil.copytree(saved_artifacts / "2", models / "small" / "3")
    assert sorted(watch.poll(registry).registry.models["small"].versions) == [1, 2, 3]


def test_only_what_is_locked_is_loaded(models: Path, saved_artifacts: Path) -> None:
    (models.parent / "lock").write_text(lock_lines(models))
    server = _watched(ModelsFolder(models, RUNTIME, VersionLock.read(models.parent / "lock")))
    shutil.copytree(saved_artifacts / "2", models / "small" / "3")
    replace_version(models / "small" / "2", saved_artifacts / "2")
    assert [message.split(" the lock file")[0] for message in server.problems()] == [
        "small/2: manifest.json: is not the one listed in",
        "small/3: manifest.json: is not listed in",
    ]
    assert server.served["small"] == {1, 2}
    shutil.rmtree(models / "other")
    assert [message.split(";")[0] for message in server.problems()] == [
        "other/7: is listed in the lock file lock, but missing"
    ]


def test_a_look_opens_no_file_but_those_of_aliases(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    read_bytes = Path.read_bytes

    def noted(path: Path) -> bytes:
        read.append(path)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", noted)
    state = FolderState.of(models)
    assert read == [models / "small" / ALIASES]
    assert FolderState.of(models) == state
    assert sorted(state.models["small"].versions) == [1, 2]


def _watched(folder: ModelsFolder) -> Server:
    watch = FolderWatcher(folder)
    return Server(watch, folder.open())


def _ask(server: Server, reference: str) -> int:
    """Number of forecasts for one request."""
    return len(server.registry.find(reference).predict([Instance(input=recent_bars("AAPL"))], NOW, NEVER))

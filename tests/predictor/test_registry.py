"""Model registry: lookup by reference, refused damaged versions, and no silent replacement."""

import os
import shutil
import threading
from pathlib import Path

import pytest
import torch
from model_folders import RUNTIME, break_weights, forge_weights, save_seeds

from predictor.errors import ArtifactError, ConfigurationError, ModelNotFoundError, VersionNotFoundError
from predictor.registry import ALIASES, HISTORY, Registry, Runtime, check_aliases, read_aliases, set_alias


@pytest.fixture(scope="module")
def saved_artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Artifacts 0 and 1 with different weights."""
    return save_seeds(tmp_path_factory.mktemp("saved"), 0, 1)


@pytest.fixture
def models(saved_artifacts: Path, tmp_path: Path) -> Path:
    for version, seed in (("small/1", "0"), ("small/2", "1"), ("other/7", "1")):
        shutil.copytree(saved_artifacts / seed, tmp_path / "models" / version)
    return tmp_path / "models"


# --- references


@pytest.mark.parametrize(
    ("reference", "version"),
    [("small@1", 1), ("small@2", 2), ("small@champion", 1), ("small@canary", 2), ("small", 1), ("other", 7)],
)
def test_a_reference_finds_a_version_an_alias_or_the_champion(models: Path, reference: str, version: int) -> None:
    set_alias(models / "small", "champion", 1)
    set_alias(models / "small", "canary", 2)
    assert _open(models).find(reference).identity.version == version


def test_the_newest_version_becomes_the_champion_of_a_model_without_one(models: Path) -> None:
    (models / "small" / "2").rename(models / "small" / "10")
    assert _open(models).find("small").identity.version == 10
    assert {name: read_aliases(models / name) for name in ("other", "small")} == {
        "other": {"champion": 7},
        "small": {"champion": 10},
    }


def test_an_empty_reference_means_the_only_model(models: Path) -> None:
    shutil.rmtree(models / "other")
    registry = _open(models)
    assert registry.find("").identity.name == "small"
    assert registry.find("@1").identity.version == 1
    with pytest.raises(VersionNotFoundError, match=r"model 'small' has no version or alias ''"):
        registry.find("small@")
    with pytest.raises(VersionNotFoundError, match=r"model 'small' has no version or alias '9'"):
        registry.find("@9")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("", "several are served: other, small; name one, such as other"),
        ("big", r"no model 'big'; there are \['other', 'small'\]"),
    ],
)
def test_an_empty_or_unknown_reference_lists_the_models(models: Path, reference: str, message: str) -> None:
    with pytest.raises(ModelNotFoundError, match=message):
        _open(models).find(reference)


@pytest.mark.parametrize("selector", ["3", "-1", "01", "1.0", "latest", "²", "9" * 5000, " 1", "1@1"])
def test_an_unknown_version_lists_versions_and_aliases(models: Path, selector: str) -> None:
    set_alias(models / "small", "champion", 1)
    with pytest.raises(VersionNotFoundError, match=r"versions \[1, 2\] and aliases \['champion'\]") as caught:
        _open(models).find(f"small@{selector}")
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("name", ["../../x", "../models/small", "small/1", "/etc/passwd", "a\0b", "x" * 1_000_000, "."])
def test_a_reference_never_touches_the_file_system(models: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    registry = _open(models)

    def touched(*_: object, **__: object) -> None:
        raise AssertionError("a reference became a path")

    for function in ("stat", "lstat", "open", "listdir", "scandir"):
        monkeypatch.setattr(os, function, touched)
    with pytest.raises(ModelNotFoundError) as caught:
        registry.find(name)
    monkeypatch.undo()
    assert len(caught.value.message) < 500


def test_what_is_served_is_listed_by_name_and_version(models: Path) -> None:
    set_alias(models / "small", "champion", 1)
    set_alias(models / "small", "blue", 1)
    infos = _open(models).infos()
    assert [(i.name, i.version, i.aliases, i.is_default) for i in infos] == [
        ("other", 7, ("champion",), True),
        ("small", 1, ("blue", "champion"), True),
        ("small", 2, (), False),
    ]
    assert infos[1].weights_hash != infos[2].weights_hash


# --- broken models


def test_a_broken_version_is_refused_and_the_others_are_served(models: Path) -> None:
    break_weights(models / "small" / "2")
    registry = _open(models)
    assert [(i.name, i.version) for i in registry.infos()] == [("other", 7), ("small", 1)]
    assert len(registry.problems) == 1
    assert registry.problems[0].message.startswith("small/2: weights.safetensors: ")


def test_a_broken_champion_makes_the_plain_name_unavailable(models: Path) -> None:
    """Serving another version would be a silent fallback."""
    set_alias(models / "small", "champion", 2)
    break_weights(models / "small" / "2")
    registry = _open(models)
    with pytest.raises(ModelNotFoundError, match=r"^model 'small' is not served: small/aliases.json: alias 'champion'"):
        registry.find("small")
    assert registry.find("small@1").identity.version == 1
    assert registry.find("other").identity.version == 7
    assert registry.problems[-1].message == (
        "small/aliases.json: alias 'champion' names version 2, which was refused when it was loaded, so other versions "
        "are served by number only; put it back, or release another version with quantra alias small champion 1"
    )


def test_weights_of_another_model_are_refused_by_the_golden_instance(models: Path) -> None:
    """All digests are right, but the parts are of different models."""
    one, two = models / "small" / "1", models / "small" / "2"
    forge_weights(two, one)
    registry = _open(models)
    assert [p.message.split(" is off")[0] for p in registry.problems] == [
        "small/2: golden/arrays.safetensors: golden instance: stage units"
    ]
    assert registry.find("small").identity.version == 1


def test_folders_that_are_no_versions_are_not_looked_at(models: Path) -> None:
    for name in ("small/01", "small/draft", "small/.2.tmp", ".hidden/1", "notes"):
        (models / name).mkdir(parents=True)
    (models / "README").write_text("about these models")
    registry = _open(models)
    assert [(i.name, i.version) for i in registry.infos()] == [("other", 7), ("small", 1), ("small", 2)]
    assert registry.problems == ()


def test_a_missing_folder_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing: there is no such folder; train a model into"):
        _open(tmp_path / "nothing")


def test_an_empty_folder_says_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"holds no model that can be served; expected NAME/1 folders"):
        _open(tmp_path)


def test_a_folder_of_broken_models_gives_the_reason_for_each(models: Path) -> None:
    for version in ("small/1", "small/2", "other/7"):
        break_weights(models / version)
    with pytest.raises(ConfigurationError) as caught:
        _open(models)
    assert caught.value.message.count("weights.safetensors: its SHA-256") == 3


def test_rows_at_once_must_be_positive() -> None:
    with pytest.raises(ConfigurationError, match="rows at once are 0"):
        Runtime(torch.device("cpu"), 0)


# --- aliases


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"champion": "1"}', '{"champion": 1.0}', '{"champion": true}', '{"champion": null}', '{"2": 1}',
     '{"a b": 1}', '{"": 1}', '{"champion": 1, "champion": 2}'],
)  # fmt: skip
def test_an_aliases_file_that_is_wrong_makes_the_model_unavailable(models: Path, text: str) -> None:
    (models / "small" / ALIASES).write_text(text)
    registry = _open(models)
    with pytest.raises(ModelNotFoundError):
        registry.find("small")
    assert registry.problems[0].message.startswith(f"small/{ALIASES}")


def test_an_alias_of_a_missing_version_is_a_problem_and_the_others_answer(models: Path) -> None:
    (models / "small" / ALIASES).write_text('{"canary": 9, "champion": 1, "old": 2}')
    registry = _open(models)
    assert [problem.message for problem in registry.problems] == [
        "small/aliases.json: alias 'canary' names version 9, which is missing, so nothing answers to it"
    ]
    assert registry.problems[0].metadata["file"] == "small/aliases.json"
    assert [registry.find(f"small{selector}").identity.version for selector in ("", "@2", "@old")] == [1, 2, 2]


def test_an_alias_of_a_refused_version_is_a_problem_of_its_own(models: Path) -> None:
    set_alias(models / "small", "canary", 2)
    break_weights(models / "small" / "2")
    _, problem = _open(models).problems
    assert problem.message.startswith("small/aliases.json: alias 'canary' names version 2, which was refused")


def test_a_dangling_alias_is_not_found_with_the_reason(models: Path) -> None:
    (models / "small" / ALIASES).write_text('{"canary": 9, "champion": 1, "next": 2}')
    break_weights(models / "small" / "2")
    registry = _open(models)
    there = r"; it has versions \[1\] and aliases \['champion'\]"
    with pytest.raises(VersionNotFoundError, match=rf"alias 'canary' names version 9, which is missing{there}"):
        registry.find("small@canary")
    with pytest.raises(VersionNotFoundError, match=rf"alias 'next' names version 2, which was refused .*{there}"):
        registry.find("small@next")


def test_aliases_of_a_model_without_any_version_are_problems(models: Path) -> None:
    (models / "empty").mkdir()
    (models / "empty" / ALIASES).write_text('{"canary": 1}')
    assert [p.message for p in _open(models).problems] == [
        "empty/aliases.json: alias 'canary' names version 1, which is missing, so nothing answers to it"
    ]


def test_the_aliases_of_one_folder_are_judged_as_a_server_would(models: Path) -> None:
    (models / "small" / ALIASES).write_text('{"canary": 9, "champion": 1, "next": 2}')
    break_weights(models / "small" / "2")
    served = [p.message for p in _open(models).problems if ALIASES in p.message]
    assert [p.message for p in check_aliases(models / "small", RUNTIME)] == served
    assert len(served) == 2
    (models / "small" / ALIASES).write_text("not json")
    assert check_aliases(models / "small", RUNTIME)[0].message.startswith("small/aliases.json")


@pytest.mark.parametrize("linked", ["models", "models/small", "models/small/2"])
def test_links_to_whole_folders_are_how_people_deploy_and_are_served(models: Path, linked: str) -> None:
    """The link's target is verified like any artifact."""
    place = models.parent / linked
    place.rename(models.parent / "release")
    place.symlink_to(models.parent / "release", target_is_directory=True)
    registry = _open(models)
    assert registry.find("small").identity.version == 2
    assert registry.problems == ()


@pytest.mark.parametrize("alias", ["", "3", "a b", "../x", "@", "x" * 65, "a/b", "-a"])
def test_an_alias_that_is_no_name_is_refused(models: Path, alias: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an alias; it must be"):
        set_alias(models / "small", alias, 1)
    assert not (models / "small" / ALIASES).exists()


def test_an_alias_of_a_missing_version_is_refused(models: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no version 3; it has \[1, 2\]"):
        set_alias(models / "small", "champion", 3)


def test_setting_an_alias_keeps_the_others(models: Path) -> None:
    for alias, version in (("champion", 1), ("canary", 2), ("champion", 2)):
        set_alias(models / "small", alias, version)
    assert read_aliases(models / "small") == {"champion": 2, "canary": 2}


def test_an_alias_never_overwrites_a_file_that_cannot_be_read(models: Path) -> None:
    (models / "small" / ALIASES).write_text("not json")
    with pytest.raises(ArtifactError):
        set_alias(models / "small", "champion", 1)
    assert (models / "small" / ALIASES).read_text() == "not json"


def test_a_reader_sees_the_old_aliases_or_the_new_ones(models: Path) -> None:
    line = models / "small"
    set_alias(line, "champion", 1)
    seen: set[int] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(read_aliases(line)["champion"])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for turn in range(60):
            set_alias(line, "champion", 1 + turn % 2)
    finally:
        done.set()
        reader.join()
    assert seen <= {1, 2}
    assert sorted(p.name for p in line.iterdir()) == [f".{ALIASES}.lock", "1", "2", ALIASES, HISTORY]


def test_an_alias_that_cannot_be_written_leaves_the_old_ones(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_alias(models / "small", "champion", 1)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        set_alias(models / "small", "champion", 2)
    assert read_aliases(models / "small") == {"champion": 1}
    assert sorted(p.name for p in (models / "small").iterdir()) == [f".{ALIASES}.lock", "1", "2", ALIASES, HISTORY]


def _open(models: Path) -> Registry:
    return Registry.open(models, RUNTIME)

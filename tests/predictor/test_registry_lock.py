"""The lock file: only listed, unchanged versions are served."""

import shutil
import subprocess
from pathlib import Path

import pytest
from ensembles import save_ensemble
from model_folders import RUNTIME, forge_weights, lock_lines, replace_version, save_seeds

from predictor.errors import ArtifactError, ConfigurationError
from predictor.registry import ModelsFolder, Registry, VersionLock, set_alias

DIGEST = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def saved_artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Artifacts 0, 1 and 2 with different weights, and an ensemble of two."""
    folder = save_seeds(tmp_path_factory.mktemp("saved"), 0, 1, 2)
    save_ensemble(folder / "joint", {"a": folder / "0", "b": folder / "1"})
    return folder


@pytest.fixture
def models(saved_artifacts: Path, tmp_path: Path) -> Path:
    """Versions 1 and 2 of `small`, of which 1 is the champion, and version 7 of `other`."""
    for version, seed in (("small/1", "0"), ("small/2", "1"), ("other/7", "1")):
        shutil.copytree(saved_artifacts / seed, tmp_path / "models" / version)
    set_alias(tmp_path / "models" / "small", "champion", 1)
    return tmp_path / "models"


# --- the file


@pytest.mark.parametrize(
    "line", ["{}  small/2/manifest.json", "{} *small/2/manifest.json", "{}  ./small/2/manifest.json"]
)
@pytest.mark.parametrize("digest", [DIGEST, DIGEST.upper()])
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_lines_are_read_as_programs_print_them(tmp_path: Path, line: str, digest: str, end: str) -> None:
    assert _lock(tmp_path, line.format(digest) + end).digests == {"small": {2: DIGEST}}


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="no sha256sum on this machine")
@pytest.mark.parametrize("mode", ["--text", "--binary"])
def test_what_sha256sum_prints_is_a_lock_file_of_every_version(models: Path, mode: str) -> None:
    (models / "small" / "draft").mkdir()
    shutil.copy(models / "small" / "1" / "manifest.json", models / "small" / "draft")
    command = ["sh", "-c", f"sha256sum {mode} */*/manifest.json"]
    printed = subprocess.run(command, cwd=models, capture_output=True, text=True, check=True)
    lock = _lock(models.parent, printed.stdout)
    assert {name: sorted(versions) for name, versions in lock.digests.items()} == {"other": [7], "small": [1, 2]}
    assert lock.digests == _lock(models.parent, lock_lines(models)).digests
    assert _open(models, lock).problems == ()


@pytest.mark.parametrize(
    "line",
    [
        "small/2/manifest.json",
        f"{DIGEST} small/2/manifest.json",
        f"{DIGEST[1:]}  small/2/manifest.json",
        f"{DIGEST}  small/2/weights.safetensors",
        f"{DIGEST}  manifest.json",
        f"{DIGEST}  /models/small/2/manifest.json",
        f"{DIGEST}  ../small/manifest.json",
        f"{DIGEST}  joint/1/members/a/manifest.json",
        f"\\{DIGEST}  small/2/manifest.json",
        "sha256sum: '*/*/manifest.json': No such file or directory",
        "\0" * 500,
    ],
)
def test_a_line_of_another_form_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigurationError, match=r"lock: line 2 is .*, but must be 64 hexadecimal digits") as caught:
        _lock(tmp_path, f"{DIGEST}  small/1/manifest.json\n{line}\n")
    assert "sha256sum */*/manifest.json" in caught.value.message
    assert len(caught.value.message) < 800


def test_a_version_that_is_listed_twice_is_named(tmp_path: Path) -> None:
    line = f"{DIGEST}  small/1/manifest.json\n"
    with pytest.raises(ConfigurationError, match="line 2 lists small/1 again"):
        _lock(tmp_path, line + line)


@pytest.mark.parametrize("text", ["", "\n\n", f"{DIGEST}  small/draft/manifest.json\n"])
def test_a_file_without_a_version_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="lists no version, so nothing could be served; run 'sha256sum"):
        _lock(tmp_path, text)


def test_a_file_that_cannot_be_read_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file or directory; run 'sha256sum"):
        VersionLock.read(tmp_path / "none")
    (tmp_path / "lock").write_bytes(lock_lines(tmp_path).encode("utf-16"))
    with pytest.raises(ConfigurationError, match="is not text in UTF-8; run 'sha256sum"):
        VersionLock.read(tmp_path / "lock")


# --- what it keeps out


def test_a_version_that_is_not_listed_is_not_served(models: Path, saved_artifacts: Path) -> None:
    lock = _lock(models.parent, lock_lines(models))
    shutil.copytree(saved_artifacts / "2", models / "small" / "3")
    registry = _open(models, lock)
    assert sorted(registry.models["small"].versions) == [1, 2]
    (problem,) = registry.problems
    assert problem.message == (
        "small/3: manifest.json: is not listed in the lock file lock, so the version is not served; if it is meant to "
        "be, make the lock file anew: run 'sha256sum */*/manifest.json' in the folder of models and keep what it prints"
    )


def test_another_artifact_in_the_place_of_the_listed_one_is_not_served(models: Path, saved_artifacts: Path) -> None:
    lock = _lock(models.parent, lock_lines(models))
    replace_version(models / "small" / "2", saved_artifacts / "2")
    registry = _open(models, lock)
    assert sorted(registry.models["small"].versions) == [1]
    assert registry.problems[0].message.startswith("small/2: manifest.json: is not the one listed in the lock file")


def test_a_forger_who_makes_all_digests_right_is_found(models: Path) -> None:
    lock = _lock(models.parent, lock_lines(models))
    forge_weights(models / "small" / "1", models / "small" / "2")
    assert sorted(_open(models, lock).models["small"].versions) == [2]


def test_one_line_stands_for_an_ensemble_and_its_members(models: Path, saved_artifacts: Path) -> None:
    shutil.copytree(saved_artifacts / "joint", models / "joint" / "1")
    lock = _lock(models.parent, lock_lines(models))
    assert _open(models, lock).problems == ()
    shutil.rmtree(models / "joint" / "1")
    save_ensemble(models / "joint" / "1", {"a": saved_artifacts / "0", "b": saved_artifacts / "2"})
    registry = _open(models, lock)
    assert "joint" not in registry.models
    assert registry.problems[0].message.startswith("joint/1: manifest.json: is not the one listed")


def test_versions_that_are_listed_but_missing_are_named_and_the_others_served(models: Path) -> None:
    lock = _lock(models.parent, lock_lines(models))
    shutil.rmtree(models / "small" / "2")
    shutil.rmtree(models / "other")
    registry = _open(models, lock)
    assert sorted(registry.models) == ["small"]
    assert [p.message.split("; put")[0] for p in registry.problems] == [
        "other/7: is listed in the lock file lock, but missing",
        "small/2: is listed in the lock file lock, but missing",
    ]
    assert registry.problems[0].metadata == {"model": "other", "version": "7"}


def test_when_nothing_is_listed_as_it_is_nothing_is_served_and_the_message_says_why(models: Path) -> None:
    lock = _lock(models.parent, "".join(f"{DIGEST}  {version}/manifest.json\n" for version in ("small/1", "small/2")))
    with pytest.raises(ConfigurationError) as caught:
        _open(models, lock)
    assert caught.value.message.count("is not the one listed in the lock file") == 2
    assert caught.value.message.count("is not listed in the lock file") == 1


def test_what_is_loaded_later_must_be_listed_too(models: Path, saved_artifacts: Path) -> None:
    shutil.copytree(saved_artifacts / "2", models / "small" / "3")
    lock = _lock(models.parent, lock_lines(models))
    shutil.rmtree(models / "small" / "3")
    folder = ModelsFolder(models, RUNTIME, lock)
    registry = folder.open()
    shutil.copytree(saved_artifacts / "1", models / "small" / "3")
    shutil.copytree(saved_artifacts / "2", models / "small" / "4")
    for version in (3, 4):
        with pytest.raises(ArtifactError, match=rf"small/{version}: manifest.json: is not .*listed in the lock file"):
            folder.load(registry, f"small@{version}")
    replace_version(models / "small" / "3", saved_artifacts / "2")
    after = folder.load(registry, "small@3")
    assert sorted(after.models["small"].versions) == [1, 2, 3]
    assert len(registry.problems) == 1
    assert after.problems == ()


def test_a_version_that_was_listed_is_not_replaced_by_another_when_it_is_reloaded(
    models: Path, saved_artifacts: Path
) -> None:
    folder = ModelsFolder(models, RUNTIME, _lock(models.parent, lock_lines(models)))
    registry = folder.open()
    replace_version(models / "small" / "2", saved_artifacts / "2")
    with pytest.raises(ArtifactError, match=r"small/2: manifest.json: is not the one listed"):
        folder.reload(registry, "small@2")


def _lock(folder: Path, text: str) -> VersionLock:
    (folder / "lock").write_bytes(text.encode())
    return VersionLock.read(folder / "lock")


def _open(models: Path, lock: VersionLock) -> Registry:
    return ModelsFolder(models, RUNTIME, lock).open()

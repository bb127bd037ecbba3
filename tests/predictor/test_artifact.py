"""Artifacts: atomic writing, reproducible bytes, and no executable content."""

import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from artifacts import save_small_artifact, small_artifact, small_model

from predictor import artifact, golden
from predictor.artifact import CONTENTS, DIGEST, MANIFEST, Golden
from predictor.errors import ArtifactError, ConfigurationError


@pytest.fixture(scope="module")
def golden_record() -> Golden:
    return golden.record(small_model(small_artifact()))


def test_an_artifact_loads_as_it_was_saved(tmp_path: Path, golden_record: Golden) -> None:
    made = small_artifact()
    artifact.save(tmp_path / "1", made, golden_record)
    stored = artifact.load(tmp_path / "1")
    assert stored.artifact.manifest == made.manifest
    assert stored.artifact.pipeline.features.schema_hash == made.pipeline.features.schema_hash
    assert stored.artifact.pipeline.calendar == made.pipeline.calendar
    assert set(stored.artifact.weights) == set(made.weights)
    assert all(torch.equal(stored.artifact.weights[name], tensor) for name, tensor in made.weights.items())
    assert stored.golden.text == golden_record.text
    assert all(np.array_equal(stored.golden.arrays[n], a, equal_nan=True) for n, a in golden_record.arrays.items())


def test_the_same_artifact_is_saved_as_the_same_bytes(tmp_path: Path, golden_record: Golden) -> None:
    for name in ("1", "2"):
        artifact.save(tmp_path / name, small_artifact(), golden_record)
    for name in (MANIFEST, DIGEST, *CONTENTS):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_an_artifact_is_never_overwritten(tmp_path: Path, golden_record: Golden) -> None:
    save_small_artifact(tmp_path / "1")
    before = (tmp_path / "1" / MANIFEST).read_bytes()
    with pytest.raises(ConfigurationError, match="exists already"):
        artifact.save(tmp_path / "1", small_artifact(seed=1), golden_record)
    assert (tmp_path / "1" / MANIFEST).read_bytes() == before


@pytest.mark.parametrize("step", ["fsync", "rename"])
@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt])
def test_a_save_that_breaks_off_leaves_nothing(
    tmp_path: Path, golden_record: Golden, monkeypatch: pytest.MonkeyPatch, step: str, kind: type[BaseException]
) -> None:
    def broken(*_: object) -> None:
        raise kind("disk full")

    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (Path, "rename")), broken)
    with pytest.raises(kind, match="disk full"):
        artifact.save(tmp_path / "1", small_artifact(), golden_record)
    assert list(tmp_path.iterdir()) == []


def test_every_file_is_flushed_before_the_folder_gets_its_name(
    tmp_path: Path, golden_record: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def seen_fsync(handle: int) -> None:
        steps.append("flush")
        fsync(handle)

    def seen_rename(draft: Path, target: Path) -> Path:
        steps.append("rename")
        return rename(draft, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(Path, "rename", seen_rename)
    artifact.save(tmp_path / "1", small_artifact(), golden_record)
    assert steps == ["flush"] * (len(CONTENTS) + 2 + 2) + ["rename", "flush"]


@pytest.mark.skipif(os.name != "posix", reason="file modes are of POSIX")
def test_another_users_server_can_read_what_was_saved(tmp_path: Path, golden_record: Golden) -> None:
    mask = os.umask(0o077)
    try:
        artifact.save(tmp_path / "1", small_artifact(), golden_record)
    finally:
        os.umask(mask)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "1").rglob("*") if path.is_file()}
    folders = {path.stat().st_mode & 0o777 for path in (tmp_path / "1", tmp_path / "1" / "golden")}
    assert (modes, folders) == ({0o644}, {0o755})


def test_a_number_that_json_cannot_hold_is_not_saved(tmp_path: Path, golden_record: Golden) -> None:
    made = small_artifact()
    with pytest.raises(ValueError, match="not JSON compliant"):
        artifact.save(
            tmp_path / "1", replace(made, manifest=replace(made.manifest, card={"loss": np.nan})), golden_record
        )
    assert list(tmp_path.iterdir()) == []


def test_loading_unpickles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_small_artifact(tmp_path / "1")

    def refuse(name: str) -> Callable[..., None]:
        def refused(*_: object, **__: object) -> None:
            raise AssertionError(f"{name} was called")

        return refused

    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load"), (np, "load")):
        monkeypatch.setattr(module, name, refuse(name))
    golden.check(small_model(artifact.load(folder).artifact), artifact.load(folder).golden)


def test_loading_keeps_the_random_state(tmp_path: Path) -> None:
    folder = save_small_artifact(tmp_path / "1")
    torch.manual_seed(9)
    expected = torch.rand(3)
    torch.manual_seed(9)
    artifact.load(folder).artifact.network()
    assert torch.equal(torch.rand(3), expected)


def test_a_folder_claims_to_be_an_artifact_by_its_manifest(tmp_path: Path) -> None:
    assert artifact.is_artifact(save_small_artifact(tmp_path / "1"))
    assert not artifact.is_artifact(tmp_path)


def test_a_path_without_a_folder_is_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as refused:
        artifact.load(tmp_path / "nothing")
    assert refused.value.message.startswith("the folder is missing; ")  # the caller adds the name


def test_a_version_that_exists_is_refused_with_the_next_free_one(tmp_path: Path) -> None:
    (tmp_path / "3").mkdir()
    (tmp_path / "1").mkdir()
    with pytest.raises(ConfigurationError, match=r"1 exists already; .*: use --out .*4$"):
        artifact.check_new_folder(tmp_path / "1")

"""Damaged, forged and inconsistent ensembles: each raises an ArtifactError that names the member and the cause."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from artifacts import save_artifact
from ensembles import UNEVEN, artifact_of, save_ensemble

from predictor import artifact
from predictor.artifact import CONTENTS, DIGEST, MANIFEST, MEMBERS, REPLACE_ADVICE
from predictor.errors import ArtifactError
from predictor.registry import Registry, Runtime, load_model, load_single

RUNTIME = Runtime(torch.device("cpu"), 256)
OWN = (MANIFEST, DIGEST, "golden/golden.json", "golden/arrays.safetensors")
OF_MEMBER = tuple(f"{MEMBERS}/b/{name}" for name in (MANIFEST, DIGEST, *CONTENTS))
Entry = dict[str, Any]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three artifacts and an ensemble of the first two."""
    folder = tmp_path_factory.mktemp("parts")
    for seed in (1, 2, 3):
        save_artifact(folder / f"{seed}", artifact_of("lstm", encoder_length=20, features=(0, 1), seed=seed))
    save_ensemble(folder / "joint", {"a": folder / "1", "b": folder / "2"})
    return folder


@pytest.fixture
def folder(parts: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(parts / "joint", tmp_path / "1"))


def load_error(folder: Path) -> str:
    """The error message when the ensemble is loaded as a served model."""
    with pytest.raises(ArtifactError) as caught:
        load_model(folder, ("joint", 1), RUNTIME)
    return caught.value.message


def forge(folder: Path, change: Callable[[Entry], object]) -> None:
    """Change values in the ensemble's manifest and correct its digest."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    change(manifest)
    text = json.dumps(manifest).encode()
    (folder / MANIFEST).write_bytes(text)
    (folder / DIGEST).write_text(f"{hashlib.sha256(text).hexdigest()}  {MANIFEST}\n")


def adopt(folder: Path, name: str) -> None:
    """Make the manifest list the member that is in the folder, as a forger would."""
    digest = hashlib.sha256((folder / MEMBERS / name / MANIFEST).read_bytes()).hexdigest()

    def change(manifest: Entry) -> None:
        (entry,) = (member for member in manifest["members"] if member["name"] == name)
        entry["manifest_sha256"] = digest

    forge(folder, change)


def replace_member(folder: Path, other: Path) -> None:
    """Replace member b by another artifact."""
    shutil.rmtree(folder / MEMBERS / "b")
    shutil.copytree(other, folder / MEMBERS / "b")


def test_the_forgers_tools_alone_do_no_damage(folder: Path) -> None:
    forge(folder, lambda manifest: manifest)
    adopt(folder, "b")
    assert load_model(folder, ("joint", 1), RUNTIME).identity.name == "joint"


# --- accidents


@pytest.mark.parametrize("name", [*OWN, *OF_MEMBER])
def test_one_flipped_bit_anywhere_is_found(folder: Path, name: str) -> None:
    path, random = folder / name, np.random.default_rng(7)
    whole = path.read_bytes()
    for _ in range(5):
        damaged = bytearray(whole)
        damaged[int(random.integers(len(whole)))] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(ArtifactError, match="SHA-256") as caught:
            artifact.load_ensemble(folder)
        named = name.replace(DIGEST, MANIFEST)
        assert caught.value.message.startswith(f"{named}: ")
        assert caught.value.metadata["file"] == named


@pytest.mark.parametrize("name", [*OWN, *OF_MEMBER])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert load_error(folder) == f"{name}: the file is missing; {REPLACE_ADVICE}"


@pytest.mark.parametrize("name", OF_MEMBER)
def test_a_link_in_place_of_a_members_file_is_named(folder: Path, name: str, tmp_path: Path) -> None:
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    assert load_error(folder).startswith(f"{name}: is a link")


def test_a_missing_member_is_named(folder: Path) -> None:
    shutil.rmtree(folder / MEMBERS / "b")
    assert load_error(folder) == "members/b: the member is missing"


def test_a_missing_folder_of_members_is_named(folder: Path) -> None:
    shutil.rmtree(folder / MEMBERS)
    assert load_error(folder) == "members/a: the member is missing"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (MEMBERS, f"{MEMBERS}/a: is a link; an ensemble holds its members, not links to them"),
        (f"{MEMBERS}/b", f"{MEMBERS}/b: is a link; an ensemble holds its members, not links to them"),
        ("golden", "golden: is a link; an artifact holds its files, not links to them"),
        (f"{MEMBERS}/b/golden", f"{MEMBERS}/b/golden: is a link; an artifact holds its files, not links to them"),
    ],
)
def test_a_link_in_place_of_a_folder_is_named(folder: Path, place: str, message: str, tmp_path: Path) -> None:
    (folder / place).rename(tmp_path / "elsewhere")
    (folder / place).symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert load_error(folder) == message


@pytest.mark.parametrize("name", ["more.txt", "members/more.txt", "golden/more.py", "members/b/more.py"])
def test_a_stranger_file_is_named(folder: Path, name: str) -> None:
    (folder / name).write_text("print()")
    assert load_error(folder) == f"{name}: does not belong to the artifact"


def test_a_member_too_many_is_named(folder: Path, parts: Path) -> None:
    shutil.copytree(parts / "3", folder / MEMBERS / "c")
    assert load_error(folder) == "members/c: does not belong to the artifact"


# --- mixed up


def test_another_artifact_in_a_members_place_is_named(folder: Path, parts: Path) -> None:
    replace_member(folder, parts / "3")
    assert load_error(folder).startswith("members/b/manifest.json: its SHA-256 is not the one in the ensemble's")


def test_members_that_changed_places_are_found(folder: Path) -> None:
    members = folder / MEMBERS
    for source, target in (("a", "c"), ("b", "a"), ("c", "b")):
        (members / source).rename(members / target)
    assert "another artifact is in its place" in load_error(folder)


def test_an_adopted_stranger_is_found_by_the_ensembles_own_golden_instance(folder: Path, parts: Path) -> None:
    """All digests are right and the member is intact, but it does not belong to this ensemble."""
    replace_member(folder, parts / "3")
    adopt(folder, "b")
    assert load_error(folder).startswith("golden/arrays.safetensors: golden instance: stage values is off by")


def test_a_member_whose_parts_do_not_belong_together_is_found_by_its_golden_instance(folder: Path) -> None:
    a, b = folder / MEMBERS / "a", folder / MEMBERS / "b"
    data = (a / "weights.safetensors").read_bytes()
    (b / "weights.safetensors").write_bytes(data)
    forge(b, lambda manifest: manifest["files"].update({"weights.safetensors": _entry(data)}))
    adopt(folder, "b")
    assert load_error(folder).startswith("members/b/golden/arrays.safetensors: golden instance: stage units is off by")


def test_an_ensemble_among_members_is_refused(folder: Path, parts: Path) -> None:
    replace_member(folder, parts / "joint")
    adopt(folder, "b")
    assert load_error(folder).startswith("members/b/manifest.json: format is 'quantra-ensemble', expected")


def test_a_member_that_does_not_fit_is_refused(folder: Path) -> None:
    def other_quantiles(manifest: Entry) -> None:
        manifest["quantiles"] = [0.2, 0.5, 0.8]

    forge(folder / MEMBERS / "b", other_quantiles)
    adopt(folder, "b")
    assert "the quantiles of a is (0.1, 0.5, 0.9), that of b is (0.2, 0.5, 0.8)" in load_error(folder)


# --- forged manifests


def _entry(data: bytes) -> Entry:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


FORGED: list[tuple[Callable[[Entry], object], str]] = [
    (lambda m: m.update(format_version=3), "format version is 3, this program reads 2"),
    (lambda m: m.update(combination={"quantiles": "median"}), "combination is not this program's"),
    (lambda m: m.update(stranger=1), "stranger"),
    (lambda m: m.update(members=m["members"][:1]), "members/b: does not belong to the artifact"),
    (lambda m: m.update(members=[]), "an ensemble has 1 to 32 members, but there are 0"),
    (lambda m: m.update(weights=[[0.5, 0.5, 0.5]] * 2), "combination is not this program's"),
    (lambda m: m.update(members=[m["members"][0]] * 2), "the name of an earlier member"),
    (lambda m: m["members"][0].update(name="../a"), "member name '../a' is invalid"),
    (lambda m: m["members"][0].update(name=""), "member name '' is invalid"),
    (lambda m: m["members"][0].update(path="/etc"), "path"),
    (lambda m: m["members"][0].update(manifest_sha256="0" * 64), "another artifact is in its place"),
    (lambda m: m.update(quantiles=[0.9, 0.5, 0.1]), "ascending levels"),
    (lambda m: m.update(quantiles=[0.2, 0.5, 0.9]), "but its members forecast"),
    (lambda m: m["target"].update(lag=1), "but its members forecast"),
    (lambda m: m.update(calendar="XLON"), "but its members forecast"),
    (lambda m: m["conformal"].update(offsets=[[0, 0, 0]]), "4 rows of 3 numbers"),
    (lambda m: m["conformal"]["offsets"][0].__setitem__(0, -0.4), "stage values is off by"),
    (lambda m: m.update(card=[]), "card must be an object"),
    (lambda m: m["files"].pop("golden/golden.json"), "lists files"),
    (lambda m: m.pop("members"), "members is missing"),
]


@pytest.mark.parametrize(("change", "cause"), FORGED)
def test_a_forged_manifest_is_refused(folder: Path, change: Callable[[Entry], object], cause: str) -> None:
    forge(folder, change)
    assert cause in load_error(folder)


FORGED_WEIGHTS: list[tuple[Callable[[Entry], object], str]] = [
    (lambda m: m.pop("weights"), "combination is not this program's"),
    (lambda m: m.update(weights=m["weights"][:1]), "weights must be 2 rows of 3 numbers"),
    (lambda m: m.update(weights=[[1.5, 0.5, 0.5], [-0.5, 0.5, 0.5]]), "weights must be 0 or more"),
    (lambda m: m.update(weights=[[0.5, 0.5, 0.5], [0.6, 0.5, 0.5]]), "a sum of 1 per quantile"),
    (lambda m: m.update(weights=m["weights"][::-1]), "stage values is off by"),
    (lambda m: m.update(weights="equal"), "weights"),
]


@pytest.mark.parametrize(("change", "cause"), FORGED_WEIGHTS)
def test_forged_weights_are_refused(parts: Path, tmp_path: Path, change: Callable[[Entry], object], cause: str) -> None:
    folder = save_ensemble(tmp_path / "1", {"a": parts / "1", "b": parts / "2"}, UNEVEN)
    load_model(folder, ("joint", 1), RUNTIME)
    forge(folder, change)
    assert cause in load_error(folder)


def test_an_ensemble_is_no_single_network(folder: Path) -> None:
    with pytest.raises(ArtifactError, match="format is 'quantra-ensemble', expected 'quantra-artifact'"):
        load_single(folder, ("joint", 1), RUNTIME)


def test_a_broken_ensemble_leaves_the_other_models_served(folder: Path, parts: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    shutil.copytree(parts / "1", models / "single" / "1")
    shutil.copytree(folder, models / "joint" / "1")
    shutil.rmtree(models / "joint" / "1" / MEMBERS / "a")
    registry = Registry.open(models, RUNTIME)
    assert [info.name for info in registry.infos()] == ["single"]
    assert [problem.message for problem in registry.problems] == ["joint/1: members/a: the member is missing"]


def test_a_member_that_changed_meanwhile_is_not_saved(parts: Path, tmp_path: Path) -> None:
    one, other = (Path(shutil.copytree(parts / name, tmp_path / name)) for name in ("1", "2"))
    stored = artifact.load_ensemble(parts / "joint")
    shutil.rmtree(other)
    shutil.copytree(parts / "3", other)
    with pytest.raises(ArtifactError, match="its manifest was changed after it was read"):
        artifact.save_ensemble(tmp_path / "joint", stored.manifest, {"a": one, "b": other}, stored.golden)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]

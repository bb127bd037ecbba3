"""The history of aliases: every move is recorded, interrupted ones are left out, and champions are rolled back."""

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from model_folders import RUNTIME, save_seeds

from predictor.errors import ArtifactError, ConfigurationError, ModelNotFoundError, QuantraError, VersionNotFoundError
from predictor.registry import (
    ALIASES,
    HISTORY,
    AliasMove,
    GateResult,
    MoveKind,
    Registry,
    claim_first_champion,
    find_version,
    promote_version,
    read_aliases,
    read_moves,
    roll_back,
    set_alias,
)

GATE = GateResult(name="shadow", passed=False, need="20 sessions", have="3", overridden=True)


@pytest.fixture(scope="module")
def saved_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_seeds(tmp_path_factory.mktemp("saved"), 0) / "0"


@pytest.fixture
def line(saved_artifact: Path, tmp_path: Path) -> Path:
    """Versions 1 to 4 of `mine`, of which 1 is the champion."""
    for version in "1234":
        shutil.copytree(saved_artifact, tmp_path / "mine" / version)
        claim_first_champion(tmp_path / "mine" / version)
    return tmp_path / "mine"


def promote(line: Path, version: int) -> None:
    promote_version(line, version, expected=read_aliases(line).get("champion"), reason=f"take {version}", gates=())


def moves_of(line: Path) -> tuple[AliasMove, ...]:
    return read_moves(line, read_aliases(line))


def steps_of(line: Path) -> list[tuple[str, int | None, int, str]]:
    return [(move.alias, move.previous, move.version, move.kind.value) for move in moves_of(line)]


# --- records


def test_every_move_of_an_alias_is_recorded(line: Path) -> None:
    set_alias(line, "trial", 3)
    promote(line, 2)
    roll_back(line, reason="worse")
    assert steps_of(line) == [
        ("champion", None, 1, "first"),
        ("trial", None, 3, "set"),
        ("champion", 1, 2, "promote"),
        ("champion", 2, 1, "rollback"),
    ]
    assert [move.reason for move in moves_of(line)][2:] == ["take 2", "worse"]


def test_a_promotion_records_its_gates(line: Path) -> None:
    promote_version(line, 2, expected=1, reason="a test", gates=(GATE,))
    assert moves_of(line)[-1].gates == (GATE,)


def test_a_champion_that_a_server_chooses_is_recorded(saved_artifact: Path, tmp_path: Path) -> None:
    for version in "12":
        shutil.copytree(saved_artifact, tmp_path / "mine" / version)
    Registry.open(tmp_path, RUNTIME)
    assert steps_of(tmp_path / "mine") == [("champion", None, 2, "first")]


def test_an_alias_that_stays_is_not_recorded(line: Path) -> None:
    set_alias(line, "champion", 1)
    assert promote_version(line, 1, expected=1, reason="again", gates=()) is None
    assert len(moves_of(line)) == 1


def test_a_move_that_was_interrupted_before_it_was_made_is_left_out_and_can_be_repeated(line: Path) -> None:
    before = (line / ALIASES).read_bytes()
    promote(line, 2)
    (line / ALIASES).write_bytes(before)
    assert steps_of(line) == [("champion", None, 1, "first")]
    promote(line, 2)
    assert steps_of(line) == [("champion", None, 1, "first"), ("champion", 1, 2, "promote")]


def test_a_damaged_history_is_refused_before_an_alias_moves(line: Path) -> None:
    (line / HISTORY).write_text('{"moves": [{"alias": "champion"}]}')
    with pytest.raises(ArtifactError, match=r"mine/history.json: moves\[0\].*; correct the file"):
        promote(line, 2)
    assert read_aliases(line) == {"champion": 1}


def test_a_damaged_history_does_not_keep_a_model_from_being_served(line: Path) -> None:
    (line / ALIASES).unlink()
    (line / HISTORY).write_text("{}")
    assert Registry.open(line.parent, RUNTIME).find("mine").identity.version == 4


# --- promotions


def test_a_promotion_is_refused_if_the_champion_has_changed_since_the_comparison(line: Path) -> None:
    promote(line, 3)
    with pytest.raises(ConfigurationError, match="compared with version 1, but the champion is now 3; compare again"):
        promote_version(line, 2, expected=1, reason="late", gates=())
    assert read_aliases(line) == {"champion": 3}


def test_of_two_promotions_at_once_one_is_made_and_the_other_is_refused(line: Path) -> None:
    begin = threading.Barrier(2)

    def run(version: int) -> str:
        begin.wait()
        try:
            promote_version(line, version, expected=1, reason="race", gates=())
        except QuantraError as error:
            return error.message
        return ""

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(run, (2, 3)))
    assert sorted(map(bool, results)) == [False, True]
    assert len(moves_of(line)) == 2


def test_a_version_that_does_not_exist_is_not_promoted(line: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"has no version 9; it has \[1, 2, 3, 4\]"):
        promote(line, 9)


# --- rollbacks


def test_each_rollback_undoes_one_more_promotion(line: Path) -> None:
    for version in (2, 3, 4):
        promote(line, version)
    assert [roll_back(line, reason="worse").version for _ in range(3)] == [3, 2, 1]
    with pytest.raises(ConfigurationError, match="mine has no champion before version 1; point the alias at another"):
        roll_back(line, reason="worse")


def test_a_rollback_after_a_new_promotion_returns_to_the_version_before_it(line: Path) -> None:
    promote(line, 2)
    roll_back(line, reason="worse")
    promote(line, 3)
    assert roll_back(line, reason="worse").version == 1


def test_a_promotion_that_is_repeated_is_undone_once(line: Path) -> None:
    promote(line, 2)
    promote(line, 2)
    assert roll_back(line, reason="worse").version == 1


def test_a_champion_set_by_hand_is_rolled_back_to_the_last_recorded_one(line: Path) -> None:
    promote(line, 2)
    (line / ALIASES).write_text(json.dumps({"champion": 4}))
    assert roll_back(line, reason="by mistake").version == 2


def test_a_champion_from_before_the_history_is_rolled_back_to(line: Path) -> None:
    (line / HISTORY).unlink()
    promote(line, 2)
    assert roll_back(line, reason="worse").version == 1


def test_a_rollback_to_a_version_that_was_removed_is_refused(line: Path) -> None:
    promote(line, 2)
    shutil.rmtree(line / "1")
    with pytest.raises(ConfigurationError, match="has no version 1"):
        roll_back(line, reason="worse")
    assert read_aliases(line) == {"champion": 2}


def test_moves_of_other_aliases_are_not_rolled_back(line: Path) -> None:
    promote(line, 2)
    set_alias(line, "trial", 4)
    move = roll_back(line, reason="worse")
    assert (move.alias, move.version, move.kind) == ("champion", 1, MoveKind.ROLLBACK)
    assert read_aliases(line) == {"champion": 1, "trial": 4}


# --- references


@pytest.mark.parametrize(
    ("reference", "version"), [("mine", 1), ("mine@champion", 1), ("mine@3", 3), ("mine@trial", 2)]
)
def test_a_reference_names_one_version(line: Path, reference: str, version: int) -> None:
    set_alias(line, "trial", 2)
    assert find_version(line.parent, reference) == (line, version)


def test_a_plain_name_without_a_champion_is_the_newest_version(line: Path) -> None:
    (line / ALIASES).unlink()
    assert find_version(line.parent, "mine") == (line, 4)


@pytest.mark.parametrize("reference", ["mine@9", "mine@other"])
def test_a_version_or_alias_that_does_not_exist_is_refused_with_those_that_do(line: Path, reference: str) -> None:
    with pytest.raises(VersionNotFoundError, match=rf"holds no {reference}; mine has the versions \[1, 2, 3, 4\]"):
        find_version(line.parent, reference)


@pytest.mark.parametrize("reference", ["other", "../mine", ""])
def test_a_name_that_is_no_model_is_refused(line: Path, reference: str) -> None:
    with pytest.raises(ModelNotFoundError, match=r"there are \['mine'\]"):
        find_version(line.parent, reference)


def test_the_folder_of_a_model_is_not_taken_for_the_folder_of_models(line: Path) -> None:
    with pytest.raises(
        ModelNotFoundError, match=rf"1 is a version of the model mine; give {line.parent} as the folder"
    ):
        find_version(line, "1")

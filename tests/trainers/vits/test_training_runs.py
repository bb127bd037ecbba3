"""Voice training runs: finishing, resuming, and state after a kill."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trainers.cli.commands import app
from trainers.vits.training import hash_voice
from trainers.vits.versions import VoiceVersions
from trainers.vits.voice import Voice

KURDISH = Path(__file__).parents[2] / "fixtures" / "kurdish"
RUNNER = CliRunner()
SHORT = ("--steps", "1", "--batch-size", "2")


def run_vits(*words: str | Path) -> Any:
    """Run `quantra train vits …` and return its exit code."""
    return RUNNER.invoke(app, ["train", "vits", *map(str, words)])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("course") / "corpus"
    done = run_vits("prepare", KURDISH, "--out", out, "--selection", "2", "--held-out", "2")
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture(scope="module")
def finished_voice(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished voice, with its former checkpoints in `kept`."""
    out = tmp_path_factory.mktemp("course") / "voice"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainers.loop.Checkpoints.clear", _keeping(out.with_name("kept")))
        done = run_vits("train", corpus, "--out", out, *SHORT)
    assert done.exit_code == 0, done.output
    return out


def _keeping(place: Path) -> Any:
    """Move the checkpoints away instead of removing them."""

    def clear(checkpoints: Any) -> None:
        place.mkdir()
        for path in checkpoints.folder.glob("window-*"):
            path.rename(place / path.name)

    return clear


@pytest.fixture
def voice(finished_voice: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_voice, tmp_path / "voice"))


def killed(trained: Path, voice: Path) -> Path:
    """The checkpoint folder before its removal."""
    place = voice / "1.run" / "checkpoints"
    shutil.copytree(trained.with_name("kept"), place, dirs_exist_ok=True)
    assert list(place.glob("window-*"))
    return place


def training_record(version: Path) -> dict[str, Any]:
    return json.loads((version / "training.json").read_text(encoding="utf-8"))


def test_a_finished_training_leaves_its_log_and_no_checkpoints(voice: Path) -> None:
    assert list((voice / "1.run" / "checkpoints").glob("window-*")) == []
    assert (voice / "1.run" / "reports.jsonl").read_text(encoding="utf-8").count("\n") > 1


def test_resuming_a_finished_training_says_so_and_trains_nothing(corpus: Path, voice: Path) -> None:
    done = run_vits("train", corpus, "--out", voice, *SHORT, "--resume", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"kind": "finished", "voice": str(voice / "1")}
    assert (
        "is finished; there is nothing to resume"
        in run_vits("train", corpus, "--out", voice, *SHORT, "--resume").stderr
    )
    assert VoiceVersions(voice).index.versions == 1
    assert not (voice / "2.run").exists()


def test_a_correction_that_was_refused_is_no_training_that_has_begun(corpus: Path, voice: Path) -> None:
    (voice / "2.run").mkdir()
    (voice / "2.run" / "refused.json").write_text("{}")
    done = run_vits("train", corpus, "--out", voice, *SHORT, "--resume", "--json")
    assert json.loads(done.stdout)["kind"] == "finished"


def test_resuming_a_finished_training_with_other_settings_names_them(corpus: Path, voice: Path) -> None:
    done = run_vits("train", corpus, "--out", voice, *SHORT, "--seed", "7", "--resume")
    assert done.exit_code == 1
    assert "recipe.seed was 0 and is now 7; leave out --resume" in str(done.exception)
    assert not (voice / "2.run").exists()


def test_a_kill_before_the_checkpoints_are_removed_is_a_finished_training(
    corpus: Path, finished_voice: Path, voice: Path
) -> None:
    place = killed(finished_voice, voice)
    done = run_vits("train", corpus, "--out", voice, *SHORT, "--resume", "--json")
    assert json.loads(done.stdout)["kind"] == "finished"
    assert list(place.glob("window-*")) == []
    assert VoiceVersions(voice).index.versions == 1


def test_a_kill_before_the_index_knows_the_version_makes_no_second_one(
    corpus: Path, finished_voice: Path, voice: Path
) -> None:
    place = killed(finished_voice, voice)
    (voice / "voice.json").unlink()
    weights = (voice / "1" / "model.safetensors").stat()
    done = run_vits("train", corpus, "--out", voice, *SHORT, "--resume")
    assert done.exit_code == 0, done.output
    assert VoiceVersions(voice).current == voice / "1"
    assert (voice / "1" / "model.safetensors").stat() == weights
    assert not (voice / "2").exists()
    assert list(place.glob("window-*")) == []


def test_a_folder_of_another_origin_is_in_the_way_of_a_version(corpus: Path, finished_voice: Path, voice: Path) -> None:
    killed(finished_voice, voice)
    (voice / "voice.json").unlink()
    (voice / "1" / "training.json").write_text("{}")
    assert "is not in" in str(run_vits("train", corpus, "--out", voice, *SHORT, "--resume").exception)


def test_a_refused_correction_cannot_be_resumed(corpus: Path, voice: Path) -> None:
    (voice / "2.run" / "checkpoints").mkdir(parents=True)
    (voice / "2.run" / "corrections").mkdir()
    (voice / "2.run" / "refused.json").write_text("{}")
    done = run_vits("train", corpus, "--out", voice, *SHORT, "--resume", "--json")
    assert json.loads(done.stdout)["kind"] == "finished"
    assert run_vits("train", corpus, "--out", voice, *SHORT).exit_code == 0
    assert not (voice / "2.run" / "refused.json").exists()


def test_a_folder_in_the_way_of_a_version_is_named_before_the_training(corpus: Path, voice: Path) -> None:
    (voice / "2").mkdir()
    done = run_vits("train", corpus, "--out", voice, *SHORT)
    assert f"{voice / '2'} exists but is not in the voice's index; move it away" in str(done.exception)
    assert not (voice / "2.run").exists()


def test_a_further_version_that_was_stopped_early_is_begun_again(corpus: Path, voice: Path) -> None:
    (voice / "2.run" / "checkpoints").mkdir(parents=True)
    done = run_vits("train", corpus, "--out", voice, *SHORT, "--from", voice, "--resume")
    assert done.exit_code == 0, done.output
    assert VoiceVersions(voice).current == voice / "2"


def test_a_version_names_its_parent_and_itself_by_their_weights(corpus: Path, voice: Path) -> None:
    assert training_record(voice / "1")["parent"] is None
    assert training_record(voice / "1")["weights"] == hash_voice(Voice.load(voice / "1"))
    again = ("train", corpus, "--out", voice, *SHORT, "--weight-norm", "--from", voice)
    assert run_vits(*again).exit_code == 0
    assert training_record(voice / "2")["parent"] == training_record(voice / "1")["weights"]
    assert training_record(voice / "2")["weights"] == hash_voice(Voice.load(voice / "2"))
    resumed = run_vits(*again, "--resume")  # --from is now its own output
    assert "is finished" in resumed.stderr, resumed.exception
    assert not (voice / "3.run").exists()


def test_a_stopped_training_of_another_parent_is_not_resumed(corpus: Path, finished_voice: Path, voice: Path) -> None:
    killed(finished_voice, voice)
    parent = voice.rename(voice.with_name("parent"))
    shutil.copytree(parent / "1.run", voice / "1.run")
    done = run_vits("train", corpus, "--out", voice, *SHORT, "--learning-rate", "1e-3", "--from", parent, "--resume")
    assert done.exit_code == 1
    assert f'parent was null and is now "{training_record(parent / "1")["weights"][:40]}' in str(done.exception)


def test_checkpoints_without_a_request_to_resume_are_refused(corpus: Path, finished_voice: Path, voice: Path) -> None:
    killed(finished_voice, voice)
    (voice / "voice.json").unlink()
    assert "--resume" in str(run_vits("train", corpus, "--out", voice, *SHORT).exception)


def test_no_clipping_and_checkpoints_after_epochs_only_can_be_asked_for(corpus: Path, tmp_path: Path) -> None:
    words = ("train", corpus, "--out", tmp_path / "v", *SHORT, "--clip", "inf", "--checkpoint-seconds", "inf")
    assert run_vits(*words).exit_code == 0
    assert training_record(tmp_path / "v" / "1")["recipe"]["clip"] is None


def test_a_version_that_does_not_say_how_it_was_made_is_not_taken_for_this_training(corpus: Path, voice: Path) -> None:
    (voice / "1" / "training.json").unlink()
    done = run_vits("train", corpus, "--out", voice, *SHORT, "--resume")
    assert "settings of the version cannot be read from" in str(done.exception)

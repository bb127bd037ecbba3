"""Rewards on the command line: monitored training and gated tuning."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from command_exits import interrupted_at
from tiny_images import tiny_model, write_images
from typer.testing import CliRunner

from trainers.cli.commands import app
from trainers.dit.models import ImageModel
from trainers.dit.reward_monitor import EvaluationSnapshot

RUNNER = CliRunner()
SHORT = ("--steps", "4", "--batch-size", "4", "--device", "cpu")
WATCHED = ("--monitor", "ssim", "--monitor-every", "2", "--monitor-images", "4", "--monitor-steps", "3")
TUNED = ("--reward", "ssim", "--gate", "psnr", "--iterations", "2", "--groups", "2", "--members", "3", "--draw-steps")
BRIEF = (*TUNED, "4", "--trained-steps", "2", "--gate-images", "4", "--gate-steps", "4", "--gate-every", "1")


def run_dit(*words: str | Path) -> Any:
    """Run `quantra train dit …` and return its exit code."""
    return RUNNER.invoke(app, ["train", "dit", *map(str, words)])


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model, one with a flow matching objective, and two folders of images."""
    folder = tmp_path_factory.mktemp("commands")
    tiny_model().save(folder / "base")
    tiny_model().learning("flow").save(folder / "flow")
    write_images(folder / "own")
    write_images(folder / "held", 8)
    return folder


def test_a_training_is_monitored_and_reports_the_rewards(workspace: Path, tmp_path: Path) -> None:
    words = (workspace / "own", "--model", workspace / "base", "--out", tmp_path / "model", *SHORT, *WATCHED)
    done = run_dit("train", *words, "--held-out", workspace / "held", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads((tmp_path / "model" / "training.json").read_text())
    assert [snapshot["window"] for snapshot in told["curves"]["snapshots"]] == [2, 4]
    assert told["monitor"]["monitor"] == "ssim"
    assert "after 2 steps: ssim " in done.stdout


RUINOUS = ("--learning-rate", "0.1", "--ema", "0", "--patience", "2")


def test_a_training_that_collapses_keeps_the_best_weights_and_ends_with_one_and_the_figures(
    workspace: Path, tmp_path: Path
) -> None:
    words = (
        workspace / "own",
        "--model",
        workspace / "base",
        "--batch-size",
        "4",
        "--device",
        "cpu",
        *WATCHED,
        *RUINOUS,
    )
    held = ("--held-out", workspace / "held")
    done = run_dit("train", *words, "--steps", "30", "--out", tmp_path / "model", *held)
    assert done.exit_code == 1, done.output
    snapshots = json.loads((tmp_path / "model" / "training.json").read_text())["curves"]["snapshots"]
    last, best = snapshots[-1], max(snapshots, key=lambda snapshot: snapshot["rewards"]["ssim"])
    assert last["window"] < 30
    assert last["rewards"]["ssim"] < best["rewards"]["ssim"]
    assert (
        f"the reward collapsed, {EvaluationSnapshot(**last).summary}; kept the best weights, "
        f"{EvaluationSnapshot(**best).summary}. Try a --learning-rate below 0.1"
    ) in done.stderr
    assert f"Saved {tmp_path / 'model'}" in done.stderr
    ended = run_dit("train", *words, "--steps", "30", "--out", tmp_path / "again", *held, "--json")
    assert ended.exit_code == 1
    assert json.loads(ended.stdout.splitlines()[-1])["collapsed"] is True
    whole = run_dit("train", *words, "--steps", "4", "--patience", "0", "--out", tmp_path / "whole", *held, "--json")
    assert whole.exit_code == 0
    assert json.loads(whole.stdout.splitlines()[-1])["collapsed"] is False


def test_a_bad_image_that_is_held_out_is_left_out_where_that_is_wanted(workspace: Path, tmp_path: Path) -> None:
    held = write_images(tmp_path / "held", 8)
    (held / "images" / "0002.png").write_bytes(b"no image")
    words = ("train", workspace / "own", "--model", workspace / "base", "--out", tmp_path / "model", *SHORT, *WATCHED)
    assert "leave them out with --skip-bad" in str(run_dit(*words, "--held-out", held).exception)
    done = run_dit(*words, "--held-out", held, "--skip-bad")
    assert done.exit_code == 0, done.output
    assert "! images/0002.png was left out: " in done.stderr


def test_a_training_resumes_only_with_the_same_held_out_images(workspace: Path, tmp_path: Path) -> None:
    held = write_images(tmp_path / "held", 8)
    words = ("train", workspace / "own", "--model", workspace / "base", "--out", tmp_path / "model", *SHORT, *WATCHED)
    assert run_dit(*words, "--held-out", held).exit_code == 0
    shutil.rmtree(tmp_path / "model")
    write_images(held, 8, seed=9)
    assert "held_out" in str(run_dit(*words, "--held-out", held, "--resume").exception)


def test_images_that_are_held_out_of_no_looks_are_bad_usage(workspace: Path, tmp_path: Path) -> None:
    words = ("train", workspace / "own", "--model", workspace / "base", "--out", tmp_path / "model", *SHORT)
    done = run_dit(*words, "--held-out", workspace / "held")
    assert done.exit_code == 2
    assert "--held-out needs --monitor" in done.output


def test_missing_reward_inputs_are_reported_before_training(workspace: Path, tmp_path: Path) -> None:
    words = ("train", workspace / "own", "--model", workspace / "base", "--out", tmp_path / "model", *SHORT)
    assert "needs --held-out" in run_dit(*words, *WATCHED).output
    clip = ("--monitor", "clip", "--held-out", workspace / "held", "--monitor-images", "4")
    assert "clip needs a local folder of a CLIP model" in str(run_dit(*words, *clip).exception)
    gone = run_dit(*words, *clip, "--reward-weights", tmp_path / "gone")
    assert "gone cannot be read as a CLIP model" in str(gone.exception)
    assert not (tmp_path / "model.run").exists()
    cached = run_dit("cache", workspace / "own", "--model", workspace / "base", "--out", tmp_path / "cache")
    assert cached.exit_code == 0
    done = run_dit("train", tmp_path / "cache", *words[2:], *WATCHED, "--held-out", workspace / "held")
    assert "is a cache; add --made-of" in " ".join(done.output.replace("│", "").split())


def test_a_tuning_within_its_bound_ends_with_success_and_says_that_nothing_was_gained(
    workspace: Path, tmp_path: Path
) -> None:
    words = (
        workspace / "own",
        "--model",
        workspace / "flow",
        "--held-out",
        workspace / "held",
        "--out",
        tmp_path / "tuned",
    )
    done = run_dit("grpo", *words, *BRIEF, "--bound", "3", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "! ssim has not increased: kept the initial weights, after 0 steps: ssim " in done.stderr
    assert "0 of 4 groups had equal rewards" in done.stderr
    told = json.loads((tmp_path / "tuned" / "tuning.json").read_text())["tuned"]
    assert [snapshot["window"] for snapshot in told["snapshots"]] == [0, 2, 4]
    assert len(told["rounds"]) == 2
    assert ImageModel.load(tmp_path / "tuned").objective is not None


def test_a_tuning_beyond_its_bound_ends_with_one_and_the_figures(workspace: Path, tmp_path: Path) -> None:
    words = (
        workspace / "own",
        "--model",
        workspace / "flow",
        "--held-out",
        workspace / "held",
        "--out",
        tmp_path / "tuned",
    )
    ruinous = ("--gate-images", "8", "--bound", "1", "--learning-rate", "0.5", "--divergence", "0", "--device", "cpu")
    done = run_dit("grpo", *words, *BRIEF, *ruinous)
    assert done.exit_code == 1, done.output
    assert "is more than 1 times worse than after 0 steps: ssim " in done.stderr
    assert "kept the best accepted weights, after 0 steps" in done.stderr
    weights = "transformer/diffusion_pytorch_model.safetensors"
    assert (tmp_path / "tuned" / weights).read_bytes() == (workspace / "flow" / weights).read_bytes()


def test_a_stopped_tuning_resumes_to_the_same_weights(workspace: Path, tmp_path: Path) -> None:
    def words(out: str, *more: str) -> list[str]:
        folders = [
            workspace / "own",
            "--model",
            workspace / "flow",
            "--held-out",
            workspace / "held",
            "--out",
            tmp_path / out,
        ]
        often = ["--checkpoint-seconds", "0.01", "--device", "cpu", "--json", "--bound", "9", "--iterations", "4"]
        return ["grpo", *map(str, folders), *BRIEF, *often, *more]

    with interrupted_at(3, "trainers.dit.command"):
        assert run_dit(*words("stopped")).exit_code == 128 + signal.SIGINT
    assert not (tmp_path / "stopped").exists()
    assert run_dit(*words("stopped", "--resume")).exit_code == 0
    assert run_dit(*words("whole")).exit_code == 0
    for file in ("transformer/diffusion_pytorch_model.safetensors", "tuning.json"):
        assert (tmp_path / "stopped" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_a_reward_that_is_its_own_gate_is_refused(workspace: Path, tmp_path: Path) -> None:
    words = (
        workspace / "own",
        "--model",
        workspace / "flow",
        "--held-out",
        workspace / "held",
        "--out",
        tmp_path / "tuned",
    )
    done = run_dit("grpo", *words, *BRIEF, "--gate", "ssim")
    assert done.exit_code == 1
    assert "ssim cannot be both the reward and the gate" in str(done.exception)
    assert not (tmp_path / "tuned.run").exists()

"""Image training on the command line, from images to samples."""

import json
import shlex
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from command_exits import interrupted_at
from PIL import Image
from tiny_images import (
    PROMPTS,
    bar,
    tiny_encoder,
    tiny_model,
    tiny_pieces,
    tiny_tokenizer,
    tiny_transformer,
    tiny_vae,
    write_images,
)
from typer.testing import CliRunner

from trainers.cli.commands import app
from trainers.dit.errors import IMAGES
from trainers.dit.models import ImageModel
from trainers.loop import StoppedError
from trainers.media.console import command_errors

RUNNER = CliRunner()
SHORT = ("--steps", "4", "--batch-size", "4", "--device", "cpu")


def run_dit(*words: str | Path) -> Any:
    """Run `quantra train dit …` and return its exit code."""
    return RUNNER.invoke(app, ["train", "dit", *map(str, words)])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model."""
    place = tmp_path_factory.mktemp("base") / "base"
    tiny_model().save(place)
    return place


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def cached(base: Path, images: Path) -> Path:
    out = base.parent / "cache"
    done = run_dit("cache", images, "--model", base, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["images"], told["prompts"], told["refused"]) == (12, 4, [])
    return out


def test_images_become_a_model_that_draws(base: Path, images: Path, cached: Path, tmp_path: Path) -> None:
    first, second, drawing = tmp_path / "first", tmp_path / "second", tmp_path / "a.png"
    trained = run_dit("train", cached, "--model", base, "--made-of", images, "--out", first, *SHORT)
    assert trained.exit_code == 0, trained.output
    assert "Next: quantra train dit sample" in trained.stderr
    assert json.loads((first / "training.json").read_text())["recipe"]["steps"] == 4
    assert run_dit("train", images, "--model", first, "--out", second, *SHORT).exit_code == 0
    drawn = run_dit(
        "sample", second, "--prompt", PROMPTS[0], "--out", drawing, "--count", "5", "--steps", "4", "--scale", "3"
    )
    assert drawn.exit_code == 0, drawn.output
    with Image.open(drawing) as picture:
        assert (picture.size, picture.mode) == ((3 * 3 * 8, 2 * 3 * 8), "L")
        pixels = np.asarray(picture)
    assert (pixels == pixels[::3, ::3].repeat(3, 0).repeat(3, 1)).all()  # as squares, nothing between two shades


def advised(done: Any) -> list[str]:
    """Words of the advised next command, without the program."""
    assert done.exit_code == 0, done.output
    words = shlex.split(next(line for line in done.stderr.splitlines() if "Next: " in line).partition("Next: ")[2])
    assert words[:3] == ["quantra", "train", "dit"]
    return words[3:]


def test_what_is_advised_after_a_training_draws_a_prompt_of_its_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_images(tmp_path / "my images")
    prompt = 'the "$HOME" bar\'s `left`'
    lines = (folder / "metadata.csv").read_text().replace(PROMPTS[0], prompt)
    (folder / "metadata.csv").write_text(lines)
    ImageModel.of(tiny_transformer(), tiny_vae(), tiny_encoder(), tiny_pieces()).save(tmp_path / "my base")
    trained = advised(run_dit("cache", folder, "--model", "my base", "--out", "my cache"))
    assert trained[:4] == ["train", "my cache", "--model", "my base"]
    out = trained[trained.index("--out") + 1]
    drawn = advised(run_dit(*trained, *SHORT))
    assert drawn == ["sample", out, "--prompt", prompt, "--out", "drawn.png"]
    assert run_dit(*drawn).exit_code == 0
    assert (tmp_path / "drawn.png").exists()


def test_a_cache_and_its_images_teach_the_same(base: Path, images: Path, cached: Path, tmp_path: Path) -> None:
    losses: list[float] = []
    for name, source in (("cached", cached), ("plain", images)):
        done = run_dit("train", source, "--model", base, "--out", tmp_path / name, *SHORT, "--json")
        losses.append(json.loads(done.stdout.splitlines()[-1])["loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_a_stopped_training_resumes_to_the_same_weights(base: Path, cached: Path, tmp_path: Path) -> None:
    def words(out: str, *more: str) -> list[str]:
        steps = ["--steps", "6", "--batch-size", "4", "--checkpoint-seconds", "0.01", "--device", "cpu", "--json"]
        return ["train", str(cached), "--model", str(base), "--out", str(tmp_path / out), *steps, *more]

    with interrupted_at(3, "trainers.dit.command"):
        assert run_dit(*words("stopped")).exit_code == 128 + signal.SIGINT
    assert not (tmp_path / "stopped").exists()
    assert "continue it (--resume)" in str(run_dit(*words("stopped")).exception)
    other = write_images(tmp_path / "other", 6)
    assert run_dit("cache", other, "--model", base, "--out", tmp_path / "others").exit_code == 0
    elsewhere = ["train", str(tmp_path / "others"), *words("stopped", "--resume")[2:]]
    assert "images" in str(run_dit(*elsewhere).exception)
    assert run_dit(*words("stopped", "--resume")).exit_code == 0
    assert run_dit(*words("whole")).exit_code == 0
    weights = "transformer/diffusion_pytorch_model.safetensors"
    assert (tmp_path / "stopped" / weights).read_bytes() == (tmp_path / "whole" / weights).read_bytes()


def test_bad_images_stop_a_cache_and_are_left_out_where_that_is_wanted(base: Path, tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", 5)
    (folder / "images" / "0003.png").write_bytes(b"no image")
    done = run_dit("cache", folder, "--model", base, "--out", tmp_path / "cache")
    assert done.exit_code == 1
    assert "1 of 5 images cannot be used" in str(done.exception)
    done = run_dit("cache", folder, "--model", base, "--out", tmp_path / "cache", "--skip-bad")
    assert "! images/0003.png was left out: " in done.stderr
    assert "4 images of 3 prompts, 1 left out." in done.stderr
    shown = run_dit("train", tmp_path / "cache", "--model", base, "--out", tmp_path / "model", *SHORT)
    assert "! 1 image was left out of the cache" in shown.stderr


def of_another_vae(base: Path, images: Path, place: Path) -> tuple[Path, Path, str]:
    ImageModel.of(tiny_transformer(), tiny_vae(seed=9), tiny_encoder(), tiny_tokenizer()).save(place / "other")
    assert run_dit("cache", images, "--model", place / "other", "--out", place / "cache").exit_code == 0
    return place / "cache", base, "was made with another VAE than this model's"


def of_other_images(base: Path, images: Path, place: Path) -> tuple[Path, Path, str]:
    write_images(place / "others")
    bar(PROMPTS[2], 40).save(place / "others" / "images" / "0002.png")
    assert run_dit("cache", place / "others", "--model", base, "--out", place / "cache").exit_code == 0
    return place / "cache", base, f"was made from other images than those in {images}"


def of_nothing(base: Path, images: Path, place: Path) -> tuple[Path, Path, str]:
    assert images.exists()
    return place / "nowhere", base, "is not a cache"


def by_no_model(base: Path, images: Path, place: Path) -> tuple[Path, Path, str]:
    assert base.exists()
    return images, place, "is not a model"


@pytest.mark.parametrize("case", [of_another_vae, of_other_images, of_nothing, by_no_model])
def test_what_cannot_be_trained_on_is_refused_before_a_training_starts(
    case: Callable[[Path, Path, Path], tuple[Path, Path, str]], base: Path, images: Path, tmp_path: Path
) -> None:
    source, model, told = case(base, images, tmp_path)
    more = () if source == images else ("--made-of", images)
    done = run_dit("train", source, "--model", model, "--out", tmp_path / "out", *SHORT, *more)
    assert done.exit_code == 1
    assert told in str(done.exception)
    assert not (tmp_path / "out.run").exists()


def test_an_objective_that_the_models_scheduler_contradicts_is_refused_by_both_names(
    base: Path, cached: Path, tmp_path: Path
) -> None:
    first = tmp_path / "first"
    assert run_dit("train", cached, "--model", base, "--out", first, "--objective", "velocity", *SHORT).exit_code == 0
    done = run_dit("train", cached, "--model", first, "--out", tmp_path / "second", "--objective", "flow", *SHORT)
    assert "DDIMScheduler is not the sampler of objective flow, which is DPMSolverMultistep" in str(done.exception)
    assert run_dit("train", cached, "--model", first, "--out", tmp_path / "second", *SHORT).exit_code == 0
    assert "velocity" in json.loads((tmp_path / "second" / "training.json").read_text())["objective"]


def test_a_model_is_never_written_over(base: Path, cached: Path) -> None:
    done = run_dit("train", cached, "--model", base, "--out", base, *SHORT)
    assert "already exists" in str(done.exception)


def test_no_clipping_and_checkpoints_after_epochs_only_can_be_asked_for(
    base: Path, cached: Path, tmp_path: Path
) -> None:
    words = ("train", cached, "--model", base, "--out", tmp_path / "m", *SHORT, "--clip", "inf")
    assert run_dit(*words, "--checkpoint-seconds", "inf").exit_code == 0
    assert json.loads((tmp_path / "m" / "training.json").read_text("utf-8"))["recipe"]["clip"] is None


@pytest.mark.parametrize(
    ("command", "flag", "told"),
    [
        ("train", ("--dropout", "1"), "1 is not a share of prompts to drop"),
        ("train", ("--ema", "1"), "1 is not a decay"),
        ("grpo", ("--noise-scale", "0"), "0 is not a scale of noise"),
        ("grpo", ("--ratio-clip", "0"), "0 is not a clipping range"),
        ("grpo", ("--ratio-clip", "1"), "1 is not a clipping range"),
    ],
)
def test_a_setting_at_its_bound_is_bad_usage(command: str, flag: tuple[str, str], told: str, base: Path) -> None:
    done = run_dit(command, base, "--model", base, "--out", "m", *flag)
    assert done.exit_code == 2
    assert told in " ".join(done.output.replace("│", "").split())


def test_a_training_ended_by_a_signal_shows_how_to_resume_and_exits_as_shells_expect(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as ended, command_errors(IMAGES):
        raise StoppedError("stopped by SIGTERM after a checkpoint", signal=signal.SIGTERM)
    assert ended.value.exit_code == 143
    assert capsys.readouterr().err.endswith("after a checkpoint; to continue, run the same command with --resume\n")


def test_a_missing_package_is_a_one_line_error_with_the_install_command(
    base: Path, cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainers.dit.command.IMAGES", replace(IMAGES, packages=("no_such_package",)))
    done = run_dit("train", cached, "--model", base, "--out", "m")
    assert "no_such_package" in str(done.exception)
    assert "pip install 'quantra[dit]'" in str(done.exception)


def test_an_existing_output_is_refused_before_an_image_is_read(base: Path, tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", 3)
    (folder / "images" / "0001.png").unlink()
    assert "already exists" in str(run_dit("cache", folder, "--model", base, "--out", folder).exception)

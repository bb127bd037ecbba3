"""Evaluation and sampling of image models on the command line, and their pages."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from pages import assert_holds_all, page_of
from tiny_images import PROMPTS, bar, tiny_model, write_images
from typer.testing import CliRunner

from trainers.cli.commands import app
from trainers.dit.grpo import RolloutRound, TuningResult
from trainers.dit.images import read_pictures
from trainers.dit.models import ImageModel
from trainers.dit.recipe import SamplingSettings
from trainers.dit.reward_monitor import EvaluationSnapshot
from trainers.dit.rewards import read_pixels, train_classifier
from trainers.dit.sampling import draw_images
from trainers.dit.training import ImageTrainingResult

BRIEF = ("--steps", "4", "--device", "cpu")
WATCHED = ("--monitor", "ssim,psnr", "--monitor-every", "2", "--monitor-images", "4", "--monitor-steps", "3")
TUNED = ("--reward", "ssim", "--gate", "psnr", "--iterations", "2", "--groups", "2", "--members", "3", "--draw-steps")
GATED = (*TUNED, "4", "--trained-steps", "2", "--gate-images", "4", "--gate-steps", "4", "--bound", "9")


def run_dit(*words: str | Path) -> Any:
    """Run `quantra train dit …` and return its exit code."""
    return CliRunner().invoke(app, ["train", "dit", *map(str, words)])


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training images, held-out images, and a monitored model trained on the first."""
    folder = tmp_path_factory.mktemp("drawing")
    tiny_model().save(folder / "base")
    write_images(folder / "own", 40)
    write_images(folder / "held", 12)
    words = (folder / "own", "--model", folder / "base", "--out", folder / "model", "--batch-size", "4", *BRIEF)
    done = run_dit("train", *words, *WATCHED, "--held-out", folder / "held")
    assert done.exit_code == 0, done.output
    return folder


def evaluate_model(place: Path, *more: str | Path, model: str = "model") -> Any:
    words = (place / model, "--images", place / "own", "--held-out", place / "held", *BRIEF)
    return run_dit("evaluate", *words, *more)


def test_a_model_is_judged_and_shown_with_how_it_came_to_draw(workspace: Path) -> None:
    done = evaluate_model(workspace)
    assert done.exit_code == 0, done.output
    assert f"Saved {workspace / 'model.html'}: open it to look" in done.stderr
    text = (workspace / "model.html").read_text("utf-8")
    page = page_of(text)
    assert "Evaluation of model" in page.words
    headings = ("Loss over steps", "SSIM, held-out prompts", "PSNR, dB, held-out prompts")
    places = [page.words.index(heading) for heading in headings]
    assert places == sorted(places), "the reward that decides comes first"
    assert "drawn with 4 steps, guidance 2, seed 0" in page.words
    form = tiny_model().image_format
    own, held = (read_pictures(workspace / name, form, lambda _: None).digest[:12] for name in ("own", "held"))
    judged_by = f"12 images of held (digest {held}), by rewards trained on 40 images of own (digest {own})"
    assert f"Compared with {judged_by}" in page.words
    assert_holds_all(text)


def test_the_figures_for_programs_and_for_people_and_on_the_page_are_the_same(workspace: Path, tmp_path: Path) -> None:
    done = evaluate_model(workspace, "--json", "--page", tmp_path / "a.html", "--count", "8")
    told = json.loads(done.stdout)
    assert (told["kind"], told["images"], told["page"]) == ("evaluated", 8, str(tmp_path / "a.html"))
    page = page_of((tmp_path / "a.html").read_text("utf-8"))
    scores = told["scores"]
    wanted = [told["accuracy"]["share"], scores["classifier"]["value"], scores["frechet"]["value"], 8]
    assert page.numbers[:4] == pytest.approx(wanted)
    said = evaluate_model(workspace, "--page", tmp_path / "a.html", "--count", "8").stderr
    assert f"8 images are classified as their prompt: {told['accuracy']['share']:.1%}" in said
    assert f"Fréchet distance: {scores['frechet']['value']:.4g}, real images {scores['frechet']['real']:.4g}" in said


def test_the_accuracy_is_that_of_the_images_that_are_drawn_with_the_settings_that_are_given(
    workspace: Path, tmp_path: Path
) -> None:
    settings = ("--guidance", "1.5", "--seed", "3")
    told = json.loads(evaluate_model(workspace, "--json", "--page", tmp_path / "a.html", *settings).stdout)
    model = ImageModel.load(workspace / "model")
    own, held = (read_pictures(workspace / name, model.image_format, model.prompts.check) for name in ("own", "held"))
    prompts = [picture.prompt for picture in held.pictures]
    images = draw_images(model, prompts, SamplingSettings(steps=4, guidance=1.5, seed=3))
    assert told["accuracy"]["share"] == pytest.approx(train_classifier(own).accuracy(images, prompts))


def test_a_tuned_model_keeps_how_it_was_trained(workspace: Path, tmp_path: Path) -> None:
    words = (
        workspace / "own",
        "--model",
        workspace / "model",
        "--held-out",
        workspace / "held",
        "--out",
        tmp_path / "tuned",
    )
    assert run_dit("grpo", *words, *GATED, "--device", "cpu").exit_code == 0
    done = evaluate_model(workspace, "--page", tmp_path / "a.html", model=str(tmp_path / "tuned"))
    assert done.exit_code == 0, done.output
    words_of_page = page_of((tmp_path / "a.html").read_text("utf-8")).words
    assert "Loss over steps" in words_of_page
    assert "SSIM, rollouts over tuning iterations" in words_of_page


def reordered_images(folder: Path) -> Path:
    """Twelve images with the last one first."""
    write_images(folder, 12)
    heading, *lines = (folder / "metadata.csv").read_text("utf-8").splitlines()
    (folder / "metadata.csv").write_text("\n".join((heading, *reversed(lines))), "utf-8")
    return folder


SNAPSHOT = EvaluationSnapshot(4, {"ssim": 0.5, "frechet": -2.0})
"""Training history of a made-up training."""

FAR = {"images": 4, "against": 12}


def test_a_training_is_given_what_the_flags_say(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, seeds = list[Any](), list[int]()

    def fit(*parts: Any) -> ImageTrainingResult:
        seen.extend(parts)
        return ImageTrainingResult((0.5,), (SNAPSHOT,))

    monkeypatch.setattr("trainers.dit.training.fit", fit)
    monkeypatch.setattr("trainers.dit.command.seed_everything", seeds.append)
    held, cached = reordered_images(tmp_path / "held"), tmp_path / "cache"
    assert run_dit("cache", workspace / "own", "--model", workspace / "base", "--out", cached).exit_code == 0
    words = (
        cached,
        "--made-of",
        workspace / "own",
        "--model",
        workspace / "base",
        "--out",
        tmp_path / "model",
        "--seed",
        "7",
    )
    watched = ("--monitor", "ssim,frechet", "--held-out", held, "--monitor-images", "4", "--monitor-guidance", "1.5")
    done = run_dit("train", *words, *watched, "--monitor-steps", "3", "--patience", "1")
    assert done.exit_code == 0, done.output
    model, source, recipe, _, _, monitor = seen
    assert (source.folder, recipe.seed, seeds) == (cached, 7, [7])
    assert (monitor._name, monitor.evaluator._sampling) == ("ssim", SamplingSettings(steps=3, guidance=1.5))
    assert torch.equal(
        monitor.evaluator.targets, read_pixels(read_pictures(held, model.image_format, lambda _: None).sample(4))
    )
    assert monitor._patience == 1
    told = json.loads((tmp_path / "model" / "training.json").read_text("utf-8"))
    assert told["facts"]["frechet"].items() >= FAR.items()


def test_a_tuning_is_given_what_the_flags_say(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, seeds = list[Any](), list[int]()

    def tune(*parts: Any) -> TuningResult:
        seen.extend(parts)
        return TuningResult((RolloutRound(0.5, 1, 2),), (SNAPSHOT,), SNAPSHOT, None, "as it was")

    monkeypatch.setattr("trainers.dit.grpo.tune", tune)
    monkeypatch.setattr("trainers.dit.command.seed_everything", seeds.append)
    held = reordered_images(tmp_path / "held")
    words = (
        workspace / "own",
        "--model",
        workspace / "model",
        "--held-out",
        held,
        "--out",
        tmp_path / "tuned",
        "--seed",
        "7",
    )
    done = run_dit("grpo", *words, *GATED, "--gate", "frechet", "--guidance", "1.5", "--device", "cpu", "--json")
    assert done.exit_code == 0, done.output
    model, pictures, reward, gate, recipe, _, _ = seen
    assert (pictures.folder, reward.name, recipe.seed, seeds) == (workspace / "own", "ssim", 7, [7])
    assert gate.evaluator._sampling == SamplingSettings(steps=4, guidance=1.5)
    assert torch.equal(
        gate.evaluator.targets, read_pixels(read_pictures(held, model.image_format, lambda _: None).sample(4))
    )
    better = {"window": 8, "rewards": {"ssim": 0.6, "frechet": -2.5}}
    gate.load_state_dict({"snapshots": [asdict(SNAPSHOT), better]})
    assert gate.best_snapshot.window == 8
    told = json.loads((tmp_path / "tuned" / "tuning.json").read_text("utf-8"))
    assert told["facts"]["frechet"].items() >= FAR.items()
    assert told["images"] == pictures.digest != told["held_out"]
    said = json.loads(done.stdout)
    assert (said["kind"], said["accepted"]) == ("tuned", True)


def test_of_many_processes_the_first_alone_writes(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(*_: Any) -> ImageTrainingResult:
        return ImageTrainingResult((0.5,))

    def tune(*_: Any) -> TuningResult:
        return TuningResult((), (SNAPSHOT,), SNAPSHOT, None, "as it was")

    monkeypatch.setattr("trainers.dit.training.fit", fit)
    monkeypatch.setattr("trainers.dit.grpo.tune", tune)
    monkeypatch.setattr("trainers.dit.command.launched_rank", lambda: 1)
    words = (workspace / "own", "--model", workspace / "model", "--out", tmp_path / "out")
    tuning = ("grpo", *words, "--held-out", workspace / "held", *GATED, "--device", "cpu")
    for done in (run_dit("train", *words, *BRIEF), run_dit(*tuning)):
        assert (done.exit_code, done.stdout) == (0, "")
        assert "Saved" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_sample_is_shown_on_a_page_where_one_is_named(workspace: Path, tmp_path: Path) -> None:
    words = (workspace / "model", "--prompt", PROMPTS[0], "--count", "3", "--out", tmp_path / "a.png", *BRIEF)
    done = run_dit("sample", *words, "--page", tmp_path / "a.html")
    assert done.exit_code == 0, done.output
    assert f"Saved {tmp_path / 'a.png'}, 3 of 'a bar on the left', and {tmp_path / 'a.html'}" in done.stderr
    page = page_of((tmp_path / "a.html").read_text("utf-8"))
    assert len(page.references) == 3
    assert "Drawn by model" in page.words
    assert "Loss over steps" in page.words


def test_held_out_images_in_the_training_set_are_reported(workspace: Path, tmp_path: Path) -> None:
    own, held = workspace / "own", write_images(tmp_path / "held", 8, ["again.png|a bar on the right"], seed=500)
    bar(PROMPTS[1], 1).save(held / "again.png")  # under another name
    told = f"! 1 of 9 images of {held} are also in {own}"
    rest = ("--rewards", "ssim", "--page", tmp_path / "a.html", *BRIEF)
    assert told in run_dit("evaluate", workspace / "model", "--images", own, "--held-out", held, *rest, "--json").stderr
    tuned = ("--model", workspace / "model", "--held-out", held, "--out", tmp_path / "tuned", "--device", "cpu")
    assert told in run_dit("grpo", own, *tuned, *GATED).stderr
    trained = (
        "--model",
        workspace / "base",
        "--held-out",
        held,
        "--out",
        tmp_path / "new",
        "--batch-size",
        "4",
        *BRIEF,
    )
    assert told in run_dit("train", own, *trained, *WATCHED).stderr
    others = write_images(tmp_path / "others", 12, seed=500)
    done = run_dit("evaluate", workspace / "model", "--images", own, "--held-out", others, *rest)
    assert done.exit_code == 0
    assert "hold out others" not in done.stderr


def test_a_model_is_judged_in_its_own_folder(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--images", workspace / "own", "--held-out", workspace / "held", "--rewards", "ssim", *BRIEF)
    for folder, named in (("model", "."), ("model/vae", "..")):
        monkeypatch.chdir(workspace / folder)
        (workspace / "model.html").unlink(missing_ok=True)
        assert run_dit("evaluate", named, *words).exit_code == 0
        assert (workspace / "model.html").is_file()


def test_a_picture_that_nobody_could_open_and_a_page_in_its_place_are_refused(workspace: Path, tmp_path: Path) -> None:
    words = ("sample", workspace / "model", "--prompt", PROMPTS[0], "--out", tmp_path / "a.png", *BRIEF)
    assert "would be 80,000 by 80,000 pixels" in str(run_dit(*words, "--scale", "10000").exception)
    assert run_dit(*words, "--page", tmp_path / "held" / ".." / "a.png").exit_code == 2
    assert not (tmp_path / "a.png").exists()


def test_one_bad_image_stops_a_judgement_or_is_left_out_where_that_is_wanted(workspace: Path, tmp_path: Path) -> None:
    held = write_images(tmp_path / "held", 12)
    (held / "images" / "0005.png").write_bytes(b"no image")
    words = (
        workspace / "model",
        "--images",
        workspace / "own",
        "--held-out",
        held,
        "--page",
        tmp_path / "a.html",
        *BRIEF,
    )
    assert "1 of 12 images cannot be used" in str(run_dit("evaluate", *words).exception)
    done = run_dit("evaluate", *words, "--skip-bad", "--json")
    assert "! images/0005.png was left out: " in done.stderr
    assert json.loads(done.stdout)["images"] == 11


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--count", "13"), "there are 12 and 13: draw fewer, or add images"),
        (("--rewards", "clip"), "clip needs a local folder of a CLIP model"),
        (("--page", "gone/a.html"), "folder gone does not exist"),
        (("--page", "."), "is a folder; name a file"),
        (("--priors", "gone.safetensors"), "gone.safetensors cannot be read"),
    ],
)
def test_what_cannot_be_judged_is_told_before_anything_is_drawn(
    words: tuple[str, ...], told: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainers.dit.evaluation.draw_images", None)
    done = evaluate_model(workspace, *words)
    assert done.exit_code == 1
    assert told in str(done.exception)


def test_unknown_rewards_are_bad_usage(workspace: Path) -> None:
    done = evaluate_model(workspace, "--rewards", "beauty")
    assert done.exit_code == 2
    assert "is not a reward; choose from" in " ".join(done.output.replace("│", "").split())


def test_a_model_that_has_learnt_nothing_is_not_judged(workspace: Path) -> None:
    done = evaluate_model(workspace, model="base")
    assert "it is untrained; train it first" in str(done.exception)


def test_a_reward_is_asked_of_a_training_by_its_name_and_none_by_none(workspace: Path, tmp_path: Path) -> None:
    words = (workspace / "own", "--model", workspace / "base", "--out", tmp_path / "model", "--batch-size", "4", *BRIEF)
    assert run_dit("train", *words, "--monitor", "").exit_code == 2
    assert run_dit("train", *words, "--monitor", "none").exit_code == 0
    told = json.loads((workspace / "model" / "training.json").read_text())
    assert told["monitor"]["monitor"] == "ssim,psnr"
    assert [[*snapshot["rewards"]] for snapshot in told["curves"]["snapshots"]] == [["ssim", "psnr"]] * 2

"""Prompt words that a model was not trained on: it samples and warns."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_images import (
    PROMPTS,
    WORDS,
    bar,
    tiny_encoder,
    tiny_model,
    tiny_pieces,
    tiny_transformer,
    tiny_vae,
    write_images,
)
from typer.testing import CliRunner

from trainers.cli.commands import app
from trainers.dit.encoders import PixArtPromptEncoder
from trainers.dit.errors import DataError, ModelError
from trainers.dit.models import ImageModel, read_notes, read_trained_words
from trainers.dit.prompts import describe_unknown_words_of_folder

SHORT = ("--steps", "4", "--batch-size", "4", "--device", "cpu")
TUNED = ("--reward", "ssim", "--gate", "psnr", "--iterations", "1", "--groups", "2", "--members", "3", "--draw-steps")
BRIEF = (*TUNED, "4", "--trained-steps", "2", "--gate-images", "4", "--gate-steps", "4", "--bound", "9")
DOUBT = "! the model does not know"


def run_dit(*words: str | Path) -> Any:
    """Run `quantra train dit …` and return its exit code."""
    done = CliRunner().invoke(app, ["train", "dit", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two untrained models, images, and a model trained on them."""
    folder = tmp_path_factory.mktemp("words")
    tiny_model().save(folder / "base")
    ImageModel.of(tiny_transformer(), tiny_vae(), tiny_encoder(), tiny_pieces()).save(folder / "pieces")
    write_images(folder / "own")
    done = run_dit("train", folder / "own", "--model", folder / "base", "--out", folder / "model", *SHORT)
    assert DOUBT not in done.stderr
    return folder


def sample_output(model: Path, prompt: str, out: Path) -> str:
    said = run_dit("sample", model, "--prompt", prompt, "--steps", "4", "--out", out).stderr
    assert out.exists()
    return said


def images_with_unknown_words(folder: Path, *sides: str) -> Path:
    """Images with further words in their prompts."""
    lines = [f"more/{number}.png|a bar on the {side}" for number, side in enumerate(sides)]
    write_images(folder, 12, lines)
    (folder / "more").mkdir()
    for number in range(len(sides)):
        bar(PROMPTS[0], number).save(folder / "more" / f"{number}.png")
    return folder


def test_words_that_a_model_was_not_trained_on_are_named_when_it_draws(workspace: Path, tmp_path: Path) -> None:
    said = sample_output(workspace / "model", "bar on Twelve q", tmp_path / "a.png")
    assert f"{DOUBT} 'twelve', 'q', and may draw something else; rephrase the prompt\n" in said
    assert DOUBT not in sample_output(workspace / "model", "The left  bar", tmp_path / "b.png")


def test_words_that_a_tokenizer_has_no_token_for_are_named_once_with_their_number(
    workspace: Path, tmp_path: Path
) -> None:
    folder = images_with_unknown_words(tmp_path / "images", "left ☃", "☃", "twelve")
    told = f"{DOUBT} '☃', 'twelve', used by 3 of 7 prompts of "
    cached = run_dit("cache", folder, "--model", workspace / "pieces", "--out", tmp_path / "cache")
    assert cached.stderr.count(DOUBT) == 1
    assert f"{told}{folder}\n" in cached.stderr
    for source, more in ((folder, ()), (tmp_path / "cache", ()), (tmp_path / "cache", ("--made-of", folder))):
        out = tmp_path / f"{source.name}{len(more)}"
        done = run_dit("train", source, "--model", workspace / "pieces", "--out", out, *SHORT, *more)
        assert done.stderr.count(told) == done.stderr.count(DOUBT) == 1
    said = sample_output(out, "a bar on the ☃", tmp_path / "a.png")
    assert f"{DOUBT} '☃', and may draw" in said


def test_what_a_tokenizer_reads_as_the_end_of_a_prompt_is_refused() -> None:
    with pytest.raises(DataError, match="has '☃', which the tokenizer does not know"):
        tiny_model().prompts.check("a bar on the ☃")


def test_a_tuning_names_the_words_that_it_draws_unlearnt_and_hands_on_those_that_are_known(
    workspace: Path, tmp_path: Path
) -> None:
    folder = images_with_unknown_words(tmp_path / "images", "floor")
    words = (
        "grpo",
        folder,
        "--model",
        workspace / "model",
        "--held-out",
        workspace / "own",
        "--out",
        tmp_path / "tuned",
    )
    said = run_dit(*words, *BRIEF, "--device", "cpu").stderr
    assert said.count(DOUBT) == 1
    assert f"{DOUBT} 'floor', used by 1 of 5 prompts of {folder}\n" in said
    assert json.loads((tmp_path / "tuned" / "tuning.json").read_text("utf-8"))["words"] == sorted(WORDS)
    for model in (tmp_path / "tuned", workspace / "model"):
        assert read_trained_words(read_notes(model)) == frozenset(WORDS)
    assert f"{DOUBT} 'floor', and" in sample_output(tmp_path / "tuned", "a bar on the floor", tmp_path / "a.png")


def test_a_judgement_names_the_words_that_it_draws_unlearnt(workspace: Path, tmp_path: Path) -> None:
    folder = images_with_unknown_words(tmp_path / "images", "floor")
    words = ("evaluate", workspace / "model", "--images", workspace / "own", "--held-out", folder, "--rewards", "ssim")
    said = run_dit(*words, "--steps", "4", "--count", "2", "--page", tmp_path / "a.html").stderr
    assert said.count(DOUBT) == 1
    assert f"{DOUBT} 'floor', used by 1 of 5 prompts of {folder}\n" in said


def test_a_further_training_adds_its_words(workspace: Path, tmp_path: Path) -> None:
    folder = images_with_unknown_words(tmp_path / "images", "floor")
    run_dit("train", folder, "--model", workspace / "model", "--out", tmp_path / "model", *SHORT)
    assert read_trained_words(read_notes(tmp_path / "model")) == {*WORDS, "floor"}


def test_of_a_model_that_has_learnt_elsewhere_no_word_is_said_to_be_unknown(workspace: Path, tmp_path: Path) -> None:
    tiny_model().learning("flow").save(tmp_path / "theirs")
    assert DOUBT not in sample_output(tmp_path / "theirs", "a bar on the twelve", tmp_path / "a.png")
    run_dit("train", workspace / "own", "--model", tmp_path / "theirs", "--out", tmp_path / "model", *SHORT)
    assert json.loads((tmp_path / "model" / "training.json").read_text())["words"] is None
    assert DOUBT not in sample_output(tmp_path / "model", "a bar on the twelve", tmp_path / "b.png")


def test_of_many_words_the_first_are_named() -> None:
    prompts = tuple(f"a bar {sign}{sign}" for sign in "stuvwxyz")
    said = describe_unknown_words_of_folder(prompts, tiny_model().prompts, frozenset(WORDS), Path("here"))
    assert said == f"{DOUBT} 'ss', 'tt', 'uu', 'vv', 'ww' and 3 more words, used by 8 of 8 prompts of here"


def test_a_folder_whose_words_are_damaged_is_refused(tmp_path: Path) -> None:
    (tmp_path / "training.json").write_text("{")
    with pytest.raises(ModelError, match=r"training.json is damaged .*; restore it"):
        read_trained_words(read_notes(tmp_path))


def test_words_are_compared_without_punctuation_and_capitals() -> None:
    coder = PixArtPromptEncoder(tiny_encoder(), tiny_pieces())
    assert coder.words("A bar, on (the) «Left»: - !") == ("a", "bar", "on", "the", "left")
    assert coder.unknown("a bar on the left") == ()
    assert torch.equal(coder.tokens(["A  Bar"]).ids, coder.tokens(["a bar"]).ids)

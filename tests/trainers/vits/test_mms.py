"""MMS voices: stochastic durations, their own vocabulary, and a tokenizer with a language.

The folder is small and random, with the files and settings of `facebook/mms-tts-kmr-script_latin`.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import soundfile
from tiny_voice import tiny_config
from transformers import VitsModel, VitsTokenizer
from typer.testing import CliRunner

from trainers.cli.commands import app
from trainers.vits.recipe import FINE_TUNING

KURDISH = Path(__file__).parents[2] / "fixtures" / "kurdish"
RUNNER = CliRunner()
SIGNS = "| abcdefghijklmnopqrstuvwxyzçêîşû'-_"
"""Padding comes first and is a letter of the vocabulary in MMS; there is no <unk>."""


def run_vits(*words: str | Path) -> Any:
    """Run `quantra train vits …` and return its exit code."""
    return RUNNER.invoke(app, ["train", "vits", *map(str, words)])


@pytest.fixture(scope="module")
def mms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mms") / "mms-tts-kmr"
    folder.mkdir()
    vocabulary = {sign: number for number, sign in enumerate(SIGNS)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    config = tiny_config(stochastic=True, vocabulary=len(vocabulary))
    config.upsample_rates, config.upsample_kernel_sizes = [16, 16], [32, 32]
    VitsModel(config).save_pretrained(folder)
    settings = {
        "add_blank": True,
        "is_uroman": False,
        "language": "kmr-script_latin",
        "normalize": True,
        "pad_token": "|",
        "phonemize": False,
        "tokenizer_class": "VitsTokenizer",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "special_tokens_map.json").write_text('{"pad_token": "|", "unk_token": "<unk>"}', encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def corpus(mms: Path) -> Path:
    out = mms.with_name("corpus")
    done = run_vits("prepare", KURDISH, "--out", out, "--selection", "2", "--held-out", "2", "--vocabulary-of", mms)
    assert done.exit_code == 0, (done.output, done.exception)
    return out


def test_a_voice_of_mms_is_trained_on_and_speaks(mms: Path, corpus: Path, tmp_path: Path) -> None:
    voice, sound = tmp_path / "voice", tmp_path / "a.wav"
    done = run_vits("train", corpus, "--out", voice, "--from", mms, "--steps", "1", "--batch-size", "2")
    assert done.exit_code == 0, (done.output, done.exception)
    assert json.loads((voice / "1" / "training.json").read_text("utf-8"))["recipe"]["learning_rate"] == FINE_TUNING
    said = run_vits("synth", voice, "--text", "ez diçim malê", "--out", sound)
    assert said.exit_code == 0, (said.output, said.exception)
    assert soundfile.info(sound).samplerate == 16_000
    assert VitsModel.from_pretrained(voice / "1").config.use_stochastic_duration_prediction


def test_what_is_saved_reads_texts_as_mms_did(mms: Path, corpus: Path, tmp_path: Path) -> None:
    run_vits("train", corpus, "--out", tmp_path / "voice", "--from", mms, "--steps", "1", "--batch-size", "2")
    before, after = (VitsTokenizer.from_pretrained(folder) for folder in (mms, tmp_path / "voice" / "1"))
    assert after("ez diçim malê").input_ids == before("ez diçim malê").input_ids
    assert (after.language, after.is_uroman, after.add_blank) == ("kmr-script_latin", False, True)


def test_a_folder_without_a_model_is_refused_by_name(corpus: Path, tmp_path: Path) -> None:
    done = run_vits("train", corpus, "--out", tmp_path / "v", "--from", KURDISH)
    assert done.exit_code == 1
    assert str(KURDISH) in str(done.exception)
    assert "holds no voice" in str(done.exception)


def test_a_model_of_another_kind_is_refused_by_name(corpus: Path, tmp_path: Path) -> None:
    other = tmp_path / "bert"
    other.mkdir()
    (other / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    done = run_vits("train", corpus, "--out", tmp_path / "v", "--from", other)
    assert done.exit_code == 1
    assert f"{other} cannot be read as a voice" in str(done.exception)


def test_recordings_that_were_prepared_without_its_vocabulary_are_refused(mms: Path, tmp_path: Path) -> None:
    assert run_vits("prepare", KURDISH, "--out", tmp_path / "own").exit_code == 0
    done = run_vits("train", tmp_path / "own", "--out", tmp_path / "v", "--from", mms)
    assert done.exit_code == 1
    assert f"prepare again with --vocabulary-of {mms}" in str(done.exception)

"""Voice training on the command line, from recordings to speech."""

import json
import shlex
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import soundfile
from command_exits import interrupted_at
from recordings import TEXTS, write_recordings
from tiny_voice import tiny_config
from typer.testing import CliRunner

from trainers.cli.commands import app
from trainers.vits.corpus import SpeechCorpus
from trainers.vits.errors import SPEECH
from trainers.vits.speech_recogniser import FOLDER, train_recogniser
from trainers.vits.versions import VoiceVersions
from trainers.vits.voice import Voice

KURDISH = Path(__file__).parents[2] / "fixtures" / "kurdish"
RUNNER = CliRunner()


def run_vits(*words: str) -> Any:
    """Run `quantra train vits …` and return its exit code."""
    return RUNNER.invoke(app, ["train", "vits", *words])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("speech") / "corpus"
    done = run_vits("prepare", str(KURDISH), "--out", str(out), "--selection", "4", "--held-out", "4", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["clips"] == 60
    return out


def test_what_is_advised_next_can_be_done_as_it_is_printed(tmp_path: Path) -> None:
    """With any folder names, and any letters of the voice."""
    place = tmp_path / 'Dilan\'s "first" voice'
    source = write_recordings(place / "recordings", {name: text.upper() for name, text in TEXTS.items()})
    told = run_vits(
        "prepare", str(source), "--out", str(place / "corpus"), "--selection", "1", "--held-out", "1"
    ).stderr
    train = advised(told)
    assert train[:4] == ["train", "vits", "train", str(place / "corpus")]
    trained = run_vits(*train[2:5], str(place / "v"), "--steps", "1", "--batch-size", "2")
    assert trained.exit_code == 0, trained.exception
    again = run_vits(*train[2:5], str(place / "v"), "--steps", "1", "--batch-size", "2", "--resume")
    assert advised(again.stderr) == advised(trained.stderr)
    said = run_vits(*advised(trained.stderr)[2:-1], str(tmp_path / "a.wav"))
    assert said.exit_code == 0, said.exception
    assert "unknown to the voice" not in said.stderr
    unprepared = str(run_vits("train", str(source), "--out", str(place / "v")).exception)
    assert shlex.split(unprepared.partition("run: quantra ")[2])[3:] == [str(source), "--out", "corpus"]
    assert "--out corpus" in str(run_vits("train", str(place), "--out", str(place / "v")).exception)


def advised(told: str) -> list[str]:
    """Words of the advised next command, without the program."""
    return shlex.split(told.partition("Next: quantra ")[2])


def test_a_sound_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    voice, sound = tmp_path / "v", tmp_path / "nowhere" / "a.wav"
    VoiceVersions(voice).add(Voice.fresh(tiny_config(vocabulary=3), {"<pad>": 0, "a": 1, "<unk>": 2}), {})
    done = run_vits("synth", str(voice), "--text", "a", "--out", str(sound))
    assert f"{sound} cannot be written" in str(done.exception)


def test_a_corpus_with_too_few_test_clips_warns(tmp_path: Path) -> None:
    few, enough = (
        run_vits("prepare", str(KURDISH), "--out", str(tmp_path / count), "--held-out", count).stderr
        for count in ("9", "10")
    )
    assert "9 held-out clips are too few for reliable figures; use --held-out 10" in few
    assert "little" not in enough


@pytest.mark.slow
def test_recordings_become_a_voice_that_speaks_and_is_judged(corpus: Path, tmp_path: Path) -> None:
    voice, sound = tmp_path / "voice", tmp_path / "a.wav"
    assert run_vits("train", str(corpus), "--out", str(voice), "--steps", "4", "--adversarial-from", "2").exit_code == 0
    assert run_vits("train", str(corpus), "--out", str(voice), "--steps", "1", "--from", str(voice)).exit_code == 0
    assert json.loads((voice / "voice.json").read_text())["current"] == 2
    rates = [json.loads((voice / one / "training.json").read_text())["recipe"]["learning_rate"] for one in "12"]
    assert rates == [2e-3, 2e-5]
    said = run_vits("synth", str(voice), "--text", "ez diçe mal?", "--out", str(sound))
    assert said.exit_code == 0
    assert "left out: '?'" in said.stderr
    assert soundfile.info(sound).samplerate == 16_000
    train_recogniser(SpeechCorpus.open(corpus), steps=60).save(corpus / FOLDER)  # a fifth of its default
    judged = run_vits("evaluate", str(voice), "--corpus", str(corpus), "--json")
    assert judged.exit_code == 0
    told = json.loads(judged.stdout)
    assert told["recogniser_error_rate"] < 0.5 < told["error_rate"]
    assert Path(told["page"]).read_text(encoding="utf-8").count("<audio") == 2 * len(told["clips"])


@pytest.mark.slow
def test_a_training_stopped_before_the_discriminators_judge_goes_on_to_the_same_weights(
    corpus: Path, tmp_path: Path
) -> None:
    def words(name: str, *more: str) -> list[str]:
        steps = ["--steps", "6", "--batch-size", "2", "--adversarial-from", "4", "--workers", "1"]
        saving = ["--checkpoint-seconds", "0.01", "--json"]
        return ["train", str(corpus), "--out", str(tmp_path / name), *steps, *saving, *more]

    with interrupted_at(3, "trainers.vits.command"):
        assert run_vits(*words("stopped")).exit_code == 128 + signal.SIGINT
    assert not (tmp_path / "stopped" / "1").exists()
    ended = [run_vits(*words("stopped", "--resume")), run_vits(*words("whole"))]
    resumed, whole = ([(line["phase"], line["window"], line["loss"]) for line in windows_in(done)] for done in ended)
    assert resumed == whole[-len(resumed) :]
    assert [phase for phase, *_ in resumed].count("discriminators") == 2
    assert 2 < [phase for phase, *_ in resumed].count("generator") < 6
    one, other = ((tmp_path / name / "1" / "model.safetensors").read_bytes() for name in ("stopped", "whole"))
    assert one == other


def windows_in(done: Any) -> list[dict[str, Any]]:
    """Window reports of a training run."""
    assert done.exit_code == 0, done.output
    return [line for line in map(json.loads, done.stdout.splitlines()) if line["kind"] == "window"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "nowhere", "--out", "v"], "is not a prepared corpus"),
        (["synth", "nowhere", "--text", "a", "--out", "a.wav"], "holds no voice"),
        (["prepare", "nowhere", "--out", "corpus"], "nowhere"),
    ],
)
def test_what_is_not_there_is_named(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_vits(*words)
    assert done.exit_code == 1
    assert told in str(done.exception)


def test_a_corpus_of_another_vocabulary_is_refused_by_the_voice(corpus: Path, tmp_path: Path) -> None:
    assert run_vits("train", str(corpus), "--out", str(tmp_path / "v"), "--steps", "1").exit_code == 0
    small = tmp_path / "recordings"
    (small / "wavs").mkdir(parents=True)
    lines = [line for line in (KURDISH / "metadata.csv").read_text(encoding="utf-8").splitlines() if "x" not in line][
        :8
    ]
    (small / "metadata.csv").write_text("\n".join(lines), encoding="utf-8")
    for line in lines:
        name = line.split("|")[0]
        (small / "wavs" / f"{name}.flac").write_bytes((KURDISH / "wavs" / f"{name}.flac").read_bytes())
    assert run_vits("prepare", str(small), "--out", str(tmp_path / "other")).exit_code == 0
    done = run_vits("train", str(tmp_path / "other"), "--out", str(tmp_path / "w"), "--from", str(tmp_path / "v"))
    assert "--vocabulary-of" in str(done.exception)
    words = ["prepare", str(small), "--out", str(tmp_path / "fits"), "--vocabulary-of", str(tmp_path / "v")]
    assert run_vits(*words).exit_code == 0
    done = run_vits(
        "train", str(tmp_path / "fits"), "--out", str(tmp_path / "w"), "--from", str(tmp_path / "v"), "--steps", "1"
    )
    assert done.exit_code == 0


def test_the_durations_of_a_voice_cannot_be_changed(corpus: Path, tmp_path: Path) -> None:
    done = run_vits("train", str(corpus), "--out", str(tmp_path), "--from", "voices/a", "--durations", "stochastic")
    assert done.exit_code == 2
    assert "is set by the voice" in done.stderr


def test_a_missing_package_is_a_one_line_error_with_the_install_command(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainers.vits.command.SPEECH", replace(SPEECH, packages=("no_such_package",)))
    done = run_vits("train", str(corpus), "--out", "v")
    assert "no_such_package" in str(done.exception)
    assert "pip install 'quantra[tts]'" in str(done.exception)

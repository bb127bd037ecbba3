"""From recordings to speech by the command line, as a person would go."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import soundfile
from typer.testing import CliRunner

from trainers.cli.commands import app

KURDISH = Path(__file__).parents[2] / "fixtures" / "kurdish"
RUNNER = CliRunner()


def ran(*words: str) -> Any:
    """What `quantra train vits …` ends with."""
    return RUNNER.invoke(app, ["train", "vits", *words])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("speech") / "corpus"
    done = ran("prepare", str(KURDISH), "--out", str(out), "--selection", "4", "--held-out", "4", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["clips"] == 60
    return out


@pytest.mark.slow
def test_recordings_become_a_voice_that_speaks_and_is_judged(corpus: Path, tmp_path: Path) -> None:
    voice, sound = tmp_path / "voice", tmp_path / "a.wav"
    assert ran("train", str(corpus), "--out", str(voice), "--steps", "4", "--adversarial-from", "2").exit_code == 0
    assert ran("train", str(corpus), "--out", str(voice), "--steps", "1", "--from", str(voice)).exit_code == 0
    assert json.loads((voice / "voice.json").read_text())["current"] == 2
    rates = [json.loads((voice / one / "training.json").read_text())["recipe"]["learning_rate"] for one in "12"]
    assert rates == [2e-3, 2e-5]
    said = ran("synth", str(voice), "--text", "ez diçe mal?", "--out", str(sound))
    assert said.exit_code == 0
    assert "no sound for '?'" in said.stderr
    assert soundfile.info(sound).samplerate == 16_000
    judged = ran("evaluate", str(voice), "--corpus", str(corpus), "--json")
    assert judged.exit_code == 0
    told = json.loads(judged.stdout)
    assert told["judge_error_rate"] < 0.5 < told["error_rate"]
    assert Path(told["page"]).read_text(encoding="utf-8").count("<audio") == 2 * len(told["clips"])


@pytest.mark.slow
def test_a_training_that_is_stopped_goes_on_to_the_same_weights(corpus: Path, tmp_path: Path) -> None:
    def command(out: Path, *more: str) -> list[str]:
        steps = ["--steps", "6", "--checkpoint-seconds", "0.01", "--json"]
        return [sys.executable, "-m", "trainers.vits", "train", str(corpus), "--out", str(out), *steps, *more]

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command(tmp_path / "stopped"), stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout is not None
        next(line for line in running.stdout if json.loads(line)["kind"] == "checkpoint")
        running.send_signal(signal.SIGKILL)
    assert not (tmp_path / "stopped" / "1").exists()
    for out, more in ((tmp_path / "stopped", ["--resume"]), (tmp_path / "whole", [])):
        subprocess.run(command(out, *more), check=True, capture_output=True, env=environment)
    one, other = ((tmp_path / name / "1" / "model.safetensors").read_bytes() for name in ("stopped", "whole"))
    assert one == other


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "nowhere", "--out", "v"], "is no prepared corpus"),
        (["synth", "nowhere", "--text", "a", "--out", "a.wav"], "holds no voice"),
        (["prepare", "nowhere", "--out", "corpus"], "nowhere"),
    ],
)
def test_what_is_not_there_is_named(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = ran(*words)
    assert done.exit_code == 1
    assert told in str(done.exception)


def test_a_corpus_of_another_vocabulary_is_refused_by_the_voice(corpus: Path, tmp_path: Path) -> None:
    assert ran("train", str(corpus), "--out", str(tmp_path / "v"), "--steps", "1").exit_code == 0
    small = tmp_path / "recordings"
    (small / "wavs").mkdir(parents=True)
    lines = [line for line in (KURDISH / "metadata.csv").read_text(encoding="utf-8").splitlines() if "x" not in line][
        :8
    ]
    (small / "metadata.csv").write_text("\n".join(lines), encoding="utf-8")
    for line in lines:
        name = line.split("|")[0]
        (small / "wavs" / f"{name}.flac").write_bytes((KURDISH / "wavs" / f"{name}.flac").read_bytes())
    assert ran("prepare", str(small), "--out", str(tmp_path / "other")).exit_code == 0
    done = ran("train", str(tmp_path / "other"), "--out", str(tmp_path / "w"), "--from", str(tmp_path / "v"))
    assert "--vocabulary-of" in str(done.exception)
    words = ["prepare", str(small), "--out", str(tmp_path / "fits"), "--vocabulary-of", str(tmp_path / "v")]
    assert ran(*words).exit_code == 0
    done = ran(
        "train", str(tmp_path / "fits"), "--out", str(tmp_path / "w"), "--from", str(tmp_path / "v"), "--steps", "1"
    )
    assert done.exit_code == 0


def test_the_durations_of_a_voice_cannot_be_changed(corpus: Path, tmp_path: Path) -> None:
    done = ran("train", str(corpus), "--out", str(tmp_path), "--from", "voices/a", "--durations", "stochastic")
    assert done.exit_code == 2
    assert "comes with the voice" in done.stderr


def test_a_missing_package_is_one_line_that_says_how_to_get_it(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainers.vits.errors.PACKAGES", ("no_such_package",))
    done = ran("train", str(corpus), "--out", "v")
    assert "no_such_package" in str(done.exception)
    assert "pip install 'quantra[tts]'" in str(done.exception)


def test_what_breaks_speech_is_not_installed() -> None:
    """torchvision and torchaudio of another build than torch stop transformers from loading."""
    import importlib.util

    assert importlib.util.find_spec("torchvision") is None
    assert importlib.util.find_spec("torchaudio") is None

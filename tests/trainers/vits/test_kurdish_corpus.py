"""The script that builds the Kurmanji corpus, and its output."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
from shown_commands import ENVIRONMENT, ROOT

from examples.make_kurdish_corpus import WORDS, sentences, spelled

KURDISH = ROOT / "tests" / "fixtures" / "kurdish"
SCRIPT = ROOT / "examples" / "make_kurdish_corpus.py"

needs_espeak = pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng is not installed")


def make_corpus(folder: Path, *options: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = ENVIRONMENT if path is None else {**ENVIRONMENT, "PATH": path}
    program = [sys.executable, str(SCRIPT), str(folder), *options]
    return subprocess.run(program, env=environment, capture_output=True, text=True, check=False)


def texts(folder: Path) -> dict[str, str]:
    lines = (folder / "metadata.csv").read_text(encoding="utf-8").splitlines()
    return {name: text for name, _, text in (line.partition("|") for line in lines)}


def test_the_fixture_is_of_the_scripts_sentences_and_small() -> None:
    drawn = sentences(7, {})
    assert list(texts(KURDISH).values()) == [next(drawn) for _ in range(60)]
    assert sorted(path.stem for path in (KURDISH / "wavs").iterdir()) == sorted(texts(KURDISH))
    assert sum(path.stat().st_size for path in KURDISH.rglob("*.*")) < 2_000_000


def test_no_sentence_stands_twice_and_each_has_a_changed_word() -> None:
    drawn = [text for text, _ in zip(sentences(3, {"nav": "name", "roj": "rûz"}), range(200), strict=False)]
    assert len(set(drawn)) == 200
    assert all({"nav", "roj"} & set(text.split()) for text in drawn)
    assert all(set(text.split()) <= set(WORDS) for text in drawn)


def test_whole_words_alone_are_spelled_otherwise() -> None:
    assert spelled("nav navîn û nav", {"nav": "name"}) == "name navîn û name"


@needs_espeak
def test_a_changed_word_sounds_otherwise_under_the_same_text(tmp_path: Path) -> None:
    for folder, spelling in (("same", "nav"), ("changed", "name")):
        done = make_corpus(tmp_path / folder, "--clips", "2", "--seed", "8", "--changed", f"nav={spelling}")
        assert done.returncode == 0, done.stderr
        assert "2 clips" in done.stdout
    assert texts(tmp_path / "same") == texts(tmp_path / "changed")
    for name in texts(tmp_path / "same"):
        same, changed = (soundfile.read(tmp_path / f / "wavs" / f"{name}.flac") for f in ("same", "changed"))
        assert same[1] == changed[1] == 16_000
        assert same[0].tobytes() != changed[0].tobytes()


@needs_espeak
def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "own").touch()
    assert "is not empty" in make_corpus(tmp_path, "--clips", "1").stderr
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def test_without_espeak_it_says_what_to_install(tmp_path: Path) -> None:
    done = make_corpus(tmp_path / "corpus", path=str(tmp_path))
    assert done.returncode == 1
    assert "apt install espeak-ng" in done.stderr
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--changed", "nav"), "not WORD=SPELLING"),
        (("--changed", "nav= "), "not WORD=SPELLING"),
        (("--changed", "kitten=x"), "is in no sentence"),
        (("--clips", "0"), "not a whole number of 1 or more"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    done = make_corpus(tmp_path / "corpus", *options)
    assert done.returncode == 2
    assert said in done.stderr

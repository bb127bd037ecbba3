"""Correcting a voice on the command line: training, refusals, and unchanged versions."""

import errno
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import soundfile
from command_exits import interrupted_at
from correctable import LATER, RUNNER, base_corpus, copy_voice, correction, feedback, manifest, new_voice

from trainers.cli.commands import app
from trainers.vits.corpus import RecordedClip, SpeechCorpus
from trainers.vits.corrections import list_lengths, set_speaking_rate
from trainers.vits.speech_recogniser import SpeechRecogniser, load_or_train_recogniser
from trainers.vits.versions import VoiceVersions
from trainers.vits.voice import Voice

EAGER = ("--steps", "8", "--learning-rate", "0.01")
"""An untrained voice improves on every clip."""
IDLE = ("--steps", "1", "--learning-rate", "1e-12")
"""An untrained voice stays unchanged."""
TEN = [correction(name) for name in LATER[:10]]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return base_corpus(tmp_path_factory.mktemp("base") / "corpus")


@pytest.fixture(scope="module")
def fresh(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_voice(tmp_path_factory.mktemp("voice") / "v", corpus)


@pytest.fixture(scope="module")
def corrected_voice(corpus: Path, fresh: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A voice whose second version is trained on ten corrections and two ratings."""
    folder = tmp_path_factory.mktemp("corrected")
    voice = copy_voice(fresh, folder / "v")
    lines = [*TEN, {"clip": "ku0000", "rating": 1}, {"clip": "ku0001", "rating": 2}]
    done = feedback(voice, corpus, manifest(folder, lines), *EAGER)
    assert done.exit_code == 0, done.output
    return voice


def json_output(done: Any) -> dict[str, Any]:
    """The last JSON line."""
    return json.loads(done.stdout.splitlines()[-1])


def test_a_better_voice_becomes_a_new_version(fresh: Path, corrected_voice: Path) -> None:
    index = json.loads((corrected_voice / "voice.json").read_text())
    assert (index["current"], index["versions"], len(index["consumed"])) == (2, 2, 12)
    assert set(index["consumed"].values()) == {2}
    name = "model.safetensors"
    assert (corrected_voice / "1" / name).read_bytes() == (fresh / "1" / name).read_bytes()
    assert (corrected_voice / "2" / name).read_bytes() != (fresh / "1" / name).read_bytes()
    training = json.loads((corrected_voice / "2" / "training.json").read_text())
    assert training["corrects"] == 1
    assert training["decision"]["accepted"]
    assert [line["holds"] for line in training["decision"]["lines"]][:2] == [True, True]
    assert not list((corrected_voice / "2.run").rglob("*.safetensors"))


def test_a_second_run_learns_nothing_and_consumes_nothing(corpus: Path, corrected_voice: Path, tmp_path: Path) -> None:
    before = (corrected_voice / "voice.json").read_bytes()
    done = feedback(corrected_voice, corpus, manifest(tmp_path, TEN))
    assert done.exit_code == 0
    assert json_output(done) == {"kind": "unchanged", "voice": str(corrected_voice)}
    assert "nothing new" in done.stderr
    assert (corrected_voice / "voice.json").read_bytes() == before
    assert not (corrected_voice / "3.run").exists()


def test_lengths_may_err_as_much_as_those_of_the_voice_before(
    corpus: Path, fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = list[float]()

    def recorded(voice: Voice, base: Sequence[RecordedClip], new: Sequence[RecordedClip], most: float) -> float:
        allowed.append(most)
        return set_speaking_rate(voice, base, new, most)

    monkeypatch.setattr("trainers.vits.voice_correction.set_speaking_rate", recorded)
    feedback(copy_voice(fresh, tmp_path / "v"), corpus, manifest(tmp_path, TEN), *EAGER)
    clips = SpeechCorpus.open(corpus).list_clips("selection")
    assert allowed == [pytest.approx(Voice.load(fresh / "1").length_error(list_lengths(clips)))]


def test_what_a_kill_leaves_of_a_correction_that_is_there_is_removed(
    corpus: Path, corrected_voice: Path, tmp_path: Path
) -> None:
    voice = copy_voice(corrected_voice, tmp_path / "v")
    for name in ("checkpoints/window-000000008", "corrections/0123"):
        (voice / "2.run" / name).mkdir(parents=True)
    VoiceVersions(voice).choose(1)
    done = feedback(voice, corpus, manifest(tmp_path, TEN), "--resume")
    assert "version 2 of" in done.stderr
    assert "version 1 stays current" in done.stderr
    assert sorted(one.name for one in (voice / "2.run").iterdir()) == ["checkpoints", "reports.jsonl"]
    assert not list((voice / "2.run").rglob("window-*"))


def test_a_correction_begins_from_the_version_that_was_chosen(
    corpus: Path, corrected_voice: Path, tmp_path: Path
) -> None:
    voice = copy_voice(corrected_voice, tmp_path / "v")
    VoiceVersions(voice).choose(1)
    done = feedback(voice, corpus, manifest(tmp_path, [correction(name) for name in LATER[10:20]]), *EAGER)
    assert done.exit_code == 0, done.output
    parent, other = (json.loads((voice / one / "training.json").read_text()) for one in "32")
    assert (parent["corrects"], parent["parent"]) == (1, other["parent"])
    index = VoiceVersions(voice).index
    assert (index.current, index.versions) == (3, 3)
    assert sorted(index.consumed.values()) == [2] * 12 + [3] * 10


@pytest.mark.slow
def test_a_version_that_finds_no_room_leaves_nothing_and_can_be_resumed(
    corpus: Path, fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = copy_voice(fresh, tmp_path / "v")

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("trainers.vits.corrections.WeightedCorpus.write", full)
        done = feedback(voice, corpus, manifest(tmp_path, TEN), *EAGER)
    assert "2 cannot be written ([Errno 28] No space left on device); free space and run" in str(done.exception)
    assert sorted(one.name for one in voice.iterdir()) == ["1", "2.run", "voice.json"]
    assert feedback(voice, corpus, manifest(tmp_path, TEN), *EAGER, "--resume").exit_code == 0


def test_a_voice_that_is_no_better_is_refused_with_its_figures(corpus: Path, fresh: Path, tmp_path: Path) -> None:
    voice = copy_voice(fresh, tmp_path / "v")
    before = (voice / "voice.json").read_bytes()
    done = feedback(voice, corpus, manifest(tmp_path, TEN), *IDLE)
    assert done.exit_code == 1
    decision = json_output(done)
    assert decision["kind"] == "refused"
    first = decision["lines"][0]
    assert (first["what"], first["holds"]) == ("corrections, distance", False)
    assert first["interval"][0] <= first["change"] <= first["interval"][1]
    assert "! corrections, distance" in done.stderr
    assert "record more of them, or train for more --steps" in done.stderr
    assert (voice / "voice.json").read_bytes() == before
    assert sorted(path.name for path in voice.iterdir()) == ["1", "2.run", "voice.json"]
    assert not list((voice / "2.run").rglob("*.safetensors"))
    assert json.loads((voice / "2.run" / "refused.json").read_text())["decision"]["lines"] == decision["lines"]


def test_earlier_corrections_and_ratings_are_learnt_again(corpus: Path, corrected_voice: Path, tmp_path: Path) -> None:
    from trainers.vits.corpus import SpeechCorpus
    from trainers.vits.corrections import load_previous_corrections
    from trainers.vits.versions import VoiceVersions

    voice = copy_voice(corrected_voice, tmp_path / "v")
    lines = [correction(name, rating=3) for name in LATER[10:20]]
    done = feedback(voice, corpus, manifest(tmp_path, [*TEN, *lines]), *EAGER)
    assert "10 new lines, 10 used before" in done.stderr
    what = [line["what"] for line in json_output(done)["lines"]]
    assert "earlier corrections, distance" in what
    kept = load_previous_corrections(VoiceVersions(corrected_voice))
    assert len(kept.corrections) == 1
    assert sorted(kept.corrections[0].ratings.values()) == [5] * 10
    names = {clip.digest: clip.name for clip in SpeechCorpus.open(corpus).clips}
    assert {names[digest]: rating for digest, rating in kept.base.items()} == {"ku0000": 1, "ku0001": 2}


@pytest.mark.slow
def test_a_correction_stopped_by_a_signal_resumes_to_the_same_bits(corpus: Path, fresh: Path, tmp_path: Path) -> None:
    path, often = manifest(tmp_path, TEN), ("--checkpoint-seconds", "0.01")
    stopped, whole = (copy_voice(fresh, tmp_path / name) for name in ("stopped", "whole"))
    before = (stopped / "voice.json").read_bytes()
    with interrupted_at(5, "trainers.vits.command"):
        done = feedback(stopped, corpus, path, *EAGER, *often)
    assert done.exit_code == 128 + signal.SIGINT
    assert "to continue, run the same command with --resume" in done.stderr
    assert (stopped / "voice.json").read_bytes() == before
    assert "continue it (--resume)" in str(feedback(stopped, corpus, path, *EAGER).exception)
    going_on = feedback(stopped, corpus, path, *EAGER, *often, "--resume")
    assert going_on.exit_code == 0
    assert sum('"kind": "window"' in line for line in going_on.stdout.splitlines()) < 8
    assert feedback(whole, corpus, path, *EAGER).exit_code == 0
    for name in ("model.safetensors", "training.json", "config.json"):
        assert (stopped / "2" / name).read_bytes() == (whole / "2" / name).read_bytes()


def test_characters_without_a_sound_are_reported(corpus: Path, fresh: Path, tmp_path: Path) -> None:
    strange = [{**correction(name), "text": f"{correction(name)['text']} 7"} for name in LATER[:10]]
    done = feedback(copy_voice(fresh, tmp_path / "v"), corpus, manifest(tmp_path, strange), *IDLE)
    assert "are not spoken: '7' (10 times)" in done.stderr


def bad(folder: Path, kind: str) -> dict[str, Any]:
    """A correction that cannot be used."""
    path = folder / "bad.wav"
    tone, rate = soundfile.read(correction(LATER[0])["audio"])
    if kind == "rate":
        soundfile.write(path, tone, 8000)
    elif kind == "silent":
        soundfile.write(path, 0 * tone, rate)
    elif kind == "short":
        soundfile.write(path, tone[:2000], rate)
    elif kind == "broken":
        path.write_bytes(b"no sound")
    text = "777" if kind == "unknown" else "ez diçim"
    return {"audio": correction(LATER[0])["audio"] if kind == "unknown" else "bad.wav", "text": text}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("rate", "line 11: .*bad.wav has 8000 samples per second instead of 16000; convert it"),
        ("silent", "line 11: .*bad.wav is silent; record it again"),
        ("short", "line 11: .*bad.wav has 7 frames"),
        ("broken", "line 11: .*bad.wav cannot be decoded"),
        ("unknown", "line 11: all characters of the text '777' are missing from the vocabulary"),
    ],
)
def test_a_bad_recording_is_named_by_its_line_before_anything_is_learnt(
    kind: str, expected: str, corpus: Path, fresh: Path, tmp_path: Path
) -> None:
    voice = copy_voice(fresh, tmp_path / "v")
    path = manifest(tmp_path, [*TEN, bad(tmp_path, kind)])
    done = feedback(voice, corpus, path)
    assert done.exit_code == 1
    with pytest.raises(Exception, match=expected):
        raise done.exception
    assert sorted(one.name for one in voice.iterdir() if one.suffix != ".run") == ["1", "voice.json"]


def test_a_bad_recording_can_be_left_out_and_is_not_consumed(corpus: Path, fresh: Path, tmp_path: Path) -> None:
    voice = copy_voice(fresh, tmp_path / "v")
    path = manifest(tmp_path, [*TEN, bad(tmp_path, "rate")])
    skipped = feedback(voice, corpus, path, "--skip-bad", *EAGER)
    assert skipped.exit_code == 0, skipped.output
    assert "1 of 11 clips were left out" in skipped.stderr
    assert len(json.loads((voice / "voice.json").read_text())["consumed"]) == 10


def test_recordings_that_are_not_there_can_be_left_out_beside_others_that_are_bad(
    corpus: Path, fresh: Path, tmp_path: Path
) -> None:
    """The remaining ones determine the number of evaluation texts."""
    lines = [correction(name) for name in LATER[:12]]
    missing = [{"audio": f"{number}.wav", "text": f"{number} ez"} for number in range(24)]
    path = manifest(tmp_path, [*lines, *missing, bad(tmp_path, "rate")])
    voice = copy_voice(fresh, tmp_path / "v")
    assert "line 13: file " in str(feedback(voice, corpus, path).exception)
    done = feedback(voice, corpus, path, "--skip-bad", *IDLE)
    assert "25 of 37 clips were left out" in done.stderr, done.exception
    assert f"line 13: file {tmp_path / '0.wav'} does not exist" in done.stderr
    assert "5 train, 1 selection, 6 held-out" in done.stderr


def test_a_voice_that_got_another_version_meanwhile_is_not_corrected(
    corpus: Path, fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = copy_voice(fresh, tmp_path / "v")
    recogniser = load_or_train_recogniser(SpeechCorpus.open(corpus))

    def slow(_corpus: SpeechCorpus) -> SpeechRecogniser:
        VoiceVersions(voice).add(Voice.load(voice / "1"), {"steps": 1})
        return recogniser

    monkeypatch.setattr("trainers.vits.speech_recogniser.load_or_train_recogniser", slow)
    done = feedback(voice, corpus, manifest(tmp_path, TEN), *EAGER)
    assert "was changed by another command in the meantime" in str(done.exception)
    assert VoiceVersions(voice).index.versions == 2


def test_the_figures_are_those_that_an_evaluation_of_either_version_finds(
    corpus: Path, corrected_voice: Path, tmp_path: Path
) -> None:
    lines = json.loads((corrected_voice / "2" / "training.json").read_text())["decision"]["lines"]
    told_of = {line["what"]: line for line in lines}
    assert not {"ku0000", "ku0001"} & {clip.name for clip in SpeechCorpus.open(corpus).list_clips("held_out")}
    for version, when in (("1", "before"), ("2", "after")):
        words = ["--corpus", str(corpus), "--page", str(tmp_path / "a.html"), "--json"]
        done = RUNNER.invoke(app, ["train", "vits", "evaluate", str(corrected_voice / version), *words])
        found = json.loads(done.stdout)
        assert told_of["base, distance"][when] == pytest.approx(found["distance"], rel=1e-6)
        assert told_of["base, error rate"][when] == pytest.approx(found["error_rate"], rel=1e-6)
        assert told_of["base, length error"][when] == pytest.approx(found["length_error"], rel=1e-6)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "is empty"),
        ([{"audio": "nowhere.wav", "text": "a"}], r"line 1: file .*nowhere\.wav does not exist"),
        (["{"], "line 1: .*Expecting"),
        ([{**TEN[0], "rating": 6}], "line 1: rating is 6; it must be 1, 2, 3, 4 or 5"),
        ([{**TEN[0], "text": " "}], "line 1: text is ' '; it must be a non-empty text"),
        ([{"clip": "ku9999", "rating": 2}], "has no clips with these names: line 1: ku9999"),
        ([{"clip": f"a{number}", "rating": 2} for number in range(30)], "line 20: a19; and 10 more; use the ids"),
        ([{**one, "rating": 1} for one in TEN], "every line is rated 1"),
        (TEN[:8], "have 8 different texts, but training and evaluation need 9"),
        ([{"clip": "ku0000", "rating": 2}], "have 0 different texts, but training and evaluation need 9"),
        ([correction("ku0000"), *TEN], "line 1 is clip ku0000"),
        ([*TEN, {**TEN[0], "rating": 4}], "line 11: .*duplicates clip line 1"),
    ],
)
def test_a_manifest_that_cannot_be_learnt_from_is_refused(
    lines: list[Any], expected: str, corpus: Path, fresh: Path, tmp_path: Path
) -> None:
    voice = copy_voice(fresh, tmp_path / "v")
    done = feedback(voice, corpus, manifest(tmp_path, lines))
    assert done.exit_code == 1
    with pytest.raises(Exception, match=expected):
        raise done.exception
    assert sorted(one.name for one in voice.iterdir() if one.suffix != ".run") == ["1", "voice.json"]


def test_a_version_alone_cannot_be_corrected(corpus: Path, fresh: Path, tmp_path: Path) -> None:
    done = feedback(fresh / "1", corpus, manifest(tmp_path, TEN))
    assert "give the voice's folder" in str(done.exception)
    assert feedback(fresh, corpus, manifest(tmp_path, TEN), "--share", "1").exit_code == 2

"""Preparing a corpus from recordings: skipped files, reports, and no partial output."""

import resource
import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from recordings import RATE, TEXTS, few, tones, write_clip_of, write_lines, write_recordings

from trainers.vits.corpus import SpeechCorpus, describe_corpus_problems
from trainers.vits.errors import CorpusError
from trainers.vits.preparation import CorpusSettings, prepare_corpus
from trainers.vits.spectrum import FrameSettings
from trainers.vits.vocabulary import list_characters


def content(folder: Path) -> dict[str, bytes]:
    """Contents of all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def join_line_numbers(texts: dict[str, str]) -> list[str]:
    return [f"{name}|{text}" for name, text in texts.items()]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source of ten good recordings."""
    return write_recordings(tmp_path / "source")


@contextmanager
def files_up_to(size: int) -> Generator[None]:
    """Limit the file size, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_the_same_recordings_give_the_same_bytes(source: Path, tmp_path: Path) -> None:
    prepare_corpus(source, tmp_path / "a", few())
    prepare_corpus(source, tmp_path / "b", few())
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_progress_is_reported_per_clip(source: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    prepare_corpus(source, tmp_path / "out", few(), lambda done, total: told.append((done, total)))
    assert told == [(done, 10) for done in range(1, 11)]


def test_recordings_may_lie_beside_metadata(tmp_path: Path) -> None:
    write_lines(tmp_path / "s", join_line_numbers(TEXTS))
    for name, text in TEXTS.items():
        write_clip_of(tmp_path / "s" / f"{name}.flac", text)
    assert len(prepare_corpus(tmp_path / "s", tmp_path / "out", few()).clips) == len(TEXTS)


def add_bad_clips(source: Path) -> dict[str, str]:
    """Eight bad clips next to ten good ones, and the message about each."""
    wavs = source / "wavs"
    text = "deng û reng"
    (wavs / "broken.wav").write_bytes(b"no sound")
    soundfile.write(wavs / "silent.wav", np.zeros(RATE), RATE)
    soundfile.write(wavs / "short.wav", tones(text)[:5000], RATE)
    soundfile.write(wavs / "long.wav", np.tile(tones(text), 16), RATE)
    soundfile.write(wavs / "slow.wav", tones(text, 8000), 8000)
    soundfile.write(wavs / "stereo.wav", np.stack([tones(text)] * 2, 1), RATE)
    soundfile.write(wavs / "crowded.wav", tones("denge"), RATE)
    write_clip_of(wavs / "wordless.wav", text)
    names = ("broken", "silent", "short", "long", "slow", "stereo", "gone")
    lines = [*join_line_numbers(TEXTS), *(f"{name}|{text}" for name in names), f"crowded|{text * 2}", "wordless|"]
    write_lines(source, [*lines, f"again|{TEXTS['t00']}", "twice|a", "twice|b"])
    write_clip_of(wavs / "again.wav", TEXTS["t00"])
    return {
        "broken": "cannot be decoded",
        "silent": "is silent",
        "short": "has 19 frames",
        "long": "more than 20 s",
        "slow": "8000 samples per second",
        "stereo": "2 channels",
        "gone": "neither wavs/gone.wav",
        "crowded": "40 frames for a text of 45 characters and blanks",
        "wordless": "no text",
        "again": "duplicates clip t00",
        "twice": "is on lines 21, 22",
    }


def test_bad_clips_are_reported_together_and_nothing_is_left_behind(source: Path, tmp_path: Path) -> None:
    expected = add_bad_clips(source)
    with pytest.raises(CorpusError) as refused:
        prepare_corpus(source, tmp_path / "out", few())
    first, *others = refused.value.message.splitlines()
    assert first == "11 of 21 clips cannot be used; fix them, or leave them out with --skip-bad:"
    assert len(others) == len(expected)
    assert all(any(f"  {name}: " in line and told in line for line in others) for name, told in expected.items())
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_bad_clips_are_left_out_where_that_is_wanted_and_stay_visible(source: Path, tmp_path: Path) -> None:
    expected = add_bad_clips(source)
    corpus = prepare_corpus(source, tmp_path / "out", few(skip_bad=True))
    assert [clip.name for clip in corpus.clips] == list(TEXTS)
    told = {one.name: one.reason for one in SpeechCorpus.open(tmp_path / "out").refused}
    assert told.keys() == expected.keys()
    assert all(expected[name] in told[name] for name in told)
    assert corpus.vocabulary == list_characters(TEXTS.values())
    (notice,) = describe_corpus_problems(corpus)
    assert notice.startswith("11 of 21 clips were left out:\n  ")
    assert len(notice.splitlines()) == 12


def test_good_clips_are_prepared_the_same_beside_bad_ones(source: Path, tmp_path: Path) -> None:
    before = prepare_corpus(source, tmp_path / "a", few())
    add_bad_clips(source)
    assert prepare_corpus(source, tmp_path / "b", few(skip_bad=True)).clips == before.clips


def test_of_many_bad_clips_twenty_and_the_number_are_reported(source: Path, tmp_path: Path) -> None:
    write_lines(source, [*join_line_numbers(TEXTS), *(f"gone{number}|text" for number in range(50))])
    with pytest.raises(CorpusError) as refused:
        prepare_corpus(source, tmp_path / "out", few())
    lines = refused.value.message.splitlines()
    assert lines[0].startswith("50 of 60 clips")
    assert len(lines) == 22
    assert lines[-1] == "  and 30 more"
    (notice,) = describe_corpus_problems(prepare_corpus(source, tmp_path / "out", few(skip_bad=True)))[:1]
    assert notice.splitlines()[-1] == "and 30 more"


def test_where_every_clip_is_bad_leaving_out_does_not_help(source: Path, tmp_path: Path) -> None:
    write_lines(source, ["gone|text"])
    with pytest.raises(CorpusError, match="1 of 1 clips cannot be used; nothing is left to train on"):
        prepare_corpus(source, tmp_path / "out", few(skip_bad=True))


def test_recordings_without_a_line_are_reported(source: Path, tmp_path: Path) -> None:
    write_clip_of(source / "wavs" / "extra.flac", "deng")
    corpus = prepare_corpus(source, tmp_path / "out", few())
    assert corpus.unlisted == ("wavs/extra.flac",)
    assert describe_corpus_problems(corpus) == ("1 recordings have no line in metadata.csv: wavs/extra.flac",)


def test_another_rate_is_converted_and_refused_otherwise(tmp_path: Path) -> None:
    source = write_recordings(tmp_path / "source", rate=22_050)
    with pytest.raises(CorpusError, match=r"10 of 10 clips cannot be used(?s:.*)--resample"):
        prepare_corpus(source, tmp_path / "out", few())
    corpus = prepare_corpus(source, tmp_path / "out", few(resample=True))
    assert [clip.frames for clip in corpus.clips] == [8 * len(text) - 1 for text in TEXTS.values()]  # cut when written
    own = prepare_corpus(source, tmp_path / "own", few(framing=FrameSettings(rate=22_050)))
    assert own.framing.rate == 22_050
    assert own.digest != corpus.digest


def test_what_a_models_vocabulary_does_not_hold_is_counted(source: Path, tmp_path: Path) -> None:
    vocabulary = list_characters(text.replace("ş", "").replace("ê", "") for text in TEXTS.values())
    corpus = prepare_corpus(source, tmp_path / "out", few(vocabulary=vocabulary))
    joined = "".join(TEXTS.values())
    assert corpus.vocabulary == vocabulary
    assert SpeechCorpus.open(tmp_path / "out").unknown == {"ê": joined.count("ê"), "ş": joined.count("ş")}
    assert describe_corpus_problems(corpus) == (
        "characters missing from the vocabulary are not spoken: 'ş' (4 times), 'ê' (2 times)",
    )


def test_a_prepared_folder_can_be_read_by_everybody_and_lists_unknown_characters_in_order(
    source: Path, tmp_path: Path
) -> None:
    vocabulary = list_characters(text.replace("ş", "").replace("ê", "") for text in TEXTS.values())
    corpus = prepare_corpus(source, tmp_path / "out", few(vocabulary=vocabulary))
    assert corpus.folder.stat().st_mode & 0o777 == 0o755
    assert list(SpeechCorpus.open(corpus.folder).unknown) == ["ê", "ş"]


def test_a_text_of_which_a_model_knows_nothing_is_a_bad_clip(source: Path, tmp_path: Path) -> None:
    write_lines(source, [*join_line_numbers(TEXTS), "t10|漢字"])
    write_clip_of(source / "wavs" / "t10.wav", "deng")
    settings = few(vocabulary=list_characters(TEXTS.values()), skip_bad=True)
    (one,) = prepare_corpus(source, tmp_path / "out", settings).refused
    assert one.name == "t10"
    assert "are missing from the vocabulary (字漢)" in one.reason


def test_a_folder_that_exists_is_left_alone(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(CorpusError, match="out already exists; choose another folder, or remove it"):
        prepare_corpus(source, tmp_path / "out", few())
    assert content(tmp_path / "out") == {"mine": b""}


def test_a_place_below_a_file_cannot_be_written(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CorpusError, match=r"cannot be written .*; choose another folder"):
        prepare_corpus(source, tmp_path / "file" / "out", few())


@pytest.mark.parametrize("size", [1_000, 50_000])
def test_a_full_disk_is_reported_as_such_and_not_as_bad_clips(size: int, source: Path, tmp_path: Path) -> None:
    with files_up_to(size), pytest.raises(CorpusError, match=r"out cannot be written \(.*\); choose another folder"):
        prepare_corpus(source, tmp_path / "out", few(skip_bad=True))
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_an_interruption_leaves_nothing_behind(source: Path, tmp_path: Path) -> None:
    def stop(done: int, _total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(source, tmp_path / "out", few(), stop)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_an_error_of_who_is_told_is_not_one_of_the_disk(source: Path, tmp_path: Path) -> None:
    def closed(_done: int, _total: int) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        prepare_corpus(source, tmp_path / "out", few(), closed)


def test_clips_are_in_memory_one_at_a_time(tmp_path: Path) -> None:
    source = tmp_path / "source"
    texts = {f"c{number:02}": f"{number:02} deng û reng" * 4 for number in range(40)}
    write_recordings(source, texts)
    peaks: list[int] = []

    def on_progress(_done: int, _total: int) -> None:
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()

    tracemalloc.start()
    try:
        prepare_corpus(source, tmp_path / "out", few(), on_progress)
    finally:
        tracemalloc.stop()
    one_clip = 8 * 2048 * len(texts["c00"])
    assert max(peaks[20:]) - max(peaks[5:20]) < one_clip / 4


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"selection": 0.0}, "selection is 0; give a share"),
        ({"held_out": 1.5}, "held_out is 1.5"),
        ({"held_out": float("nan")}, "held_out is nan"),
        ({"max_seconds": 0.1}, "max_seconds is 0.1"),
        ({"max_seconds": float("inf")}, "max_seconds is inf"),
        ({"min_frames": 1}, "min_frames is 1; .* needs at least 2"),
        ({"framing": FrameSettings(hop=0)}, "cannot be used"),
        ({"framing": FrameSettings(hop=257)}, "cannot be used"),
        ({"framing": FrameSettings(fft=128)}, "cannot be used"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(CorpusError, match=told):
        CorpusSettings(**settings)

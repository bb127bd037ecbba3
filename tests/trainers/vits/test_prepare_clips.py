"""Recordings listed one by one give the same corpus as a folder of them."""

import unicodedata
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import soundfile
from recordings import RATE, TEXTS, few, tones, write_recordings

from trainers.vits.errors import CorpusError
from trainers.vits.preparation import RecordingEntry, prepare_clips, prepare_corpus


def entries_of(folder: Path) -> list[RecordingEntry]:
    """Ten good recordings outside the corpus folder."""
    write_recordings(folder)
    return [RecordingEntry(name, text, folder / "wavs" / f"{name}.wav") for name, text in TEXTS.items()]


def content(folder: Path) -> dict[str, bytes]:
    """Contents of all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_named_recordings_give_the_bytes_of_their_folder(tmp_path: Path) -> None:
    entries = entries_of(tmp_path / "source")
    prepare_clips(entries, tmp_path / "a", few())
    prepare_corpus(tmp_path / "source", tmp_path / "b", few())
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_texts_of_named_recordings_get_their_normal_form(tmp_path: Path) -> None:
    entries = entries_of(tmp_path / "source")
    spelt = [replace(entry, text=f" {unicodedata.normalize('NFD', entry.text)}\n") for entry in entries]
    corpus = prepare_clips(spelt, tmp_path / "a", few())
    assert corpus.clips == prepare_clips(entries, tmp_path / "b", few()).clips


def test_bad_named_recordings_are_told_together_or_left_out(tmp_path: Path) -> None:
    good = entries_of(tmp_path / "source")
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"no sound")
    bad = [
        RecordingEntry("gone", "deng", tmp_path / "gone.wav"),
        RecordingEntry("folder", "deng", tmp_path),
        RecordingEntry("broken", "deng", broken),
        RecordingEntry("wordless", " ", good[0].path),
        RecordingEntry("belled", "deng\x07", good[0].path),
        RecordingEntry("again", good[0].text, good[0].path),
        RecordingEntry("twice", "yek", good[1].path),
        RecordingEntry("twice", "du", good[2].path),
    ]
    expected = {
        "gone": "does not exist",
        "folder": "does not exist",
        "broken": "cannot be decoded",
        "wordless": "has no text",
        "belled": "control character",
        "again": "duplicates clip t00",
        "twice": "is one of 2 recordings of this name",
    }
    with pytest.raises(CorpusError, match="8 of 18 clips cannot be used") as refused:
        prepare_clips([*good, *bad], tmp_path / "out", few())
    assert all(told in refused.value.message for told in expected.values())
    assert not (tmp_path / "out").exists()
    corpus = prepare_clips([*good, *bad], tmp_path / "out", few(skip_bad=True))
    assert [clip.name for clip in corpus.clips] == list(TEXTS)
    assert len(corpus.refused) == len(bad)
    assert all(expected[one.name] in one.reason for one in corpus.refused)
    paths = {entry.name: entry.path for entry in bad if entry.name != "twice"}
    assert all(str(paths[one.name]) in one.reason for one in corpus.refused if one.name in paths)


def test_no_recordings_are_refused_and_so_is_a_place_that_is_taken(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no recordings were given"):
        prepare_clips([], tmp_path / "out", few())
    (tmp_path / "out").mkdir()
    with pytest.raises(CorpusError, match="out already exists"):
        prepare_clips(entries_of(tmp_path / "source"), tmp_path / "out", few())


def test_recordings_of_the_same_words_are_never_in_two_parts(tmp_path: Path) -> None:
    entries: list[RecordingEntry] = []
    for number in range(6):
        for take, text in enumerate((f"deng {number}", f"deng {number}", f"Deng, {number}!")):
            path = tmp_path / f"{number}-{take}.wav"
            soundfile.write(path, tones(text) * (0.4 + 0.2 * take), RATE)
            entries.append(RecordingEntry(path.stem, text, path))
    corpus = prepare_clips(entries, tmp_path / "out", few(selection=2, held_out=2))
    splits: defaultdict[str, set[str]] = defaultdict(set)
    for clip in corpus.clips:
        splits[clip.name[0]].add(clip.split)
    assert all(len(found) == 1 for found in splits.values())
    assert [len(corpus.list_clips(part)) for part in ("train", "selection", "held_out")] == [6, 6, 6]
    turned = prepare_clips(entries[::-1], tmp_path / "turned", few(selection=2, held_out=2))
    assert set(turned.clips) == set(corpus.clips)
    assert turned.digest == corpus.digest

"""Reading and refusing prepared corpora."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from recordings import TEXTS, prepared, tones

from trainers.vits.corpus import SpeechCorpus, clip_path, describe_corpus_problems
from trainers.vits.errors import CorpusError
from trainers.vits.spectrum import log_mel, spectrogram
from trainers.vits.vocabulary import list_characters


def changed_corpus(corpus: SpeechCorpus, change: Callable[[dict[str, Any]], object]) -> Path:
    """The corpus folder with a changed corpus.json."""
    path = corpus.folder / "corpus.json"
    said = json.loads(path.read_bytes())
    change(said)
    path.write_text(json.dumps(said))
    return corpus.folder


def test_an_opened_corpus_is_the_prepared_one(tmp_path: Path) -> None:
    corpus = prepared(tmp_path)
    assert SpeechCorpus.open(corpus.folder) == corpus
    assert {clip.name: clip.text for clip in corpus.clips} == TEXTS
    assert [clip.name for clip in corpus.clips] == list(TEXTS)
    assert corpus.vocabulary == list_characters(TEXTS.values())
    assert sum(len(corpus.list_clips(part)) for part in ("train", "selection", "held_out")) == len(TEXTS)
    assert len(corpus.list_clips("selection")) == len(corpus.list_clips("held_out")) == 1


def test_waves_and_spectrograms_are_those_of_the_recording(tmp_path: Path) -> None:
    corpus = prepared(tmp_path)
    for clip in corpus.clips:
        wave, kept = corpus.wave(clip), corpus.spectrogram(clip)
        assert wave.shape == (clip.frames * 256,)
        assert (wave - torch.from_numpy(tones(clip.text))).abs().max() <= 1 / 32_768
        exact = spectrogram(wave[None], corpus.framing)[0]
        assert kept.shape == exact.shape == (513, clip.frames)
        assert ((kept - exact).abs() <= exact * 2**-11).all()
        assert (log_mel(kept[None], 16_000) - log_mel(exact[None], 16_000)).abs().max() < 5e-4


def test_the_loudest_wave_there_is_fits_into_half_precision(tmp_path: Path) -> None:
    corpus = prepared(tmp_path)
    full = torch.ones(1, 1 << 14)
    assert float(spectrogram(full, replace(corpus.framing, fft=8192)).max()) < torch.finfo(torch.float16).max


def test_a_digest_follows_the_content_and_not_the_names(tmp_path: Path) -> None:
    corpus = prepared(tmp_path / "a")
    renamed = prepared(tmp_path / "b", {f"x{name}": text for name, text in reversed(TEXTS.items())})
    assert renamed.digest == corpus.digest
    assert {clip.digest for clip in renamed.clips} == {clip.digest for clip in corpus.clips}
    assert prepared(tmp_path / "c", TEXTS | {"t00": "deh dest"}).digest != corpus.digest
    moved = replace(corpus.clips[0], split="held_out" if corpus.clips[0].split == "train" else "train")
    assert replace(corpus, clips=(moved, *corpus.clips[1:])).digest != corpus.digest


def test_what_was_not_prepared_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for name in ("nothing", "file", "folder"):
        with pytest.raises(CorpusError, match=rf"{name} is not a prepared corpus: corpus\.json is missing; run"):
            SpeechCorpus.open(tmp_path / name)


def test_another_version_is_refused(tmp_path: Path) -> None:
    folder = changed_corpus(prepared(tmp_path), lambda said: said.update(version=2, more=1))
    with pytest.raises(CorpusError, match="has format version 2, expected 1; prepare it again"):
        SpeechCorpus.open(folder)


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a key too many": lambda said: said.update(more=1),
    "a key too few": lambda said: said.pop("unknown"),
    "no version": lambda said: said.pop("version"),
    "no clips": lambda said: said.update(clips=[]),
    "an unknown split": lambda said: said["clips"][0].update(split="test"),
    "a clip with more": lambda said: said["clips"][0].update(more=1),
    "no frames": lambda said: said["clips"][0].update(frames=0),
    "a clip twice": lambda said: said["clips"].append(said["clips"][0]),
    "a framing of text": lambda said: said["framing"].update(hop="256"),
    "a framing of nothing": lambda said: said["framing"].update(hop=0),
    "a count of text": lambda said: said.update(unknown={"a": "1"}),
    "a list of counts": lambda said: said.update(unknown=[]),
    "a number as file": lambda said: said.update(unlisted=[1]),
    "a text as refusal": lambda said: said.update(refused=["a"]),
    "a clip without file": lambda said: said["clips"][0].update(digest="../clips/x"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_list_is_refused(change: Callable[[dict[str, Any]], object], tmp_path: Path) -> None:
    folder = changed_corpus(prepared(tmp_path), change)
    with pytest.raises(CorpusError, match=r"is damaged: .*; prepare it again"):
        SpeechCorpus.open(folder)


@pytest.mark.parametrize(
    ("file", "content"), [("corpus.json", b"{"), ("corpus.json", b"[" * 99_999), ("vocab.json", b"{}")]
)
def test_a_damaged_file_is_refused(file: str, content: bytes, tmp_path: Path) -> None:
    folder = prepared(tmp_path).folder
    (folder / file).write_bytes(content)
    with pytest.raises(CorpusError, match=r"is damaged: .*; prepare it again"):
        SpeechCorpus.open(folder)


def test_a_clip_with_a_missing_file_is_refused_on_opening(tmp_path: Path) -> None:
    corpus = prepared(tmp_path)
    clip_path(corpus.folder, corpus.clips[3].digest).unlink()
    with pytest.raises(CorpusError, match="files of 1 clips are missing, first: t03"):
        SpeechCorpus.open(corpus.folder)
    with pytest.raises(CorpusError, match="of clip t03 cannot be read"):
        corpus.wave(corpus.clips[3])


def test_a_clip_that_is_cut_off_swapped_or_written_over_is_refused(tmp_path: Path) -> None:
    corpus = prepared(tmp_path)
    first, second = corpus.clips[:2]
    path = clip_path(corpus.folder, first.digest)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(CorpusError, match="of clip t00 cannot be read"):
        corpus.spectrogram(first)
    path.write_bytes(clip_path(corpus.folder, second.digest).read_bytes())
    with pytest.raises(CorpusError, match=r"spectrogram of clip t00 is torch.float16 \[513, \d+\] instead of"):
        corpus.spectrogram(first)
    samples = corpus.wave(second)  # reading continues elsewhere
    assert len(samples)
    path.write_bytes(content[:-600] + bytes(600))
    with pytest.raises(CorpusError, match="text or samples of clip t00 do not match its digest"):
        corpus.wave(first)


def test_a_changed_text_is_refused_when_its_clip_is_transcribed(tmp_path: Path) -> None:
    folder = changed_corpus(prepared(tmp_path), lambda said: said["clips"][0].update(text="another"))
    corpus = SpeechCorpus.open(folder)
    with pytest.raises(CorpusError, match="text or samples of clip t00"):
        corpus.wave(corpus.clips[0])


def test_characters_that_only_others_than_the_learnt_texts_have_are_told(tmp_path: Path) -> None:
    corpus = prepared(tmp_path)
    assert corpus.untrained_characters == {}
    assert describe_corpus_problems(corpus) == ()
    clips = tuple(replace(clip, split="held_out" if clip.name == "t01" else "train") for clip in corpus.clips)
    alone = replace(corpus, clips=clips)
    assert alone.untrained_characters == {"x": 1, "w": 1, "î": 1}
    (notice,) = describe_corpus_problems(alone)
    assert notice == "characters in no training clip are not learnt: 'w' (1 times), 'x' (1 times), 'î' (1 times)"

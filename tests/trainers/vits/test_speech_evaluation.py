"""Scores of how well a voice speaks the texts of recordings."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from trainers.vits.corpus import SpeechCorpus
from trainers.vits.distances import edit_distance
from trainers.vits.errors import CorpusError, RecogniserError, VoiceError
from trainers.vits.preparation import CorpusSettings, prepare_corpus
from trainers.vits.spectrum import FrameSettings, spectrogram
from trainers.vits.speech_evaluation import SpeechEvaluation
from trainers.vits.speech_evaluation import score as score_voice
from trainers.vits.speech_recogniser import SpeechRecogniser, audible_text, train_recogniser
from trainers.vits.voice import MAX_SECONDS, Voice

KURDISH = Path(__file__).parents[2] / "fixtures" / "kurdish"


@dataclass
class Parrot:
    """A voice that plays recordings, and fails on the text `mute`."""

    framing: FrameSettings
    waves: Mapping[str, Tensor]
    mute: frozenset[str] = frozenset()
    scale: float = 1.0
    left: Tensor | None = None
    seeds: dict[str, set[int]] = field(default_factory=dict[str, set[int]])

    def speak(self, text: str, *, seed: int) -> Tensor:
        assert 0 <= seed < 2**32
        self.seeds.setdefault(text, set()).add(seed)
        if text in self.mute:
            raise VoiceError("more than a minute")
        return self.waves[text]

    def reconstruct(self, spectrum: Tensor, /) -> Tensor:
        if self.left is not None:
            return self.left
        return self.scale * next(
            wave
            for wave in self.waves.values()
            if len(wave) // self.framing.hop == spectrum.shape[1]
            and torch.allclose(spectrogram(wave[None], self.framing)[0], spectrum, rtol=1e-3, atol=1e-3)
        )


def score(
    parrot: Parrot, *arguments: Any, on_progress: Callable[[int, int], None] = lambda _done, _total: None
) -> SpeechEvaluation:
    return score_voice(cast("Voice", parrot), *arguments, on_progress=on_progress)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> SpeechCorpus:
    return prepare_corpus(
        KURDISH, tmp_path_factory.mktemp("scoring") / "prepared", CorpusSettings(selection=4, held_out=4)
    )


@pytest.fixture(scope="module")
def recogniser(corpus: SpeechCorpus) -> SpeechRecogniser:
    return train_recogniser(corpus, steps=1)


@pytest.fixture
def parrot(corpus: SpeechCorpus) -> Parrot:
    return Parrot(corpus.framing, {clip.text: corpus.wave(clip) for clip in corpus.list_clips("held_out")})


def test_a_parrot_is_as_good_as_the_recordings(
    corpus: SpeechCorpus, recogniser: SpeechRecogniser, parrot: Parrot
) -> None:
    scores = score(parrot, corpus, corpus.list_clips("held_out"), recogniser)
    assert scores.error_rate == pytest.approx(scores.real_error_rate, abs=0.02)
    assert scores.real_error_rate == pytest.approx(recogniser.error_rate)
    assert (scores.distance, scores.reconstruction) == (pytest.approx(0, abs=0.01), pytest.approx(0, abs=0.01))
    assert scores.length_error == 0
    assert not scores.unspoken


def test_slower_speech_is_longer(corpus: SpeechCorpus, recogniser: SpeechRecogniser, parrot: Parrot) -> None:
    parrot.waves = {text: torch.cat([wave, wave]) for text, wave in parrot.waves.items()}
    parrot.reconstruct = lambda spectrum, /: torch.zeros(spectrum.shape[1] * corpus.framing.hop)
    scores = score(parrot, corpus, corpus.list_clips("held_out"), recogniser)
    assert [one.log_length_ratio for one in scores.clips] == pytest.approx([math.log(2)] * len(scores.clips))
    assert scores.reconstruction > 1


def test_a_text_that_cannot_be_said_is_wrong_as_a_whole_and_listed(
    corpus: SpeechCorpus, recogniser: SpeechRecogniser, parrot: Parrot
) -> None:
    clips = corpus.list_clips("held_out")
    parrot.mute = frozenset({clips[1].text})
    whole, scores = (
        score(replace(parrot, mute=mute), corpus, clips, recogniser) for mute in (frozenset[str](), parrot.mute)
    )
    (unspoken,) = scores.unspoken
    assert (unspoken.clip, unspoken.fault) == (clips[1], "more than a minute")
    assert unspoken.errors == unspoken.letters == len(audible_text(clips[1].text))
    assert (unspoken.heard, unspoken.distance, unspoken.log_length_ratio) == ("", None, None)
    said = [one for one in whole.clips if one.clip != clips[1]]
    assert [one for one in scores.clips if one is not unspoken] == said
    assert scores.distance == pytest.approx(sum(one.distance or 0 for one in said) / len(said))
    assert scores.error_rate == pytest.approx(sum(one.errors for one in (*said, unspoken)) / scores.letters)


@pytest.mark.parametrize("wave", [torch.zeros(0), torch.full((512,), math.nan)])
def test_characters_without_sound_are_not_spoken(
    corpus: SpeechCorpus, recogniser: SpeechRecogniser, parrot: Parrot, wave: Tensor
) -> None:
    clip = corpus.list_clips("held_out")[0]
    speaker = replace(parrot, waves={clip.text: wave}, left=corpus.wave(clip))
    (one,) = score(speaker, corpus, [clip], recogniser).unspoken
    assert one.fault.startswith("the voice gives")


def test_a_minute_of_babble_is_judged_to_its_end(
    corpus: SpeechCorpus, recogniser: SpeechRecogniser, parrot: Parrot
) -> None:
    clip = corpus.list_clips("held_out")[0]
    wave = corpus.wave(clip)
    times = int(MAX_SECONDS * corpus.framing.rate / len(wave))
    speaker = replace(parrot, waves={clip.text: wave.repeat(times)}, left=wave)
    (one,) = score(speaker, corpus, [clip], recogniser).clips
    assert one.log_length_ratio == pytest.approx(math.log(times))
    assert one.distance is not None
    assert one.distance > 0.5
    assert not one.fault


def test_a_single_frame_can_be_transcribed(corpus: SpeechCorpus, recogniser: SpeechRecogniser, parrot: Parrot) -> None:
    clip = corpus.list_clips("held_out")[0]
    speaker = replace(parrot, waves={clip.text: torch.zeros(corpus.framing.hop)}, left=corpus.wave(clip))
    (one,) = score(speaker, corpus, [clip], recogniser).clips
    assert one.log_length_ratio == pytest.approx(-math.log(clip.frames))
    assert one.distance is not None
    assert one.distance > 1


def test_where_nothing_is_said_there_is_no_distance(
    corpus: SpeechCorpus, recogniser: SpeechRecogniser, parrot: Parrot
) -> None:
    scores = score(replace(parrot, mute=frozenset(parrot.waves)), corpus, corpus.list_clips("held_out"), recogniser)
    assert (scores.error_rate, scores.distance, scores.length_error) == (1.0, None, None)
    assert json.loads(json.dumps(scores.as_json(), allow_nan=False)) == scores.as_json() | {
        "clips": json.loads(json.dumps(scores.as_json()["clips"]))
    }


def test_a_clips_score_does_not_depend_on_its_place(
    corpus: SpeechCorpus, recogniser: SpeechRecogniser, parrot: Parrot
) -> None:
    clips = corpus.list_clips("held_out")
    forth, back = score(parrot, corpus, clips, recogniser), score(parrot, corpus, clips[::-1], recogniser)
    assert forth == SpeechEvaluation(back.clips[::-1])
    assert all(len(drawn) == 1 for drawn in parrot.seeds.values())


def test_errors_are_the_edits_of_what_was_heard_and_progress_is_told(
    corpus: SpeechCorpus, recogniser: SpeechRecogniser, parrot: Parrot
) -> None:
    told = list[tuple[int, int]]()
    scores = score(
        parrot, corpus, corpus.list_clips("held_out"), recogniser, on_progress=lambda done, of: told.append((done, of))
    )
    assert all(one.errors == edit_distance(one.heard, audible_text(one.clip.text)) for one in scores.clips)
    assert told == [(n + 1, len(scores.clips)) for n in range(len(scores.clips))]


def test_what_does_not_fit_is_refused(corpus: SpeechCorpus, recogniser: SpeechRecogniser, parrot: Parrot) -> None:
    clips, other = corpus.list_clips("held_out"), FrameSettings(22_050, 256, 1024)
    with pytest.raises(CorpusError, match="no clips"):
        score(parrot, corpus, [], recogniser)
    with pytest.raises(VoiceError, match="22050"):
        score(replace(parrot, framing=other), corpus, clips, recogniser)
    with pytest.raises(RecogniserError, match="22050"):
        score(parrot, corpus, clips, replace(recogniser, framing=other))
    with pytest.raises(VoiceError, match="non-finite"):
        score(replace(parrot, scale=math.nan), corpus, clips, recogniser)

"""Judging a voice on clips that it has not learnt from: figures for programs, and what the page shows."""

import math
from collections.abc import Callable
from pathlib import Path

from trainers.vits.corpus import Part, SpeechCorpus
from trainers.vits.judge import SpeechRecogniser
from trainers.vits.page import FailedClip, TranscribedClip, VoiceEvaluation
from trainers.vits.recogniser import spelling
from trainers.vits.scoring import ClipScore, SpeechEvaluation, score, wave_seed
from trainers.vits.voice import Voice

SHOWN = 24
"""Clips that a page lets hear at most."""


def scores_of(
    voice: Voice,
    corpus: SpeechCorpus,
    part: Part,
    judge: SpeechRecogniser,
    *,
    tell: Callable[[int, int], None],
    seed: int = 0,
) -> SpeechEvaluation:
    """How a voice says the texts of one part of a corpus; see `trainers.vits.scoring.score`."""
    return score(voice, corpus, corpus.part(part), judge, seed=seed, tell=tell)


def page_of(
    title: str, voice: Voice, corpus: SpeechCorpus, scores: SpeechEvaluation, judge: SpeechRecogniser, *, seed: int = 0
) -> VoiceEvaluation:
    """What a page shows of scores; the first clips are spoken once more, with the same seeds, to be heard.

    Args:
        title: what was judged, such as `kurdish/2`.
        voice: what was judged.
        corpus: of the clips.
        scores: of the voice.
        judge: that heard them.
        seed: as the scores had it.
    """
    spoken = [one for one in scores.clips if not one.fault]
    return VoiceEvaluation(
        title=title,
        voice=f"{title}: {sum(weight.numel() for weight in voice.model.parameters()):,} weights",
        corpus=f"{Path(corpus.folder).name}, {len(scores.clips)} clips, digest {corpus.digest[:12]}",
        framing=corpus.framing,
        speaking_rate=voice.model.speaking_rate,
        error_rate=scores.error_rate,
        real_error_rate=scores.real_error_rate,
        judge_error_rate=judge.error_rate,
        distance=_known(scores.distance),
        reconstruction=scores.reconstruction,
        length_error=_known(scores.length_error),
        spoken=len(spoken),
        clips=tuple(_heard(one, voice, corpus, seed) for one in spoken[:SHOWN]),
        unspoken=tuple(
            FailedClip(name=one.clip.name, text=one.clip.text, reason=one.fault) for one in scores.clips if one.fault
        ),
    )


def _heard(one: ClipScore, voice: Voice, corpus: SpeechCorpus, seed: int) -> TranscribedClip:
    clip = one.clip
    return TranscribedClip(
        name=clip.name,
        text=clip.text,
        spelling=spelling(clip.text),
        heard_real=one.heard_real,
        heard_spoken=one.heard,
        real=corpus.wave(clip),
        spoken=voice.speak(clip.text, seed=wave_seed(clip, seed)),
        distance=_known(one.distance),
        reconstruction=one.reconstruction,
        log_length_ratio=_known(one.log_length_ratio),
    )


def _known(value: float | None) -> float:
    return math.nan if value is None else value

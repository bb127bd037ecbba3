"""How well a voice says the texts of recordings: what a judge hears, how far the sound is from the recording's."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from trainers.vits.corpus import RecordedClip, SpeechCorpus
from trainers.vits.distances import dtw_distance, edit_distance
from trainers.vits.errors import CorpusError, JudgeError, VoiceError
from trainers.vits.spectrum import FrameSettings, log_mel_of
from trainers.vits.speech_recogniser import SpeechRecogniser, real_mel, spelling


class ScoredVoice(Protocol):
    """What can be scored."""

    @property
    def framing(self) -> FrameSettings:
        """Of what it says, and of the spectrograms that it takes."""
        ...

    def speak(self, text: str, *, seed: int) -> Tensor:
        """The wave of a text, float32 [T] on the CPU; the same for the same seed.

        Raises:
            VoiceError: It cannot say it.
        """
        ...

    def reconstruct(self, spectrum: Tensor, /) -> Tensor:
        """What is left of linear magnitudes, float32 [bins, frames], as a wave, float32 [frames · hop] on the CPU."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipScore:
    """One text, and how it was said.

    Attributes:
        clip: the recording that it is measured against.
        heard: what the judge hears in what the voice said; empty where it could not say it.
        errors: characters of it that are wrong; the whole text where the voice could not say it.
        heard_real: what the judge hears in the recording.
        real_errors: characters of that which are wrong: the judge's own errors.
        reconstruction: mean absolute difference of log mels between the recording and what encoder and decoder leave
            of it, frame by frame; 0 or more.
        distance: the same between the recording and what was said, along the best path; None where nothing was.
        log_length_ratio: the logarithm of its length over the recording's: above 0 it is slower; None as before.
        fault: why the voice could not say it; empty where it could.
    """

    clip: RecordedClip
    heard: str
    errors: int
    heard_real: str
    real_errors: int
    reconstruction: float
    distance: float | None
    log_length_ratio: float | None
    fault: str

    @property
    def letters(self) -> int:
        """Characters of the text that can be heard."""
        return len(spelling(self.clip.text))


@dataclass(frozen=True, slots=True)
class SpeechEvaluation:
    """How well a voice says some texts.

    Texts that it cannot say count as errors as long as they are. They are left out of the means of distance and length,
    which know nothing of them: `unspoken` tells how many they are.

    Attributes:
        clips: one or more, in the order in which they were given.
    """

    clips: tuple[ClipScore, ...]

    @property
    def error_rate(self) -> float:
        """Characters that are heard wrongly, as a share of those of the texts; 0 or more, above 1 for babble."""
        return sum(score.errors for score in self.clips) / max(1, self.letters)

    @property
    def real_error_rate(self) -> float:
        """The same of the recordings: what a perfect voice would have."""
        return sum(score.real_errors for score in self.clips) / max(1, self.letters)

    @property
    def letters(self) -> int:
        """Characters of all texts."""
        return sum(score.letters for score in self.clips)

    @property
    def reconstruction(self) -> float:
        """Mean over the clips of what encoder and decoder lose."""
        return _mean([score.reconstruction for score in self.clips]) or 0.0

    @property
    def distance(self) -> float | None:
        """Mean over the clips that were said of their distance; None where none was."""
        return _mean([score.distance for score in self.clips if score.distance is not None])

    @property
    def length_error(self) -> float | None:
        """Mean over the clips that were said of |log length ratio|; None where none was."""
        return _mean([abs(score.log_length_ratio) for score in self.clips if score.log_length_ratio is not None])

    @property
    def unspoken(self) -> tuple[ClipScore, ...]:
        """Those that the voice could not say, each with its fault."""
        return tuple(score for score in self.clips if score.fault)

    def as_json(self) -> dict[str, object]:
        """All of it, in what JSON knows."""
        return {
            "error_rate": self.error_rate,
            "real_error_rate": self.real_error_rate,
            "distance": self.distance,
            "reconstruction": self.reconstruction,
            "length_error": self.length_error,
            "letters": self.letters,
            "unspoken": len(self.unspoken),
            "clips": [asdict(score) for score in self.clips],
        }


def score(
    speaker: ScoredVoice,
    corpus: SpeechCorpus,
    clips: Iterable[RecordedClip],
    judge: SpeechRecogniser,
    *,
    seed: int = 0,
    tell: Callable[[int, int], None] = lambda _done, _total: None,
) -> SpeechEvaluation:
    """Have a voice say the texts of recordings, and compare.

    A clip's score does not depend on the clips beside it. However long a voice babbles, all of it is judged: a wave cut
    off would hide the fault. What bounds it is the voice itself, which refuses to speak for more than a minute; such a
    text counts as not said. A minute beside 20 seconds of recording costs half a second and 170 MB.

    Args:
        speaker: the voice.
        corpus: where the clips are from.
        clips: one or more that neither voice nor judge has learnt from.
        judge: hears what is said.
        seed: of what the voice draws; 0 or more.
        tell: called after each clip with how many are done, and of how many.

    Raises:
        CorpusError: There are no clips, or one is damaged.
        VoiceError: The voice has another framing than the corpus, or its decoder gives what is no sound.
        JudgeError: The judge has another framing than the corpus.
    """
    clips = tuple(clips)
    _check(speaker, corpus, clips, judge)
    scores = list[ClipScore]()
    for clip in clips:
        scores.append(_clip_score(speaker, corpus, clip, judge, seed))
        tell(len(scores), len(clips))
    return SpeechEvaluation(tuple(scores))


def _check(speaker: ScoredVoice, corpus: SpeechCorpus, clips: Sequence[RecordedClip], judge: SpeechRecogniser) -> None:
    """That the parts fit one another."""
    if not clips:
        raise CorpusError(f"there are no clips of {corpus.folder} to score; give one or more")
    if speaker.framing != corpus.framing:
        raise VoiceError(
            f"the voice has {speaker.framing} and {corpus.folder} {corpus.framing}; prepare the recordings as the "
            "voice's were"
        )
    if judge.framing != corpus.framing:
        raise JudgeError(f"the judge has {judge.framing} and {corpus.folder} {corpus.framing}; take this corpus' judge")


def _clip_score(
    speaker: ScoredVoice, corpus: SpeechCorpus, clip: RecordedClip, judge: SpeechRecogniser, seed: int
) -> ClipScore:
    """Have one text said."""
    text, real = spelling(clip.text), real_mel(corpus, clip)
    heard_real, heard = judge.transcribe(real), ""
    distance = ratio = None
    wave, fault = _said(speaker, clip, seed)
    if wave is not None:
        said = log_mel_of(_long_enough(wave, corpus.framing)[None], corpus.framing)[0]
        heard, distance = judge.transcribe(said), dtw_distance(said, real)
        ratio = math.log(len(wave) / (clip.frames * corpus.framing.hop))
    return ClipScore(
        clip=clip,
        heard=heard,
        errors=edit_distance(heard, text),
        heard_real=heard_real,
        real_errors=edit_distance(heard_real, text),
        reconstruction=_reconstruction(speaker, corpus, clip, real),
        distance=distance,
        log_length_ratio=ratio,
        fault=fault,
    )


def wave_seed(clip: RecordedClip, seed: int) -> int:
    """The seed that a clip's text is spoken with: it follows the clip, not its place."""
    return (seed + int(clip.digest[:8], 16)) % 2**32


def _said(speaker: ScoredVoice, clip: RecordedClip, seed: int) -> tuple[Tensor | None, str]:
    """What the voice says, or why it cannot."""
    try:
        wave = speaker.speak(clip.text, seed=wave_seed(clip, seed))
    except VoiceError as error:
        return None, error.message
    if not len(wave):
        return None, "the voice gives no sound"
    if not torch.isfinite(wave).all():
        return None, "the voice gives samples that are not finite"
    return wave, ""


def _reconstruction(speaker: ScoredVoice, corpus: SpeechCorpus, clip: RecordedClip, real: Tensor) -> float:
    """What encoder and decoder lose of a recording."""
    wave = speaker.reconstruct(corpus.spectrogram(clip))
    if not torch.isfinite(wave).all():
        raise VoiceError(
            f"the voice's decoder gives samples that are not finite for clip {clip.name}; its weights are damaged, or "
            "its training failed: take another version"
        )
    left = log_mel_of(wave[None], corpus.framing)[0]
    return float((left - real).abs().mean())


def _long_enough(wave: Tensor, framing: FrameSettings) -> Tensor:
    """A wave [T], with silence after it where it is too short for a spectrogram."""
    return functional.pad(wave, (0, max(0, framing.fft - len(wave))))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None

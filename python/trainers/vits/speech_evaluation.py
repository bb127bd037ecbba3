"""Scores of a voice on recordings: recognition errors and distance from the recorded sound."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from torch.nn import functional

from trainers.vits.corpus import RecordedClip, SpeechCorpus
from trainers.vits.distances import dtw_distance, edit_distance
from trainers.vits.errors import CorpusError, RecogniserError, VoiceError
from trainers.vits.spectrum import log_mel_of
from trainers.vits.speech_recogniser import SpeechRecogniser, audible_text, compute_recorded_mel
from trainers.vits.voice import Voice


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipScore:
    """Scores of a synthesised text.

    Attributes:
        clip: Recording of the text.
        heard: Transcript of the synthesised speech; empty if synthesis failed.
        errors: Edit distance of the transcript from the text; the whole text if synthesis failed.
        heard_real: Transcript of the recording.
        real_errors: Edit distance of that transcript from the text.
        reconstruction: Mean absolute difference of log mels after encoder and decoder, frame by frame.
        distance: Distance of log mels from the recording along the best path; None if synthesis failed.
        log_length_ratio: log(spoken / recorded length), above 0 if slower; None if synthesis failed.
        fault: Why synthesis failed; empty if it did not.
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
        """Number of letters in the recogniser's spelling."""
        return len(audible_text(self.clip.text))


@dataclass(frozen=True, slots=True)
class SpeechEvaluation:
    """Scores of a voice on some texts.

    Texts that could not be synthesised count as errors in full, but not in the means of distance and length.

    Attributes:
        clips: One or more clips, in the given order.
    """

    clips: tuple[ClipScore, ...]

    @property
    def error_rate(self) -> float:
        """Character error rate of the recogniser; can exceed 1 for babble."""
        return sum(score.errors for score in self.clips) / max(1, self.letters)

    @property
    def real_error_rate(self) -> float:
        """Character error rate on the recordings, which a perfect voice would reach."""
        return sum(score.real_errors for score in self.clips) / max(1, self.letters)

    @property
    def letters(self) -> int:
        """Number of letters of all texts."""
        return sum(score.letters for score in self.clips)

    @property
    def reconstruction(self) -> float:
        """Mean reconstruction error."""
        return _average([score.reconstruction for score in self.clips]) or 0.0

    @property
    def distance(self) -> float | None:
        """Mean distance of the synthesised clips, if any."""
        return _average([score.distance for score in self.clips if score.distance is not None])

    @property
    def length_error(self) -> float | None:
        """Mean |log length ratio| of the synthesised clips, if any."""
        return _average([abs(score.log_length_ratio) for score in self.clips if score.log_length_ratio is not None])

    @property
    def unspoken(self) -> tuple[ClipScore, ...]:
        """Clips that could not be synthesised."""
        return tuple(score for score in self.clips if score.fault)

    def as_json(self) -> dict[str, object]:
        """The evaluation as JSON."""
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
    speaker: Voice,
    corpus: SpeechCorpus,
    clips: Iterable[RecordedClip],
    recogniser: SpeechRecogniser,
    *,
    seed: int = 0,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> SpeechEvaluation:
    """Synthesise the texts of recordings and compare.

    Clips are scored independently. Long babble is scored in full, since cutting it would hide the fault; the voice
    itself fails beyond a minute. Comparing a minute with 20 seconds of recording takes half a second and 170 MB.

    Args:
        speaker: Voice to score.
        corpus: Corpus of the clips.
        clips: One or more clips that trained neither voice nor recogniser.
        recogniser: Recogniser.
        seed: Seed of the voice, 0 or more.
        on_progress: Called after each clip with the number done and the total.

    Raises:
        CorpusError: `clips` is empty, or a clip is damaged.
        VoiceError: The framing differs from the corpus, or the decoder output is not finite.
        RecogniserError: The recogniser's framing differs from the corpus.
    """
    clips = tuple(clips)
    if not clips:
        raise CorpusError(f"no clips of {corpus.folder} were given to score; give at least one")
    if speaker.framing != corpus.framing:
        raise VoiceError(
            f"the voice has {speaker.framing} but {corpus.folder} has {corpus.framing}; prepare the recordings like "
            "those of the voice"
        )
    if recogniser.framing != corpus.framing:
        raise RecogniserError(
            f"the recogniser has {recogniser.framing} but {corpus.folder} has {corpus.framing}; use the recogniser "
            "of the corpus"
        )
    scores = list[ClipScore]()
    for clip in clips:
        scores.append(_score_clip(speaker, corpus, clip, recogniser, seed))
        on_progress(len(scores), len(clips))
    return SpeechEvaluation(tuple(scores))


def _score_clip(
    speaker: Voice, corpus: SpeechCorpus, clip: RecordedClip, recogniser: SpeechRecogniser, seed: int
) -> ClipScore:
    """Score one clip."""
    text, real = audible_text(clip.text), compute_recorded_mel(corpus, clip)
    heard_real, heard = recogniser.transcribe(real), ""
    distance = ratio = None
    wave, fault = _synthesise_clip(speaker, clip, seed)
    if wave is not None:
        padded = functional.pad(wave, (0, max(0, corpus.framing.fft - len(wave))))  # at least one frame
        synthesised = log_mel_of(padded[None], corpus.framing)[0]
        heard, distance = recogniser.transcribe(synthesised), dtw_distance(synthesised, real)
        ratio = math.log(len(wave) / (clip.frames * corpus.framing.hop))
    return ClipScore(
        clip=clip,
        heard=heard,
        errors=edit_distance(heard, text),
        heard_real=heard_real,
        real_errors=edit_distance(heard_real, text),
        reconstruction=_score_reconstruction(speaker, corpus, clip, real),
        distance=distance,
        log_length_ratio=ratio,
        fault=fault,
    )


def derive_wave_seed(clip: RecordedClip, seed: int) -> int:
    """Seed for a clip; depends on its content, not its position."""
    return (seed + int(clip.digest[:8], 16)) % 2**32


def _synthesise_clip(speaker: Voice, clip: RecordedClip, seed: int) -> tuple[Tensor | None, str]:
    """Synthesise a clip's text: the wave, or the reason of failure."""
    try:
        wave = speaker.speak(clip.text, seed=derive_wave_seed(clip, seed))
    except VoiceError as error:
        return None, error.message
    if not len(wave):
        return None, "the voice gives no sound"
    if not torch.isfinite(wave).all():
        return None, "the voice gives non-finite samples"
    return wave, ""


def _score_reconstruction(speaker: Voice, corpus: SpeechCorpus, clip: RecordedClip, real: Tensor) -> float:
    """Reconstruction error of a recording."""
    wave = speaker.reconstruct(corpus.spectrogram(clip))
    if not torch.isfinite(wave).all():
        raise VoiceError(
            f"the voice's decoder gives non-finite samples for clip {clip.name}; its weights are damaged or its "
            "training failed: use another version"
        )
    left = log_mel_of(wave[None], corpus.framing)[0]
    return float((left - real).abs().mean())


def _average(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None

"""Evaluation of a voice as a self-contained HTML page with sound."""

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional

from trainers.media.page import (
    MINUS,
    AxisTick,
    LabelledFigure,
    data_uri,
    figure,
    percent,
    plain,
    png_uri,
    render,
    take_within_limit,
)
from trainers.vits.corpus import SpeechCorpus
from trainers.vits.distances import TextDifference, find_difference
from trainers.vits.spectrum import SILENCE, FrameSettings, log_mel_of
from trainers.vits.speech_evaluation import ClipScore, SpeechEvaluation, derive_wave_seed
from trainers.vits.speech_recogniser import SpeechRecogniser, audible_text
from trainers.vits.voice import Voice

LOUDEST: Final = 1.5
"""The log mel drawn brightest: the loudest of a voice at full scale."""

COLOURS: Final = ((0, 0, 4), (59, 15, 112), (140, 41, 129), (222, 73, 104), (254, 159, 109), (252, 253, 191))
"""Evenly spaced from silence to `LOUDEST`, with rising brightness, so that they work in greyscale."""

TRANSPARENT_INDEX: Final = 0
"""Transparent palette index, used after the end of the shorter wave."""

TICK_STEPS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60)
"""Possible tick distances in seconds."""

MOST_TICKS: Final = 6


def encode_sound(wave: Tensor, rate: int) -> str:
    """Encode a wave as a data URI of 16-bit FLAC.

    Args:
        wave: float32 [T], clipped to -1 to 1.
        rate: Samples per second.
    """
    file = io.BytesIO()
    soundfile.write(file, wave.clamp(-1, 1).numpy(), rate, format="FLAC", subtype="PCM_16")
    return data_uri("audio/flac", file.getvalue())


def draw_spectrogram(wave: Tensor, framing: FrameSettings, frames: int) -> str:
    """Draw the log mel spectrogram of a wave as a data URI, low frequencies at the bottom.

    Args:
        wave: float32 [T].
        framing: Framing of the wave.
        frames: Width of the picture; transparent after the end of the wave.
    """
    levels = _compute_levels(wave, framing)
    drawn = np.full((len(levels), max(frames, levels.shape[1])), TRANSPARENT_INDEX, dtype=np.uint8)
    drawn[:, : levels.shape[1]] = levels[::-1]
    image = Image.fromarray(drawn)
    image.putpalette(_build_palette())
    return png_uri(image, transparent=TRANSPARENT_INDEX)


def count_frames(wave: Tensor, framing: FrameSettings) -> int:
    """Width of the wave's picture, 1 or more."""
    return max(len(wave), _find_shortest(framing)) // framing.hop


def place_ticks(seconds: float) -> tuple[float, ...]:
    """Evenly spaced ticks of an axis from 0: at most `MOST_TICKS`, except beyond minutes."""
    step = next((step for step in TICK_STEPS if seconds < MOST_TICKS * step), TICK_STEPS[-1])
    return tuple(round(step * number, 1) for number in range(int(seconds / step + 1e-9) + 1))


def _compute_levels(wave: Tensor, framing: FrameSettings) -> NDArray[np.uint8]:
    """Palette indices, 1 to 255: [bands, frames], low frequencies first."""
    padded = functional.pad(wave, (0, max(0, _find_shortest(framing) - len(wave))))
    mel = log_mel_of(padded[None], framing)[0]
    loudness = ((mel - SILENCE) / (LOUDEST - SILENCE)).clamp(0, 1)
    return (1 + 254 * loudness).round().to(torch.uint8).numpy()


def _find_shortest(framing: FrameSettings) -> int:
    """Minimum samples of a spectrogram: its edges and one frame."""
    return max(framing.hop, (framing.fft - framing.hop) // 2 + 1)


def _build_palette() -> bytes:
    """256 RGB colours."""
    positions = np.linspace(0, len(COLOURS) - 1, 256)
    channels = [np.interp(positions, range(len(COLOURS)), channel) for channel in zip(*COLOURS, strict=True)]
    return np.rint(np.stack(channels, axis=1)).astype(np.uint8).tobytes()


MOST_DRAWN: Final = 24
"""Default maximum number of clips with sound and pictures."""

MOST_CHARACTERS: Final = 1_800_000
"""Maximum characters of sounds and pictures, so that phones can load the page."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TranscribedClip:
    """A synthesised clip with its recording and both transcripts.

    Attributes:
        name: Id in metadata.csv.
        text: Text given to the voice.
        audible_text: Text in the recogniser's spelling, the reference of the transcripts.
        real_transcript: Transcript of the recording.
        spoken_transcript: Transcript of the synthesised speech.
        real: Recording, float32 [T], in -1 to 1.
        spoken: Synthesised speech, float32 [T].
        distance: Distance of the log mels along the best warping.
        reconstruction: Mean absolute difference of log mels after encoder and decoder.
        log_length_ratio: log(spoken / recorded length): above 0 the voice speaks more slowly.
    """

    name: str
    text: str
    audible_text: str
    real_transcript: str
    spoken_transcript: str
    real: Tensor
    spoken: Tensor
    distance: float
    reconstruction: float
    log_length_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedClip:
    """A clip that the voice could not synthesise.

    Attributes:
        name: Id in metadata.csv.
        text: Its text.
        reason: The problem and the remedy.
    """

    name: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VoiceEvaluation:
    """Evaluation of a voice on clips of a corpus; NaN figures are shown as unknown.

    Attributes:
        title: Name of the version, such as `demo/3`.
        voice: Description of the voice.
        corpus: Description of the recordings.
        language: BCP 47 language of the texts (`ku`), or empty.
        framing: Framing of all waves.
        speaking_rate: Speaking rate; lower is slower.
        error_rate: Character error rate of the recogniser on the synthesised speech.
        real_error_rate: Error rate on the recordings of the same clips.
        judge_error_rate: Error rate on all held-out recordings.
        distance: Mean over the clips.
        reconstruction: Mean over the clips.
        length_error: Mean of |log length ratio|.
        spoken: Number of synthesised clips; `clips` may hold fewer.
        clips: Clips with sound, in order.
        unspoken: Clips that could not be synthesised.

    Raises:
        ValueError: `clips` has more clips than `spoken`.
    """

    title: str
    voice: str
    corpus: str
    language: str = ""
    framing: FrameSettings
    speaking_rate: float
    error_rate: float
    real_error_rate: float
    judge_error_rate: float
    distance: float
    reconstruction: float
    length_error: float
    spoken: int
    clips: tuple[TranscribedClip, ...]
    unspoken: tuple[FailedClip, ...] = ()

    def __post_init__(self) -> None:
        if len(self.clips) > self.spoken:
            raise ValueError(
                f"there are {len(self.clips)} clips, but only {self.spoken} are spoken; count all spoken clips"
            )


def render_page(evaluation: VoiceEvaluation, *, most: int = MOST_DRAWN) -> str:
    """Render the page as HTML; deterministic.

    Raises:
        ValueError: A wave is empty, not finite, or not of shape [T].
    """
    views = (_build_clip_view(clip, evaluation.framing) for clip in evaluation.clips[:most])
    clips = take_within_limit(
        views, lambda view: sum(len(wave.sound) + len(wave.picture) for wave in view.waves), MOST_CHARACTERS
    )
    scale = {"quietest": SILENCE, "loudest": LOUDEST, "colours": ", ".join(f"rgb{colour}" for colour in COLOURS)}
    parts = {"evaluation": evaluation, "figures": tuple(_list_figures(evaluation)), "clips": clips, "scale": scale}
    return render("trainers.vits", "evaluation.html", parts)


# --- figures


def format_length_difference(log_ratio: float) -> str:
    """Format the length difference from the recording as a signed percentage."""
    return f"{100 * math.expm1(log_ratio):+.0f}\N{NO-BREAK SPACE}%".replace("-", MINUS)


def _list_figures(evaluation: VoiceEvaluation) -> Iterator[LabelledFigure]:
    """Figures at the top of the page."""
    found = evaluation
    wrong, left, kept = (_describe_unspoken(found, what) for what in ("count as wrong", "are left out", "are included"))
    yield figure("Character error rate, spoken", found.error_rate, percent, f"of the recogniser on the voice{wrong}")
    yield figure(
        "Character error rate, recorded",
        found.real_error_rate,
        percent,
        f"of the recogniser on recordings of the same clips{kept}",
    )
    yield figure(
        "Recogniser error rate", found.judge_error_rate, percent, "on held-out recordings, measured after its training"
    )
    yield figure(
        "Mel distance", found.distance, plain, f"log mels along the best time warping; 0 is the recording{left}"
    )
    yield figure(
        "Reconstruction", found.reconstruction, plain, f"log mels after encoder and decoder; 0 is perfect{kept}"
    )
    yield figure(
        "Length error",
        found.length_error,
        plain,
        f"mean |log length ratio|; 0.1 is about 10\N{NO-BREAK SPACE}% off{left}",
    )
    yield figure("Speaking rate", found.speaking_rate, "{:.2f}".format, "of the voice; lower is slower")
    yield figure("Clips", found.spoken, "{:,.0f} spoken".format, f"{len(found.unspoken):,} could not be spoken")


def _describe_unspoken(evaluation: VoiceEvaluation, what: str) -> str:
    """Addition to a figure's note about clips that could not be synthesised; empty if there are none."""
    count = len(evaluation.unspoken)
    return f"; {count:,} of {evaluation.spoken + count:,} clips could not be spoken and {what}" if count else ""


# --- clips


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipWave:
    """A wave on the page.

    Attributes:
        heading: "Recorded" or "Spoken".
        seconds: Duration.
        picture: Spectrogram as a data URI.
        sound: Sound as a data URI.
        transcript: Transcript with marked errors.
    """

    heading: str
    seconds: float
    picture: str
    sound: str
    transcript: TextDifference


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipView:
    """A clip on the page.

    Attributes:
        name: Id of the clip.
        text: Text given to the voice.
        letters: Number of letters in the recogniser's spelling.
        waves: Recording and synthesised speech.
        marks: Ticks of the shared time axis.
        figures: Figures of the clip.
    """

    name: str
    text: str
    letters: int
    waves: tuple[ClipWave, ClipWave]
    marks: tuple[AxisTick, ...]
    figures: tuple[LabelledFigure, ...]


def _build_clip_view(clip: TranscribedClip, framing: FrameSettings) -> ClipView:
    for wave in (clip.real, clip.spoken):
        if wave.dim() != 1 or not len(wave) or not wave.isfinite().all():
            raise ValueError(
                f"a wave of clip {clip.name} has shape {list(wave.shape)} or non-finite samples; expected finite "
                "samples [T], 1 or more: list the clip as unspoken"
            )
    real, spoken = clip.real.detach().float().cpu(), clip.spoken.detach().float().cpu()
    frames = max(count_frames(real, framing), count_frames(spoken, framing))
    seconds = framing.seconds(frames)
    return ClipView(
        name=clip.name,
        text=clip.text,
        letters=len(clip.audible_text),
        waves=(
            _build_clip_wave(
                "Recorded", real, find_difference(clip.real_transcript, clip.audible_text), framing, frames
            ),
            _build_clip_wave(
                "Spoken", spoken, find_difference(clip.spoken_transcript, clip.audible_text), framing, frames
            ),
        ),
        marks=tuple(AxisTick(text=f"{at:g}", place=round(100 * at / seconds, 2)) for at in place_ticks(seconds)),
        figures=(
            figure("Mel distance", clip.distance, plain),
            figure("Reconstruction", clip.reconstruction, plain),
            figure(
                "Length",
                clip.log_length_ratio,
                format_length_difference,
                f"log ratio {clip.log_length_ratio:+.3f}".replace("-", MINUS),
            ),
        ),
    )


def _build_clip_wave(
    heading: str, wave: Tensor, transcript: TextDifference, framing: FrameSettings, frames: int
) -> ClipWave:
    return ClipWave(
        heading=heading,
        seconds=len(wave) / framing.rate,
        picture=draw_spectrogram(wave, framing, frames),
        sound=encode_sound(wave, framing.rate),
        transcript=transcript,
    )


SHOWN = 24
"""Maximum number of clips with sound."""


def build_page(
    title: str, voice: Voice, corpus: SpeechCorpus, scores: SpeechEvaluation, judge: SpeechRecogniser, *, seed: int = 0
) -> VoiceEvaluation:
    """Build the page data; the first clips are synthesised again with the same seeds.

    Args:
        title: Name of the version, such as `kurdish/2`.
        voice: Evaluated voice.
        corpus: Corpus of the clips.
        scores: Scores of the voice.
        judge: Recogniser that made the scores.
        seed: Seed of the scores.
    """
    spoken = [score for score in scores.clips if not score.fault]
    return VoiceEvaluation(
        title=title,
        voice=f"{title}: {sum(weight.numel() for weight in voice.model.parameters()):,} weights",
        corpus=f"{Path(corpus.folder).name}, {len(scores.clips)} clips, digest {corpus.digest[:12]}",
        framing=corpus.framing,
        speaking_rate=voice.model.speaking_rate,
        error_rate=scores.error_rate,
        real_error_rate=scores.real_error_rate,
        judge_error_rate=judge.error_rate,
        distance=_or_nan(scores.distance),
        reconstruction=scores.reconstruction,
        length_error=_or_nan(scores.length_error),
        spoken=len(spoken),
        clips=tuple(_build_transcribed_clip(score, voice, corpus, seed) for score in spoken[:SHOWN]),
        unspoken=tuple(
            FailedClip(name=score.clip.name, text=score.clip.text, reason=score.fault)
            for score in scores.clips
            if score.fault
        ),
    )


def _build_transcribed_clip(score: ClipScore, voice: Voice, corpus: SpeechCorpus, seed: int) -> TranscribedClip:
    clip = score.clip
    return TranscribedClip(
        name=clip.name,
        text=clip.text,
        audible_text=audible_text(clip.text),
        real_transcript=score.heard_real,
        spoken_transcript=score.heard,
        real=corpus.wave(clip),
        spoken=voice.speak(clip.text, seed=derive_wave_seed(clip, seed)),
        distance=_or_nan(score.distance),
        reconstruction=score.reconstruction,
        log_length_ratio=_or_nan(score.log_length_ratio),
    )


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value

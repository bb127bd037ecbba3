"""Evaluation of a voice as a self-contained HTML page with sound."""

import io
import math
from collections.abc import Iterator, Sequence
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
    encode_data_uri,
    encode_png,
    figure,
    percent,
    plain,
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

MAX_TICKS: Final = 6


def encode_sound(wave: Tensor, rate: int) -> str:
    """Encode a wave as a data URI of 16-bit FLAC.

    Args:
        wave: float32 [T], clipped to -1 to 1.
        rate: Samples per second.
    """
    file = io.BytesIO()
    soundfile.write(file, wave.clamp(-1, 1).numpy(), rate, format="FLAC", subtype="PCM_16")
    return encode_data_uri("audio/flac", file.getvalue())


def draw_spectrogram(wave: Tensor, framing: FrameSettings, frames: int) -> str:
    """Draw the log mel spectrogram of a wave as a data URI, low frequencies at the bottom.

    Args:
        wave: float32 [T].
        framing: Framing of the wave.
        frames: Width of the picture; transparent after the end of the wave.
    """
    levels = _compute_levels(wave, framing)
    pixels = np.full((len(levels), max(frames, levels.shape[1])), TRANSPARENT_INDEX, dtype=np.uint8)
    pixels[:, : levels.shape[1]] = levels[::-1]
    image = Image.fromarray(pixels)
    positions = np.linspace(0, len(COLOURS) - 1, 256)
    channels = [np.interp(positions, range(len(COLOURS)), channel) for channel in zip(*COLOURS, strict=True)]
    image.putpalette(np.rint(np.stack(channels, axis=1)).astype(np.uint8).tobytes())
    return encode_png(image, transparent=TRANSPARENT_INDEX)


def count_frames(wave: Tensor, framing: FrameSettings) -> int:
    """Width of the wave's picture, 1 or more."""
    return max(len(wave), _count_min_samples(framing)) // framing.hop


def place_ticks(seconds: float) -> tuple[float, ...]:
    """Evenly spaced ticks of an axis from 0: at most `MAX_TICKS`, except beyond minutes."""
    step = next((step for step in TICK_STEPS if seconds < MAX_TICKS * step), TICK_STEPS[-1])
    return tuple(round(step * number, 1) for number in range(int(seconds / step + 1e-9) + 1))


def _compute_levels(wave: Tensor, framing: FrameSettings) -> NDArray[np.uint8]:
    """Palette indices, 1 to 255: [bands, frames], low frequencies first."""
    padded = functional.pad(wave, (0, max(0, _count_min_samples(framing) - len(wave))))
    mel = log_mel_of(padded[None], framing)[0]
    loudness = ((mel - SILENCE) / (LOUDEST - SILENCE)).clamp(0, 1)
    return (1 + 254 * loudness).round().to(torch.uint8).numpy()


def _count_min_samples(framing: FrameSettings) -> int:
    """Minimum samples of a spectrogram: its edges and one frame."""
    return max(framing.hop, (framing.fft - framing.hop) // 2 + 1)


MAX_CLIPS: Final = 24
"""Maximum number of clips with sound and pictures."""

MAX_CHARACTERS: Final = 1_800_000
"""Maximum characters of sounds and pictures, so that phones can load the page."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VoicePage:
    """Scores of a voice, with the sounds of some clips.

    Attributes:
        title: Name of the version, such as `demo/3`.
        voice: Description of the voice.
        corpus: Description of the recordings.
        language: BCP 47 language of the texts (`ku`), or empty.
        framing: Framing of all waves.
        speaking_rate: Speaking rate; lower is slower.
        recogniser_error_rate: Error rate of the recogniser on all held-out recordings.
        scores: Scores of all clips.
        waves: Recording and synthesised speech, float32 [T], of the first clips that were spoken.
    """

    title: str
    voice: str
    corpus: str
    language: str = ""
    framing: FrameSettings
    speaking_rate: float
    recogniser_error_rate: float
    scores: SpeechEvaluation
    waves: Sequence[tuple[Tensor, Tensor]]

    @property
    def spoken(self) -> tuple[ClipScore, ...]:
        """Scores of the clips that were spoken."""
        return tuple(score for score in self.scores.clips if not score.fault)


def render_page(page: VoicePage) -> str:
    """Render the page as HTML; deterministic."""
    views = (
        _build_clip_view(score, real, spoken, page.framing)
        for score, (real, spoken) in zip(page.spoken, page.waves, strict=False)
    )
    clips = take_within_limit(
        views, lambda view: sum(len(wave.sound) + len(wave.picture) for wave in view.waves), MAX_CHARACTERS
    )
    scale = {"quietest": SILENCE, "loudest": LOUDEST, "colours": ", ".join(f"rgb{colour}" for colour in COLOURS)}
    parts = {"page": page, "figures": tuple(_list_figures(page)), "clips": clips, "scale": scale}
    return render("trainers.vits", "evaluation.html", parts)


# --- figures


def format_length_difference(log_ratio: float) -> str:
    """Format the length difference from the recording as a signed percentage."""
    return f"{100 * math.expm1(log_ratio):+.0f}\N{NO-BREAK SPACE}%".replace("-", MINUS)


def _list_figures(page: VoicePage) -> Iterator[LabelledFigure]:
    """Figures at the top of the page."""
    scores, spoken, unspoken = page.scores, len(page.spoken), len(page.scores.unspoken)

    def describe_unspoken(treatment: str) -> str:
        count = spoken + unspoken
        return f"; {unspoken:,} of {count:,} clips could not be spoken and {treatment}" if unspoken else ""

    wrong_note, omitted_note, included_note = map(describe_unspoken, ("count as wrong", "are left out", "are included"))
    yield figure(
        "Character error rate, spoken", scores.error_rate, percent, f"of the recogniser on the voice{wrong_note}"
    )
    yield figure(
        "Character error rate, recorded",
        scores.real_error_rate,
        percent,
        f"of the recogniser on recordings of the same clips{included_note}",
    )
    yield figure(
        "Recogniser error rate",
        page.recogniser_error_rate,
        percent,
        "on held-out recordings, measured after its training",
    )
    yield figure(
        "Mel distance",
        _replace_unknown(scores.distance),
        plain,
        f"log mels along the best time warping; 0 is the recording{omitted_note}",
    )
    yield figure(
        "Reconstruction",
        scores.reconstruction,
        plain,
        f"log mels after encoder and decoder; 0 is perfect{included_note}",
    )
    yield figure(
        "Length error",
        _replace_unknown(scores.length_error),
        plain,
        f"mean |log length ratio|; 0.1 is about 10\N{NO-BREAK SPACE}% off{omitted_note}",
    )
    yield figure("Speaking rate", page.speaking_rate, "{:.2f}".format, "of the voice; lower is slower")
    yield figure("Clips", spoken, "{:,.0f} spoken".format, f"{unspoken:,} could not be spoken")


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
        ticks: Ticks of the shared time axis.
        figures: Figures of the clip.
    """

    name: str
    text: str
    letters: int
    waves: tuple[ClipWave, ...]
    ticks: tuple[AxisTick, ...]
    figures: tuple[LabelledFigure, ...]


def _build_clip_view(score: ClipScore, real: Tensor, spoken: Tensor, framing: FrameSettings) -> ClipView:
    text, ratio = audible_text(score.clip.text), _replace_unknown(score.log_length_ratio)
    frames = max(count_frames(real, framing), count_frames(spoken, framing))
    seconds = framing.seconds(frames)
    takes = (("Recorded", real, score.heard_real), ("Spoken", spoken, score.heard))
    return ClipView(
        name=score.clip.name,
        text=score.clip.text,
        letters=len(text),
        waves=tuple(
            ClipWave(
                heading=heading,
                seconds=len(wave) / framing.rate,
                picture=draw_spectrogram(wave, framing, frames),
                sound=encode_sound(wave, framing.rate),
                transcript=find_difference(transcript, text),
            )
            for heading, wave, transcript in takes
        ),
        ticks=tuple(AxisTick(text=f"{at:g}", place=round(100 * at / seconds, 2)) for at in place_ticks(seconds)),
        figures=(
            figure("Mel distance", _replace_unknown(score.distance), plain),
            figure("Reconstruction", score.reconstruction, plain),
            figure("Length", ratio, format_length_difference, f"log ratio {ratio:+.3f}".replace("-", MINUS)),
        ),
    )


def build_page(
    title: str,
    voice: Voice,
    corpus: SpeechCorpus,
    scores: SpeechEvaluation,
    recogniser: SpeechRecogniser,
    *,
    seed: int = 0,
) -> VoicePage:
    """Build the page data; the first clips are synthesised again with the same seeds.

    Args:
        title: Name of the version, such as `kurdish/2`.
        voice: Evaluated voice.
        corpus: Corpus of the clips.
        scores: Scores of the voice.
        recogniser: Recogniser that made the scores.
        seed: Seed of the scores.
    """
    spoken = [score.clip for score in scores.clips if not score.fault]
    return VoicePage(
        title=title,
        voice=f"{title}: {sum(weight.numel() for weight in voice.model.parameters()):,} weights",
        corpus=f"{Path(corpus.folder).name}, {len(scores.clips)} clips, digest {corpus.digest[:12]}",
        framing=corpus.framing,
        speaking_rate=voice.model.speaking_rate,
        recogniser_error_rate=recogniser.error_rate,
        scores=scores,
        waves=[
            (corpus.wave(clip), voice.speak(clip.text, seed=derive_wave_seed(clip, seed)))
            for clip in spoken[:MAX_CLIPS]
        ],
    )


def _replace_unknown(value: float | None) -> float:
    return math.nan if value is None else value

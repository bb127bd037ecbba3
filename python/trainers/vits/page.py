"""An evaluation of a voice as a page to read and hear: one HTML file that loads nothing from anywhere."""

import io
import math
from collections.abc import Callable, Iterator
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

from trainers.media.page import MINUS, LabelledFigure, as_light, data_uri, figure, percent, plain, png_uri, render
from trainers.vits.corpus import Part, SpeechCorpus
from trainers.vits.distances import TextDifference, difference
from trainers.vits.scoring import ClipScore, SpeechEvaluation, score, wave_seed
from trainers.vits.spectrum import SILENCE, FrameSettings, log_mel_of
from trainers.vits.speech_recogniser import SpeechRecogniser, spelling
from trainers.vits.voice import Voice

LOUDEST: Final = 1.5
"""The log mel that is drawn brightest; the loudest of a voice at full scale."""


COLOURS: Final = ((0, 0, 4), (59, 15, 112), (140, 41, 129), (222, 73, 104), (254, 159, 109), (252, 253, 191))
"""From silence to `LOUDEST`, evenly spaced: brightness rises all the way, so that they can be told apart in grey."""


NOTHING: Final = 0
"""The transparent entry of the palette, after the end of the shorter of two waves."""


STEPS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60)
"""Seconds that may lie between two marks."""


MOST_MARKS: Final = 6


def sound(wave: Tensor, rate: int) -> str:
    """A wave as FLAC of 16 bits.

    Args:
        wave: float32 [T]; what lies beyond -1 to 1 is cut off.
        rate: samples per second.
    """
    file = io.BytesIO()
    soundfile.write(file, wave.clamp(-1, 1).numpy(), rate, format="FLAC", subtype="PCM_16")
    return data_uri("audio/flac", file.getvalue())


def picture(wave: Tensor, framing: FrameSettings, frames: int) -> str:
    """A wave's log mel: time to the right, low frequencies at the bottom, the same colours for the same loudness.

    Args:
        wave: float32 [T].
        framing: how it is cut into frames.
        frames: the width of the picture; what is right of the wave's own end is transparent.
    """
    levels = _levels(wave, framing)
    drawn = np.full((len(levels), max(frames, levels.shape[1])), NOTHING, dtype=np.uint8)
    drawn[:, : levels.shape[1]] = levels[::-1]
    image = Image.fromarray(drawn)
    image.putpalette(_palette())
    return png_uri(image, transparent=NOTHING)


def frames_of(wave: Tensor, framing: FrameSettings) -> int:
    """The width of its picture: 1 or more."""
    return max(len(wave), _shortest(framing)) // framing.hop


def marks(seconds: float) -> tuple[float, ...]:
    """Where an axis from 0 is marked: at most `MOST_MARKS`, evenly spaced; further ones only for many minutes."""
    step = next((step for step in STEPS if seconds < MOST_MARKS * step), STEPS[-1])
    return tuple(round(step * place, 1) for place in range(int(seconds / step + 1e-9) + 1))


def _levels(wave: Tensor, framing: FrameSettings) -> NDArray[np.uint8]:
    """Entries of the palette, 1 to 255: [bands, frames], low frequencies first."""
    padded = functional.pad(wave, (0, max(0, _shortest(framing) - len(wave))))
    mel = log_mel_of(padded[None], framing)[0]
    loudness = ((mel - SILENCE) / (LOUDEST - SILENCE)).clamp(0, 1)
    return (1 + 254 * loudness).round().to(torch.uint8).numpy()


def _shortest(framing: FrameSettings) -> int:
    """Samples that a spectrogram needs for its edges and a frame."""
    return max(framing.hop, (framing.fft - framing.hop) // 2 + 1)


def _palette() -> bytes:
    """256 colours, red, green and blue of each."""
    places = np.linspace(0, len(COLOURS) - 1, 256)
    channels = [np.interp(places, range(len(COLOURS)), channel) for channel in zip(*COLOURS, strict=True)]
    return np.rint(np.stack(channels, axis=1)).astype(np.uint8).tobytes()


MOST_DRAWN: Final = 24
"""Clips with sound and pictures, unless told otherwise, as far as `HEAVIEST` allows."""


HEAVIEST: Final = 1_800_000
"""Characters of sounds and pictures on the page, which phones have to load."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TranscribedClip:
    """One clip that was spoken, beside its recording.

    Attributes:
        name: its id in metadata.csv.
        text: as written there, which is what the voice was given.
        spelling: the same as the judge would write it; what it heard is compared with this.
        heard_real: what the judge heard in the recording.
        heard_spoken: what it heard in what the voice said.
        real: the recording, float32 [T], in -1 to 1.
        spoken: what the voice said, float32 [T].
        distance: of their log mels along the best warping, 0 or more.
        reconstruction: the mean absolute difference of log mels after encoder and decoder, 0 or more.
        log_length_ratio: log(spoken / recorded length): above 0 the voice speaks more slowly.
    """

    name: str
    text: str
    spelling: str
    heard_real: str
    heard_spoken: str
    real: Tensor
    spoken: Tensor
    distance: float
    reconstruction: float
    log_length_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedClip:
    """One clip that the voice could not speak.

    Attributes:
        name: its id in metadata.csv.
        text: as written there.
        reason: why, and what to do.
    """

    name: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VoiceEvaluation:
    """What a voice came to on clips of a corpus. A figure that is NaN is shown as unknown.

    Attributes:
        title: what was judged, such as `demo/3`.
        voice: the voice in some words: its folder, its training.
        corpus: the recordings in some words: their folder, which part, their digest.
        language: of the texts, as BCP 47 has it (`ku`); empty where it is not known.
        framing: of all waves.
        speaking_rate: of the voice; lower is slower.
        error_rate: characters that the judge heard wrongly in what was spoken, as a share of those to be said.
        real_error_rate: the same of the recordings of the same clips.
        judge_error_rate: the same of all held-out recordings, which the judge was not trained on.
        distance: mean of the clips'.
        reconstruction: mean of the clips'.
        length_error: mean of the clips' |log length ratio|.
        spoken: how many clips were spoken and judged; `clips` may hold fewer.
        clips: those to hear, in order.
        unspoken: all that could not be spoken.

    Raises:
        ValueError: there are more clips to hear than were spoken.
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
            raise ValueError(f"{len(self.clips)} clips to hear of {self.spoken} spoken; count all that were spoken")


def render_page(evaluation: VoiceEvaluation, *, most: int = MOST_DRAWN) -> str:
    """The page as HTML text; the same evaluation gives the same text.

    Raises:
        ValueError: a wave is no finite [T] with a sample or more.
    """
    every = (_drawn(clip, evaluation.framing) for clip in evaluation.clips[:most])
    drawn = as_light(every, _weight, HEAVIEST)
    figures = tuple(_tiles(evaluation))
    parts = {"evaluation": evaluation, "figures": figures, "clips": drawn, "scale": _ColourScale()}
    return render("trainers.vits", "evaluation.html", parts)


# --- figures


def longer(log_ratio: float) -> str:
    """How much longer than the recording, with its sign, in percent."""
    return f"{100 * math.expm1(log_ratio):+.0f}\N{NO-BREAK SPACE}%".replace("-", MINUS)


def _tiles(evaluation: VoiceEvaluation) -> Iterator[LabelledFigure]:
    """The figures at the top, the error rates of the voice and of the judge first."""
    found = evaluation
    wrong, left, kept = (_unspoken(found, what) for what in ("count as wrong", "are left out", "are in it"))
    yield figure(
        "Character error rate, spoken", found.error_rate, percent, f"what the judge heard wrongly in the voice{wrong}"
    )
    yield figure(
        "Character error rate, recorded",
        found.real_error_rate,
        percent,
        f"the same judge, recordings of the same clips{kept}",
    )
    yield figure(
        "The judge's own error rate", found.judge_error_rate, percent, "held-out recordings, as it was measured once"
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


def _unspoken(evaluation: VoiceEvaluation, what: str) -> str:
    """What a mean makes of the clips that could not be spoken, after its note; empty where there is none."""
    count = len(evaluation.unspoken)
    return f"; {count:,} of {evaluation.spoken + count:,} clips could not be spoken and {what}" if count else ""


# --- clips


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipWave:
    """One of a clip's two waves, ready to be seen and heard.

    Attributes:
        heading: whose it is.
        seconds: how long it lasts.
        picture: its spectrogram, a data URI.
        sound: a data URI.
        heard: what the judge heard, marked.
    """

    heading: str
    seconds: float
    picture: str
    sound: str
    heard: TextDifference


@dataclass(frozen=True, slots=True, kw_only=True)
class FrequencyTick:
    """A mark of the axis below both pictures.

    Attributes:
        text: its seconds.
        place: from the left, in percent.
    """

    text: str
    place: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipView:
    """A clip, ready to be seen and heard.

    Attributes:
        name: its id.
        text: as the voice was given it.
        letters: how many are to be heard.
        takes: the recording, then what was spoken.
        marks: of the time axis that they share.
        figures: of this clip.
    """

    name: str
    text: str
    letters: int
    takes: tuple[ClipWave, ClipWave]
    marks: tuple[FrequencyTick, ...]
    figures: tuple[LabelledFigure, ...]


def _weight(clip: ClipView) -> int:
    """Characters of its sounds and pictures."""
    return sum(len(take.sound) + len(take.picture) for take in clip.takes)


def _drawn(clip: TranscribedClip, framing: FrameSettings) -> ClipView:
    for wave in (clip.real, clip.spoken):
        _check_wave(clip.name, wave)
    real, spoken = clip.real.detach().float().cpu(), clip.spoken.detach().float().cpu()
    frames = max(frames_of(real, framing), frames_of(spoken, framing))
    return ClipView(
        name=clip.name,
        text=clip.text,
        letters=len(clip.spelling),
        takes=(
            _take("Recorded", real, difference(clip.heard_real, clip.spelling), framing, frames),
            _take("Spoken", spoken, difference(clip.heard_spoken, clip.spelling), framing, frames),
        ),
        marks=_marks(framing.seconds(frames)),
        figures=(
            figure("Mel distance", clip.distance, plain),
            figure("Reconstruction", clip.reconstruction, plain),
            figure(
                "Length", clip.log_length_ratio, longer, f"log ratio {clip.log_length_ratio:+.3f}".replace("-", MINUS)
            ),
        ),
    )


def _take(heading: str, wave: Tensor, heard: TextDifference, framing: FrameSettings, frames: int) -> ClipWave:
    return ClipWave(
        heading=heading,
        seconds=len(wave) / framing.rate,
        picture=picture(wave, framing, frames),
        sound=sound(wave, framing.rate),
        heard=heard,
    )


def _marks(seconds: float) -> tuple[FrequencyTick, ...]:
    return tuple(FrequencyTick(text=f"{at:g}", place=round(100 * at / seconds, 2)) for at in marks(seconds))


def _check_wave(name: str, wave: Tensor) -> None:
    if wave.dim() != 1 or not len(wave) or not wave.isfinite().all():
        raise ValueError(
            f"a wave of clip {name} has shape {list(wave.shape)} or samples that are no numbers; expected finite "
            "samples [T], 1 or more: tell it as one that could not be spoken"
        )


@dataclass(frozen=True, slots=True)
class _ColourScale:
    """The colours of all pictures.

    Attributes:
        quietest: the log mel of the darkest.
        loudest: the log mel of the brightest.
        colours: in order, as CSS.
    """

    quietest: float = SILENCE
    loudest: float = LOUDEST
    colours: str = ", ".join(f"rgb{colour}" for colour in COLOURS)


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

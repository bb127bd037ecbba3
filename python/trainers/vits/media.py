"""Sound and its picture inside a page, as data URIs: a wave as FLAC, its log mel as PNG."""

import io
from typing import Final

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional

from trainers.media.page import data_uri, png_uri
from trainers.vits.spectrum import SILENCE, FrameSettings, log_mel_of

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

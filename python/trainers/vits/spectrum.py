"""Spectrograms of speech, differentiable, as VITS computes them: reflected edges, magnitudes, log mel bands."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

BANDS = 80
"""Mel bands, from 0 Hz to half the sample rate."""

FLOOR = 1e-5
"""The least energy of a band before its logarithm: silence is log(1e-5) = -11.5, not 0."""

SILENCE = math.log(FLOOR)
"""What a band of a silent frame is."""


@dataclass(frozen=True, slots=True)
class FrameSettings:
    """How samples become frames.

    Attributes:
        rate: samples per second.
        hop: samples from each frame to the next.
        fft: samples that a frame sees; its spectrum has fft / 2 + 1 bins.
    """

    rate: int = 16_000
    hop: int = 256
    fft: int = 1024

    @property
    def bins(self) -> int:
        """Of a linear spectrum."""
        return self.fft // 2 + 1

    def seconds(self, frames: float) -> float:
        """How long so many frames last."""
        return frames * self.hop / self.rate


def spectrogram(waves: Tensor, framing: FrameSettings) -> Tensor:
    """Linear magnitudes.

    Args:
        waves: float32 [N, T], in -1 to 1, of at least (fft - hop) / 2 + 1 samples.
        framing: how they are framed.

    Returns:
        float32 [N, bins, T // hop].
    """
    pad = (framing.fft - framing.hop) // 2
    padded = functional.pad(waves[:, None], (pad, pad), mode="reflect")[:, 0]
    window = torch.hann_window(framing.fft, device=waves.device)
    transformed = torch.stft(padded, framing.fft, framing.hop, framing.fft, window, center=False, return_complex=True)
    return torch.sqrt(transformed.real.square() + transformed.imag.square() + 1e-6)


def log_mel(spectra: Tensor, rate: int) -> Tensor:
    """Natural logarithms of mel bands.

    Args:
        spectra: linear magnitudes, float32 [N, bins, frames].
        rate: samples per second.

    Returns:
        float32 [N, bands, frames], at least `SILENCE`.
    """
    return torch.log(torch.clamp(_filters(spectra.shape[1], rate).to(spectra.device) @ spectra, min=FLOOR))


def log_mel_of(waves: Tensor, framing: FrameSettings) -> Tensor:
    """Natural logarithms of mel bands of waves: float32 [N, T] to float32 [N, bands, T // hop]."""
    return log_mel(spectrogram(waves, framing), framing.rate)


@lru_cache(maxsize=8)
def _filters(bins: int, rate: int) -> Tensor:
    """Slaney's triangular mel filters of equal area: float32 [bands, bins]."""
    from transformers.audio_utils import mel_filter_bank

    filters = mel_filter_bank(bins, BANDS, 0.0, rate / 2, rate, norm="slaney", mel_scale="slaney")
    with torch.inference_mode(mode=False):  # who asks first may be in it, and a later backward could not use them
        return torch.from_numpy(np.ascontiguousarray(filters.T, dtype=np.float32))

"""Differentiable spectrograms as in VITS: reflected edges, magnitudes, log mel bands."""

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
"""Minimum energy of a band before the logarithm."""

SILENCE = math.log(FLOOR)
"""The least log energy of a band, -11.5. Silence has -9.7, since `spectrogram` has a lower bound too."""


@dataclass(frozen=True, slots=True)
class FrameSettings:
    """Sample rate and framing of waves.

    Attributes:
        rate: Samples per second.
        hop: Samples between frame starts.
        fft: Samples per frame; its spectrum has fft / 2 + 1 bins.
    """

    rate: int = 16_000
    hop: int = 256
    fft: int = 1024

    @property
    def bins(self) -> int:
        """Number of bins of a linear spectrum."""
        return self.fft // 2 + 1

    def seconds(self, frames: float) -> float:
        """Duration of a number of frames."""
        return frames * self.hop / self.rate


def spectrogram(waves: Tensor, framing: FrameSettings) -> Tensor:
    """Linear magnitudes.

    Args:
        waves: float32 [N, T], in -1 to 1, with at least (fft - hop) / 2 + 1 samples.
        framing: Framing of the waves.

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
        spectra: Linear magnitudes, float32 [N, bins, frames].
        rate: Samples per second.

    Returns:
        float32 [N, bands, frames], at least `SILENCE`.
    """
    return torch.log(torch.clamp(_compute_filters(spectra.shape[1], rate).to(spectra.device) @ spectra, min=FLOOR))


def log_mel_of(waves: Tensor, framing: FrameSettings) -> Tensor:
    """Natural logarithms of mel bands of waves: float32 [N, T] to float32 [N, bands, T // hop]."""
    return log_mel(spectrogram(waves, framing), framing.rate)


@lru_cache(maxsize=8)
def _compute_filters(bins: int, rate: int) -> Tensor:
    """Slaney's triangular mel filters of equal area: float32 [bands, bins]."""
    from transformers.audio_utils import mel_filter_bank

    filters = mel_filter_bank(bins, BANDS, 0.0, rate / 2, rate, norm="slaney", mel_scale="slaney")
    with torch.inference_mode(mode=False):  # cached tensors must not be inference tensors
        return torch.from_numpy(np.ascontiguousarray(filters.T, dtype=np.float32))

"""Similarity of images and of sets of images, and confidence intervals of proportions.

- SSIM: Wang et al., "Image quality assessment: from error visibility to structural similarity" (2004).
- Fréchet distance: Dowson & Landau (1982), between normal distributions, as in Heusel et al. (2017).
- Confidence interval: Wilson, "Probable inference, the law of succession, and statistical inference" (1927).
"""

from math import sqrt
from statistics import NormalDist
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

WINDOW: Final = 11
"""Edge of the SSIM window in pixels; for smaller images, the largest odd edge that fits."""
SPREAD: Final = 1.5
"""Standard deviation of the window, in pixels."""
LUMINANCE, CONTRAST = 0.01**2, 0.03**2
"""Constants that keep SSIM finite, for pixels from 0 to 1."""
MIN_ERROR: Final = 1e-10
"""Lower bound of the mean squared error, so that equal images have 100 dB."""


def psnr(images: Tensor, targets: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB, [N], of images, float [N, channels, height, width], 0 to 1; at most 100."""
    errors = (images - targets).square().mean((1, 2, 3)).clamp(min=MIN_ERROR)
    return -10 * errors.log10()


def ssim(images: Tensor, targets: Tensor) -> Tensor:
    """Structural similarity, [N], -1 to 1, of images, float [N, channels, height, width], 0 to 1."""
    channels, least = images.shape[1], min(images.shape[2:])
    kernel = _build_gaussian(min(WINDOW, least - (least + 1) % 2)).to(images).expand(channels, 1, -1, -1)

    def mean(values: Tensor) -> Tensor:
        return functional.conv2d(values, kernel, groups=channels)

    one, other = mean(images), mean(targets)
    variances = mean(images * images) - one * one, mean(targets * targets) - other * other
    covariance = mean(images * targets) - one * other
    likeness = (2 * one * other + LUMINANCE) / (one * one + other * other + LUMINANCE)
    return (likeness * (2 * covariance + CONTRAST) / (variances[0] + variances[1] + CONTRAST)).mean((1, 2, 3))


def frechet_distance(features: Tensor, others: Tensor) -> float:
    """Fréchet distance of the normal distributions of features, float [N, width] and [M, width]; 0 or more.

    Fewer rows give larger distances, so that only distances with the same numbers of rows are comparable.
    """
    one, other = features.double(), others.double()
    spread, also = _compute_covariance(one), _compute_covariance(other)
    root = _compute_root(spread)
    shared = _compute_root(root @ also @ root).trace()
    apart = (one.mean(0) - other.mean(0)).square().sum()
    return max(0.0, float(apart + spread.trace() + also.trace() - 2 * shared))


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """95 % confidence interval of a proportion, `right` of `count` samples; `count` is at least 1."""
    z = NormalDist().inv_cdf(0.5 + 0.95 / 2)
    share, weight = right / count, z * z / count
    middle = (share + weight / 2) / (1 + weight)
    spread = sqrt(share * (1 - share) * weight + weight * weight / 4) / (1 + weight)
    return max(0.0, middle - spread), min(1.0, middle + spread)


def _build_gaussian(size: int) -> Tensor:
    """Gaussian window, [size, size], with sum 1."""
    line = torch.exp(-((torch.arange(size) - (size - 1) / 2) ** 2) / (2 * SPREAD**2))
    return torch.outer(line, line) / line.sum() ** 2


def _compute_covariance(rows: Tensor) -> Tensor:
    """Covariance of rows, float64 [N, width], N at least 2: [width, width]."""
    centred = rows - rows.mean(0)
    return centred.T @ centred / (len(rows) - 1)


def _compute_root(matrix: Tensor) -> Tensor:
    """Square root of a positive semidefinite matrix, up to rounding."""
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.T

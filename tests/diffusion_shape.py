"""A tiny latent diffusion task: frozen encoders, random noise and times, and weighted samples.

After Rombach et al., "High-resolution image synthesis with latent diffusion models" (2022).
"""

import math
from typing import NamedTuple

import torch
from task_shape import TaskOptions, TaskShape
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from trainers.loop import FrozenModule, Loss, Phase, Precision, SampleSplitter, adamw

PIXELS, LATENT, TOKENS, TIMES = 6, 4, 5, 10
SIZES = (4, 3, 1, 5, 4)
WHOLE = 4
"""The weight of a usual sample; weights are whole numbers, so that a batch's count is their sum."""


class Pictures(NamedTuple):
    """Some pictures with their captions.

    Attributes:
        pixels: float [N, pixels].
        tokens: int64 [N].
        weights: int64 [N], 0 to `WHOLE`: how much a sample counts, such as by a person's judgement.
    """

    pixels: Tensor
    tokens: Tensor
    weights: Tensor


class Denoiser(nn.Module):
    """Predicts the noise in a latent, given the time and the caption."""

    def __init__(self, *, random: bool) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2 * LATENT + 1, 8), nn.SiLU(), nn.Dropout(0.2 if random else 0.0), nn.Linear(8, LATENT)
        )

    def forward(self, noisy: Tensor, times: Tensor, caption: Tensor) -> Tensor:
        """float [N, latent]."""
        return self.net(torch.cat([noisy, caption, times.to(noisy)[:, None] / TIMES], dim=1))


def diffusion(ways: TaskOptions) -> TaskShape:
    """A diffusion task: one phase, two frozen encoders, and an unused reward."""
    torch.manual_seed(22)
    dtype = torch.float64 if ways.double else torch.float32
    vae = nn.Sequential(nn.Linear(PIXELS, LATENT), nn.BatchNorm1d(LATENT), nn.Dropout(0.5)).to(dtype)
    text = nn.Embedding(TOKENS, LATENT).to(dtype)
    denoiser = Denoiser(random=ways.random).to(dtype)

    def loss(batch: Pictures) -> Loss:
        with torch.no_grad():
            latents, captions = vae(batch.pixels), text(batch.tokens)
        noise, times = draw_noise(latents) if ways.random else fixed(latents)
        guess = ways.strained(denoiser(noised(latents, noise, times), times, captions))
        count = int(batch.weights.sum())
        error = (guess - noise).square().mean(-1)
        with torch.no_grad():
            reward = weighted(guess.sum(-1).tanh(), batch.weights)
        return Loss(weighted(error, batch.weights), count, {"reward": reward}) if count else Loss(error.mean(), 0)

    optimizer = adamw(denoiser.parameters(), lr=0.05)
    return TaskShape(
        modules={"denoiser": denoiser, "vae": FrozenModule(vae), "text": FrozenModule(text)},
        phases=[Phase("denoiser", loss, denoiser.parameters(), optimizer, CosineAnnealingLR(optimizer, 20))],
        batches=[pictures(size, dtype) for size in SIZES],
        splitter=SampleSplitter(),
        precision=Precision(name="fp32", dtype=None, scaler=None, reason="a stand-in"),
        score=loss,
    )


def noised(latents: Tensor, noise: Tensor, times: Tensor) -> Tensor:
    """The latents at their times: float [N, latent], by the cosine schedule of Nichol and Dhariwal (2021)."""
    angle = (times.to(latents)[:, None] / TIMES) * (math.pi / 2)
    return latents * angle.cos() + noise * angle.sin()


def draw_noise(latents: Tensor) -> tuple[Tensor, Tensor]:
    """Noise, float [N, latent], and times, int64 [N], from torch's generator."""
    return torch.randn(latents.shape).to(latents), torch.randint(1, TIMES, (len(latents),))


def fixed(latents: Tensor) -> tuple[Tensor, Tensor]:
    """Deterministic noise and times: a function of each sample."""
    return (17 * latents).sin(), (latents[:, 0].abs() * 100).long() % (TIMES - 1) + 1


def weighted(values: Tensor, weights: Tensor) -> Tensor:
    """The mean of values [N] under their weights [N]."""
    return (values * weights).sum() / weights.sum()


def pictures(size: int, dtype: torch.dtype) -> Pictures:
    """A batch of this size, always the same."""
    draw = torch.Generator().manual_seed(size)
    weights = torch.randint(0, WHOLE + 1, (size,), generator=draw)
    weights[0] = WHOLE
    return Pictures(
        torch.randn(size, PIXELS, generator=draw).to(dtype),
        torch.randint(TOKENS, (size,), generator=draw),
        weights,
    )

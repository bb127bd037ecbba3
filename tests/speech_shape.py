"""A tiny speech synthesis task: generator and discriminator on batches of padded sequences.

After Kong et al., "HiFi-GAN" (2020) and Kim et al., "VITS" (2021).
"""

from functools import partial
from typing import NamedTuple, final

import torch
from task_shape import TaskOptions, TaskShape
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW
from torch.optim.lr_scheduler import ExponentialLR

from trainers.loop import Loss, Phase, Precision, cosine

TOKENS, HIDDEN, BINS = 7, 5, 4
LENGTHS = ((6, 3, 2, 5), (4, 6, 1), (6, 2, 2, 2), (3, 6), (2, 5, 6, 4, 1))
SCALED = Precision(name="fp16", dtype=None, scaler=partial(torch.amp.GradScaler, "cpu"), reason="a stand-in")


class Utterances(NamedTuple):
    """Utterances padded to the longest.

    Attributes:
        tokens: int64 [N, T].
        frames: float [N, T, bins], 0 where padded.
        lengths: Frames of every utterance, int64 [N].
    """

    tokens: Tensor
    frames: Tensor
    lengths: Tensor

    @property
    def mask(self) -> Tensor:
        """Mask of real frames: bool [N, T]."""
        return torch.arange(self.frames.shape[1]) < self.lengths[:, None]


@final
class ByFrames:
    """Splits a batch by utterances, whose cost is their padded length, and removes needless padding."""

    def samples(self, batch: Utterances) -> int:
        """Utterances."""
        return len(batch.lengths)

    def cost(self, batch: Utterances) -> int:
        """Frames of the longest."""
        return batch.frames.shape[1]

    def cut(self, batch: Utterances, start: int, stop: int) -> Utterances:
        """Some utterances, padded to their longest."""
        lengths = batch.lengths[start:stop]
        longest = int(lengths.max())
        return Utterances(batch.tokens[start:stop, :longest], batch.frames[start:stop, :longest], lengths)


class Generator(nn.Module):
    """Tokens to frames, with a recurrent layer and noise."""

    def __init__(self, *, random: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, HIDDEN)
        self.recurrent = nn.GRU(HIDDEN, HIDDEN, batch_first=True)
        self.dropout = nn.Dropout(0.3 if random else 0.0)
        self.frames = nn.Linear(HIDDEN, BINS)
        self._random = random

    def forward(self, batch: Utterances) -> Tensor:
        """Frames as the batch has them: float [N, T, bins]."""
        embedded = self.embedding(batch.tokens)
        noise = 0.1 * torch.randn(embedded.shape).to(embedded) if self._random else 0.0
        hidden, _ = self.recurrent(embedded + noise)
        return self.frames(self.dropout(hidden)) * batch.mask[..., None]


class Discriminator(nn.Module):
    """A score and features for each frame."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(BINS, HIDDEN, 3, padding=1)
        self.judgement = nn.Linear(HIDDEN, 1)

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Scores, float [N, T], and features, float [N, T, hidden]."""
        features = self.convolution(frames.mT).mT.tanh()
        return self.judgement(features)[..., 0], features


def speech(ways: TaskOptions) -> TaskShape:
    """A speech task whose discriminator trains in every second window, with its own clipping and schedule."""
    torch.manual_seed(21)
    dtype = torch.float64 if ways.double else torch.float32
    generator = Generator(random=ways.random).to(dtype)
    discriminator = Discriminator().to(dtype)

    def discriminator_loss(batch: Utterances) -> Loss:
        with torch.no_grad():
            made = generator(batch)
        real, _ = discriminator(batch.frames)
        fake, _ = discriminator(made)
        return mean_over_frames((ways.strained(real) - 1).square() + fake.square(), batch)

    def generator_loss(batch: Utterances) -> Loss:
        made = ways.strained(generator(batch))
        judged, features = discriminator(made)
        _, wanted = discriminator(batch.frames)
        matching = functional.l1_loss(features, wanted.detach(), reduction="none").mean(-1)
        spectral = functional.l1_loss(made, batch.frames, reduction="none").mean(-1)
        whole = mean_over_frames((judged - 1).square() + 2 * matching + 5 * spectral, batch)
        return Loss(whole.mean, whole.count, {"spectral": mean_over_frames(spectral, batch).mean.detach()})

    judge = AdamW(discriminator.parameters(), lr=0.02)
    maker = AdamW(generator.parameters(), lr=0.05, betas=(0.8, 0.99))
    phases = [
        Phase(
            "discriminator",
            discriminator_loss,
            discriminator.parameters(),
            judge,
            ExponentialLR(judge, 0.9),
            clip=0.5,
            every=2,
        ),
        Phase(
            "generator",
            generator_loss,
            generator.parameters(),
            maker,
            cosine(maker, warmup_steps=2, total_steps=20),
            clip=2.0,
        ),
    ]
    return TaskShape(
        modules={"generator": generator, "discriminator": discriminator},
        phases=phases,
        batches=[utterances(lengths, dtype) for lengths in LENGTHS],
        splitter=ByFrames(),
        precision=SCALED,
        score=lambda batch: mean_over_frames((generator(batch) - batch.frames).abs().mean(-1), batch),
    )


def mean_over_frames(losses: Tensor, batch: Utterances) -> Loss:
    """The mean over real frames, which are the targets."""
    return Loss(losses[batch.mask].mean(), int(batch.lengths.sum()))


def utterances(lengths: tuple[int, ...], dtype: torch.dtype) -> Utterances:
    """A batch of these lengths, always the same."""
    draw = torch.Generator().manual_seed(sum(lengths))
    longest = max(lengths)
    batch = Utterances(
        torch.randint(TOKENS, (len(lengths), longest), generator=draw),
        torch.randn(len(lengths), longest, BINS, generator=draw).to(dtype),
        torch.tensor(lengths),
    )
    return batch._replace(frames=batch.frames * batch.mask[..., None])

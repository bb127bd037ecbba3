"""Batches of images, encoded in advance or raw."""

from collections.abc import Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar, final

import torch
from torch import Tensor

from trainers.dit.encoders import Posterior, PromptEncoder, PromptTokens
from trainers.dit.images import ImageFolder
from trainers.dit.networks import PromptCondition
from trainers.loop import shuffle_indices

Batch_co = TypeVar("Batch_co", covariant=True)


class EncodedImages(NamedTuple):
    """Images as latents, and their prompts as embeddings.

    Attributes:
        posterior: Posterior of the latents; each step samples from it.
        condition: Embedded prompts.
    """

    posterior: Posterior
    condition: PromptCondition


class RawImages(NamedTuple):
    """Images and their prompts before encoding.

    Attributes:
        pixels: float32 [N, channels, height, width], -1 to 1.
        tokens: Tokens of the prompts.
        priors: Prior tokens of the images, int64 [N, priors].
    """

    pixels: Tensor
    tokens: PromptTokens
    priors: Tensor


class ImageSource(Protocol[Batch_co]):
    """Images by index."""

    def __len__(self) -> int: ...

    def gather(self, index: Tensor) -> Batch_co:
        """Gather a batch by indices, int64 [N]."""
        ...


@final
class RawImageFiles:
    """Images read from files on access.

    Args:
        pictures: Image folder.
        prompts: Encoder of the prompts.
        priors: Prior tokens of the images, int64 [images, priors], if the network reads them.
    """

    def __init__(self, pictures: ImageFolder, prompts: PromptEncoder, priors: Tensor | None = None) -> None:
        self._pictures = pictures
        self._priors = torch.zeros(len(pictures.pictures), 0, dtype=torch.long) if priors is None else priors
        distinct = pictures.prompts
        self._tokens = prompts.tokens(distinct)
        rows = {prompt: row for row, prompt in enumerate(distinct)}
        self._rows = torch.tensor([rows[picture.prompt] for picture in pictures.pictures])

    def __len__(self) -> int:
        return len(self._pictures.pictures)

    @property
    def prompts(self) -> tuple[str, ...]:
        """Distinct prompts, in order of first use."""
        return self._pictures.prompts

    @property
    def digest(self) -> str:
        """Digest of prompts and pixels."""
        return self._pictures.digest

    def gather(self, index: Tensor) -> RawImages:
        """Gather a batch by indices, int64 [N]."""
        rows = self._rows[index]
        tokens = PromptTokens(*(part[rows] for part in self._tokens))
        return RawImages(self._pictures.pixels(index.tolist()), tokens, self._priors[index])


@final
class BatchRounds(Generic[Batch_co]):
    """Rounds of full batches from an endless stream of all images, reshuffled on each pass.

    One round is an epoch of the training loop; its batches depend only on seed and round.

    Args:
        images: Source of images.
        size: Images per batch.
        batches: Batches per round, over all processes.
        seed: Seed of the shuffling.

    Attributes:
        length: Batches per round.
    """

    def __init__(self, images: ImageSource[Batch_co], *, size: int, batches: int, seed: int) -> None:
        self._images = images
        self._size = size
        self.length = batches
        self._seed = seed

    def batches(self, epoch: int, *, start: int = 0, step: int = 1) -> Iterator[Batch_co]:
        """Gather the batches of a round, counted from 0."""
        for number in range(start, self.length, step):
            yield self._images.gather(self._draw_indices((epoch * self.length + number) * self._size))

    def _draw_indices(self, first: int) -> Tensor:
        """Image indices of a batch: int64 [size]."""
        count = len(self._images)
        turns = range(first // count, (first + self._size - 1) // count + 1)
        orders = torch.cat([shuffle_indices(count, seed=self._seed, epoch=turn) for turn in turns])
        begin = first - turns[0] * count
        return orders[begin : begin + self._size]

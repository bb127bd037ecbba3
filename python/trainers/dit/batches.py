"""Batches of images: encoded, as a cache keeps them, or plain, to be encoded in every step; the same either way."""

from collections.abc import Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar, final

import torch
from torch import Tensor

from trainers.dit.encoders import Posterior, PromptEncoder, PromptTokens
from trainers.dit.images import ImageFolder
from trainers.dit.networks import PromptCondition
from trainers.loop import permutation

Batch_co = TypeVar("Batch_co", covariant=True)


class EncodedImages(NamedTuple):
    """Some images as latents, and their prompts as embeddings.

    Attributes:
        posterior: where the latents may lie; a step draws from it.
        condition: what the prompts say.
    """

    posterior: Posterior
    condition: PromptCondition


class RawImages(NamedTuple):
    """Some images and their prompts, to be encoded.

    Attributes:
        pixels: float32 [N, channels, height, width], -1 to 1.
        tokens: of the prompts.
        priors: plans of the images, int64 [N, priors].
    """

    pixels: Tensor
    tokens: PromptTokens
    priors: Tensor


class ImageSource(Protocol[Batch_co]):
    """Images by their places."""

    def __len__(self) -> int: ...

    def gather(self, index: Tensor) -> Batch_co:
        """The batch of some places, int64 [N]."""
        ...


@final
class RawImageFiles:
    """Images that are read from their files whenever they are asked for.

    Args:
        pictures: the images.
        prompts: who reads their prompts.
        priors: plans of the images, int64 [images, priors]; None for a network that reads none.
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
        """Each prompt once, in the order in which they come."""
        return self._pictures.prompts

    @property
    def digest(self) -> str:
        """Of prompts and pixels."""
        return self._pictures.digest

    def gather(self, index: Tensor) -> RawImages:
        """The batch of some places, int64 [N]."""
        rows = self._rows[index]
        tokens = PromptTokens(*(part[rows] for part in self._tokens))
        return RawImages(self._pictures.pixels(index.tolist()), tokens, self._priors[index])


@final
class BatchRounds(Generic[Batch_co]):
    """Rounds of full batches, cut from an endless stream that goes through all images in a new order again and again.

    A round is what the loop calls an epoch; its batches are a function of seed and round alone.

    Args:
        images: to draw from.
        size: of a batch.
        batches: in a round, those of all processes together.
        seed: of the orders.
    """

    def __init__(self, images: ImageSource[Batch_co], *, size: int, batches: int, seed: int) -> None:
        self._images = images
        self._size = size
        self._batches = batches
        self._seed = seed

    @property
    def length(self) -> int:
        """Batches in a round."""
        return self._batches

    def batches(self, epoch: int, *, start: int = 0, step: int = 1) -> Iterator[Batch_co]:
        """The batches of a round, counted from 0; others are not gathered."""
        for number in range(start, self._batches, step):
            yield self._images.gather(self._places((epoch * self._batches + number) * self._size))

    def _places(self, first: int) -> Tensor:
        """A batch's part of the stream: int64 [size]."""
        count = len(self._images)
        turns = range(first // count, (first + self._size - 1) // count + 1)
        orders = torch.cat([permutation(count, seed=self._seed, epoch=turn) for turn in turns])
        begin = first - turns[0] * count
        return orders[begin : begin + self._size]

"""A classifier that learns from a task's own images which prompt each belongs to, and the features in which it sees."""

from collections.abc import Sequence
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.dit.errors import RewardError
from trainers.dit.images import ImageFolder

WIDTH: Final = 64
"""Features of an image."""
EACH: Final = 8
"""Images of a prompt that are enough to know it by, on average."""
EPOCHS, BATCH, RATE, DECAY = 300, 200, 1e-3, 1e-4
ENOUGH: Final = 1e-3
"""A loss at which there is nothing left to learn."""


@final
class PromptClassifier(nn.Module):
    """Tells of images which of some prompts they belong to, by one hidden layer.

    Args:
        prompts: the classes, in their order.
        pixels: of an image, all channels together.

    Attributes:
        prompts: as given.
    """

    def __init__(self, prompts: Sequence[str], pixels: int) -> None:
        super().__init__()
        self.prompts = tuple(prompts)
        self._places = {prompt: place for place, prompt in enumerate(self.prompts)}
        self._seeing = nn.Linear(pixels, WIDTH)
        self._telling = nn.Linear(WIDTH, len(self.prompts))

    def features(self, images: Tensor) -> Tensor:
        """Of images, float [N, channels, height, width], 0 to 1: float [N, 64], 0 or more."""
        return self._seeing(images.flatten(1) * 2 - 1).relu()

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the prompts, [N, prompts], for such images."""
        return self._telling(self.features(images))

    def classes(self, prompts: Sequence[str]) -> Tensor:
        """The places of prompts among its own, int64 [N].

        Raises:
            RewardError: it does not know one of them.
        """
        unknown = sorted({prompt for prompt in prompts if prompt not in self._places})
        if unknown:
            more = f", nor of {len(unknown) - 1} other prompts" if unknown[1:] else ""
            raise RewardError(
                f"the classifier has seen no image of {unknown[0]!r}{more}; hold out images whose prompts the "
                "training has, or choose another reward"
            )
        return torch.tensor([self._places[prompt] for prompt in prompts])

    @torch.no_grad()
    def accuracy(self, images: Tensor, prompts: Sequence[str]) -> float:
        """The share of such images that it takes for what their prompts say."""
        return float((self(images).argmax(1).cpu() == self.classes(prompts)).float().mean())


def judge_of(pictures: ImageFolder, *, seed: int = 0) -> PromptClassifier:
    """A classifier trained on images; the same for the same images, and no random stream is touched.

    Raises:
        RewardError: the images have one prompt, or hardly any image for each.
    """
    count, known = len(pictures.pictures), pictures.prompts
    if len(known) < 2 or count < EACH * len(known):  # noqa: PLR2004  one class is none
        raise RewardError(
            f"{pictures.folder} has {count} images of {len(known)} prompts; a classifier needs 2 prompts or more, and "
            f"{EACH} images of each on average. Choose another reward, such as clip"
        )
    images = pixels_of(pictures)
    judge_prompts = [picture.prompt for picture in pictures.pictures]
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        judge = PromptClassifier(known, images[0].numel())
        _train(judge, images, judge.classes(judge_prompts))
    return judge.requires_grad_(False).eval()


def pixels_of(pictures: ImageFolder) -> Tensor:
    """All images: float32 [N, channels, height, width], 0 to 1."""
    return pictures.pixels(range(len(pictures.pictures))) / 2 + 0.5


def _train(judge: PromptClassifier, images: Tensor, classes: Tensor) -> None:
    optimizer = torch.optim.Adam(judge.parameters(), RATE, weight_decay=DECAY)
    for _ in range(EPOCHS):
        total = 0.0
        for places in torch.randperm(len(images)).split(BATCH):
            loss = functional.cross_entropy(judge(images[places]), classes[places])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(places)
        if total < ENOUGH * len(images):
            return

"""What says how good images are: rewards by their names, higher being better.

A reward is made before a training starts, from images that are there and weights that a path names; what it lacks is an
error then. Nothing is downloaded, and none is left out in silence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, Self, final

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoTokenizer, CLIPModel

from trainers.dit.errors import RewardError
from trainers.dit.images import ImageFolder
from trainers.dit.statistics import frechet_distance, psnr, ssim

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


MEAN: Final = (0.48145466, 0.4578275, 0.40821073)

DEVIATION: Final = (0.26862954, 0.26130258, 0.27577711)
"""Of the pixels that CLIP was trained on, by colour."""


TOGETHER: Final = 32
"""Images that are looked at at once; a model of usual size needs a hundred megabytes for them."""


@final
class ClipSimilarity:
    """The cosine between a CLIP model's embeddings of an image and of its prompt, -1 to 1.

    Args:
        model: of both.
        tokenizer: of the prompts.
    """

    def __init__(self, model: CLIPModel, tokenizer: Any) -> None:
        self._model: Any = model.requires_grad_(False).eval()
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The model of a folder; nothing is downloaded.

        Raises:
            RewardError: it holds none, or not all of its weights.
        """
        kind: Any = CLIPModel
        try:
            model, told = kind.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
            raise RewardError(f"{folder} cannot be read as a CLIP model with its tokenizer: {error}") from error
        missing = sorted(told["missing_keys"])
        if missing:
            raise RewardError(f"{folder} lacks {len(missing)} weights of its CLIP model, {missing[0]} the first")
        return cls(model, tokenizer)

    def __call__(self, images: Tensor, prompts: Sequence[str], targets: Tensor) -> Tensor:  # noqa: ARG002
        """float32 [N]."""
        looked = [self._model.vision_model(pixel_values=self._prepared(some)) for some in images.cpu().split(TOGETHER)]
        seen = torch.cat([one.pooler_output for one in looked])
        tokens = self._tokenizer(list(prompts), padding=True, return_tensors="pt")
        read = self._model.text_model(input_ids=tokens.input_ids, attention_mask=tokens.attention_mask).pooler_output
        return functional.cosine_similarity(self._model.visual_projection(seen), self._model.text_projection(read))

    def _prepared(self, images: Tensor) -> Tensor:
        """Images, float [N, channels, height, width], 0 to 1, as it reads them: [N, 3, side, side]."""
        side: int = self._model.config.vision_config.image_size
        coloured = images.expand(-1, 3, -1, -1)
        sized = functional.interpolate(coloured, (side, side), mode="bicubic", antialias=True).clamp(0, 1)
        mean, deviation = torch.tensor(MEAN)[:, None, None], torch.tensor(DEVIATION)[:, None, None]
        return (sized - mean) / deviation


class Reward(Protocol):
    """Rewards images, each for itself or all of them with one number."""

    def __call__(self, images: Tensor, prompts: Sequence[str], targets: Tensor) -> Tensor:
        """Higher is better: float [N].

        Args:
            images: that were drawn, float32 [N, channels, height, width], 0 to 1.
            prompts: what each is to show.
            targets: real images of these prompts, one for each, in the same measure.
        """
        ...


@dataclass(frozen=True, slots=True)
class RewardInputs:
    """What rewards are made of.

    Attributes:
        pictures: the task's own images, to learn from.
        held_out: others, whose prompts are drawn.
        weights: a folder of weights, for rewards that need them.
        count: how many are drawn when a model is looked at, some of those that are held out; as many real images are
            set beside them.
    """

    pictures: ImageFolder
    held_out: ImageFolder
    weights: Path | None = None
    count: int = 256


@dataclass(frozen=True, slots=True)
class RewardKind:
    """How a reward of a name is made.

    Attributes:
        make: of what there is.
        packages: that it needs, by the names under which they are imported.
        of_all: whether it rewards all images with one number, so that none of them is better than another.
        weighs: whether it reads the weights that a path names.
        title: what its number is called where there is room; its name where there is no better one.
        is_distance: whether its number is a distance with a minus, which people are shown without.
    """

    make: Callable[[RewardInputs], Reward]
    packages: tuple[str, ...] = ()
    of_all: bool = False
    weighs: bool = False
    title: str = ""
    is_distance: bool = False


@final
class PromptProbability:
    """How probable the prompted class is to a classifier that has learnt from real images, 0 to 1.

    Args:
        judge: the classifier.

    Attributes:
        judge: as given.
    """

    def __init__(self, judge: PromptClassifier) -> None:
        self.judge = judge

    def __call__(self, images: Tensor, prompts: Sequence[str], targets: Tensor) -> Tensor:  # noqa: ARG002
        """float32 [N]."""
        logits = self.judge(images.cpu())
        return logits.softmax(1).gather(1, self.judge.classes(prompts)[:, None])[:, 0]


@final
class PairwiseSimilarity:
    """How alike images and targets are by a statistic of pairs."""

    def __init__(self, statistic: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._statistic = statistic

    def __call__(self, images: Tensor, prompts: Sequence[str], targets: Tensor) -> Tensor:  # noqa: ARG002
        """float32 [N]."""
        return self._statistic(images, targets.to(images.device))


@final
class FrechetDistance:
    """The Fréchet distance to real images in the features of a judge, with a minus; one number for all images.

    Args:
        judge: whose features.
        real: images to be like, float32 [M, channels, height, width], 0 to 1.
        beside: other real images, for the floor.
        count: images that are drawn; the real ones that make the floor are as many.

    Attributes:
        count: images on the drawn side.
        against: real images on the other side.
        floor: the distance that real images have themselves.

    Raises:
        RewardError: there are too few of them.
    """

    def __init__(self, judge: PromptClassifier, real: Tensor, beside: Tensor, count: int) -> None:
        if min(len(real), len(beside)) < count or count < 2:  # noqa: PLR2004  one image has no spread
            raise RewardError(
                f"a Fréchet distance of {count} images needs as many held-out images and as many to learn from, and 2 "
                f"at least; there are {len(real)} and {len(beside)}. Draw fewer, or give more"
            )
        self._judge = judge
        self._real = judge.features(real)
        self.count, self.against = count, len(real)
        self.floor = frechet_distance(judge.features(beside[:count]), self._real)

    def __call__(self, images: Tensor, prompts: Sequence[str], targets: Tensor) -> Tensor:  # noqa: ARG002
        """float32 [N], all the same.

        Raises:
            RewardError: these are not as many images as the floor is of.
        """
        if len(images) != self.count:
            raise RewardError(
                f"a Fréchet distance of {len(images)} images cannot be compared with the others, of {self.count}"
            )
        distance = frechet_distance(self._judge.features(images.cpu()), self._real)
        return torch.full((len(images),), -distance)


def frechet_of(material: RewardInputs) -> FrechetDistance:
    """The Fréchet distance to the held-out images; the floor is of images that were learnt from.

    Raises:
        RewardError: there are too few images.
    """
    with torch.no_grad():
        real, beside = pixels_of(material.held_out), pixels_of(material.pictures.some(material.count))
        return FrechetDistance(judge_of(material.pictures), real, beside, material.count)


def resemblance_of(material: RewardInputs) -> ClipSimilarity:
    """How alike a local CLIP model finds images and prompts.

    Raises:
        RewardError: its weights are missing.
    """
    if material.weights is None:
        raise RewardError("reward clip needs the folder of a CLIP model; name it, for nothing is downloaded")
    return ClipSimilarity.load(material.weights)


KINDS: Final[Mapping[str, RewardKind]] = MappingProxyType(
    {
        "classifier": RewardKind(
            lambda material: PromptProbability(judge_of(material.pictures)), title="Probability of the prompt"
        ),
        "ssim": RewardKind(lambda _: PairwiseSimilarity(ssim), title="SSIM"),
        "psnr": RewardKind(lambda _: PairwiseSimilarity(psnr), title="PSNR, dB"),
        "frechet": RewardKind(frechet_of, of_all=True, title="Fréchet distance", is_distance=True),
        "clip": RewardKind(resemblance_of, ("transformers",), weighs=True, title="CLIP similarity"),
    }
)
"""The rewards by name. Others come with a mapping of their own: `{**KINDS, "mine": Kind(…)}`."""


def reward_of(name: str, material: RewardInputs, kinds: Mapping[str, RewardKind] = KINDS) -> "ValidatedReward":
    """A reward by its name, tried on real images.

    Raises:
        RewardError: there is none of that name, a package or weights are missing, it does not know the held-out
            prompts, or what it says of real images are no numbers.
    """
    if name not in kinds:
        raise RewardError(f"there is no reward {name!r}; those that there are: {', '.join(kinds)}")
    kind = kinds[name]
    missing = [package for package in kind.packages if find_spec(package) is None]
    if missing:
        raise RewardError(f"reward {name} needs {', '.join(missing)}, which this Python does not have; install it")
    checked = ValidatedReward(name, kind.make(material), of_all=kind.of_all, title=kind.title)
    held = material.held_out.some(material.count)
    real = pixels_of(held)
    checked(real, [picture.prompt for picture in held.pictures], real)
    return checked


def rewards_of(
    names: Sequence[str], material: RewardInputs, kinds: Mapping[str, RewardKind] = KINDS
) -> list["ValidatedReward"]:
    """Rewards by their names, tried on real images; a reward that is named twice is made once.

    Raises:
        RewardError: one cannot be had, as `reward_of` says, or none reads the weights that are named.
    """
    if material.weights is not None and not any(name in kinds and kinds[name].weighs for name in names):
        raise RewardError(f"reward {names[0]} reads no weights, and {material.weights} was named; leave it out")
    made = {name: reward_of(name, material, kinds) for name in dict.fromkeys(names)}
    return [made[name] for name in names]


@final
class ValidatedReward:
    """A reward whose numbers are looked at.

    Args:
        name: of the reward, for messages.
        reward: who is asked.
        of_all: as `RewardKind` has it.
        title: as `RewardKind` has it.

    Attributes:
        name: as given.
        title: as given, or the name.
        reward: as given.
        of_all: as given.
    """

    def __init__(self, name: str, reward: Reward, *, of_all: bool = False, title: str = "") -> None:
        self.name = name
        self.title = title or name
        self.reward = reward
        self.of_all = of_all

    @property
    def facts(self) -> Mapping[str, float]:
        """What must be known to read its numbers: of a Fréchet distance, of how many images it is, and its floor."""
        if not isinstance(self.reward, FrechetDistance):
            return {}
        return {"images": self.reward.count, "against": self.reward.against, "floor": self.reward.floor}

    @torch.no_grad()
    def __call__(self, images: Tensor, prompts: Sequence[str], targets: Tensor) -> Tensor:
        """What the reward says, float32 [N], on the CPU.

        Raises:
            RewardError: that is of another shape, infinite or not a number; the message names the reward, and the first
                prompt of which it said so.
        """
        said = self.reward(images, prompts, targets).float().cpu()
        if said.shape != (len(prompts),):
            raise RewardError(f"reward {self.name} says {list(said.shape)} of {len(prompts)} images; one number each")
        wrong = (~said.isfinite()).nonzero().flatten().tolist()
        if wrong:
            raise RewardError(
                f"reward {self.name} says {said[wrong[0]].item()} of an image of {prompts[wrong[0]]!r}, and no number "
                f"of {len(wrong)} of {len(prompts)} images; look at its weights, and at the images"
            )
        return said

"""Rewards of images, by name; higher is better.

A reward is created and tested before a training run starts, from local images and weights. If something is missing,
that is an error; nothing is downloaded.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self, final

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoTokenizer, CLIPModel

from trainers.dit.errors import RewardError
from trainers.dit.images import ImageFolder

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
    """Structural similarity, [N], -1 to 1, of images, float [N, channels, height, width], 0 to 1.

    Wang et al., "Image quality assessment: from error visibility to structural similarity" (2004).
    """
    channels, shorter_side = images.shape[1], min(images.shape[2:])
    size = min(WINDOW, shorter_side - (shorter_side + 1) % 2)
    line = torch.exp(-((torch.arange(size) - (size - 1) / 2) ** 2) / (2 * SPREAD**2))
    gaussian = torch.outer(line, line) / line.sum() ** 2
    kernel = gaussian.to(images).expand(channels, 1, -1, -1)

    def mean(values: Tensor) -> Tensor:
        return functional.conv2d(values, kernel, groups=channels)

    image_mean, target_mean = mean(images), mean(targets)
    variances = mean(images * images) - image_mean * image_mean, mean(targets * targets) - target_mean * target_mean
    covariance = mean(images * targets) - image_mean * target_mean
    likeness = (2 * image_mean * target_mean + LUMINANCE) / (
        image_mean * image_mean + target_mean * target_mean + LUMINANCE
    )
    return (likeness * (2 * covariance + CONTRAST) / (variances[0] + variances[1] + CONTRAST)).mean((1, 2, 3))


def frechet_distance(features: Tensor, others: Tensor) -> float:
    """Fréchet distance of the normal distributions of features, float [N, width] and [M, width]; 0 or more.

    Dowson and Landau (1982), as in Heusel et al. (2017). Fewer rows give larger distances, so that only distances with
    the same numbers of rows are comparable.
    """
    features, others = features.double(), others.double()
    covariance, other_covariance = _compute_covariance(features), _compute_covariance(others)
    root = _compute_root(covariance)
    shared = _compute_root(root @ other_covariance @ root).trace()
    between_means = (features.mean(0) - others.mean(0)).square().sum()
    return max(0.0, float(between_means + covariance.trace() + other_covariance.trace() - 2 * shared))


def _compute_covariance(rows: Tensor) -> Tensor:
    """Covariance of rows, float64 [N, width], N at least 2: [width, width]."""
    centred = rows - rows.mean(0)
    return centred.T @ centred / (len(rows) - 1)


def _compute_root(matrix: Tensor) -> Tensor:
    """Square root of a positive semidefinite matrix, up to rounding."""
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.T


FEATURE_COUNT: Final = 64
"""Number of features of an image."""

MIN_IMAGES_PER_PROMPT: Final = 8
"""Minimum mean number of images per prompt."""

EPOCHS, BATCH, RATE, DECAY = 300, 200, 1e-3, 1e-4

MIN_LOSS: Final = 1e-3
"""Mean loss of an epoch below which the training ends."""


@final
class PromptClassifier(nn.Module):
    """Classifies images by prompt, with one hidden layer.

    Args:
        prompts: Classes, in order.
        pixels: Values of an image, over all channels.

    Attributes:
        prompts: As given.
    """

    def __init__(self, prompts: Sequence[str], pixels: int) -> None:
        super().__init__()
        self.prompts = tuple(prompts)
        self._indices = {prompt: index for index, prompt in enumerate(self.prompts)}
        self._hidden = nn.Linear(pixels, FEATURE_COUNT)
        self._output = nn.Linear(FEATURE_COUNT, len(self.prompts))

    def features(self, images: Tensor) -> Tensor:
        """Features of images, float [N, channels, height, width], 0 to 1: float [N, 64], 0 or more."""
        return self._hidden(images.flatten(1) * 2 - 1).relu()

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the prompts, [N, prompts], for images, float [N, channels, height, width], 0 to 1."""
        return self._output(self.features(images))

    def classes(self, prompts: Sequence[str]) -> Tensor:
        """Class indices of prompts, int64 [N].

        Raises:
            RewardError: A prompt is not among the classes.
        """
        unknown = sorted({prompt for prompt in prompts if prompt not in self._indices})
        if unknown:
            rest = f" and {len(unknown) - 1} other prompts" if unknown[1:] else ""
            raise RewardError(
                f"the classifier has no training image of {unknown[0]!r}{rest}; hold out only prompts of training "
                "images, or choose another reward"
            )
        return torch.tensor([self._indices[prompt] for prompt in prompts])

    @torch.no_grad()
    def accuracy(self, images: Tensor, prompts: Sequence[str]) -> float:
        """Fraction of images, float [N, channels, height, width], that are classified as their prompt."""
        return float((self(images).argmax(1).cpu() == self.classes(prompts)).float().mean())


def train_classifier(pictures: ImageFolder, *, seed: int = 0) -> PromptClassifier:
    """Train a classifier on images: reproducible, and without effect on the global random state.

    Raises:
        RewardError: There is only one prompt, or there are too few images per prompt.
    """
    count, prompts = len(pictures.pictures), pictures.prompts
    if len(prompts) < 2 or count < MIN_IMAGES_PER_PROMPT * len(prompts):  # noqa: PLR2004  two classes at least
        raise RewardError(
            f"{pictures.folder} has {count} images of {len(prompts)} prompts; a classifier needs at least 2 prompts, "
            f"and on average {MIN_IMAGES_PER_PROMPT} images of each: choose another reward, such as clip"
        )
    images = read_pixels(pictures)
    labels = [picture.prompt for picture in pictures.pictures]
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        classifier = PromptClassifier(prompts, images[0].numel())
        _train(classifier, images, classifier.classes(labels))
    return classifier.requires_grad_(False).eval()


def read_pixels(pictures: ImageFolder) -> Tensor:
    """Read all images: float32 [N, channels, height, width], 0 to 1."""
    return pictures.pixels(range(len(pictures.pictures))) / 2 + 0.5


def _train(classifier: PromptClassifier, images: Tensor, classes: Tensor) -> None:
    optimizer = torch.optim.Adam(classifier.parameters(), RATE, weight_decay=DECAY)
    for _ in range(EPOCHS):
        total = 0.0
        for indices in torch.randperm(len(images)).split(BATCH):
            loss = functional.cross_entropy(classifier(images[indices]), classes[indices])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(indices)
        if total < MIN_LOSS * len(images):
            return


MEAN: Final = (0.48145466, 0.4578275, 0.40821073)

DEVIATION: Final = (0.26862954, 0.26130258, 0.27577711)
"""Statistics of CLIP's training pixels, by color."""


CLIP_BATCH: Final = 32
"""Images per CLIP batch, which needs about 100 MB with a model of usual size."""


@final
class ClipSimilarity:
    """Cosine similarity of the CLIP embeddings of an image and its prompt, -1 to 1.

    Args:
        model: CLIP model.
        tokenizer: Its tokenizer.
    """

    def __init__(self, model: CLIPModel, tokenizer: Any) -> None:
        self._model: Any = model.requires_grad_(False).eval()
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load the model of a folder; nothing is downloaded.

        Raises:
            RewardError: The folder holds no CLIP model, or weights are missing.
        """
        kind: Any = CLIPModel
        try:
            model, info = kind.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
            raise RewardError(f"{folder} cannot be read as a CLIP model with its tokenizer: {error}") from error
        missing = sorted(info["missing_keys"])
        if missing:
            raise RewardError(f"{folder} lacks {len(missing)} weights of its CLIP model, first: {missing[0]}")
        return cls(model, tokenizer)

    def __call__(self, images: Tensor, prompts: Sequence[str], targets: Tensor) -> Tensor:  # noqa: ARG002
        """Similarity of each image, float32 [N]."""
        batches = images.cpu().split(CLIP_BATCH)
        outputs = [self._model.vision_model(pixel_values=self._prepare(batch)) for batch in batches]
        images = torch.cat([output.pooler_output for output in outputs])
        tokens = self._tokenizer(list(prompts), padding=True, return_tensors="pt")
        texts = self._model.text_model(input_ids=tokens.input_ids, attention_mask=tokens.attention_mask).pooler_output
        return functional.cosine_similarity(self._model.visual_projection(images), self._model.text_projection(texts))

    def _prepare(self, images: Tensor) -> Tensor:
        """Resize and normalise images, float [N, channels, height, width], 0 to 1: [N, 3, side, side]."""
        side: int = self._model.config.vision_config.image_size
        coloured = images.expand(-1, 3, -1, -1)
        sized = functional.interpolate(coloured, (side, side), mode="bicubic", antialias=True).clamp(0, 1)
        mean, deviation = torch.tensor(MEAN)[:, None, None], torch.tensor(DEVIATION)[:, None, None]
        return (sized - mean) / deviation


Reward = Callable[[Tensor, Sequence[str], Tensor], Tensor]
"""Computes rewards, float [N], individually or one number for all images; higher is better.

It is called with drawn images, float32 [N, channels, height, width], 0 to 1, the prompt of each image, and the real
image of each prompt in the same format.
"""


@dataclass(frozen=True, slots=True)
class RewardInputs:
    """Inputs from which rewards are created.

    Attributes:
        pictures: Training images.
        held_out: Held-out images, whose prompts are drawn.
        weights: Folder of weights, for rewards that need them.
        count: Number of held-out images to draw and to compare.
    """

    pictures: ImageFolder
    held_out: ImageFolder
    weights: Path | None = None
    count: int = 256

    def choose_held_out(self) -> ImageFolder:
        """Choose the held-out images to draw.

        Raises:
            RewardError: There are too few.
        """
        sample = self.held_out.sample(self.count)
        if len(sample.pictures) < self.count:
            raise RewardError(
                f"{self.count} images were requested, but {self.held_out.folder} has prompts for only "
                f"{len(sample.pictures)}; draw fewer, or hold out more"
            )
        return sample


@dataclass(frozen=True, slots=True)
class RewardKind:
    """How to create a named reward.

    Attributes:
        make: Creates the reward.
        is_collective: Whether it has one number for all images, so that it cannot compare images.
        needs_weights: Whether it reads the folder of weights.
        title: Title of the number; empty for the name.
        is_distance: Whether the number is a negated distance, which is displayed without the sign.
    """

    make: Callable[[RewardInputs], Reward]
    is_collective: bool = False
    needs_weights: bool = False
    title: str = ""
    is_distance: bool = False


@final
class PromptProbability:
    """Probability of the prompt according to a classifier trained on real images, 0 to 1.

    Args:
        classifier: Classifier.

    Attributes:
        classifier: As given.
    """

    def __init__(self, classifier: PromptClassifier) -> None:
        self.classifier = classifier

    def __call__(self, images: Tensor, prompts: Sequence[str], targets: Tensor) -> Tensor:  # noqa: ARG002
        """Probability of each prompt, float32 [N]."""
        logits = self.classifier(images.cpu())
        return logits.softmax(1).gather(1, self.classifier.classes(prompts)[:, None])[:, 0]


@final
class PairwiseSimilarity:
    """Similarity of each image and its target, by a pairwise statistic."""

    def __init__(self, statistic: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._statistic = statistic

    def __call__(self, images: Tensor, prompts: Sequence[str], targets: Tensor) -> Tensor:  # noqa: ARG002
        """Similarity of each pair, float32 [N]."""
        return self._statistic(images, targets.to(images.device))


@final
class FrechetDistance:
    """Negated Fréchet distance to real images in the features of a classifier; one number for all images.

    Args:
        classifier: Classifier, whose features are compared.
        real: Real images to compare with, float32 [M, channels, height, width], 0 to 1.
        others: Other real images, for the floor.
        count: Number of drawn images, and of real images for the floor.

    Attributes:
        count: Number of drawn images.
        against: Number of real images to compare with.
        floor: Distance of real images.

    Raises:
        RewardError: There are too few images.
    """

    def __init__(self, classifier: PromptClassifier, real: Tensor, others: Tensor, count: int) -> None:
        if min(len(real), len(others)) < count or count < 2:  # noqa: PLR2004  one image has no variance
            raise RewardError(
                f"a Fréchet distance of {count} images needs as many held-out and training images, at least 2; there "
                f"are {len(real)} and {len(others)}: draw fewer, or add images"
            )
        self._classifier = classifier
        self._real = classifier.features(real)
        self.count, self.against = count, len(real)
        self.floor = frechet_distance(classifier.features(others[:count]), self._real)

    def __call__(self, images: Tensor, prompts: Sequence[str], targets: Tensor) -> Tensor:  # noqa: ARG002
        """The negated distance for each image, float32 [N].

        Raises:
            RewardError: The number of images is not that of the floor.
        """
        if len(images) != self.count:
            raise RewardError(
                f"a Fréchet distance of {len(images)} images cannot be compared with the floor of {self.count}"
            )
        distance = frechet_distance(self._classifier.features(images.cpu()), self._real)
        return torch.full((len(images),), -distance)


def create_frechet_distance(inputs: RewardInputs) -> FrechetDistance:
    """Create the Fréchet distance to the held-out images, with a floor from training images.

    Raises:
        RewardError: There are too few images.
    """
    with torch.no_grad():
        real, others = read_pixels(inputs.held_out), read_pixels(inputs.pictures.sample(inputs.count))
        return FrechetDistance(train_classifier(inputs.pictures), real, others, inputs.count)


def load_clip_similarity(inputs: RewardInputs) -> ClipSimilarity:
    """Create the CLIP similarity from a folder of weights.

    Raises:
        RewardError: Weights are missing.
    """
    if inputs.weights is None:
        raise RewardError("reward clip needs a local folder of a CLIP model; give it as reward weights")
    return ClipSimilarity.load(inputs.weights)


KINDS: Final[Mapping[str, RewardKind]] = MappingProxyType(
    {
        "classifier": RewardKind(
            lambda inputs: PromptProbability(train_classifier(inputs.pictures)), title="Probability of the prompt"
        ),
        "ssim": RewardKind(lambda _: PairwiseSimilarity(ssim), title="SSIM"),
        "psnr": RewardKind(lambda _: PairwiseSimilarity(psnr), title="PSNR, dB"),
        "frechet": RewardKind(create_frechet_distance, is_collective=True, title="Fréchet distance", is_distance=True),
        "clip": RewardKind(load_clip_similarity, needs_weights=True, title="CLIP similarity"),
    }
)
"""Rewards by name. Add others with `{**KINDS, "mine": RewardKind(…)}`."""


def create_reward(name: str, inputs: RewardInputs, kinds: Mapping[str, RewardKind] = KINDS) -> "ValidatedReward":
    """Create a reward by name, and test it on real images.

    Raises:
        RewardError: The name or a held-out prompt is unknown, weights are missing, or a reward of a real
            image is not finite.
    """
    if name not in kinds:
        raise RewardError(f"{name!r} is not a reward; choose from {', '.join(kinds)}")
    kind = kinds[name]
    validated = ValidatedReward(name, kind.make(inputs), is_collective=kind.is_collective, title=kind.title)
    sample = inputs.held_out.sample(inputs.count)
    real = read_pixels(sample)
    validated(real, [picture.prompt for picture in sample.pictures], real)
    return validated


def create_rewards(
    names: Sequence[str], inputs: RewardInputs, kinds: Mapping[str, RewardKind] = KINDS
) -> list["ValidatedReward"]:
    """Create rewards by name, and test them on real images; a repeated name gives the same reward.

    Raises:
        RewardError: A reward cannot be created, as in `create_reward`, or weights are given that none reads.
    """
    if inputs.weights is not None and not any(name in kinds and kinds[name].needs_weights for name in names):
        raise RewardError(f"reward {names[0]} reads no weights, but {inputs.weights} was given; leave it out")
    rewards = {name: create_reward(name, inputs, kinds) for name in dict.fromkeys(names)}
    return [rewards[name] for name in names]


@final
class ValidatedReward:
    """A reward whose values are checked.

    Args:
        name: Name of the reward, for messages.
        reward: Reward to check.
        is_collective: As in `RewardKind`.
        title: Title of the number; empty for the name.
    """

    def __init__(self, name: str, reward: Reward, *, is_collective: bool = False, title: str = "") -> None:
        self.name = name
        self.title = title or name
        self.reward = reward
        self.is_collective = is_collective

    @property
    def facts(self) -> Mapping[str, float]:
        """Image counts and floor of a Fréchet distance; empty for other rewards."""
        if not isinstance(self.reward, FrechetDistance):
            return {}
        return {"images": self.reward.count, "against": self.reward.against, "floor": self.reward.floor}

    @torch.no_grad()
    def __call__(self, images: Tensor, prompts: Sequence[str], targets: Tensor) -> Tensor:
        """Compute and check rewards, float32 [N], on the CPU.

        Raises:
            RewardError: Rewards have the wrong shape or are not finite; the message names the first such prompt.
        """
        values = self.reward(images, prompts, targets).float().cpu()
        if values.shape != (len(prompts),):
            raise RewardError(
                f"reward {self.name} has shape {list(values.shape)} for {len(prompts)} images; expected one number each"
            )
        wrong = (~values.isfinite()).nonzero().flatten().tolist()
        if wrong:
            raise RewardError(
                f"reward {self.name} is {values[wrong[0]].item()} for an image of {prompts[wrong[0]]!r}, and not "
                f"finite for {len(wrong)} of {len(prompts)} images; check its weights and the images"
            )
        return values

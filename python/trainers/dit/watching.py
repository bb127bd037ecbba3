"""Looking at a model while it trains: it draws held-out prompts from fixed noise, and rewards say how well.

No parameter, gradient or random stream notices: `TrainingRun.validate` sets all of them back, and puts averaged
weights in their place meanwhile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor

from trainers.dit.errors import RewardError
from trainers.dit.judge import pixels_of
from trainers.dit.models import ImageModel
from trainers.dit.networks import PromptCondition
from trainers.dit.recipe import SamplingSettings
from trainers.dit.rewards import KINDS, RewardInputs, ValidatedReward
from trainers.dit.sampling import draw_latents, noise_of
from trainers.loop import IterableSource, Loss, TrainingRun

TOGETHER: Final = 128
"""Images that are drawn at once."""


class SampleRequest(NamedTuple):
    """Images that are to be drawn.

    Attributes:
        places: their numbers, int64 [N].
        condition: what they are to show.
        noise: where they begin, float32 [N, channels, side, side].
    """

    places: Tensor
    condition: PromptCondition
    noise: Tensor


@dataclass(frozen=True, slots=True)
class EvaluationSnapshot:
    """What a look has found.

    Attributes:
        window: of the training after which it was.
        rewards: the mean over the images, by name.
    """

    window: int
    rewards: Mapping[str, float]

    @property
    def said(self) -> str:
        """In words, with distances as such, which are rewards by their minus."""
        return ", ".join(figure_of(name, value) for name, value in self.rewards.items())

    @property
    def told(self) -> str:
        """With when it was."""
        return f"after {self.window} steps: {self.said}"


def figure_of(name: str, reward: float) -> str:
    """What a reward says, in words."""
    kind = KINDS.get(name)
    return f"{kind.title} {-reward:.4g} (less is better)" if kind and kind.is_distance else f"{name} {reward:.4g}"


@final
class SampleWatch:
    """Draws the same prompts from the same noise at every look.

    Args:
        model: that is trained; its objective samples.
        material: of the held-out images, whose prompts are drawn and which are the targets.
        rewards: asked at every look.
        sampling: how images are drawn.

    Attributes:
        prompts: that are drawn, one for each image.
        targets: real images of them, float32 [N, channels, height, width], 0 to 1.
        digest: of all held-out images.

    Raises:
        RewardError: there are fewer held-out images than are to be drawn, or the model reads plans besides prompts.
        DataError: a prompt is too long.
    """

    def __init__(
        self, model: ImageModel, material: RewardInputs, rewards: Sequence[ValidatedReward], sampling: SamplingSettings
    ) -> None:
        held = material.held_out.some(material.count)
        if len(held.pictures) < material.count:
            raise RewardError(
                f"{material.count} images are to be drawn at every look, and {material.held_out.folder} has prompts "
                f"for {len(held.pictures)}; draw fewer, or hold out more"
            )
        check_unplanned(model)
        self._model = model
        self._rewards = tuple(rewards)
        self._sampling = sampling
        self.prompts = [picture.prompt for picture in held.pictures]
        self.digest = material.held_out.digest
        self.targets = pixels_of(held)
        self._source = IterableSource(self._begun())

    @property
    def facts(self) -> Mapping[str, Mapping[str, float]]:
        """What must be known to read the rewards' numbers, by name."""
        return {one.name: one.facts for one in self._rewards if one.facts}

    def look(self, run: TrainingRun[Any]) -> EvaluationSnapshot:
        """What the rewards say of the model as it is now; in a group every process calls it and draws its share.

        Raises:
            RewardError: what one of them says is no number.
        """
        images = self.draw(run)
        said = {one.name: float(one(images, self.prompts, self.targets).mean()) for one in self._rewards}
        return EvaluationSnapshot(run.windows, said)

    def draw(self, run: TrainingRun[Any]) -> Tensor:
        """What the model draws now: float32 [N, channels, height, width], 0 to 1, on the CPU."""
        drawn: dict[int, Tensor] = {}

        def score(begun: SampleRequest) -> Loss:
            latents = draw_latents(self._model, begun.condition, begun.noise, self._sampling)
            images = self._model.latents.decode(latents).float().cpu()
            drawn.update(zip(begun.places.tolist(), images, strict=True))
            return Loss(images.mean(), len(images))  # the rewards want all images together; this is brightness

        run.validate(score, self._source)
        shares = run.group.gather({place: image.numpy() for place, image in drawn.items()})
        everything = {place: image for share in shares for place, image in share.items()}
        return torch.stack([torch.from_numpy(everything[place]) for place in range(len(self.prompts))])

    def _begun(self) -> list[SampleRequest]:
        """All images, on the CPU."""
        count = len(self.prompts)
        condition = self._model.prompts.embed(self._model.prompts.tokens(self.prompts)).on("cpu")
        noise = noise_of(self._model, count, self._sampling.seed)
        parts = torch.arange(count).split(TOGETHER)
        return [SampleRequest(places, condition.rows(places), noise[places]) for places in parts]


def check_unplanned(model: ImageModel) -> None:
    """Check that a model draws from prompts alone.

    Raises:
        RewardError: it reads plans, which held-out prompts do not have.
    """
    if model.network.priors:
        raise RewardError(
            "this model reads prior tokens besides prompts, which the images that are held out do not have; train it "
            "without rewards"
        )

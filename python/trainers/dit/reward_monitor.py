"""Rewards of held-out prompts during a training run: snapshots, early stopping on collapse and the quality gate."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor

from trainers.dit.errors import GateError, RewardError
from trainers.dit.models import ImageModel
from trainers.dit.networks import PromptCondition
from trainers.dit.recipe import SamplingSettings
from trainers.dit.rewards import KINDS, RewardInputs, ValidatedReward, read_pixels
from trainers.dit.sampling import draw_initial_noise, draw_latents
from trainers.loop import EpochReport, IterableSource, Loss, Report, StepReport, TrainingNotice, TrainingRun

TOGETHER: Final = 128
"""Images per sampling batch."""


class SampleRequest(NamedTuple):
    """A batch of images to draw.

    Attributes:
        indices: Image numbers, int64 [N].
        condition: Embedded prompts.
        noise: Initial noise, float32 [N, channels, side, side].
    """

    indices: Tensor
    condition: PromptCondition
    noise: Tensor


@dataclass(frozen=True, slots=True)
class EvaluationSnapshot:
    """Rewards of a model at one point of the training.

    Attributes:
        window: Number of training windows before it.
        rewards: Mean over the images, by name of the reward.
    """

    window: int
    rewards: Mapping[str, float]

    @property
    def figures(self) -> str:
        """Rewards as text, with distances as positive numbers."""
        return ", ".join(format_reward(name, value) for name, value in self.rewards.items())

    @property
    def summary(self) -> str:
        """Rewards and number of steps as text."""
        return f"after {self.window} steps: {self.figures}"


def format_reward(name: str, reward: float) -> str:
    """A reward as text."""
    kind = KINDS.get(name)
    return f"{kind.title} {-reward:.4g} (lower is better)" if kind and kind.is_distance else f"{name} {reward:.4g}"


@final
class SampleEvaluator:
    """Draws the same prompts from the same noise at each evaluation.

    Args:
        model: Model in training.
        inputs: Held-out images, whose prompts are drawn.
        rewards: Rewards to compute.
        sampling: Sampling settings.

    Attributes:
        prompts: Prompt of each image.
        targets: Real image of each prompt, float32 [N, channels, height, width], 0 to 1.
        digest: Digest of all held-out images.

    Raises:
        RewardError: There are too few held-out images, or the model reads prior tokens.
        DataError: A prompt is too long.
    """

    def __init__(
        self, model: ImageModel, inputs: RewardInputs, rewards: Sequence[ValidatedReward], sampling: SamplingSettings
    ) -> None:
        held_out = inputs.choose_held_out()
        check_prompts_suffice(model)
        self._model = model
        self._rewards = tuple(rewards)
        self._sampling = sampling
        self.prompts = [picture.prompt for picture in held_out.pictures]
        self.digest = inputs.held_out.digest
        self.targets = read_pixels(held_out)
        self._source = IterableSource(self._build_requests())

    @property
    def facts(self) -> Mapping[str, Mapping[str, float]]:
        """Image counts and floor of each reward that is a distance, by name."""
        return {reward.name: reward.facts for reward in self._rewards if reward.facts}

    def evaluate(self, run: TrainingRun[Any]) -> EvaluationSnapshot:
        """Evaluate the model; in a group, every process must call this and draws its share.

        Raises:
            RewardError: A reward is not finite.
        """
        images = self.draw(run)
        rewards = {reward.name: float(reward(images, self.prompts, self.targets).mean()) for reward in self._rewards}
        return EvaluationSnapshot(run.windows, rewards)

    def draw(self, run: TrainingRun[Any]) -> Tensor:
        """Draw all images: float32 [N, channels, height, width], 0 to 1, on the CPU."""
        image_by_index: dict[int, Tensor] = {}

        def score(request: SampleRequest) -> Loss:
            latents = draw_latents(self._model, request.condition, request.noise, self._sampling)
            images = self._model.latents.decode(latents).float().cpu()
            image_by_index.update(zip(request.indices.tolist(), images, strict=True))
            return Loss(images.mean(), len(images))  # placeholder: rewards need all images

        run.validate(score, self._source)
        shares = run.group.gather({index: image.numpy() for index, image in image_by_index.items()})
        images = {index: image for share in shares for index, image in share.items()}
        return torch.stack([torch.from_numpy(images[index]) for index in range(len(self.prompts))])

    def _build_requests(self) -> list[SampleRequest]:
        """Batches of all images, on the CPU."""
        count = len(self.prompts)
        condition = self._model.prompts.embed(self._model.prompts.tokens(self.prompts)).move_to("cpu")
        noise = draw_initial_noise(self._model, count, self._sampling.seed)
        parts = torch.arange(count).split(TOGETHER)
        return [SampleRequest(indices, condition.rows(indices), noise[indices]) for indices in parts]


def check_prompts_suffice(model: ImageModel) -> None:
    """Check that a model needs only prompts.

    Raises:
        RewardError: The model reads prior tokens, which held-out images do not have.
    """
    if model.network.prior_count:
        raise RewardError("this model reads prior tokens, which held-out images do not have; train it without rewards")


LOST: Final = 0.5
"""Fraction of the gain, or of the initial reward, whose loss counts as a collapse."""


def has_collapsed(rewards: Sequence[float], patience: int) -> bool:
    """Whether rewards, in the order of evaluation, have collapsed.

    Args:
        rewards: One reward per evaluation.
        patience: Required number of consecutive collapsed evaluations; 0 for never.
    """
    fallen = 0
    for number, reward in enumerate(rewards):
        best = max(rewards[: number + 1])
        scale = max(best - rewards[0], abs(rewards[0]))
        fallen = fallen + 1 if reward < best - LOST * scale else 0
    return 0 < patience <= fallen


@final
class RewardMonitor:
    """Evaluates a model at regular intervals, and ends the training if the reward collapses.

    The loop's checkpoints must include its state.

    Args:
        evaluator: Draws images and computes rewards.
        name: Name of the deciding reward.
        every: Optimizer steps between evaluations.
        patience: Consecutive collapsed evaluations that end the training; 0 for never.

    Attributes:
        evaluator: As given.
        snapshots: Evaluations so far.
        collapsed: Whether the reward has collapsed.
    """

    def __init__(self, evaluator: SampleEvaluator, name: str, *, every: int, patience: int) -> None:
        if every < 1:
            raise RewardError(f"evaluations are {every} steps apart; the distance must be 1 or more")
        self.evaluator = evaluator
        self._name = name
        self._every = every
        self._patience = patience
        self._stepped = 0
        self.snapshots: list[EvaluationSnapshot] = []
        self.collapsed = False

    def monitor(self, run: TrainingRun[Any], reports: Iterable[Report]) -> Iterator[Report]:
        """Pass on the reports of a training run, and a notice after each evaluation, until the reward collapses.

        Raises:
            RewardError: A reward is not finite.
        """
        for report in reports:
            yield report
            if not isinstance(report, StepReport) or not report.stepped:
                continue
            self._stepped += 1
            if self._stepped % self._every:
                continue
            snapshot = self.evaluator.evaluate(run)
            self.snapshots.append(snapshot)
            run.stalled(-snapshot.rewards[self._name], patience=1)  # saves the weights if they are the best
            yield TrainingNotice(message=f"after {self._stepped} steps: {snapshot.figures}")
            self.collapsed = has_collapsed(
                [snapshot.rewards[self._name] for snapshot in self.snapshots], self._patience
            )
            if self.collapsed:
                yield TrainingNotice(
                    message=f"the reward has collapsed: {self._name} lost over {LOST:.0%} of its gain or initial value"
                )
                return

    def keep_best(self, run: TrainingRun[Any]) -> None:
        """Restore the weights of the best reward; without an evaluation, use the average weights, if kept."""
        if self.snapshots:
            run.restore_best()
        else:
            run.use_average()

    def state_dict(self) -> dict[str, Any]:
        """Evaluations so far, for a checkpoint."""
        return {
            "stepped": self._stepped,
            "snapshots": [asdict(snapshot) for snapshot in self.snapshots],
        }

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Restore a state."""
        self._stepped = state_dict["stepped"]
        self.snapshots = [EvaluationSnapshot(**snapshot) for snapshot in state_dict["snapshots"]]


@final
class RewardGate:
    """Evaluates reward and quality before a training run, at regular intervals and at the end, and ends it at poor
    quality.

    The loop's checkpoints must include its state.

    Args:
        evaluator: Draws images and computes both.
        reward: Name of the reward.
        quality: Name of the reward that measures quality; not the same.
        bound: How many times worse than at the start the quality may become: the factor of a distance, or the divisor
            of another quality.
        every: Iterations between evaluations.

    Attributes:
        evaluator: As given.
        snapshots: Evaluations so far; the first is from before the training.

    Raises:
        GateError: The quality is the reward, or `bound` or `every` is below 1.
    """

    def __init__(self, evaluator: SampleEvaluator, *, reward: str, quality: str, bound: float, every: int) -> None:
        if reward == quality:
            raise GateError(f"{reward} cannot be both the reward and the gate; choose another gate")
        if bound < 1 or every < 1:
            raise GateError(f"bound {bound:g} and every {every} must both be 1 or more")
        self.evaluator = evaluator
        self._reward = reward
        self._quality = quality
        self._bound = bound
        self._every = every
        self.snapshots: list[EvaluationSnapshot] = []

    def accepts(self, snapshot: EvaluationSnapshot) -> bool:
        """Whether the quality is within the bound."""
        now, start = snapshot.rewards[self._quality], self.snapshots[0].rewards[self._quality]
        return now >= (start * self._bound if start < 0 else start / self._bound)

    @property
    def refused(self) -> EvaluationSnapshot | None:
        """Evaluation that ended the training, if one did."""
        return next((snapshot for snapshot in self.snapshots if not self.accepts(snapshot)), None)

    @property
    def best_snapshot(self) -> EvaluationSnapshot:
        """Accepted evaluation with the best reward (the first one if equal), whose weights are kept."""
        return max(filter(self.accepts, self.snapshots), key=lambda snapshot: snapshot.rewards[self._reward])

    def monitor(self, run: TrainingRun[Any], reports: Iterable[Report]) -> Iterator[Report]:
        """Pass on the reports of a training run, and a notice after each evaluation, until one is rejected.

        Raises:
            RewardError: A reward is not finite.
        """
        if not self.snapshots:
            yield self._evaluate(run)
        if self.refused is not None:
            return
        for report in reports:
            yield report
            if not isinstance(report, EpochReport):
                continue
            epoch_count = report.epoch + 1
            if epoch_count % self._every == 0 or epoch_count == report.epochs:
                yield self._evaluate(run)
                if self.refused is not None:
                    return

    @property
    def verdict(self) -> str:
        """The outcome in words, with figures."""
        start, best = self.snapshots[0].summary, self.best_snapshot.summary
        real_scores = [
            f"; real images have {format_reward(name, -facts['floor'])}" for name, facts in self.evaluator.facts.items()
        ]
        if self.refused is not None:
            beyond = f"{self.refused.summary} is more than {self._bound:g} times worse than {start}"
            return f"{beyond}; kept the best accepted weights, {best}{''.join(real_scores)}"
        if self.best_snapshot is self.snapshots[0]:
            last = self.snapshots[-1].summary
            return f"{self._reward} has not increased: kept the initial weights, {start}; last, {last}"
        return f"{start}; kept {best}{''.join(real_scores)}"

    def state_dict(self) -> dict[str, Any]:
        """Evaluations so far, for a checkpoint."""
        return {"snapshots": [asdict(snapshot) for snapshot in self.snapshots]}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Restore a state."""
        self.snapshots = [EvaluationSnapshot(**snapshot) for snapshot in state_dict["snapshots"]]

    def _evaluate(self, run: TrainingRun[Any]) -> TrainingNotice:
        snapshot = self.evaluator.evaluate(run)
        self.snapshots.append(snapshot)
        if self.accepts(snapshot):
            run.stalled(-snapshot.rewards[self._reward], patience=1)  # saves the weights if they are the best
        return TrainingNotice(message=snapshot.summary)

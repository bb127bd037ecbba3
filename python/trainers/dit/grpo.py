"""Reward tuning of a model with GRPO: reinforce steps that led to better images than others of the same group.

Rollouts are images drawn with random steps, which are rewarded and then trained on step by step. The loop's checkpoints
must include their state, so that a resumed training continues exactly.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor, nn

from trainers.dit.errors import RewardError, SchedulerError
from trainers.dit.images import ImageFolder
from trainers.dit.models import ImageModel
from trainers.dit.networks import ImageNetwork, PromptCondition
from trainers.dit.objective import add_dimensions
from trainers.dit.recipe import GrpoRecipe
from trainers.dit.reward_monitor import EvaluationSnapshot, RewardGate, check_prompts_suffice
from trainers.dit.rewards import ValidatedReward
from trainers.dit.sampling import GuidedNetwork
from trainers.loop import (
    Checkpoints,
    FrozenModule,
    LiveSource,
    Loop,
    Loss,
    OutOfMemoryError,
    Phase,
    SettingsError,
    adamw,
    full_precision,
    launched_size,
)
from trainers.loop.device import describe_cause, is_out_of_memory
from trainers.loop.validation import evaluation_mode
from trainers.progress import ReportConsumer

MAX_NOISE_TIME: Final = 0.96
"""Upper bound of the time in the noise scale, which diverges at 1."""

MIN_SPREAD: Final = 1e-6
"""Rewards of a group with a smaller standard deviation count as equal."""

DEVIATION_OFFSET: Final = 1e-4
"""Added to the standard deviation of a group, which keeps advantages of nearly equal rewards small."""

MAX_ADVANTAGE: Final = 3.0
"""Bound of advantages."""


class PolicyStep(NamedTuple):
    """Normal distribution of a random step.

    Attributes:
        mean: float [N, channels, side, side].
        deviation: Standard deviation of every value, [N].
    """

    mean: Tensor
    deviation: Tensor


class Advantages(NamedTuple):
    """Advantages of images within their groups.

    Attributes:
        values: float [groups, members]; 0 in groups of equal rewards.
        equal: Number of groups with equal rewards.
    """

    values: Tensor
    equal: int


def draw_step(latents: Tensor, velocity: Tensor, times: Tensor, lengths: Tensor, noise: float) -> PolicyStep:
    """Random step from times t to t - length, with the same marginal distribution as the deterministic step.

    With s = noise · √(t / (1 - t)), the mean is x - length · (v + s² / 2t · (x + (1 - t) v)) and the standard deviation
    s √length.

    Args:
        latents: x, float [N, channels, side, side].
        velocity: v, of the same shape.
        times: t, [N], above 0 and up to 1.
        lengths: [N], above 0.
        noise: Scale of the noise.
    """
    bounded_times = times.clamp(max=MAX_NOISE_TIME)
    size = noise * (bounded_times / (1 - bounded_times)).sqrt()
    time, length, half = add_dimensions(times), add_dimensions(lengths), add_dimensions(size**2 / (2 * times))
    return PolicyStep(latents - length * (velocity + half * (latents + (1 - time) * velocity)), size * lengths.sqrt())


def log_probability(step: PolicyStep, latents: Tensor) -> Tensor:
    """Log-probability of latents, [N, channels, side, side], without a constant: [N], a mean over the values."""
    return -((latents - step.mean) ** 2).mean((1, 2, 3)) / (2 * step.deviation**2)


def compute_advantages(rewards: Tensor) -> Advantages:
    """Normalise rewards, float [groups, members], by mean and standard deviation of their group."""
    spread = rewards.std(dim=1, keepdim=True)
    is_tied = spread < MIN_SPREAD
    values = ((rewards - rewards.mean(1, keepdim=True)) / (spread + DEVIATION_OFFSET)).clamp(
        -MAX_ADVANTAGE, MAX_ADVANTAGE
    )
    return Advantages(torch.where(is_tied, 0.0, values), int(is_tied.sum()))


def compute_clipped_gain(ratios: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """Gain of a change in probability, [N]; ratios beyond 1 ± clip gain no more.

    Args:
        ratios: Probability of each step now, relative to when it was drawn, [N].
        advantages: [N].
        clip: Range of ratios around 1.
    """
    return torch.minimum(ratios * advantages, ratios.clamp(1 - clip, 1 + clip) * advantages)


def divergence(step: PolicyStep, reference: PolicyStep) -> Tensor:
    """Kullback-Leibler divergence of steps with the same deviation, [N]; a mean over the values."""
    return ((step.mean - reference.mean) ** 2).mean((1, 2, 3)) / (2 * step.deviation**2)


class PolicySteps(NamedTuple):
    """One step of a batch of images.

    Attributes:
        before: Latents before the step, float32 [N, channels, side, side].
        after: Latents after the step, of the same shape.
        timesteps: Timesteps of the network, [N].
        times: Fraction of noise before the step, [N].
        lengths: Decrease of that fraction, [N].
        probability: Log-probability of the step, as in `log_probability`, [N].
        advantages: Advantage of each image within its group, [N].
        condition: Embedded prompts.
    """

    before: Tensor
    after: Tensor
    timesteps: Tensor
    times: Tensor
    lengths: Tensor
    probability: Tensor
    advantages: Tensor
    condition: PromptCondition


@dataclass(frozen=True, slots=True)
class RolloutRound:
    """Result of a round of rollouts.

    Attributes:
        reward: Mean over all images.
        equal: Number of groups with equal rewards, which do not train the model.
        groups: Number of groups.
    """

    reward: float
    equal: int
    groups: int


@final
class PolicySampler:
    """Computes the random steps of a network.

    Args:
        unconditional: Condition of the empty prompt, with one row.
        recipe: Tuning settings.
    """

    def __init__(self, unconditional: PromptCondition, recipe: GrpoRecipe) -> None:
        self._unconditional = unconditional
        self._recipe = recipe

    def step(
        self,
        network: ImageNetwork,
        condition: PromptCondition,
        latents: Tensor,
        timesteps: Tensor,
        times: Tensor,
        lengths: Tensor,
    ) -> PolicyStep:
        """Step from latents, float32 [N, channels, side, side], at times [N], with lengths [N]."""
        guided = GuidedNetwork(network, condition, self._unconditional.move_to(latents.device), self._recipe.guidance)
        return draw_step(latents, guided(latents, timesteps).float(), times, lengths, self._recipe.noise_scale)


@final
class Rollouts:
    """Endless stream of steps, from rounds of images drawn with the model in training.

    Args:
        model: Model that draws; may be trained meanwhile.
        pictures: Prompts to draw, with real images.
        reward: Reward of each image.
        recipe: Tuning settings.

    Attributes:
        rounds: Results of the rounds so far.

    Raises:
        SchedulerError: The model was not trained by flow matching.
        RewardError: The reward has one number for all images, or the model reads prior tokens.
        SettingsError: There are fewer steps than steps to train on.
    """

    def __init__(self, model: ImageModel, pictures: ImageFolder, reward: ValidatedReward, recipe: GrpoRecipe) -> None:
        if model.objective is None or model.objective.name != "flow":
            objective = "none" if model.objective is None else str(model.objective)
            raise SchedulerError(f"tuning needs flow matching, but the model's objective is {objective}")
        if reward.is_collective:
            raise RewardError(
                f"reward {reward.name} has one number for all images and cannot compare them; choose another"
            )
        if recipe.trained_steps > recipe.draw_steps:
            raise SettingsError(
                f"{recipe.trained_steps} trained steps are more than the {recipe.draw_steps} steps of an image; "
                "train on fewer"
            )
        check_prompts_suffice(model)
        self._model = model
        self._pictures = pictures
        self._reward = reward
        self._recipe = recipe
        self._sampler = PolicySampler(model.unconditional().move_to("cpu"), recipe)
        scheduler = model.objective.steps(recipe.draw_steps)
        self._timesteps: Tensor = scheduler.timesteps
        self._times: Tensor = scheduler.sigmas.float()
        self._remaining: list[PolicySteps] = []
        self.rounds: list[RolloutRound] = []

    def __iter__(self) -> Iterator[PolicySteps]:
        """Steps without end, each of all images of a round; a new round is drawn after the last step."""
        while True:
            if not self._remaining:
                self._remaining = self._draw_round()
            yield self._remaining.pop(0)

    def state_dict(self) -> dict[str, Any]:
        """Remaining steps and results so far, for a checkpoint."""
        left = [[*steps[:-1], *steps.condition] for steps in self._remaining]
        return {"left": left, "rounds": [asdict(result) for result in self.rounds]}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Restore a state."""
        # Seven tensors of every step, then those of its condition.
        self._remaining = [PolicySteps(*left[:7], condition=PromptCondition(*left[7:])) for left in state_dict["left"]]
        self.rounds = [RolloutRound(**result) for result in state_dict["rounds"]]

    @torch.no_grad()
    def _draw_round(self) -> list[PolicySteps]:
        """Draw a round of images, and choose steps at random."""
        prompts, targets = self._choose_prompts()
        try:
            condition = self._model.prompts.embed(self._model.prompts.tokens(prompts))
            with evaluation_mode([self._model.network.module]):
                steps, latents = self._run_all_steps(condition)
            images = self._model.latents.decode(latents)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise OutOfMemoryError(
                f"not enough memory to draw {len(prompts)} images at once ({describe_cause(error)}); lower --groups, "
                f"now {self._recipe.groups}, or --members, now {self._recipe.members}"
            ) from error
        rewards = self._reward(images, prompts, targets)
        advantages = compute_advantages(rewards.view(self._recipe.groups, self._recipe.members))
        self.rounds.append(RolloutRound(float(rewards.mean()), advantages.equal, self._recipe.groups))
        trained_steps = torch.randperm(len(steps))[: self._recipe.trained_steps].tolist()
        values = advantages.values.flatten().to(steps[0].before.device)
        return [steps[index]._replace(advantages=values) for index in trained_steps]

    def _run_all_steps(self, condition: PromptCondition) -> tuple[list[PolicySteps], Tensor]:
        """All steps from noise, and the final latents."""
        count, network, device = len(condition.mask), self._model.network, condition.mask.device
        latents = torch.randn(count, network.channels, network.side, network.side).to(device)
        steps: list[PolicySteps] = []
        for index, timestep in enumerate(self._timesteps):
            times = self._times[index].expand(count).to(device)
            lengths = (self._times[index] - self._times[index + 1]).expand(count).to(device)
            timesteps = timestep.expand(count).to(device)
            step = self._sampler.step(network, condition, latents, timesteps, times, lengths)
            noise = torch.randn(latents.shape).to(device)  # drawn on the CPU: the same on every device
            after = step.mean + step.deviation[:, None, None, None] * noise
            probability = log_probability(step, after)
            steps.append(PolicySteps(latents, after, timesteps, times, lengths, probability, torch.zeros(0), condition))
            latents = after
        return steps, latents

    def _choose_prompts(self) -> tuple[list[str], Tensor]:
        """Random prompts, and a real image of each, both repeated for the members of a group."""
        indices = group_by_prompt([picture.prompt for picture in self._pictures.pictures])
        order = torch.randperm(len(indices)).repeat(-(-self._recipe.groups // len(indices)))[: self._recipe.groups]
        shuffled = [indices[number] for number in order.tolist()]
        members = self._recipe.members
        picture_indices = [same[int(torch.randint(len(same), ()))] for same in shuffled]
        prompts = [self._pictures.pictures[index].prompt for index in picture_indices for _ in range(members)]
        return prompts, (self._pictures.pixels(picture_indices) / 2 + 0.5).repeat_interleave(members, 0)


def group_by_prompt(prompts: Sequence[str]) -> list[list[int]]:
    """Indices of each distinct prompt, in order of first use."""
    indices: dict[str, list[int]] = {}
    for index, prompt in enumerate(prompts):
        indices.setdefault(prompt, []).append(index)
    return [*indices.values()]


TRANSFORMER: Final = "transformer"
"""Name of the module and of the phase."""


@dataclass(frozen=True, slots=True)
class TuningResult:
    """Result of a tuning run.

    Attributes:
        rounds: Rewards of the training rollouts, one entry per iteration.
        snapshots: Reward and quality on held-out prompts; the first is before tuning.
        kept: Evaluation whose weights the model now has.
        refused: Evaluation at which the gate ended the tuning, if it did.
        verdict: The outcome in words.
    """

    rounds: tuple[RolloutRound, ...]
    snapshots: tuple[EvaluationSnapshot, ...]
    kept: EvaluationSnapshot
    refused: EvaluationSnapshot | None
    verdict: str


@final
class PolicyLoss:
    """Policy loss: negative clipped gain plus a divergence penalty.

    Args:
        network: Network in training.
        reference: Frozen copy from before tuning.
        sampler: Step sampler of both.
        recipe: Clipping and weight of the divergence.
    """

    def __init__(
        self, network: ImageNetwork, reference: ImageNetwork, sampler: PolicySampler, recipe: GrpoRecipe
    ) -> None:
        self._network = network
        self._reference = reference
        self._sampler = sampler
        self._recipe = recipe

    def loss(self, steps: PolicySteps) -> Loss:
        """Mean loss over images; its parts measure the distance from the start."""
        with full_precision(steps.before.device):  # 16 bits cannot resolve the differences of probabilities
            inputs = (steps.condition, steps.before, steps.timesteps, steps.times, steps.lengths)
            step = self._sampler.step(self._network, *inputs)
            with torch.no_grad():
                reference = self._sampler.step(self._reference, *inputs)
            ratios = (log_probability(step, steps.after) - steps.probability).exp()
            gain = compute_clipped_gain(ratios, steps.advantages, self._recipe.ratio_clip).mean()
            distance = divergence(step, reference).mean()
            ratio_change = (ratios.detach() - 1).abs()
            parts = {
                "divergence": distance.detach(),
                "moved": ratio_change.mean(),
                "clipped": (ratio_change > self._recipe.ratio_clip).float().mean(),
            }
            return Loss(self._recipe.divergence * distance - gain, len(ratios), parts)


def tune(
    model: ImageModel,
    pictures: ImageFolder,
    reward: ValidatedReward,
    gate: RewardGate,
    recipe: GrpoRecipe,
    checkpoints: Checkpoints | None,
    consume: ReportConsumer,
) -> TuningResult:
    """Tune a model's transformer in place, ending with the weights of the best accepted reward.

    Args:
        model: Model trained by flow matching.
        pictures: Prompts to draw, with real images.
        reward: Reward of each image.
        gate: Gate on the quality.
        recipe: Tuning settings.
        checkpoints: Checkpoints for resuming, if any.
        consume: Receives progress reports.

    Raises:
        SchedulerError: The model was not trained by flow matching.
        RewardError: The reward is not defined for single images, or is not finite.
        StoppedError: A signal ended the tuning, after a checkpoint.
        LoopError: The tuning failed.
    """
    rollouts = Rollouts(model, pictures, reward, recipe)
    loop = build_loop(model, rollouts, gate, recipe)
    with loop.running(checkpoints) as run:
        source = LiveSource(rollouts, length=recipe.trained_steps * launched_size())
        for _ in consume(gate.monitor(run, run.epochs(source, max_epochs=recipe.iterations))):
            pass
        run.restore_best()
    return TuningResult(tuple(rollouts.rounds), tuple(gate.snapshots), gate.best_snapshot, gate.refused, gate.verdict)


def build_loop(model: ImageModel, rollouts: Rollouts, gate: RewardGate, recipe: GrpoRecipe) -> Loop[PolicySteps]:
    """Training loop with the frozen start; its checkpoints include rollouts and evaluations.

    Raises:
        SettingsError: The precision is not full.
    """
    if recipe.precision not in ("auto", "fp32"):
        raise SettingsError(
            f"precision is {recipe.precision}; 16 bits cannot resolve the probabilities of steps, use fp32"
        )
    transformer, reference = model.network.module, deepcopy(model.network)
    sampler = PolicySampler(model.unconditional().move_to("cpu"), recipe)
    policy_loss = PolicyLoss(model.network, reference, sampler, recipe)
    optimizer = adamw(transformer.parameters(), lr=recipe.learning_rate, weight_decay=0.0)
    phase = Phase[PolicySteps](
        TRANSFORMER,
        policy_loss.loss,
        transformer.parameters(),
        optimizer,
        clip=recipe.clip,
        allow_zero_gradients=True,  # while all rewards are equal, because the divergence starts at 0
    )
    modules: dict[str, nn.Module | FrozenModule] = {
        TRANSFORMER: transformer,
        "start": FrozenModule(reference.module),
        "vae": FrozenModule(model.latents.module),
        "text_encoder": FrozenModule(model.prompts.module),
    }
    return Loop(
        [phase],
        modules=modules,
        device=recipe.device,
        precision="fp32",
        accumulate=recipe.accumulate,
        oom=recipe.oom,
        nonfinite=recipe.nonfinite,
        ema={TRANSFORMER: recipe.ema} if recipe.ema else None,
        compile=recipe.compiled,
        deterministic=recipe.deterministic,
        state={"rollouts": rollouts, "gate": gate},
    )

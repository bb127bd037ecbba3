"""Images drawn by chance step by step, rewarded, and handed to the training one step at a time.

What is left of them, the rewards so far and the counts belong into the loop's state: together with its random streams a
training that is stopped in the middle goes on as if it had not been.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor

from trainers.dit.errors import RewardError, SchedulerError
from trainers.dit.images import ImageFolder
from trainers.dit.models import ImageModel
from trainers.dit.monitoring import check_unplanned
from trainers.dit.networks import ImageNetwork, PromptCondition
from trainers.dit.rewards import ValidatedReward
from trainers.dit.sampling import GuidedNetwork
from trainers.loop import OutOfMemoryError, SettingsError
from trainers.loop.device import cause_of, is_out_of_memory
from trainers.loop.validation import evaluating

LATEST: Final = 0.96
"""Times above this count as this in the size of the noise, which grows without bound towards 1."""

LEAST_SPREAD: Final = 1e-6
"""Rewards of a group that spread less than this are equal."""

STEADYING: Final = 1e-4
"""Is added to a group's spread, so that advantages of nearly equal rewards stay small."""

MOST: Final = 3.0
"""The largest advantage."""


class PolicyStep(NamedTuple):
    """Where a step by chance leads to: a normal distribution.

    Attributes:
        mean: float [N, channels, side, side].
        deviation: of every number in it, [N].
    """

    mean: Tensor
    deviation: Tensor


class Advantages(NamedTuple):
    """What rewards say of the members of groups.

    Attributes:
        values: float [groups, members]; 0 in groups of equal rewards.
        equal: how many groups have equal rewards.
    """

    values: Tensor
    equal: int


def step_of(latents: Tensor, velocity: Tensor, times: Tensor, lengths: Tensor, noise: float) -> PolicyStep:
    """The step from times t to t - length that leaves the images' distribution as the plain step would.

    With s = noise · √(t / (1 - t)), its mean is x - length · (v + s² / 2t · (x + (1 - t) v)), its deviation s √length.

    Args:
        latents: x, float [N, channels, side, side].
        velocity: v, of the same shape.
        times: t, [N], above 0 and up to 1.
        lengths: [N], above 0.
        noise: how much there is by chance.
    """
    late = times.clamp(max=LATEST)
    size = noise * (late / (1 - late)).sqrt()
    time, length, half = _wide(times), _wide(lengths), _wide(size**2 / (2 * times))
    return PolicyStep(latents - length * (velocity + half * (latents + (1 - time) * velocity)), size * lengths.sqrt())


def log_probability(step: PolicyStep, taken: Tensor) -> Tensor:
    """Of latents that a step has led to, [N, channels, side, side], less a constant: [N], a mean over their numbers."""
    return -((taken - step.mean) ** 2).mean((1, 2, 3)) / (2 * step.deviation**2)


def advantages_of(rewards: Tensor) -> Advantages:
    """How much better each is than its group, in the group's spread: of rewards, float [groups, members]."""
    spread = rewards.std(dim=1, keepdim=True)
    equal = spread < LEAST_SPREAD
    values = ((rewards - rewards.mean(1, keepdim=True)) / (spread + STEADYING)).clamp(-MOST, MOST)
    return Advantages(torch.where(equal, 0.0, values), int(equal.sum()))


def clipped_gain(ratios: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """What is gained by having made steps more probable, [N], and nothing for going further than 1 ± clip.

    Args:
        ratios: of the probabilities now and when the step was taken, [N].
        advantages: [N].
        clip: how far from 1 a ratio may pay.
    """
    return torch.minimum(ratios * advantages, ratios.clamp(1 - clip, 1 + clip) * advantages)


def divergence(step: PolicyStep, start: PolicyStep) -> Tensor:
    """Kullback-Leibler divergence of a step from another of the same deviation, [N]; a mean over its numbers."""
    return ((step.mean - start.mean) ** 2).mean((1, 2, 3)) / (2 * step.deviation**2)


def _wide(values: Tensor) -> Tensor:
    """[N] as [N, 1, 1, 1]."""
    return values[:, None, None, None]


class PolicySteps(NamedTuple):
    """One step of some images.

    Attributes:
        before: latents, float32 [N, channels, side, side].
        after: where the step has led, of the same shape.
        timesteps: what the network was told, [N].
        times: share of noise before, [N].
        lengths: how much less of it there was after, [N].
        probability: logarithm of the step's, as `log_probability` has it, [N].
        advantages: how much better than the others of their groups the images were, [N].
        condition: of their prompts.
    """

    before: Tensor
    after: Tensor
    timesteps: Tensor
    times: Tensor
    lengths: Tensor
    probability: Tensor
    advantages: Tensor
    condition: PromptCondition


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """How images are drawn to learn from.

    Attributes:
        groups: prompts at once.
        members: images of each.
        steps: from noise to an image.
        trained: of these steps, how many are learnt from.
        noise: how much is by chance.
        guidance: as `SamplingSettings` has it.
    """

    groups: int
    members: int
    steps: int
    trained: int
    noise: float
    guidance: float


@dataclass(frozen=True, slots=True)
class RolloutRound:
    """What came of drawing once.

    Attributes:
        reward: mean over all images.
        equal: groups in which all rewards were equal, from which nothing is learnt.
        groups: all of them.
    """

    reward: float
    equal: int
    groups: int


@final
class PolicySampler:
    """Where a network leads by chance.

    Args:
        nothing: the condition of no prompt, of one row.
        play: how images are drawn.
    """

    def __init__(self, nothing: PromptCondition, play: RolloutSettings) -> None:
        self._nothing = nothing
        self._play = play

    def of(
        self,
        network: ImageNetwork,
        condition: PromptCondition,
        latents: Tensor,
        timesteps: Tensor,
        times: Tensor,
        lengths: Tensor,
    ) -> PolicyStep:
        """The step from latents, float32 [N, channels, side, side], at times [N], of lengths [N]."""
        guided = GuidedNetwork(network, condition, self._nothing.on(latents.device), self._play.guidance)
        return step_of(latents, guided(latents, timesteps).float(), times, lengths, self._play.noise)


@final
class Rollouts:
    """Draws images of prompts, and hands out their steps, again and again.

    Args:
        model: that draws, and is trained meanwhile.
        pictures: prompts to draw, and real images of them.
        reward: for each image.
        play: how.

    Attributes:
        rounds: what came of it so far.

    Raises:
        SchedulerError: the model has not learnt flow matching.
        RewardError: the reward has one number for all images, or the model reads plans besides prompts.
        SettingsError: more steps are to be learnt from than there are.
    """

    def __init__(
        self, model: ImageModel, pictures: ImageFolder, reward: ValidatedReward, play: RolloutSettings
    ) -> None:
        if model.objective is None or model.objective.name != "flow":
            named = "none" if model.objective is None else str(model.objective)
            raise SchedulerError(f"steps by chance are those of flow matching, and the model's objective is {named}")
        if reward.of_all:
            raise RewardError(f"reward {reward.name} has one number for all images, so none is better; choose another")
        if play.trained > play.steps:
            raise SettingsError(f"{play.trained} steps are to be learnt from, and images are drawn in {play.steps}")
        check_unplanned(model)
        self._model = model
        self._pictures = pictures
        self._reward = reward
        self._play = play
        self._steps = PolicySampler(model.unconditional().on("cpu"), play)
        scheduler = model.objective.steps(play.steps)
        self._timesteps: Tensor = scheduler.timesteps
        self._times: Tensor = scheduler.sigmas.float()
        self._left: list[PolicySteps] = []
        self.rounds: list[RolloutRound] = []

    def __iter__(self) -> Iterator[PolicySteps]:
        """Steps without end, each of all images; drawn anew when those of the last drawing have been handed out."""
        while True:
            if not self._left:
                self._left = self._drawn()
            yield self._left.pop(0)

    def state_dict(self) -> dict[str, Any]:
        """What is left, and what came of it so far."""
        left = [[*moves[:-1], *moves.condition] for moves in self._left]
        return {"left": left, "rounds": [asdict(one) for one in self.rounds]}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Go on from there."""
        self._left = [_moves_of(parts) for parts in state_dict["left"]]
        self.rounds = [RolloutRound(**one) for one in state_dict["rounds"]]

    @torch.no_grad()
    def _drawn(self) -> list[PolicySteps]:
        """Some steps of new images, in an order by chance."""
        prompts, targets = self._chosen()
        try:
            moves, images = self._walked_and_decoded(prompts)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise OutOfMemoryError(
                f"there is no memory to draw {len(prompts)} images at once ({cause_of(error)}), and they are not cut; "
                f"draw fewer in an iteration: --groups is {self._play.groups}, --members {self._play.members}"
            ) from error
        rewards = self._reward(images, prompts, targets)
        found = advantages_of(rewards.view(self._play.groups, self._play.members))
        self.rounds.append(RolloutRound(float(rewards.mean()), found.equal, self._play.groups))
        kept = torch.randperm(len(moves))[: self._play.trained].tolist()
        advantages = found.values.flatten().to(moves[0].before.device)
        return [moves[place]._replace(advantages=advantages) for place in kept]

    def _walked_and_decoded(self, prompts: Sequence[str]) -> tuple[list[PolicySteps], Tensor]:
        """All steps from noise, and the images at the end."""
        condition = self._model.prompts.embed(self._model.prompts.tokens(prompts))
        with evaluating([self._model.network.module]):
            moves, latents = self._walked(condition)
        return moves, self._model.latents.decode(latents)

    def _walked(self, condition: PromptCondition) -> tuple[list[PolicySteps], Tensor]:
        """All steps from noise, and the latents at the end."""
        count, network, device = len(condition.mask), self._model.network, condition.mask.device
        latents = torch.randn(count, network.channels, network.side, network.side).to(device)
        walked: list[PolicySteps] = []
        for place, timestep in enumerate(self._timesteps):
            times = self._times[place].expand(count).to(device)
            lengths = (self._times[place] - self._times[place + 1]).expand(count).to(device)
            told = timestep.expand(count).to(device)
            step = self._steps.of(network, condition, latents, told, times, lengths)
            chance = torch.randn(latents.shape).to(device)  # drawn on the CPU: the same on every device
            after = step.mean + step.deviation[:, None, None, None] * chance
            probability = log_probability(step, after)
            walked.append(PolicySteps(latents, after, told, times, lengths, probability, torch.zeros(0), condition))
            latents = after
        return walked, latents

    def _chosen(self) -> tuple[list[str], Tensor]:
        """Prompts, each as often as a group has members, and a real image for each group, repeated for its members."""
        places = places_by_prompt([picture.prompt for picture in self._pictures.pictures])
        order = torch.randperm(len(places)).repeat(-(-self._play.groups // len(places)))[: self._play.groups]
        drawn = [places[number] for number in order.tolist()]
        one = [held[int(torch.randint(len(held), ()))] for held in drawn]
        prompts = [self._pictures.pictures[place].prompt for place in one for _ in range(self._play.members)]
        return prompts, (self._pictures.pixels(one) / 2 + 0.5).repeat_interleave(self._play.members, 0)


def _moves_of(parts: Sequence[Tensor]) -> PolicySteps:
    """As the state has them: one after the other."""
    before, after, timesteps, times, lengths, probability, advantages, *told = parts
    return PolicySteps(before, after, timesteps, times, lengths, probability, advantages, PromptCondition(*told))


def places_by_prompt(prompts: Sequence[str]) -> list[list[int]]:
    """The places of each distinct prompt, in the order in which they come."""
    places: dict[str, list[int]] = {}
    for place, prompt in enumerate(prompts):
        places.setdefault(prompt, []).append(place)
    return [*places.values()]

"""Drawing as a policy: steps that are drawn by chance, how probable they were, and which to make more so.

Liu et al., "Flow-GRPO: training flow matching models via online RL" (2025); group advantages: Shao et al. (2024);
clipping: Schulman et al., "Proximal policy optimization algorithms" (2017). Latents at a time t are
(1 - t) · image + t · noise, and a network says the velocity v = noise - image.
"""

from typing import Final, NamedTuple

import torch
from torch import Tensor

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

"""GRPO policy steps, advantages and clipping against values computed by hand."""

import math

import pytest
import torch

from trainers.dit.grpo import (
    PolicyStep,
    compute_advantages,
    compute_clipped_gain,
    divergence,
    draw_step,
    log_probability,
)


def test_a_step_has_the_mean_and_deviation_of_the_formula() -> None:
    latents, velocity = torch.full((2, 1, 1, 1), 0.8), torch.full((2, 1, 1, 1), -0.5)
    step = draw_step(latents, velocity, torch.tensor([0.5, 1.0]), torch.tensor([0.25, 0.125]), 0.7)
    # s² = .49 at t = .5; .49 · 24 at t = 1, which counts as .96 in it
    first = 0.8 - 0.25 * (-0.5 + 0.49 / (2 * 0.5) * (0.8 + 0.5 * -0.5))
    second = 0.8 - 0.125 * (-0.5 + 0.49 * 24 / 2 * 0.8)
    assert step.mean.flatten().tolist() == pytest.approx([first, second], rel=1e-5)
    assert step.deviation.tolist() == pytest.approx([0.7 * 0.5, 0.7 * math.sqrt(24 * 0.125)], rel=1e-5)


def test_a_step_without_chance_is_the_plain_one() -> None:
    latents, velocity = torch.randn(2, 3, 4, 5, 6, generator=torch.Generator().manual_seed(0))
    step = draw_step(latents, velocity, torch.full((3,), 0.6), torch.full((3,), 0.2), 0.0)
    torch.testing.assert_close(step.mean, latents - 0.2 * velocity)
    assert step.deviation.tolist() == [0, 0, 0]


def test_steps_by_chance_end_where_the_images_are() -> None:
    """For normally distributed images with known velocity, the samples have their mean and spread."""
    torch.manual_seed(2)
    mean, spread, steps = 1.5, 0.5, 200
    latents = torch.randn(4000, 1, 1, 1)
    for number in range(steps, 0, -1):
        time = number / steps
        variance = (1 - time) ** 2 * spread**2 + time**2
        away = latents - (1 - time) * mean
        velocity = time / variance * away - (mean + (1 - time) * spread**2 / variance * away)
        at, length = torch.full((4000,), time), torch.full((4000,), 1 / steps)
        step = draw_step(latents, velocity, at, length, 0.7)
        latents = step.mean + step.deviation[:, None, None, None] * torch.randn_like(latents)
    assert float(latents.mean()) == pytest.approx(mean, abs=0.03)
    assert float(latents.std()) == pytest.approx(spread, abs=0.05)


def test_the_ratio_of_probabilities_is_that_of_normal_distributions() -> None:
    taken = torch.tensor([[[[1.0, 0.0]]], [[[0.5, 0.5]]]])
    old = PolicyStep(torch.zeros(2, 1, 1, 2), torch.tensor([0.5, 2.0]))
    new = PolicyStep(torch.full((2, 1, 1, 2), 0.5), torch.tensor([0.5, 2.0]))
    ratio = (log_probability(new, taken) - log_probability(old, taken)).exp()
    # mean squares .5 → .25 over 2 · .25, and .25 → 0 over 2 · 4
    assert ratio.tolist() == pytest.approx([math.exp((0.5 - 0.25) / 0.5), math.exp(0.25 / 8)])
    normal = torch.distributions.Normal
    wanted = normal(0.5, 0.5).log_prob(taken[0]).mean() - normal(0.0, 0.5).log_prob(taken[0]).mean()
    torch.testing.assert_close(ratio[0].log(), wanted)


def test_advantages_are_counted_in_the_spread_of_each_group() -> None:
    found = compute_advantages(torch.tensor([[1.0, 2.0, 3.0], [0.2, 0.2, 0.2], [0.0, 0.0, 9.0]]))
    assert found.equal == 1
    assert found.values[0].tolist() == pytest.approx([-1, 0, 1], abs=1e-3)
    assert found.values[1].tolist() == [0, 0, 0]
    assert float(found.values[2].sum()) == pytest.approx(0, abs=1e-5)
    assert float(compute_advantages(torch.eye(100)[:1] * 50).values.max()) == 3.0
    assert float(compute_advantages(torch.eye(100)[:1] * -50).values.min()) == -3.0
    assert float(compute_advantages(torch.tensor([[0.0, 1e-4]])).values.max()) < 0.5  # nearly equal ones


def test_nothing_is_gained_beyond_the_clip() -> None:
    ratios, advantages = torch.tensor([1.5, 1.5, 0.5, 0.5, 1.05]), torch.tensor([2.0, -2.0, 2.0, -2.0, 2.0])
    assert compute_clipped_gain(ratios, advantages, 0.1).tolist() == pytest.approx([2.2, -3.0, 1.0, -1.8, 2.1])
    moved = torch.tensor([1.5, 0.5], requires_grad=True)
    compute_clipped_gain(moved, torch.tensor([1.0, -1.0]), 0.1).sum().backward()
    assert moved.grad is not None
    assert moved.grad.tolist() == [0, 0]


def test_the_divergence_is_that_of_normal_distributions() -> None:
    step, start = (PolicyStep(torch.full((1, 2, 3, 3), mean), torch.tensor([0.4])) for mean in (0.3, 0.1))
    normal = torch.distributions.Normal
    wanted = torch.distributions.kl_divergence(normal(0.3, 0.4), normal(0.1, 0.4))
    assert float(divergence(step, start)) == pytest.approx(float(wanted), rel=1e-5)

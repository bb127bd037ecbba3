"""Whether noising, target and sampler belong together: an exact prediction must lead back to the image.

With one image in the data set, what a network without error says follows from noisy latents and time alone. It is made
from nothing but an objective's noising and target; where it leads tells whether a sampler is theirs. No training is
needed, and no loss would show it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Final, final

import torch
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from torch import Tensor

from benchmarks.drawing.control import TIMES, noising
from benchmarks.drawing.pipelines import glm_scheduler
from benchmarks.report import Row, at_least, at_most
from trainers.dit.glm import glm_objective
from trainers.dit.objective import Objective, Predict, objective_of, objectives
from trainers.dit.processes import Diffusion, Process
from trainers.dit.recipe import ObjectiveName

NAMES: Final[tuple[ObjectiveName, ...]] = ("flow", "epsilon", "velocity")
PATCHES: Final = 16
"""Of GLM-Image's tiny images, by which its noise is shifted."""
STEPS: Final = (5, 8, 10, 20, 40)
EXACT, FAR, NEAR = 1e-5, 0.1, 5e-4
"""How close a matching sampler must come; how far another must lead; and how far where the last steps, of little
noise, come near the image all the same: 50 times less close than its own."""


@final
@dataclass(frozen=True, slots=True)
class Mismatch:
    """What was learnt for one sampler, and is drawn by another.

    Attributes:
        name: of both.
        learnt: noising and target.
        sampler: who draws.
        least: how far it must lead from the image.
    """

    name: str
    learnt: Objective | Process
    sampler: Objective
    least: float


def rows() -> list[Row]:
    """Of what belongs together, and of what does not."""
    return [
        *(
            at_most(
                f"exact prediction, {one.name}: largest error",
                max(error(one, one, steps) for steps in STEPS),
                EXACT,
                detail=f"8 noises, {', '.join(map(str, STEPS))} steps; latents have deviation 1",
            )
            for one in (*objectives(), glm_objective(glm_scheduler(), PATCHES))
        ),
        *(
            at_least(
                f"mismatch, {one.name}: largest error",
                error(one.learnt, one.sampler, 20),
                one.least,
                detail="the same, 20 steps",
            )
            for one in mismatches()
        ),
    ]


def mismatches() -> Iterator[Mismatch]:
    """Of samplers, of a noising of one's own, and of targets."""
    for learnt, sampled in permutations(NAMES, 2):
        name = f"learnt for {learnt}, drawn by {sampled}'s sampler"
        yield Mismatch(name, objective_of(learnt), objective_of(sampled), NEAR if learnt == "flow" else FAR)
    for sampled in NAMES:
        yield Mismatch(f"the control's noising, drawn by {sampled}'s sampler", noising(), objective_of(sampled), FAR)
    euler = Objective("the control's", noising(), FlowMatchEulerDiscreteScheduler(TIMES))
    yield Mismatch("the control's noising, drawn by FlowMatchEuler", noising(), euler, FAR)
    line, cosine = (objective_of(name).scheduler().alphas_cumprod for name in ("epsilon", "velocity"))
    yield Mismatch("epsilon with velocities as target", Diffusion(line, "v_prediction"), objective_of("epsilon"), FAR)
    yield Mismatch("velocity with the noise as target", Diffusion(cosine, "epsilon"), objective_of("velocity"), NEAR)


def error(learnt: Objective | Process, sampler: Objective, steps: int) -> float:
    """The largest difference of what is sampled from the image, over all its latents and some noises."""
    image = torch.randn(1, 4, 4, 4, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(8, 4, 4, 4, generator=torch.Generator().manual_seed(1))
    predict = exact(learnt, image) if learnt is sampler else _within(exact(learnt, image))
    return float((sampler.sample(predict, noise, steps) - image).abs().max())


def exact(learnt: Objective | Process, image: Tensor) -> Predict:
    """What a network that has learnt one image, float [1, channels, side, side], without error says."""

    def predict(latents: Tensor, timesteps: Tensor) -> Tensor:
        times, ones = learnt.times_of(timesteps), torch.ones_like(latents)
        signal = learnt.noised(ones, 0 * ones, times).latents
        spread = learnt.noised(0 * ones, ones, times).latents
        return learnt.noised(image.expand_as(latents), (latents - signal * image) / spread, times).target

    return predict


def _within(predict: Predict) -> Predict:
    """Asked only at times that every schedule has, so that what differs is not that there is no answer."""
    return lambda latents, timesteps: predict(latents, timesteps.clamp(1, TIMES - 1))

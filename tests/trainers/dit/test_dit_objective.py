"""Noising, target and sampler match: sampling with exact predictions returns the training image.

With a single image in the data set, the exact prediction follows from the noisy latents and the time. It is computed
here from the objective's noising and target only.
"""

from itertools import permutations

import pytest
import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from torch import Tensor

from trainers.dit.errors import SchedulerError
from trainers.dit.objective import (
    DiffusionObjective,
    DiffusionProcess,
    FlowMatching,
    NoiseProcess,
    Predict,
    create_objective,
    create_objectives,
    find_objective,
)
from trainers.dit.recipe import ObjectiveName

NAMES: tuple[ObjectiveName, ...] = ("flow", "epsilon", "velocity")
IMAGE = torch.randn(1, 4, 4, 4, generator=torch.Generator().manual_seed(0))
NOISE = torch.randn(8, 4, 4, 4, generator=torch.Generator().manual_seed(1))


def exact_prediction(learnt: DiffusionObjective | NoiseProcess) -> Predict:
    """The exact prediction of a network that knows one image."""

    def predict(latents: Tensor, timesteps: Tensor) -> Tensor:
        times, ones, image = learnt.times_of(timesteps), torch.ones_like(latents), IMAGE.expand_as(latents)
        signal = learnt.noised(ones, 0 * ones, times).latents
        spread = learnt.noised(0 * ones, ones, times).latents
        return learnt.noised(image, (latents - signal * image) / spread, times).target

    return predict


def within_schedules(predict: Predict) -> Predict:
    """Only times within every schedule, so that differences are not due to missing values."""
    return lambda latents, timesteps: predict(latents, timesteps.clamp(1, 999))


def error(sampler: DiffusionObjective, predict: Predict, steps: int = 20) -> float:
    """Largest difference of the sample from the image."""
    return float((sampler.sample(predict, NOISE, steps) - IMAGE).abs().max())


@pytest.mark.parametrize("steps", [5, 8, 10, 20, 40])
@pytest.mark.parametrize("name", NAMES)
def test_an_exact_prediction_leads_back_to_the_image(name: ObjectiveName, steps: int) -> None:
    objective = create_objective(name)
    assert error(objective, exact_prediction(objective), steps) < 1e-5


@pytest.mark.parametrize(("learnt", "sampled"), list(permutations(NAMES, 2)))
def test_what_was_learnt_for_another_sampler_leads_elsewhere(learnt: ObjectiveName, sampled: ObjectiveName) -> None:
    found = error(create_objective(sampled), within_schedules(exact_prediction(create_objective(learnt))))
    # Near its end a velocity is large, so DDIM comes close with it, but 50 times less than with its own target.
    assert found > (5e-4 if learnt == "flow" else 0.1)


def by_the_line() -> DiffusionProcess:
    """Noising by sqrt(1 - t / 1000) x + sqrt(t / 1000) n, which no scheduler here inverts."""
    return DiffusionProcess((1 - torch.arange(1000) / 1000).clamp(max=0.999999), "epsilon")


@pytest.mark.parametrize("sampled", NAMES)
def test_a_schedule_of_ones_own_leads_elsewhere_in_every_sampler(sampled: ObjectiveName) -> None:
    objective = create_objective(sampled)
    assert error(objective, within_schedules(exact_prediction(by_the_line()))) > 0.1


def test_a_target_of_another_objective_leads_elsewhere_with_the_right_noising() -> None:
    objective = create_objective("epsilon")
    kept = DDIMScheduler(beta_schedule="linear").alphas_cumprod
    assert error(objective, exact_prediction(DiffusionProcess(kept, "v_prediction"))) > 0.1


def test_times_that_are_rounded_down_lead_elsewhere_and_are_refused() -> None:
    """The solver rounds 1,000 times down; 1,921 come out even."""
    solver = DPMSolverMultistepScheduler(
        num_train_timesteps=1000, prediction_type="flow_prediction", use_flow_sigmas=True
    )
    rounded = DiffusionObjective("rounded", FlowMatching(1000), solver)
    with pytest.raises(SchedulerError, match="20 steps of DPMSolverMultistepScheduler"):
        rounded.sample(exact_prediction(rounded), NOISE, 20)


@pytest.mark.parametrize(("name", "advised"), [("flow", "24 or 30"), ("epsilon", "25 or 40"), ("velocity", "25 or 40")])
def test_a_number_of_steps_that_misses_whole_times_is_refused_with_its_neighbours(
    name: ObjectiveName, advised: str
) -> None:
    with pytest.raises(SchedulerError, match=f"27 steps of .* use {advised}"):
        create_objective(name).steps(27)


@pytest.mark.parametrize("objective", list(create_objectives()), ids=str)
def test_a_scheduler_leads_to_its_objective(objective: DiffusionObjective) -> None:
    assert find_objective(objective.scheduler()).name == objective.name


@pytest.mark.parametrize(
    "scheduler",
    [
        FlowMatchEulerDiscreteScheduler(1000),
        DDIMScheduler(beta_schedule="scaled_linear"),
        DPMSolverMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True),
    ],
    ids=lambda scheduler: type(scheduler).__name__,
)
def test_an_unknown_scheduler_is_an_error_that_names_it_and_those_that_are_known(
    scheduler: FlowMatchEulerDiscreteScheduler,
) -> None:
    with pytest.raises(SchedulerError) as refused:
        find_objective(scheduler)
    assert refused.value.message.startswith(type(scheduler).__name__)
    assert all(f"{name} (" in refused.value.message for name in NAMES)


def test_a_scheduler_of_another_kind_is_refused_by_both_names() -> None:
    with pytest.raises(SchedulerError, match=r"FlowMatchEuler\w+ is not the sampler of objective epsilon.*DDIMSched"):
        create_objective("epsilon").check(FlowMatchEulerDiscreteScheduler(1000))


def test_a_scheduler_of_other_settings_is_refused_by_what_differs() -> None:
    with pytest.raises(
        SchedulerError, match="objective velocity: beta_schedule is 'linear', expected 'squaredcos_cap_v2'"
    ):
        create_objective("velocity").check(create_objective("epsilon").scheduler())


def test_what_a_network_says_must_have_the_shape_of_the_latents() -> None:
    with pytest.raises(SchedulerError, match=r"predicts \[8, 8, 4, 4\] for latents \[8, 4, 4, 4\]"):
        create_objective("flow").sample(lambda latents, _: torch.cat([latents, latents], dim=1), NOISE, 8)


@pytest.mark.parametrize("name", NAMES)
def test_noising_is_that_of_the_scheduler(name: ObjectiveName) -> None:
    objective = create_objective(name)
    scheduler = objective.steps(20)
    for place in (0, 7, 19):
        timesteps = scheduler.timesteps[place].expand(8)
        ours = objective.noised(IMAGE.expand_as(NOISE), NOISE, objective.times_of(timesteps))
        torch.testing.assert_close(ours.latents, scheduler.add_noise(IMAGE.expand_as(NOISE), NOISE, timesteps))
        torch.testing.assert_close(ours.timesteps.double(), timesteps.double(), rtol=1e-6, atol=0)


def test_velocity_is_that_of_diffusers() -> None:
    objective, times = create_objective("velocity"), torch.tensor([0, 1, 10, 250, 500, 900, 998, 999])
    ours = objective.noised(IMAGE.expand_as(NOISE), NOISE, times)
    torch.testing.assert_close(
        ours.target, objective.scheduler().get_velocity(IMAGE.expand_as(NOISE), NOISE, times), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_finite_at_both_ends_of_the_schedule(name: ObjectiveName) -> None:
    objective = create_objective(name)
    ends = torch.tensor([0.0, 1.0]) if name == "flow" else torch.tensor([0, 999])
    noised = objective.noised(IMAGE.expand(2, -1, -1, -1), NOISE[:2], ends)
    assert all(bool(part.isfinite().all()) for part in noised)
    assert bool((noised.weight >= 0).all())


def test_min_snr_by_hand() -> None:
    """Signal-to-noise ratios infinite, 9, 1 and 0."""
    kept = torch.tensor([1.0, 0.9, 0.5, 0.0])
    velocity = DiffusionProcess(kept, "v_prediction", gamma=5.0).weight(kept)
    torch.testing.assert_close(velocity, torch.tensor([0.0, 5 / 10, 1 / 2, 0.0]))
    epsilon = DiffusionProcess(kept, "epsilon", gamma=5.0).weight(kept)
    torch.testing.assert_close(epsilon, torch.tensor([0.0, 5 / 9, 1.0, 1.0]))


def test_times_are_drawn_as_the_objective_wants_them() -> None:
    draw = torch.Generator().manual_seed(4)
    shares = create_objective("flow").times(20_000, generator=draw)
    assert float(shares.logit().mean()) == pytest.approx(0.0, abs=0.03)
    assert float(shares.logit().std()) == pytest.approx(1.0, abs=0.03)
    whole = create_objective("epsilon").times(20_000, generator=draw)
    assert (int(whole.min()), int(whole.max())) == (0, 999)

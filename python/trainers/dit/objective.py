"""Training objectives: one object defines noising, target, loss weight, times and sampler.

A network is therefore only sampled at noise levels that it was trained on. A scheduler of another class or with other
settings is an error; there is no fallback.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, final

import numpy as np
import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
from torch import Tensor

from trainers.dit.errors import SchedulerError
from trainers.dit.recipe import ObjectiveName

TIME_TOLERANCE: float = 0.01
"""Times that differ by less than this are equal: they are whole numbers, stored in 32 bits."""


class NoisedLatents(NamedTuple):
    """Inputs and targets of a network.

    Attributes:
        latents: Noised latents, float [N, channels, height, width].
        target: Target of the prediction, of the same shape.
        weight: Loss weight of each sample, float [N].
        timesteps: Timesteps that the network reads, [N].
    """

    latents: Tensor
    target: Tensor
    weight: Tensor
    timesteps: Tensor


@final
@dataclass(frozen=True)
class FlowMatching:
    """Straight line from latents to noise, whose direction the network predicts; times are from 0 to 1.

    Attributes:
        units: Timestep of the network at time 1, without the offset.
        shift: Shift towards noise: at time t, the fraction of noise is shift · t / (shift · t + 1 - t).
        offset: Offset of the network's timesteps.
    """

    units: int
    shift: float = 1.0
    offset: int = 0

    def times(
        self, count: int, *, device: torch.device | str = "cpu", generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw logit-normal times, float32 [count], which favour the middle, where prediction is hardest."""
        return torch.randn(count, generator=generator, device=device).sigmoid()

    def times_of(self, timesteps: Tensor) -> Tensor:
        """Convert timesteps of the network, [N], to times, float32 [N]."""
        return (timesteps.float() - self.offset) / self.units

    def network_timesteps(self, timesteps: Tensor) -> Tensor:
        """Convert timesteps of a scheduler to those of the network, both [N]."""
        return timesteps + self.offset

    def noise_fraction(self, times: Tensor) -> Tensor:
        """Fraction of noise at times, float [N]."""
        return self.shift * times / (self.shift * times + 1 - times)

    def noised(self, latents: Tensor, noise: Tensor, times: Tensor) -> NoisedLatents:
        """Mix latents and noise, both float [N, channels, height, width], at times, float [N]."""
        fraction = add_dimensions(self.noise_fraction(times))
        mixed = (1 - fraction) * latents + fraction * noise
        return NoisedLatents(mixed, noise - latents, torch.ones_like(times), times * self.units + self.offset)

    def is_exact(self, scheduler: Any, steps: int) -> bool:  # noqa: ARG002  the scheduler's times suffice
        """Whether the scheduler's timesteps, which are whole numbers, match its noise levels exactly."""
        times, noise = scheduler.timesteps.double() / self.units, scheduler.sigmas[:-1].double()
        return (
            len(times) == len(noise)
            and float((self.noise_fraction(times) - noise).abs().max()) * self.units < TIME_TOLERANCE
        )


@final
@dataclass(frozen=True)
class DiffusionProcess:
    """Variance-preserving diffusion; times are whole numbers from 0.

    Attributes:
        signal_share: Fraction of the variance that is from the latents at each time, float32 [times], decreasing;
            may include 0 and 1.
        predicts: Target: noise or velocity.
        gamma: min-SNR-gamma, which bounds the weight of times with little noise; None weights all times equally.
    """

    signal_share: Tensor
    predicts: Literal["epsilon", "v_prediction"]
    gamma: float | None = None

    def times(
        self, count: int, *, device: torch.device | str = "cpu", generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw uniform times, int64 [count]."""
        return torch.randint(len(self.signal_share), (count,), generator=generator, device=device)

    def times_of(self, timesteps: Tensor) -> Tensor:
        """Return the timesteps, int64 [N]: they are the times."""
        return timesteps.long()

    def network_timesteps(self, timesteps: Tensor) -> Tensor:
        """Return the timesteps of the scheduler, int64 [N], unchanged."""
        return timesteps

    def noised(self, latents: Tensor, noise: Tensor, times: Tensor) -> NoisedLatents:
        """Mix latents and noise, both float [N, channels, height, width], at times, int64 [N]."""
        share = self.signal_share.to(latents.device)[times]
        signal, spread = add_dimensions(share.sqrt()), add_dimensions((1 - share).sqrt())
        target = noise if self.predicts == "epsilon" else signal * noise - spread * latents
        return NoisedLatents(signal * latents + spread * noise, target, self.weight(share), times)

    def weight(self, share: Tensor) -> Tensor:
        """Loss weights at fractions of latents in the variance, float32 [N]; finite at 0 and 1.

        With the signal-to-noise ratio s = share / (1 - share), errors of the latents have weight min(s, gamma). Errors
        of the noise therefore have min(s, gamma) / s, and errors of the velocity min(s, gamma) / (s + 1).
        """
        if self.gamma is None:
            return torch.ones_like(share)
        bounded = torch.minimum(share, self.gamma * (1 - share))  # min(s, gamma) / (s + 1), finite at 1
        return bounded if self.predicts == "v_prediction" else torch.where(share > 0, bounded / share, 1.0)

    def is_exact(self, scheduler: Any, steps: int) -> bool:
        """Whether all steps have the same length, so that each ends where the next begins."""
        return len(scheduler.timesteps) == steps and len(self.signal_share) % steps == 0


NoiseProcess = FlowMatching | DiffusionProcess
"""Noising, target and loss weight, without a sampler."""


def add_dimensions(values: Tensor) -> Tensor:
    """[N] as [N, 1, 1, 1]."""
    return values[:, None, None, None]


Predict = Callable[[Tensor, Tensor], Tensor]
"""Predicts for latents, float [N, channels, height, width], at timesteps [N]; same shape as the latents."""


FLOW_UNITS: Final = 1921
"""Number of timesteps of the flow sampler.

The sampler truncates timesteps to whole numbers. With this number, many step counts (8, 10, 12, 15, 16, 20, 24, 30,
40, …) are exact; with 1,000, only one step is.
"""


MAX_STEPS: Final = 200
"""Largest step count that a message suggests."""


_DIFFUSION: Final[Mapping[str, Any]] = MappingProxyType(
    {"num_train_timesteps": 1000, "clip_sample": False, "timestep_spacing": "trailing"}
)


UNSUPPORTED: Final = (
    "shift_terminal",
    "invert_sigmas",
    "use_karras_sigmas",
    "use_exponential_sigmas",
    "use_beta_sigmas",
    "stochastic_sampling",
)
"""Scheduler settings that would change the noise levels."""


@final
class DiffusionObjective:
    """Noising, target, loss weight, times and sampler of an objective.

    Args:
        name: Name of the objective.
        process: Noising, target and loss weight.
        scheduler: Diffusers scheduler that reverses the process; only its configuration is kept.
        timetable: Sets the number of steps of a scheduler, as the pipeline of the model does.

    Attributes:
        name: As given.
    """

    def __init__(
        self,
        name: str,
        process: NoiseProcess,
        scheduler: Any,
        timetable: Callable[[Any, int], None] = lambda scheduler, steps: scheduler.set_timesteps(steps),
    ) -> None:
        self.name = name
        self._process = process
        self._timetable = timetable
        self._kind: Any = type(scheduler)
        self._settings = read_settings(scheduler)

    def scheduler(self) -> Any:
        """Create the scheduler that samples and that is saved with the model."""
        return self._kind.from_config(self._settings)

    def times(
        self, count: int, *, device: torch.device | str = "cpu", generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw training times, [count]: 0 to 1 for flow matching, else whole numbers.

        Args:
            count: Number of times.
            device: Device of the times.
            generator: Random generator; None for torch's default.
        """
        return self._process.times(count, device=device, generator=generator)

    def times_of(self, timesteps: Tensor) -> Tensor:
        """Convert timesteps of the network to times, both [N]."""
        return self._process.times_of(timesteps)

    def noised(self, latents: Tensor, noise: Tensor, times: Tensor) -> NoisedLatents:
        """Compute inputs and targets of a network.

        Args:
            latents: float [N, channels, height, width].
            noise: Standard normal noise of the same shape.
            times: Times as drawn by `times`, [N].
        """
        return self._process.noised(latents, noise, times)

    def steps(self, count: int) -> Any:
        """Create a scheduler with that many steps.

        Raises:
            SchedulerError: The scheduler would round the timesteps, which then would not match the noise levels.
        """
        scheduler = self.scheduler()
        self._timetable(scheduler, count)
        if not self._process.is_exact(scheduler, count):
            exact = [number for number in range(1, MAX_STEPS + 1) if self._can_take(number)]
            nearest = *[n for n in exact if n < count][-1:], *[n for n in exact if n > count][:1]
            raise SchedulerError(
                f"{count} steps of {_describe(self._kind, self._settings)} have timesteps that are not whole numbers; "
                f"use {' or '.join(map(str, nearest))}"
            )
        return scheduler

    @torch.no_grad()
    def sample(self, predict: Predict, noise: Tensor, steps: int) -> Tensor:
        """Sample latents, float32 [N, channels, height, width].

        Args:
            predict: Network, including guidance.
            noise: Standard normal noise, of the shape of the latents.
            steps: Number of steps.

        Raises:
            SchedulerError: The scheduler cannot take that many steps exactly, or a prediction has the wrong shape.
        """
        scheduler = self.steps(steps)
        latents = noise  # these schedulers scale neither noise nor inputs
        for time in scheduler.timesteps:
            timesteps = self._process.network_timesteps(time[None]).to(noise.device).expand(len(latents))
            prediction = predict(latents, timesteps)
            if prediction.shape != latents.shape:
                raise SchedulerError(
                    f"the network predicts {list(prediction.shape)} for latents {list(latents.shape)}; objective "
                    f"{self.name} needs the same shape"
                )
            latents = scheduler.step(prediction, time, latents, return_dict=False)[0]
        return latents

    def check(self, scheduler: Any) -> None:
        """Check that a scheduler matches this objective.

        Raises:
            SchedulerError: Its class or a setting differs; the message names both values.
        """
        kind, differences = type(scheduler), self._find_differences(scheduler)
        if kind is not self._kind:
            raise SchedulerError(
                f"{kind.__name__} is not the sampler of objective {self.name}, which is {self._kind.__name__}; use "
                "the objective that the network was trained with"
            )
        if differences:
            raise SchedulerError(
                f"this {kind.__name__} is not that of objective {self.name}: "
                + "; ".join(f"{name} is {other!r}, expected {expected!r}" for name, other, expected in differences)
            )

    def matches(self, scheduler: Any) -> bool:
        """Whether a scheduler matches this objective."""
        return type(scheduler) is self._kind and not self._find_differences(scheduler)

    def __str__(self) -> str:
        """Name and scheduler, for messages."""
        return f"{self.name} ({_describe(self._kind, self._settings)})"

    def _find_differences(self, scheduler: Any) -> list[tuple[str, Any, Any]]:
        """Differing settings: name, value of the scheduler, value of this objective."""
        others = read_settings(scheduler)
        names = sorted(others.keys() | self._settings.keys())
        pairs = ((name, others.get(name), self._settings.get(name)) for name in names)
        return [(name, other, expected) for name, other, expected in pairs if other != expected]

    def _can_take(self, count: int) -> bool:
        scheduler = self.scheduler()
        self._timetable(scheduler, count)
        return self._process.is_exact(scheduler, count)


def read_settings(scheduler: Any) -> dict[str, Any]:
    """Settings of a scheduler, without metadata such as its class name."""
    return {name: value for name, value in scheduler.config.items() if not name.startswith("_")}


def create_objective(name: ObjectiveName) -> DiffusionObjective:
    """Create an objective by name.

    - flow: flow matching, sampled by a second-order multistep solver;
    - epsilon: noise prediction, with linear betas;
    - velocity: velocity prediction, with the cosine schedule and min-SNR-5.
    """
    if name == "flow":
        # Not FlowMatchEulerDiscreteScheduler: it lacks init_noise_sigma, which PixArt's pipeline reads.
        solver = DPMSolverMultistepScheduler(
            num_train_timesteps=FLOW_UNITS, prediction_type="flow_prediction", use_flow_sigmas=True
        )
        return DiffusionObjective(name, FlowMatching(FLOW_UNITS), solver)
    if name == "epsilon":
        line = DDIMScheduler(beta_schedule="linear", **_DIFFUSION)
        return DiffusionObjective(name, DiffusionProcess(line.alphas_cumprod, "epsilon"), line)
    cosine = DDIMScheduler(beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction", **_DIFFUSION)
    return DiffusionObjective(name, DiffusionProcess(cosine.alphas_cumprod, "v_prediction", gamma=5.0), cosine)


def create_objectives() -> Iterator[DiffusionObjective]:
    """All named objectives."""
    names: tuple[ObjectiveName, ...] = ("flow", "epsilon", "velocity")
    return (create_objective(name) for name in names)


def build_glm_objective(scheduler: Any, patches: int) -> DiffusionObjective:
    """Flow matching as sampled by GLM-Image's scheduler.

    Its pipeline passes unshifted timesteps, less one; the noise is shifted, more for larger images.

    Args:
        scheduler: A `FlowMatchEulerDiscreteScheduler`.
        patches: Patches of an image.

    Raises:
        SchedulerError: The scheduler is another, or has a setting that changes the noise levels.
    """
    settings = read_settings(scheduler)
    unsupported = [name for name in UNSUPPORTED if settings.get(name)]
    if type(scheduler).__name__ != "FlowMatchEulerDiscreteScheduler" or unsupported:
        raise SchedulerError(
            f"{type(scheduler).__name__}{f' with {unsupported}' if unsupported else ''} is not the sampler of "
            "GLM-Image, which is FlowMatchEulerDiscreteScheduler with a plain shift"
        )
    units = int(settings["num_train_timesteps"])
    mu = math.sqrt(patches / settings["base_image_seq_len"]) * settings["max_shift"] + settings["base_shift"]
    if not settings["use_dynamic_shifting"]:
        shift = float(settings["shift"])
    else:
        shift = math.exp(mu) if settings["time_shift_type"] == "exponential" else mu
    process = FlowMatching(units, shift=shift, offset=-1)
    return DiffusionObjective("glm-flow", process, scheduler, partial(_set_timesteps, units=units, mu=mu))


def _set_timesteps(scheduler: Any, steps: int, *, units: int, mu: float) -> None:
    """Set evenly spaced whole timesteps; each, relative to `units`, is also the noise level before shifting."""
    times = np.linspace(units, 1.0, steps + 1)[:-1].astype(np.int64).astype(np.float32)
    scheduler.set_timesteps(steps, timesteps=times, sigmas=times / units, mu=mu)


def find_objective(scheduler: Any) -> DiffusionObjective:
    """Find the objective that matches a scheduler.

    Raises:
        SchedulerError: No objective matches; the message names the supported schedulers.
    """
    objectives = list(create_objectives())
    match = next((candidate for candidate in objectives if candidate.matches(scheduler)), None)
    if match is None:
        raise SchedulerError(
            f"{_describe(type(scheduler), read_settings(scheduler))} is not the sampler of an objective: "
            f"{'; '.join(map(str, objectives))}. Replace it by the one that the network was trained with"
        )
    return match


def _describe(kind: Any, settings: Mapping[str, Any]) -> str:
    """Class of a scheduler with those settings that determine sampling, for messages."""
    names = ("num_train_timesteps", "prediction_type", "use_flow_sigmas", "shift", "flow_shift", "beta_schedule")
    values = ", ".join(f"{name}={settings[name]!r}" for name in names if settings.get(name) not in (None, False))
    return f"{kind.__name__}({values})"

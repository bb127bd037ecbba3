"""What a network learns, and how images are drawn by it: one object owns noising, target, weight, times and sampler.

So a network is never asked at a noise that it has not learnt. A scheduler of another kind, or of other settings, is an
error that names both; nothing falls back on a schedule of its own.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol, final

import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
from torch import Tensor

from trainers.dit.errors import SchedulerError
from trainers.dit.recipe import ObjectiveName

EXACT: float = 0.01
"""Times that differ by less than this are the same: they count in ones, and are kept in 32 bits."""


class NoisedLatents(NamedTuple):
    """What a network is given, and what it has to say.

    Attributes:
        latents: with noise, float [N, channels, height, width].
        target: what it has to predict of them, of the same shape.
        weight: of each sample in the loss, float [N].
        timesteps: what it is told of the time, [N].
    """

    latents: Tensor
    target: Tensor
    weight: Tensor
    timesteps: Tensor


class NoiseProcess(Protocol):
    """Noising, target and weight; no sampler."""

    def times(self, count: int, *, device: torch.device | str, generator: torch.Generator | None) -> Tensor:
        """Draw times to train at: [count], in the process's own measure."""
        ...

    def times_of(self, timesteps: Tensor) -> Tensor:
        """The times, [N], of what a network is told, [N]."""
        ...

    def told(self, timesteps: Tensor) -> Tensor:
        """What a network is told at a scheduler's timesteps, [N]."""
        ...

    def noised(self, latents: Tensor, noise: Tensor, times: Tensor) -> NoisedLatents:
        """Latents and noise, both float [N, channels, height, width], at times, [N]."""
        ...

    def agrees(self, scheduler: Any, steps: int) -> bool:
        """Whether a scheduler that has been set to so many steps goes through times of this process, exactly."""
        ...


@final
@dataclass(frozen=True)
class FlowMatching:
    """A straight line from latents to noise; the network predicts its direction. Times are from 0 to 1.

    Attributes:
        units: what the network is told of time 1, but for the offset.
        shift: how much sooner there is more noise than latents: at a time t, noise has the share
            shift · t / (shift · t + 1 - t).
        offset: what is added to what the network is told.
    """

    units: int
    shift: float = 1.0
    offset: int = 0

    def times(
        self, count: int, *, device: torch.device | str = "cpu", generator: torch.Generator | None = None
    ) -> Tensor:
        """Logit-normal times, float32 [count]: the middle, where it is hardest, more often than the ends."""
        return torch.randn(count, generator=generator, device=device).sigmoid()

    def times_of(self, timesteps: Tensor) -> Tensor:
        """Times, float32 [N], of timesteps [N]."""
        return (timesteps.float() - self.offset) / self.units

    def told(self, timesteps: Tensor) -> Tensor:
        """What the network is told at a scheduler's timesteps, [N]."""
        return timesteps + self.offset

    def share(self, times: Tensor) -> Tensor:
        """Of noise at times, float [N]."""
        return self.shift * times / (self.shift * times + 1 - times)

    def noised(self, latents: Tensor, noise: Tensor, times: Tensor) -> NoisedLatents:
        """Latents and noise, float [N, channels, height, width], mixed as at times, float [N]."""
        share = _wide(self.share(times))
        mixed = (1 - share) * latents + share * noise
        return NoisedLatents(mixed, noise - latents, torch.ones_like(times), times * self.units + self.offset)

    def agrees(self, scheduler: Any, steps: int) -> bool:  # noqa: ARG002  the scheduler's own times tell
        """Whether its timesteps, which are whole numbers, say exactly how much noise it takes there to be."""
        told, taken = scheduler.timesteps.double() / self.units, scheduler.sigmas[:-1].double()
        return len(told) == len(taken) and float((self.share(told) - taken).abs().max()) * self.units < EXACT


@final
@dataclass(frozen=True)
class DiffusionProcess:
    """Noise whose variance and that of the latents add up to one. Times are whole numbers from 0.

    Attributes:
        kept: the latents' share of the variance at each time, float32 [times], falling; 0 and 1 may be among them.
        predicts: the noise, or the velocity.
        gamma: min-SNR-gamma, which bounds the weight of times of little noise; None weighs all times alike.
    """

    kept: Tensor
    predicts: Literal["epsilon", "v_prediction"]
    gamma: float | None = None

    def times(
        self, count: int, *, device: torch.device | str = "cpu", generator: torch.Generator | None = None
    ) -> Tensor:
        """Every time as often as any other: int64 [count]."""
        return torch.randint(len(self.kept), (count,), generator=generator, device=device)

    def times_of(self, timesteps: Tensor) -> Tensor:
        """The timesteps, int64 [N], themselves."""
        return timesteps.long()

    def told(self, timesteps: Tensor) -> Tensor:
        """The scheduler's timesteps, int64 [N], themselves."""
        return timesteps

    def noised(self, latents: Tensor, noise: Tensor, times: Tensor) -> NoisedLatents:
        """Latents and noise, float [N, channels, height, width], mixed as at times, int64 [N]."""
        kept = self.kept.to(latents.device)[times]
        signal, spread = _wide(kept.sqrt()), _wide((1 - kept).sqrt())
        target = noise if self.predicts == "epsilon" else signal * noise - spread * latents
        return NoisedLatents(signal * latents + spread * noise, target, self.weight(kept), times)

    def weight(self, kept: Tensor) -> Tensor:
        """Of samples whose latents keep these shares of the variance, float32 [N]; finite for 0 and for 1.

        With the signal-to-noise ratio s = kept / (1 - kept), errors of the latents weigh min(s, gamma), so those of the
        noise min(s, gamma) / s and those of the velocity min(s, gamma) / (s + 1).
        """
        if self.gamma is None:
            return torch.ones_like(kept)
        bounded = torch.minimum(kept, self.gamma * (1 - kept))  # min(s, gamma) / (s + 1), without the quotient
        return bounded if self.predicts == "v_prediction" else torch.where(kept > 0, bounded / kept, 1.0)

    def agrees(self, scheduler: Any, steps: int) -> bool:
        """Whether the steps are all of one length, so that each ends at the time at which the next begins."""
        return len(scheduler.timesteps) == steps and len(self.kept) % steps == 0


def _wide(values: Tensor) -> Tensor:
    """[N] as [N, 1, 1, 1]."""
    return values[:, None, None, None]


Predict = Callable[[Tensor, Tensor], Tensor]
"""What a network says of latents, float [N, channels, height, width], at timesteps [N]; of the latents' shape."""


FLOW_UNITS: Final = 1921
"""Times of the flow's sampler.

It counts in whole numbers and cuts off what is behind the point; of this many times, many numbers of steps (8, 10, 12,
15, 16, 20, 24, 30, 40, …) lose nothing by that, where of 1,000 only one step does not.
"""


MOST_STEPS: Final = 200
"""Numbers of steps up to this are looked through for those that a message names."""


_DIFFUSION: Final[Mapping[str, Any]] = MappingProxyType(
    {"num_train_timesteps": 1000, "clip_sample": False, "timestep_spacing": "trailing"}
)


def _own_timetable(scheduler: Any, steps: int) -> None:
    scheduler.set_timesteps(steps)


@final
class DiffusionObjective:
    """Noising, target, weight, times and sampler, of one piece.

    Args:
        name: of the objective.
        process: noising, target and weight.
        scheduler: a scheduler of diffusers' that undoes it; its configuration is kept, not itself.
        timetable: sets a scheduler to so many steps, as the pipeline of the model does.

    Attributes:
        name: as given.
    """

    def __init__(
        self, name: str, process: NoiseProcess, scheduler: Any, timetable: Callable[[Any, int], None] = _own_timetable
    ) -> None:
        self.name = name
        self._process = process
        self._timetable = timetable
        self._kind: Any = type(scheduler)
        self._settings = settings_of(scheduler)

    def scheduler(self) -> Any:
        """The scheduler, fresh: the one that samples here, and that is saved beside the model."""
        return self._kind.from_config(self._settings)

    def times(
        self, count: int, *, device: torch.device | str = "cpu", generator: torch.Generator | None = None
    ) -> Tensor:
        """Times to train at, [count]: shares of noise for flow matching, else whole numbers.

        Args:
            count: how many.
            device: where they are drawn.
            generator: None for torch's own.
        """
        return self._process.times(count, device=device, generator=generator)

    def times_of(self, timesteps: Tensor) -> Tensor:
        """The times, [N], of the timesteps, [N], that a network is told."""
        return self._process.times_of(timesteps)

    def noised(self, latents: Tensor, noise: Tensor, times: Tensor) -> NoisedLatents:
        """What a network is given and has to say.

        Args:
            latents: float [N, channels, height, width].
            noise: of the same shape, from the standard normal distribution.
            times: [N], as `times` draws them.
        """
        return self._process.noised(latents, noise, times)

    def steps(self, count: int) -> Any:
        """A fresh scheduler, set to so many steps.

        Raises:
            SchedulerError: it would round the times of so many, so that the network is asked at others than it is told.
        """
        scheduler = self.scheduler()
        self._timetable(scheduler, count)
        if not self._process.agrees(scheduler, count):
            raise SchedulerError(
                f"{count} steps of {_named(self._kind, self._settings)} do not fall on whole times, which the network "
                f"is told; use {self._neighbours(count)}"
            )
        return scheduler

    @torch.no_grad()
    def sample(self, predict: Predict, noise: Tensor, steps: int) -> Tensor:
        """Latents, float32 [N, channels, height, width], from noise of that shape.

        Args:
            predict: the network, guidance included.
            noise: from the standard normal distribution.
            steps: how many times the network is asked.

        Raises:
            SchedulerError: the scheduler cannot take exactly so many steps, or the network says something of another
                shape.
        """
        scheduler = self.steps(steps)
        latents = noise  # none of these schedulers scales it, nor what the network is given
        for time in scheduler.timesteps:
            told = self._process.told(time[None]).to(noise.device).expand(len(latents))
            said = predict(latents, told)
            if said.shape != latents.shape:
                raise SchedulerError(
                    f"the network says {list(said.shape)} of latents {list(latents.shape)}; objective {self.name} "
                    "needs one number for each of theirs"
                )
            latents = scheduler.step(said, time, latents, return_dict=False)[0]
        return latents

    def check(self, scheduler: Any) -> None:
        """Check that a scheduler is this objective's.

        Raises:
            SchedulerError: it is of another kind or has other settings; the message names both.
        """
        given, differing = type(scheduler), self._differing(scheduler)
        if given is not self._kind:
            raise SchedulerError(
                f"{given.__name__} is not the sampler of objective {self.name}, which is {self._kind.__name__}: what "
                "the network has learnt and what it would be asked are two things"
            )
        if differing:
            raise SchedulerError(
                f"this {given.__name__} is not the one of objective {self.name}: "
                + "; ".join(f"{name} is {other!r}, not {own!r}" for name, other, own in differing)
            )

    def is_of(self, scheduler: Any) -> bool:
        """Whether a scheduler is this objective's."""
        return type(scheduler) is self._kind and not self._differing(scheduler)

    def __str__(self) -> str:
        """Its name and its scheduler, for messages."""
        return f"{self.name} ({_named(self._kind, self._settings)})"

    def _differing(self, scheduler: Any) -> list[tuple[str, Any, Any]]:
        """Settings that a scheduler has otherwise: name, its value, and this objective's."""
        given = settings_of(scheduler)
        names = sorted(given.keys() | self._settings.keys())
        pairs = ((name, given.get(name), self._settings.get(name)) for name in names)
        return [(name, other, own) for name, other, own in pairs if other != own]

    def _neighbours(self, count: int) -> str:
        """The next numbers of steps below and above that can be taken."""
        good = [number for number in range(1, MOST_STEPS + 1) if self._can_take(number)]
        below, above = [n for n in good if n < count], [n for n in good if n > count]
        return " or ".join(str(number) for number in (*below[-1:], *above[:1]))

    def _can_take(self, count: int) -> bool:
        scheduler = self.scheduler()
        self._timetable(scheduler, count)
        return self._process.agrees(scheduler, count)


def settings_of(scheduler: Any) -> dict[str, Any]:
    """What a scheduler is set to, without what only says where it comes from."""
    return {name: value for name, value in scheduler.config.items() if not name.startswith("_")}


def objective_of(name: ObjectiveName) -> DiffusionObjective:
    """An objective by its name.

    - flow: flow matching, sampled by a multistep solver of the second order;
    - epsilon: the noise, with betas on a line;
    - velocity: the velocity, with the cosine schedule and min-SNR-5.
    """
    if name == "flow":
        # Not FlowMatchEulerDiscreteScheduler: PixArt's pipeline asks for init_noise_sigma, which that has not.
        solver = DPMSolverMultistepScheduler(
            num_train_timesteps=FLOW_UNITS, prediction_type="flow_prediction", use_flow_sigmas=True
        )
        return DiffusionObjective(name, FlowMatching(FLOW_UNITS), solver)
    if name == "epsilon":
        line = DDIMScheduler(beta_schedule="linear", **_DIFFUSION)
        return DiffusionObjective(name, DiffusionProcess(line.alphas_cumprod, "epsilon"), line)
    cosine = DDIMScheduler(beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction", **_DIFFUSION)
    return DiffusionObjective(name, DiffusionProcess(cosine.alphas_cumprod, "v_prediction", gamma=5.0), cosine)


def objectives() -> Iterator[DiffusionObjective]:
    """All that have a name."""
    names: tuple[ObjectiveName, ...] = ("flow", "epsilon", "velocity")
    return (objective_of(name) for name in names)


def objective_for(scheduler: Any) -> DiffusionObjective:
    """The objective that a scheduler samples.

    Raises:
        SchedulerError: it is none's; the message names it and theirs.
    """
    known = list(objectives())
    found = next((one for one in known if one.is_of(scheduler)), None)
    if found is None:
        raise SchedulerError(
            f"{_named(type(scheduler), settings_of(scheduler))} is the sampler of no objective here: "
            f"{'; '.join(map(str, known))}. Replace it by the one that the network has been trained for"
        )
    return found


def _named(kind: Any, settings: Mapping[str, Any]) -> str:
    """A kind of scheduler with the settings that decide what is sampled, those that are off left out."""
    telling = ("num_train_timesteps", "prediction_type", "use_flow_sigmas", "shift", "flow_shift", "beta_schedule")
    told = ", ".join(f"{name}={settings[name]!r}" for name in telling if settings.get(name) not in (None, False))
    return f"{kind.__name__}({told})"

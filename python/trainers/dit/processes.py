"""How noise is added to latents, and what a network learns to predict of them.

- Flow matching: Lipman et al., "Flow matching for generative modeling" (2023); times as in Esser et al., "Scaling
  rectified flow transformers" (2024).
- Denoising diffusion: Ho et al. (2020); velocities: Salimans & Ho (2022); weights: Hang et al., "Efficient diffusion
  training via min-SNR weighting strategy" (2023).
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, final

import torch
from torch import Tensor

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

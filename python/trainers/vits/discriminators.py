"""What tells recorded from synthesised waves: multi-period and scale discriminators.

Kong, Kim & Bae, "HiFi-GAN" (2020), section 2.3; VITS takes those of five periods and that of one scale.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

PERIODS: Final = (2, 3, 5, 7, 11)
SLOPE: Final = 0.1


class DiscriminatorOutput(NamedTuple):
    """What discriminators say of waves.

    Attributes:
        verdicts: of each discriminator, float [N, places]; 1 stands for recorded, 0 for synthesised.
        features: of all layers of all discriminators, float [N, …].
    """

    verdicts: list[Tensor]
    features: list[Tensor]


@final
class PeriodDiscriminator(nn.Module):
    """Looks at every sample of one period together.

    Args:
        period: in samples.
        channels: of its layers.
    """

    def __init__(self, period: int, channels: Sequence[int]) -> None:
        super().__init__()
        self._period = period
        widths = [1, *channels]
        strides = [3] * (len(channels) - 1) + [1]
        self.layers = nn.ModuleList(
            weight_norm(nn.Conv2d(before, after, (5, 1), (stride, 1), (2, 0)))
            for before, after, stride in zip(widths, channels, strides, strict=False)
        )
        self.verdict = weight_norm(nn.Conv2d(channels[-1], 1, (3, 1), padding=(1, 0)))

    def forward(self, waves: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Verdicts, float [N, places], and the features of each layer; waves are float [N, T]."""
        missing = -waves.shape[-1] % self._period
        padded = functional.pad(waves[:, None], (0, missing), mode="reflect")
        return _through(self.layers, self.verdict, padded.unflatten(-1, (-1, self._period)))


@final
class ScaleDiscriminator(nn.Module):
    """Looks at waves as they are, by grouped convolutions of growing stride.

    Args:
        channels: of its layers; the first is dense, the others have up to 16 groups.
    """

    def __init__(self, channels: Sequence[int]) -> None:
        super().__init__()
        first, *rest = channels
        layers = [weight_norm(nn.Conv1d(1, first, 15, padding=7))]
        for before, after in zip(channels, rest, strict=False):
            layers.append(weight_norm(nn.Conv1d(before, after, 41, 4, padding=20, groups=min(16, before))))
        layers.append(weight_norm(nn.Conv1d(channels[-1], channels[-1], 5, padding=2)))
        self.layers = nn.ModuleList(layers)
        self.verdict = weight_norm(nn.Conv1d(channels[-1], 1, 3, padding=1))

    def forward(self, waves: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Verdicts, float [N, places], and the features of each layer; waves are float [N, T]."""
        return _through(self.layers, self.verdict, waves[:, None])


def _through(layers: nn.ModuleList, verdict: nn.Module, values: Tensor) -> tuple[Tensor, list[Tensor]]:
    features: list[Tensor] = []
    for layer in layers:
        values = functional.leaky_relu(layer(values), SLOPE)
        features.append(values)
    values = verdict(values)
    return values.flatten(1), [*features, values]


@final
class Discriminators(nn.Module):
    """All of them together.

    Args:
        channels: of the layers of each; multiples of 16 but for the first.
    """

    def __init__(self, channels: Sequence[int]) -> None:
        super().__init__()
        self.each = nn.ModuleList(
            [ScaleDiscriminator(channels), *(PeriodDiscriminator(period, channels) for period in PERIODS)]
        )

    def forward(self, waves: Tensor) -> DiscriminatorOutput:
        """What each says of waves, float [N, T]."""
        answers = [discriminator(waves) for discriminator in self.each]
        return DiscriminatorOutput(
            [verdicts for verdicts, _ in answers], [one for _, features in answers for one in features]
        )


def discrimination_loss(recorded: DiscriminatorOutput, synthesised: DiscriminatorOutput) -> Tensor:
    """Least squares: recorded waves should be judged 1 and synthesised ones 0; a scalar, summed over discriminators."""
    pairs = zip(recorded.verdicts, synthesised.verdicts, strict=True)
    return _total([(1 - real).square().mean() + fake.square().mean() for real, fake in pairs])


def adversarial_loss(synthesised: DiscriminatorOutput) -> Tensor:
    """Least squares: synthesised waves should be judged 1; a scalar, summed over discriminators."""
    return _total([(1 - fake).square().mean() for fake in synthesised.verdicts])


def matching_loss(recorded: DiscriminatorOutput, synthesised: DiscriminatorOutput) -> Tensor:
    """Distance of the features of recorded and synthesised waves; a scalar, summed over all layers."""
    pairs = zip(recorded.features, synthesised.features, strict=True)
    return _total([functional.l1_loss(fake, real) for real, fake in pairs])


def _total(losses: list[Tensor]) -> Tensor:
    return torch.stack([loss.float() for loss in losses]).sum()

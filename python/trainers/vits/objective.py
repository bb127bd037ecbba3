"""VITS losses: reconstruction, divergence, duration and adversarial terms (Kim, Kong & Son 2021, section 2).

The posterior encoder reads the recording, and the flow maps its latents to those that the text encoder predicts. The
alignment of the two gives the token durations. A random slice of the latents is decoded and compared with the same
slice of the recording. The term weights are the paper's.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm
from transformers import VitsModel

from trainers.loop import Loss, Term, full_precision
from trainers.vits.batches import UtteranceBatch
from trainers.vits.spectrum import FrameSettings, log_mel_of

PERIODS: Final = (2, 3, 5, 7, 11)

SLOPE: Final = 0.1


class DiscriminatorOutput(NamedTuple):
    """Outputs of discriminators.

    Attributes:
        verdicts: Output of each discriminator, float [N, positions]; 1 is recorded, 0 is synthesised.
        features: Features of all layers of all discriminators, float [N, …].
    """

    verdicts: list[Tensor]
    features: list[Tensor]


@final
class PeriodDiscriminator(nn.Module):
    """Discriminates waves folded by a period.

    Args:
        period: Period in samples.
        channels: Channels of the layers.
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
        """Verdicts, float [N, positions], and the features of each layer; waves are float [N, T]."""
        missing = -waves.shape[-1] % self._period
        padded = functional.pad(waves[:, None], (0, missing), mode="reflect")
        return _apply_layers(self.layers, self.verdict, padded.unflatten(-1, (-1, self._period)))


@final
class ScaleDiscriminator(nn.Module):
    """Discriminates unfolded waves with grouped, strided convolutions.

    Args:
        channels: Channels of the layers; the first is dense, the others have up to 16 groups.
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
        """Verdicts, float [N, positions], and the features of each layer; waves are float [N, T]."""
        return _apply_layers(self.layers, self.verdict, waves[:, None])


def _apply_layers(layers: nn.ModuleList, verdict: nn.Module, values: Tensor) -> tuple[Tensor, list[Tensor]]:
    features: list[Tensor] = []
    for layer in layers:
        values = functional.leaky_relu(layer(values), SLOPE)
        features.append(values)
    values = verdict(values)
    return values.flatten(1), [*features, values]


@final
class Discriminators(nn.Module):
    """The scale discriminator and all period discriminators.

    Args:
        channels: Channels of the layers of each; multiples of 16 except the first.
    """

    def __init__(self, channels: Sequence[int]) -> None:
        super().__init__()
        self.each = nn.ModuleList(
            [ScaleDiscriminator(channels), *(PeriodDiscriminator(period, channels) for period in PERIODS)]
        )

    def forward(self, waves: Tensor) -> DiscriminatorOutput:
        """Apply every discriminator to waves, float [N, T]."""
        outputs = [discriminator(waves) for discriminator in self.each]
        return DiscriminatorOutput(
            [verdicts for verdicts, _ in outputs], [layer for _, features in outputs for layer in features]
        )


def compute_discrimination_loss(recorded: DiscriminatorOutput, synthesised: DiscriminatorOutput) -> Tensor:
    """Least-squares loss with targets 1 (recorded) and 0 (synthesised); a scalar, summed over discriminators."""
    pairs = zip(recorded.verdicts, synthesised.verdicts, strict=True)
    return _sum_losses([(1 - real).square().mean() + fake.square().mean() for real, fake in pairs])


def compute_adversarial_loss(synthesised: DiscriminatorOutput) -> Tensor:
    """Least-squares loss with target 1 for synthesised waves; a scalar, summed over discriminators."""
    return _sum_losses([(1 - fake).square().mean() for fake in synthesised.verdicts])


def compute_matching_loss(recorded: DiscriminatorOutput, synthesised: DiscriminatorOutput) -> Tensor:
    """Distance of the features of recorded and synthesised waves; a scalar, summed over all layers."""
    pairs = zip(recorded.features, synthesised.features, strict=True)
    return _sum_losses([functional.l1_loss(fake, real) for real, fake in pairs])


def _sum_losses(losses: list[Tensor]) -> Tensor:
    return torch.stack([loss.float() for loss in losses]).sum()


IMPOSSIBLE = np.float32(-1e30)


@torch.no_grad()
def find_monotonic_path(scores: Tensor, tokens: Tensor, frames: Tensor) -> Tensor:
    """Monotonic alignment with the largest sum of scores, from the first token to the last without skips.

    Args:
        scores: Log-likelihood of every frame under every token, float [N, frames, tokens].
        tokens: Number of tokens per utterance, int64 [N].
        frames: Number of frames per utterance, at least the number of tokens, int64 [N].

    Returns:
        1 where a frame belongs to a token, else 0 (padding included): float32 [N, frames, tokens], on the device of the
        scores.

    Raises:
        ValueError: An utterance has fewer frames than tokens.
    """
    token_counts, frame_counts = tokens.cpu().numpy(), frames.cpu().numpy()
    short = np.flatnonzero(frame_counts < token_counts)
    if len(short):
        first = short[0]
        raise ValueError(
            f"utterance {first} of the batch has {frame_counts[first]} frames for {token_counts[first]} tokens; each "
            "token needs one: leave the clip out, or shorten its text"
        )
    values = scores.detach().float().cpu().numpy()
    return torch.from_numpy(_trace_paths(_compute_advances(values), token_counts, frame_counts)).to(scores.device)


def _compute_advances(scores: np.ndarray) -> np.ndarray:
    """Whether the best path to a frame and token comes from the previous token: bool [frames, N, tokens]."""
    count, frames, tokens = scores.shape
    advances = np.zeros((frames, count, tokens), np.bool_)
    best = np.full((count, tokens), IMPOSSIBLE, np.float32)
    before = np.full((count, tokens), IMPOSSIBLE, np.float32)
    best[:, 0] = scores[:, 0, 0]
    for frame in range(1, frames):
        before[:, 1:] = best[:, :-1]
        np.greater(before, best, out=advances[frame])
        np.maximum(before, best, out=best)
        best += scores[:, frame]
    return advances


def _trace_paths(advances: np.ndarray, tokens: np.ndarray, frames: np.ndarray) -> np.ndarray:
    """Trace paths back from the last frame and token of each utterance: float32 [N, frames, tokens]."""
    length, count, width = advances.shape
    path = np.zeros((count, length, width), np.float32)
    rows, token = np.arange(count), tokens - 1
    for frame in range(length - 1, -1, -1):
        is_inside = frame < frames
        path[rows, frame, token] = is_inside
        token = token - (is_inside & advances[frame, rows, token])
    return path


class GeneratorOutput(NamedTuple):
    """Output of the generator, used by its own loss and by the discriminators.

    Attributes:
        waves: Decoded slices, float32 [N, samples].
        divergence: Divergence of the posterior from the text prior, summed over frames and channels; a scalar.
        duration: Squared error of log durations, or negative log-likelihood of durations, summed over tokens; a scalar.
    """

    waves: Tensor
    divergence: Tensor
    duration: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWeights:
    """Factors of the loss terms."""

    mel: float = 45.0
    divergence: float = 1.0
    duration: float = 1.0
    adversarial: float = 1.0
    matching: float = 2.0


@final
class VoiceGenerator:
    """Training forward pass of a `VitsModel`.

    Args:
        model: Single-speaker model.
        frames: Frames of the decoded slice.
        noise: Returns noise of the shape of its argument, for sampling the posterior.
    """

    def __init__(self, model: VitsModel, *, frames: int, noise: Callable[[Tensor], Tensor] = torch.randn_like) -> None:
        self.model = model
        self._frames = frames
        self._noise = noise

    def __call__(self, batch: UtteranceBatch) -> GeneratorOutput:
        """Decode a slice of every clip, and compare posterior and text prior over the whole clip."""
        model = self.model
        text_mask = _mask(batch.token_lengths, batch.tokens.shape[1])
        speech_mask = _mask(batch.frame_lengths, batch.spectra.shape[-1])[:, None]
        encoded = model.text_encoder(
            input_ids=batch.tokens, padding_mask=text_mask[..., None], attention_mask=text_mask.long(), return_dict=True
        )
        mean, log_deviation = self._encode_posterior(batch.spectra, speech_mask)
        latents = (mean + self._noise(mean) * log_deviation.exp()) * speech_mask
        flowed = model.flow(latents, speech_mask, reverse=False)
        with full_precision(batch.spectra.device):
            prior = TokenPrior(encoded.prior_means.float(), encoded.prior_log_variances.float())
            flowed = flowed.float()
            path = find_monotonic_path(prior.log_likelihood(flowed), batch.token_lengths, batch.frame_lengths)
            divergence = prior.divergence(path, flowed, log_deviation.float(), speech_mask)
            hidden = encoded.last_hidden_state.float().mT
            duration = self._compute_duration_loss(hidden, text_mask[:, None], path.sum(1, keepdim=True))
        indices = batch.starts[:, None] + torch.arange(self._frames, device=batch.starts.device)
        slices = latents.gather(2, indices[:, None].expand(-1, latents.shape[1], -1))
        waves = model.decoder(slices)[:, 0]
        return GeneratorOutput(waves.float(), divergence, duration)

    def _encode_posterior(self, spectra: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of the latents, float [N, channels, F], without sampling."""
        encoder = self.model.posterior_encoder
        hidden = encoder.wavenet(encoder.conv_pre(spectra) * mask, mask)
        mean, log_deviation = (encoder.conv_proj(hidden) * mask).split(encoder.out_channels, dim=1)
        return mean, log_deviation

    def _compute_duration_loss(self, hidden: Tensor, mask: Tensor, durations: Tensor) -> Tensor:
        """Sum over tokens of the negative log-likelihood (stochastic predictor) or the squared error of logarithms."""
        predictor = self.model.duration_predictor
        if self.model.config.use_stochastic_duration_prediction:
            return predictor(hidden, mask, durations=durations, reverse=False).sum()
        expected = torch.log(durations + 1e-6) * mask
        return ((predictor(hidden, mask) - expected).square() * mask).sum()


class TokenPrior(NamedTuple):
    """Normal distribution of the latents of each token, predicted from the text.

    Attributes:
        means: float32 [N, T, channels].
        log_deviations: Log standard deviations, float32 [N, T, channels]; transformers calls them variances.
    """

    means: Tensor
    log_deviations: Tensor

    def log_likelihood(self, latents: Tensor) -> Tensor:
        """Log-likelihood of every frame of latents, float32 [N, channels, F], under every token: [N, F, T]."""
        precision = torch.exp(-2 * self.log_deviations)
        constant = (-0.5 * math.log(2 * math.pi) - self.log_deviations).sum(-1)[:, None]
        squares = 0.5 * latents.square().mT @ precision.mT
        products = latents.mT @ (self.means * precision).mT
        return constant - squares + products - 0.5 * (self.means.square() * precision).sum(-1)[:, None]

    def divergence(self, path: Tensor, latents: Tensor, log_deviations: Tensor, mask: Tensor) -> Tensor:
        """Sampled divergence of the posterior from the prior, summed over frames and channels.

        Args:
            path: Alignment of frames to tokens, float32 [N, F, T].
            latents: Latents after the flow, float32 [N, channels, F].
            log_deviations: Log standard deviations of the posterior, float32 [N, channels, F].
            mask: 1 for frames, 0 for padding, float32 [N, 1, F].
        """
        means, expected = (path @ self.means).mT, (path @ self.log_deviations).mT
        terms = expected - log_deviations - 0.5 + 0.5 * (latents - means).square() * torch.exp(-2 * expected)
        return (terms * mask).sum()


@final
class VoiceObjective:
    """Losses of the generator and discriminator phases.

    Args:
        generator: Training forward pass.
        framing: Framing of the recordings.
        weights: Factors of the terms.
        discriminators: Discriminators of the adversarial phase, if any.

    Attributes:
        adversarial: Whether the generator's loss includes the adversarial terms; set between windows.
    """

    def __init__(
        self,
        generator: VoiceGenerator,
        framing: FrameSettings,
        weights: LossWeights,
        discriminators: Discriminators | None = None,
    ) -> None:
        self.generator = generator
        self._framing = framing
        self._weights = weights
        self._discriminators = discriminators
        self.adversarial = False

    def generator_loss(self, batch: UtteranceBatch, generated: GeneratorOutput) -> Loss:
        """All terms, each a mean over clips, frames or tokens."""
        with full_precision(generated.waves.device):
            terms = self._compute_terms(batch, generated)
            return (
                Loss.of(**terms, **self._compute_adversarial_terms(batch, generated))
                if self.adversarial
                else Loss.of(**terms)
            )

    def counts(self, batch: UtteranceBatch) -> Mapping[str, int]:
        """Number of targets of each term: clips, frames or tokens."""
        clips = len(batch.tokens)
        frames, tokens = int(batch.frame_lengths.sum()), int(batch.token_lengths.sum())
        counts = {"mel": clips, "divergence": frames, "duration": tokens}
        return counts | {"adversarial": clips, "matching": clips} if self.adversarial else counts

    def discriminator_loss(self, batch: UtteranceBatch, generated: GeneratorOutput) -> Loss:
        """Loss of discriminating recorded from synthesised slices."""
        discriminators = self._require_discriminators()
        with full_precision(generated.waves.device):
            loss = compute_discrimination_loss(discriminators(batch.slices), discriminators(generated.waves))
            return Loss(loss, len(batch.tokens))

    def score(self, batch: UtteranceBatch) -> Loss:
        """Generator loss without adversarial terms, for validation."""
        generated = self.generator(batch)
        with full_precision(generated.waves.device):
            return Loss.of(**self._compute_terms(batch, generated))

    def _compute_terms(self, batch: UtteranceBatch, generated: GeneratorOutput) -> dict[str, Term]:
        weights = self._weights
        frames, tokens = int(batch.frame_lengths.sum()), int(batch.token_lengths.sum())
        mel = functional.l1_loss(log_mel_of(generated.waves, self._framing), log_mel_of(batch.slices, self._framing))
        return {
            "mel": Term(mel, len(batch.tokens), weights.mel),
            "divergence": Term(generated.divergence / frames, frames, weights.divergence),
            "duration": Term(generated.duration / tokens, tokens, weights.duration),
        }

    def _compute_adversarial_terms(self, batch: UtteranceBatch, generated: GeneratorOutput) -> dict[str, Term]:
        """Adversarial terms."""
        discriminators, weights, clips = self._require_discriminators(), self._weights, len(batch.tokens)
        with torch.no_grad():
            recorded = discriminators(batch.slices)
        synthesised = discriminators(generated.waves)
        return {
            "adversarial": Term(compute_adversarial_loss(synthesised), clips, weights.adversarial),
            "matching": Term(compute_matching_loss(recorded, synthesised), clips, weights.matching),
        }

    def _require_discriminators(self) -> Discriminators:
        assert self._discriminators is not None  # noqa: S101 - set if there is an adversarial phase
        return self._discriminators


def _mask(lengths: Tensor, longest: int) -> Tensor:
    """1 within the length, 0 for padding: float32 [N, longest]."""
    return (torch.arange(longest, device=lengths.device) < lengths[:, None]).float()

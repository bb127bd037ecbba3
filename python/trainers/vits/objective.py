"""What VITS learns: to reconstruct a slice of the wave, to expect its latents from the text, and how long sounds last.

Kim, Kong & Son (2021), section 2. The posterior encoder reads the recording; the flow maps its latents to those that
the text encoder expects; the alignment between the two says how long each token lasts; a random slice of the latents is
decoded and compared with the same slice of the recording. Weights of the terms are the paper's.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.nn import functional
from transformers import VitsModel

from trainers.loop import Loss, Term, full_precision
from trainers.vits.alignment import monotonic_path
from trainers.vits.batches import UtteranceBatch
from trainers.vits.discriminators import Discriminators, adversarial_loss, discrimination_loss, matching_loss
from trainers.vits.spectrum import FrameSettings, log_mel_of


class GeneratorOutput(NamedTuple):
    """What the generator makes of a batch, for its own loss and the discriminators'.

    Attributes:
        waves: decoded slices, float32 [N, samples].
        divergence: of the latents' posterior from what the text expects, summed over frames and channels; a scalar.
        duration: squared error of log durations, or negative log-likelihood of durations, summed over tokens; a scalar.
    """

    waves: Tensor
    divergence: Tensor
    duration: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWeights:
    """What each term's mean is multiplied by."""

    mel: float = 45.0
    divergence: float = 1.0
    duration: float = 1.0
    adversarial: float = 1.0
    matching: float = 2.0


@final
class VoiceGenerator:
    """The forward of training, by the parts of a `VitsModel`.

    Args:
        model: of one speaker.
        frames: of the slice that is decoded.
        noise: what the posterior is sampled with, of the shape of its argument.
    """

    def __init__(self, model: VitsModel, *, frames: int, noise: Callable[[Tensor], Tensor] = torch.randn_like) -> None:
        self.model = model
        self._frames = frames
        self._noise = noise

    def __call__(self, batch: UtteranceBatch) -> GeneratorOutput:
        """Decode a slice of every clip, and compare what recording and text say of all of it."""
        model = self.model
        text_mask = _mask(batch.token_lengths, batch.tokens.shape[1])
        speech_mask = _mask(batch.frame_lengths, batch.spectra.shape[-1])[:, None]
        encoded = model.text_encoder(
            input_ids=batch.tokens, padding_mask=text_mask[..., None], attention_mask=text_mask.long(), return_dict=True
        )
        mean, log_deviation = self._posterior(batch.spectra, speech_mask)
        latents = (mean + self._noise(mean) * log_deviation.exp()) * speech_mask
        flowed = model.flow(latents, speech_mask, reverse=False)
        with full_precision(batch.spectra.device):
            prior = TokenPrior(encoded.prior_means.float(), encoded.prior_log_variances.float())
            flowed = flowed.float()
            path = monotonic_path(prior.log_likelihood(flowed), batch.token_lengths, batch.frame_lengths)
            divergence = prior.divergence(path, flowed, log_deviation.float(), speech_mask)
            hidden = encoded.last_hidden_state.float().mT
            duration = self._duration(hidden, text_mask[:, None], path.sum(1, keepdim=True))
        waves = model.decoder(self._sliced(latents, batch.starts))[:, 0]
        return GeneratorOutput(waves.float(), divergence, duration)

    def _posterior(self, spectra: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of the latents, float [N, channels, F]; without the noise of its forward."""
        encoder = self.model.posterior_encoder
        hidden = encoder.wavenet(encoder.conv_pre(spectra) * mask, mask)
        mean, log_deviation = (encoder.conv_proj(hidden) * mask).split(encoder.out_channels, dim=1)
        return mean, log_deviation

    def _duration(self, hidden: Tensor, mask: Tensor, durations: Tensor) -> Tensor:
        """Summed over tokens: of the stochastic predictor a negative log-likelihood, else a squared error of logs."""
        predictor = self.model.duration_predictor
        if self.model.config.use_stochastic_duration_prediction:
            return predictor(hidden, mask, durations=durations, reverse=False).sum()
        expected = torch.log(durations + 1e-6) * mask
        return ((predictor(hidden, mask) - expected).square() * mask).sum()

    def _sliced(self, latents: Tensor, starts: Tensor) -> Tensor:
        """The frames of the slices: float [N, channels, frames]."""
        places = starts[:, None] + torch.arange(self._frames, device=starts.device)
        return latents.gather(2, places[:, None].expand(-1, latents.shape[1], -1))


class TokenPrior(NamedTuple):
    """What the text says of the latents of each token: a normal distribution.

    Attributes:
        means: float32 [N, T, channels].
        log_deviations: logarithms of standard deviations, float32 [N, T, channels]; transformers calls them variances.
    """

    means: Tensor
    log_deviations: Tensor

    def log_likelihood(self, latents: Tensor) -> Tensor:
        """Of every frame of latents, float32 [N, channels, F], under every token: [N, F, T]."""
        precision = torch.exp(-2 * self.log_deviations)
        constant = (-0.5 * math.log(2 * math.pi) - self.log_deviations).sum(-1)[:, None]
        squares = 0.5 * latents.square().mT @ precision.mT
        products = latents.mT @ (self.means * precision).mT
        return constant - squares + products - 0.5 * (self.means.square() * precision).sum(-1)[:, None]

    def divergence(self, path: Tensor, latents: Tensor, log_deviations: Tensor, mask: Tensor) -> Tensor:
        """Sampled divergence of the posterior from the prior, summed over frames and channels.

        Args:
            path: which token each frame belongs to, float32 [N, F, T].
            latents: after the flow, float32 [N, channels, F].
            log_deviations: of the posterior, float32 [N, channels, F].
            mask: where there are frames, float32 [N, 1, F].
        """
        means, expected = (path @ self.means).mT, (path @ self.log_deviations).mT
        terms = expected - log_deviations - 0.5 + 0.5 * (latents - means).square() * torch.exp(-2 * expected)
        return (terms * mask).sum()


@final
class VoiceObjective:
    """The losses of both phases.

    Args:
        generator: the forward.
        framing: of the recordings.
        weights: of the terms.
        discriminators: of the adversarial phase; None where there is none.

    Attributes:
        judged: whether the discriminators' judgement is part of the generator's loss; set between windows.
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
        self.judged = False

    def generator_loss(self, batch: UtteranceBatch, made: GeneratorOutput) -> Loss:
        """Every term over targets of its own: clips, frames or tokens."""
        with full_precision(made.waves.device):
            terms = self._terms(batch, made)
            return Loss.of(**terms, **self._judgement(batch, made)) if self.judged else Loss.of(**terms)

    def counts(self, batch: UtteranceBatch) -> Mapping[str, int]:
        """Clips, frames and tokens of a batch, by the terms that are means over them."""
        clips = len(batch.tokens)
        frames, tokens = int(batch.frame_lengths.sum()), int(batch.token_lengths.sum())
        counts = {"mel": clips, "divergence": frames, "duration": tokens}
        return counts | {"adversarial": clips, "matching": clips} if self.judged else counts

    def discriminator_loss(self, batch: UtteranceBatch, made: GeneratorOutput) -> Loss:
        """How badly recorded and synthesised slices are told apart."""
        judge = self._judge()
        with full_precision(made.waves.device):
            return Loss(discrimination_loss(judge(batch.slices), judge(made.waves)), len(batch.tokens))

    def score(self, batch: UtteranceBatch) -> Loss:
        """The generator's loss without the discriminators, for a validation."""
        made = self.generator(batch)
        with full_precision(made.waves.device):
            return Loss.of(**self._terms(batch, made))

    def _terms(self, batch: UtteranceBatch, made: GeneratorOutput) -> dict[str, Term]:
        """What the recording alone says of the generator."""
        weights = self._weights
        frames, tokens = int(batch.frame_lengths.sum()), int(batch.token_lengths.sum())
        mel = functional.l1_loss(log_mel_of(made.waves, self._framing), log_mel_of(batch.slices, self._framing))
        return {
            "mel": Term(mel, len(batch.tokens), weights.mel),
            "divergence": Term(made.divergence / frames, frames, weights.divergence),
            "duration": Term(made.duration / tokens, tokens, weights.duration),
        }

    def _judgement(self, batch: UtteranceBatch, made: GeneratorOutput) -> dict[str, Term]:
        """What the discriminators say of it."""
        judge, weights, clips = self._judge(), self._weights, len(batch.tokens)
        with torch.no_grad():
            recorded = judge(batch.slices)
        synthesised = judge(made.waves)
        return {
            "adversarial": Term(adversarial_loss(synthesised), clips, weights.adversarial),
            "matching": Term(matching_loss(recorded, synthesised), clips, weights.matching),
        }

    def _judge(self) -> Discriminators:
        assert self._discriminators is not None  # noqa: S101 - a phase that judges is made with them
        return self._discriminators


def _mask(lengths: Tensor, longest: int) -> Tensor:
    """1 where there is something, 0 where padded: float32 [N, longest]."""
    return (torch.arange(longest, device=lengths.device) < lengths[:, None]).float()

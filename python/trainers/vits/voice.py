"""A voice: a `VitsModel` and its tokenizer, saved in a folder that `from_pretrained` reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self, cast, final

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import VitsConfig, VitsModel, VitsTokenizer
from transformers.models.vits.modeling_vits import VitsConvFlow, VitsHifiGan, VitsResidualCouplingLayer

from trainers.vits.errors import VoiceError
from trainers.vits.recipe import Durations, Size
from trainers.vits.spectrum import FrameSettings
from trainers.vits.vocabulary import build_tokenizer, load_tokenizer, shorten, tokenize


@dataclass(frozen=True, slots=True)
class VoiceSize:
    """Network dimensions of a voice.

    Attributes:
        settings: Fields of `VitsConfig` that do not depend on the corpus.
        discriminators: Channels of the layers of each discriminator.
    """

    settings: Mapping[str, Any]
    discriminators: tuple[int, ...]


_DECODER: Final = {
    "upsample_rates": [8, 8, 2, 2],
    "upsample_kernel_sizes": [16, 16, 4, 4],
    "resblock_kernel_sizes": [3, 7],
    "resblock_dilation_sizes": [[1, 3], [1, 3]],
}

_SIZINGS: Final[Mapping[Size, VoiceSize]] = MappingProxyType(
    {
        "fast": VoiceSize(
            {
                "hidden_size": 64,
                "num_hidden_layers": 2,
                "ffn_dim": 192,
                "flow_size": 64,
                "duration_predictor_filter_channels": 64,
                "prior_encoder_num_flows": 2,
                "prior_encoder_num_wavenet_layers": 2,
                "posterior_encoder_num_wavenet_layers": 4,
                "upsample_initial_channel": 96,
                **_DECODER,
            },
            (16, 32, 64, 64),
        ),
        "small": VoiceSize(
            {
                "hidden_size": 96,
                "num_hidden_layers": 3,
                "ffn_dim": 256,
                "flow_size": 96,
                "duration_predictor_filter_channels": 96,
                "prior_encoder_num_flows": 4,
                "prior_encoder_num_wavenet_layers": 3,
                "posterior_encoder_num_wavenet_layers": 6,
                "upsample_initial_channel": 128,
                **_DECODER,
            },
            (16, 64, 128, 256),
        ),
        "base": VoiceSize({}, (32, 128, 512, 1024, 1024)),  # the paper's, which are also the defaults of VitsConfig
    }
)


def build_config(size: Size, durations: Durations, framing: FrameSettings, vocabulary: Mapping[str, int]) -> VitsConfig:
    """Configuration of a new single-speaker voice.

    Args:
        size: Size of the network.
        durations: Duration predictor; the stochastic one needs hours of recordings.
        framing: Framing of the recordings.
        vocabulary: Ids by character.

    Raises:
        VoiceError: The decoder's samples per frame differ from the framing.
    """
    settings = dict(_SIZINGS[size].settings)
    config = VitsConfig(
        vocab_size=len(vocabulary),
        spectrogram_bins=framing.bins,
        sampling_rate=framing.rate,
        use_stochastic_duration_prediction=durations == "stochastic",
        layerdrop=0.0,
        **settings,
    )
    hop = prod(config.upsample_rates)
    if hop != framing.hop:
        raise VoiceError(f"a decoder of size {size} makes {hop} samples per frame, but the corpus has {framing.hop}")
    return config


def list_discriminator_channels(size: Size) -> tuple[int, ...]:
    """Channels of the layers of each discriminator."""
    return _SIZINGS[size].discriminators


def initialise_weights(model: VitsModel) -> None:
    """Initialise the weights of a new model, from torch's global generator.

    Follows the code of Kim, Kong & Son (2021): convolutions uniform by fan-in, embeddings scaled to the layers that
    follow, and flows initially the identity. Layers with weight norm keep their initialisation.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.ConvTranspose1d) and not parametrize.is_parametrized(module):
            module.reset_parameters()
    for module in model.modules():
        if isinstance(module, VitsResidualCouplingLayer):
            _zero(module.conv_post)
        if isinstance(module, VitsConvFlow):
            _zero(module.conv_proj)
    embedding = model.text_encoder.embed_tokens
    nn.init.normal_(embedding.weight, std=model.config.hidden_size**-0.5)


def apply_weight_norm(decoder: VitsHifiGan) -> None:
    """Apply weight norm to the decoder's convolutions, as in the paper."""
    apply: Any = decoder.apply_weight_norm
    apply()


def remove_weight_norm(model: VitsModel) -> dict[str, Tensor]:
    """State dict without weight norm, as `from_pretrained` expects.

    The model is unchanged; removing weight norm from a copy would also affect the model, whose layer classes it shares.
    """
    weights: dict[str, Tensor] = model.state_dict()
    for name, module in model.decoder.named_modules():
        if parametrize.is_parametrized(module):
            prefix = f"decoder.{name}"
            for part in ("original0", "original1"):
                del weights[f"{prefix}.parametrizations.weight.{part}"]
            weights[f"{prefix}.weight"] = cast("Tensor", module.weight).detach().contiguous()
    return weights


def _zero(layer: nn.Conv1d) -> None:
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


MAX_SECONDS: Final = 60.0
"""A longer sentence means that the voice has not learnt durations."""

RATES: Final = np.exp(np.linspace(np.log(0.4), np.log(2.5), 401))
"""Candidate speaking rates."""


@final
class Voice:
    """A speech synthesiser.

    Args:
        model: Single-speaker model.
        tokenizer: Its tokenizer.

    Attributes:
        model: As given.
        tokenizer: As given.
        framing: Framing of its waves.

    Raises:
        VoiceError: The model has several speakers.
    """

    def __init__(self, model: VitsModel, tokenizer: VitsTokenizer) -> None:
        if model.config.num_speakers > 1:
            raise VoiceError(
                f"this voice has {model.config.num_speakers} speakers; only single-speaker voices are supported"
            )
        self.model = model
        self.tokenizer = tokenizer
        self.framing = FrameSettings(
            rate=model.config.sampling_rate,
            hop=prod(model.config.upsample_rates),
            fft=2 * (model.config.spectrogram_bins - 1),
        )

    @classmethod
    def fresh(cls, config: VitsConfig, vocabulary: Mapping[str, int]) -> Self:
        """Create a voice with random weights, from torch's global generator."""
        model = VitsModel(config)
        initialise_weights(model)
        return cls(model, build_tokenizer(vocabulary))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load a voice that `save_pretrained` wrote, without downloads.

        Raises:
            VoiceError: The folder holds no voice, or the weights do not match the configuration.
        """
        if not (folder / "config.json").is_file():
            raise VoiceError(f"{folder} is not a voice: config.json is missing; give the folder of a version")
        try:
            model_and_info: Any = VitsModel.from_pretrained(folder, local_files_only=True, output_loading_info=True)
            tokenizer = load_tokenizer(folder)
        except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
            raise VoiceError(f"{folder} cannot be read as a voice: {error}") from error
        model, info = model_and_info
        wrong = {name: sorted(info[name]) for name in ("missing_keys", "unexpected_keys") if info[name]}
        if wrong:
            raise VoiceError(f"{folder} is damaged: its weights do not match its configuration: {wrong}; copy it again")
        return cls(model.eval(), tokenizer)

    def save(self, folder: Path) -> None:
        """Save the voice for `from_pretrained`, without weight norm."""
        self.model.save_pretrained(folder, state_dict=remove_weight_norm(self.model))
        self.tokenizer.save_pretrained(folder)

    def tokens(self, text: str) -> list[int]:
        """Token ids of a text.

        Raises:
            VoiceError: No character of the text is in the vocabulary.
        """
        return tokenize(self.tokenizer, text)

    @torch.no_grad()
    def speak(self, text: str, *, seed: int) -> Tensor:
        """Synthesise a text, float32 [T] in -1 to 1; deterministic for a seed.

        Raises:
            VoiceError: No character is in the vocabulary, or the speech would last more than a minute.
        """
        ids = torch.tensor([self.tokens(text)], device=self.model.device)
        self._check_seconds(text, ids.shape[1])  # every token lasts at least a frame, and attention is quadratic
        self.model.eval()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._check_seconds(text, float(self._predict_durations(text, seed).sum()))
            return self.model(input_ids=ids).waveform[0].float().cpu()

    def _check_seconds(self, text: str, frames: float) -> None:
        if self.framing.seconds(frames) > MAX_SECONDS:
            raise VoiceError(
                f"the voice would speak {self.framing.seconds(frames):.0f} seconds or more for "
                f"{shorten(text, 40)!r}, above the maximum of {MAX_SECONDS:.0f}; split the text into sentences, "
                "or train the voice for longer"
            )

    @torch.no_grad()
    def reconstruct(self, spectrum: Tensor) -> Tensor:
        """Encode a recording and decode the posterior mean.

        Args:
            spectrum: Linear magnitudes, float32 [bins, F].

        Returns:
            float32 [F · hop].
        """
        self.model.eval()
        mask = torch.ones(1, 1, spectrum.shape[1], device=self.model.device)
        _, mean, _ = self.model.posterior_encoder(spectrum[None].to(self.model.device), mask)
        return self.model.decoder(mean)[0, 0].float().cpu()

    @torch.no_grad()
    def _predict_durations(self, text: str, seed: int) -> Tensor:
        """Unrounded frames of every token at the current rate: float32 [T]."""
        model = self.model
        ids = torch.tensor([self.tokens(text)], device=model.device)
        mask = torch.ones(1, ids.shape[1], 1, device=model.device)
        encoded = model.text_encoder(input_ids=ids, padding_mask=mask, return_dict=True)
        hidden = encoded.last_hidden_state.mT
        if model.config.use_stochastic_duration_prediction:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                logs = model.duration_predictor(hidden, mask.mT, reverse=True, noise_scale=model.noise_scale_duration)
        else:
            logs = model.duration_predictor(hidden, mask.mT)
        return logs.exp()[0, 0].cpu() / model.speaking_rate

    def fit_speaking_rate(self, sentences: Sequence[tuple[str, int]]) -> float:
        """Set the speaking rate that best matches recorded lengths.

        The model rounds the frames of every token up, so a voice is too slow at rate 1.

        Args:
            sentences: Texts with the frames of their recordings; texts may repeat.

        Returns:
            The rate; lower is slower.
        """
        model = self.model.eval()
        lengths = self._count_frames(sentences)
        errors = [_compute_length_error(lengths, rate) for rate in RATES]
        rate = round(float(RATES[int(np.argmin(errors))]), 4)
        model.speaking_rate = model.config.speaking_rate = rate
        return rate

    def length_error(self, sentences: Sequence[tuple[str, int]]) -> float:
        """Mean |log(length / recorded length)| at the current rate.

        Args:
            sentences: Texts with the frames of their recordings.
        """
        self.model.eval()
        return _compute_length_error(self._count_frames(sentences), self.model.speaking_rate)

    def _count_frames(self, sentences: Sequence[tuple[str, int]]) -> list[tuple[Tensor, int]]:
        """Frames of every token at rate 1, float32 [T], with the frames of the recording."""
        rate = self.model.speaking_rate
        return [(self._predict_durations(text, seed) * rate, frames) for seed, (text, frames) in enumerate(sentences)]


def _compute_length_error(lengths: Sequence[tuple[Tensor, int]], rate: float) -> float:
    return float(np.mean([abs(np.log(float(torch.ceil(d / rate).sum()) / frames)) for d, frames in lengths]))

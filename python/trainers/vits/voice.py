"""A voice: a `VitsModel` and its tokenizer, as one folder that `from_pretrained` reads, and what it says."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import VitsConfig, VitsModel, VitsTokenizer

from trainers.vits.errors import VoiceError
from trainers.vits.sizes import framing_of
from trainers.vits.vocabulary import shortened, tokenizer_in, tokenizer_of, tokens
from trainers.vits.weights import draw_first, plain_weights

LONGEST_SECONDS: Final = 60.0
"""More than this for one sentence means a voice whose durations have not been learnt."""

RATES: Final = np.exp(np.linspace(np.log(0.4), np.log(2.5), 401))
"""Speaking rates that are tried."""


@final
class Voice:
    """Speaks texts.

    Args:
        model: of one speaker.
        tokenizer: from texts to its tokens.

    Attributes:
        model: as given.
        tokenizer: as given.
        framing: how it frames samples.

    Raises:
        VoiceError: the model has several speakers.
    """

    def __init__(self, model: VitsModel, tokenizer: VitsTokenizer) -> None:
        if model.config.num_speakers > 1:
            raise VoiceError(
                f"this voice has {model.config.num_speakers} speakers; only voices of one can be trained and judged"
            )
        self.model = model
        self.tokenizer = tokenizer
        self.framing = framing_of(model.config)

    @classmethod
    def fresh(cls, config: VitsConfig, vocabulary: Mapping[str, int]) -> Self:
        """A voice with random weights, drawn from torch's generator."""
        model = VitsModel(config)
        draw_first(model)
        return cls(model, tokenizer_of(vocabulary))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The voice of a folder that `save_pretrained` wrote; nothing is downloaded.

        Raises:
            VoiceError: it is none, or its weights are not those that its configuration wants.
        """
        if not (folder / "config.json").is_file():
            raise VoiceError(f"{folder} is no voice: there is no config.json in it; give the folder of a version")
        try:
            loaded: Any = VitsModel.from_pretrained(folder, local_files_only=True, output_loading_info=True)
            tokenizer = tokenizer_in(folder)
        except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
            raise VoiceError(f"{folder} cannot be read as a voice: {error}") from error
        model, told = loaded
        wrong = {name: sorted(told[name]) for name in ("missing_keys", "unexpected_keys") if told[name]}
        if wrong:
            raise VoiceError(f"{folder} does not hold the weights of its configuration: {wrong}; it is damaged")
        return cls(model.eval(), tokenizer)

    def save(self, folder: Path) -> None:
        """Write the folder, without weight norm on the decoder, as `from_pretrained` expects it."""
        self.model.save_pretrained(folder, state_dict=plain_weights(self.model))
        self.tokenizer.save_pretrained(folder)

    def tokens(self, text: str) -> list[int]:
        """Ids of a text.

        Raises:
            VoiceError: nothing of it is in the vocabulary.
        """
        return tokens(self.tokenizer, text)

    @torch.no_grad()
    def speak(self, text: str, *, seed: int) -> Tensor:
        """The wave of a text, float32 [T] in -1 to 1; the same for the same seed.

        Raises:
            VoiceError: nothing of the text is in the vocabulary, or the voice would speak for more than a minute.
        """
        ids = torch.tensor([self.tokens(text)], device=self.model.device)
        self._check_seconds(text, ids.shape[1])  # every token lasts a frame or more, and attention grows with squares
        self.model.eval()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._check_seconds(text, float(self._durations(text, seed).sum()))
            return self.model(input_ids=ids).waveform[0].float().cpu()

    def _check_seconds(self, text: str, frames: float) -> None:
        """That so many frames are not too many for a text."""
        if self.framing.seconds(frames) > LONGEST_SECONDS:
            raise VoiceError(
                f"the voice would speak {self.framing.seconds(frames):.0f} seconds or more for "
                f"{shortened(text, 40)!r}, and {LONGEST_SECONDS:.0f} are the most; cut the text into sentences, or "
                "train the voice for longer"
            )

    @torch.no_grad()
    def reconstruct(self, spectrum: Tensor) -> Tensor:
        """What is left of a recording after encoder and decoder, with the posterior's mean.

        Args:
            spectrum: linear magnitudes, float32 [bins, F].

        Returns:
            float32 [F · hop].
        """
        self.model.eval()
        mask = torch.ones(1, 1, spectrum.shape[1], device=self.model.device)
        _, mean, _ = self.model.posterior_encoder(spectrum[None].to(self.model.device), mask)
        return self.model.decoder(mean)[0, 0].float().cpu()

    @torch.no_grad()
    def _durations(self, text: str, seed: int) -> Tensor:
        """Frames of every token at the rate of the model, not rounded: float32 [T]."""
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

    def settle_rate(self, sentences: Sequence[tuple[str, int]]) -> float:
        """Find the speaking rate at which lengths are closest to recorded ones, and keep it in the configuration.

        The forward rounds the frames of every token up, so that a voice speaks too slowly at rate 1.

        Args:
            sentences: texts, each with the frames of its recording; a text may have several.

        Returns:
            The rate; lower is slower.
        """
        model = self.model.eval()
        lengths = self._lengths(sentences)
        errors = [_length_error(lengths, rate) for rate in RATES]
        rate = round(float(RATES[int(np.argmin(errors))]), 4)
        model.speaking_rate = model.config.speaking_rate = rate
        return rate

    def length_error(self, sentences: Sequence[tuple[str, int]]) -> float:
        """The mean of |log of the length over the recorded one|, at the rate of the model.

        Args:
            sentences: texts, each with the frames of its recording.
        """
        self.model.eval()
        return _length_error(self._lengths(sentences), self.model.speaking_rate)

    def _lengths(self, sentences: Sequence[tuple[str, int]]) -> list[tuple[Tensor, int]]:
        """Frames of every token at rate 1, float32 [T], and those of the recording."""
        rate = self.model.speaking_rate
        return [(self._durations(text, seed) * rate, frames) for seed, (text, frames) in enumerate(sentences)]


def _length_error(lengths: Sequence[tuple[Tensor, int]], rate: float) -> float:
    return float(np.mean([abs(np.log(float(torch.ceil(d / rate).sum()) / frames)) for d, frames in lengths]))

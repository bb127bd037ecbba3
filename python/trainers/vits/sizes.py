"""How large a voice is: the settings of transformers' `VitsConfig` that differ between sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any, Final

from transformers import VitsConfig

from trainers.vits.errors import VoiceError
from trainers.vits.recipe import Durations, Size
from trainers.vits.spectrum import FrameSettings


@dataclass(frozen=True, slots=True)
class VoiceSize:
    """One size.

    Attributes:
        settings: of `VitsConfig`, beside those that follow from the corpus.
        discriminators: channels of the layers of each.
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


def config_of(size: Size, durations: Durations, framing: FrameSettings, vocabulary: Mapping[str, int]) -> VitsConfig:
    """The configuration of a new voice of one speaker.

    Args:
        size: how large its network is.
        durations: which predictor it has; the stochastic one needs hours of recordings.
        framing: of the recordings.
        vocabulary: ids by character.

    Raises:
        VoiceError: the decoder of this size does not make as many samples a frame as the framing has.
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
    made = prod(config.upsample_rates)
    if made != framing.hop:
        raise VoiceError(f"a decoder of size {size} makes {made} samples a frame, and the corpus has {framing.hop}")
    return config


def discriminator_channels(size: Size) -> tuple[int, ...]:
    """Channels of the layers of each discriminator."""
    return _SIZINGS[size].discriminators


def framing_of(config: VitsConfig) -> FrameSettings:
    """How a voice frames its samples."""
    return FrameSettings(
        rate=config.sampling_rate, hop=prod(config.upsample_rates), fft=2 * (config.spectrogram_bins - 1)
    )

"""A voice of a few thousand weights, and utterances of noise."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import VitsConfig, VitsModel

from trainers.vits.batches import UtteranceBatch

HOP, BINS, SLICE = 16, 513, 32
PARTS = ("text_encoder", "duration_predictor", "flow", "posterior_encoder", "decoder")


def tiny_config(*, stochastic: bool = False, vocabulary: int = 12, dropout: float = 0.0) -> VitsConfig:
    """A configuration with one speaker, 16 samples per frame and 513 bins."""
    return VitsConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        window_size=2,
        ffn_dim=16,
        ffn_kernel_size=3,
        flow_size=16,
        spectrogram_bins=BINS,
        use_stochastic_duration_prediction=stochastic,
        duration_predictor_filter_channels=16,
        duration_predictor_dropout=dropout,
        hidden_dropout=dropout,
        attention_dropout=dropout,
        activation_dropout=dropout,
        duration_predictor_num_flows=2,
        depth_separable_num_layers=1,
        prior_encoder_num_flows=2,
        prior_encoder_num_wavenet_layers=1,
        posterior_encoder_num_wavenet_layers=1,
        upsample_initial_channel=16,
        upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1]],
        sampling_rate=16_000,
        layerdrop=0.0,
    )


def tiny_model(*, stochastic: bool = False, seed: int = 3) -> VitsModel:
    """A random model without dropout."""
    torch.manual_seed(seed)
    return VitsModel(tiny_config(stochastic=stochastic)).train()


def utterances(frames: Sequence[int], tokens: Sequence[int], *, seed: int = 5) -> UtteranceBatch:
    """Noise utterances of these lengths; each depends only on its position and the seed."""
    rows = [_utterance(f, t, seed * 100 + row) for row, (f, t) in enumerate(zip(frames, tokens, strict=True))]
    return pad_utterances(rows)


def pad_utterances(rows: Sequence[tuple[Tensor, Tensor, int, Tensor]]) -> UtteranceBatch:
    """Batch rows of tokens, spectrum, start and slice, padded to the longest."""
    token_lengths = torch.tensor([len(tokens) for tokens, *_ in rows])
    frame_lengths = torch.tensor([spectrum.shape[1] for _, spectrum, *_ in rows])
    padded = torch.zeros(len(rows), int(token_lengths.max()), dtype=torch.long)
    spectra = torch.zeros(len(rows), BINS, int(frame_lengths.max()))
    for row, (tokens, spectrum, *_) in enumerate(rows):
        padded[row, : len(tokens)] = tokens
        spectra[row, :, : spectrum.shape[1]] = spectrum
    starts = torch.tensor([start for *_, start, _ in rows])
    return UtteranceBatch(
        padded, token_lengths, spectra, frame_lengths, starts, torch.stack([wave for *_, wave in rows])
    )


def _utterance(frames: int, tokens: int, seed: int) -> tuple[Tensor, Tensor, int, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    start = int(torch.randint(frames - SLICE + 1, (), generator=draw))
    return (
        torch.randint(1, 12, (tokens,), generator=draw),
        torch.rand(BINS, frames, generator=draw),
        start,
        torch.rand(SLICE * HOP, generator=draw) - 0.5,
    )

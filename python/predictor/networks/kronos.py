"""Kronos models (Shi et al. 2025) with adopted weights: sampled bars, one token pair per bar.

A tokenizer turns each bar into a coarse and a fine token, whose bits are signs (binary spherical quantization; Zhao et
al. 2024). A Transformer samples the tokens of the following sessions one by one, and the tokenizer turns them into
bars. The layers have the names of the published weights and compute the same numbers, but in float64, because a
rounding error that chooses another token would change all sessions after it.

Shapes: N windows, P paths, T sessions that the model reads, S sessions that it forecasts, W width, H heads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Final, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from predictor.arrays import FloatArray
from predictor.errors import ConfigurationError
from predictor.networks.inputs import Inputs, InputSizes
from predictor.networks.layers import check_whole
from predictor.networks.network_kind import AdoptedForecaster, NetworkKind
from predictor.networks.target import Target

CHANNELS: Final = ("open", "high", "low", "close", "volume", "amount")
"""The observed features, in order."""
CLOSE: Final = CHANNELS.index("close")
PRICES: Final = 4
STAMPS: Final = ("weekday", "day_of_month", "month_of_year")
"""The known features, in order."""
STAMP_SIZES: Final = {"minute": 60, "hour": 24, "weekday": 7, "day": 32, "month": 13}
CLIP: Final = 5.0
MIN_SPREAD: Final = 1e-5
MIN_CLOSE: Final = 0.01
ROTATION_BASE: Final = 10_000.0
NORM_EPSILON: Final = 1e-5
SIBLING_HEADS: Final = 4

KRONOS_ARITHMETIC: Final[Mapping[str, str | float]] = {
    "precision": "float64",
    "input": "sessions with known prices; volumes and amounts are 0 unless all are known; minus their mean, over "
    f"their standard deviation (n) plus {MIN_SPREAD:g}, clipped to {CLIP:g}",
    "stamps": "minute 0, hour 0, weekday, day of the month, month",
    "token": "inverse of the cumulative probabilities, not tempered or truncated, at the noise",
    "noise": "Latin hypercube [sessions, 2, paths] of the seed (PCG64), the same for every window",
    "output": f"logarithm of the path's close, at least {MIN_CLOSE:g} of the last close, over the last close; "
    "linear quantiles over the paths; (quantile - location) / (scale * spread of the target)",
}
"""Conventions that another implementation needs besides the settings."""

MAX_LAYERS: Final = 100
MAX_WIDTH: Final = 2**13
MAX_BITS: Final = 14
MAX_PATHS: Final = 1000
MAX_CONTEXT: Final = 2048
"""Sessions that the largest published context holds, those of the forecast included."""
MAX_FORECAST: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class KronosConfig:
    """Sizes of a Kronos model and its tokenizer, named as in their config.json, and the paths to sample."""

    s1_bits: int = 10
    s2_bits: int = 10
    d_model: int = 512
    n_layers: int = 8
    n_heads: int = 8
    ff_dim: int = 1024
    tokenizer_d_model: int = 256
    tokenizer_n_enc_layers: int = 4
    tokenizer_n_dec_layers: int = 4
    tokenizer_n_heads: int = 4
    tokenizer_ff_dim: int = 512
    paths: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("s1_bits", "s2_bits"):
            check_whole(name, getattr(self, name), MAX_BITS)
        for name in ("d_model", "ff_dim", "tokenizer_d_model", "tokenizer_ff_dim"):
            check_whole(name, getattr(self, name), MAX_WIDTH)
        for name in ("n_layers", "tokenizer_n_enc_layers", "tokenizer_n_dec_layers"):
            check_whole(name, getattr(self, name), MAX_LAYERS)
        check_whole("paths", self.paths, MAX_PATHS)
        if self.seed < 0:
            raise ConfigurationError(f"seed is {self.seed}, but must be 0 or more")
        for width, heads in (("d_model", "n_heads"), ("tokenizer_d_model", "tokenizer_n_heads")):
            check_whole(heads, getattr(self, heads), MAX_WIDTH)
            if getattr(self, width) % (2 * getattr(self, heads)):
                raise ConfigurationError(
                    f"{width} is {getattr(self, width)}, but must be a multiple of twice {heads}, "
                    f"{getattr(self, heads)}"
                )
        if self.d_model % SIBLING_HEADS:
            raise ConfigurationError(f"d_model is {self.d_model}, but must be a multiple of {SIBLING_HEADS}")


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """Keys and values of earlier tokens in one attention layer, each [.., H, tokens, W / H]."""

    shared: tuple[Tensor, Tensor]
    """[H, T, ..] of the tokens that all paths share."""
    by_path: tuple[Tensor, Tensor]
    """[P, H, t, ..] of the tokens of each path."""

    @classmethod
    def of(cls, keys: Tensor, values: Tensor) -> Self:
        """The memory [1, H, T, ..] before the paths separate."""
        return cls((keys[0], values[0]), (keys[:, :, :0], values[:, :, :0]))

    def extended(self, keys: Tensor, values: Tensor) -> "Memory":
        """The memory with further tokens [P, H, s, ..] of each path."""
        before = (memory.expand(len(keys), -1, -1, -1) for memory in self.by_path)
        extended = (torch.cat(pair, dim=2) for pair in zip(before, (keys, values), strict=True))
        return Memory(self.shared, (next(extended), next(extended)))

    def attend(self, queries: Tensor) -> Tensor:
        """Attend from queries [P, H, s, ..] to all shared tokens, and to the own ones up to each of the last s."""
        (shared_keys, shared_values), (own_keys, own_values) = self.shared, self.by_path
        _, _, steps, width = queries.shape
        shared = shared_keys.shape[1]
        later = torch.ones(steps, own_keys.shape[2], dtype=torch.bool, device=queries.device)
        near = queries @ own_keys.mT
        near = near.masked_fill(later.triu(own_keys.shape[2] - steps + 1), -torch.inf)
        scores = torch.cat([_multiply_shared(queries, shared_keys.mT), near], dim=-1) / sqrt(width)
        weights = scores.softmax(dim=-1)
        return _multiply_shared(weights[..., :shared], shared_values) + weights[..., shared:] @ own_values


def _multiply_shared(left: Tensor, shared: Tensor) -> Tensor:
    """[P, H, s, a] times [H, a, b], without a copy of the latter for each path."""
    paths, heads, steps, _ = left.shape
    folded = left.transpose(0, 1).reshape(heads, paths * steps, -1) @ shared
    return folded.view(heads, paths, steps, -1).transpose(0, 1)


def _rotate(heads: Tensor, first: int) -> Tensor:
    """Rotary positions (Su et al. 2021) of vectors [.., s, ..] at `first` and the following positions."""
    count, width = heads.shape[-2:]
    exponents = torch.arange(0, width, 2, device=heads.device) / width
    angles = torch.arange(first, first + count, device=heads.device)[:, None] * ROTATION_BASE ** -exponents.double()
    cosine, sine = (angle.repeat(1, 2) for angle in (angles.cos(), angles.sin()))
    left, right = heads.chunk(2, dim=-1)
    return heads * cosine + torch.cat([-right, left], dim=-1) * sine


class Attention(nn.Module):
    """Projections of an attention layer with several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(4))

    def queries(self, x: Tensor) -> Tensor:
        """[.., H, s, W / H] of tokens [.., s, W]."""
        return self._split(self.q_proj(x))

    def keys_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[.., H, s, W / H] each, of tokens [.., s, W]."""
        return self._split(self.k_proj(x)), self._split(self.v_proj(x))

    def merge(self, attended: Tensor) -> Tensor:
        """[.., s, W] of the heads' results [.., H, s, W / H]."""
        return self.out_proj(attended.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(width, hidden, bias=False)
        self.w3 = nn.Linear(width, hidden, bias=False)
        self.w2 = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[.., W] of tokens [.., W]."""
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """A causal Transformer layer."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(width, eps=NORM_EPSILON)
        self.self_attn = Attention(width, heads)
        self.norm2 = nn.RMSNorm(width, eps=NORM_EPSILON)
        self.ffn = FeedForward(width, hidden)

    def read(self, x: Tensor) -> tuple[Tensor, Memory]:
        """The layer's output [1, T, W] for the first tokens, and its memory of them."""
        normed = self.norm1(x)
        keys, values = self.self_attn.keys_and_values(normed)
        keys, queries = _rotate(keys, 0), _rotate(self.self_attn.queries(normed), 0)
        attended = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self._finish(x, attended), Memory.of(keys, values)

    def extend(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """The layer's output [P, s, W] for further tokens of each path, and its memory with them."""
        normed = self.norm1(x)
        first = memory.shared[0].shape[1] + memory.by_path[0].shape[2]
        keys, values = self.self_attn.keys_and_values(normed)
        memory = memory.extended(_rotate(keys, first), values)
        return self._finish(x, memory.attend(_rotate(self.self_attn.queries(normed), first))), memory

    def _finish(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.self_attn.merge(attended)
        return x + self.ffn(self.norm2(x))


class KronosTokenizer(nn.Module):
    """Converts normalised bars to tokens and back."""

    def __init__(self, config: KronosConfig) -> None:
        super().__init__()
        self.bits: Final = (config.s1_bits, config.s2_bits)
        width, count = config.tokenizer_d_model, sum(self.bits)

        def build_blocks(layers: int) -> nn.ModuleList:
            sizes = (width, config.tokenizer_n_heads, config.tokenizer_ff_dim)
            return nn.ModuleList([Block(*sizes) for _ in range(layers - 1)])  # the published classes count one more

        self.embed = nn.Linear(len(CHANNELS), width)
        self.head = nn.Linear(width, len(CHANNELS))
        self.encoder = build_blocks(config.tokenizer_n_enc_layers)
        self.decoder = build_blocks(config.tokenizer_n_dec_layers)
        self.quant_embed = nn.Linear(width, count)
        self.post_quant_embed = nn.Linear(count, width)

    def encode(self, bars: Tensor) -> tuple[Tensor, Tensor]:
        """Coarse and fine tokens [1, T] of bars [1, T, 6]; the first bit of a token is the lowest."""
        x, _ = _read_all(self.encoder, self.embed(bars))
        coarse, fine = (self.quant_embed(x) > 0).split(self.bits, dim=-1)
        return _pack_bits(coarse), _pack_bits(fine)

    def decode(self, past_tokens: tuple[Tensor, Tensor], sampled_tokens: tuple[Tensor, Tensor]) -> Tensor:
        """Bars [P, S, 6] of sampled tokens [P, S], which follow the tokens [1, T] that were read."""
        _, memories = _read_all(self.decoder, self._embed_tokens(past_tokens))
        x, _ = _extend_all(self.decoder, self._embed_tokens(sampled_tokens), memories)
        return self.head(x)

    def _embed_tokens(self, tokens: tuple[Tensor, Tensor]) -> Tensor:
        signs = [
            (part[..., None] >> torch.arange(count, device=part.device) & 1).double() * 2 - 1  # -1 or 1 per bit
            for part, count in zip(tokens, self.bits, strict=True)
        ]
        return self.post_quant_embed(torch.cat(signs, dim=-1) / sqrt(sum(self.bits)))


def _pack_bits(bits: Tensor) -> Tensor:
    return (bits.long() << torch.arange(bits.shape[-1], device=bits.device)).sum(dim=-1)


def _read_all(blocks: nn.ModuleList, x: Tensor) -> tuple[Tensor, list[Memory]]:
    memories: list[Memory] = []
    for block in blocks:
        assert isinstance(block, Block)  # noqa: S101 - as built
        x, memory = block.read(x)
        memories.append(memory)
    return x, memories


def _extend_all(blocks: nn.ModuleList, x: Tensor, memories: list[Memory]) -> tuple[Tensor, list[Memory]]:
    extended: list[Memory] = []
    for block, before in zip(blocks, memories, strict=True):
        assert isinstance(block, Block)  # noqa: S101
        x, memory = block.extend(x, before)
        extended.append(memory)
    return x, extended


class TokenEmbedding(nn.Module):
    """Vectors of token pairs."""

    def __init__(self, config: KronosConfig) -> None:
        super().__init__()
        self.emb_s1 = nn.Embedding(1 << config.s1_bits, config.d_model)
        self.emb_s2 = nn.Embedding(1 << config.s2_bits, config.d_model)
        self.fusion_proj = nn.Linear(2 * config.d_model, config.d_model)

    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        """[.., W] of tokens [..]."""
        both = torch.cat([self.emb_s1(coarse), self.emb_s2(fine)], dim=-1)
        return self.fusion_proj(both * sqrt(self.emb_s1.embedding_dim))


class StampEmbedding(nn.Module):
    """Vectors of time stamps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        for name, size in STAMP_SIZES.items():
            self.add_module(f"{name}_embed", nn.Embedding(size, width))

    def forward(self, stamps: Tensor) -> Tensor:
        """[s, W] of stamps int64 [s, 5]."""
        vectors = [embed(stamps[:, k]) for k, embed in enumerate(self.children())]
        return torch.stack(vectors).sum(dim=0)


class SiblingLayer(nn.Module):
    """Attention from a coarse token to all states before it; the published model uses no positions here."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cross_attn = Attention(width, SIBLING_HEADS)
        self.norm = nn.RMSNorm(width, eps=NORM_EPSILON)

    def read(self, states: Tensor) -> Memory:
        """The memory of states [1, T, W]."""
        return Memory.of(*self.cross_attn.keys_and_values(states))

    def extend(self, states: Tensor, memory: Memory) -> Memory:
        """The memory with further states [P, 1, W] of each path."""
        return memory.extended(*self.cross_attn.keys_and_values(states))

    def forward(self, last: Tensor, coarse: Tensor, memory: Memory) -> Tensor:
        """[P, 1, W] of the last states [P or 1, 1, W] and the vectors [P, 1, W] of the coarse tokens."""
        return self.norm(last + self.cross_attn.merge(memory.attend(self.cross_attn.queries(coarse))))


class DualHead(nn.Module):
    """Logits of coarse and fine tokens."""

    def __init__(self, config: KronosConfig) -> None:
        super().__init__()
        self.proj_s1 = nn.Linear(config.d_model, 1 << config.s1_bits)
        self.proj_s2 = nn.Linear(config.d_model, 1 << config.s2_bits)


class KronosModel(nn.Module):
    """Samples the tokens of the sessions that follow."""

    def __init__(self, config: KronosConfig) -> None:
        super().__init__()
        width = config.d_model
        self.embedding = TokenEmbedding(config)
        self.time_emb = StampEmbedding(width)
        self.transformer = nn.ModuleList([Block(width, config.n_heads, config.ff_dim) for _ in range(config.n_layers)])
        self.norm = nn.RMSNorm(width, eps=NORM_EPSILON)
        self.dep_layer = SiblingLayer(width)
        self.head = DualHead(config)

    def sample(self, past_tokens: tuple[Tensor, Tensor], stamps: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Sample P paths.

        Args:
            past_tokens: coarse and fine tokens [1, T].
            stamps: int64 [T + S, 5] of all sessions.
            noise: [S, 2, P] uniform numbers of the coarse and fine tokens.

        Returns:
            Coarse and fine tokens [P, S].
        """
        length = past_tokens[0].shape[1]
        x, memories = _read_all(self.transformer, self.embedding(*past_tokens) + self.time_emb(stamps[:length]))
        states = self.norm(x)
        siblings, last = self.dep_layer.read(states), states[:, -1:]
        sampled: list[Tensor] = []
        for step, (for_coarse, for_fine) in enumerate(noise):
            coarse = choose_tokens(self.head.proj_s1(last)[:, 0], for_coarse)
            both = self.dep_layer(last, self.embedding.emb_s1(coarse)[:, None], siblings)
            fine = choose_tokens(self.head.proj_s2(both)[:, 0], for_fine)
            sampled.append(torch.stack([coarse, fine]))
            if step == len(noise) - 1:
                break
            stamp = stamps[length + step : length + step + 1]
            x = self.embedding(coarse[:, None], fine[:, None]) + self.time_emb(stamp)
            x, memories = _extend_all(self.transformer, x, memories)
            last = self.norm(x)
            siblings = self.dep_layer.extend(last, siblings)
        coarse, fine = torch.stack(sampled, dim=-1)
        return coarse, fine


def draw_noise(seed: int, *, sessions: int, paths: int) -> FloatArray:
    """[S, 2, P] numbers in [0, 1): for each token of each session, one in each of P equal parts (McKay et al. 1979)."""
    generator = np.random.Generator(np.random.PCG64(seed))
    noise = np.empty((sessions, 2, paths))
    for session in noise:  # in turn, so that a shorter forecast has the same noise
        for token in session:
            token[:] = (generator.permutation(paths) + generator.random(paths)) / paths
    return noise


def choose_tokens(logits: Tensor, noise: Tensor) -> Tensor:
    """Tokens int64 [P] by the inverse of their cumulative probabilities, from logits [P or 1, tokens]."""
    cumulative = logits.softmax(dim=-1).cumsum(dim=-1).expand(len(noise), -1).contiguous()
    tokens = torch.searchsorted(cumulative, noise[:, None] * cumulative[:, -1:], right=True)[:, 0]
    return tokens.clamp(max=logits.shape[-1] - 1)


class KronosForecaster(AdoptedForecaster):
    """A Kronos model, whose quantiles are those of its sampled paths.

    Each window is computed separately, so that its forecast does not depend on the others.

    Raises:
        ConfigurationError: the model cannot forecast the target or reads fewer sessions, or the features are others.
    """

    def __init__(self, config: KronosConfig, *, sizes: InputSizes, target: Target, levels: tuple[float, ...]) -> None:
        super().__init__(target, sizes, longest=MAX_CONTEXT - target.horizons[-1], reach=MAX_FORECAST)
        if (sizes.observed, sizes.known) != (len(CHANNELS), len(STAMPS)):
            raise ConfigurationError(
                f"a Kronos model reads the observed features {', '.join(CHANNELS)} and the known features "
                f"{', '.join(STAMPS)}, but there are {sizes.observed} and {sizes.known}"
            )
        self.tokenizer = KronosTokenizer(config)
        self.model = KronosModel(config)
        self.double()
        self.noise: Final = torch.from_numpy(draw_noise(config.seed, sessions=target.horizons[-1], paths=config.paths))
        self.levels: Final = torch.tensor(levels, dtype=torch.float64, device="cpu")

    def paths(self, inputs: Inputs) -> Tensor:
        """Log returns [N, P, S] float64 since the last close, on each session of each path."""
        rows = zip(inputs.observed.double(), inputs.mask, inputs.known.long(), strict=True)
        return torch.stack([self._sample_row(*row) for row in rows])

    def quantiles(self, inputs: Inputs) -> Tensor:
        """Rising quantiles [N, H, Q] float64 of the log returns."""
        levels = self.levels.to(inputs.observed.device)
        return self.paths(inputs)[..., self.days].quantile(levels, dim=1).permute(1, 2, 0)

    def _sample_row(self, observed: Tensor, mask: Tensor, known: Tensor) -> Tensor:
        """Log returns [P, S] of one window: bars [T, 6], where they are known, and stamps [T + S, 3]."""
        noise = self.noise.to(observed.device)
        present = mask[:, :PRICES].all(dim=-1)
        bars, is_known = observed[present], mask[present]
        if not bool(is_known[:, PRICES:].all()):
            bars[:, PRICES:] = 0.0
        stamps = torch.cat([known[: len(mask)][present], known[len(mask) : len(mask) + len(noise)]])
        stamps = functional.pad(stamps, (len(STAMP_SIZES) - len(STAMPS), 0))
        center, spread = bars.mean(dim=0), bars.std(dim=0, correction=0) + MIN_SPREAD
        past_tokens = self.tokenizer.encode(((bars - center) / spread).clamp(-CLIP, CLIP)[None])
        sampled_bars = self.tokenizer.decode(past_tokens, self.model.sample(past_tokens, stamps, noise))
        closes = sampled_bars[..., CLOSE] * spread[CLOSE] + center[CLOSE]
        return (closes / bars[-1, CLOSE]).clamp(min=MIN_CLOSE).log()


KRONOS: Final = NetworkKind(
    "kronos", 1, KronosConfig, KronosForecaster, KRONOS_ARITHMETIC, is_trainable=False, is_adopted=True
)

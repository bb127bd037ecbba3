"""Inputs of networks, their sizes, and the edges of a graph."""

import hashlib
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import torch
from torch import Tensor

from predictor.errors import ConfigurationError

ROW_ARITHMETIC: Final = "observed, known, share of known cells"
"""Stored in artifacts; "known cells" are the present ones of `Inputs.mask`."""


class Inputs(NamedTuple):
    """N windows. A group of inputs that a model does not have has width 0.

    Known features have a known future; an observed cell is present or, without data, 0 and not in the mask.
    Legend: N rows, T encoder sessions, D future sessions, F observed, K known, C static features, H horizons.
    """

    observed: Tensor
    """float32 [N, T, F] scaled features, 0 where a cell is not present."""
    known: Tensor
    """float32 [N, T + D, K] features with a known future, such as the weekday."""
    static: Tensor
    """float32 [N, C]"""
    mask: Tensor
    """bool [N, T, F] True where the observed cell is present."""
    location: Tensor
    """float64 [N, H] expected level of the target."""
    scale: Tensor
    """float64 [N, H] expected volatility per day, positive; the target's spread scales it to the horizon."""

    def rows(self, start: int, stop: int) -> "Inputs":
        """The windows from `start` to `stop`."""
        return Inputs(*(group[start:stop] for group in self))

    def as_float32(self) -> "Inputs":
        """The same inputs with all floats in float32: losses need no more, and Apple's devices have no float64."""
        return self._replace(location=self.location.float(), scale=self.scale.float())


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSizes:
    """Widths of a network's groups of inputs."""

    encoder_length: int
    """Sessions that the network reads (T)."""
    future_length: int
    """Sessions after the last one that known features cover (D)."""
    observed: int
    known: int
    static: int
    static_widths: tuple[int, ...] = ()
    """Columns per static variable, such as one per category; empty if every column is a variable."""
    nodes: int = 0
    """Number of stocks in a network's graph."""


def compute_row_width(sizes: InputSizes) -> int:
    """Width of a session's row."""
    return sizes.observed + sizes.known + 1


def make_session_rows(inputs: Inputs) -> Tensor:
    """[N, T, F + K + 1] observed features, known features, and the share of present cells."""
    length = inputs.observed.shape[1]
    # on a CPU, a sum of booleans is fast and their mean is not
    share_present = inputs.mask.sum(-1, keepdim=True).to(inputs.observed.dtype) / inputs.mask.shape[-1]
    return torch.cat([inputs.observed, inputs.known[:, :length], share_present], dim=-1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edges:
    """Neighbours of each stock, with weights. Legend: U stocks of the universe, at most k neighbours.

    Raises:
        ConfigurationError: shapes differ, a neighbour does not exist or is the stock itself, or a weight is not finite.
    """

    neighbours: Tensor
    """int64 [U, k] index of each neighbour in the universe, -1 = none."""
    weights: Tensor
    """float32 [U, k] such as correlations; 0 for missing neighbours."""

    def __post_init__(self) -> None:
        if self.neighbours.ndim != 2 or self.neighbours.shape != self.weights.shape:  # noqa: PLR2004 - [U, k]
            raise ConfigurationError(
                f"edges have neighbours {list(self.neighbours.shape)} and weights {list(self.weights.shape)}, but both "
                "must be [stocks, neighbours]"
            )
        nodes = len(self.neighbours)
        wrong = (self.neighbours < -1) | (self.neighbours >= nodes)
        if wrong.any():
            stock = int(self.neighbours[wrong][0])
            raise ConfigurationError(f"an edge leads to stock {stock}, but there are {nodes} (-1 = none)")
        if (self.neighbours == torch.arange(nodes)[:, None]).any():
            raise ConfigurationError(
                "an edge leads from a stock to itself; remove it, because a stock always reads itself"
            )
        if not torch.isfinite(self.weights).all():
            raise ConfigurationError("a weight of the edges is infinite or not a number")

    @property
    def digest(self) -> str:
        """SHA-256 of neighbours and weights, in hex."""
        return hashlib.sha256(self.neighbours.numpy().tobytes() + self.weights.numpy().tobytes()).hexdigest()

    @classmethod
    def none(cls, nodes: int, neighbours: int) -> Self:
        """A graph without edges."""
        return cls(
            neighbours=torch.full((nodes, neighbours), -1), weights=torch.zeros(nodes, neighbours, dtype=torch.float32)
        )

"""What networks are given: the one input value that every network reads, its sizes, and the edges of a graph."""

import hashlib
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import torch
from torch import Tensor

from predictor.errors import ConfigurationError

ROW_ARITHMETIC: Final = "observed, known, share of known cells"


class Inputs(NamedTuple):
    """N windows. A group of inputs that a model lacks has width 0.

    Legend: N rows, T encoder sessions, D future sessions, F observed, K known, C static features, H horizons.
    """

    observed: Tensor
    """float32 [N, T, F] scaled features, 0 where unknown."""
    known: Tensor
    """float32 [N, T + D, K] features whose future is known, such as the weekday."""
    static: Tensor
    """float32 [N, C]"""
    mask: Tensor
    """bool [N, T, F] True where the observed cell is known."""
    location: Tensor
    """float64 [N, H] level of the target that the window leads to expect."""
    scale: Tensor
    """float64 [N, H] volatility that it leads to expect, positive; times the target's spread: that of a horizon."""

    def rows(self, start: int, stop: int) -> "Inputs":
        """The windows from `start` up to `stop`."""
        return Inputs(*(group[start:stop] for group in self))

    def for_learning(self) -> "Inputs":
        """The same in float32 throughout: no loss needs more, and Apple's devices have no float64."""
        return self._replace(location=self.location.float(), scale=self.scale.float())


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSizes:
    """How large each group of a network's inputs is."""

    encoder_length: int
    """Sessions that the network reads (T)."""
    future_length: int
    """Sessions after the last one that known features cover (D)."""
    observed: int
    known: int
    static: int
    static_widths: tuple[int, ...] = ()
    """Columns that each static variable takes, such as one per category; empty: every column is a variable."""
    nodes: int = 0
    """Stocks that a network with a graph knows by name."""


def row_width(sizes: InputSizes) -> int:
    """Numbers in one session's row."""
    return sizes.observed + sizes.known + 1


def session_rows(inputs: Inputs) -> Tensor:
    """[N, T, F + K + 1] observed and known features, and the share of observed cells that are known."""
    length = inputs.observed.shape[1]
    # a sum of truth values is fast on a CPU, their mean is not
    share_known = inputs.mask.sum(-1, keepdim=True).to(inputs.observed.dtype) / inputs.mask.shape[-1]
    return torch.cat([inputs.observed, inputs.known[:, :length], share_known], dim=-1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edges:
    """Each stock's neighbours and how near they are. Legend: U stocks of the universe, k neighbours at most.

    Raises:
        ConfigurationError: shapes differ, a neighbour does not exist or is the stock itself, or a weight is not finite.
    """

    neighbours: Tensor
    """int64 [U, k] place of each neighbour in the universe, -1 = none."""
    weights: Tensor
    """float32 [U, k] such as a correlation; 0 where there is no neighbour."""

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
            raise ConfigurationError("an edge leads from a stock to itself; leave it out: a stock always sees itself")
        if not torch.isfinite(self.weights).all():
            raise ConfigurationError("a weight of the edges is infinite or not a number")

    @property
    def digest(self) -> str:
        """SHA-256 of neighbours and weights, in hex."""
        return hashlib.sha256(self.neighbours.numpy().tobytes() + self.weights.numpy().tobytes()).hexdigest()

    @classmethod
    def none(cls, nodes: int, neighbours: int) -> Self:
        """A graph without edges: every stock is by itself."""
        return cls(
            neighbours=torch.full((nodes, neighbours), -1), weights=torch.zeros(nodes, neighbours, dtype=torch.float32)
        )

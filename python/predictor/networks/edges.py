"""Who looks at whom: the edges of a graph of stocks."""

import hashlib
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from predictor.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edges:
    """Each stock's neighbours and how near they are. Legend: U stocks of the universe, k neighbours at most.

    Raises:
        ConfigurationError: shapes differ, a neighbour does not exist or is the stock itself, or a weight is no number.
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
            found = int(self.neighbours[wrong][0])
            raise ConfigurationError(f"an edge leads to stock {found}, but there are {nodes} (-1 = none)")
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
        """A graph without edges: every stock stands for itself."""
        return cls(
            neighbours=torch.full((nodes, neighbours), -1), weights=torch.zeros(nodes, neighbours, dtype=torch.float32)
        )

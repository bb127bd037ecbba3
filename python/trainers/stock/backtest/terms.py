"""How a book is run: how long positions are held, when they are traded, what that costs, and what a delisting does."""

from dataclasses import dataclass
from math import inf
from typing import Annotated

from predictor.errors import ConfigurationError
from predictor.flags import Flag

SESSIONS_A_YEAR = 252
BASIS_POINT = 1e-4

LONGEST_HALT = 20
"""Sessions without a bar in a row after which a position is closed as delisted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a book is run."""

    horizon: Annotated[
        int,
        Flag("Sessions that a position is held for; left out: 5 where the model has it, else its first.", minimum=1),
    ]
    """The forecast behind a decision reaches as far."""
    rebalance: Annotated[int, Flag("Sessions between decisions that are traded.", minimum=1)] = 1
    delay: int = 1
    """Sessions from the close that a decision is made after to the close that it is traded at."""
    cost_bps: Annotated[float, Flag("Basis points on every unit of money bought or sold.")] = 10.0
    borrow_bps: Annotated[float, Flag("Basis points a year on every unit sold short.")] = 50.0
    """A session's share for each session held."""
    delisting_return: Annotated[
        float,
        Flag(
            f"Simple return, on the last close seen, of a position without a bar for {LONGEST_HALT} sessions or at "
            "the end; -1 loses everything.",
            minimum=-1,
        ),
    ] = 0.0

    def __post_init__(self) -> None:
        for name, least in (("horizon", 1), ("rebalance", 1), ("delay", 0)):
            value: int = getattr(self, name)
            if value < least:
                raise ConfigurationError(f"{name} is {value} sessions, but must be at least {least}")
        for name in ("cost_bps", "borrow_bps"):
            paid: float = getattr(self, name)
            if not 0 <= paid <= 1 / BASIS_POINT:
                raise ConfigurationError(f"{name} is {paid:g}, but must be from 0 to {1 / BASIS_POINT:g} basis points")
        if not -1 <= self.delisting_return < inf:
            raise ConfigurationError(
                f"delisting_return is {self.delisting_return:g}, but must be at least -1 and finite"
            )

    @property
    def tranches(self) -> int:
        """Equal parts of the book; each decision renews one, so that each is held for about the horizon."""
        return -(-self.horizon // self.rebalance)

    @property
    def cost(self) -> float:
        """Paid on every unit traded, as a share of it."""
        return BASIS_POINT * self.cost_bps

    @property
    def borrow(self) -> float:
        """Paid a session on every unit that is short, as a share of it."""
        return BASIS_POINT * self.borrow_bps / SESSIONS_A_YEAR

"""How a book is run: how long positions are held, when they are traded, what that costs, and what a delisting does."""

from dataclasses import dataclass
from math import inf

from predictor.errors import ConfigurationError

SESSIONS_A_YEAR = 252
BASIS_POINT = 1e-4

LONGEST_HALT = 20
"""Sessions without a bar in a row after which a position is closed as delisted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a book is run."""

    horizon: int
    """Sessions that a decision is held for, and that the forecast behind it reaches."""
    rebalance: int = 1
    """Sessions between decisions that are traded."""
    delay: int = 1
    """Sessions from the close that a decision is made after to the close that it is traded at."""
    cost_bps: float = 10.0
    """Basis points paid on every unit of money that is bought or sold."""
    borrow_bps: float = 50.0
    """Basis points a year paid on every unit that is sold short, a session's share for each session held."""
    delisting_return: float = 0.0
    """Simple return, on the last close seen, of a position whose bars do not come back; -1 at least."""

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

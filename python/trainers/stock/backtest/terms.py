"""How a book is run: how long positions are held, when they are traded, and what that costs."""

from dataclasses import dataclass

from predictor.errors import ConfigurationError

SESSIONS_A_YEAR = 252
BASIS_POINT = 1e-4


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

    def __post_init__(self) -> None:
        for name, least in (("horizon", 1), ("rebalance", 1), ("delay", 0)):
            value: int = getattr(self, name)
            if value < least:
                raise ConfigurationError(f"{name} is {value} sessions, but must be at least {least}")
        for name in ("cost_bps", "borrow_bps"):
            paid: float = getattr(self, name)
            if not 0 <= paid <= 1 / BASIS_POINT:
                raise ConfigurationError(f"{name} is {paid:g}, but must be from 0 to {1 / BASIS_POINT:g} basis points")

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

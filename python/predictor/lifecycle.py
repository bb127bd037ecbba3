"""Comparison and promotion of model versions, as a server offers them; `trainers.stock.lifecycle` implements it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from predictor.canonical import Json
from predictor.ledger import Ledger

if TYPE_CHECKING:
    from predictor.registry import AliasMove, GateResult

Check = Callable[[], None]
"""Called between the steps of a comparison; raises QuantraError if it is no longer wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """The losses of a challenger against those of a champion."""

    champion: str
    """Such as mine@3."""
    challenger: str
    decision: bool | None
    """Whether the challenger has what its promotion needs; None if that is undecided."""
    need: str
    """What a promotion needs."""
    sentence: str
    """The result in words."""
    first_session: int
    last_session: int
    days: int
    symbols: tuple[str, ...]
    improvement: float
    """0.01 if the loss of the challenger is 1 % smaller."""
    lower: float | None
    """A bound that holds no matter how often you look; None with too few days."""
    upper: float | None
    whole: Mapping[str, Json]
    """The whole result, as `quantra compare --json` prints it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionResult:
    """The gates of a promotion, and whether the version is the champion now."""

    promoted: bool
    gates: "tuple[GateResult, ...]"
    """Empty if it was the champion already."""
    champion: int
    """The champion now; 0 for none."""


class ModelLifecycle(Protocol):
    """Compares and promotes the versions in a folder of models, by the bars and forecasts of a ledger."""

    def compare(
        self, ledger: Ledger, champion: str, challenger: str, *, check: Check, start: int | None = None
    ) -> ComparisonResult:
        """Compare two versions on days that neither has seen, from `start` (yyyymmdd); raises QuantraError."""
        ...

    def promote(
        self, ledger: Ledger, version: str, *, reason: str, check: Check, overridden: Collection[str] = ()
    ) -> PromotionResult:
        """Make NAME@VERSION the champion if it passes the gates that are not overridden; raises QuantraError."""
        ...

    def roll_back(self, ledger: Ledger, name: str, *, reason: str, expected: int | None = None) -> "AliasMove":
        """Make the previous champion the champion again; raises QuantraError if the champion is not `expected`."""
        ...

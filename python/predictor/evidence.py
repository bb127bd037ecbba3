"""Tests of coverage and skill that stay valid if read every day, although labels are late and overlap.

Coverage is tested by betting against it. A bet multiplies its capital by 1 + stake x (promised share - share inside),
which does not grow on average if the promise holds. The probability that the capital ever exceeds 1 / alpha is then at
most alpha. Labels of `horizon` sessions overlap, so `horizon` accounts bet in turn, and the labels of one account do
not overlap. An account with an open bet could stop at a lucky moment, so red counts open bets at their worst outcome
(Henzi & Ziegel, Biometrika 109:1181, with its erratum). New capital enters every RESTART sessions, to find late
changes.

Skill is a mean difference of losses with an asymptotic confidence sequence (Waudby-Smith et al., arXiv 2103.06476) on
Newey-West errors.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import log, nan, sqrt
from typing import Final, NamedTuple, final

import numpy as np

from predictor.arrays import BoolArray, FloatArray, IntArray

ALPHA: Final = 0.05
"""Probability that a test ever gives a false alarm."""
RESTART: Final = 60
"""Sessions after which new capital enters."""
SINGLE_STAKES: Final = (0.4, 0.9, 1.6)
"""Stakes for fewer than POOLED_FROM symbols."""
POOLED_STAKES: Final = (0.8, 2.0, 3.6)
"""Stakes from POOLED_FROM symbols on, whose share varies less."""
POOLED_FROM: Final = 20
_LARGEST_LOSS: Final = 0.95
"""Largest share of the capital that one bet may lose."""
_SEQUENCE_DAYS: Final = 250
"""Dates at which the confidence sequence is narrowest."""


class Lamp(StrEnum):
    """The verdict of a test on a model, in one word."""

    LEARNING = "learning"
    """Too few outcomes to notice a broken model."""
    GREEN = "green"
    AMBER = "amber"
    RED = "red"


class CoverageSide(StrEnum):
    """The deviation that a test of coverage looks for."""

    TOO_FEW = "too few"
    """Fewer outcomes than promised are inside: the band is too narrow."""
    TOO_MANY = "too many"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DailyShares:
    """How many of each date's symbols have an outcome inside, for D dates; outcomes of one date are dependent."""

    dates: IntArray
    """[D] ascending, yyyymmdd."""
    symbols: IntArray
    """[D] forecasts of the date."""
    inside: IntArray
    """[D] outcomes inside."""
    unknown: IntArray
    """[D] missing outcomes."""
    is_due: BoolArray
    """[D] whether the date's outcomes are due."""

    def of(self, side: CoverageSide) -> FloatArray:
        """[D] the share for a test, with missing outcomes counted against an alarm; NaN if not due."""
        hits = self.inside + (self.unknown if side is CoverageSide.TOO_FEW else 0)
        return np.where(self.is_due, hits / self.symbols, nan)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BettingCapital:
    """Capital after each date's outcome, [N, D] for N streams of D dates; starts at 1, NaN if not due."""

    plain: FloatArray
    """Open bets count with their stake."""
    guarded: FloatArray
    """Open bets count at their worst outcome; only this capital justifies an alarm."""


@final
class _BettingAccounts:
    """The capital of `horizon` accounts that bet in turn; account t mod horizon bets on date t."""

    def __init__(self, count: int, stakes: FloatArray, worst: float, horizon: int) -> None:
        self._date = 0
        self._capital = np.zeros((count, horizon, stakes.size))
        self._is_open = np.zeros(horizon, np.bool_)
        self._reserve = np.ones(horizon)
        self._entered = np.zeros(horizon, np.int64)
        self._stakes = np.minimum(stakes, _LARGEST_LOSS / -worst)
        self._worst = 1 + self._stakes * worst

    def repeated(self, copies: int) -> "_BettingAccounts":
        """Copy the only stream into independent ones."""
        copy = object.__new__(_BettingAccounts)
        copy.__dict__.update(self.__dict__)
        copy._capital = np.repeat(self._capital, copies, axis=0)
        copy._is_open, copy._reserve = self._is_open.copy(), self._reserve.copy()
        copy._entered = self._entered.copy()
        return copy

    def next_date(self, gains: FloatArray | None, *, opens: bool) -> None:
        """Settle the bet on the date `horizon` dates ago with these gains [N], and bet on the next date."""
        turn = self._date % self._reserve.size
        if gains is not None:
            self._capital[:, turn] *= 1 + self._stakes * gains[:, None]
            self._is_open[turn] = False
        if opens:
            while self._entered[turn] * RESTART <= self._date:
                k = int(self._entered[turn])
                part = 1 / ((k + 1) * (k + 2))
                self._capital[:, turn] += part
                self._reserve[turn] -= part
                self._entered[turn] += 1
            self._is_open[turn] = True
        self._date += 1

    def plain(self) -> FloatArray:
        return self._capital.mean(axis=(1, 2)) + self._reserve.mean()

    def guarded(self) -> FloatArray:
        factors = np.where(self._is_open[:, None], self._worst, 1.0)
        return (self._capital * factors).mean(axis=(1, 2)) + self._reserve.mean()


def bet_on_shares(
    shares: FloatArray, promised: float, side: CoverageSide, *, symbols: int, horizon: int
) -> BettingCapital:
    """Bet against a promised share.

    Args:
        shares: [N, D] share inside for each date; NaN from the first date that is not due.
        promised: such as 0.8, in (0, 1).
        side: too few or too many.
        symbols: symbols pooled, for the stakes.
        horizon: sessions until an outcome.
    """
    count, dates = shares.shape
    accounts = _open_accounts(count, promised, side, symbols=symbols, horizon=horizon)
    plain, guarded = np.full(shares.shape, nan), np.full(shares.shape, nan)
    for date in range(dates + horizon):
        due = date - horizon
        gains = None if due < 0 else _gains(shares[:, due], promised, side)
        accounts.next_date(gains, opens=date < dates)
        if due >= 0:
            plain[:, due], guarded[:, due] = accounts.plain(), accounts.guarded()
    return BettingCapital(plain=plain, guarded=guarded)


def _open_accounts(count: int, promised: float, side: CoverageSide, *, symbols: int, horizon: int) -> _BettingAccounts:
    stakes = np.array(POOLED_STAKES if symbols >= POOLED_FROM else SINGLE_STAKES)
    return _BettingAccounts(count, stakes, promised - 1 if side is CoverageSide.TOO_FEW else -promised, horizon)


def _gains(shares: FloatArray, promised: float, side: CoverageSide) -> FloatArray:
    return promised - shares if side is CoverageSide.TOO_FEW else shares - promised


class CoverageEvidence(NamedTuple):
    """The result of one test of coverage."""

    lamp: Lamp
    days: int
    """Dates whose outcomes are due."""
    share: float
    """Mean share inside; NaN without dates."""
    plain: float
    """Capital now."""
    guarded: float
    amber_since: int
    """First date (yyyymmdd) whose outcomes made the lamp amber; 0 for never."""
    red_since: int
    notice_days: int
    """Sessions within which a drop by 0.15 is noticed in 9 of 10 cases; 0 if unknown or above 1,000."""


def assess_coverage(shares: DailyShares, promised: float, side: CoverageSide, *, horizon: int) -> CoverageEvidence:
    """Test a promised share, such as 0.8 inside the band from 0.1 to 0.9. An alarm does not clear itself."""
    daily = shares.of(side)
    due = int(np.isfinite(daily).sum())
    symbols = int(np.median(shares.symbols)) if shares.symbols.size else 1
    wealth = bet_on_shares(daily[None], promised, side, symbols=symbols, horizon=horizon)
    plain, guarded = wealth.plain[0, :due], wealth.guarded[0, :due]
    amber, red = (_first(shares.dates, path >= 1 / ALPHA) for path in (plain, guarded))
    notice = 0
    if side is CoverageSide.TOO_FEW:
        notice = notice_days(daily[:due], promised, symbols=symbols, horizon=horizon)
    lamp = Lamp.GREEN if notice and due >= notice else Lamp.LEARNING
    if amber:
        lamp = Lamp.RED if red else Lamp.AMBER
    last = slice(due - 1, due)
    return CoverageEvidence(
        lamp=lamp,
        days=due,
        share=float(daily[:due].mean()) if due else nan,
        plain=float(plain[last].sum()) if due else 1.0,
        guarded=float(guarded[last].sum()) if due else 1.0,
        amber_since=amber,
        red_since=red,
        notice_days=notice,
    )


def _first(dates: IntArray, is_true: BoolArray) -> int:
    return int(dates[np.argmax(is_true)]) if is_true.any() else 0


_DROP: Final = 0.15
_NOTICED: Final = 0.9
_LONGEST_NOTICE: Final = 1000
_LEAST_DATES: Final = 20
_PATHS: Final = 200


def notice_days(shares: FloatArray, promised: float, *, symbols: int, horizon: int) -> int:
    """Sessions within which the test would notice, in 9 of 10 cases, a drop of the share by 0.15 from now on.

    Simulated from the present capital with blocks of the observed shares [D], to keep their dependence. 0 with too few
    dates for the simulation, or if it takes more than 1,000 sessions.
    """
    if shares.size < max(_LEAST_DATES, 3 * horizon):
        return 0
    accounts = _open_accounts(1, promised, CoverageSide.TOO_FEW, symbols=symbols, horizon=horizon)
    for date in range(shares.size + horizon):
        gains = None if date < horizon else _gains(shares[date - horizon, None], promised, CoverageSide.TOO_FEW)
        accounts.next_date(gains, opens=True)
    random, block = np.random.default_rng(shares.size), max(2 * horizon, 5)
    starts = random.integers(shares.size, size=(_PATHS, -(-_LONGEST_NOTICE // block)))
    places = (starts[..., None] + np.arange(block)).reshape(_PATHS, -1) % shares.size
    level = promised - _DROP * np.minimum(1, np.arange(1, _LONGEST_NOTICE + 1) / horizon)
    kept = np.minimum(1, level / max(float(shares.mean()), 1e-9))
    drawn = shares[places[:, :_LONGEST_NOTICE]]
    covered = random.binomial(np.round(symbols * drawn).astype(np.int64), kept) / symbols
    many, noticed = accounts.repeated(_PATHS), np.zeros(_PATHS, np.bool_)
    for date in range(_LONGEST_NOTICE):
        many.next_date(_gains(covered[:, date], promised, CoverageSide.TOO_FEW), opens=True)
        noticed |= many.guarded() >= 1 / ALPHA
        if noticed.mean() >= _NOTICED:
            return date + 1
    return 0


def describe_notice(promised: float, days: int) -> str:
    """Describe the drop that a test would notice; `days` as in `CoverageEvidence.notice_days`."""
    if not days:
        return f"cannot tell yet when {promised - _DROP:.2f} instead of {promised:.2f} would be noticed"
    return f"would notice {promised - _DROP:.2f} instead of {promised:.2f} within {days} sessions, 9 times out of 10"


# --- confidence sequences


class SkillEvidence(NamedTuple):
    """A mean difference of losses with bounds; the probability that a bound is ever wrong is ALPHA."""

    days: int
    their_loss: float
    """Mean loss of the other model, to express the rest in percent; NaN without dates."""
    mean: float
    lower: float
    """-inf with too few dates."""
    upper: float


def standard_deviation(series: FloatArray, lag: int) -> FloatArray:
    """[N] long-run standard deviation of series [N, D] (Newey & West 1987)."""
    left = series - series.mean(axis=1, keepdims=True)
    count = left.shape[1]
    variance = (left * left).mean(axis=1)
    for k in range(1, min(lag, count - 1) + 1):
        variance += 2 * (1 - k / (lag + 1)) * (left[:, k:] * left[:, :-k]).sum(axis=1) / count
    return np.sqrt(np.maximum(variance, 0.0))


def sequence_radius(series: FloatArray, horizon: int, alpha: float = ALPHA) -> FloatArray:
    """[N] half the width of the confidence sequences of the means of series [N, D], from labels of `horizon` sessions.

    Each side is ever wrong with probability alpha. The errors are scaled for the autocovariances that are estimated;
    otherwise the first intervals would be too narrow.
    """
    lag, days = 2 * horizon, series.shape[1]
    spread = (-2 * log(alpha) + log(-2 * log(alpha) + 1)) / _SEQUENCE_DAYS
    scaled = days * spread
    width = sqrt(2 * (scaled + 1) / (days * scaled) * log(1 + sqrt(scaled + 1) / (2 * alpha)))
    return standard_deviation(series, lag) * sqrt(days / (days - lag - 1)) * width


def least_sequence_days(horizon: int) -> int:
    """The number of dates from which on a sequence has bounds."""
    return max(60, 10 * horizon)


def compare_losses(theirs: FloatArray, ours: FloatArray, *, horizon: int, alpha: float = ALPHA) -> SkillEvidence:
    """Measure how much lower our daily losses [D] are than theirs on the same dates; positive is better."""
    differences = (theirs - ours)[None]
    days = differences.shape[1]
    scale, mean = (float(theirs.mean()), float(differences.mean())) if days else (nan, nan)
    if days < least_sequence_days(horizon):
        return SkillEvidence(days, scale, mean, -np.inf, np.inf)
    radius = float(sequence_radius(differences, horizon, alpha)[0])
    return SkillEvidence(days, scale, mean, mean - radius, mean + radius)


class LevelShares(NamedTuple):
    """How often outcomes were at or below each of Q quantiles, with bounds that hold no matter how often you look."""

    days: int
    share: FloatArray
    """[Q] mean of the daily shares."""
    lower: FloatArray
    """[Q]; NaN with too few dates."""
    upper: FloatArray


def bound_level_shares(shares: FloatArray, *, horizon: int) -> LevelShares:
    """Bound the share of outcomes at or below each quantile; `shares` [D, Q] pool the symbols of each date.

    The errors are those of the shares with `horizon` dates of none and of all added, because a quantile that few
    outcomes reached would otherwise look certain.
    """
    mean, days = shares.mean(axis=0), len(shares)
    if days < least_sequence_days(horizon):
        return LevelShares(days, mean, np.full_like(mean, nan), np.full_like(mean, nan))
    none = np.zeros((horizon, mean.size))
    radius = sequence_radius(np.concatenate([shares, none, 1 - none]).T, horizon)
    return LevelShares(days, mean, np.maximum(mean - radius, 0.0), np.minimum(mean + radius, 1.0))


def challenger_alpha(attempt: int, alpha: float = ALPHA) -> float:
    """The error probability of the k-th challenger of a model, from 1; those of all challengers add up to alpha."""
    return alpha * 6 / (np.pi * attempt) ** 2

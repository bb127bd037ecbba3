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
from itertools import pairwise
from math import log, nan, sqrt
from typing import Final, NamedTuple, final

import numpy as np

from predictor.arrays import BoolArray, FloatArray, IntArray, PositionArray

ALPHA: Final = 0.05
"""Probability that a test ever gives a false alarm."""
RESTART: Final = 60
"""Sessions after which new capital enters."""
SINGLE_STAKES: Final = (0.4, 0.9, 1.6)
"""Stakes for fewer than POOLED_FROM symbols."""
POOLED_STAKES: Final = (0.8, 2.0, 3.6)
"""Stakes from POOLED_FROM symbols on, whose share varies less."""
POOLED_FROM: Final = 20
_MAX_LOSS: Final = 0.95
"""Largest share of the capital that one bet may lose."""
_SEQUENCE_DAYS: Final = 250
"""Dates at which the confidence sequence is narrowest."""


class Lamp(StrEnum):
    """The verdict of a test on a model. Ledgers, metrics, the protocol and C# name it `lamp` too."""

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

    def compute_shares(self, side: CoverageSide) -> FloatArray:
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
class _Bets:
    """The bets of `horizon` accounts against a promised share, computed for all dates together.

    Account t mod horizon settles its bet and places the next one on date t, which is its turn. `last` is the number of
    the first date without a new bet.
    """

    def __init__(self, promised: float, side: CoverageSide, *, symbols: int, horizon: int) -> None:
        self.horizon = horizon
        self._promised, self._side = promised, side
        worst = promised - 1 if side is CoverageSide.TOO_FEW else -promised
        stakes = np.array(POOLED_STAKES if symbols >= POOLED_FROM else SINGLE_STAKES)
        self._stakes = np.minimum(stakes, _MAX_LOSS / -worst)
        self.worst = 1 + self._stakes * worst
        """[S] factor of the capital, for each stake, if nothing is won."""

    def begin(self, shares: FloatArray, last: int) -> FloatArray:
        """[N, D + horizon, S] capital after each date's turn, from bets on shares [N, D] of the first dates."""
        none = np.zeros((len(shares), self.horizon, self.worst.size))
        return self._compound_capital(none, np.concatenate([none, self._compute_gains(shares)], axis=1), 0, last)

    def proceed(self, before: FloatArray, shares: FloatArray, first: int) -> FloatArray:
        """[N, T, S] capital after each turn from date `first` on, whose bets are settled with these shares [N, T].

        `before` [N, horizon, S] is the capital after the turns before `first`. A bet is placed on every date.
        """
        return self._compound_capital(before, self._compute_gains(shares), first, first + shares.shape[1])

    def _compute_gains(self, shares: FloatArray) -> FloatArray:
        """[N, D, S] what each stake gains."""
        gains = self._promised - shares if self._side is CoverageSide.TOO_FEW else shares - self._promised
        return self._stakes * gains[..., None]

    def _compound_capital(self, before: FloatArray, gains: FloatArray, first: int, last: int) -> FloatArray:
        """[N, D, S] capital after each date's turn; an account multiplies its capital and adds what enters."""
        factors, dates, horizon = 1 + gains, gains.shape[1], self.horizon
        for account in range(min(horizon, dates)):
            path, capital = factors[:, account::horizon], before[:, account]
            parts = self._count_entered(np.arange(first + account - horizon, first + dates, horizon), last).tolist()
            entries = [turn for turn in range(path.shape[1]) if parts[turn] < parts[turn + 1]]
            for begin, end in pairwise(sorted({0, *entries, path.shape[1]})):
                capital = capital * path[:, begin]
                for part in range(parts[begin], parts[begin + 1]):
                    capital = capital + _compute_capital_part(part)
                path[:, begin] = capital
                np.multiply.accumulate(path[:, begin:end], axis=1, out=path[:, begin:end])
                capital = path[:, end - 1]
        return factors

    def find_turns(self, dates: PositionArray) -> PositionArray:
        """[D, horizon] the last turn of each account on or before each date."""
        return dates[:, None] - (dates[:, None] - np.arange(self.horizon)) % self.horizon

    def compute_reserve(self, turns: PositionArray, last: int) -> FloatArray:
        """[D] mean capital that has not entered by the accounts' last turns [D, horizon]."""
        entered = self._count_entered(turns, last)
        reserves = [1.0]
        for number in range(int(entered.max(initial=0))):
            reserves.append(reserves[-1] - _compute_capital_part(number))
        return np.array(reserves)[entered].mean(axis=1)

    def _count_entered(self, turns: PositionArray, last: int) -> PositionArray:
        """How many parts of the capital have entered by each turn."""
        placed = np.where(turns < last, turns, turns - self.horizon)
        return np.where(placed < 0, 0, placed // RESTART + 1)


def _compute_capital_part(number: int) -> float:
    """The part of an account's capital that enters at its first turn after `number` times RESTART dates."""
    return 1 / ((number + 1) * (number + 2))


_MAX_NUMBERS: Final = 1 << 20
"""Size of the largest temporary array."""


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
    bets = _Bets(promised, side, symbols=symbols, horizon=horizon)
    after = bets.begin(shares, dates)
    plain, guarded = np.empty(shares.shape), np.empty(shares.shape)
    step = max(1, _MAX_NUMBERS // max(1, count * horizon * bets.worst.size))
    for first in range(0, dates, step):
        due = slice(first, min(first + step, dates))
        turns = bets.find_turns(np.arange(due.start, due.stop) + horizon)
        capital, reserve = np.take(after, turns, axis=1), bets.compute_reserve(turns, dates)
        plain[:, due] = capital.mean(axis=(2, 3)) + reserve
        is_open = (turns < dates)[..., None]
        guarded[:, due] = (capital * np.where(is_open, bets.worst, 1.0)).mean(axis=(2, 3)) + reserve
    return BettingCapital(plain=plain, guarded=guarded)


class CoverageEvidence(NamedTuple):
    """The result of one test of coverage."""

    lamp: Lamp
    days: int
    """Dates whose outcomes are due."""
    share: float
    """Mean share inside; NaN without dates."""
    plain: float
    """Capital now, as in `BettingCapital`."""
    guarded: float
    amber_since: int
    """First date (yyyymmdd) whose outcomes made the lamp amber; 0 for never."""
    red_since: int
    notice_days: int
    """Sessions within which a drop by 0.15 is noticed in 9 of 10 cases; 0 if unknown or above 1,000."""


def assess_coverage(shares: DailyShares, promised: float, side: CoverageSide, *, horizon: int) -> CoverageEvidence:
    """Test a promised share, such as 0.8 inside the band from 0.1 to 0.9. An alarm does not clear itself."""
    daily = shares.compute_shares(side)
    due = int(np.isfinite(daily).sum())
    symbols = int(np.median(shares.symbols)) if shares.symbols.size else 1
    capital = bet_on_shares(daily[None], promised, side, symbols=symbols, horizon=horizon)
    plain, guarded = capital.plain[0, :due], capital.guarded[0, :due]
    alarms = [path >= 1 / ALPHA for path in (plain, guarded)]
    amber, red = (int(shares.dates[np.argmax(alarm)]) if alarm.any() else 0 for alarm in alarms)
    notice = 0
    if side is CoverageSide.TOO_FEW:  # a band that is too wide is no broken model, so this side is never green
        notice = estimate_notice_days(daily[:due], promised, symbols=symbols, horizon=horizon)
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


_DROP: Final = 0.15
_NOTICED: Final = 0.9
_MAX_NOTICE_LENGTH: Final = 1000
_MIN_DATES: Final = 20
_PATHS: Final = 200
_NOTICE_STEP: Final = 125
"""Sessions that are simulated before the next look."""


def estimate_notice_days(shares: FloatArray, promised: float, *, symbols: int, horizon: int) -> int:
    """Sessions within which the test would notice, in 9 of 10 cases, a drop of the share by 0.15 from now on.

    Simulated from the present capital with blocks of the observed shares [D], to keep their dependence. 0 with too few
    dates for the simulation, or if it takes more than 1,000 sessions.
    """
    if shares.size < max(_MIN_DATES, 3 * horizon):
        return 0
    dropped = _draw_dropped_shares(shares, promised, symbols=symbols, horizon=horizon)
    bets = _Bets(promised, CoverageSide.TOO_FEW, symbols=symbols, horizon=horizon)
    first = shares.size + horizon
    before = np.repeat(bets.begin(shares[None], first)[:, -horizon:], _PATHS, axis=0)
    total, noticed = (before * bets.worst).sum(axis=(1, 2))[:, None], np.zeros((_PATHS, 1), np.bool_)
    for start in range(0, _MAX_NOTICE_LENGTH, _NOTICE_STEP):
        after = bets.proceed(before, dropped[:, start : start + _NOTICE_STEP], first + start)
        dates = first + start + np.arange(after.shape[1])
        capital = np.concatenate([before, after], axis=1)
        change = ((after - capital[:, :-horizon]) * bets.worst).sum(axis=2)
        totals = total + np.cumsum(change, axis=1)
        guarded = totals / before[0].size + bets.compute_reserve(bets.find_turns(dates), dates[-1] + 1)
        alarms = np.logical_or.accumulate(np.concatenate([noticed, guarded >= 1 / ALPHA], axis=1), axis=1)[:, 1:]
        enough = alarms.mean(axis=0) >= _NOTICED
        if enough.any():
            return start + int(np.argmax(enough)) + 1
        before, total, noticed = capital[:, -horizon:], totals[:, -1:], alarms[:, -1:]
    return 0


def _draw_dropped_shares(shares: FloatArray, promised: float, *, symbols: int, horizon: int) -> FloatArray:
    """[PATHS, MAX_NOTICE_LENGTH] shares in blocks of the observed ones, whose level drops within `horizon` sessions."""
    random, block = np.random.default_rng(shares.size), max(2 * horizon, 5)
    starts = random.integers(shares.size, size=(_PATHS, -(-_MAX_NOTICE_LENGTH // block)))
    days = (starts[..., None] + np.arange(block)).reshape(_PATHS, -1) % shares.size
    level = promised - _DROP * np.minimum(1, np.arange(1, _MAX_NOTICE_LENGTH + 1) / horizon)
    kept_share = np.clip(level / max(float(shares.mean()), 1e-9), 0, 1)
    sampled_shares = shares[days[:, :_MAX_NOTICE_LENGTH]]
    return random.binomial(np.round(symbols * sampled_shares).astype(np.int64), kept_share) / symbols


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


def estimate_deviation(series: FloatArray, lag: int) -> FloatArray:
    """[N] long-run standard deviation of series [N, D] (Newey & West 1987)."""
    centered = series - series.mean(axis=1, keepdims=True)
    count = centered.shape[1]
    variance = (centered * centered).mean(axis=1)
    for k in range(1, min(lag, count - 1) + 1):
        variance += 2 * (1 - k / (lag + 1)) * (centered[:, k:] * centered[:, :-k]).sum(axis=1) / count
    return np.sqrt(np.maximum(variance, 0.0))


def compute_sequence_radius(series: FloatArray, horizon: int, alpha: float = ALPHA) -> FloatArray:
    """[N] half the width of the confidence sequences of the means of series [N, D], from labels of `horizon` sessions.

    Each side is ever wrong with probability alpha. The errors are scaled for the autocovariances that are estimated;
    otherwise the first intervals would be too narrow.
    """
    lag, days = 2 * horizon, series.shape[1]
    spread = (-2 * log(alpha) + log(-2 * log(alpha) + 1)) / _SEQUENCE_DAYS
    scaled = days * spread
    width = sqrt(2 * (scaled + 1) / (days * scaled) * log(1 + sqrt(scaled + 1) / (2 * alpha)))
    return estimate_deviation(series, lag) * sqrt(days / (days - lag - 1)) * width


def compute_least_sequence_days(horizon: int) -> int:
    """The number of dates from which on a sequence has bounds."""
    return max(60, 10 * horizon)


def compare_losses(theirs: FloatArray, ours: FloatArray, *, horizon: int, alpha: float = ALPHA) -> SkillEvidence:
    """Measure how much lower our daily losses [D] are than theirs on the same dates; positive is better."""
    differences = (theirs - ours)[None]
    days = differences.shape[1]
    scale, mean = (float(theirs.mean()), float(differences.mean())) if days else (nan, nan)
    if days < compute_least_sequence_days(horizon):
        return SkillEvidence(days, scale, mean, -np.inf, np.inf)
    radius = float(compute_sequence_radius(differences, horizon, alpha)[0])
    return SkillEvidence(days, scale, mean, mean - radius, mean + radius)


class LevelShares(NamedTuple):
    """How often outcomes were at or below each of Q quantiles, with bounds that hold no matter how often you look."""

    days: int
    share: FloatArray
    """[Q] mean of the daily shares."""
    lower: FloatArray
    """[Q]; NaN with too few dates."""
    upper: FloatArray


_ADDED_BLOCKS: Final = 3


def bound_level_shares(shares: FloatArray, *, horizon: int) -> LevelShares:
    """Bound the share of outcomes at or below each quantile; `shares` [D, Q] pool the symbols of each date.

    The errors are those of the shares with _ADDED_BLOCKS x horizon dates of none and of all added. Otherwise the first
    intervals would be too narrow, above all for a quantile that few outcomes reached.
    """
    mean, days = shares.mean(axis=0), len(shares)
    if days < compute_least_sequence_days(horizon):
        return LevelShares(days, mean, np.full_like(mean, nan), np.full_like(mean, nan))
    none = np.zeros((_ADDED_BLOCKS * horizon, mean.size))
    radius = compute_sequence_radius(np.concatenate([shares, none, 1 - none]).T, horizon)
    return LevelShares(days, mean, np.maximum(mean - radius, 0.0), np.minimum(mean + radius, 1.0))


def compute_challenger_alpha(attempt: int) -> float:
    """The error probability of the k-th challenger of a model, from 1; those of all challengers add up to ALPHA."""
    return ALPHA * 6 / (np.pi * attempt) ** 2

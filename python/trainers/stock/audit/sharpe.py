"""Cost and trial checks of the strategy's Sharpe ratio.

Probabilistic Sharpe ratio: Bailey & Lopez de Prado (2012, "The Sharpe ratio efficient frontier"). Deflated Sharpe
ratio: Bailey & Lopez de Prado (2014, "The deflated Sharpe ratio"). Ratios are per session unless noted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import e, isfinite, sqrt
from statistics import NormalDist

import numpy as np

from predictor.arrays import FloatArray
from predictor.audit_record import AuditVerdict, CostCheck, TrialsCheck
from predictor.canonical import Json, Record
from predictor.errors import ConfigurationError
from trainers.stock.backtest.book import Book
from trainers.stock.backtest.performance import break_even, sharpe
from trainers.stock.backtest.result import STANDARD_ERRORS_95
from trainers.stock.backtest.strategies import SESSIONS_A_YEAR, TradingTerms

SURE = 0.95
"""Probability needed for a pass; its complement leads to a fail."""

EULER_MASCHERONI = 0.5772156649015329


def check_costs(book: Book, terms: TradingTerms, strategy: str) -> CostCheck:
    """Pass if the 95 % interval of the Sharpe ratio after costs is above 0, fail if below."""
    ratio, error = sharpe(book.net, terms.sessions_a_year)
    return CostCheck(
        verdict=_cost_verdict(ratio, error),
        strategy=strategy,
        charged_bps=terms.cost_bps,
        break_even_bps=break_even(book, terms),
        sharpe=ratio if isfinite(ratio) else None,
        sharpe_error=error if isfinite(error) else None,
    )


def _cost_verdict(ratio: float, error: float) -> AuditVerdict:
    if not isfinite(ratio) or abs(ratio) <= STANDARD_ERRORS_95 * error:
        return AuditVerdict.UNDECIDED
    return AuditVerdict.PASS if ratio > 0 else AuditVerdict.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCount:
    """Number of configurations that were tried before this one was chosen."""

    count: int
    counted_by: str
    """Source of the count, as text."""
    known: bool = True
    """Whether they were counted; without a count the check never passes."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigurationError(f"trials is {self.count}, but must be at least 1: this model was tried")


def counted_trials(given: int | None, card: Mapping[str, Json]) -> TrialCount:
    """The given count, else that of the tuning in the card, else 1."""
    if given is not None:
        return TrialCount(count=given, counted_by="as given")
    if "tuning" in card:
        return TrialCount(count=Record(card, "card").record("tuning").integer("trials"), counted_by="from the card")
    return TrialCount(count=1, counted_by="not counted: give --trials", known=False)


def check_trials(returns: FloatArray, trials: TrialCount, a_year: int = SESSIONS_A_YEAR) -> TrialsCheck:
    """Pass if the deflated Sharpe ratio is at least 0.95, fail if it is at most 0.05.

    Without a count of trials the check does not pass.

    Args:
        returns: [T] daily returns after costs.
        trials: Number of trials.
        a_year: Sessions per year.
    """
    best = expected_best(trials.count, len(returns))
    moments = ReturnMoments.of(returns) if np.ptp(returns) > 0 else None
    deflated = None if moments is None else probabilistic_sharpe(moments, best)
    return TrialsCheck(
        verdict=_trials_verdict(deflated, trials),
        trials=trials.count,
        counted_by=trials.counted_by,
        sessions=len(returns),
        sharpe=None if moments is None else moments.ratio * sqrt(a_year),
        expected_best=best * sqrt(a_year),
        probabilistic=None if moments is None else probabilistic_sharpe(moments, 0.0),
        deflated=deflated,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnMoments:
    """Moments of daily returns, on which the error of a Sharpe ratio depends."""

    ratio: float
    """Mean daily return over its standard deviation."""
    skewness: float
    kurtosis: float
    """3 for a normal distribution."""
    sessions: int

    @classmethod
    def of(cls, returns: FloatArray) -> "ReturnMoments":
        """Moments of daily returns [T], which must vary."""
        standard = (returns - returns.mean()) / returns.std()
        return cls(
            ratio=float(returns.mean() / returns.std()),
            skewness=float((standard**3).mean()),
            kurtosis=float((standard**4).mean()),
            sessions=len(returns),
        )


def probabilistic_sharpe(moments: ReturnMoments, benchmark: float) -> float:
    """Probability that the true daily ratio is above a benchmark.

    Phi((s - benchmark) sqrt(T - 1) / sqrt(1 - skewness s + (kurtosis - 1) / 4 s^2)).
    """
    variance = 1 - moments.skewness * moments.ratio + (moments.kurtosis - 1) / 4 * moments.ratio**2
    return NormalDist().cdf((moments.ratio - benchmark) * sqrt((moments.sessions - 1) / variance))


def expected_best(trials: int, sessions: int) -> float:
    """The expected daily ratio of the best of this many trials without skill.

    sqrt(V) ((1 - gamma) z(1 - 1/N) + gamma z(1 - 1/(N e))). The variance V of the trials is unknown; 1 / (T - 1) is
    that of an estimate from independent returns with mean 0.
    """
    if trials == 1:
        return 0.0
    normal = NormalDist()
    highest = (1 - EULER_MASCHERONI) * normal.inv_cdf(1 - 1 / trials)
    highest += EULER_MASCHERONI * normal.inv_cdf(1 - 1 / (trials * e))
    return highest / sqrt(sessions - 1)


def _trials_verdict(deflated: float | None, trials: TrialCount) -> AuditVerdict:
    if deflated is not None and deflated <= 1 - SURE:
        return AuditVerdict.FAIL
    if deflated is None or deflated < SURE or not trials.known:
        return AuditVerdict.UNDECIDED
    return AuditVerdict.PASS

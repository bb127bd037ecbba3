"""Lag check: skill of the same forecasts on outcomes that start at later closes."""

from dataclasses import dataclass, replace

import numpy as np

from predictor.arrays import FloatArray
from predictor.audit_record import AuditVerdict, LagCheck, LagRow
from trainers.stock.audit.skill import SkillEstimate, daily_losses, estimate, rank_ic, relative_gain
from trainers.stock.backtest.book import run_book
from trainers.stock.backtest.forecasts import DailyForecasts
from trainers.stock.backtest.performance import sharpe
from trainers.stock.backtest.strategies import StrategySettings, TradingTerms, weights_of

LAGS = (0, 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AuditedForecasts:
    """Forecasts of D sessions and S stocks with outcomes, prices and terms."""

    forecasts: DailyForecasts
    yardstick: str
    """Name of the baseline against which skill is measured."""
    plain: FloatArray
    """[D, S, H, Q] forecasts of the yardstick."""
    outcomes: tuple[FloatArray, ...]
    """Outcomes [D, S, H], one array per lag of `LAGS`."""
    closes: FloatArray
    """[D, S] adjusted."""
    spread: FloatArray
    """[H] growth of the target's scale with the horizon."""
    terms: TradingTerms
    """Trading terms; the lag replaces their delay."""
    tactic: StrategySettings

    @property
    def horizon(self) -> int:
        """The traded horizon, in sessions."""
        return self.terms.horizon

    @property
    def reach(self) -> int:
        """Sessions over which neighbouring outcomes overlap."""
        return self.forecasts.horizons[-1]


def gains(judged: AuditedForecasts, values: FloatArray, lag: int) -> FloatArray:
    """[D] daily improvement of values [D, S, H, Q] over the yardstick, relative to its mean loss."""
    outcome = judged.outcomes[LAGS.index(lag)]
    ours = daily_losses(judged.forecasts, values, outcome, judged.spread)
    return relative_gain(ours, daily_losses(judged.forecasts, judged.plain, outcome, judged.spread))


def check_lags(judged: AuditedForecasts) -> LagCheck:
    """Fail if skill at lag 0 is lost at lag 1, when one can trade, beyond luck."""
    daily = {lag: gains(judged, judged.forecasts.values, lag) for lag in LAGS}
    skill = {lag: estimate(series, judged.reach) for lag, series in daily.items()}
    lost = estimate(daily[0] - daily[1], judged.reach)
    return LagCheck(
        verdict=_verdict(skill[0], skill[1], lost),
        horizon=judged.horizon,
        yardstick=judged.yardstick,
        rows=tuple(_row(judged, lag, skill[lag]) for lag in LAGS),
    )


def _verdict(now: SkillEstimate, later: SkillEstimate, lost: SkillEstimate) -> AuditVerdict:
    if later.positive:
        return AuditVerdict.PASS
    return AuditVerdict.FAIL if now.positive and lost.positive else AuditVerdict.UNDECIDED


def _row(judged: AuditedForecasts, lag: int, skill: SkillEstimate) -> LagRow:
    ratio, ratio_error = _sharpe(judged, lag)
    ic = _ic(judged, lag)
    return LagRow(
        lag=lag,
        skill=skill.value,
        skill_error=skill.error,
        ic=None if ic is None else ic.value,
        ic_error=None if ic is None else ic.error,
        sharpe=ratio if np.isfinite(ratio) else None,
        sharpe_error=ratio_error if np.isfinite(ratio_error) else None,
    )


def _ic(judged: AuditedForecasts, lag: int) -> SkillEstimate | None:
    place = judged.forecasts.place(judged.horizon)
    outcome = judged.outcomes[LAGS.index(lag)][..., place]
    daily = rank_ic(judged.forecasts.ranking[..., place], outcome)
    return estimate(daily, judged.horizon) if len(daily) else None


def _sharpe(judged: AuditedForecasts, lag: int) -> tuple[float, float]:
    a_year = judged.terms.sessions_a_year
    wanted = weights_of(judged.forecasts, judged.horizon, judged.tactic, a_year)
    gross = run_book(wanted, judged.closes, replace(judged.terms, delay=lag)).gross[lag:]
    return sharpe(gross, a_year)

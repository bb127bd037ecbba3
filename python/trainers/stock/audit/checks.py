"""Lag, permutation, cost and trial checks, and the skill that they measure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import e, isfinite, sqrt
from statistics import NormalDist
from typing import Final, final

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.audit_record import AuditVerdict, CostCheck, LagCheck, LagRow, PermutationCheck, TrialsCheck
from predictor.bars import AdjustedBars, BarPanel
from predictor.canonical import Json, Record
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError
from predictor.networks import Target, normalise, restore
from predictor.windows import Pipeline
from trainers.stock.backtest.book import Book, run_book
from trainers.stock.backtest.forecasts import DailyForecasts
from trainers.stock.backtest.result import STANDARD_ERRORS_95, find_break_even_cost, sharpe
from trainers.stock.backtest.strategies import SESSIONS_A_YEAR, StrategySettings, TradingTerms, decide_weights
from trainers.stock.data import History, TrainingWindows
from trainers.stock.evaluation.baselines import OWN_SCALE, FitScope, InformationSet, MeasuredWindows
from trainers.stock.evaluation.evaluation_set import standard_error, widening_factor
from trainers.stock.evaluation.scores import rank_values
from trainers.stock.feature_cache import FeatureCache
from trainers.stock.splits import DataSplits, find_last_seen_session, list_decisions

SURE = 0.95
"""Probability needed for a pass; its complement leads to a fail."""


EULER_MASCHERONI = 0.5772156649015329


def check_costs(book: Book, terms: TradingTerms, strategy: str) -> CostCheck:
    """Pass if the 95 % interval of the Sharpe ratio after costs is above 0, fail if below."""
    ratio, error = sharpe(book.net, terms.sessions_a_year)
    verdict = AuditVerdict.UNDECIDED
    if isfinite(ratio) and abs(ratio) > STANDARD_ERRORS_95 * error:
        verdict = AuditVerdict.PASS if ratio > 0 else AuditVerdict.FAIL
    return CostCheck(
        verdict=verdict,
        strategy=strategy,
        charged_bps=terms.cost_bps,
        break_even_bps=find_break_even_cost(book, terms),
        sharpe=ratio if isfinite(ratio) else None,
        sharpe_error=error if isfinite(error) else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCount:
    """Number of configurations that were tried before this one was chosen."""

    count: int
    counted_by: str
    """Source of the count, as text."""
    is_counted: bool = True
    """Whether they were counted; without a count the check never passes."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigurationError(f"trials is {self.count}, but must be at least 1: this model was tried")


def count_trials(stated_count: int | None, card: Mapping[str, Json]) -> TrialCount:
    """The given count, else that of the tuning in the card, else 1."""
    if stated_count is not None:
        return TrialCount(count=stated_count, counted_by="as given")
    if "tuning" in card:
        return TrialCount(count=Record(card, "card").record("tuning").integer("trials"), counted_by="from the card")
    return TrialCount(count=1, counted_by="not counted: give --trials", is_counted=False)


def check_trials(returns: FloatArray, trials: TrialCount, a_year: int = SESSIONS_A_YEAR) -> TrialsCheck:
    """Pass if the deflated Sharpe ratio is at least 0.95, fail if it is at most 0.05.

    Without a count of trials the check does not pass. `returns` [T] are daily, after costs.
    """
    best = expected_best(trials.count, len(returns))
    moments = ReturnMoments.of(returns) if np.ptp(returns) > 0 else None
    deflated = None if moments is None else probabilistic_sharpe(moments, best)
    verdict = AuditVerdict.UNDECIDED
    if deflated is not None and deflated <= 1 - SURE:
        verdict = AuditVerdict.FAIL
    elif deflated is not None and deflated >= SURE and trials.is_counted:
        verdict = AuditVerdict.PASS
    return TrialsCheck(
        verdict=verdict,
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


MIN_STOCKS = 3
"""Minimum of stocks for a day's rank correlation."""


YARDSTICK: Final = OWN_SCALE
YARDSTICK_FIT: Final = FitScope.CALIBRATED
YARDSTICK_NAME: Final = YARDSTICK.named(YARDSTICK_FIT)
"""The baseline for an audit's skill, which shows whether skill comes from inputs. The scores of a training run compare
with the best of all baselines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillEstimate:
    """A mean over days and its standard error (Newey & West 1987), widened for few days."""

    value: float
    error: float

    @property
    def is_positive(self) -> bool:
        """Whether it is more than two standard errors above zero."""
        return self.value > 2 * self.error


def measure_outcomes(target: Target, bars: AdjustedBars, lag: int) -> FloatArray:
    """[T, S, H] outcomes that start at the close `lag` sessions after each session; NaN where unknown."""
    labels = Target(kind=target.kind, lag=0, horizons=target.horizons).labels(bars).transpose(1, 0, 2)
    shifted = np.full_like(labels, np.nan)
    shifted[: len(labels) - lag] = labels[lag:]
    return shifted


def forecast_yardstick(
    history: History, splits: DataSplits, levels: tuple[float, ...], positions: NDArray[np.int64]
) -> FloatArray:
    """[D, S, H, Q] forecasts of the yardstick; NaN for windows without volatility.

    They are quantiles of the training split's outcomes in units of the window's volatility, calibrated on the
    calibration split: what a network knows that has learned nothing from its inputs.
    """
    fitted = InformationSet.of(history, splits, find_last_seen_session(splits), levels).fitted(YARDSTICK, YARDSTICK_FIT)
    stocks = len(history.bars.symbols)
    cells = TrainingWindows(symbols=np.tile(np.arange(stocks), len(positions)), positions=np.repeat(positions, stocks))
    forecasts = MeasuredWindows.of(history, cells).in_blocks(fitted.quantiles)
    return forecasts.reshape(len(positions), stocks, *forecasts.shape[1:])


def measure_daily_losses(
    forecasts: DailyForecasts, values: FloatArray, outcome: FloatArray, spread: FloatArray
) -> FloatArray:
    """[D] mean pinball loss over stocks and horizons, each divided by its spread; NaN without outcomes.

    NaN of the forecasts exclude cells; values are [D, S, H, Q], outcomes [D, S, H] and the spread is [H].
    """
    error = outcome[..., None] - values
    levels = np.array(forecasts.levels)
    losses = np.maximum(levels * error, (levels - 1) * error).mean(-1) / spread
    is_scored = np.isfinite(losses) & np.isfinite(forecasts.median)
    count = is_scored.sum(axis=(1, 2))
    total = np.where(is_scored, losses, 0.0).sum(axis=(1, 2))
    return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)


def measure_relative_gain(ours: FloatArray, plain: FloatArray) -> FloatArray:
    """[D] improvement of each day's loss over the yardstick's, relative to the yardstick's mean; NaN where unknown."""
    is_known = np.isfinite(ours) & np.isfinite(plain)
    return (plain - ours) / plain[is_known].mean()


def estimate(daily: FloatArray, horizon: int) -> SkillEstimate:
    """Estimate the mean of the known values of a daily series [D] whose outcomes overlap over `horizon` sessions."""
    daily = daily[np.isfinite(daily)]
    lag = min(2 * horizon, len(daily))
    return SkillEstimate(
        value=float(daily.mean()), error=standard_error(daily, lag) * widening_factor(lag / len(daily))
    )


def rank_ic(scores: FloatArray, outcome: FloatArray) -> FloatArray:
    """Daily rank correlations of scores [D, S] with outcomes [D, S], for days with enough stocks."""
    correlations: list[float] = []
    for score, came in zip(scores, outcome, strict=True):
        is_known = np.isfinite(score) & np.isfinite(came)
        if is_known.sum() >= MIN_STOCKS and np.ptp(score[is_known]) > 0 and np.ptp(came[is_known]) > 0:
            correlations.append(float(np.corrcoef(rank_values(score[is_known]), rank_values(came[is_known]))[0, 1]))
    return np.array(correlations)


LAGS = (0, 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AuditedForecasts:
    """Forecasts of D sessions and S stocks with outcomes, prices and terms."""

    forecasts: DailyForecasts
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
    strategy_settings: StrategySettings

    @property
    def horizon(self) -> int:
        """The traded horizon, in sessions."""
        return self.terms.horizon

    @property
    def reach(self) -> int:
        """Sessions over which neighbouring outcomes overlap."""
        return self.forecasts.horizons[-1]


def measure_gains(audited: AuditedForecasts, values: FloatArray, lag: int) -> FloatArray:
    """[D] daily improvement of values [D, S, H, Q] over the yardstick, relative to its mean loss; NaN where unknown."""
    outcome = audited.outcomes[LAGS.index(lag)]
    ours = measure_daily_losses(audited.forecasts, values, outcome, audited.spread)
    return measure_relative_gain(ours, measure_daily_losses(audited.forecasts, audited.plain, outcome, audited.spread))


def check_lags(audited: AuditedForecasts) -> LagCheck:
    """Fail if skill at lag 0 is lost at lag 1, when one can trade, beyond luck."""
    daily = {lag: measure_gains(audited, audited.forecasts.values, lag) for lag in LAGS}
    skill = {lag: estimate(series, audited.reach) for lag, series in daily.items()}
    lost = estimate(daily[0] - daily[1], audited.reach)
    verdict = AuditVerdict.UNDECIDED
    if skill[1].is_positive:
        verdict = AuditVerdict.PASS
    elif skill[0].is_positive and lost.is_positive:
        verdict = AuditVerdict.FAIL
    return LagCheck(
        verdict=verdict,
        horizon=audited.horizon,
        yardstick=YARDSTICK_NAME,
        rows=tuple(_build_lag_row(audited, lag, skill[lag]) for lag in LAGS),
    )


def _build_lag_row(audited: AuditedForecasts, lag: int, skill: SkillEstimate) -> LagRow:
    """Skill, rank correlation and Sharpe ratio before costs, from outcomes that start `lag` closes later."""
    forecasts, a_year = audited.forecasts, audited.terms.sessions_a_year
    weights = decide_weights(forecasts, audited.horizon, audited.strategy_settings, a_year)
    gross = run_book(weights, audited.closes, replace(audited.terms, delay=lag)).gross[lag:]
    ratio, ratio_error = sharpe(gross, a_year)
    index = forecasts.find_horizon(audited.horizon)
    daily = rank_ic(forecasts.ranking[..., index], audited.outcomes[LAGS.index(lag)][..., index])
    ic = estimate(daily, audited.horizon) if len(daily) else None
    return LagRow(
        lag=lag,
        skill=skill.value,
        skill_error=skill.error,
        ic=None if ic is None else ic.value,
        ic_error=None if ic is None else ic.error,
        sharpe=ratio if isfinite(ratio) else None,
        sharpe_error=ratio_error if isfinite(ratio_error) else None,
    )


MATERIAL = 0.01
"""Skill below this share is not a leak: chance correlations of inputs with outcomes can reach it."""


BLIND = 0.05
"""If the error could hide a leak worth this share of the loss, the verdict is undecided. A leak of outcomes is worth
more, but with few days even that may be within the error."""


@final
class ShuffledHistory(History):
    """A history with labels shuffled over days.

    Whole days are permuted within each part, in units of each window's scale, so that levels cannot be learned. Stocks
    of a day stay together, and every part keeps its outcomes.
    """

    def __init__(
        self,
        bars: BarPanel,
        pipeline: Pipeline,
        covariates: CovariateSource,
        cache: FeatureCache | None,
        *,
        splits: DataSplits,
        seed: int,
    ) -> None:
        super().__init__(bars, pipeline, covariates, cache)
        random, spread = np.random.default_rng(seed), torch.from_numpy(pipeline.target.spread)
        for part in (splits.train, splits.selection, splits.calibration):
            days = list_decisions(part, bars.sessions, pipeline.target)
            location, scale = self.location_and_scale_of_days(days)
            units = normalise(torch.from_numpy(self.labels[:, days]), location, scale, spread)
            permuted = units[:, torch.from_numpy(random.permutation(len(days)))]
            self.labels[:, days] = restore(permuted[..., None], location, scale, spread)[..., 0].numpy()


def check_permutations(
    audited: AuditedForecasts, retrained: Iterable[DailyForecasts], *, epochs: int, lag: int
) -> PermutationCheck:
    """Fail if the mean skill of models trained on shuffled labels is material and more than two errors above zero.

    The error is taken over days, because few trainings cannot give a small p-value. The verdict is undecided if a leak
    could hide within two errors.
    """
    gains = measure_gains(audited, audited.forecasts.values, lag)
    shuffled = [measure_gains(audited, forecasts.values, lag) for forecasts in retrained]
    mean = estimate(np.mean(shuffled, axis=0), audited.reach)
    leak = detectable_leak(mean.error)
    verdict = AuditVerdict.PASS if leak <= BLIND else AuditVerdict.UNDECIDED
    return PermutationCheck(
        verdict=AuditVerdict.FAIL if mean.value > leak else verdict,
        epochs=epochs,
        yardstick=YARDSTICK_NAME,
        skill=estimate(gains, audited.reach).value,
        permuted=tuple(estimate(daily, audited.reach).value for daily in shuffled),
        error=mean.error,
    )


def detectable_leak(error: float) -> float:
    """The skill above which shuffled labels reveal a leak: two errors, at least `MATERIAL`."""
    return max(MATERIAL, 2 * error)

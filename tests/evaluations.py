"""A made-up evaluation of one model and two baselines in which every number is different."""

from itertools import count
from typing import Final

from predictor.networks import Target, TargetKind
from trainers.stock.evaluation.baselines import NAIVE, FitScope
from trainers.stock.evaluation.calibration import CalibrationEffect
from trainers.stock.evaluation.comparison import LossComparison, SeedScores, SeedSpread, SkillScore
from trainers.stock.evaluation.evaluation import ConfidenceSet, EvaluationPeriod, ModelEvaluation
from trainers.stock.evaluation.evaluation_set import Interval
from trainers.stock.evaluation.scores import (
    Correlation,
    HorizonScores,
    ModelScores,
    PitHistogram,
    ScoreRole,
    SymbolScores,
)

HORIZONS: Final = (1, 5)
LEVELS: Final = (0.1, 0.5, 0.9)
BEST_BASELINE: Final = "GARCH(1,1)-t, calibrated"
KIND: Final = TargetKind.LOG_RETURN


def estimate(value: float, width: float = 0.125) -> Interval:
    return Interval(value=value, lower=value * (1 - width), upper=value * (1 + width))


def horizon_scores(horizon: int, seed: int) -> HorizonScores:
    """Numbers that are unique to a horizon and seed."""
    parts = (0.001 * seed + 0.0001 * horizon + 0.00001 * k for k in count())
    return HorizonScores(
        horizon=horizon,
        windows=400,
        pinball=estimate(next(parts)),
        pinball_by_level=tuple(next(parts) for _ in LEVELS),
        risk=tuple(next(parts) for _ in LEVELS),
        crps=estimate(next(parts)),
        below=tuple(estimate(level + next(parts)) for level in LEVELS),
        band=estimate(0.75 + next(parts)),
        winkler=estimate(next(parts)),
        mae=estimate(next(parts)),
        qlike=None,
        correlation=Correlation(ic=estimate(next(parts)), rank_ic=None, icir=None, rank_icir=None),
    )


def model_scores(name: str, role: ScoreRole, seed: int, fit: FitScope | None = None) -> ModelScores:
    horizons = tuple(horizon_scores(horizon, seed) for horizon in HORIZONS)
    return ModelScores(name=name, role=role, fit=fit, mean=estimate(0.001 * seed), horizons=horizons)


def comparison(baseline: str, value: float) -> LossComparison:
    return LossComparison(
        baseline=baseline,
        improvement=estimate(value),
        by_horizon=(estimate(value + 0.001), estimate(value - 0.001)),
        t=100 * value,
    )


def evaluation(
    *,
    skill: Interval = Interval(value=0.021, lower=0.011, upper=0.032),  # noqa: B008 - a value that never changes
    seeds: bool = True,
    adaptive: bool = False,
    symbol: str = "AAPL",
    note: str = "a note",
) -> ModelEvaluation:
    return ModelEvaluation(
        unit="log return",
        target=Target(kind=KIND, horizons=HORIZONS),
        levels=LEVELS,
        period=EvaluationPeriod(seen_until=20110504, first=20110505, last=20130131, days=200, windows=400, symbols=2),
        confidence=0.9,
        method="circular block bootstrap",
        correlation_note="across the days of a symbol",
        rows=(
            model_scores("this model", ScoreRole.MODEL, 3),
            model_scores(BEST_BASELINE, ScoreRole.BASELINE, 4, FitScope.CALIBRATED),
            model_scores(NAIVE[KIND], ScoreRole.BASELINE, 5, FitScope.UNCALIBRATED),
        ),
        skill=SkillScore(
            baseline=BEST_BASELINE,
            improvement=skill,
            rivals=(BEST_BASELINE, NAIVE[KIND]),
            among="baselines",
            first_day=20110505,
            last_day=20130131,
        ),
        comparison=comparison(BEST_BASELINE, 0.021),
        confidence_set=ConfidenceSet(size=0.1, p_values={"this model": 1.0, BEST_BASELINE: 0.237, NAIVE[KIND]: 0.004}),
        calibration=CalibrationEffect(
            effective_blocks=(419.0, 83.0),
            before=model_scores("without offsets", ScoreRole.VARIANT, 6),
            after=model_scores("with its offsets", ScoreRole.VARIANT, 3),
            adaptive=model_scores("adaptive", ScoreRole.VARIANT, 7) if adaptive else None,
            gain=(estimate(0.0123), estimate(-0.0234)),
            adaptive_gain=(estimate(0.0345), estimate(-0.0456)) if adaptive else None,
        ),
        pit=tuple(
            PitHistogram(
                horizon=horizon,
                edges=(0.0, *LEVELS, 1.0),
                expected=(0.1, 0.4, 0.4, 0.1),
                counts=(44, 160, 156, 40),
                shares=tuple(estimate(share + 0.001 * horizon) for share in (0.11, 0.4, 0.39, 0.1)),
            )
            for horizon in HORIZONS
        ),
        by_symbol=(
            SymbolScores(
                symbol=symbol,
                windows=211,
                mean=estimate(0.00431),
                improvement=estimate(-0.0171),
                band=estimate(0.7312),
            ),
        ),
        seeds=seeds_spread() if seeds else None,
        notes=(note,),
    )


def seeds_spread() -> SeedScores:
    return SeedScores(
        seeds=(0, 1, 2),
        mean=SeedSpread(mean=0.00307, sd=0.00011),
        pinball=(SeedSpread(mean=0.00313, sd=0.00012), SeedSpread(mean=0.00357, sd=0.00013)),
        band=(SeedSpread(mean=0.7611, sd=0.0121), SeedSpread(mean=0.7622, sd=0.0122)),
        winkler=(SeedSpread(mean=0.0131, sd=0.0014), SeedSpread(mean=0.0151, sd=0.0015)),
        comparison=comparison(BEST_BASELINE, 0.0177),
    )

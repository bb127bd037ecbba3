"""Evaluation metrics against their formulas or a reference library."""

from dataclasses import replace
from math import exp, log
from statistics import NormalDist

import numpy as np
import pytest
from evaluations import evaluation
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr

from predictor.networks import Target, TargetKind
from trainers.stock.evaluation.comparison import (
    absolute_error,
    compare,
    crps,
    mark_inside,
    pinball,
    pinball_at,
    qlike,
    score_seeds,
    winkler,
)
from trainers.stock.evaluation.evaluation_set import (
    EvaluationSet,
    interval,
    resampled_mean,
    standard_error,
    widening_factor,
)
from trainers.stock.evaluation.report import select_metrics
from trainers.stock.evaluation.scores import (
    ACROSS_DAYS,
    ACROSS_SYMBOLS,
    ScoreRole,
    by_symbol,
    correlate_forecasts,
    describe_correlation,
    pit,
    rank_values,
    score,
)

FloatArray = NDArray[np.float64]

LEVELS = (0.1, 0.5, 0.9)


def judged(outcomes: FloatArray, *, days: int | None = None, levels: tuple[float, ...] = LEVELS) -> EvaluationSet:
    """Outcomes [N, H], day by day, with equally many symbols per day."""
    count = len(outcomes) if days is None else days
    symbols = len(outcomes) // count
    return EvaluationSet(
        outcomes=outcomes,
        sessions=np.arange(count, dtype=np.int32),
        positions=np.repeat(np.arange(count), symbols),
        symbols=np.tile(np.arange(symbols), count),
        target=Target(horizons=tuple(range(1, outcomes.shape[1] + 1))),
        levels=levels,
    )


def of_volatility(found: EvaluationSet) -> EvaluationSet:
    return replace(found, target=replace(found.target, kind=TargetKind.LOG_VOLATILITY))


def one(outcome: float) -> EvaluationSet:
    return judged(np.array([[outcome]]))


def forecast(*quantiles: float) -> FloatArray:
    return np.array([[quantiles]])


# --- losses


def test_crps_of_many_quantiles_is_that_of_the_normal_distribution() -> None:
    levels = tuple((k + 0.5) / 200 for k in range(200))
    quantiles = np.array([NormalDist().inv_cdf(level) for level in levels])
    for outcome in (-2.0, 0.0, 0.7):
        z = NormalDist()
        exact = outcome * (2 * z.cdf(outcome) - 1) + 2 * z.pdf(outcome) - np.pi**-0.5  # Gneiting & Raftery 2007, eq. 21
        found = crps(judged(np.array([[outcome]]), levels=levels), quantiles[None, None])
        assert found[0, 0] == pytest.approx(exact, abs=2e-3)


def test_crps_of_three_quantiles_weighs_each_by_the_levels_it_stands_for() -> None:
    losses = [pinball_at(one(0.4), forecast(-1.0, 0.0, 1.0), level)[0, 0] for level in range(3)]
    assert crps(one(0.4), forecast(-1.0, 0.0, 1.0))[0, 0] == pytest.approx(
        2 * (0.3 * losses[0] + 0.4 * losses[1] + 0.3 * losses[2])
    )


@pytest.mark.parametrize(("outcome", "expected"), [(0.5, 3.0), (-1.5, 3.0 + 10 * 0.5), (2.25, 3.0 + 10 * 0.25)])
def test_winkler_is_the_width_and_what_an_outcome_misses_it_by_over_the_tail(outcome: float, expected: float) -> None:
    assert winkler(one(outcome), forecast(-1.0, 0.0, 2.0))[0, 0] == pytest.approx(expected)


def test_each_side_of_the_band_is_dear_by_its_own_tail() -> None:
    uneven = (0.1, 0.5, 0.75)
    for outcome, missed in ((-1.5, 0.5 / 0.1), (2.25, 0.25 / 0.25)):
        found = winkler(judged(np.array([[outcome]]), levels=uneven), forecast(-1.0, 0.0, 2.0))
        assert found[0, 0] == pytest.approx(3.0 + missed)


def test_an_outcome_on_the_edge_of_the_band_is_inside() -> None:
    quantiles = np.broadcast_to([-1.0, 0.0, 2.0], (5, 1, 3))
    outcomes = np.array([[-1.0], [2.0], [-1.01], [2.01], [np.nan]])
    np.testing.assert_array_equal(mark_inside(judged(outcomes), quantiles)[:, 0], [1, 1, 0, 0, np.nan])


def test_the_absolute_error_is_that_of_the_median() -> None:
    assert absolute_error(one(3.0), forecast(0.0, 1.0, 9.0))[0, 0] == 2.0


def test_qlike_is_zero_where_the_forecast_is_exact_and_else_patton_s_formula() -> None:
    exact = qlike(of_volatility(one(-4.0)), forecast(-4.0, -4.0, -4.0))
    assert exact[0, 0] == pytest.approx(0.0, abs=1e-12)
    ratio = exp(2 * -4.0) / exp(2 * -4.5)
    found = qlike(of_volatility(one(-4.0)), forecast(-4.5, -4.5, -4.5))
    assert found[0, 0] == pytest.approx(ratio - log(ratio) - 1)


def test_qlike_is_least_for_the_mean_of_a_lognormal_variance() -> None:
    outcomes = np.random.default_rng(0).normal(-4.0, 0.3, (40000, 1))
    z = NormalDist().inv_cdf(0.9)

    def mean(width: float) -> float:
        band = np.broadcast_to([-4.0 - width * z, -4.0, -4.0 + width * z], (40000, 1, 3))
        return float(qlike(of_volatility(judged(outcomes)), band).mean())

    assert mean(0.3) < min(mean(0.2), mean(0.4))


def test_the_risk_is_twice_the_losses_over_the_sizes_of_the_outcomes() -> None:
    outcomes = np.array([[1.0], [-3.0], [2.0]])
    quantiles = np.broadcast_to([-1.0, 0.5, 1.5], (3, 1, 3))
    losses = np.concatenate([pinball_at(judged(outcomes), quantiles, level) for level in range(3)], axis=1)
    found = score(judged(outcomes), quantiles, name="x", role=ScoreRole.MODEL).horizons[0]
    assert found.risk == pytest.approx(tuple(2 * losses.sum(axis=0) / 6.0))


# --- PIT


def test_the_pit_counts_outcomes_between_quantiles_and_expects_the_gaps_of_the_levels() -> None:
    outcomes = np.array([[-9.0], [-1.0], [-0.5], [0.5], [0.6], [3.0], [np.nan]])
    (found,) = pit(judged(outcomes), np.broadcast_to([-1.0, 0.0, 2.0], (7, 1, 3)))
    assert found.edges == (0.0, 0.1, 0.5, 0.9, 1.0)
    assert found.counts == (2, 1, 2, 1)
    assert found.expected == pytest.approx((0.1, 0.4, 0.4, 0.1))
    assert [share.value for share in found.shares] == pytest.approx([2 / 6, 1 / 6, 2 / 6, 1 / 6])


def test_the_pit_of_true_quantiles_has_the_expected_shares_in_its_intervals() -> None:
    outcomes = np.random.default_rng(3).normal(size=(2000, 1))
    true = [NormalDist().inv_cdf(level) for level in LEVELS]
    (found,) = pit(judged(outcomes), np.broadcast_to(true, (2000, 1, 3)))
    assert all(s.lower <= e <= s.upper for s, e in zip(found.shares, found.expected, strict=True))
    (narrow,) = pit(judged(outcomes), np.broadcast_to(true, (2000, 1, 3)) / 2)
    assert narrow.shares[0].lower > 0.1
    assert narrow.shares[1].upper < 0.4


# --- information coefficients


def panel(days: int, symbols: int, seed: int, signal: float = 0.2) -> tuple[FloatArray, FloatArray]:
    """Weakly correlated forecasts and outcomes [N, 1]."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(days * symbols, 1))
    return centres, signal * centres + random.normal(size=centres.shape)


def library(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Pearson's and Spearman's correlation as SciPy has them."""
    (plain, _), (ranked, _) = pearsonr(x, y), spearmanr(x, y)
    return float(np.asarray(plain)), float(np.asarray(ranked))


def test_with_many_symbols_a_day_the_ic_is_the_mean_of_the_daily_correlations() -> None:
    centres, outcomes = panel(40, 30, seed=0)
    found = judged(outcomes, days=40)
    (result,) = correlate_forecasts(found, centres)
    pairs = list(zip(centres.reshape(40, 30), outcomes.reshape(40, 30), strict=True))
    daily = np.array([library(x, y) for x, y in pairs])
    assert describe_correlation(found) == ACROSS_SYMBOLS
    assert result.ic is not None
    assert result.rank_ic is not None
    assert (result.ic.value, result.rank_ic.value) == pytest.approx(tuple(daily.mean(axis=0)))
    assert (result.icir, result.rank_icir) == pytest.approx(tuple(daily.mean(axis=0) / daily.std(axis=0, ddof=1)))
    assert 0 < result.ic.lower < result.ic.value < result.ic.upper


def test_with_few_symbols_the_ic_is_the_mean_of_each_symbols_correlation_over_days() -> None:
    centres, outcomes = panel(300, 3, seed=1)
    found = judged(outcomes, days=300)
    (result,) = correlate_forecasts(found, centres)
    pairs = list(zip(centres.reshape(300, 3).T, outcomes.reshape(300, 3).T, strict=True))
    assert describe_correlation(found) == ACROSS_DAYS
    assert result.ic is not None
    assert result.rank_ic is not None
    assert result.ic.value == pytest.approx(sum(library(x, y)[0] for x, y in pairs) / 3)
    assert result.rank_ic.value == pytest.approx(sum(library(x, y)[1] for x, y in pairs) / 3)
    assert result.icir is None
    assert 0 < result.ic.lower < result.ic.value < result.ic.upper


@pytest.mark.parametrize("symbols", [3, 30])
def test_a_forecast_that_never_differs_has_no_ic(symbols: int) -> None:
    _, outcomes = panel(50, symbols, seed=2)
    (result,) = correlate_forecasts(judged(outcomes, days=50), np.zeros_like(outcomes))
    assert result.ic is None
    assert result.rank_ic is None


@pytest.mark.parametrize("symbols", [3, 30])
def test_unknown_outcomes_change_no_ic(symbols: int) -> None:
    centres, outcomes = panel(60, symbols, seed=3)
    unknown = np.zeros(len(outcomes), bool)
    unknown[5 * symbols : 6 * symbols] = True
    known = judged(outcomes, days=60).rows(~unknown)
    outcomes[unknown] = np.nan
    (with_gap,), (without,) = (
        correlate_forecasts(judged(outcomes, days=60), centres),
        correlate_forecasts(known, centres[~unknown]),
    )
    assert with_gap.ic is not None
    assert without.ic is not None
    assert with_gap.ic.value == pytest.approx(without.ic.value)


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert rank_values(np.array([3.0, 1.0, 3.0, 2.0, 3.0])).tolist() == [4.0, 1.0, 4.0, 2.0, 4.0]


def test_scores_of_a_ranking_model_are_correlated_in_place_of_its_medians() -> None:
    centres, outcomes = panel(40, 30, seed=4)
    found = judged(outcomes, days=40)
    flat = np.zeros((*outcomes.shape, 3))
    ranked = score(found, flat, name="x", role=ScoreRole.MODEL, ranking=centres)
    assert ranked.horizons[0].correlation == correlate_forecasts(found, centres)[0]
    assert score(found, flat, name="x", role=ScoreRole.MODEL).horizons[0].correlation.ic is None


# --- comparisons


SHORT = np.array([2.0, 4.0, 3.0, 7.0])
"""Its mean is 4; the deviations -2, 0, -1 and 3 have the autocovariances 3.5, -0.75, 0.5 and -1.5."""


@pytest.mark.parametrize(
    ("lag", "variance"),
    [
        (0, 3.5),
        (1, 3.5 + 2 * (1 / 2 * -0.75)),
        (2, 3.5 + 2 * (2 / 3 * -0.75 + 1 / 3 * 0.5)),
        (3, 3.5 + 2 * (3 / 4 * -0.75 + 2 / 4 * 0.5 + 1 / 4 * -1.5)),
        (9, 3.5 + 2 * (3 / 4 * -0.75 + 2 / 4 * 0.5 + 1 / 4 * -1.5)),
    ],
)
def test_newey_west_errors_of_four_days_are_the_hand_calculation(lag: int, variance: float) -> None:
    assert standard_error(SHORT, lag) == pytest.approx((variance / 4) ** 0.5)


def test_means_of_an_autoregressive_series_are_held_as_often_as_bartletts_weights_allow() -> None:
    # Where neighbours correlate by 1/2 the mean's variance is 3 times that of independent days, of which two
    # neighbours with the weights 2/3 and 1/3 tell 1 + 2 (2/3 x 1/2 + 1/3 x 1/4), not the 2.5 that is told without.
    told = (1 + 2 * (2 / 3 * 1 / 2 + 1 / 3 * 1 / 4)) / 3
    held: list[bool] = []
    for seed in range(1000):
        steps = np.random.default_rng(seed).standard_normal(430)
        series = np.convolve(steps, 0.5 ** np.arange(31), mode="valid")
        held.append(abs(series.mean()) < 1.96 * standard_error(series, 2))
    expected = 2 * NormalDist().cdf(1.96 * told**0.5) - 1
    assert np.mean(held) == pytest.approx(expected, abs=0.025)


@pytest.mark.parametrize(("share", "critical"), [(0.02, 1.6887), (0.1, 1.8663), (0.5, 2.7736), (1.0, 3.8023)])
def test_the_stretch_is_kiefer_and_vogelsangs_cubic(share: float, critical: float) -> None:
    assert widening_factor(share) == pytest.approx(critical / 1.6449, abs=1e-4)


def test_a_comparison_is_paired_and_carries_diebold_and_mariano_s_statistic() -> None:
    random = np.random.default_rng(6)
    outcomes = random.normal(size=(500, 1))
    found = judged(outcomes)
    common = np.abs(random.normal(size=(500, 1))) * 10
    ours, theirs = common + np.abs(outcomes), common + 1.05 * np.abs(outcomes)
    result = compare(found, ours, theirs, "theirs")
    assert result.baseline == "theirs"
    assert 0 < result.improvement.lower < result.improvement.value < result.improvement.upper
    assert result.by_horizon == (result.improvement,)
    daily = (theirs - ours)[:, 0]
    assert result.t == pytest.approx(daily.mean() / (standard_error(daily, found.block) * found.widening_factor))


def test_windows_that_only_one_of_two_can_judge_compare_nothing() -> None:
    random = np.random.default_rng(8)
    ours, theirs = random.exponential(size=(2, 300, 1))
    gaps = theirs.copy()
    gaps[::3] = np.nan
    found = compare(judged(ours), ours, gaps, "x").improvement
    kept = ~np.isnan(gaps[:, 0])
    assert found.value == pytest.approx(1 - ours[kept].mean() / theirs[kept].mean())


def test_several_seeds_are_compared_by_the_mean_of_their_losses() -> None:
    outcomes = np.random.default_rng(9).normal(size=(200, 1))
    found = judged(outcomes)
    runs = [np.broadcast_to(scale * np.array([-1.0, 0.0, 1.0]), (200, 1, 3)) for scale in (0.5, 1.0, 3.0)]
    losses = [pinball(found, run) for run in runs]
    baseline = pinball(found, np.broadcast_to([-2.0, 0.0, 2.0], (200, 1, 3)))
    seeds = score_seeds(found, enumerate(runs), baseline, "x")
    assert seeds.comparison == compare(found, sum(losses[1:], losses[0]) / 3, baseline, "x")
    means = [float(loss.mean()) for loss in losses]
    assert (seeds.mean.mean, seeds.mean.sd) == pytest.approx((np.mean(means), np.std(means, ddof=1)))


def test_a_symbols_scores_are_those_of_its_own_windows_and_the_same_of_the_baseline() -> None:
    outcomes = np.random.default_rng(10).normal(size=(400, 2))
    found = judged(outcomes, days=200)
    ours = np.broadcast_to([-1.0, 0.0, 1.0], (400, 2, 3))
    baseline = pinball(found, np.broadcast_to([-2.0, 0.0, 2.0], (400, 2, 3)))
    rows = by_symbol(found, ("A", "B"), ours, baseline)
    assert [(row.symbol, row.windows) for row in rows] == [("A", 200), ("B", 200)]
    for k, row in enumerate(rows):
        own = found.rows(found.symbols == k)
        compared = compare(own, pinball(own, ours[k::2]), baseline[k::2], "x")
        assert row.improvement == compared.improvement
        assert row.mean == score(own, ours[k::2], name="x", role=ScoreRole.MODEL).mean
        held = mark_inside(own, ours[k::2]).mean(axis=1)
        value, resamples = resampled_mean(own, held)
        assert row.band == interval(float(value), resamples)


def test_a_score_over_horizons_is_the_mean_and_what_grows_with_them_is_divided_by_their_spread() -> None:
    found = evaluation()
    row, roots = found.rows[0], np.array([1, 5**0.5])
    means = {metric.name: metric.mean(found, row) for metric in select_metrics(found, found.rows)}
    assert means["Winkler"] == pytest.approx(np.mean([h.winkler.value for h in row.horizons] / roots))
    assert means["P50 risk"] == pytest.approx(np.mean([h.risk[1] for h in row.horizons]))


def test_nothing_improves_on_a_loss_of_zero() -> None:
    found = compare(judged(np.zeros((200, 1))), np.ones((200, 1)), np.zeros((200, 1)), "x")
    assert np.isnan(found.improvement.value)


def test_equal_losses_have_no_t_statistic() -> None:
    assert compare(judged(np.zeros((200, 1))), np.ones((200, 1)), np.ones((200, 1)), "x").t is None


def test_a_horizon_that_few_days_know_has_an_interval_of_those_resamples_that_drew_them() -> None:
    outcomes = np.full((200, 1), np.nan)
    outcomes[100] = 1.0
    mean, resamples = resampled_mean(judged(outcomes), pinball(judged(outcomes), np.zeros((200, 1, 3))))
    assert mean[0] == pytest.approx(0.5)
    assert np.isnan(resamples).any()
    found = score(judged(outcomes), np.zeros((200, 1, 3)), name="x", role=ScoreRole.MODEL).horizons[0]
    assert found.windows == 1
    assert (found.pinball.lower, found.pinball.upper) == pytest.approx((0.5, 0.5))

"""Scores: losses, coverage, and significance."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from predictor.networks import Target
from predictor.skill import Verdict
from trainers.stock.evaluation.comparison import ModelComparison, SkillScore, average_horizons, mark_below, pinball
from trainers.stock.evaluation.evaluation_set import EvaluationSet, interval, resampled_mean

FloatArray = NDArray[np.float64]

LEVELS = (0.1, 0.5, 0.9)
NORMAL = (-1.2815515655446004, 0.0, 1.2815515655446004)


def evaluation_set(outcomes: FloatArray, *, positions: NDArray[np.int64] | None = None) -> EvaluationSet:
    return EvaluationSet(
        outcomes=outcomes,
        sessions=np.arange(20000101, 20000101 + len(outcomes), dtype=np.int32),
        positions=np.arange(len(outcomes)) if positions is None else positions,
        symbols=np.zeros(len(outcomes), np.int64),
        target=Target(horizons=tuple(range(1, outcomes.shape[1] + 1))),
        levels=LEVELS,
    )


def skill(found: EvaluationSet, model: FloatArray, baselines: Mapping[str, FloatArray]) -> SkillScore:
    """Skill of forecasts [N, H, Q]."""
    contest = ModelComparison(found, pinball(found, model), "baselines")
    for name, each in baselines.items():
        contest.add(name, pinball(found, each))
    return contest.skill


def normal_outcomes(days: int = 600, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).normal(0.0, 1.0, (days, 1))


def quantiles(outcomes: FloatArray, scale: float = 1.0) -> FloatArray:
    return np.broadcast_to(scale * np.array(NORMAL), (*outcomes.shape, 3)).copy()


def direct_pinball(outcome: float, forecast: float, level: float) -> float:
    """Koenker & Bassett 1978, case by case."""
    return level * (outcome - forecast) if outcome >= forecast else (1 - level) * (forecast - outcome)


def test_pinball_is_the_mean_of_the_direct_formula() -> None:
    random = np.random.default_rng(1)
    outcomes, forecasts = random.normal(size=(7, 2)), np.sort(random.normal(size=(7, 2, 3)))
    found = pinball(evaluation_set(outcomes), forecasts)
    for n in range(7):
        for h in range(2):
            losses = [direct_pinball(outcomes[n, h], forecasts[n, h, q], level) for q, level in enumerate(LEVELS)]
            assert found[n, h] == pytest.approx(sum(losses) / 3)


def test_horizons_weigh_alike_once_their_spread_is_divided_out() -> None:
    losses = np.array([[3.0, 3.0 * np.sqrt(2)]])
    assert average_horizons(evaluation_set(np.zeros((1, 2))), losses)[0] == pytest.approx(3.0)


def test_a_window_with_one_known_horizon_is_judged_by_it_alone() -> None:
    assert average_horizons(evaluation_set(np.array([[0.5, np.nan]])), np.array([[3.0, np.nan]]))[0] == 3.0


def test_coverage_counts_outcomes_at_or_below_the_quantile_and_leaves_unknown_ones_out() -> None:
    outcomes = np.array([[0.0], [1.0], [np.nan]])
    found = mark_below(evaluation_set(outcomes), np.broadcast_to([-1.0, 0.0, 2.0], (3, 1, 3)))
    np.testing.assert_array_equal(found[:, 0], [[0, 1, 1], [0, 0, 1], [np.nan] * 3])


def test_windows_with_unknown_outcomes_change_no_mean_and_no_interval() -> None:
    outcomes, days = normal_outcomes(200), np.arange(200)
    more = np.concatenate([outcomes, np.full((200, 1), np.nan)])
    order = np.argsort(np.tile(days, 2), kind="stable")
    mixed = evaluation_set(more[order], positions=np.sort(np.tile(days, 2)))
    alone = resampled_mean(evaluation_set(outcomes), pinball(evaluation_set(outcomes), quantiles(outcomes)))
    both = resampled_mean(mixed, pinball(mixed, quantiles(more)))
    for expected, found in zip(alone, both, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_symbols_of_a_day_are_drawn_together() -> None:
    series = normal_outcomes(300)
    doubled = evaluation_set(np.repeat(series, 2, axis=0), positions=np.repeat(np.arange(300), 2))
    single = resampled_mean(evaluation_set(series), series)[1]
    np.testing.assert_allclose(resampled_mean(doubled, doubled.outcomes)[1], single, rtol=1e-12, atol=1e-15)


def autoregressive(days: int, coefficient: float, seed: int) -> FloatArray:
    """A stationary AR(1) series [D, 1] with mean 0."""
    noise = np.random.default_rng(seed).normal(size=days + 100)
    series = np.zeros(days + 100)
    for t in range(1, days + 100):
        series[t] = coefficient * series[t - 1] + noise[t]
    return series[100:, None]


def holds_zero(series: FloatArray) -> bool:
    _, means = resampled_mean(evaluation_set(series), series)
    found = interval(0.0, means)
    return found.lower <= 0.0 <= found.upper


def test_intervals_hold_the_true_mean_of_autocorrelated_days_about_nine_times_in_ten() -> None:
    held = [holds_zero(autoregressive(240, 0.5, seed)) for seed in range(60)]
    assert 0.8 <= np.mean(held) <= 0.97


def overlapping(days: int, seed: int) -> tuple[EvaluationSet, FloatArray, FloatArray]:
    """Daily overlapping 20-day outcomes, and losses [N, 1] of a too narrow and an equally bad too wide band."""
    walk = np.cumsum(np.random.default_rng(seed).normal(size=days + 20))
    outcomes = (walk[20:] - walk[:-20])[:, None] / np.sqrt(20)
    found = evaluation_set(outcomes)
    narrow, wide = (pinball(found, quantiles(outcomes, scale)) for scale in (0.8, 1.226))
    return replace(found, target=Target(horizons=(20,))), narrow, wide


def test_two_equal_models_of_overlapping_outcomes_are_seldom_told_apart() -> None:
    """Blocks as long as the horizon would separate more than one pair in five, where one in ten is allowed."""
    verdicts = [_against(found, a, b).verdict for found, a, b in (overlapping(400, k) for k in range(200))]
    assert np.mean([verdict is not Verdict.UNDECIDED for verdict in verdicts]) < 0.18


def _against(found: EvaluationSet, ours: FloatArray, theirs: FloatArray) -> SkillScore:
    contest = ModelComparison(found, ours, "baselines")
    contest.add("b", theirs)
    return contest.skill


def test_an_interval_of_few_blocks_is_stretched_by_kiefer_and_vogelsangs_critical_value() -> None:
    found = evaluation_set(normal_outcomes(200))
    assert found.block == 20
    assert found.widening_factor == pytest.approx(1.8663 / 1.6449, abs=1e-4)


def test_a_perfect_model_has_skill_and_the_sentence_says_so() -> None:
    outcomes = normal_outcomes()
    found = skill(
        evaluation_set(outcomes), np.repeat(outcomes[..., None], 3, axis=2), {"zero return": quantiles(outcomes)}
    )
    assert found.improvement.value == 1.0
    assert found.improvement.lower == 1.0
    assert found.sentence.startswith("Skill: on held-out days, 2000-01-01 to ")
    assert "the pinball loss is better than that of zero return, by +100.0 %" in found.sentence
    assert "90 % interval" in found.sentence


def test_an_equal_model_shows_no_skill() -> None:
    outcomes = normal_outcomes()
    found = skill(evaluation_set(outcomes), quantiles(outcomes), {"GARCH": quantiles(outcomes)})
    assert found.improvement.value == 0.0
    assert found.sentence.startswith("No skill shown: ")


def test_a_model_that_differs_by_noise_alone_shows_no_skill() -> None:
    outcomes = normal_outcomes()
    noisy = quantiles(outcomes) + np.random.default_rng(5).normal(0.0, 0.02, (600, 1, 1))
    found = skill(evaluation_set(outcomes), noisy, {"GARCH": quantiles(outcomes)})
    assert found.improvement.lower < 0 < found.improvement.upper
    assert found.sentence.startswith("No skill shown: ")


def test_a_worse_model_is_called_worse() -> None:
    outcomes = normal_outcomes()
    found = skill(evaluation_set(outcomes), quantiles(outcomes, 4.0), {"GARCH": quantiles(outcomes)})
    assert found.improvement.upper < 0
    assert found.sentence.startswith("No skill: on held-out days, ")
    assert "the pinball loss is worse than that of GARCH; improvement -" in found.sentence


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_model_is_compared_with_the_best_of_all_rivals_wherever_it_stands(place: int) -> None:
    outcomes, scales = normal_outcomes(), [3.0, 9.0]
    scales.insert(place, 1.0)
    names = ("first", "second", "third")
    rivals = {name: quantiles(outcomes, scale) for name, scale in zip(names, scales, strict=True)}
    found = skill(evaluation_set(outcomes), quantiles(outcomes, 2.0), rivals)
    alone = skill(evaluation_set(outcomes), quantiles(outcomes, 2.0), {"best": quantiles(outcomes)})
    assert found.baseline == names[place]
    assert found.rivals == names
    assert found.improvement == alone.improvement


def test_a_split_of_a_few_days_gives_no_verdict_but_an_interval_that_is_no_point() -> None:
    outcomes = normal_outcomes(days=15, seed=3)
    found = skill(evaluation_set(outcomes), quantiles(outcomes), {"GARCH": quantiles(outcomes, 2.0)})
    assert found.improvement.lower < found.improvement.value < found.improvement.upper
    assert found.sentence.startswith("No skill shown: the test split is 85 days too short")

"""Choice and weights of ensemble members on synthetic forecasts of independent days."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from predictor.errors import ConfigurationError
from predictor.networks import Target
from trainers.stock.ensembles.ensemble import (
    choose_members,
    count_blocks,
    fit_weights,
    lean_weights,
    screen_members,
)
from trainers.stock.evaluation.comparison import average_horizons, pinball
from trainers.stock.evaluation.evaluation_set import EvaluationSet

FloatArray = NDArray[np.float64]

LEVELS = (0.1, 0.5, 0.9)
TRUE = np.array([-1.2816, 0.0, 1.2816])
BLOCK = 20
"""Sessions of an independent block for a horizon of one session."""


def sample(seed: int, blocks: int) -> EvaluationSet:
    """Normal outcomes of one symbol."""
    days = blocks * BLOCK
    return EvaluationSet(
        outcomes=np.random.default_rng(seed).standard_normal((days, 1)),
        sessions=np.arange(20_000_101, 20_000_101 + days, dtype=np.int32),
        positions=np.arange(days),
        symbols=np.zeros(days, np.int64),
        target=Target(horizons=(1,)),
        levels=LEVELS,
    )


def forecasts(part: EvaluationSet, seed: int, count: int, noise: float = 0.3) -> dict[str, FloatArray]:
    """Equally good members: true quantiles, each with noise of its own."""
    random = np.random.default_rng(seed)
    shape = (len(part.positions), 1, 1)
    return {f"m{k}": TRUE + noise * random.standard_normal(shape) for k in range(count)}


def losses(part: EvaluationSet, members: dict[str, FloatArray]) -> dict[str, FloatArray]:
    return {name: average_horizons(part, pinball(part, one)) for name, one in members.items()}


def mean_loss(part: EvaluationSet, members: dict[str, FloatArray], weights: FloatArray) -> float:
    averaged = (weights[:, None, None, :] * np.stack([*members.values()])).sum(axis=0)
    return float(average_horizons(part, pinball(part, averaged)).mean())


# --- screening


def test_an_awful_member_is_dropped_and_equals_are_kept() -> None:
    part = sample(0, 20)
    members = forecasts(part, 1, 4) | {"awful": TRUE + 1.5 + np.zeros((len(part.positions), 1, 1))}
    (refuted,) = screen_members(part, losses(part, members))
    assert refuted.name == "awful"
    assert refuted.rival in members
    assert refuted.lower <= refuted.improvement <= refuted.upper < 0
    assert f"above that of {refuted.rival}" in refuted.reason
    choice = choose_members(part, members, "screened")
    assert choice.kept == ("m0", "m1", "m2", "m3")
    assert (choice.weights, choice.lean, choice.blocks, choice.days) == ((), 0.0, 20, 400)


def test_the_best_member_is_never_refuted() -> None:
    part = sample(0, 20)
    members = {"good": TRUE + np.zeros((400, 1, 1)), "bad": 3 * TRUE + np.zeros((400, 1, 1))}
    for order in (members, dict(reversed(members.items()))):
        assert choose_members(part, order, "screened").kept == ("good",)


def test_equal_members_are_seldom_refuted() -> None:
    refuted = 0
    for seed in range(40):
        part = sample(seed, 10)
        refuted += len(screen_members(part, losses(part, forecasts(part, 100 + seed, 3))))
    assert refuted <= 40 * 2 * 0.25


def test_few_days_refute_no_member() -> None:
    part = sample(0, 4)
    members = {"good": TRUE + np.zeros((80, 1, 1)), "awful": TRUE + np.full((80, 1, 1), 5.0)}
    assert choose_members(part, members, "screened").kept == ("good", "awful")


@pytest.mark.parametrize("rule", ["screened", "fitted"])
def test_the_order_of_members_changes_no_decision(rule: str) -> None:
    part = sample(3, 20)
    members = forecasts(part, 4, 3) | {"awful": 4 * TRUE + np.zeros((400, 1, 1))}
    one = choose_members(part, members, "fitted" if rule == "fitted" else "screened")
    other = choose_members(part, dict(reversed(members.items())), one.rule)
    assert {refuted.name: refuted for refuted in one.refuted} == {refuted.name: refuted for refuted in other.refuted}
    assert one.kept == other.kept[::-1]
    assert len(one.kept) > 1
    np.testing.assert_allclose(np.array(one.weights), np.array(other.weights[::-1]), rtol=0, atol=1e-9)


# --- fitted weights


def test_fitted_weights_have_the_least_loss_of_all_weights() -> None:
    """Checked against linear programming (HiGHS)."""
    part = sample(5, 40)
    members = forecasts(part, 6, 4)
    members = {name: one + 0.1 * k for k, (name, one) in enumerate(members.items())}
    found = fit_weights(part, [*members.values()])
    assert found.shape == (4, 3)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=0), 1, rtol=0, atol=1e-12)
    for q, level in enumerate(LEVELS):
        stacked = np.stack([one[:, 0, q] for one in members.values()], axis=1)
        y, count = part.outcomes[:, 0], len(part.positions)
        best = linprog(
            np.r_[np.zeros(4), np.full(count, level / count), np.full(count, (1 - level) / count)],
            A_eq=np.r_[np.c_[stacked, np.eye(count), -np.eye(count)], np.r_[np.ones(4), np.zeros(2 * count)][None, :]],
            b_eq=np.r_[y, 1.0],
        )
        error = y - stacked @ found[:, q]
        assert np.maximum(level * error, (level - 1) * error).mean() < best.fun * (1 + 2e-3)


def test_weights_differ_by_quantile_where_members_do() -> None:
    part = sample(7, 40)
    everywhere = np.zeros((len(part.positions), 1, 1))
    members = [everywhere + row for row in (np.array([TRUE[0], 0.0, 3.0]), np.array([-3.0, 0.0, TRUE[2]]))]
    found = fit_weights(part, members)
    assert found[0, 0] > 0.9
    assert found[1, 2] > 0.9


def test_unknown_outcomes_have_no_effect_on_the_weights() -> None:
    part = sample(8, 20)
    members = forecasts(part, 9, 3)
    unknown = part.outcomes.copy()
    unknown[::7] = np.nan
    known = np.isfinite(unknown[:, 0])
    some = {name: one[known] for name, one in members.items()}
    found = fit_weights(replace(part, outcomes=unknown), [*members.values()])
    np.testing.assert_allclose(found, fit_weights(part.rows(known), [*some.values()]), rtol=0, atol=1e-9)


def test_on_8_blocks_of_equal_members_leaning_regrets_at_most_a_third_of_fitting() -> None:
    """The truth is known, so regret is measured on many later days."""
    equal = np.full((4, 3), 0.25)
    fitted_regret = leaning_regret = 0.0
    later = sample(1000, 1000)
    for seed in range(12):
        part = sample(seed, 8)
        everything = forecasts(later, 2000 + seed, 4)
        fitted = fit_weights(part, [*forecasts(part, 3000 + seed, 4).values()])
        leaning = lean_weights(fitted, count_blocks(part) / (count_blocks(part) + 40))
        least = mean_loss(later, everything, equal)
        fitted_regret += mean_loss(later, everything, fitted) - least
        leaning_regret += mean_loss(later, everything, leaning) - least
    assert fitted_regret > 0
    assert leaning_regret < fitted_regret / 3


def test_fitted_weights_lean_by_the_number_of_blocks() -> None:
    part = sample(11, 40)
    members = forecasts(part, 12, 3)
    choice = choose_members(part, members, "fitted")
    assert choice.lean == 0.5
    kept = [members[name] for name in choice.kept]
    assert len(kept) > 1
    expected = 0.5 * fit_weights(part, kept) + 0.5 / len(kept)
    np.testing.assert_allclose(np.array(choice.weights), expected, rtol=0, atol=1e-12)


def test_fitted_weights_are_refused_under_16_blocks() -> None:
    part = sample(13, 15)
    with pytest.raises(ConfigurationError, match=r"hold 15 independent blocks of 20 sessions, but .* need 16"):
        choose_members(part, forecasts(part, 14, 3), "fitted")
    full = sample(13, 16)
    assert choose_members(full, forecasts(full, 14, 3), "fitted").lean == 16 / 56


def test_a_single_survivor_needs_no_weights() -> None:
    part = sample(15, 20)
    members = {"good": TRUE + np.zeros((400, 1, 1)), "bad": 3 * TRUE + np.zeros((400, 1, 1))}
    choice = choose_members(part, members, "fitted")
    assert (choice.kept, choice.weights) == (("good",), ())

"""The model confidence set of synthetic losses."""

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from predictor.networks import Target
from trainers.stock.evaluation import evaluation
from trainers.stock.evaluation.comparison import average_days
from trainers.stock.evaluation.evaluation import (
    MISSING_PACKAGE,
    ConfidenceSet,
    find_confidence_set,
    note_missing_package,
)
from trainers.stock.evaluation.evaluation_set import EvaluationSet, resampled_mean

DAYS, SYMBOLS = 400, 3

FloatArray = NDArray[np.float64]


def judged(horizons: int = 1, days: int = DAYS) -> EvaluationSet:
    """Windows of each symbol on each day."""
    return EvaluationSet(
        outcomes=np.zeros((days * SYMBOLS, horizons)),
        sessions=np.arange(days, dtype=np.int32),
        positions=np.repeat(np.arange(days), SYMBOLS),
        symbols=np.tile(np.arange(SYMBOLS), days),
        target=Target(horizons=tuple(range(1, horizons + 1))),
        levels=(0.5,),
    )


def found(daily: Mapping[str, FloatArray]) -> ConfidenceSet:
    result = find_confidence_set(judged(), daily)
    assert result is not None
    return result


def shared_losses(seed: int, *names: str) -> dict[str, FloatArray]:
    """Losses of equally good models: a part that they share, as models of the same days do, and noise."""
    random = np.random.default_rng(seed)
    common = random.exponential(size=DAYS)
    return {name: 1 + common + 0.1 * random.normal(size=DAYS) for name in names}


def test_a_clearly_worse_model_is_left_out_and_equal_ones_are_kept() -> None:
    losses = shared_losses(1, "a", "b", "worse")
    losses["worse"] += 0.1
    result = found(losses)
    assert set(result.members) == {"a", "b"}
    assert result.p_values["worse"] < 0.01
    assert max(result.p_values.values()) == 1.0


def test_the_worst_of_many_equal_models_is_kept_as_often_as_the_size_says() -> None:
    kept = [len(found(shared_losses(seed, *"abcde")).members) == 5 for seed in range(40)]
    assert np.mean(kept) >= 0.8


def test_models_with_the_same_losses_share_their_p_value() -> None:
    losses = shared_losses(2, "a", "worse")
    losses["worse"] += 0.1
    result = found({**losses, "same as a": losses["a"], "same as worse": losses["worse"]})
    assert set(result.members) == {"a", "same as a"}
    assert result.p_values["same as worse"] == result.p_values["worse"]
    assert found({"a": losses["a"], "same as a": losses["a"]}).members == ("a", "same as a")


def test_the_p_values_are_those_of_their_models_and_the_largest_comes_first() -> None:
    behind = {"far": 0.012, "best": 0.0, "worst": 0.05, "near": 0.006}
    losses = shared_losses(9, *behind)
    for name, step in behind.items():
        losses[name] += step - losses[name].mean()
    result = found(losses)
    assert list(result.p_values) == ["best", "near", "far", "worst"]
    assert result.p_values["best"] == 1.0
    assert result.p_values["near"] > result.p_values["far"] > result.p_values["worst"]


def test_days_that_follow_each_other_are_resampled_together() -> None:
    """A lead that lasts for a month at a time is no evidence: few blocks are independent."""
    random = np.random.default_rng(6)
    months = np.repeat(random.normal(size=DAYS // 20), 20)
    months -= months.mean() - 0.25
    losses = {"a": np.full(DAYS, 5.0), "b": 5.0 + months}
    shuffled = {"a": losses["a"], "b": random.permutation(losses["b"])}
    assert "b" in found(losses).members
    assert "b" not in found(shuffled).members


def test_the_p_value_of_two_models_is_the_share_of_widened_resamples_as_far_from_the_mean_as_zero() -> None:
    days = 120
    test = judged(days=days)
    lead = np.random.default_rng(7).normal(size=days)
    lead += 0.15 - lead.mean()
    result = find_confidence_set(test, {"a": np.full(days, 5.0), "b": 5.0 + lead})
    assert result is not None
    _, resamples = resampled_mean(test, np.repeat(lead, SYMBOLS))
    expected = np.mean(np.abs(resamples - 0.15) > 0.15)
    assert 0.05 < expected < 0.5
    assert result.p_values["b"] == pytest.approx(expected, abs=0.03)


def test_days_without_an_outcome_do_not_count() -> None:
    losses = shared_losses(3, "a", "worse")
    losses["worse"] += 0.1
    gaps = {name: np.where(np.arange(DAYS) < 40, np.nan, values) for name, values in losses.items()}
    assert found(gaps).members == ("a",)


def test_the_loss_of_a_day_is_the_mean_over_symbols_of_horizons_in_units_of_their_spread() -> None:
    test = judged(horizons=4)
    losses = np.arange(DAYS * SYMBOLS * 4, dtype=np.float64).reshape(-1, 4)
    losses[0, 1:] = np.nan
    day = losses[:SYMBOLS] / test.spread
    expected = np.mean([day[0, 0], *day[1:].mean(axis=1)])
    assert average_days(test, losses)[0] == pytest.approx(expected)


def test_the_line_says_how_many_models_are_in_the_set() -> None:
    result = ConfidenceSet(size=0.1, p_values={"tft": 1.0, "har, refitted": 0.4, "zero": 0.1})
    assert result.members == ("tft", "har, refitted")
    assert result.sentence == "2 of 3 models are not distinguishable from the best at 10 %"


def test_too_few_days_have_no_set() -> None:
    losses = shared_losses(5, "a", "b")
    few = {name: values[:99] for name, values in losses.items()}
    assert find_confidence_set(judged(days=99), few) is None
    assert find_confidence_set(judged(days=100), {name: values[:100] for name, values in losses.items()}) is not None


def test_without_arch_there_is_no_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_name: str) -> None:
        return None

    monkeypatch.setattr(evaluation, "find_spec", nothing)
    assert find_confidence_set(judged(), shared_losses(4, "a", "b")) is None
    assert note_missing_package() == (MISSING_PACKAGE,)

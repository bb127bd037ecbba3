"""The four splits of history share no outcome."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from market import bokeh_panel
from numpy.typing import NDArray

from predictor.errors import ConfigurationError
from predictor.networks import Target
from trainers.stock.backtest.refits import refit_splits
from trainers.stock.recipe import StockRecipe, read_recipe
from trainers.stock.splits import DataSplits, RollingSplits, SplitPart, SplitShares, list_decisions, parse_splits


def axis(length: int) -> NDArray[np.int32]:
    """Increasing session numbers, which splits only compare."""
    return np.arange(20000101, 20000101 + length, dtype=np.int32)


def parts_at(*bounds: tuple[int, int]) -> DataSplits:
    train, selection, calibration, test = (
        SplitPart(name, *pair) for name, pair in zip(("train", "selection", "calibration", "test"), bounds, strict=True)
    )
    return DataSplits(train=train, selection=selection, calibration=calibration, test=test)


def touched(part: SplitPart, sessions: NDArray[np.int32], target: Target) -> NDArray[np.int64]:
    """All positions in the target intervals (t + lag, t + lag + h] of a part."""
    steps = target.lag + np.arange(1, target.horizons[-1] + 1)
    return np.unique(list_decisions(part, sessions, target)[:, None] + steps)


def shares_of(weights: tuple[int, int, int, int]) -> SplitShares:
    train, selection, calibration, test = (weight / sum(weights) for weight in weights)
    return SplitShares(train=train, selection=selection, calibration=calibration, test=test)


weight = st.integers(5, 20)
shares = st.tuples(weight, weight, weight, weight).map(shares_of)
lengths = st.integers(400, 800)
"""Long enough for a horizon of 25 in the smallest share, 5 / 65."""


@settings(deadline=None)
@given(
    length=lengths,
    horizons=st.lists(st.integers(1, 25), min_size=1, max_size=4, unique=True).map(sorted),
    lag=st.integers(0, 1),
    chosen=shares,
)
def test_target_intervals_of_different_parts_never_meet(
    length: int, horizons: list[int], lag: int, chosen: SplitShares
) -> None:
    sessions, target = axis(length), Target(horizons=tuple(horizons), lag=lag)
    found = [touched(part, sessions, target) for part in DataSplits.by_shares(sessions, chosen).parts]
    for earlier, later in combinations(found, 2):
        assert earlier.max() < later.min()


@settings(deadline=None)
@given(length=lengths, chosen=shares)
def test_the_parts_cover_the_history_in_order(length: int, chosen: SplitShares) -> None:
    sessions = axis(length)
    parts = DataSplits.by_shares(sessions, chosen).parts
    days = [day for part in parts for day in range(part.first, part.last + 1)]
    assert days == sessions.tolist()


def test_a_part_uses_all_the_room_that_it_has() -> None:
    target = Target(horizons=(1, 5), lag=1)
    found = list_decisions(SplitPart("selection", 20000151, 20000160), axis(100), target)
    assert found[0] + 2 == 50
    assert found[-1] + 6 == 59


def test_no_decision_lies_before_the_first_session() -> None:
    assert list_decisions(SplitPart("train", 20000101, 20000120), axis(50), Target(horizons=(1,), lag=1))[0] == 0


@pytest.mark.parametrize(
    ("selection", "calibration", "message"),
    [
        ((20, 30), (31, 40), "train and selection meet: train ends 20, selection begins 20"),
        ((21, 30), (31, 45), "calibration and test meet"),
        ((30, 21), (31, 40), "split selection ends 21, before it begins 30"),
    ],
    ids=["touching", "overlapping", "reversed"],
)
def test_parts_that_meet_or_end_before_they_begin_are_refused(
    selection: tuple[int, int], calibration: tuple[int, int], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parts_at((1, 20), selection, calibration, (41, 50))


def test_gaps_between_parts_are_allowed() -> None:
    assert parts_at((1, 20), (25, 30), (35, 40), (45, 50)).selection.first == 25


def test_a_part_without_room_for_the_longest_horizon_is_refused() -> None:
    part = SplitPart("calibration", 20000151, 20000159)
    assert len(list_decisions(part, axis(100), Target(horizons=(1, 9)))) == 1
    with pytest.raises(
        ConfigurationError, match=r"split calibration, 20000151 to 20000159, has no room .* 10 sessions"
    ):
        list_decisions(part, axis(100), Target(horizons=(1, 10)))


def test_a_history_of_three_sessions_cannot_be_split() -> None:
    with pytest.raises(ConfigurationError, match="3 sessions are too few"):
        DataSplits.by_shares(axis(3), SplitShares())


@pytest.mark.parametrize("train", [0.0, 0.7, float("nan")])
def test_shares_that_are_not_positive_or_do_not_add_up_are_refused(train: float) -> None:
    with pytest.raises(ConfigurationError, match="add up to 1"):
        SplitShares(train=train)


def test_another_number_of_parts_than_three_or_four_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="2 splits are given, but three or four are needed"):
        DataSplits.by_dates([(20000103, 20071231), (20080102, 20090630)])


def test_rolling_parts_are_the_last_sessions_and_leave_no_test() -> None:
    sessions = axis(100)
    parts = RollingSplits(selection=20, calibration=30).of(sessions)
    assert parts.test is None
    assert [(part.name, part.first - 20000100, part.last - 20000100) for part in parts.parts] == [
        ("train", 1, 50),
        ("selection", 51, 70),
        ("calibration", 71, 100),
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [("rolling", RollingSplits()), ("rolling:60,120", RollingSplits(selection=60, calibration=120))],
)
def test_rolling_parts_are_given_as_text(text: str, parts: RollingSplits) -> None:
    assert parse_splits(text) == parts


@pytest.mark.parametrize("text", ["rolling:60", "rolling:0,5", "rolling:a,b", "rollin"])
def test_a_text_that_is_no_splits_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="rolling"):
        parse_splits(text)


def test_rolling_parts_that_leave_nothing_to_learn_from_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="the bars have 50 sessions, but the splits take the last 50"):
        RollingSplits(selection=20, calibration=30).of(axis(50))


@pytest.mark.parametrize(
    "parts",
    [
        None,
        RollingSplits(selection=20, calibration=30),
        parts_at((1, 20), (25, 30), (35, 40), (45, 50)),
        replace(parts_at((1, 20), (25, 30), (35, 40), (45, 50)), test=None),
    ],
    ids=["shares", "rolling", "dates", "dates without a test"],
)
def test_a_recipe_is_read_as_it_was_recorded(parts: DataSplits | RollingSplits | None) -> None:
    recipe = StockRecipe(parts=parts)
    assert read_recipe(recipe.settings()) == recipe


def test_a_refit_of_rolling_parts_uses_the_lengths_of_the_recipe() -> None:
    bars = bokeh_panel("AAPL").last(300)
    parts = refit_splits(bars, StockRecipe(parts=RollingSplits(selection=20, calibration=30)))
    assert parts == RollingSplits(selection=20, calibration=30).of(bars.sessions)


def test_parts_by_their_dates_are_the_recipes_splits() -> None:
    parts = DataSplits.by_dates(
        [(20000103, 20071231), (20080102, 20090630), (20090701, 20101231), (20110103, 20121231)]
    )
    assert StockRecipe(parts=parts).splits(np.array([20000103], np.int32)) is parts
    assert StockRecipe(parts=parts).settings()["split_test"] == [20110103, 20121231]

"""SVG curves: points at their values, and axes with round ticks."""

import math

import pytest

from trainers.media.page import TrainingCurve, number, plot, plots, round_values


def curve(*points: tuple[float, float], level: float | None = None) -> TrainingCurve:
    return TrainingCurve(name="Loss", over="steps", points=points, level=level, level_name="a floor")


def test_points_lie_where_their_numbers_are_with_large_ones_on_top() -> None:
    drawn = plot(curve((0, 0.0), (50, 1.0), (100, 0.5)))
    # the range is 6 % larger than the values on both sides, and y goes down
    low, high = 100 * (1 + 0.06) / 1.12, 100 * 0.06 / 1.12
    assert drawn.line == f"0,{low:.2f} 50,{high:.2f} 100,50"
    assert drawn.dots.count("M") == 3


def test_a_level_is_within_the_picture_and_lies_where_its_number_is() -> None:
    drawn = plot(curve((1, 2.0), (2, 3.0), level=1.0))
    assert drawn.level == pytest.approx(100 - 100 * 0.12 / 2.24, abs=0.01)
    first, last = (float(pair.split(",")[1]) for pair in drawn.line.split())
    assert 0 < last < first < (drawn.level or 0) < 100


def test_a_level_of_nothing_is_a_level_too() -> None:
    assert plot(curve((1, -1.0), (2, 1.0), level=0.0)).level == 50
    assert plot(curve((1, -1.0), (2, 1.0))).level is None


def test_marks_lie_where_their_numbers_are() -> None:
    marks = plot(curve((100, 1.0), (1500, 3.0))).across
    assert [(mark.text, mark.place) for mark in marks] == [("0", 0), ("500", 33.33), ("1,000", 66.67), ("1,500", 100)]


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0.93, 1.57, [1, 1.2, 1.4]),
        (-3, 3, [-2, 0, 2]),
        (1e-7, 6e-7, [1e-7, 2e-7, 3e-7, 4e-7, 5e-7, 6e-7]),
        (0, 123456, [0, 50000, 100000]),
    ],
)
def test_marks_are_round_numbers_between_the_ends(low: float, high: float, wanted: list[float]) -> None:
    assert round_values(low, high) == pytest.approx(wanted)


def test_a_single_value_and_equal_values_have_a_height() -> None:
    assert plot(curve((3, 2.0))).line == "100,50"
    assert plot(curve((1, 0.0), (2, 0.0))).line == "50,50 100,50"
    assert plot(curve((0, 1.0))).line == "0,50"


def test_values_that_are_none_are_left_out_and_a_curve_of_nothing_else_is_no_curve() -> None:
    assert plot(curve((1, math.nan), (2, 1.0), (3, math.inf))).values == ((2, 1.0),)
    assert plots([curve((1, math.nan)), curve()]) == ()
    with pytest.raises(ValueError, match="no finite point"):
        plot(curve())


def test_numbers_are_short_and_have_a_real_minus() -> None:
    assert [number(value) for value in (1500, 0.25, -0.5, 0.1 + 0.2, -1e-20 * 0, 12345678)] == [
        "1,500",
        "0.25",
        "−0.5",  # noqa: RUF001 - a minus
        "0.3",
        "0",
        "1.235e+07",
    ]


def test_marks_of_one_axis_are_different_numbers_however_close() -> None:
    texts = [mark.text for mark in plot(curve((1, 1500.2), (2, 1500.9))).upwards]
    assert texts == ["1,500.2", "1,500.4", "1,500.6", "1,500.8"]
    assert [mark.text for mark in plot(curve((1, 1.0), (2, 2.0))).across] == ["0", "1", "2"]


@pytest.mark.parametrize("values", [(0.97361, 0.97362), (1.0, 1 + 1e-15), (-1e299, 1e299), (5e-324, 0.0), (1e22, 1.0)])
def test_marks_are_few_and_short_and_within_the_picture(values: tuple[float, float]) -> None:
    drawn = plot(curve(*enumerate(values), (7, 1e308), level=values[0]))
    marks = [mark.text for mark in drawn.upwards]
    assert 2 <= len(set(marks)) == len(marks) <= 8
    assert max(map(len, marks)) <= 9
    assert all(0 <= float(place) <= 100 for pair in drawn.line.split() for place in pair.split(","))

"""Feature operators against plain Python per window, bit for bit, and against TA-Lib on real prices."""

import math
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
import talib
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from market import bokeh_panel
from numpy.typing import NDArray

from predictor.errors import ConfigurationError
from predictor.features import OBSERVED, OPERATORS, kernels, load_default_features, parse
from predictor.features.evaluator import EvaluationPlan

FloatArray = NDArray[np.float64]
Window = list[np.float64]
Oracle = Callable[[Window, int], float | np.float64]

NAN = np.float64(np.nan)


def evaluate(text: str, columns: Mapping[str, FloatArray]) -> FloatArray:
    """One expression over columns [S, T]."""
    return EvaluationPlan([parse(text, OBSERVED)]).evaluate(columns)[0].T


def added(values: Window) -> np.float64:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def mean(window: Window, n: int) -> np.float64:
    return added(window) / n


def variance(window: Window, n: int) -> np.float64:
    average = mean(window, n)
    return added([(value - average) * (value - average) for value in window]) / (n - 1)


def smoothed(window: Window, decay: float) -> np.float64:
    weights = [np.float64(1.0)]
    for _ in window[1:]:
        weights.insert(0, weights[0] * decay)
    total = added(weights)
    return added([value * (weight / total) for value, weight in zip(window, weights, strict=True)])


def slope(window: Window, n: int) -> np.float64:
    oldest = window[0]
    steps = [(value - oldest) * (place - (n - 1) / 2) for place, value in enumerate(window)]
    return added(steps) / (n * (n * n - 1) / 12)


def residual(window: Window, n: int) -> np.float64:
    steps = [value - window[0] for value in window]
    rise = added([step * (place - (n - 1) / 2) for place, step in enumerate(steps)]) / (n * (n * n - 1) / 12)
    return steps[-1] - (mean(steps, n) + rise * ((n - 1) / 2))


def determination(window: Window, n: int) -> np.float64:
    average = mean(window, n)
    off = [value - average for value in window]
    rounding = np.float64(1e-9) * average
    root = np.sqrt(added([value * value for value in off]) + n * (rounding * rounding))
    below = root * math.sqrt(n * (n * n - 1) / 12)
    correlated = added([value * (place - (n - 1) / 2) for place, value in enumerate(off)]) / (below or np.float64(1.0))
    return correlated * correlated


def quantile(window: Window, level: float) -> np.float64:
    if any(math.isnan(value) for value in window):
        return NAN
    ordered = sorted(window)
    place = level * (len(window) - 1)
    low, high = ordered[math.floor(place)], ordered[min(math.floor(place) + 1, len(window) - 1)]
    return low if low == high else low + (high - low) * (place - math.floor(place))


def rank(window: Window, n: int) -> float | np.float64:
    if any(math.isnan(value) for value in window):
        return NAN
    below = sum(value < window[-1] for value in window)
    equal = sum(value == window[-1] for value in window)
    return (below + (equal + 1) / 2) / n


def picked(pick: Callable[[Window], np.float64]) -> Oracle:
    return lambda window, _n: NAN if any(math.isnan(value) for value in window) else pick(window)


ROLLING: Mapping[str, Oracle] = {
    "Sum": lambda window, _n: added(window),
    "Mean": mean,
    "Var": variance,
    "Std": lambda window, n: np.sqrt(variance(window, n)),
    "Max": picked(max),
    "Min": picked(min),
    "Slope": slope,
    "Resi": residual,
    "Rsquare": determination,
    "IdxMax": picked(lambda window: np.float64(window.index(max(window)) + 1)),
    "IdxMin": picked(lambda window: np.float64(window.index(min(window)) + 1)),
    "Rank": rank,
}

ELEMENTWISE: Mapping[str, Callable[[np.float64], float | np.float64]] = {
    "Abs({})": np.abs,
    "Sign({})": np.sign,
    "Sqrt({})": np.sqrt,
    "Log({})": np.log,
    "-{}": np.negative,
    "{} + 2.5": lambda x: x + 2.5,
    "2.5 - {}": lambda x: 2.5 - x,
    "{} * 2.5": lambda x: x * 2.5,
    "{} / 2.5": lambda x: x / 2.5,
    "2.5 / {}": lambda x: 2.5 / x,
    "Plus({}, 0.5)": lambda x: x + 0.5,
}

VALUES = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.0, 1.0, 50.1, 50.1, np.nan, np.inf, -np.inf]))
SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 30))
SERIES = SHAPES.flatmap(lambda shape: arrays(np.float64, shape, elements=VALUES))
quickly = settings(deadline=None, derandomize=True, max_examples=40)


def windowed(x: FloatArray, n: int, oracle: Callable[[Window], float | np.float64]) -> FloatArray:
    """The reference over every full window, NaN before the first."""
    result = np.full(x.shape, np.nan)
    for row, column in np.ndindex(*x.shape):
        if column >= n - 1:
            with np.errstate(all="ignore"):
                result[row, column] = oracle(list(x[row, column - n + 1 : column + 1]))
    return result


@pytest.mark.parametrize("name", sorted(ROLLING))
@quickly
@given(x=SERIES, n=st.integers(2, 12))
def test_a_rolling_operator_adds_oldest_first(name: str, x: FloatArray, n: int) -> None:
    expected = windowed(x, n, lambda window: ROLLING[name](window, n))
    assert np.array_equal(evaluate(f"{name}($close, {n})", {"close": x}), expected, equal_nan=True)


@quickly
@given(x=SERIES, n=st.integers(1, 12), level=st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]))
def test_a_quantile_lies_on_the_line_between_two_values(x: FloatArray, n: int, level: float) -> None:
    expected = windowed(x, n, lambda window: quantile(window, level))
    assert np.array_equal(evaluate(f"Quantile($close, {n}, {level})", {"close": x}), expected, equal_nan=True)


@quickly
@given(x=SERIES, n=st.integers(1, 12), taps=st.integers(1, 12))
def test_averages_multiply_each_value_with_its_weight(x: FloatArray, n: int, taps: int) -> None:
    for name, decay in (("EMA", 1 - 2 / (n + 1)), ("Wilder", 1 - 1 / n)):
        expected = windowed(x, taps, lambda window, decay=decay: smoothed(window, decay))
        assert np.array_equal(evaluate(f"{name}($close, {n}, {taps})", {"close": x}), expected, equal_nan=True)


@quickly
@given(x=SERIES, n=st.integers(0, 12))
def test_earlier_values_are_missing_before_the_start(x: FloatArray, n: int) -> None:
    earlier = np.full(x.shape, np.nan)
    earlier[:, n:] = x[:, : max(0, x.shape[1] - n)]
    assert np.array_equal(evaluate(f"Ref($close, {n})", {"close": x}), earlier, equal_nan=True)
    if n:
        with np.errstate(invalid="ignore"):
            difference = x - earlier
        assert np.array_equal(evaluate(f"Delta($close, {n})", {"close": x}), difference, equal_nan=True)


@pytest.mark.parametrize("text", sorted(ELEMENTWISE))
@quickly
@given(x=SERIES)
def test_elementwise_operators_follow_ieee_754(text: str, x: FloatArray) -> None:
    with np.errstate(all="ignore"):
        expected = np.array([[ELEMENTWISE[text](value) for value in row] for row in x])
    ours = evaluate(text.format("$close"), {"close": x})
    tolerance = 2.3e-16 if text.startswith("Log") else 0
    assert np.allclose(ours, expected, rtol=tolerance, atol=0, equal_nan=True)


@quickly
@given(x=SHAPES.flatmap(lambda shape: arrays(np.float64, (2, *shape), elements=VALUES)))
def test_the_larger_and_the_smaller_keep_nan(x: FloatArray) -> None:
    columns = {"close": x[0], "open": x[1]}
    unknown = np.isnan(x[0]) | np.isnan(x[1])
    for name, pick in (("Greater", np.fmax), ("Less", np.fmin)):
        expected = np.where(unknown, np.nan, pick(x[0], x[1]))
        assert np.array_equal(evaluate(f"{name}($close, $open)", columns), expected, equal_nan=True)


@quickly
@given(x=SHAPES.flatmap(lambda shape: arrays(np.float64, (2, *shape), elements=VALUES)))
def test_a_comparison_is_one_or_zero_and_unknown_where_a_side_is(x: FloatArray) -> None:
    columns = {"close": x[0], "open": x[1]}
    unknown = np.isnan(x[0]) | np.isnan(x[1])
    for text, holds in (("$close > $open", x[0] > x[1]), ("$close < $open", x[0] < x[1])):
        assert np.array_equal(evaluate(text, columns), np.where(unknown, np.nan, holds), equal_nan=True)


@quickly
@given(x=arrays(np.float64, (2, 25), elements=st.floats(-100, 100)))
def test_correlation_is_pearsons(x: FloatArray) -> None:
    ours = evaluate("Corr($close, $open, 10)", {"close": x[:1], "open": x[1:]})
    for end in range(10, 26):
        one, two = x[0, end - 10 : end], x[1, end - 10 : end]
        if min(one.std(), two.std()) > 1e-3:
            assert ours[0, end - 1] == pytest.approx(np.corrcoef(one, two)[0, 1], abs=1e-9)


def correlation(one: Window, two: Window, n: int) -> np.float64:
    centres = mean(one, n), mean(two, n)
    off = [[value - centre for value in window] for window, centre in zip((one, two), centres, strict=True)]
    rounding = [np.float64(1e-9) * centre for centre in centres]
    roots = [
        np.sqrt(added([value * value for value in values]) + n * (small * small))
        for values, small in zip(off, rounding, strict=True)
    ]
    below = roots[0] * roots[1]
    return added([a * b for a, b in zip(*off, strict=True)]) / (below or np.float64(1.0))


@quickly
@given(x=SHAPES.flatmap(lambda shape: arrays(np.float64, (2, *shape), elements=VALUES)), n=st.integers(2, 12))
def test_correlation_adds_oldest_first(x: FloatArray, n: int) -> None:
    expected = np.full(x[0].shape, np.nan)
    for row, column in np.ndindex(*expected.shape):
        if column >= n - 1:
            window = slice(column - n + 1, column + 1)
            with np.errstate(all="ignore"):
                expected[row, column] = correlation(list(x[0, row, window]), list(x[1, row, window]), n)
    ours = evaluate(f"Corr($close, $open, {n})", {"close": x[0], "open": x[1]})
    assert np.array_equal(ours, expected, equal_nan=True)


def test_the_correlation_of_a_constant_is_zero() -> None:
    random = np.random.default_rng(0)
    levels = np.concatenate([[0.0, 50.1], random.lognormal(0, 10, 200)])
    constant = np.repeat(levels[:, None], 60, axis=1)
    for other in (random.standard_normal(constant.shape), constant[::-1]):
        ours = evaluate("Corr($close, $open, 20)", {"close": constant, "open": other})
        assert np.abs(ours[:, 19:]).max() < 1e-6


@pytest.mark.parametrize("level", [0.0, 50.1, 1e-7, 3.3e9])
def test_the_line_through_a_constant_is_flat(level: float) -> None:
    for name in ("Slope", "Resi"):
        assert not evaluate(f"{name}($close, 20)", {"close": np.full((1, 40), level)})[:, 19:].any()


@pytest.mark.parametrize("level", [0.0, 50.1, 1e-7, 3.3e9])
def test_a_line_explains_nothing_of_a_constant(level: float) -> None:
    assert evaluate("Rsquare($close, 20)", {"close": np.full((1, 40), level)})[:, 19:].max() < 1e-12


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
@pytest.mark.parametrize("symbols", [1, 2, 5])
@pytest.mark.parametrize(
    "text",
    [
        "Sum($close, 60)",
        "Std($close, 60)",
        "EMA($close, 26, 60)",
        "Slope($close, 60)",
        "Rsquare($close, 60)",
        "Resi($close, 60)",
    ],
)
def test_a_window_gives_the_same_bits_in_every_panel(text: str, rows: int, symbols: int) -> None:
    x = np.random.default_rng(1).lognormal(size=(9, 200))
    whole = evaluate(text, {"close": x})
    part = evaluate(text, {"close": x[:symbols, 200 - 59 - rows :]})
    assert np.array_equal(part[:, 59:], whole[:symbols, 200 - rows :])


def test_equal_parts_are_computed_once() -> None:
    texts = ["Mean($close, 5) / Ref($close, 1)", "Mean($close, 5) * 2", "Std($close, 5) + Mean($close, 5)"]
    plan = EvaluationPlan([parse(text, OBSERVED) for text in texts])
    assert len(plan._steps) == 6  # Mean, Ref, /, *, Std, +


@pytest.mark.parametrize(
    ("text", "lookback"),
    [
        ("$close", 1),
        ("Ref($close, 5)", 6),
        ("Mean($close, 5)", 5),
        ("EMA($close, 12, 45)", 45),
        ("Delta(Mean(Ref($close, 2), 10), 3)", 15),
        ("Mean($close, 5) + Ref($open, 30)", 31),
        ("Corr($close, Delta($open, 4), 20)", 24),
    ],
)
def test_the_look_back_follows_from_the_tree(text: str, lookback: int) -> None:
    plan = EvaluationPlan([parse(text, OBSERVED)])
    assert plan.lookbacks == (lookback,)
    x = np.random.default_rng(2).lognormal(size=(1, 60))
    values = plan.evaluate({"close": x, "open": x})[0, :, 0]
    assert np.isnan(values[: lookback - 1]).all()
    assert np.isfinite(values[lookback - 1 :]).all()


def test_every_operator_says_what_it_means() -> None:
    signatures = [operator.signature for operator in OPERATORS.values()]
    assert "EMA(x, n, taps)" in signatures
    assert all(operator.meaning for operator in OPERATORS.values())


# TA-Lib's recursive averages start from a simple average; this many bars on, that start weighs less than 1e-30.
SETTLED = 1100


@pytest.fixture(scope="module")
def apple() -> dict[str, FloatArray]:
    bars = bokeh_panel("AAPL").adjusted()
    return {name: getattr(bars, name) for name in ("open", "high", "low", "close", "volume", "money")}


def talib_windows(bars: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """TA-Lib's value of each expression; its standard deviation divides by n."""
    high, low, close, volume = (bars[name][0] for name in ("high", "low", "close", "volume"))
    return {
        "Mean($close, 20)": talib.SMA(close, 20),
        "Std($close, 20)": talib.STDDEV(close, 20) * np.sqrt(20 / 19),
        "Max($high, 20)": talib.MAX(high, 20),
        "Min($low, 20)": talib.MIN(low, 20),
        "100 * ($close / Ref($close, 10) - 1)": talib.ROC(close, 10),
        "Corr($close, $volume, 20)": talib.CORREL(close, volume, 20),
        "Slope($close, 14)": talib.LINEARREG_SLOPE(close, 14),
    }


def test_windows_agree_with_talib(apple: dict[str, FloatArray]) -> None:
    for text, theirs in talib_windows(apple).items():
        ours = evaluate(text, apple)[0]
        assert np.array_equal(np.isnan(ours), np.isnan(theirs)), text
        assert np.nanmax(np.abs(ours - theirs)) < 1e-9, text


def tail_bound(values: FloatArray, decay: float, taps: int) -> FloatArray:
    """Bound of the error of a truncated average: the tail's weight times the range of all values so far.

    The endless average is (1 - tail) * ours + tail * (an average of older values), tail = decay ** taps.
    """
    seen = np.maximum.accumulate(values) - np.minimum.accumulate(values)
    return decay**taps * seen + 1e-9


@pytest.mark.parametrize(("n", "taps"), [(12, 60), (26, 60), (50, 200)])
def test_exponential_averages_agree_with_talib_within_their_tail(
    n: int, taps: int, apple: dict[str, FloatArray]
) -> None:
    close = apple["close"][0]
    off = np.abs(evaluate(f"EMA($close, {n}, {taps})", apple)[0] - talib.EMA(close, n))
    bound = tail_bound(close, 1 - 2 / (n + 1), taps)
    assert (off <= bound)[SETTLED:].all()
    assert off[SETTLED:].max() > 1e-9  # includes the tail


def test_the_average_true_range_agrees_with_talib_within_its_tail(apple: dict[str, FloatArray]) -> None:
    high, low, close = (apple[name][0] for name in ("high", "low", "close"))
    text = "Wilder(Greater($high, Ref($close, 1)) - Less($low, Ref($close, 1)), 14, 80)"
    off = np.abs(evaluate(text, apple)[0] - talib.ATR(high, low, close, 14))
    true_range = np.nan_to_num(talib.TRANGE(high, low, close))
    assert (off <= tail_bound(true_range, 13 / 14, 80))[SETTLED:].all()


def test_relative_strength_agrees_with_talib_within_its_tail(apple: dict[str, FloatArray]) -> None:
    moves = "Wilder(Abs(Delta($close, 1)), 14, {})"
    text = f"100 * Wilder(Greater(Delta($close, 1), 0), 14, 80) / ({moves.format(80)} + 1e-9 * $close)"
    off = np.abs(evaluate(text, apple)[0] - talib.RSI(apple["close"][0], 14))
    endless = evaluate(moves.format(600), apple)[0]
    # 100 times the tail's weight times its share of all moves: the ratio lies between ours and that of the tail
    bound = 100 * (13 / 14) ** 80 * endless[SETTLED - 80 : -80] / endless[SETTLED:] + 1e-5
    assert (off[SETTLED:] <= bound).all()


def test_macd_agrees_with_talib_within_its_tails(apple: dict[str, FloatArray]) -> None:
    close = apple["close"][0]
    macd = "(EMA($close, 12, 60) - EMA($close, 26, 60))"
    theirs, _, histogram = talib.MACD(close, 12, 26, 9)
    off_macd = np.abs(evaluate(macd, apple)[0] - theirs)
    off = np.abs(evaluate(f"{macd} - EMA({macd}, 9, 21)", apple)[0] - histogram)
    bound = tail_bound(close, 11 / 13, 60) + tail_bound(close, 25 / 27, 60)
    assert (off_macd <= bound)[SETTLED:].all()
    signal = np.maximum.accumulate(bound) + tail_bound(np.nan_to_num(theirs), 0.8, 21)
    assert (off <= bound + signal)[SETTLED:].all()


def evaluate_operator(name: str, window: int) -> str:
    """The operator over prices and volumes, with one number for all its windows."""
    operator = OPERATORS[name]
    series = ("$close", "$volume")[: len(operator.series)]
    settings = (*(str(window) for _ in operator.windows), *("0.3" for _ in operator.numbers))
    return f"{name}({', '.join((*series, *settings))})"


LOOKING_BACK = [name for name, operator in OPERATORS.items() if operator.windows]


@pytest.mark.parametrize("name", LOOKING_BACK)
def test_a_series_in_parts_gives_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, bars = evaluate_operator(name, 5), bokeh_panel("AAPL", "IBM").last(100)
    columns = {"close": bars.close, "volume": bars.volume}
    whole = evaluate(text, columns)
    monkeypatch.setattr(kernels, "CELLS_AT_ONCE", 30)
    np.testing.assert_array_equal(evaluate(text, columns), whole)


@pytest.mark.parametrize("name", LOOKING_BACK)
def test_windows_of_a_long_history_are_not_held_at_once(name: str) -> None:
    """All windows of 1000 bars would take 64 MB for each array of them."""
    columns = {"close": np.linspace(1.0, 2.0, 9000)[None], "volume": np.linspace(2.0, 1.0, 9000)[None]}
    tracemalloc.start()
    try:
        evaluate(evaluate_operator(name, 1000), columns)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


def test_an_older_operator_set_is_part_of_a_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("predictor.features.feature_set.OPERATOR_SET", 3)
    assert [replace(load_default_features(), operator_set=number).operator_set for number in (1, 2, 3)] == [1, 2, 3]
    for unknown in (0, 4):
        with pytest.raises(ConfigurationError, match=f"operator set {unknown} is unknown; this version has 3"):
            replace(load_default_features(), operator_set=unknown)

"""Time from raw bars to network inputs, compared with hand-written NumPy for the same features.

The hand-written peer is optimised for speed: running sums, one pass, no bit rules, no checks, no masks. Times are of
one thread, medians of interleaved rounds.
"""

import sys
import time
from collections.abc import Callable, Mapping

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from benchmarks.report import Row, at_most, interleaved_medians, parse_arguments, publish, shown
from predictor.bars import BarPanel
from predictor.features import FittedFeatures, load_default_features

FloatArray = NDArray[np.float64]

SESSIONS = 140
ONE, MANY = 1, 500
ONE_REACH_US, MANY_REACH_MS = 400.0, 25.0
HAND_REACH = 1.0


def random_columns(symbols: int) -> dict[str, FloatArray]:
    """Random walks with the volatility of stocks, [S, 140]."""
    random = np.random.default_rng(0)
    shape = (symbols, SESSIONS)
    close = 50 * np.exp(np.cumsum(0.015 * random.standard_normal(shape), axis=1))
    open_ = close * np.exp(0.01 * random.standard_normal(shape))
    return {
        "open": open_,
        "high": np.maximum(open_, close) * np.exp(0.005 * random.random(shape)),
        "low": np.minimum(open_, close) * np.exp(-0.005 * random.random(shape)),
        "close": close,
        "volume": 1e6 * np.exp(random.standard_normal(shape)),
    }


def sessions() -> NDArray[np.int32]:
    """140 days from 2013-01-01."""
    days = np.arange("2013-01-01", "2013-05-21", dtype="datetime64[D]")
    return np.array([int(str(day).replace("-", "")) for day in days], dtype=np.int32)


def panel_maker(columns: dict[str, FloatArray]) -> Callable[[], BarPanel]:
    """A function that builds and checks the panel of these columns."""
    symbols = tuple(f"S{place}" for place in range(columns["close"].shape[0]))
    axis = sessions()
    return lambda: BarPanel(
        symbols=symbols,
        sessions=axis,
        open=columns["open"],
        high=columns["high"],
        low=columns["low"],
        close=columns["close"],
        volume=columns["volume"],
    )


def rolling_mean(x: FloatArray, n: int) -> FloatArray:
    total = np.cumsum(x, axis=1)
    result = np.full_like(x, np.nan)
    result[:, n - 1] = total[:, n - 1] / n
    result[:, n:] = (total[:, n:] - total[:, :-n]) / n
    return result


def rolling_deviation(x: FloatArray, n: int) -> FloatArray:
    mean = rolling_mean(x, n)
    return np.sqrt(np.maximum((rolling_mean(x * x, n) - mean * mean) * (n / (n - 1)), 0))


def weighted(x: FloatArray, weights: FloatArray) -> FloatArray:
    result = np.full_like(x, np.nan)
    result[:, weights.size - 1 :] = sliding_window_view(x, weights.size, axis=1) @ weights
    return result


def decaying(decay: float, taps: int) -> FloatArray:
    weights = decay ** np.arange(taps - 1, -1, -1)
    return weights / weights.sum()


def ago(x: FloatArray, n: int) -> FloatArray:
    result = np.full_like(x, np.nan)
    result[:, n:] = x[:, :-n]
    return result


def extreme(x: FloatArray, n: int, pick: np.ufunc) -> FloatArray:
    result = np.full_like(x, np.nan)
    result[:, n - 1 :] = pick.reduce(sliding_window_view(x, n, axis=1), axis=2)
    return result


WILDER, FAST, SLOW, SIGNAL = decaying(13 / 14, 80), decaying(11 / 13, 60), decaying(25 / 27, 60), decaying(0.8, 21)
LINE: FloatArray = (np.arange(20, dtype=np.float64) - 9.5) / (20 * 399 / 12)


def by_hand(columns: dict[str, FloatArray], center: FloatArray, scale: FloatArray) -> NDArray[np.float32]:
    """The 23 features of the default set, scaled, [S, T, F]."""
    open_, high, low, close = (columns[name] for name in ("open", "high", "low", "close"))
    money = close * columns["volume"]
    before = ago(close, 1)
    daily, body, span = np.log(close / before), np.log(close / open_), np.log(high / low)
    parkinson = span * span / (4 * np.log(2))
    garman_klass = span * span / 2 - (2 * np.log(2) - 1) * body * body
    past = rolling_mean(parkinson, 60) + 1e-8
    middle = rolling_mean(close, 20)
    squares = rolling_mean(np.nan_to_num(daily) ** 2, 20)
    moves = np.diff(close, axis=1, prepend=close[:, :1])
    macd = weighted(close, FAST) - weighted(close, SLOW)
    bottom, top = extreme(low, 20, np.minimum), extreme(high, 20, np.maximum)
    usual = rolling_mean(money, 60)
    traded = np.log(money / usual + 0.01)
    flow = np.nan_to_num(np.diff(traded, axis=1, prepend=np.nan))
    steady = np.nan_to_num(daily)
    together = rolling_mean(steady * flow, 20) - rolling_mean(steady, 20) * rolling_mean(flow, 20)
    parts = (
        daily,
        np.log(close / ago(close, 5)),
        np.log(close / ago(close, 20)),
        np.log(open_ / before),
        body,
        (2 * close - low - high) / (high - low + 1e-9 * close),
        np.log(past) / 2,
        np.log((parkinson + 1e-8) / past) / 2,
        np.log((rolling_mean(parkinson, 5) + 1e-8) / past) / 2,
        np.log((rolling_mean(parkinson, 20) + 1e-8) / past) / 2,
        np.log(rolling_mean(garman_klass, 20) + 1e-8) / 2,
        np.log((rolling_mean(garman_klass, 5) + 1e-8) / (rolling_mean(garman_klass, 60) + 1e-8)) / 2,
        np.log((squares + 1e-8) / (rolling_mean(parkinson, 20) + 1e-8)) / 2,
        rolling_mean(np.minimum(steady, 0) * steady, 20) / (squares + 1e-8) - 0.5,
        weighted(np.maximum(high, before) - np.minimum(low, before), WILDER) / close,
        weighted(np.maximum(moves, 0), WILDER) / (weighted(np.abs(moves), WILDER) + 1e-9 * close) - 0.5,
        (macd - weighted(macd, SIGNAL)) / close,
        (close - middle) / (rolling_deviation(close, 20) + 1e-9 * middle),
        (close - bottom) / (top - bottom + 1e-9 * close) - 0.5,
        weighted(np.log(close), LINE),
        traded,
        np.log(rolling_mean(money, 5) / usual + 0.01),
        together / (rolling_deviation(steady, 20) * rolling_deviation(flow, 20) + 1e-12),
    )
    with np.errstate(invalid="ignore"):
        return np.clip((np.stack(parts, axis=2) - center) / scale, -8, 8).astype(np.float32)


def measure(symbols: int, *, rounds: int, calls: int) -> dict[str, float]:
    """Seconds of ours (bars, adjustment, features, scaling), its parts, and the hand-written peer."""
    columns = random_columns(symbols)
    make = panel_maker(columns)
    bars = make().adjusted()
    features = load_default_features()
    fitted = FittedFeatures.fit(features, features.columns(bars))
    scaling = fitted.scaling
    return interleaved_medians(
        {
            "whole": lambda: fitted.observed(make().adjusted()),
            "by hand": lambda: by_hand(columns, scaling.center, scaling.scale),
            "panel": lambda: make().adjusted(),
            "evaluation": lambda: features.evaluate(bars),
        },
        rounds=rounds,
        calls=calls,
        clock=time.thread_time,
    )


def rows_of(*, quick: bool) -> list[Row]:
    """All rows; a short run measures the same and is not judged."""
    rounds, judged = 3 if quick else 31, not quick
    one, many = measure(ONE, rounds=rounds, calls=20), measure(MANY, rounds=rounds, calls=1)
    detail = "checked panel, adjustment, 23 features, scaling; 140 bars, one thread"
    return [
        at_most("1 symbol: bars to features, us", one["whole"] * 1e6, ONE_REACH_US, detail=detail, judged=judged),
        *_part_rows("1 symbol", one, "us", 1e6, "116 steps", judged=judged),
        at_most("500 symbols: bars to features, ms", many["whole"] * 1e3, MANY_REACH_MS, detail=detail, judged=judged),
        *_part_rows("500 symbols", many, "ms", 1e3, "116 steps per block of 64", judged=judged),
    ]


def _part_rows(
    symbols: str, seconds: Mapping[str, float], unit: str, per_second: float, steps: str, *, judged: bool
) -> list[Row]:
    ratio = seconds["whole"] / seconds["by hand"]
    hand, panel, evaluation = (seconds[part] * per_second for part in ("by hand", "panel", "evaluation"))
    return [
        shown(f"{symbols}: the same by hand, {unit}", hand, detail="no checks, no masks, no bit rules"),
        at_most(f"{symbols}: ours / by hand", ratio, HAND_REACH, detail="same run", judged=judged),
        shown(f"{symbols}: of this the checked and adjusted panel, {unit}", panel, detail=""),
        shown(f"{symbols}: of this the evaluation, {unit}", evaluation, detail=steps),
    ]


def main() -> int:
    arguments = parse_arguments("time from bars to features")
    return publish(rows_of(quick=arguments.quick), arguments.json)


if __name__ == "__main__":
    sys.exit(main())

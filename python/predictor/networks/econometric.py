"""Fitted normalisers: location and scale for each horizon, forecast by HAR or GARCH.

HAR (heterogeneous autoregression, Corsi 2009) is a linear function of averages of the daily range volatility over
several numbers of sessions. GARCH(1,1) (Bollerslev 1986) is a weighted sum of past squared returns, truncated to a
fixed number of taps. Both are relative to the window's long-run level, and their coefficients are common to all
symbols. So they also forecast symbols that training has not seen, and do not depend on the unit of prices or ranges.

Sums run from the oldest session with one accumulator. They skip sessions without a value; HAR's averages also skip bars
without a range, which had no trades or have only a close. The formulas use only sums, quotients, log, exp and sqrt, so
that other implementations can reproduce the numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Final, assert_never

import numpy as np

from predictor.arrays import BoolArray, FloatArray
from predictor.bars import AdjustedBars
from predictor.canonical import Json, Record
from predictor.errors import ConfigurationError
from predictor.networks.normaliser import DailySeries, NormaliserKind, WindowLevels, sum_in_order
from predictor.networks.target import MIN_RANGE_VOLATILITY, Target, TargetKind

HAR_SESSIONS: Final = (1, 5, 22, 60)
"""A day, a week, a month and a quarter, in sessions."""
TAPS: Final = 139
"""Sessions that a fitted normaliser reads; 140 bars have 139 returns."""
MAX_TAPS: Final = 2500


@dataclass(frozen=True, slots=True, kw_only=True)
class Har:
    """Linear functions, one per horizon (H), of the logs of K averages relative to the window's average.

    line = intercept + sum over k of weight_k log(mean of the last k values / mean of the window)

    An average without any value counts as the window's.
    """

    sessions: tuple[int, ...] = HAR_SESSIONS
    """[K] ascending numbers of averaged sessions."""
    intercepts: tuple[float, ...]
    """[H]"""
    weights: tuple[tuple[float, ...], ...]
    """[H][K]"""

    def __post_init__(self) -> None:
        rising = self.sessions and self.sessions[0] >= 1 and all(a < b for a, b in pairwise(self.sessions))
        if not rising or {len(row) for row in self.weights} != {len(self.sessions)}:
            raise ConfigurationError(
                f"HAR's numbers of sessions are {list(self.sessions)}, but must ascend from at least 1, with one "
                "weight for each of them in every row"
            )
        if len(self.intercepts) != len(self.weights):
            raise ConfigurationError(f"HAR has {len(self.intercepts)} intercepts for {len(self.weights)} horizons")

    def terms(self, volatility: FloatArray) -> FloatArray:
        """[N, K] log of each average of daily volatilities [N, W] relative to the window's; 0 without any value."""
        with np.errstate(all="ignore"):
            known = volatility > MIN_RANGE_VOLATILITY
            means = _compute_means(np.where(known, volatility, 0.0), known, (*self.sessions, volatility.shape[1]))
            logs = np.log(means[:, :-1] / means[:, -1:])
        return np.where(np.isnan(logs), 0.0, logs)

    def lines(self, terms: FloatArray) -> FloatArray:
        """[N, H] linear functions of terms [N, K]."""
        lines = np.array(self.intercepts)
        for k, column in enumerate(np.array(self.weights).T):
            lines = lines + terms[:, k : k + 1] * column
        return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Garch:
    """GARCH(1,1) whose long-run variance V is the window's mean square, with one reversion per horizon (H).

    next    = V + sum over k of alpha beta^k (squared return k sessions back - V)
    horizon = V + reversion (next - V)
    """

    alpha: float
    beta: float
    reversion: tuple[float, ...]
    """[H] mean of (alpha + beta)^(j - 1) over the days j of the horizon; the next day is j = 1."""

    def __post_init__(self) -> None:
        if not (self.alpha > 0 and self.beta >= 0 and self.alpha + self.beta < 1):
            raise ConfigurationError(
                f"GARCH has alpha {self.alpha:g} and beta {self.beta:g}, but alpha must be above 0, beta at "
                "least 0 and their sum below 1"
            )
        if not all(0 <= share <= 1 for share in self.reversion):
            raise ConfigurationError(f"GARCH reversions are {list(self.reversion)}, but must be between 0 and 1")

    def next_variance(self, squares: FloatArray, long_run: FloatArray) -> FloatArray:
        """[N] variance of the next day, from squared returns [N, W], NaN if unknown, and their mean [N]."""
        steps = np.full(squares.shape[1], self.beta)
        steps[0] = self.alpha
        weights = np.multiply.accumulate(steps)[::-1]
        distance = np.where(np.isnan(squares), 0.0, squares - long_run[:, None])
        return long_run + sum_in_order((weights * distance).T)

    def variances(self, following: FloatArray, long_run: FloatArray) -> FloatArray:
        """[N, H] mean daily variance over each horizon."""
        return long_run[:, None] + np.array(self.reversion) * (following - long_run)[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedScale:
    """Levels of log returns: location 0, and as scale the daily volatility per horizon by HAR, GARCH or both.

    HAR forecasts the log of the volatility relative to the window's mean absolute return. With both, the log of the
    scale is their convex combination. The volatility is close to close; HAR reads daily ranges, GARCH returns.
    """

    har: Har | None = None
    garch: Garch | None = None
    har_share: float = 1.0
    """Weight of HAR in the combination, from 0 to 1; GARCH has the rest."""
    window: int = TAPS
    """Sessions of GARCH's taps and of both long-run levels."""
    floor: float = 1e-4
    """Smallest scale."""

    def __post_init__(self) -> None:
        check_window(self.window, self.floor, self.har)
        if self.har is None and self.garch is None:
            raise ConfigurationError("a fitted scale has neither HAR nor GARCH, but needs at least one of them")
        inside = 0 < self.har_share < 1 if self.har and self.garch else self.har_share == float(self.har is not None)
        if not inside:
            raise ConfigurationError(
                f"the share of HAR is {self.har_share:g}, but must be 1 without GARCH, 0 without HAR, else in between"
            )

    @property
    def kind(self) -> str:
        """As `Normaliser.kind`."""
        return "fitted"

    @property
    def is_per_horizon(self) -> bool:
        """As `Normaliser.is_per_horizon`."""
        return True

    def settings(self) -> Mapping[str, Json]:
        """As `Normaliser.settings`, without parts that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def series(self, target: Target, bars: AdjustedBars) -> DailySeries:
        """Log returns, and with HAR also the daily range volatility."""
        returns = target.daily(bars)
        return (returns, target.range_volatility(bars)) if self.har else (returns,)

    def compute_levels(self, windows: DailySeries) -> WindowLevels:
        """As `Normaliser.compute_levels`, [N, H]; NaN if no return of a window is known."""
        stages = self.stages(windows)
        shares = {"har": self.har_share, "garch": 1 - self.har_share}
        with np.errstate(all="ignore"):
            log_scale = sum(share * stages[name] for name, share in shares.items() if name in stages)
            scale = np.maximum(np.exp(log_scale), self.floor)
        return WindowLevels(location=np.where(np.isnan(scale), np.nan, 0.0), scale=scale)

    def stages(self, windows: DailySeries) -> Mapping[str, FloatArray]:
        """As `Normaliser.stages`, [N, ...] each; includes the logs of both volatilities [N, H]."""
        returns = windows[0][:, -self.window :]
        stages: dict[str, FloatArray] = {}
        with np.errstate(all="ignore"):
            if self.har is not None:
                terms, size = self.har.terms(windows[1][:, -self.window :]), compute_window_mean(np.abs(returns))
                har = np.log(size)[:, None] + self.har.lines(terms)
                stages |= {"har_terms": terms, "har_level": size, "har": har}
            if self.garch is not None:
                squares = returns * returns
                long_run = compute_window_mean(squares)
                following = self.garch.next_variance(squares, long_run)
                garch = np.log(self.garch.variances(following, long_run)) / 2
                stages |= {"garch_level": long_run, "garch_next": following, "garch": garch}
        return stages


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLevel:
    """Levels of log volatility: HAR's forecast as location, and the size of its training residuals as scale.

    HAR forecasts the log volatility relative to the log of the window's mean daily volatility.
    """

    har: Har
    residuals: tuple[float, ...]
    """[H] root mean square of the residuals."""
    window: int = TAPS
    """Sessions of the long-run level."""
    floor: float = 1e-4
    """Smallest scale."""

    def __post_init__(self) -> None:
        check_window(self.window, self.floor, self.har)
        if len(self.residuals) != len(self.har.intercepts) or not all(size >= self.floor for size in self.residuals):
            raise ConfigurationError(
                f"HAR's residuals are {list(self.residuals)}, but must be one per horizon, none below the "
                f"floor {self.floor:g}"
            )

    @property
    def kind(self) -> str:
        """As `Normaliser.kind`."""
        return "fitted"

    @property
    def is_per_horizon(self) -> bool:
        """As `Normaliser.is_per_horizon`."""
        return True

    def settings(self) -> Mapping[str, Json]:
        """As `Normaliser.settings`."""
        return asdict(self)

    def series(self, target: Target, bars: AdjustedBars) -> DailySeries:
        """The daily range volatility."""
        return (target.range_volatility(bars),)

    def compute_levels(self, windows: DailySeries) -> WindowLevels:
        """As `Normaliser.compute_levels`, [N, H]; NaN if no volatility of a window is known."""
        location = self.stages(windows)["har"]
        return WindowLevels(location=location, scale=np.where(np.isfinite(location), np.array(self.residuals), np.nan))

    def stages(self, windows: DailySeries) -> Mapping[str, FloatArray]:
        """As `Normaliser.stages`: HAR's terms [N, K], the window's level [N] and HAR's log volatility [N, H]."""
        volatility = windows[0][:, -self.window :]
        with np.errstate(all="ignore"):
            terms, level = self.har.terms(volatility), compute_window_mean(volatility)
            return {"har_terms": terms, "har_level": level, "har": np.log(level)[:, None] + self.har.lines(terms)}


FittedNormaliser = FittedScale | FittedLevel


def compute_window_mean(values: FloatArray) -> FloatArray:
    """[N] mean of the known values in each row of [N, W], added from the oldest; NaN if none is known."""
    known = ~np.isnan(values)
    with np.errstate(all="ignore"):
        return _compute_means(np.where(known, values, 0.0), known, (values.shape[1],))[:, 0]


def _compute_means(values: FloatArray, known: BoolArray, sessions: Sequence[int]) -> FloatArray:
    """[N, K] means of the last `sessions` values [N, W], which are 0 where unknown."""
    counts = np.add.accumulate(known[:, ::-1], axis=1, dtype=np.float64)
    means = np.empty((len(values), len(sessions)))
    for column, k in enumerate(sessions):
        np.divide(sum_in_order(values[:, -k:].T), counts[:, k - 1], out=means[:, column])
    return means


def check_window(window: int, floor: float, har: Har | None) -> None:
    """Raise ConfigurationError unless the window holds all averages and the floor is a small number above 0."""
    min_window = max(har.sessions) if har else 2
    if not min_window <= window <= MAX_TAPS:
        raise ConfigurationError(f"normaliser window is {window} sessions, but must be {min_window} to {MAX_TAPS}")
    if not 0 < floor < 1:
        raise ConfigurationError(f"normaliser floor is {floor:g}, but must be between 0 and 1")


def _read(record: Record, target: Target) -> FittedNormaliser:
    horizons = len(target.horizons)
    match target.kind:
        case TargetKind.LOG_RETURN:
            return FittedScale(
                har=_read_har(record.record("har"), horizons) if record.has("har") else None,
                garch=_read_garch(record.record("garch"), horizons) if record.has("garch") else None,
                har_share=record.number("har_share"),
                window=record.integer("window"),
                floor=record.number("floor"),
            )
        case TargetKind.LOG_VOLATILITY:
            return FittedLevel(
                har=_read_har(record.record("har"), horizons),
                residuals=record.numbers("residuals"),
                window=record.integer("window"),
                floor=record.number("floor"),
            )
        case _:
            assert_never(target.kind)


def _read_har(record: Record, horizons: int) -> Har:
    har = Har(
        sessions=record.integers("sessions"), intercepts=record.numbers("intercepts"), weights=record.rows("weights")
    )
    record.end()
    if len(har.intercepts) != horizons:
        raise record.make_error("intercepts", f"must be {horizons} numbers, one per horizon")
    return har


def _read_garch(record: Record, horizons: int) -> Garch:
    garch = Garch(alpha=record.number("alpha"), beta=record.number("beta"), reversion=record.numbers("reversion"))
    record.end()
    if len(garch.reversion) != horizons:
        raise record.make_error("reversion", f"must be {horizons} numbers, one per horizon")
    return garch


FITTED: Final = NormaliserKind("fitted", _read)

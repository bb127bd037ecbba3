"""Joint price paths of several symbols, from their forecast and their past.

The method is a conditional Schaake shuffle (Clark et al., 2004). Past paths of all symbols over the same days, scaled
to today's volatility, give the shape of a path and the dependence between symbols. The forecast gives the distribution
at each of its horizons.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, final

import numpy as np

from predictor import charts
from predictor.arrays import BoolArray, FloatArray, PositionArray
from predictor.bars import BarPanel
from predictor.bars.suspects import SuspectKind, find_suspects, may_be_suspect
from predictor.dates import to_date
from predictor.errors import (
    InvalidInputError,
    MissingPackageError,
    QuantraError,
    TooFewBarsError,
    UnknownHorizonError,
    format_count,
    format_names,
)
from predictor.forecast import Forecast

if TYPE_CHECKING:
    import pandas as pd

MIN_DAYS: Final = 250
"""Past paths that are needed, one per day."""
MAX_PATHS: Final = 100_000
MAX_CELLS: Final = 20_000_000
"""Largest number of paths x symbols x days."""
_DRAWDOWN_LEVEL: Final = 0.95
"""Level of the drawdown that `PathAnswers` has."""
_DECAY: Final = 0.94
"""Weight of the past in the volatility, as in RiskMetrics."""
_CHUNK: Final = 256
"""Days per block of the recursion; longer blocks would overflow the inverse weights."""
_WARM_UP: Final = 40
"""Days until the volatility no longer depends on its start."""
_MIN_VOLATILITY: Final = 0.1
"""Share of a typical move below which a volatility is that of a symbol without trading, which cannot scale returns."""
_MAX_VALUE: Final = 1e100
"""Largest holding, so that no profit overflows."""
_REPLICATES: Final = 200
_DRAWN: Final = 50
"""Most paths in a picture."""
_DRAWN_QUANTILES: Final = (0.05, 0.5, 0.95)
_RANGE: Final = 0.9
"""Probability of the ranges of estimates."""

Statistic = Callable[[FloatArray], float]
"""Reduces one value per path to a number."""


class Estimate(NamedTuple):
    """A number from paths, and its range over other draws of the past days.

    The range does not include errors of the forecast's own quantiles.
    """

    value: float
    lower: float
    upper: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PathQuestions:
    """Questions that price paths can answer."""

    day: int = 0
    """1 is the first day after the last bar; 0 is the last simulated day."""
    level: float = 0.99
    """Level of the value at risk."""
    holdings: Mapping[str, float] = field(default_factory=dict[str, float])
    """See `PricePaths.profits`; empty for no answers about them."""
    prices: tuple[tuple[str, float], ...] = ()
    """Symbols and prices."""


class PriceProbability(NamedTuple):
    """How probable a price of a symbol is."""

    symbol: str
    price: float
    above: Estimate
    """See `PricePaths.probability_above`."""
    touched: Estimate
    """See `PricePaths.probability_touched`."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PathAnswers:
    """The answers to `PathQuestions`; those about holdings are None without holdings."""

    day: int
    value_at_risk: Estimate | None = None
    expected_shortfall: Estimate | None = None
    drawdown: Estimate | None = None
    """The largest loss from a high, as a share of the holdings, that 1 in 20 paths exceeds."""
    prices: tuple[PriceProbability, ...] = ()


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PricePaths:
    """N paths of S symbols over D days after the last bar. Row n of all symbols is one joint path."""

    symbols: tuple[str, ...]
    as_of_session: date | None
    """Session of the last bar."""
    returns: FloatArray
    """[N, S, D] log returns from the last close to the close of each day, the day after the last bar first."""
    anchor_price: FloatArray
    """[S] last close, in the bars' currency."""
    forecast_id: str
    """The forecast that the paths have the distribution of."""
    model: str
    version: int
    seed: int
    origins: PositionArray
    """[N] the past day that each path comes from, as a position among the usable days."""
    past_days: int
    """Usable past days. Neighbours overlap: about `past_days` / D of them are independent."""
    refusals: Mapping[str, QuantraError]
    """The error of each symbol without paths."""

    @property
    def days(self) -> int:
        """D, the number of days."""
        return self.returns.shape[2]

    @property
    def prices(self) -> FloatArray:
        """[N, S, D] closes in the bars' currency."""
        return self.anchor_price[:, None] * np.exp(self.returns)

    def answer(self, questions: PathQuestions) -> PathAnswers:
        """Answer several questions; raises as `profits` and `probability_above`."""
        day, holdings = questions.day or self.days, questions.holdings
        self._check_day(day)
        _check_level(questions.level)
        prices = tuple(
            PriceProbability(
                symbol, price, self.probability_above(symbol, price, day), self.probability_touched(symbol, price, day)
            )
            for symbol, price in questions.prices
        )
        if not holdings:
            return PathAnswers(day=day, prices=prices)
        return PathAnswers(
            day=day,
            value_at_risk=self.value_at_risk(holdings, day, questions.level),
            expected_shortfall=self.expected_shortfall(holdings, day, questions.level),
            drawdown=self.estimate(self.drawdowns(holdings, day), _compute_bad_quantile),
            prices=prices,
        )

    def profits(self, holdings: Mapping[str, float], day: int) -> FloatArray:
        """[N] profits up to the close of a day, in the unit of the holdings.

        Args:
            holdings: the value of each position today; negative if it is short. Positions stay unchanged.
            day: 1 for the first day after the last bar.

        Raises:
            InvalidInputError: a symbol has no paths, a value is not finite or too large, or all are 0.
            UnknownHorizonError: the day is not 1 to D.
        """
        return self._compute_profits(holdings, day)[:, -1]

    def value_at_risk(self, holdings: Mapping[str, float], day: int, level: float = 0.99) -> Estimate:
        """The loss up to the close of a day that is exceeded with probability 1 - `level`; raises as `profits`."""
        _check_level(level)
        return self.estimate(self.profits(holdings, day), lambda profits: -float(np.quantile(profits, 1 - level)))

    def expected_shortfall(self, holdings: Mapping[str, float], day: int, level: float = 0.99) -> Estimate:
        """The mean loss in the worst 1 - `level` of the paths, at least one path; raises as `profits`."""
        _check_level(level)

        def shortfall(profits: FloatArray) -> float:
            worst = max(1, round((1 - level) * len(profits)))
            return -float(np.partition(profits, worst - 1)[:worst].mean())

        return self.estimate(self.profits(holdings, day), shortfall)

    def drawdowns(self, holdings: Mapping[str, float], day: int) -> FloatArray:
        """[N] largest loss from an earlier high, between closes from today to a day; raises as `profits`.

        It is a share of the value of all holdings, long and short, today.
        """
        total = sum(map(abs, holdings.values()))
        gains = np.pad(self._compute_profits(holdings, day), ((0, 0), (1, 0))) / total
        return (np.maximum.accumulate(gains, axis=1) - gains).max(axis=1)

    def probability_above(self, symbol: str, price: float, day: int) -> Estimate:
        """The probability that a symbol closes above a price on a day; raises as `profits`."""
        is_above = self._compute_closes(symbol, price, day)[:, -1] > price
        return self.estimate(is_above.astype(np.float64), _compute_mean)

    def probability_touched(self, symbol: str, price: float, day: int) -> Estimate:
        """The probability that a symbol closes at or beyond a price on any day up to a day; raises as `profits`.

        Prices within a day are not simulated, so the true probability is higher.
        """
        closes = self._compute_closes(symbol, price, day)
        is_above = price >= self.anchor_price[self._find_row(symbol)]
        touched = closes.max(axis=1) >= price if is_above else closes.min(axis=1) <= price
        return self.estimate(touched.astype(np.float64), _compute_mean)

    def to_frame(self, day: int) -> "pd.DataFrame":
        """Simple returns up to the close of a day: one row per path, one column per symbol. Needs pandas.

        Portfolio libraries, such as skfolio, take it as their returns.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingPackageError.of("pandas", "pandas", "paths as a DataFrame") from error
        self._check_day(day)
        return pd.DataFrame(np.expm1(self.returns[:, :, day - 1]), columns=list(self.symbols))

    def to_png(self, symbol: str | None = None) -> bytes:
        """Return the paths of one symbol (default: the first) as a PNG file; needs the extra `plot`."""
        return charts.draw_picture([self._build_panel(symbol)], "png")

    def to_svg(self, symbol: str | None = None) -> bytes:
        """Return the paths of one symbol (default: the first) as an SVG file; needs the extra `plot`."""
        return charts.draw_picture([self._build_panel(symbol)], "svg")

    def _build_panel(self, symbol: str | None) -> charts.PathsPanel:
        s = 0 if symbol is None else self._find_row(symbol)
        day = f", as of {self.as_of_session}" if self.as_of_session else ""
        return charts.PathsPanel(
            paths=np.insert(self.prices[:, s], 0, self.anchor_price[s], axis=1),
            drawn=_DRAWN,
            quantiles=_DRAWN_QUANTILES,
            title=f"{self.symbols[s]}: {self.model}@{self.version}{day}",
            notes=(f"Joint paths from {self.past_days:,} past days, seed {self.seed}.",),
        )

    def estimate(self, values: FloatArray, statistic: Statistic) -> Estimate:
        """A statistic of one value per path [N], such as a quantile of drawdowns.

        The range comes from drawing blocks of past days again.
        """
        replicate_rows = _draw_replicates(self.seed, self.past_days, self.days, len(self.origins))
        replicates = [statistic(values[rows]) for rows in replicate_rows]
        lower, upper = np.quantile(replicates, [(1 - _RANGE) / 2, (1 + _RANGE) / 2])
        return Estimate(statistic(values), float(lower), float(upper))

    def _compute_profits(self, holdings: Mapping[str, float], day: int) -> FloatArray:
        """[N, day] profits up to each close."""
        self._check_day(day)
        rows = [self._find_row(symbol) for symbol in holdings]
        for symbol, value in holdings.items():
            if not abs(value) <= _MAX_VALUE:  # nor NaN
                raise InvalidInputError(f"the holding of {symbol} is {value:g}; give a value of at most {_MAX_VALUE:g}")
        values = np.array([*holdings.values()], np.float64)
        if not values.any():
            raise InvalidInputError(
                "all holdings are 0; give the value of at least one position, such as {'AAPL': 1000.0}"
            )
        return np.einsum("nsd,s->nd", np.expm1(self.returns[:, rows, :day]), values)

    def _compute_closes(self, symbol: str, price: float, day: int) -> FloatArray:
        """[N, day] closes of one symbol."""
        self._check_day(day)
        if not 0 < price < np.inf:
            raise InvalidInputError(f"price {price:g} is not above 0 and finite")
        row = self._find_row(symbol)
        return self.anchor_price[row] * np.exp(self.returns[:, row, :day])

    def _find_row(self, symbol: str) -> int:
        if symbol in self.refusals:
            raise InvalidInputError(f"{symbol} has no paths: {self.refusals[symbol].message}")
        if symbol not in self.symbols:
            raise InvalidInputError(f"there are no paths of {symbol}; there are paths of {format_names(self.symbols)}")
        return self.symbols.index(symbol)

    def _check_day(self, day: int) -> None:
        if not 1 <= day <= self.days:
            raise UnknownHorizonError(f"day {day} is not simulated; use 1 to {self.days}")


def _compute_mean(values: FloatArray) -> float:
    return float(values.mean())


def _compute_bad_quantile(drawdowns: FloatArray) -> float:
    return float(np.quantile(drawdowns, _DRAWDOWN_LEVEL))


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise InvalidInputError(f"level {level:g} is not between 0 and 1; 0.99 means 99 %")


def simulate_paths(
    forecast: Forecast,
    bars: BarPanel,
    *,
    paths: int = 1000,
    seed: int = 0,
    max_cells: int = MAX_CELLS,
    check: Callable[[], None] = lambda: None,
) -> PricePaths:
    """Draw joint paths whose distribution at each horizon of the forecast is the forecast's.

    Between the forecast's quantiles and beyond them, a distribution has the shape of all symbols' past returns in units
    of their volatility. The same arguments give the same bits.

    Args:
        forecast: of log returns without a lag.
        bars: the past of the symbols up to the forecast's last bar; MIN_DAYS + 40 bars and the longest horizon.
        paths: number of paths, at most MAX_PATHS.
        seed: seed of the draw of past days, 0 or more.
        max_cells: largest number of paths x symbols x days.
        check: called between the steps; an error that it raises ends the work.

    Raises:
        InvalidInputError: the forecast is not of log returns, its bars end on another day, or there are too many paths.
        TooFewBarsError: no symbol has enough past days.
    """
    forecast_symbols = [symbol for symbol in forecast.symbols if symbol not in forecast.refusals]
    panel = bars.select(forecast_symbols)
    if forecast.refusals:  # perhaps because of bars on wrong sessions
        panel = panel.without_sessions(panel.sessions[~panel.present.any(axis=0)].tolist())
    _check_request(forecast, panel, paths, max_cells)
    if seed < 0:
        raise InvalidInputError(f"seed is {seed}, but must be 0 or more")
    days = max(forecast.horizons)
    past = _collect_past_paths(panel, days)
    check()
    selected_rows, short = _choose_symbols(panel.symbols, past.is_usable)
    starts = np.flatnonzero(past.is_usable[selected_rows].all(axis=0))
    scaled = past.scaled[selected_rows][:, starts]
    rows = [forecast.symbols.index(forecast_symbols[row]) for row in selected_rows]
    origins = _draw_origins(seed, len(starts), paths)
    raw = (past.volatility[selected_rows, None, None] * scaled[:, origins]).transpose(1, 0, 2)
    assert forecast.returns is not None  # noqa: S101 - it was checked
    assert forecast.anchor_price is not None  # noqa: S101 - as above
    return PricePaths(
        symbols=tuple(forecast_symbols[row] for row in selected_rows),
        as_of_session=forecast.as_of_session,
        returns=_impose_marginals(raw, forecast.returns[rows], forecast.horizons, forecast.quantiles, scaled, check),
        anchor_price=forecast.anchor_price[rows],
        forecast_id=forecast.forecast_id,
        model=forecast.model,
        version=forecast.version,
        seed=seed,
        origins=origins,
        past_days=len(starts),
        refusals={**forecast.refusals, **short},
    )


def _draw_origins(seed: int, past_days: int, count: int) -> PositionArray:
    """[N] the past day of each path; every day is drawn once before one is drawn again."""
    random = np.random.default_rng(seed)
    return np.concatenate([random.permutation(past_days) for _ in range(-(-count // past_days))])[:count]


@lru_cache(maxsize=8)
def _draw_replicates(seed: int, past_days: int, days: int, count: int) -> tuple[PositionArray, ...]:
    """Resample the paths: each replicate draws blocks of past days until it has all days, and takes a path per day."""
    random = np.random.default_rng(seed)
    starts = random.integers(0, past_days, (_REPLICATES, -(-past_days // days)))
    picks = ((starts[:, :, None] + np.arange(days)) % past_days).reshape(_REPLICATES, -1)
    origins = _draw_origins(seed, past_days, count)
    by_day = np.argsort(origins, kind="stable")
    first = np.searchsorted(origins[by_day], np.arange(past_days + 1))
    counts = np.diff(first)
    replicates: list[PositionArray] = []
    for row in picks:
        with_path = row[counts[row] > 0]
        if len(with_path):  # always, unless there are only a few paths
            replicates.append(by_day[first[with_path] + random.integers(0, counts[with_path])])
    return tuple(replicates)


def _check_request(forecast: Forecast, bars: BarPanel, paths: int, max_cells: int) -> None:
    if forecast.returns is None or forecast.lag or forecast.anchor_price is None:
        raise InvalidInputError(
            f"{forecast.model}@{forecast.version} forecasts {forecast.target_kind} with a lag of {forecast.lag}; paths "
            "need a model of log returns without a lag, and bars"
        )
    last = to_date(int(bars.sessions[-1]))
    if last != forecast.as_of_session:
        raise InvalidInputError(
            f"the bars end on {last}, but those of the forecast on {forecast.as_of_session}; give the bars that were "
            "forecast, with their past"
        )
    if not 1 <= paths <= MAX_PATHS:
        raise InvalidInputError(f"paths is {paths}, but must be 1 to {MAX_PATHS:,}")
    cells = paths * len(forecast.symbols) * max(forecast.horizons)
    if cells > max_cells:
        raise InvalidInputError(
            f"{paths:,} paths of {format_count(len(forecast.symbols), 'symbol')} have {cells:,} values, at most "
            f"{max_cells:,}; simulate fewer paths or symbols"
        )


class _PastPaths(NamedTuple):
    """The past of S symbols with T possible start days."""

    scaled: FloatArray
    """[S, T, D] log returns from a start day to each of the next D days, in units of the start day's volatility."""
    volatility: FloatArray
    """[S] volatility of the daily log return on the last day."""
    is_usable: BoolArray
    """[S, T] whether all bars of the path are present."""


def _collect_past_paths(panel: BarPanel, days: int) -> _PastPaths:
    adjusted, _ = panel.adjusted_each()
    close = adjusted.close
    if may_be_suspect(adjusted.high, adjusted.low, close, panel.volume).any():
        suspects = [suspect for suspect in find_suspects(panel) if suspect.kind is not SuspectKind.VOLUME]
        close = close.copy()
        for suspect in suspects:
            close[panel.symbols.index(suspect.symbol), np.searchsorted(panel.sessions, suspect.sessions)] = np.nan
    moves = np.diff(np.log(close), axis=1)
    if moves.shape[1] <= days:
        unknown = np.full(len(moves), np.nan)
        return _PastPaths(np.empty((len(moves), 0, days)), unknown, np.empty((len(moves), 0), np.bool_))
    volatility = np.sqrt(_smooth(np.square(moves)))
    windows = np.lib.stride_tricks.sliding_window_view(moves[:, 1:], days, axis=1)
    start = volatility[:, : windows.shape[1], None]
    sizes = (row[np.abs(row) > 0] for row in moves)
    min_volatility = (
        _MIN_VOLATILITY * np.array([np.median(np.abs(row)) if len(row) else np.inf for row in sizes])[:, None, None]
    )
    scaled = np.cumsum(windows / np.where(start >= min_volatility, start, np.nan), axis=2)
    move_counts = np.cumsum(np.isfinite(moves), axis=1)[:, : windows.shape[1]]
    is_usable = np.isfinite(scaled).all(axis=2) & (move_counts >= _WARM_UP) & (volatility[:, -1:] > 0)
    return _PastPaths(scaled, volatility[:, -1], is_usable)


def _smooth(squares: FloatArray) -> FloatArray:
    """[S, T] exponentially weighted means of squared returns up to each day; days without a return are skipped."""
    is_known = np.isfinite(squares)
    filled = np.where(is_known, squares, 0.0)
    level = filled[np.arange(len(filled)), is_known.argmax(axis=1)]
    smooth = np.empty(squares.shape)
    for first in range(0, squares.shape[1], _CHUNK):
        part = slice(first, first + _CHUNK)
        weights = _DECAY ** np.cumsum(is_known[:, part], axis=1)
        smooth[:, part] = weights * (level[:, None] + np.cumsum((1 - _DECAY) * filled[:, part] / weights, axis=1))
        level = smooth[:, part][:, -1]
    return np.where(np.logical_or.accumulate(is_known, axis=1), smooth, np.nan)


def _choose_symbols(symbols: tuple[str, ...], is_usable: BoolArray) -> tuple[list[int], dict[str, QuantraError]]:
    """The symbols that share enough days, those with the longest past first, and the errors of the others."""
    together = np.ones(is_usable.shape[1], np.bool_)
    selected_rows: list[int] = []
    refused: dict[str, QuantraError] = {}
    for row in np.argsort(-is_usable.sum(axis=1), kind="stable").tolist():
        shared = together & is_usable[row]
        if shared.sum() >= MIN_DAYS:
            together = shared
            selected_rows.append(row)
            continue
        path_count = int(is_usable[row].sum())
        problem = (
            f"{symbols[row]}: has {format_count(path_count, 'past path')}, need {MIN_DAYS}; give a longer history"
            if path_count < MIN_DAYS
            else f"{symbols[row]}: shares {format_count(int(shared.sum()), 'past day')} with the others, need "
            f"{MIN_DAYS}; simulate it separately"
        )
        refused[symbols[row]] = TooFewBarsError(problem, metadata={"symbol": symbols[row], "have": str(path_count)})
    if not selected_rows:
        raise next(iter(refused.values()))
    return sorted(selected_rows), refused


def _impose_marginals(
    raw: FloatArray,
    quantiles: FloatArray,
    horizons: tuple[int, ...],
    levels: tuple[float, ...],
    scaled: FloatArray,
    check: Callable[[], None],
) -> FloatArray:
    """[N, S, D] paths with the ranks of `raw` and the distribution of the forecast at each horizon.

    Corrections at the horizons are interpolated linearly for the days between.

    Args:
        raw: [N, S, D] past paths in units of today's volatility.
        quantiles: [S, H, Q] the forecast.
        horizons: [H] days.
        levels: [Q].
        scaled: [S, M, D] all past paths in units of their volatility, which give the shape.
        check: called before each horizon.
    """
    count = len(raw)
    at = np.concatenate((np.array(levels), (np.arange(count) + 0.5) / count))
    corrections = np.zeros((count, raw.shape[1], len(horizons) + 1))
    for h, horizon in enumerate(horizons):
        check()
        values = raw[:, :, horizon - 1]
        order = np.argsort(values, axis=0, kind="stable")
        sample_quantiles, shape_quantiles = np.split(np.quantile(scaled[:, :, horizon - 1], at), [len(levels)])
        for s in range(raw.shape[1]):
            sorted_values = _stretch(shape_quantiles, sample_quantiles, quantiles[s, h])
            corrections[order[:, s], s, h + 1] = sorted_values - values[order[:, s], s]
    nodes = np.array((0, *horizons))
    days = np.arange(1, raw.shape[2] + 1)
    segments = np.clip(np.searchsorted(nodes, days, side="right") - 1, 0, len(nodes) - 2)
    share = (days - nodes[segments]) / (nodes[segments + 1] - nodes[segments])
    return raw + corrections[:, :, segments] * (1 - share) + corrections[:, :, segments + 1] * share


def _stretch(sample: FloatArray, sample_quantiles: FloatArray, values: FloatArray) -> FloatArray:
    """Stretch a sorted sample so that its quantiles [Q] `sample_quantiles` become `values`.

    Beyond the outer quantiles, it is stretched by their distance.
    """
    outer = (
        (values[-1] - values[0]) / (sample_quantiles[-1] - sample_quantiles[0])
        if sample_quantiles[-1] > sample_quantiles[0]
        else 1.0
    )
    low_tail = values[0] + outer * (sample - sample_quantiles[0])
    high_tail = values[-1] + outer * (sample - sample_quantiles[-1])
    inside = np.interp(sample, sample_quantiles, values)
    return np.where(sample < sample_quantiles[0], low_tail, np.where(sample > sample_quantiles[-1], high_tail, inside))

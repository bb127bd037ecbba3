"""The result of a backtest, and its JSON."""

from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.canonical import Json
from predictor.errors import ConfigurationError, format_count, format_date
from predictor.skill import Verdict
from trainers.stock.backtest.book import Book
from trainers.stock.backtest.refits import Fold
from trainers.stock.backtest.strategies import (
    BASIS_POINT,
    MAX_HALT,
    SESSIONS_A_YEAR,
    StrategySettings,
    TradingTerms,
)
from trainers.stock.evaluation.evaluation_set import standard_error


def write_sharpe_formula(a_year: int = SESSIONS_A_YEAR) -> str:
    """Definition of the Sharpe ratio, as text."""
    return (
        f"sqrt({a_year}) x mean / standard deviation of daily returns, no interest subtracted; standard error by the "
        "delta method with Newey-West weights (Lo 2002)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawdown:
    """The largest drawdown."""

    depth: float
    """Share of the peak that is lost, 0 to 1."""
    peak: int
    """Position of the session of the peak; -1 is the start, before the first session."""
    trough: int
    """Position of the session of the trough; -1 if the equity never fell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """Figures of daily returns; NaN if undefined, such as the Sharpe ratio of constant returns."""

    annual_return: float
    """Compounded."""
    annual_volatility: float
    sharpe: float
    """Annualised."""
    sharpe_error: float
    drawdown: Drawdown


def measure_performance(returns: FloatArray, a_year: int = SESSIONS_A_YEAR) -> Performance:
    """Figures of daily returns [T], annualised with `a_year` sessions."""
    growth = float(np.prod(1 + returns))
    ratio, error = sharpe(returns, a_year)
    return Performance(
        annual_return=growth ** (a_year / len(returns)) - 1 if growth > 0 else -1.0,
        annual_volatility=float(returns.std()) * a_year**0.5,
        sharpe=ratio,
        sharpe_error=error,
        drawdown=drawdown(returns),
    )


def equity(returns: FloatArray) -> FloatArray:
    """[T] growth of 1 up to each session."""
    return np.multiply.accumulate(1 + returns)


def sharpe(returns: FloatArray, a_year: int = SESSIONS_A_YEAR) -> tuple[float, float]:
    """Annualised Sharpe ratio of daily returns [T] and its standard error; NaN for constant returns.

    With z the standardised returns and s the daily ratio, the influence function of the ratio is z - s (z^2 - 1) / 2.
    The error is that of its mean (Lo 2002, section "non-IID returns"); for independent normal returns it is
    sqrt((1 + s^2 / 2) / T).
    """
    daily, influence = _compute_sharpe(returns)
    return daily * a_year**0.5, standard_error(influence) * a_year**0.5


def sharpe_lead(ours: FloatArray, theirs: FloatArray, a_year: int = SESSIONS_A_YEAR) -> tuple[float, float]:
    """Difference of the annualised Sharpe ratios of two series of daily returns [T], and its standard error.

    The error is that of the mean difference of the influence functions, so common movements cancel (Ledoit & Wolf 2008,
    section 3.1). NaN if either is constant.
    """
    (mine, my_influence), (other, other_influence) = _compute_sharpe(ours), _compute_sharpe(theirs)
    error = standard_error(my_influence - other_influence)
    return (mine - other) * a_year**0.5, error * a_year**0.5


def _compute_sharpe(returns: FloatArray) -> tuple[float, FloatArray]:
    """Daily Sharpe ratio of returns [T] and its influence function [T]; NaN for constant returns."""
    if len(returns) < 2 or np.ptp(returns) == 0:  # noqa: PLR2004 - one return has no deviation
        return float("nan"), np.full(len(returns), np.nan)
    deviation = returns.std()
    standard = (returns - returns.mean()) / deviation
    daily = float(returns.mean() / deviation)
    return daily, standard - daily / 2 * (standard * standard - 1)


def drawdown(returns: FloatArray) -> Drawdown:
    """The largest drawdown of daily returns [T]."""
    curve = np.concatenate([[1.0], equity(returns)])
    fallen = 1 - curve / np.maximum.accumulate(curve)
    trough = int(np.argmax(fallen))
    return Drawdown(depth=float(fallen[trough]), peak=int(np.argmax(curve[: trough + 1])) - 1, trough=trough - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnualReturns:
    """Mean yearly returns, not compounded: gross minus trading and borrowing is net."""

    gross: float
    trading: float
    borrowing: float
    net: float


def measure_annual_returns(book: Book, terms: TradingTerms) -> AnnualReturns:
    """Yearly returns and costs of a book."""
    gross, net, trading = (
        terms.sessions_a_year * float(daily.mean()) for daily in (book.gross, book.net, terms.cost * book.traded)
    )
    return AnnualReturns(gross=gross, trading=trading, borrowing=gross - net - trading, net=net)


def sharpe_at(book: Book, terms: TradingTerms, cost_bps: float) -> tuple[float, float]:
    """Annualised Sharpe ratio and its standard error at another trading cost in basis points."""
    other = replace(terms, cost_bps=cost_bps)
    return sharpe(book.net + (terms.cost - other.cost) * book.traded, terms.sessions_a_year)


def find_break_even_cost(book: Book, terms: TradingTerms) -> float | None:
    """Trading cost in basis points at which the mean return after borrowing is zero; None without trades."""
    traded = float(book.traded.mean())
    if traded == 0:
        return None
    return (float(book.net.mean()) / traded + terms.cost) / BASIS_POINT


STANDARD_ERRORS_95: Final = 1.96
"""Half width of a 95 % interval, in standard errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookFigures:
    """Figures of one book."""

    gross: Performance
    """Before costs."""
    net: Performance
    """After costs and borrowing."""
    turnover: float
    """Mean turnover per session, as a share of the equity; purchases and sales both count."""
    hit_rate: float
    """Share of sessions with a position that gained before costs; NaN without positions."""
    exposure: float
    """Mean sum of absolute weights."""
    net_exposure: float
    """Mean sum of weights."""
    closed: int
    """Number of halted positions closed at the delisting return."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BookTrack:
    """A book over T sessions of S stocks from its first trade on, with its figures."""

    name: str
    sessions: NDArray[np.int32]
    """[T] yyyymmdd."""
    book: Book
    figures: BookFigures

    @property
    def gross_equity(self) -> FloatArray:
        """[T] growth of 1 before costs."""
        return equity(self.book.gross)

    @property
    def net_equity(self) -> FloatArray:
        """[T] growth of 1 after costs."""
        return equity(self.book.net)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Backtest:
    """Result of a strategy on a model's forecasts, and of benchmarks on the same terms."""

    symbols: tuple[str, ...]
    """[S]"""
    forecasts: str
    """Source of the forecasts, as text."""
    digest: str
    """SHA-256 of the settings and bars behind the forecasts."""
    terms: TradingTerms
    strategy_settings: StrategySettings
    folds: tuple[Fold, ...]
    strategy: BookTrack
    benchmarks: tuple[BookTrack, ...]
    notes: tuple[str, ...]
    """Notes for the reader."""
    warnings: tuple[str, ...] = ()
    """Warnings about the bars or the covariate files."""

    def __repr__(self) -> str:
        first, last = (format_date(int(self.strategy.sessions[k])) for k in (0, -1))
        return f"Backtest({first} to {last}, {len(self.symbols)} symbols; {describe_sharpe(self)})"

    def to_json(self) -> dict[str, Json]:
        """Settings, figures, and all sessions of all books as JSON; NaN becomes null."""
        return summary_json(self) | {
            "tracks": [
                {
                    "name": track.name,
                    "sessions": track.sessions.tolist(),
                    "gross": track.book.gross.tolist(),
                    "net": track.book.net.tolist(),
                    "gross_equity": track.gross_equity.tolist(),
                    "net_equity": track.net_equity.tolist(),
                    "traded": track.book.traded.tolist(),
                    "closed": track.book.closed.tolist(),
                    "weights": track.book.weights.tolist(),
                }
                for track in self.tracks
            ]
        }

    @property
    def tracks(self) -> tuple[BookTrack, ...]:
        """The strategy, then the benchmarks."""
        return (self.strategy, *self.benchmarks)


def create_track(name: str, sessions: NDArray[np.int32], book: Book, terms: TradingTerms) -> BookTrack:
    """Create a track over sessions [T], without the sessions before the first trade, which would dilute the figures.

    Raises:
        ConfigurationError: There is no session after the delay.
    """
    if len(sessions) <= terms.delay:
        raise ConfigurationError(
            f"a decision is traded {format_count(terms.delay, 'session')} later, but the backtest has "
            f"{format_count(len(sessions), 'session')}; choose a longer period"
        )
    traded = book.since(terms.delay)
    return BookTrack(
        name=name, sessions=sessions[terms.delay :], book=traded, figures=measure_figures(traded, terms.sessions_a_year)
    )


def measure_figures(book: Book, a_year: int = SESSIONS_A_YEAR) -> BookFigures:
    """Figures of a book, annualised with `a_year` sessions."""
    is_invested = book.weights[:-1].any(axis=1)
    return BookFigures(
        gross=measure_performance(book.gross, a_year),
        net=measure_performance(book.net, a_year),
        turnover=float(book.traded.mean()),
        hit_rate=float((book.gross[1:][is_invested] > 0).mean()) if is_invested.any() else float("nan"),
        exposure=float(book.exposure.mean()),
        net_exposure=float(book.weights.sum(axis=1).mean()),
        closed=int(book.closed.sum()),
    )


def summary_json(backtest: Backtest) -> dict[str, Json]:
    """Settings and figures as JSON."""
    return {
        "forecasts": backtest.forecasts,
        "digest": backtest.digest,
        "symbols": list(backtest.symbols),
        "strategy": {name: _encode_number(value) for name, value in asdict(backtest.strategy_settings).items()},
        "terms": {
            **asdict(backtest.terms),
            "tranches": backtest.terms.tranches,
            "longest_halt": MAX_HALT,
        },
        "sharpe": write_sharpe_formula(backtest.terms.sessions_a_year),
        "folds": [asdict(fold) for fold in backtest.folds],
        "notes": list(backtest.notes),
        "warnings": list(backtest.warnings),
        "table": [
            {
                "name": track.name,
                "gross": _encode_performance(track.figures.gross, track.sessions),
                "net": _encode_performance(track.figures.net, track.sessions),
                "turnover": track.figures.turnover,
                "annual_turnover": track.figures.turnover * backtest.terms.sessions_a_year,
                "hit_rate": _encode_number(track.figures.hit_rate),
                "exposure": track.figures.exposure,
                "net_exposure": track.figures.net_exposure,
                "closed_as_delisted": track.figures.closed,
            }
            for track in backtest.tracks
        ],
        "leads": [
            {"over": track.name, "sharpe": _encode_number(lead), "sharpe_error": _encode_number(error)}
            for track in backtest.benchmarks
            for lead, error in [measure_lead(backtest, track)]
        ],
    }


def _encode_performance(performance: Performance, sessions: NDArray[np.int32]) -> Json:
    """Peak and trough are sessions; null for the start."""
    fall = performance.drawdown
    peak, trough = (int(sessions[position]) if position >= 0 else None for position in (fall.peak, fall.trough))
    return {
        "annual_return": _encode_number(performance.annual_return),
        "annual_volatility": _encode_number(performance.annual_volatility),
        "sharpe": _encode_number(performance.sharpe),
        "sharpe_error": _encode_number(performance.sharpe_error),
        "max_drawdown": {"depth": fall.depth, "peak": peak, "trough": trough},
    }


def _encode_number(value: float | str) -> Json:
    return None if isinstance(value, float) and not isfinite(value) else value


def judge(backtest: Backtest) -> Verdict:
    """Whether the 95 % interval of the Sharpe ratio after costs is above 0, below 0, or contains it."""
    net = backtest.strategy.figures.net
    if not isfinite(net.sharpe) or abs(net.sharpe) <= STANDARD_ERRORS_95 * net.sharpe_error:
        return Verdict.UNDECIDED
    return Verdict.BETTER if net.sharpe > 0 else Verdict.WORSE


def describe_sharpe(backtest: Backtest) -> str:
    """The strategy's Sharpe ratio after and before costs with standard errors, as text."""
    figures = backtest.strategy.figures
    if not isfinite(figures.net.sharpe):
        return f"{backtest.strategy.name}: the returns are constant, so the Sharpe ratio is undefined."
    after, before = (f"{figure.sharpe:+.2f} ± {figure.sharpe_error:.2f}" for figure in (figures.net, figures.gross))
    return f"{backtest.strategy.name}: Sharpe {after} after costs, {before} before."


def measure_lead(backtest: Backtest, benchmark: BookTrack) -> tuple[float, float]:
    """Sharpe ratio after costs minus that of a benchmark, and its standard error; NaN if either is undefined."""
    return sharpe_lead(backtest.strategy.book.net, benchmark.book.net, backtest.terms.sessions_a_year)

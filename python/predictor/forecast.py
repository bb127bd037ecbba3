"""What comes back from a model: `Forecast` and `Attribution`, plain values over NumPy arrays, equal at every door."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from predictor import charts
from predictor.arrays import FloatArray, IntArray
from predictor.errors import InvalidInputError, QuantraError, shown_date
from predictor.skill import Skill, line_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LOG_RETURN = "log-return"


def simple_return(log_return: float) -> float:
    """What people mean by a return, and what a per cent sign stands for: 0.1398 of a log return is +15.0 %."""
    return float(np.expm1(log_return))


class ForecastRow(NamedTuple):
    """One cell of a forecast, for tables."""

    symbol: str
    horizon: int
    session: int
    quantile: float
    value: float
    """In the target's unit: a log return, of which `simple_return` makes per cent, or the log of a volatility."""
    price: float
    """NaN where the target is no return, no anchor is known, or returns count from a later close than the last."""
    score: float
    """Of the symbol and horizon, whatever the quantile; NaN where the model does not rank."""
    rank: int
    """By score, 1 = best; 0 where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """Quantiles of the target for S symbols, H horizons and Q quantiles.

    A symbol that could not be forecast has NaN rows, and its reason in `refusals`.
    """

    symbols: tuple[str, ...]
    as_of_session: int
    """Session of the last bar, yyyymmdd; 0 if the caller sent windows without it."""
    target_sessions: IntArray
    """[H] session that each horizon ends on; empty if `as_of_session` is 0."""
    lag: int
    """Sessions between the last bar and the session that horizons, and so returns, count from."""
    base_session: int = 0
    """That session, yyyymmdd: `as_of_session` without a lag; 0 if unknown."""
    horizons: tuple[int, ...]
    """Trading days."""
    quantiles: tuple[float, ...]
    """Levels, rising, each in (0, 1)."""
    target_kind: str
    """`log-return` or `log-volatility` (log of the daily Parkinson volatility)."""
    values: FloatArray
    """[S, H, Q] in the target's unit, never falling along Q: log returns, or logs of daily volatilities."""
    returns: FloatArray | None
    """[S, H, Q] log returns from the close of `base_session`; None for other targets. exp(r) - 1 is the simple return,
    which is what a per cent sign means wherever forecasts are shown."""
    prices: FloatArray | None
    """[S, H, Q] in the bars' currency; None without an anchor, and with a lag: the close that returns then count from
    is not known yet."""
    anchor_price: FloatArray | None
    """[S] last raw close, that of `as_of_session`."""
    model: str
    version: int
    weights_hash: str
    warnings: tuple[str, ...]
    forecast_id: str
    """Hash of everything that the numbers follow from: model, engine, symbols and input."""
    scores: FloatArray | None = None
    """[S, H] of a ranking model: larger is expected to do better than the panel's others; without a unit."""
    ranks: IntArray | None = None
    """[S, H] place by score among the symbols that could be forecast, 1 = best, shared by equal scores; 0 for a symbol
    that could not."""
    refusals: Mapping[str, QuantraError] = field(default_factory=dict[str, QuantraError])
    """Why each symbol that could not be forecast could not, as the error that it would get alone."""
    skill: Skill | None = None
    """How the model did on days that it had not seen; None if its card does not tell."""
    universe_hash: str = ""
    """Names the symbols that were ranked together; ranks of other universes are not comparable. Empty = no ranks."""

    @property
    def counted_from(self) -> str:
        """What horizons count from, such as `the close of 2013-03-04, 1 session after the last bar`."""
        what = "session" if self.returns is None else "close"
        if not self.lag:
            return f"the last {what}"
        day = f" of {shown_date(self.base_session)}," if self.base_session else ""
        return f"the {what}{day} {session_in_words(self.lag)} bar"

    def to_numpy(self) -> FloatArray:
        """`values`, [S, H, Q]."""
        return self.values

    def table(self) -> list[ForecastRow]:
        """One row a symbol, horizon and quantile."""
        return list(self._rows())

    def _rows(self) -> Iterator[ForecastRow]:
        for s, symbol in enumerate(self.symbols):
            for h, horizon in enumerate(self.horizons):
                session = int(self.target_sessions[h]) if len(self.target_sessions) else 0
                score = float(self.scores[s, h]) if self.scores is not None else float("nan")
                rank = int(self.ranks[s, h]) if self.ranks is not None else 0
                for q, level in enumerate(self.quantiles):
                    price = float(self.prices[s, h, q]) if self.prices is not None else float("nan")
                    value = float(self.values[s, h, q])
                    yield ForecastRow(symbol, horizon, session, level, value, price, score, rank)

    def plot(self, symbol: str | None = None) -> "Figure":
        """The fan of one symbol (the first if none is named): prices, else simple returns; needs the extra `report`."""
        s = row_of(symbol, self.symbols)
        if self.prices is not None:
            shown, what = self.prices[s], "price"
        elif self.returns is not None:
            shown, what = 100 * np.expm1(self.returns[s]), "return (%)"
        else:
            shown, what = self.values[s], self.target_kind
        return charts.quantile_lines(
            self.horizons, self.quantiles, shown, title=self.heading(s), what=what, notes=self.notes
        )

    def heading(self, s: int) -> str:
        """The symbol in row `s`, the model and the day, such as `AAPL: demo version 1, as of 2013-03-01`."""
        day = f", as of {shown_date(self.as_of_session)}" if self.as_of_session else ""
        return f"{self.symbols[s]}: {self.model} version {self.version}{day}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of the numbers: their unit, what they count from, and the model's skill."""
        unit = ("Values are logs of the daily volatility.",) if self.returns is None else ()
        what = "Horizons" if self.returns is None else "Returns"
        base = (f"{what} count from {self.counted_from}.",) if self.lag else ()
        return (*unit, *base, line_of(self.skill))

    def _repr_html_(self) -> str:
        head = ("symbol", "days", "session", "quantile", *self._columns)
        titles = "".join(f"<th>{escape(name)}</th>" for name in head)
        body = "".join(
            f"<tr><td>{escape(r.symbol)}</td><td>{r.horizon}</td><td>{r.session}</td><td>{r.quantile:g}</td>"
            + "".join(f"<td>{cell}</td>" for cell in self._cells(r))
            + "</tr>"
            for r in self._rows()
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table><tr>{titles}</tr>{body}</table>{notes}"

    @property
    def _columns(self) -> tuple[str, ...]:
        """What a table for people shows of each cell."""
        price = () if self.prices is None else ("price",)
        ranking = () if self.ranks is None else ("score", "rank")
        return (self.target_kind if self.returns is None else "return", *price, *ranking)

    def _cells(self, row: ForecastRow) -> tuple[str, ...]:
        """The texts of `_columns`."""
        value = f"{row.value:+.4f}" if self.returns is None else f"{100 * simple_return(row.value):+.2f} %"
        price = () if self.prices is None else (f"{row.price:.2f}",)
        ranking = () if self.ranks is None else (f"{row.score:+.4f}", str(row.rank))
        return (value, *price, *ranking)


def session_in_words(offset: int) -> str:
    """A session by its distance from the last bar's, such as `26 sessions before the last` for -26."""
    if offset == 0:
        return "last session"
    count = f"{abs(offset)} session{'' if abs(offset) == 1 else 's'}"
    return f"{count} {'before' if offset < 0 else 'after'} the last"


def row_of(symbol: str | None, symbols: Sequence[str]) -> int:
    """Position of a symbol; the first if none is named."""
    if symbol is None:
        return 0
    if symbol not in symbols:
        raise InvalidInputError(f"there is no symbol {symbol!r}; there are {list(symbols)}")
    return symbols.index(symbol)


Outcome = Forecast | QuantraError
"""What one instance comes to."""


def forecast_or_raise(outcome: Outcome) -> Forecast:
    """The forecast.

    Raises:
        QuantraError: the outcome is one.
    """
    if isinstance(outcome, QuantraError):
        raise outcome
    return outcome

"""`Forecast`, the result of a model, as plain values over NumPy arrays."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from html import escape
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from predictor import charts
from predictor.arrays import FloatArray, IntArray
from predictor.errors import (
    InvalidInputError,
    MissingPackageError,
    QuantraError,
    UnknownHorizonError,
    UnknownQuantileError,
    format_names,
    format_price,
)
from predictor.internals import describe_session
from predictor.skill import Skill, format_skill

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from plotly.graph_objects import Figure

LOG_RETURN = "log-return"

_MAX_FANS: Final = 6
"""Most symbols with a fan chart above the table."""


def convert_to_simple_return(log_return: float) -> float:
    """Convert a log return to a simple return: 0.1398 becomes 0.15, shown as +15.0 %."""
    return float(np.expm1(log_return))


class ForecastRow(NamedTuple):
    """One cell of a forecast, for tables."""

    symbol: str
    horizon: int
    session: date | None
    quantile: float
    value: float
    """In the target's unit: a log return (see `convert_to_simple_return` for percent) or the log of a volatility."""
    price: float
    """NaN if the target is not a return, the anchor is unknown, or returns count from a close after the last bar."""
    score: float
    """Score of the symbol and horizon, the same for all quantiles; NaN if the model does not rank."""
    rank: int
    """Rank by score, 1 = best; 0 without a rank."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Forecast:
    """Quantiles of the target for S symbols, H horizons and Q quantiles.

    A symbol that could not be forecast has NaN rows and its error in `refusals`.
    """

    symbols: tuple[str, ...]
    as_of_session: date | None
    """Session of the last bar; None if the caller sent windows without dates."""
    target_sessions: tuple[date, ...]
    """[H] session that each horizon ends on; empty if `as_of_session` is None."""
    lag: int
    """Sessions between the last bar and the session that horizons and returns count from."""
    base_session: date | None = None
    """Session that horizons count from, equal to `as_of_session` without a lag; None if unknown."""
    horizons: tuple[int, ...]
    """Trading days."""
    quantiles: tuple[float, ...]
    """Levels, rising, each in (0, 1)."""
    target_kind: str
    """`log-return` or `log-volatility` (log of the daily Parkinson volatility)."""
    values: FloatArray
    """[S, H, Q] in the target's unit, non-decreasing along Q: log returns, or logs of daily volatilities."""
    returns: FloatArray | None
    """[S, H, Q] log returns from the close of `base_session`; None for other targets.

    exp(r) - 1 is the simple return. Percentages of forecasts are always simple returns.
    """
    prices: FloatArray | None
    """[S, H, Q] in the bars' currency; None without an anchor or with a lag.

    With a lag, returns count from a close that is not known yet.
    """
    anchor_price: FloatArray | None
    """[S] raw close of `as_of_session`."""
    model: str
    version: int
    weights_hash: str
    warnings: tuple[str, ...]
    forecast_id: str
    """Hash of everything that determines the numbers: model, engine, symbols and input.

    For a panel that a client sent in several calls, the hash of the parts' ids in order.
    """
    scores: FloatArray | None = None
    """[S, H] scores of a ranking model, without a unit; a higher score means a better expected result in the panel."""
    ranks: IntArray | None = None
    """[S, H] ranks by score among the symbols with a forecast, 1 = best; 0 for a symbol without one.

    Equal scores share a rank.
    """
    refusals: Mapping[str, QuantraError] = field(default_factory=dict[str, QuantraError])
    """The error of each symbol without a forecast, the same as in a request for only that symbol."""
    skill: Skill | None = None
    """The model's skill on unseen days; None if its card does not state it."""
    universe_hash: str = ""
    """Hash of the symbols that were ranked together; empty without ranks. Compare ranks only within one universe."""

    @property
    def counted_from(self) -> str:
        """What horizons count from, such as `the close of 2013-03-04, 1 session after the last bar`."""
        unit = "session" if self.returns is None else "close"
        if not self.lag:
            return f"the last {unit}"
        day = f" of {self.base_session}," if self.base_session else ""
        return f"the {unit}{day} {describe_session(self.lag)} bar"

    def to_numpy(self) -> FloatArray:
        """`values`, [S, H, Q]."""
        return self.values

    def table(self) -> list[ForecastRow]:
        """One row per symbol, horizon and quantile."""
        return list(self._list_rows())

    def _list_rows(self) -> Iterator[ForecastRow]:
        for s, symbol in enumerate(self.symbols):
            for h, horizon in enumerate(self.horizons):
                session = self.target_sessions[h] if self.target_sessions else None
                score = float(self.scores[s, h]) if self.scores is not None else float("nan")
                rank = int(self.ranks[s, h]) if self.ranks is not None else 0
                for q, level in enumerate(self.quantiles):
                    price = float(self.prices[s, h, q]) if self.prices is not None else float("nan")
                    value = float(self.values[s, h, q])
                    yield ForecastRow(symbol, horizon, session, level, value, price, score, rank)

    def to_polars(self) -> "pl.DataFrame":
        """Return `table` as a DataFrame, with a column per available field; needs the extra `data`.

        The target's column is called `log_return` or `log_volatility`; `return` is the simple return, 0.01 for 1 %.
        """
        try:
            import polars as pl
        except ImportError as error:
            raise MissingPackageError.of("polars", "data", "a forecast as a DataFrame") from error
        return pl.DataFrame(self._list_columns())

    def to_pandas(self) -> "pd.DataFrame":
        """Return the data of `to_polars` as a pandas DataFrame; `session` is a datetime64 column."""
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingPackageError.of("pandas", "pandas", "a forecast as a DataFrame of pandas") from error
        columns = self._list_columns()
        return pd.DataFrame(columns | {"session": pd.to_datetime(columns["session"])})

    def _list_columns(self) -> dict[str, list[object]]:
        rows = self.table()
        columns: dict[str, list[object]] = {
            "symbol": [row.symbol for row in rows],
            "horizon": [row.horizon for row in rows],
            "session": [row.session for row in rows],
            "quantile": [row.quantile for row in rows],
            self.target_kind.replace("-", "_"): [row.value for row in rows],
        }
        if self.returns is not None:
            columns["return"] = [convert_to_simple_return(row.value) for row in rows]
        if self.prices is not None:
            columns["price"] = [row.price for row in rows]
        if self.ranks is not None:
            columns |= {"score": [row.score for row in rows], "rank": [row.rank for row in rows]}
        return columns

    def select(self, symbols: str | Sequence[str]) -> "Forecast":
        """Select one or more symbols, in the order given.

        Raises:
            InvalidInputError: a symbol is not in the forecast.
        """
        names = [symbols] if isinstance(symbols, str) else list(symbols)
        rows = [find_row(name, self.symbols) for name in names]
        arrays = {name: values[rows] for name, values in self._by_symbol.items() if values is not None}
        refusals = {name: self.refusals[name] for name in names if name in self.refusals}
        return replace(self, symbols=tuple(names), refusals=refusals, **arrays)

    @property
    def _by_symbol(self) -> Mapping[str, Any]:
        names = ("values", "returns", "prices", "anchor_price", "scores", "ranks")
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        """Summarise the forecast in one line."""
        day = f" as of {self.as_of_session}" if self.as_of_session else ""
        refused = f", {len(self.refusals)} without a forecast" if self.refusals else ""
        return (
            f"<Forecast of {format_names(self.symbols)}{day}: {self.target_kind}, horizons {list(self.horizons)}, "
            f"quantiles {list(self.quantiles)}{refused}; {self.model} version {self.version}>"
        )

    def shown_values(self, s: int) -> tuple[FloatArray, str]:
        """Return the values [H, Q] that a chart shows for row `s`, and their name."""
        if self.prices is not None:
            return self.prices[s], "price"
        if self.returns is not None:
            return 100 * np.expm1(self.returns[s]), "return (%)"
        return self.values[s], self.target_kind

    def plot(self, symbol: str | None = None) -> "Figure":
        """Plot the fan of one symbol (default: the first): prices, else simple returns; needs the extra `report`."""
        s = find_row(symbol, self.symbols)
        values, quantity = self.shown_values(s)
        return charts.draw_quantile_lines(
            self.horizons, self.quantiles, values, title=self.heading(s), what=quantity, notes=self.notes
        )

    def to_png(self, symbol: str | None = None) -> bytes:
        """Return the plot of one symbol (default: the first) as a PNG file; needs the extra `plot`."""
        return charts.draw_picture([self.panel(symbol)], "png")

    def to_svg(self, symbol: str | None = None) -> bytes:
        """Return the plot of one symbol (default: the first) as an SVG file; needs the extra `plot`."""
        return charts.draw_picture([self.panel(symbol)], "svg")

    def panel(self, symbol: str | None = None) -> charts.QuantilePanel:
        """Return the plot of one symbol (default: the first) as a panel of a picture."""
        s = find_row(symbol, self.symbols)
        values, quantity = self.shown_values(s)
        return charts.QuantilePanel(
            horizons=self.horizons,
            quantiles=self.quantiles,
            values=values,
            title=self.heading(s),
            what=quantity,
            notes=self.notes,
        )

    def heading(self, s: int) -> str:
        """Name the symbol in row `s`, the model and the day, such as `AAPL: demo version 1, as of 2013-03-01`."""
        day = f", as of {self.as_of_session}" if self.as_of_session else ""
        return f"{self.symbols[s]}: {self.model}@{self.version}{day}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Explain the numbers: their unit, what they count from, and the model's skill."""
        unit = ("Values are logs of the daily volatility.",) if self.returns is None else ()
        subject = "Horizons" if self.returns is None else "Returns"
        base = (f"{subject} count from {self.counted_from}.",) if self.lag else ()
        return (*unit, *base, format_skill(self.skill))

    def _repr_html_(self) -> str:
        head = ("symbol", "days", "session", "quantile", *self._columns)
        titles = "".join(f"<th>{escape(name)}</th>" for name in head)
        body = "".join(
            f"<tr><td>{escape(r.symbol)}</td><td>{r.horizon}</td><td>{r.session or ''}</td><td>{r.quantile:g}</td>"
            + "".join(f"<td>{cell}</td>" for cell in self._format_cells(r))
            + "</tr>"
            for r in self._list_rows()
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        fans = "".join(self._draw_fan(s) for s in range(len(self.symbols[:_MAX_FANS])))
        return f"{fans}<table><tr>{titles}</tr>{body}</table>{notes}"

    def _draw_fan(self, s: int) -> str:
        values, quantity = self.shown_values(s)
        start = None if self.prices is None or self.anchor_price is None else float(self.anchor_price[s])
        return charts.draw_fan_svg(
            self.horizons, self.quantiles, values, title=f"{self.symbols[s]}, {quantity}", start=start
        )

    @property
    def _columns(self) -> tuple[str, ...]:
        """Column names of the HTML table."""
        price = () if self.prices is None else ("price",)
        ranking = () if self.ranks is None else ("score", "rank")
        return (self.target_kind if self.returns is None else "return", *price, *ranking)

    def _format_cells(self, row: ForecastRow) -> tuple[str, ...]:
        """Format a row as the texts of `_columns`."""
        value = f"{row.value:+.4f}" if self.returns is None else f"{100 * convert_to_simple_return(row.value):+.2f} %"
        price = () if self.prices is None else (format_price(row.price),)
        ranking = () if self.ranks is None else (f"{row.score:+.4f}", str(row.rank))
        return (value, *price, *ranking)


def find_row(symbol: str | None, symbols: Sequence[str]) -> int:
    """Return the index of a symbol; the first if `symbol` is None."""
    if symbol is None:
        return 0
    if symbol not in symbols:
        raise InvalidInputError(f"there is no symbol {symbol!r}; there are {list(symbols)}")
    return symbols.index(symbol)


Outcome = Forecast | QuantraError
"""The result for one instance."""


def require_forecast(outcome: Outcome) -> Forecast:
    """Return the forecast, or raise the outcome if it is an error.

    Raises:
        QuantraError: the outcome is an error.
    """
    if isinstance(outcome, QuantraError):
        raise outcome
    return outcome


class TargetPoint(NamedTuple):
    """One output of a model: a horizon in trading days and a quantile's level."""

    horizon: int
    quantile: float

    def index_in(self, horizons: Sequence[int], quantiles: Sequence[float]) -> tuple[int, int]:
        """Return the indices (h, q) of this point in a forecast's arrays.

        Raises:
            UnknownHorizonError: the model does not forecast the horizon; the message lists the valid ones.
            UnknownQuantileError: the model does not forecast the quantile.
        """
        if self.horizon not in horizons:
            raise UnknownHorizonError(f"horizon {self.horizon} is not forecast; the model has {list(horizons)}")
        for q, level in enumerate(quantiles):
            if abs(level - self.quantile) < _SAME_LEVEL:
                return list(horizons).index(self.horizon), q
        raise UnknownQuantileError(f"quantile {self.quantile:g} is not forecast; the model has {list(quantiles)}")


_SAME_LEVEL = 1e-9

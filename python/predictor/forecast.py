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
from enum import StrEnum

from predictor.arrays import BoolArray
from predictor.errors import UnknownHorizonError, UnknownQuantileError
from predictor.internals import INTERNALS_NOTE, Internal, largest_shares, session_in_words

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
    """NaN where the target is not a return, no anchor is known, or returns count from a later close than the last."""
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
    """Hash of everything that the numbers follow from: model, engine, symbols and input. Of a panel that a client sent
    in several calls: of the ids that its parts have, in their order."""
    scores: FloatArray | None = None
    """[S, H] of a ranking model: larger is expected to do better than the panel's others; without a unit."""
    ranks: IntArray | None = None
    """[S, H] place by score among the symbols that could be forecast, 1 = best, shared by equal scores; 0 for a symbol
    that could not."""
    refusals: Mapping[str, QuantraError] = field(default_factory=dict[str, QuantraError])
    """Why each symbol without a forecast has none, as the error that it would get alone."""
    skill: Skill | None = None
    """How the model did on days that it had not seen; None if its card does not say."""
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
        """One row per symbol, horizon and quantile."""
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


def row_of(symbol: str | None, symbols: Sequence[str]) -> int:
    """Position of a symbol; the first if none is named."""
    if symbol is None:
        return 0
    if symbol not in symbols:
        raise InvalidInputError(f"there is no symbol {symbol!r}; there are {list(symbols)}")
    return symbols.index(symbol)


Outcome = Forecast | QuantraError
"""The answer to one instance."""


def forecast_or_raise(outcome: Outcome) -> Forecast:
    """The forecast.

    Raises:
        QuantraError: the outcome is one.
    """
    if isinstance(outcome, QuantraError):
        raise outcome
    return outcome


class RowKind(StrEnum):
    """Which kind of input an attribution's row stands for."""

    OBSERVED = "observed"
    KNOWN = "known"
    STATIC = "static"
    LOCATION = "location"
    SCALE = "scale"
    CONFORMAL = "conformal"
    NEIGHBOURS = "neighbours"


class Detail(StrEnum):
    """How fine an attribution is: per feature, also per session, also per cell."""

    FEATURES = "features"
    TIMES = "times"
    CELLS = "cells"


class TargetPoint(NamedTuple):
    """One output of a model: a horizon in trading days and a quantile's level."""

    horizon: int
    quantile: float

    def index_in(self, horizons: Sequence[int], quantiles: Sequence[float]) -> tuple[int, int]:
        """Position of this point in a forecast's arrays.

        Raises:
            UnknownHorizonError: the model does not forecast that horizon; the message lists those it does.
            UnknownQuantileError: the same for the quantile.
        """
        if self.horizon not in horizons:
            raise UnknownHorizonError(f"horizon {self.horizon} is not forecast; the model has {list(horizons)}")
        for q, level in enumerate(quantiles):
            if abs(level - self.quantile) < _SAME_LEVEL:
                return list(horizons).index(self.horizon), q
        raise UnknownQuantileError(f"quantile {self.quantile:g} is not forecast; the model has {list(quantiles)}")


_SAME_LEVEL = 1e-9


class Contribution(NamedTuple):
    """One row of an attribution: a named input and what it added, in the target's unit."""

    name: str
    kind: RowKind
    value: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attribution:
    """Signed contributions of each input to one target, for S symbols.

    A symbol's rows add up to `prediction - baseline_prediction` within `relative_gap`.
    """

    symbols: tuple[str, ...]
    as_of_session: int
    horizon: int
    quantile: float
    method: str
    baseline: str
    """What the forecast is compared with."""
    unit: str
    row_names: tuple[str, ...]
    row_kinds: tuple[RowKind, ...]
    per_row: FloatArray
    """[S, R]"""
    sessions: IntArray
    """[T] of the encoder; empty if unknown."""
    per_time: FloatArray | None
    """[S, T] observed and known rows by encoder session; None unless asked for."""
    cells: FloatArray | None
    """[S, T, F] observed features; None unless asked for."""
    prediction: FloatArray
    """[S] in the target's unit."""
    baseline_prediction: FloatArray
    """[S]"""
    relative_gap: FloatArray
    """[S] completeness: |sum of rows - (prediction - baseline_prediction)| relative to that difference, or to a
    twentieth of the window's own volatility where the difference is smaller."""
    converged: BoolArray
    """[S] whether the gap is within the tolerance asked for."""
    nodes: IntArray
    """[S] quadrature nodes used."""
    model: str
    version: int
    weights_hash: str
    warnings: tuple[str, ...]
    internals: tuple[Internal, ...] = ()
    """The network's internals, where it has any: the selection of past, future and static variables, attention."""
    skill: Skill | None = None
    """How the model did on days that it had not seen; None if its card does not say."""
    refusals: Mapping[str, QuantraError] = field(default_factory=dict[str, QuantraError])
    """Why each symbol without a forecast, and so with NaN rows, has none."""

    def to_numpy(self) -> FloatArray:
        """`per_row`, [S, R]."""
        return self.per_row

    @property
    def importance(self) -> FloatArray:
        """[S, R] share of each row in the sum of absolute contributions; a symbol's shares add up to 1.

        Where no row contributes anything, because the forecast is the baseline's, every share is 0.
        """
        size = np.abs(self.per_row)
        total = size.sum(axis=1, keepdims=True)
        return np.divide(size, total, out=np.zeros_like(size), where=total != 0)

    def table(self, symbol: str | None = None) -> list[Contribution]:
        """The rows of one symbol (the first if none is named), largest absolute contribution first."""
        s = row_of(symbol, self.symbols)
        order = np.argsort(-np.abs(self.per_row[s]), kind="stable")
        return [Contribution(self.row_names[r], self.row_kinds[r], float(self.per_row[s, r])) for r in order]

    def plot(self, symbol: str | None = None) -> "Figure":
        """Bars of the rows of one symbol; needs the extra `report`."""
        rows = self.table(symbol)
        whose = f"{self.symbols[row_of(symbol, self.symbols)]}, {self.horizon} sessions ahead, q{self.quantile:g}"
        notes = (whose, line_of(self.skill))
        return charts.importance_bars([r.name for r in rows], np.array([r.value for r in rows]), self.unit, notes=notes)

    def _repr_html_(self) -> str:
        body = "".join(f"<tr><td>{escape(r.name)}</td><td>{r.value:+.3e}</td></tr>" for r in self.table())
        head = f"<tr><th>input</th><th>contribution ({escape(self.unit)})</th></tr>"
        return f"<table>{head}{body}</table>{self._internals_html()}<p>{escape(line_of(self.skill))}</p>"

    def _internals_html(self) -> str:
        """A heading and the largest shares of each internal; empty where there are none."""
        if not self.internals:
            return ""
        body = "".join(
            f"<tr><td>{escape(one.name)}</td><td>{escape(largest_shares(one, 0))}</td></tr>" for one in self.internals
        )
        head = "<tr><th>internal</th><th>largest shares</th></tr>"
        return f"<p>Internals: {INTERNALS_NOTE}</p><table>{head}{body}</table>"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explanation:
    """The attributions of one query, one per target in the order asked, and the time they took."""

    attributions: tuple[Attribution, ...]
    queue_ms: float
    compute_ms: float

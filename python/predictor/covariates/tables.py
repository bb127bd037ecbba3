"""The tables of covariate files: series with the day since when each value is known, and facts that stay the same."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.errors import ConfigurationError, CovariatesError, shown_date

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LONGEST_SHOWN: Final = 70


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """R rows of one covariate, in any order: who stated which value, about which day, and since when it is known.

    The value of a symbol at session t is that of the latest day among the rows known by the close of t; of several rows
    about the same day it is the one that became known last. So a restated value comes in when it is known, not before.

    Attributes:
        name: The column.
        symbols: Which symbols the rows are about; empty = every row is about all symbols.
        owner: int [R], place among `symbols`; 0 if there are none.
        date: int32 [R], yyyymmdd that the value is about.
        known_from: int32 [R], yyyymmdd of the first day whose close knows it.
        value: float64 [R]; NaN = withdrawn.
        row: int [R], counted from 1 after the file's header, for messages.

    Raises:
        CovariatesError: Two rows about the same symbol and day became known on the same day.
    """

    name: str
    symbols: tuple[str, ...]
    owner: NDArray[np.intp]
    date: NDArray[np.int32]
    known_from: NDArray[np.int32]
    value: FloatArray
    row: NDArray[np.int64]
    _bounds: NDArray[np.intp] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Sort by symbol, then by when a row became known, then by its day."""
        order = np.lexsort((self.date, self.known_from, self.owner))
        for one in fields(self)[2:7]:
            object.__setattr__(self, one.name, getattr(self, one.name)[order])
        bounds = np.searchsorted(self.owner, np.arange(max(1, len(self.symbols)) + 1))
        object.__setattr__(self, "_bounds", bounds)
        keys = np.stack([self.owner, self.known_from, self.date])
        twice = np.flatnonzero((keys[:, 1:] == keys[:, :-1]).all(axis=0))
        if twice.size:
            first, second = sorted(self.row[twice[0] : twice[0] + 2].tolist())
            advice = "keep one" if self.symbols else "keep one, or add a column symbol that tells them apart"
            raise CovariatesError(
                f"covariate {self.name}: rows {first} and {second} after the header give the same day two values that "
                f"became known on the same day; {advice}"
            )

    def as_of(self, symbols: Sequence[str], sessions: NDArray[np.int32]) -> FloatArray:
        """What was known at the close of each session: float64 [S, T], or [1, T] if it is the same for all symbols."""
        return self._by_symbol(symbols, lambda rows: self._as_of(rows, sessions), len(sessions))

    def of_days(self, symbols: Sequence[str], sessions: NDArray[np.int32], *, known_by: int) -> FloatArray:
        """The value of each session's own day or the last one stated before it, as far as known by one day's close.

        Args:
            symbols: S names.
            sessions: int32 [A], also future ones.
            known_by: yyyymmdd.

        Returns:
            float64 [S, A], or [1, A] if it is the same for all symbols.
        """
        return self._by_symbol(symbols, lambda rows: self._of_days(rows, sessions, known_by), len(sessions))

    def check_known_ahead(self, axis: NDArray[np.int32], reach: int) -> None:
        """Refuse a row that a model would have looked at before it was known.

        Args:
            axis: int32 [A], every session from the first bar to the last one that is forecast.
            reach: how many sessions ahead a model looks.

        Raises:
            CovariatesError: naming the row.
        """
        first_use = np.searchsorted(axis, self.date)  # the session from which on the row is the latest
        seen_by = axis[np.clip(first_use - reach, 0, len(axis) - 1)]
        late = np.flatnonzero(self._in_effect(first_use) & (first_use < len(axis)) & (self.known_from > seen_by))
        if late.size:
            place = late[np.argmin(self.row[late])]
            day, known, by = (shown_date(int(one[place])) for one in (self.date, self.known_from, seen_by))
            raise CovariatesError(
                f"known covariate {self.name}: row {int(self.row[place])} after the header is about {day} and known "
                f"from {known}, but the model looks {reach} sessions ahead, so it must be known by {by}; leave such "
                "rows out, choose shorter horizons, or do not list the covariate under --known",
                metadata={"covariate": self.name, "row": str(int(self.row[place]))},
            )

    def _in_effect(self, first_use: NDArray[np.intp]) -> NDArray[np.bool_]:
        """[R] which rows are the latest of some session, so that the others need not be known in time."""
        order = np.lexsort((self.known_from, self.date, self.owner))
        owner, use = self.owner[order], first_use[order]
        is_first = np.ones(len(order), np.bool_)
        is_first[order[:-1]] = (owner[1:] != owner[:-1]) | (use[1:] > use[:-1])
        return is_first

    def _by_symbol(self, symbols: Sequence[str], values_of: Callable[[slice], FloatArray], length: int) -> FloatArray:
        if not self.symbols:
            return values_of(slice(0, len(self.date)))[None]
        place = {symbol: k for k, symbol in enumerate(self.symbols)}
        values = np.full((len(symbols), length), np.nan)
        for s, symbol in enumerate(symbols):
            if symbol in place:
                k = place[symbol]
                values[s] = values_of(slice(int(self._bounds[k]), int(self._bounds[k + 1])))
        return values

    def _as_of(self, rows: slice, sessions: NDArray[np.int32]) -> FloatArray:
        date = self.date[rows]
        latest = np.maximum.accumulate(date)
        valid = np.maximum.accumulate(np.where(date == latest, np.arange(len(date)), 0))
        count = np.searchsorted(self.known_from[rows], sessions, side="right")
        return _stepped(self.value[rows][valid], count)

    def _of_days(self, rows: slice, sessions: NDArray[np.int32], known_by: int) -> FloatArray:
        heard = int(np.searchsorted(self.known_from[rows], known_by, side="right"))
        date, value = self.date[rows][:heard], self.value[rows][:heard]
        order = np.argsort(date, kind="stable")  # rows about one day stay in the order in which they became known
        return _stepped(value[order], np.searchsorted(date[order], sessions, side="right"))


def _stepped(values: FloatArray, count: NDArray[np.intp]) -> FloatArray:
    """The last of the first `count` values, NaN where there is none."""
    return np.concatenate([[np.nan], values])[count]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StaticTable:
    """One row per symbol. A column whose every entry is a number may be read both as numbers and as texts.

    Attributes:
        symbols: R unique names.
        numbers: float64 [R] by column name, NaN = unknown.
        texts: One text per row by column name, empty = unknown.
    """

    symbols: tuple[str, ...]
    numbers: Mapping[str, FloatArray]
    texts: Mapping[str, tuple[str, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        """Every column."""
        return tuple(self.texts)

    def numbers_of(self, name: str, symbols: Sequence[str]) -> FloatArray:
        """[S] of a column of numbers; NaN for a symbol that the table lacks.

        Raises:
            CovariatesError: The column holds texts.
        """
        if name not in self.numbers:
            symbol = next(iter(self.without_number(name)), "none")
            raise CovariatesError(
                f"static covariate {name} must be a number for every symbol, but that of {symbol} is not; leave a cell "
                "empty where it is unknown"
            )
        place = {symbol: k for k, symbol in enumerate(self.symbols)}
        values = np.append(self.numbers[name], np.nan)
        return values[[place.get(symbol, -1) for symbol in symbols]]

    def without_number(self, name: str) -> tuple[str, ...]:
        """The symbols for which a column holds something that is not a number."""
        return tuple(
            symbol for symbol, text in zip(self.symbols, self.texts[name], strict=True) if text and not _is_number(text)
        )

    def texts_of(self, name: str, symbols: Sequence[str]) -> tuple[str, ...]:
        """One per symbol; empty for a symbol that the table lacks."""
        texts = dict(zip(self.symbols, self.texts[name], strict=True))
        return tuple(texts.get(symbol, "") for symbol in symbols)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # which Python takes and files do not


def check_name(name: str, whose: str = "covariate") -> None:
    """Refuse a name that expressions could not use.

    Args:
        name: The covariate's.
        whose: What it is called in the message.

    Raises:
        ConfigurationError: Saying what a name must be.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{whose} {name[:_LONGEST_SHOWN]!r} must have 1 to 64 lower-case letters, digits and underscores, and "
            "start with a letter, to be named in expressions"
        )

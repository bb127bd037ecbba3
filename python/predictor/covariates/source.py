"""A user's covariate files, and the selection of the values for one panel of bars."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.catalog import CovariateGroup, CovariateInfo, ModelInfo
from predictor.covariates.covariates import Covariates
from predictor.covariates.tables import Series, StaticTable, read_series, read_statics
from predictor.dates import to_date_numbers, to_days
from predictor.errors import CovariatesError, format_names
from predictor.sessions import EVERY_DAY

_MAX_CLOSED_DAYS: Final = 15
"""Weekdays without a session to allow for, in addition to one per two sessions."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CovariateSource:
    """The contents of all covariate files. Names are unique across files."""

    series: tuple[Series, ...] = ()
    statics: StaticTable | None = None

    def __post_init__(self) -> None:
        names = Counter((*self.series_names, *self.static_names))
        twice = sorted(name for name, count in names.items() if count > 1)
        if twice:
            raise CovariatesError(
                f"covariates {', '.join(twice)} are in two columns; use each name only once over all files"
            )

    @classmethod
    def read(cls, paths: Sequence[str | Path] = (), static: str | Path | None = None) -> Self:
        """Read files that end in .csv or .parquet; header names in any case.

        Args:
            paths: Files with the columns `symbol` or `ticker` (without it, the file applies to all symbols), `date`
                (the day that the values describe), `known_from` (the day on which they became known: they are used
                from the close of the first session on or after it), and columns of numbers. Empty cells are ignored,
                so columns may have values on different days; `nan` withdraws an earlier value.
            static: A file with one row per symbol: `symbol` or `ticker`, then columns of numbers or strings.

        Raises:
            CovariatesError: A cell is invalid; the message names the file, column and row.
            MissingPackageError: The extra `data` is not installed.
        """
        series = tuple(column for path in paths for column in read_series(Path(path)))
        return cls(series=series, statics=None if static is None else read_statics(Path(static)))

    @property
    def series_names(self) -> tuple[str, ...]:
        """Names of the dated columns."""
        return tuple(series.name for series in self.series)

    @property
    def static_names(self) -> tuple[str, ...]:
        """Names of the static columns."""
        return () if self.statics is None else self.statics.names

    def find_warnings(self, needs: Sequence[CovariateInfo]) -> Iterator[str]:
        """A warning about the columns that a model does not read, if there are any."""
        read_names = {need.name for need in needs}
        unread = [name for name in (*self.series_names, *self.static_names) if name not in read_names]
        if unread:
            yield (
                f"the covariate files have columns that the model does not read: {format_names(unread)}; leave them "
                "out, or train a model with them"
            )

    def for_model(self, model: ModelInfo, bars: BarPanel) -> Covariates:
        """Select the values that a model reads for these bars, as known at the close of the last bar.

        Other columns are left out, as `find_warnings` reports. A covariate that no file has stays missing, which the
        model reports as an error. The future days include all sessions of the model's calendar.
        """
        last = int(bars.sessions[-1])
        future = _list_days_after(last, model)
        return self.values_for(model.covariates, bars, future, known_by=last)

    def values_for(
        self, needs: Sequence[CovariateInfo], bars: BarPanel, future: NDArray[np.int32], *, known_by: int
    ) -> Covariates:
        """Select the values for a panel of bars.

        Args:
            needs: the covariates to select; those that no file has are left out.
            bars: S symbols, T sessions.
            future: int32 [D], the days after the bars that known covariates must cover.
            known_by: yyyymmdd, the day at whose close the future values must be known.

        Raises:
            CovariatesError: a symbol differs from the bars' only in case, or a column has strings instead of numbers.
        """
        symbols, count = bars.symbols, len(bars.symbols)
        statics = () if self.statics is None else self.statics.symbols
        for file_symbols in dict.fromkeys((*(series.symbols for series in self.series), statics)):
            # The values of a symbol that differs from the bars' only in case would be ignored.
            exact = set(file_symbols)
            meant = {symbol.casefold(): symbol for symbol in symbols if symbol not in exact}
            for symbol in exact.difference(symbols):
                if symbol.casefold() in meant:
                    raise CovariatesError(
                        f"the covariates have the symbol {symbol}, the bars {meant[symbol.casefold()]}; write a symbol "
                        "in the same case everywhere"
                    )
        observed = self._read_series(CovariateGroup.OBSERVED, needs)
        known = self.known(needs, symbols, np.concatenate([bars.sessions, future]), known_by=known_by)
        numbers: dict[str, FloatArray] = {}
        categories: dict[str, tuple[str, ...]] = {}
        table = self.statics
        for need in _select_statics(needs):
            if table is None:
                break
            if need.categories and need.name in table.texts:
                categories[need.name] = table.texts_of(need.name, symbols)
            elif not need.categories and need.name in table.names:
                numbers[need.name] = table.numbers_of(need.name, symbols)
        return Covariates(
            observed={series.name: _broadcast_rows(series.as_of(symbols, bars.sessions), count) for series in observed},
            known={name: _broadcast_rows(values, count) for name, values in known.items()},
            future_sessions=future if known else future[:0],
            numbers=numbers,
            categories=categories,
        )

    def known(
        self, needs: Sequence[CovariateInfo], symbols: Sequence[str], axis: NDArray[np.int32], *, known_by: int
    ) -> dict[str, FloatArray]:
        """Known covariates on any sessions `axis` [A]: float64 [S, A], or [1, A] if equal for all symbols."""
        known = self._read_series(CovariateGroup.KNOWN, needs)
        return {series.name: series.of_days(symbols, axis, known_by=known_by) for series in known}

    def check_known_ahead(self, needs: Sequence[CovariateInfo], axis: NDArray[np.int32], reach: int) -> None:
        """Check that no known covariate is read before it is known; see `Series.check_known_ahead`."""
        for series in self._read_series(CovariateGroup.KNOWN, needs):
            series.check_known_ahead(axis, reach)

    def _read_series(self, group: CovariateGroup, needs: Sequence[CovariateInfo]) -> list[Series]:
        names = {need.name for need in needs if need.group is group}
        return [series for series in self.series if series.name in names]

    def digest(self) -> str:
        """SHA-256 of all contents."""
        digest = hashlib.sha256()
        for series in self.series:
            digest.update(f"{series.name}|{'|'.join(series.symbols)}|".encode())
            for column in fields(series)[2:6]:
                digest.update(np.ascontiguousarray(getattr(series, column.name)).data)
        if self.statics is not None:
            digest.update(repr((self.statics.symbols, sorted(self.statics.texts.items()))).encode())
        return digest.hexdigest()


def _select_statics(needs: Sequence[CovariateInfo]) -> list[CovariateInfo]:
    return [need for need in needs if need.group is CovariateGroup.STATIC]


def _list_days_after(day: int, model: ModelInfo) -> NDArray[np.int32]:
    """Enough days after `day` to include all sessions that a model reaches: all days, or weekdays of an exchange."""
    first, sessions = to_days(np.array([day], np.int32))[0] + np.timedelta64(1, "D"), model.future_length
    if model.calendar == EVERY_DAY:
        return to_date_numbers(first + np.arange(sessions))
    weekdays = sessions + sessions // 2 + _MAX_CLOSED_DAYS
    return to_date_numbers(np.busday_offset(first, np.arange(weekdays), roll="forward"))


def _broadcast_rows(values: FloatArray, symbols: int) -> FloatArray:
    """Broadcast to one row per symbol; read-only, so that `Covariates` does not copy it."""
    rows = np.broadcast_to(values, (symbols, values.shape[1]))
    rows.flags.writeable = False
    return rows

"""Reader for tables in memory: pandas, polars, pyarrow and compatible libraries."""

from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from predictor.bars.columns import normalise_columns
from predictor.bars.files import TableCells
from predictor.bars.layouts import WideHeader, get_layout, identify_layout
from predictor.bars.tables import BarTable, ReadingOptions, TableSource, build_table
from predictor.errors import BarsError, MissingPackageError

if TYPE_CHECKING:
    import narwhals as nw
    import polars as pl

NAME: Final = "the DataFrame"
INDEX: Final = "date"


@runtime_checkable
class ArrowStream(Protocol):
    """A table that exports Arrow data: pandas, polars, pyarrow, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export a capsule with the stream."""
        ...


@runtime_checkable
class Interchange(Protocol):
    """A table that implements the older DataFrame interchange protocol."""

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> object:  # noqa: FBT001, FBT002 (the protocol's)
        """Export the columns."""
        ...


Frame = ArrowStream | Interchange
"""Any table in memory."""


def read_frame(frame: object, *, symbol: str = "", options: ReadingOptions | None = None) -> BarTable:
    """Read the bars of a DataFrame.

    Args:
        frame: one row per bar, or columns by field and symbol; a pandas index of dates counts as a column.
        symbol: the symbol, required if no column holds it.
        options: options that resolve ambiguous cells.

    Raises:
        BarsError: it is not a DataFrame, or a cell is invalid; the message names the column, row and value.
        MissingPackageError: the extra `data` is not installed.
    """
    options = options or ReadingOptions()
    cells = _convert_cells(_wrap_frame(frame))
    layout = (
        get_layout(options.layout) if options.layout else cells.layout or identify_layout(cells.frame.columns, NAME)
    )
    if not symbol and "symbol" not in cells.frame.columns:
        raise BarsError(f"{NAME} has no column symbol; add one, or pass the symbol, such as symbol='AAPL'")
    return build_table(cells, TableSource(name=NAME, symbol=symbol, options=options), layout)


def _wrap_frame(frame: object) -> "nw.DataFrame[Any]":
    try:
        import narwhals as nw
        import polars as pl
    except ImportError as error:
        raise MissingPackageError.of("narwhals", "data", "reading a DataFrame") from error
    if nw.dependencies.is_into_dataframe(frame):
        return nw.from_native(frame, eager_only=True)
    if isinstance(frame, ArrowStream):
        return nw.from_native(pl.DataFrame(frame))
    if isinstance(frame, Interchange):
        return nw.from_native(_convert_old_table(frame))
    raise BarsError(
        f"{type(frame).__name__} is not a table of bars; pass a BarPanel, or a DataFrame of pandas, polars or pyarrow"
    )


def _convert_old_table(frame: Interchange) -> "pl.DataFrame":
    """Convert a table of the older protocol, which polars no longer supports."""
    import polars as pl

    try:
        from pyarrow.interchange import from_dataframe
    except ImportError as error:
        raise MissingPackageError.of("pyarrow", "arrow", "reading a DataFrame that only has __dataframe__") from error
    return pl.DataFrame(from_dataframe(frame))


def _convert_cells(frame: "nw.DataFrame[Any]") -> TableCells:
    """Convert a table to polars, with an index of dates as the first column and wide columns stacked."""
    import narwhals as nw

    native = nw.to_native(frame)
    if not nw.dependencies.is_pandas_dataframe(native):
        return TableCells(frame=normalise_columns(frame.to_polars(), NAME))
    native = _move_index_to_columns(native)
    if native.columns.nlevels == 1:
        native = native.set_axis([str(name) for name in native.columns], axis=1)
        return TableCells(frame=normalise_columns(_convert_pandas(native), NAME))
    levels = [[str(column[level]) for column in native.columns] for level in range(native.columns.nlevels)]
    header = WideHeader.of(levels[:2])
    if native.columns.nlevels != 2 or header is None:  # noqa: PLR2004 (field and symbol)
        raise BarsError(
            f"{NAME} has columns of {native.columns.nlevels} levels, such as {native.columns[-1]!r}; pass one row per "
            "bar, or two levels of fields and symbols"
        )
    flat = native.set_axis([str(at) for at in range(native.shape[1])], axis=1)
    return TableCells(frame=header.stacked(_convert_pandas(flat), NAME), layout=header.layout)


def _convert_pandas(native: Any) -> "pl.DataFrame":
    """Convert a pandas frame to polars without pyarrow, which polars' own conversion of strings requires."""
    import narwhals as nw
    import polars as pl

    frame = nw.from_native(native, eager_only=True)
    return pl.DataFrame([_convert_series(frame[name]) for name in frame.columns])


def _convert_series(column: "nw.Series[Any]") -> "pl.Series":
    import narwhals as nw
    import polars as pl

    if isinstance(column.dtype, nw.Datetime) and column.null_count() == 0:
        moments = pl.Series(column.name, column.dt.timestamp("us").to_numpy()).cast(pl.Datetime("us"))
        zone = column.dtype.time_zone
        return moments if zone is None else moments.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    if column.dtype.is_numeric():
        return pl.Series(column.name, column.to_numpy())
    # pandas' missing values NaN and NaT are not equal to themselves
    return pl.Series(column.name, [None if value != value else value for value in column.to_list()], strict=False)  # noqa: PLR0124


FIRST_DATE: Final = 1000_01_01
"""Smallest yyyymmdd with eight digits; row numbers are smaller."""


def _move_index_to_columns(native: Any) -> Any:
    """Move a pandas index into the columns, as `date` if unnamed; unnamed row numbers are dropped."""
    import pandas as pd

    if isinstance(native.index, pd.RangeIndex):
        return native
    is_unnamed = native.index.names == [None]
    if is_unnamed and pd.api.types.is_integer_dtype(native.index.dtype) and native.index.min() < FIRST_DATE:
        return native.reset_index(drop=True)
    names = [name if name is not None else INDEX for name in native.index.names]
    return native.rename_axis(index=names).reset_index()

"""DataFrames as input and as output of forecasts."""

from datetime import date
from typing import Any

import exports
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from predictor.bars import BarPanel
from predictor.errors import BarsError, BarsWarning
from predictor.forecast import Forecast
from predictor.instance import to_instance

PLAIN = exports.CASES / "exports" / "plain.csv"


def same(panel: BarPanel, truth: BarPanel) -> bool:
    return (
        panel.symbols == truth.symbols
        and np.array_equal(panel.sessions, truth.sessions)
        and all(np.array_equal(getattr(panel, name), getattr(truth, name)) for name in exports.FIELDS)
    )


class OnlyArrow:
    """A frame that supports only the Arrow protocol."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class OnlyInterchange:
    """A frame that supports only the older interchange protocol."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> object:  # noqa: FBT001, FBT002
        return self._frame.__dataframe__(nan_as_null, allow_copy)


def forecast_of_two() -> Forecast:
    values = np.arange(12, dtype=np.float64).reshape(2, 2, 3) / 100
    anchor = np.array([100.0, 50.0])
    return Forecast(
        symbols=("AAA", "BBB"),
        as_of_session=date(2024, 1, 3),
        target_sessions=(date(2024, 1, 4), date(2024, 1, 10)),
        lag=0,
        horizons=(1, 5),
        quantiles=(0.1, 0.5, 0.9),
        target_kind="log-return",
        values=values,
        returns=values,
        prices=anchor[:, None, None] * np.exp(values),
        anchor_price=anchor,
        model="mine",
        version=1,
        weights_hash="",
        warnings=(),
        forecast_id="",
    )


def frames() -> dict[str, Any]:
    pandas = pd.read_csv(PLAIN)
    dated = pandas.assign(date=pd.to_datetime(pandas["date"]))
    return {
        "pandas": pandas,
        "pandas, concatenated": pd.concat([rows.reset_index(drop=True) for _, rows in pandas.groupby("symbol")]),
        "pandas, index of dates": dated.set_index("date"),
        "pandas, unnamed index of yyyymmdd": pandas.drop(columns="date").set_axis(
            dated["date"].dt.strftime("%Y%m%d").astype(int).to_numpy(), axis=0
        ),
        "pandas, index of symbols and dates": dated.set_index(["symbol", "date"]),
        "pandas, dates with a zone": dated.assign(date=dated["date"].dt.tz_localize("America/New_York")),
        "pandas, objects": pandas.astype(object),
        "polars": pl.read_csv(PLAIN, try_parse_dates=True),
        "pyarrow": pa.Table.from_pylist(pandas.to_dict("records")),
        "arrow stream": OnlyArrow(pa.Table.from_pylist(pandas.to_dict("records"))),
        "interchange": OnlyInterchange(pa.Table.from_pylist(pandas.to_dict("records"))),
    }


@pytest.mark.parametrize("name", frames())
def test_a_table_in_memory_is_read_with_the_numbers_of_the_file(name: str) -> None:
    assert same(BarPanel.of(frames()[name]), BarPanel.read(PLAIN))


def test_columns_by_field_and_symbol_are_read_as_yfinance_gives_them() -> None:
    path = exports.CASES / "exports" / "yfinance_two.csv"
    wide = pd.read_csv(path, header=[0, 1], index_col=0, parse_dates=True)
    panel = BarPanel.of(wide)
    assert same(panel, BarPanel.read(PLAIN))
    assert panel.adj_close is not None
    assert panel.adj_close.tolist() == np.asarray(BarPanel.read(path).adj_close).tolist()
    assert same(BarPanel.of(wide.swaplevel(axis=1)), BarPanel.read(PLAIN))


def test_a_frame_of_one_stock_is_told_whose_it_is() -> None:
    history = pd.read_csv(exports.CASES / "exports" / "yfinance_history" / "AAPL.csv", index_col="Date")
    assert same(BarPanel.of(history, symbol="AAPL"), BarPanel.read(PLAIN).select("AAPL"))
    with pytest.raises(BarsError, match=r"has no column symbol; .* symbol='AAPL'"):
        BarPanel.of(history)


@pytest.mark.parametrize("wrong", [3, [1, 2], {"close": [1]}, "bars.csv"])
def test_what_is_no_table_is_called_so(wrong: Any) -> None:
    with pytest.raises(
        BarsError, match=f"{type(wrong).__name__} is not a table of bars; pass a BarPanel, or a DataFrame"
    ):
        BarPanel.of(wrong)


def test_equal_rows_of_a_frame_are_warned_of() -> None:
    frame = pl.read_csv(PLAIN)
    with pytest.warns(BarsWarning, match="the DataFrame: 1 repeated row dropped"):
        assert same(BarPanel.of(pl.concat([frame, frame[:1]])), BarPanel.read(PLAIN))


def test_a_question_may_be_a_frame() -> None:
    asked = to_instance(pl.read_csv(PLAIN)).input
    assert isinstance(asked, BarPanel)
    assert same(asked, BarPanel.read(PLAIN))


def test_a_panel_is_shown_in_one_line_and_parted_by_one_name() -> None:
    panel = BarPanel.read(PLAIN)
    assert repr(panel) == (
        "<BarPanel: AAPL, MSFT; 32 sessions, 2012-10-15 to 2012-11-30; open, high, low, close, volume>"
    )
    assert panel.select("MSFT").symbols == ("MSFT",)


def test_a_forecast_goes_out_as_a_table_of_the_same_numbers() -> None:
    forecast = forecast_of_two()
    table, same_table = forecast.to_polars(), forecast.to_pandas()
    assert table.columns == list(same_table.columns)
    assert table.columns == ["symbol", "horizon", "session", "quantile", "log_return", "return", "price"]
    assert table.height == forecast.to_numpy().size
    assert table["log_return"].to_list() == forecast.to_numpy().ravel().tolist() == same_table["log_return"].tolist()
    assert np.allclose(table["return"].to_numpy(), np.expm1(forecast.to_numpy().ravel()), rtol=1e-15)
    assert forecast.prices is not None
    assert table["price"].to_list() == forecast.prices.ravel().tolist()
    assert table["session"][0] == date(2024, 1, 4)


def test_a_forecast_joins_bars_on_parsed_dates() -> None:
    bars = pd.DataFrame({"session": pd.to_datetime(["2024-01-04", "2024-01-10"]), "close": [101.0, 102.0]})
    joined = forecast_of_two().to_pandas().merge(bars, on="session")
    assert len(joined) == forecast_of_two().to_numpy().size
    assert set(joined.loc[joined["horizon"] == 5, "close"]) == {102.0}


def test_a_forecast_is_parted_by_name_and_shown_in_one_line() -> None:
    forecast = forecast_of_two()
    second = forecast.select("BBB")
    assert second.symbols == ("BBB",)
    assert second.to_numpy().tolist() == forecast.to_numpy()[1:].tolist()
    assert second.prices is not None
    assert forecast.prices is not None
    assert second.prices.tolist() == forecast.prices[1:].tolist()
    assert "\n" not in repr(forecast)
    assert repr(forecast).startswith("<Forecast of AAA, BBB as of 2024-01-03: log-return, horizons [1, 5], quantiles ")
    with pytest.raises(Exception, match="there is no symbol 'CCC'"):
        forecast.select("CCC")


def test_a_notebook_shows_the_fan_of_each_symbol_above_the_table() -> None:
    html = forecast_of_two()._repr_html_()
    assert html.count("<svg") == 2
    assert html.index("<svg") < html.index("<table")
    assert 'aria-label="AAA, price: quantiles 0.1 to 0.9"' in html

"""Impossible bars are refused, dropped or reported per symbol, the same in every command."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from artifacts import save_small_artifact, small_artifact, small_model, small_models
from market import PRICES, bokeh_panel, scaled, without_bars
from serving import hosted_server
from typer.testing import CliRunner

from predictor import Forecaster
from predictor.bars import BarPanel, read_file
from predictor.bars.suspects import (
    SuspectKind,
    find_suspects,
    find_unexplained_splits,
    find_untraded_cells,
    select_usable_bars,
)
from predictor.client import QuantraClient
from predictor.errors import BarsError, BarSuspectError, BarsWarning, format_price
from predictor.features import load_default_features
from predictor.forecast import Forecast
from predictor.instance import Instance
from trainers.cli.commands import app
from trainers.stock import StockRecipe
from trainers.stock.data import History
from trainers.stock.edges import fit_training_edges
from trainers.stock.model_fit import fit_pipeline

TICK: Final = ("high", "close", "adj_close")


def ibm() -> BarPanel:
    return bokeh_panel("IBM").last(400)


def with_repeated_closes(bars: BarPanel, symbol: str, days: int) -> BarPanel:
    """Bars whose last days repeat the previous close with a volume of 0."""
    columns = {name: getattr(bars, name).copy() for name in (*PRICES, "volume")}
    row, close, adjusted = bars.symbols.index(symbol), bars.close, bars.adj_close
    assert adjusted is not None
    for name in ("open", "high", "low", "close"):
        columns[name][row, -days:] = close[row, -days - 1]
    columns["adj_close"][row, -days:] = adjusted[row, -days - 1]
    columns["volume"][row, -days:] = 0
    return replace(bars, **columns)


def with_split(bars: BarPanel, ratio: float) -> BarPanel:
    """Bars with a recorded split that their prices do not show."""
    ratios = np.ones(bars.close.shape)
    ratios[0, 145] = ratio
    return replace(bars, adj_close=None, split_ratio=ratios)


LAST: Final = slice(-1, None)
MIDDLE: Final = slice(380, 381)


@pytest.fixture(scope="module")
def forecaster(tmp_path_factory: pytest.TempPathFactory) -> Forecaster:
    return Forecaster.load(save_small_artifact(tmp_path_factory.mktemp("model") / "1"))


def same(one: Forecast, other: Forecast) -> bool:
    return np.array_equal(one.values, other.values)


def test_a_last_bar_that_is_off_by_a_factor_of_100_is_refused_with_the_expected_range(forecaster: Forecaster) -> None:
    with pytest.raises(BarSuspectError, match="a factor of 100: a wrong unit or a bad tick") as refused:
        forecaster.predict(scaled(ibm(), LAST, 100, TICK))
    told = refused.value.metadata
    assert (told["symbol"], told["date"], told["field"], told["value"]) == ("IBM", "2013-03-01", "close", "20291.0")
    assert float(told["low"]) < 202.91 < float(told["high"]) < 300


def test_an_accepted_bar_is_forecast_with_a_warning(forecaster: Forecaster) -> None:
    forecast = forecaster.predict(Instance(input=scaled(ibm(), LAST, 100, TICK), accept_suspect_bars=True))
    assert "close is 20291" in forecast.warnings[0]
    assert forecast.anchor_price is not None
    assert forecast.anchor_price[0] == 20291


def test_the_other_symbols_are_answered_as_without_the_suspect_one(forecaster: Forecaster) -> None:
    good = bokeh_panel("AAPL", "GOOG", "IBM").last(400)
    forecast = forecaster.predict(scaled(good, LAST, 100, TICK))
    assert isinstance(forecast.refusals["IBM"], BarSuspectError)
    others = ["AAPL", "GOOG"]
    assert same(forecast.select(others), forecaster.predict(good).select(others))


@pytest.mark.slow
def test_the_server_refuses_and_accepts_alike(tmp_path: Path) -> None:
    bad = scaled(ibm(), LAST, 100, TICK)
    with (
        hosted_server(small_models(tmp_path / "models")) as server,
        QuantraClient(server.target, "small") as client,
    ):
        with pytest.raises(BarSuspectError, match="2013-03-01"):
            client.predict(bad)
        assert "close is 20291" in client.predict(Instance(input=bad, accept_suspect_bars=True)).warnings[0]


def test_a_suspect_bar_in_the_middle_is_left_out_and_named(forecaster: Forecaster) -> None:
    forecast = forecaster.predict(scaled(ibm(), MIDDLE, 100, TICK))
    assert any("2013-02-01: close is 20518" in line and line.endswith("It is left out.") for line in forecast.warnings)
    gone = np.zeros((1, 400), np.bool_)
    gone[0, MIDDLE] = True
    assert same(forecast, forecaster.predict(ibm().without_cells(gone)))


@pytest.mark.parametrize("symbol", ["AAPL", "GOOG", "IBM", "MSFT"])
def test_real_bars_raise_no_alarm(symbol: str) -> None:
    bars = bokeh_panel(symbol)
    assert find_suspects(bars) == ()
    assert select_usable_bars(bars) is bars


@pytest.mark.parametrize(
    ("bars", "kind", "says"),
    [
        (
            scaled(ibm(), slice(250, None), 0.01),
            SuspectKind.UNIT,
            "IBM: prices change by a factor of 100 on 2012-07-25: currency unit?",
        ),
        (
            scaled(ibm(), slice(200, 260), 7),
            SuspectKind.SPLIT,
            "IBM: prices change by a factor of 7 on 2012-05-14 and 2012-08-08: an unadjusted split of 7?",
        ),
        (
            scaled(ibm(), MIDDLE, 0.01, ("low",)),
            SuspectKind.BAR,
            "IBM 2013-02-01: low is 2.0384, but its other bars suggest",
        ),
        (
            scaled(ibm(), slice(0, 1), 100),
            SuspectKind.BAR,
            "IBM 2011-07-28: close is 18180, but its other bars suggest 151.4 to 218.4; a factor of 100",
        ),
        (
            scaled(ibm(), slice(-30, None), 1e-5, ("volume",)),
            SuspectKind.VOLUME,
            "IBM 2013-01-17, and 29 more days: volume is 38.816, but its other bars suggest",
        ),
        (
            scaled(ibm(), LAST, 100, ("adj_close",)),
            SuspectKind.BAR,
            "IBM: the adjusted close changes by a factor of 100 on 2013-03-01, the close does not: a wrong",
        ),
        (
            with_split(ibm(), 1e-9),
            SuspectKind.LEVEL,
            "IBM: the adjusted close changes by a factor of 9.99e+08 on 2012-02-24, the close does not: a",
        ),
    ],
    ids=["pence", "split", "low", "first bar", "volume", "adjusted close", "split ratio"],
)
def test_each_cause_has_its_question(bars: BarPanel, kind: SuspectKind, says: str) -> None:
    (found,) = find_suspects(bars)
    assert found.kind is kind
    assert str(found).startswith(says)


def test_a_level_that_changes_within_the_window_is_refused(forecaster: Forecaster) -> None:
    with pytest.raises(BarSuspectError, match=r"factor of 100 on 2013-02-01: currency unit"):
        forecaster.predict(scaled(ibm(), slice(-20, None), 0.01))


@pytest.mark.parametrize("factor", [3.5, 12])
def test_another_company_under_the_ticker_is_asked_about(factor: float) -> None:
    bars = scaled(ibm(), slice(250, None), factor)
    gone = np.zeros((1, 400), np.bool_)
    gone[0, 200:250] = True
    (found,) = find_suspects(bars.without_cells(gone))
    assert str(found).startswith("IBM: a gap of 52 weekdays before 2012-07-25 and a change of the level by a factor of")


def test_an_impossible_change_of_the_level_is_refused(forecaster: Forecaster) -> None:
    with pytest.raises(BarSuspectError, match="a wrong adjusted close, split or dividend"):
        forecaster.predict(with_split(ibm().last(200), 1e-9))


def test_a_volume_that_is_off_counts_as_unknown(forecaster: Forecaster) -> None:
    forecast = forecaster.predict(scaled(ibm(), LAST, 1e6, ("volume",)))
    (warning,) = forecast.warnings
    assert warning.startswith("IBM 2013-03-01: volume is 3.3083e+12, but its other bars suggest")
    assert warning.endswith("It is left out.")
    gone = np.zeros((1, 400), np.bool_)
    gone[0, LAST] = True
    assert same(forecast, forecaster.predict(ibm().without_volumes(gone)))


def test_the_last_volume_of_a_symbol_is_judged_also_if_others_have_later_bars() -> None:
    pair = bokeh_panel("AAPL", "IBM").last(400)
    ended = without_bars(scaled(pair, slice(-20, -10), 1e-6, ("volume",)), "IBM", slice(-10, None))
    alone = find_suspects(ended.select(["IBM"]))
    assert [(suspect.kind, len(suspect.sessions)) for suspect in alone] == [(SuspectKind.VOLUME, 10)]
    assert find_suspects(ended) == alone


def test_a_recorded_split_is_no_suspect() -> None:
    split = scaled(ibm(), slice(0, 390), 7, ("open", "high", "low", "close"))
    assert find_suspects(split) == ()


@pytest.mark.parametrize("days", [1, 3])
def test_a_forecast_starts_from_the_last_traded_session(forecaster: Forecaster, days: int) -> None:
    forecast = forecaster.predict(with_repeated_closes(ibm(), "IBM", days))
    before = forecaster.predict(ibm().until(int(ibm().sessions[-days - 1])))
    assert (forecast.as_of_session, same(forecast, before)) == (before.as_of_session, True)
    assert "no trade after" in forecast.warnings[0]


def test_a_symbol_without_trades_fails_alone(forecaster: Forecaster) -> None:
    good = bokeh_panel("AAPL", "IBM").last(400)
    forecast = forecaster.predict(with_repeated_closes(good, "IBM", 1))
    assert list(forecast.refusals) == ["IBM"]
    assert "did not trade on 2013-03-01" in forecast.refusals["IBM"].message
    np.testing.assert_allclose(forecast.values[0], forecaster.predict(good).values[0], rtol=1e-5)


def test_an_unchanged_price_with_a_volume_is_a_trade() -> None:
    bars = with_repeated_closes(ibm(), "IBM", 2)
    volume = bars.volume.copy()
    volume[0, -1] = 5
    assert find_untraded_cells(replace(bars, volume=volume))[0, -2:].tolist() == [True, False]


def test_an_index_without_volumes_trades_every_day() -> None:
    bars = replace(ibm(), volume=np.zeros((1, 400)))
    assert not find_untraded_cells(bars).any()


def test_training_leaves_suspect_bars_out_of_features_and_targets() -> None:
    pipeline = small_model(small_artifact()).pipeline
    bad = History(scaled(ibm(), MIDDLE, 100, TICK), pipeline)
    gone = np.zeros((1, 400), np.bool_)
    gone[0, MIDDLE] = True
    good = History(ibm().without_cells(gone), pipeline)
    assert np.array_equal(bad.labels, good.labels, equal_nan=True)
    assert bad.stored.observed.equal(good.stored.observed)


def test_a_suspect_bar_changes_neither_edges_nor_fitted_features() -> None:
    four, recipe = bokeh_panel("AAPL", "GOOG", "IBM", "MSFT").last(700), StockRecipe(calendar="XNYS")
    splits = recipe.splits(four.sessions)
    bad, gone = scaled(four, slice(200, 201), 100, TICK), np.zeros(four.close.shape, np.bool_)
    gone[2, 200] = True
    good = four.without_cells(gone)
    edges = [fit_training_edges(bars, int(four.sessions[400]), neighbours=2) for bars in (bad, good)]
    assert edges[0].weights.equal(edges[1].weights)
    fits = [fit_pipeline(bars, load_default_features(), recipe, splits).features for bars in (bad, good)]
    assert fits[0].schema_hash == fits[1].schema_hash


def test_check_names_suspect_bars_once(tmp_path: Path) -> None:
    path = tmp_path / "bars.csv"
    replace(scaled(ibm(), MIDDLE, 100, ("high", "close")), adj_close=None).write_csv(path)
    ran = CliRunner().invoke(app, ["check", str(path), "--calendar", "XNYS", "--json"], catch_exceptions=False)
    (symbol,) = json.loads(ran.stdout)["symbols"]
    assert [line[:32] for line in symbol["suspect_bars"]] == ["IBM 2013-02-01: close is 20518, "]
    assert not [line for line in symbol["suspected_splits"] if "2013-02-01" in line]


def write_rows(path: Path, rows: Sequence[str]) -> Path:
    """A file with a sound bar of IBM, MSFT and AAPL, and these rows."""
    sound = [f"{symbol},2024-01-02,1,1,1,1,1" for symbol in ("IBM", "MSFT", "AAPL")]
    path.write_text("\n".join(["symbol,date,open,high,low,close,volume", *sound, *rows]), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("bar", "reason"),
    [
        ("2099-01-02,1,1,1,1,1", "IBM: session 2099-01-02 is in the future: today is .*; check its year"),
        ("2024-01-03,1,1,2,2,1", "IBM 2024-01-03: open is 1, but it must not be below the low, 2"),
        ("2024-01-03,1,1,1,x,1", "row 4 after the header, column close: 'x' is not a number"),
    ],
)
def test_a_symbol_with_an_impossible_bar_is_left_out(bar: str, reason: str, tmp_path: Path) -> None:
    with pytest.warns(BarsWarning, match=f"{reason}.*; IBM is left out$"):
        bars = BarPanel.read(write_rows(tmp_path / "bars.csv", [f"IBM,{bar}", "MSFT,2024-01-04,1,1,1,1,1"]))
    assert bars.symbols == ("MSFT", "AAPL")
    assert bars.sessions.tolist() == [20240102, 20240104]


def test_bars_are_refused_if_most_symbols_have_one_in_the_future(tmp_path: Path) -> None:
    rows = [f"{symbol},2099-01-02,1,1,1,1,1" for symbol in ("IBM", "AAPL")]
    with pytest.raises(BarsError, match=r"^IBM, AAPL: session 2099-01-02 is in the future"):
        BarPanel.read(write_rows(tmp_path / "bars.csv", rows))


def test_later_messages_about_a_file_with_a_garbled_cell_name_its_rows(tmp_path: Path) -> None:
    rows = ["IBM,2024-01-03,1,1,1,x,1", "MSFT,2024-01-03,1,1,1,1,1", "MSFT,2024-01-03,1,2,1,1,1"]
    with pytest.raises(BarsError, match="in rows 5 and 6 after the header with high 1 and 2"):
        BarPanel.read(write_rows(tmp_path / "bars.csv", rows))


def test_a_file_is_refused_if_most_symbols_have_a_garbled_cell(tmp_path: Path) -> None:
    rows = [f"{symbol},2024-01-03,1,1,1,x,1" for symbol in ("IBM", "AAPL")]
    with pytest.raises(BarsError, match=r"row 4 after the header, column close: 'x' is not a number$"):
        BarPanel.read(write_rows(tmp_path / "bars.csv", rows))


def test_closes_of_another_adjustment_are_named_as_the_cause() -> None:
    with pytest.raises(BarsError, match=r"outside low and high on 400 of 400 days: if open, high and low are adjusted"):
        scaled(ibm(), slice(None), 7, ("close",))


def test_exchanged_columns_are_named_as_the_cause() -> None:
    bars = ibm()
    with pytest.raises(BarsError, match=r"the high is below the low on \d+ of 400 days: exchange the columns high and"):
        replace(bars, high=bars.low, low=bars.high)


@pytest.mark.parametrize(
    ("price", "shown"), [(1.234e-5, "0.00001234"), (0.5, "0.5000"), (202.94, "202.94"), (0, "0.00")]
)
def test_prices_below_one_are_shown_with_significant_digits(price: float, shown: str) -> None:
    assert format_price(price) == shown


def test_a_forecast_of_an_earlier_day_is_the_one_that_day_would_have_given(tmp_path: Path) -> None:
    artifact, path = save_small_artifact(tmp_path / "model" / "1"), tmp_path / "bars.csv"
    bokeh_panel("IBM").last(400).write_csv(path)
    command = ["predict", "--artifact", str(artifact), "--bars", str(path), "--json", "--as-of", "2012-10-28"]
    ran = CliRunner().invoke(app, command, catch_exceptions=False)
    told = json.loads(ran.stdout)
    with Forecaster.load(artifact) as model:
        before = model.predict(BarPanel.read(path, calendar="XNYS").until("2012-10-26"))
    assert told["as_of_session"] == 20121026
    assert np.array_equal(np.array(told["values"]), before.values)


def test_a_forecast_of_a_day_in_the_future_is_refused(tmp_path: Path) -> None:
    artifact, path = save_small_artifact(tmp_path / "model" / "1"), tmp_path / "bars.csv"
    ibm().write_csv(path)
    ran = CliRunner().invoke(
        app, ["predict", "--artifact", str(artifact), "--bars", str(path), "--as-of", "2099-01-01"]
    )
    assert "--as-of: session 2099-01-01 is in the future" in str(ran.exception)


def test_a_split_among_the_suspects_counts_no_second_time_however_many_prices_jump() -> None:
    pair = replace(bokeh_panel("AAPL", "IBM").last(400), adj_close=None)
    for place in range(20, 220, 20):
        pair = scaled(pair, slice(place, None), 1.5, symbol="AAPL")
    before = find_unexplained_splits(pair).count
    split = scaled(pair, slice(390, None), 10)
    assert [suspect.kind for suspect in find_suspects(split)] == [SuspectKind.UNIT]
    assert before >= 10
    assert find_unexplained_splits(split).count == before


def test_one_bad_bar_is_no_suspected_split(tmp_path: Path) -> None:
    path = tmp_path / "bars.csv"
    replace(scaled(ibm(), MIDDLE, 100, ("high", "close")), adj_close=None).write_csv(path)
    assert "suspected" not in str(read_file(path))


def test_a_last_move_that_is_possible_but_unusual_is_named(forecaster: Forecaster) -> None:
    forecast = forecaster.predict(scaled(ibm(), LAST, 4))
    (warning,) = forecast.warnings
    assert warning == "IBM: prices change by a factor of 4.05 on 2013-03-01: a real move, or a wrong bar?"


def test_an_error_names_three_changes_and_counts_the_others(forecaster: Forecaster) -> None:
    swinging = scaled(ibm(), slice(0, None, 2), 100)
    with pytest.raises(BarSuspectError, match=r"more such changes\. Correct the bars") as refused:
        forecaster.predict(swinging)
    assert refused.value.message.count("currency unit?") == 3

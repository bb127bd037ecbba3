"""Joint price paths: their distribution, dependence and statistics."""

import asyncio
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from artifacts import save_small_artifact, small_artifact, small_model
from market import PRICES, bokeh_panel, scaled, without_bars
from pages import assert_loads_nothing, page_of
from request_bytes import flat_window
from serving import serving
from typer.testing import CliRunner

from predictor.bars import BarPanel
from predictor.cli.commands import app
from predictor.client import AsyncQuantraClient, QuantraClient
from predictor.errors import DeadlineExceededError, InvalidInputError, TooFewBarsError, UnknownHorizonError
from predictor.forecast import Forecast
from predictor.forecaster import Forecaster
from predictor.networks import Target, TargetKind
from predictor.price_paths import MIN_DAYS, PathQuestions, PricePaths, simulate_paths
from predictor.registry import ModelVersions, Registry
from predictor.report.paths import write_paths_page
from predictor.service import PredictionService

SYMBOLS = ("AAPL", "IBM", "MSFT")
PATHS = 1000


@cache
def bars() -> BarPanel:
    return bokeh_panel(*SYMBOLS).last(1500)


@cache
def forecast() -> Forecast:
    return Forecaster.of(small_model(small_artifact())).predict(bars())


@cache
def simulated() -> PricePaths:
    return simulate_paths(forecast(), bars(), paths=PATHS, seed=1)


def test_the_paths_have_the_quantiles_of_the_forecast() -> None:
    quantiles = forecast().returns
    assert quantiles is not None
    for h, day in enumerate(forecast().horizons):
        below = (simulated().returns[:, :, day - 1, None] <= quantiles[None, :, h]).mean(axis=0)
        assert np.abs(below - forecast().quantiles).max() <= 1 / PATHS


def test_beyond_the_outer_quantiles_paths_are_stretched_like_the_past() -> None:
    quantiles = forecast().returns
    assert quantiles is not None
    outer = quantiles[0, -1, -1] - quantiles[0, -1, 0]
    wide = replace(forecast(), returns=quantiles * 2)
    ends = simulated().returns[:, 0, -1], simulate_paths(wide, bars(), paths=PATHS, seed=1).returns[:, 0, -1]
    beyond = [quantiles[0, -1, 0] - ends[0].min(), 2 * quantiles[0, -1, 0] - ends[1].min()]
    assert beyond[0] > 0.2 * outer
    assert beyond[1] == pytest.approx(2 * beyond[0])


def test_symbols_move_together_as_in_the_past() -> None:
    past = np.diff(np.log(bars().adjusted().close), axis=1)
    together = np.corrcoef(past)
    made = np.corrcoef(np.diff(simulated().returns, axis=2)[:, :, :4].transpose(1, 0, 2).reshape(3, -1))
    assert np.abs(made - together).max() < 0.12
    assert together[0, 1] > 0.3


def test_a_path_moves_on_every_day() -> None:
    steps = np.diff(simulated().returns, axis=2).std(axis=0)
    assert steps.min() > 0.2 * steps.mean()


def test_the_same_seed_gives_the_same_bits() -> None:
    again = simulate_paths(forecast(), bars(), paths=PATHS, seed=1)
    other = simulate_paths(forecast(), bars(), paths=PATHS, seed=2)
    assert np.array_equal(again.returns, simulated().returns)
    assert not np.array_equal(other.returns, simulated().returns)


@pytest.mark.parametrize("most", [0, 1, 2])
def test_an_expired_deadline_ends_the_simulation_at_its_next_step(most: int) -> None:
    passed: list[None] = []

    def check() -> None:
        if len(passed) == most:
            raise DeadlineExceededError("too late")
        passed.append(None)

    with pytest.raises(DeadlineExceededError, match="too late"):
        simulate_paths(forecast(), bars(), paths=10, check=check)


def test_prices_before_a_split_do_not_matter() -> None:
    factor = np.where(np.arange(1500) < 900, 4.0, 1.0)
    before = replace(bars(), **{name: getattr(bars(), name) * factor for name in ("open", "high", "low", "close")})
    assert np.array_equal(simulate_paths(forecast(), before, paths=PATHS, seed=1).returns, simulated().returns)


@pytest.mark.parametrize("days", [1, 2])
def test_a_past_of_a_day_or_two_is_refused(days: int) -> None:
    with pytest.raises(TooFewBarsError, match="has 0 past paths, need 250"):
        simulate_paths(forecast(), bars().last(days), paths=50)


def test_a_young_symbol_is_refused_alone() -> None:
    young = without_bars(bars(), "IBM", slice(-MIN_DAYS - 30))
    found = simulate_paths(forecast(), young, paths=50)
    assert found.symbols == ("AAPL", "MSFT")
    assert isinstance(found.refusals["IBM"], TooFewBarsError)
    assert "IBM: has 220 past paths, need 250; give a longer history" in found.refusals["IBM"].message
    with pytest.raises(InvalidInputError, match="IBM has no paths: IBM: has 220 past paths"):
        found.profits({"IBM": 1.0}, 5)


def test_symbols_without_a_common_past_are_not_joined() -> None:
    half = len(bars().sessions) // 2
    late = without_bars(bars(), "IBM", slice(half + 10))
    early = without_bars(late, "MSFT", slice(half - 60, -80))
    found = simulate_paths(forecast(), early, paths=50)
    (refused,) = found.refusals
    assert "past days with the others, need 250; simulate it separately" in found.refusals[refused].message


def test_days_around_a_missing_bar_give_no_path() -> None:
    gap = without_bars(bars(), "AAPL", slice(700, 701))
    days = max(forecast().horizons)
    assert simulated().past_days - simulate_paths(forecast(), gap, paths=50).past_days == days + 1


def test_no_path_starts_late_in_a_long_halt() -> None:
    prices = {name: getattr(bars(), name).copy() for name in PRICES}
    for values in prices.values():
        values[1, 800:1100] = values[1, 799]
    found = simulate_paths(forecast(), replace(bars(), **prices), paths=PATHS)
    assert found.past_days < simulated().past_days
    assert np.abs(found.returns).max() < 1.5 * np.abs(simulated().returns).max()


@pytest.mark.parametrize("paths", [1, 2])
def test_a_few_paths_have_ranges(paths: int) -> None:
    found = simulate_paths(forecast(), bars(), paths=paths).value_at_risk({"IBM": 1.0}, 5)
    assert found.lower <= found.value <= found.upper


def test_a_bad_tick_of_the_past_gives_no_path() -> None:
    tick = scaled(bars(), slice(700, 701), 100.0, PRICES, symbol="AAPL")
    gap = without_bars(bars(), "AAPL", slice(700, 701))
    found, expected = (simulate_paths(forecast(), panel, paths=200, seed=1) for panel in (tick, gap))
    assert found.past_days == expected.past_days
    assert np.array_equal(found.returns, expected.returns)


def test_a_change_of_the_level_gives_no_path() -> None:
    cents = scaled(bars(), slice(700), 100.0, PRICES, symbol="AAPL")
    found = simulate_paths(forecast(), cents, paths=200, seed=1)
    assert 0 < simulated().past_days - found.past_days <= 2 * (max(forecast().horizons) + 1)
    assert np.abs(found.returns).max() < 1


def test_a_refused_symbol_of_the_forecast_is_left_out() -> None:
    error = InvalidInputError("halted")
    found = simulate_paths(replace(forecast(), refusals={"IBM": error}), bars(), paths=50)
    assert found.symbols == ("AAPL", "MSFT")
    assert found.refusals["IBM"] is error


def test_sessions_of_refused_symbols_alone_do_not_matter() -> None:
    refused = replace(forecast(), refusals={"IBM": InvalidInputError("IBM: its last bar is in the future")})
    day = int(bars().sessions[-1]) + 1
    later = bars().on_sessions(np.append(bars().sessions, day))
    found = simulate_paths(refused, later, paths=50)
    assert np.array_equal(found.returns, simulate_paths(refused, bars(), paths=50).returns)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: simulate_paths(forecast(), bars().until(20130201)), "the bars end on 2013-02-01, but those of"),
        (lambda: simulate_paths(forecast(), bars(), paths=0), "paths is 0, but must be 1 to 100,000"),
        (lambda: simulate_paths(forecast(), bars(), paths=100_001), "paths is 100001"),
        (lambda: simulate_paths(replace(forecast(), lag=1), bars()), "need a model of log returns without a lag"),
        (lambda: simulate_paths(replace(forecast(), returns=None), bars()), "need a model of log returns"),
        (lambda: simulated().profits({}, 5), "give the value of at least one position"),
        (lambda: simulated().profits({"AAPL": 0.0}, 5), "all holdings are 0; give the value of at least one position"),
        (lambda: simulated().profits({"AAPL": float("nan")}, 5), "the holding of AAPL is nan; give a value of at most"),
        (lambda: simulated().profits({"AAPL": -1e308}, 5), "the holding of AAPL is -1e.308; give a value of at most"),
        (lambda: simulated().profits({"X": 1.0}, 5), "there are no paths of X; there are paths of AAPL, IBM, MSFT"),
        (lambda: simulated().value_at_risk({"IBM": 1.0}, 5, 99), "level 99 is not between 0 and 1; 0.99 means 99 %"),
        (lambda: simulated().answer(PathQuestions(level=99)), "level 99 is not between 0 and 1"),
        (lambda: simulated().probability_above("IBM", -1.0, 5), "price -1 is not above 0"),
    ],
)
def test_an_impossible_request_is_refused(made: object, message: str) -> None:
    assert callable(made)
    with pytest.raises(InvalidInputError, match=message):
        made()


@pytest.mark.parametrize("day", [0, 21])
def test_a_day_beyond_the_horizons_is_refused(day: int) -> None:
    with pytest.raises(UnknownHorizonError, match=f"day {day} is not simulated; use 1 to 20"):
        simulated().profits({"IBM": 1.0}, day)


def test_value_at_risk_is_the_loss_at_the_forecasts_quantile() -> None:
    quantiles = forecast().returns
    assert quantiles is not None
    lowest = quantiles[1, 1, 0]  # 10 % of the returns over 5 sessions of IBM are lower
    found = simulated().value_at_risk({"IBM": 1000.0}, 5, 0.9)
    assert found.value == pytest.approx(-1000 * np.expm1(lowest), rel=0.01)
    assert found.lower < found.value < found.upper


def test_a_short_position_loses_when_prices_rise() -> None:
    profits = simulated().profits({"IBM": -1000.0}, 5)
    assert np.array_equal(profits, -simulated().profits({"IBM": 1000.0}, 5))


def test_expected_shortfall_is_the_mean_of_the_worst_paths() -> None:
    profits = np.sort(simulated().profits({"AAPL": 500.0, "IBM": 500.0}, 20))
    found = simulated().expected_shortfall({"AAPL": 500.0, "IBM": 500.0}, 20, 0.95)
    assert found.value == pytest.approx(-profits[:50].mean())
    assert found.value > simulated().value_at_risk({"AAPL": 500.0, "IBM": 500.0}, 20, 0.95).value


def test_a_drawdown_is_the_largest_loss_from_a_high() -> None:
    returns = np.log(np.array([[[1.1, 0.99, 1.2, 1.08]]]))
    one = replace(simulated(), symbols=("AAPL",), returns=returns, anchor_price=np.array([100.0]))
    assert one.drawdowns({"AAPL": 50.0}, 4).tolist() == pytest.approx([0.12])
    assert one.drawdowns({"AAPL": 50.0}, 1).tolist() == [0.0]
    assert one.drawdowns({"AAPL": -50.0}, 3).tolist() == pytest.approx([0.21])


def test_half_of_the_closes_are_above_the_median() -> None:
    prices = forecast().prices
    assert prices is not None
    found = simulated().probability_above("MSFT", float(prices[2, 2, 1]), 10)
    assert found.value == pytest.approx(0.5, abs=2 / PATHS)
    assert found.lower < 0.5 < found.upper


@pytest.mark.parametrize("factor", [0.97, 1.03])
def test_a_price_is_touched_by_any_close(factor: float) -> None:
    price = factor * float(simulated().anchor_price[0])
    closes = simulated().prices[:, 0, :10]
    touched = (closes <= price).any(axis=1) if factor < 1 else (closes >= price).any(axis=1)
    assert simulated().probability_touched("AAPL", price, 10).value == pytest.approx(touched.mean())


def test_ranges_come_from_other_days_of_the_past() -> None:
    values = np.where(simulated().origins < simulated().past_days // 2, 1.0, 0.0)
    found = simulated().estimate(values, lambda drawn: float(drawn.mean()))
    assert found.upper - found.lower == pytest.approx(2 * 1.645 * 0.5 / np.sqrt(simulated().past_days / 20), rel=0.5)


def test_returns_are_a_frame_of_paths_and_symbols() -> None:
    frame = simulated().to_frame(5)
    assert (frame.shape, [*frame.columns]) == ((PATHS, 3), [*SYMBOLS])
    assert np.array_equal(frame["IBM"].to_numpy(), np.expm1(simulated().returns[:, 1, 4]))


async def simulate_asynchronously(target: str) -> PricePaths:
    async with AsyncQuantraClient(target) as client:
        return await client.simulate(bars(), paths=PATHS, seed=1)


def test_a_picture_has_the_paths_of_a_symbol() -> None:
    text = simulated().to_svg("IBM").decode()
    assert all(words in text for words in ("IBM: small@1, as of 2013-03-01", "50 of 1,000 paths", "median"))
    assert simulated().to_png() == simulated().to_png("AAPL")
    assert simulated().to_png().startswith(b"\x89PNG")
    with pytest.raises(InvalidInputError, match="no paths of MSFTX"):
        simulated().to_png("MSFTX")


def test_every_door_gives_the_same_paths() -> None:
    model = small_model(small_artifact())
    registry = Registry(models={model.identity.name: ModelVersions.of(model)}, problems=())
    with PredictionService(registry) as service, serving(service) as served, QuantraClient(served.target) as client:
        over_grpc = client.simulate(bars(), paths=PATHS, seed=1)
        asynchronous = asyncio.run(simulate_asynchronously(served.target))
    here = Forecaster.of(model).simulate(bars(), paths=PATHS, seed=1)
    assert np.array_equal(over_grpc.returns, here.returns)
    assert np.array_equal(asynchronous.returns, here.returns)
    assert np.array_equal(here.returns, simulated().returns)


def test_windows_have_no_past() -> None:
    with pytest.raises(InvalidInputError, match="paths need bars, but the input has feature windows"):
        Forecaster.of(small_model(small_artifact())).simulate(flat_window())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("paths")
    artifact = save_small_artifact(folder / "small" / "1")
    columns = ("open", "high", "low", "close", "volume", "adj_close")
    rows = [
        ",".join(map(str, (symbol, day, *(getattr(bars(), name)[s, t] for name in columns))))
        for s, symbol in enumerate(SYMBOLS)
        for t, day in enumerate(bars().sessions.tolist())
    ]
    (folder / "bars.csv").write_text("\n".join((",".join(("symbol", "date", *columns)), *rows)))
    return "--artifact", str(artifact), "--bars", str(folder / "bars.csv")


def test_the_command_prints_what_the_library_says(files: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "paths.parquet"
    flags = ("--holding", "IBM=1000", "--price", "AAPL=440", "--seed", "3", "--paths", "200", "--day", "10")
    done = CliRunner().invoke(app, ["paths", *files, *flags, "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    written = pl.read_parquet(out)
    assert written.height == 200 * 3 * 20
    losses = 1000 - 1000 * np.exp(written.filter(symbol="IBM", day=10)["log_return"].to_numpy())
    assert found["risk"]["value_at_risk"]["value"] == pytest.approx(np.quantile(losses, 0.99))
    above = (written.filter(symbol="AAPL", day=10)["price"] > 440).mean()
    assert found["prices"]["AAPL"]["above"]["value"] == pytest.approx(above)
    assert found["warnings"] == []


def test_the_command_says_where_its_paths_come_from(files: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["paths", *files, "--holding", "IBM=1000", "--price", "AAPL=440"])
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert "1,000 paths from 1,440 past days, about 72 of them independent" in text
    assert "value at risk, 99 %" in text


def test_the_command_writes_a_page_of_the_holdings_and_each_symbol(files: tuple[str, ...], tmp_path: Path) -> None:
    report = tmp_path / "paths.html"
    flags = ("--holding", "IBM=1000", "--seed", "3", "--day", "10", "--report", str(report), "--json")
    done = CliRunner().invoke(app, ["paths", *files, *flags])
    assert done.exit_code == 0, done.output
    risk = json.loads(done.stdout)["risk"]
    text = report.read_text("utf-8")
    assert_loads_nothing(text)
    words = page_of(text).words
    value, lower, upper = (risk["value_at_risk"][name] for name in ("value", "lower", "upper"))
    assert f"Value at risk, 99 %: {value:,.2f} ({lower:,.2f} to {upper:,.2f})." in words
    for symbol in SYMBOLS:
        assert f"Within 10 sessions, {symbol} closes below an earlier close by at most" in words


def test_a_page_of_many_symbols_names_the_first_ones(files: tuple[str, ...], tmp_path: Path) -> None:
    source, lines = Path(files[-1]), Path(files[-1]).read_text().splitlines()
    apple = [line.removeprefix("AAPL") for line in lines if line.startswith("AAPL")]
    many = source.with_name("many.csv")
    many.write_text("\n".join([lines[0], *(f"S{n}{line}" for n in range(8) for line in apple)]))
    report = tmp_path / "paths.html"
    done = CliRunner().invoke(app, ["paths", *files[:-1], str(many), "--paths", "9", "--report", str(report)])
    assert done.exit_code == 0, done.output
    assert "Price paths of S0, S1, S2, S3, S4 and 3 more" in page_of(report.read_text("utf-8")).words


@pytest.mark.slow
def test_a_page_of_200_symbols_stays_below_2_mb_and_has_the_numbers_of_each(tmp_path: Path) -> None:
    columns = ("open", "high", "low", "close", "volume", "adj_close")
    repeated = {name: np.tile(getattr(bars(), name)[:1], (200, 1)) for name in columns}
    many = replace(bars(), symbols=tuple(f"NAME{k:03d}" for k in range(200)), **repeated)
    made = Forecaster.of(small_model(small_artifact())).predict(many)
    found = simulate_paths(made, many, paths=100, seed=1)
    answers = found.answer(PathQuestions(day=0, level=0.99, holdings={}, prices=()))
    report = tmp_path / "paths.html"
    write_paths_page(report, found, many, made, holdings={}, answers=answers, level=0.99)
    assert report.stat().st_size < 2e6
    words = page_of(report.read_text("utf-8")).words
    assert words.count("closes below an earlier close by at most") == 200
    assert "The first 60 of 200 symbols have charts, the others only their numbers." in words


def test_the_command_warns_once_of_a_symbol_without_a_forecast(files: tuple[str, ...]) -> None:
    source = Path(files[-1])
    young = [f"YOUNG{line[4:]}" for line in source.read_text().splitlines() if line.startswith("AAPL")][-5:]
    longer = source.with_name("young.csv")
    longer.write_text("\n".join((source.read_text(), *young)))
    done = CliRunner().invoke(app, ["paths", *files[:-1], str(longer), "--paths", "1"])
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert text.count("have 5 bars") == 1
    assert "1 path from" in text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--holding", "IBM"), "'IBM' is not SYMBOL=NUMBER, such as AAPL=1000"),
        (("--holding", "IBM=1", "--holding", "IBM=2"), "--holding names IBM twice"),
        (("--out", "paths.xlsx"), "paths.xlsx has no ending .parquet or .csv"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(files: tuple[str, ...], flags: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(app, ["paths", *files, *flags])
    assert done.exit_code == 2
    assert message in " ".join(done.output.replace("│", "").split())


def test_a_volatility_model_has_no_paths() -> None:
    model = small_model(small_artifact(target=Target(kind=TargetKind.LOG_VOLATILITY, lag=0, horizons=(1, 5))))
    with pytest.raises(InvalidInputError, match="forecasts log-volatility with a lag of 0; paths need"):
        Forecaster.of(model).simulate(bars())

"""Seven-day bars as Binance exports them: from the file to a forecast for a Sunday."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from serving import serving

from predictor.bars import BarPanel, read_file
from predictor.cli.program import run
from predictor.client import QuantraClient
from predictor.dates import is_weekend, to_date_number
from predictor.errors import BarIncompleteError, BarsError, ConfigurationError, SessionGapError
from predictor.inference import choose_device
from predictor.registry import ModelsFolder, Runtime
from predictor.service import PredictionService
from predictor.sessions import SessionCalendar
from trainers.cli.commands import app
from trainers.stock import model_fit
from trainers.stock.bar_requirements import check_sessions

# exchange-calendars still uses what newer releases of pandas deprecate
pytestmark = pytest.mark.filterwarnings("ignore:Series.values:DeprecationWarning")

FIRST: Final = date(2023, 1, 1)
LEARNT: Final = 420
DAYS: Final = 560
FRIDAY: Final = 20240223
LAST: Final = 20240713
"""Last day of the file, a Saturday."""
MIDNIGHT: Final = datetime(2024, 7, 14, tzinfo=UTC)
"""End of that Saturday's session."""
TINY: Final = ("--hidden", "4", "--epochs", "1", "--horizons", "1,2,3", "--encoder-length", "10", "--device", "cpu")

FEW: Final = SessionCalendar.every_day(20240101, 20240331)
NYSE: Final = SessionCalendar.from_exchange("XNYS", 20240101, 20240331)


def klines(days: int) -> str:
    """Bars as Binance exports them: a random walk without gaps."""
    rng = np.random.default_rng(5)
    closes = 42_000 * np.exp(np.cumsum(0.02 * rng.standard_normal(days)))
    opens = np.concatenate([[42_000.0], closes[:-1]])
    highs, lows = 1.01 * np.maximum(opens, closes), 0.99 * np.minimum(opens, closes)
    begin = int(datetime(FIRST.year, FIRST.month, FIRST.day, tzinfo=UTC).timestamp()) * 1000
    moments = [begin + 86_400_000 * day for day in range(days)]
    prices = (",".join(f"{price:.2f}" for price in bar) for bar in zip(opens, highs, lows, closes, strict=True))
    volumes = 1000 * np.exp(0.3 * rng.standard_normal(days))
    return "".join(
        f"{at},{bar},{volume:.5f},{at + 86_399_999},1.0,9,1.0,1.0,0\n"
        for at, bar, volume in zip(moments, prices, volumes, strict=True)
    )


def quantra(arguments: Sequence[str | Path]) -> int:
    """Run the program and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        run(app, [str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int | None)
    return ended.value.code or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinModel:
    """A model of a coin."""

    models: Path
    name: str
    file: Path
    """Number of days, including unseen ones."""

    @property
    def artifact(self) -> Path:
        return self.models / self.name / "1"

    @property
    def bars(self) -> BarPanel:
        """Bars of all days."""
        return read_file(self.file).panel


@pytest.fixture(scope="module")
def coin_model(tmp_path_factory: pytest.TempPathFactory) -> CoinModel:
    """A model trained by the command line on the first days of a file."""
    folder = tmp_path_factory.mktemp("crypto")
    made = CoinModel(models=folder / "models", name="coin", file=folder / "all" / "BTCUSDT.csv")
    made.file.parent.mkdir()
    made.file.write_text(klines(DAYS))
    learnt = folder / "BTCUSDT.csv"
    learnt.write_text(klines(LEARNT))
    assert quantra(["train", "stock", "--bars", learnt, "--calendar", "24/7", "--out", made.artifact, *TINY]) == 0
    return made


class Clock:
    """A clock with a fixed time."""

    def __init__(self) -> None:
        self.now = MIDNIGHT

    def __call__(self) -> datetime:
        return self.now


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A client and its server's clock."""

    client: QuantraClient
    clock: Clock


@pytest.fixture(scope="module")
def served_model(coin_model: CoinModel) -> Iterator[ServedModel]:
    registry, clock = ModelsFolder(coin_model.models, Runtime(choose_device("cpu"), 256), None).open(), Clock()
    with (
        PredictionService(registry, clock=clock) as service,
        serving(service) as served,
        QuantraClient(served.target) as client,
    ):
        yield ServedModel(client, clock)


def predicted(made: CoinModel, file: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The command line's forecast for a file."""
    capsys.readouterr()
    assert quantra(["predict", "--artifact", made.artifact, "--bars", file, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# --- from a file to a forecast


def test_the_check_of_a_file_compares_it_with_every_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "BTCUSDT.csv"
    rows = klines(300).splitlines(keepends=True)
    file.write_text("".join(rows[:100] + rows[101:]))
    assert quantra(["check", file, "--calendar", "24/7", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["calendar"] == "24/7"
    assert "20230411" in json.dumps(told)  # the only missing day
    assert "20230415" not in json.dumps(told)  # a Saturday with a bar


@pytest.mark.slow
def test_a_forecast_is_of_saturdays_and_sundays_too(
    coin_model: CoinModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    friday = tmp_path / coin_model.file.name
    known = int(np.searchsorted(coin_model.bars.sessions, FRIDAY)) + 1
    friday.write_text(klines(known))
    told = predicted(coin_model, friday, capsys)
    assert told["as_of_session"] == FRIDAY
    assert told["target_sessions"] == [20240224, 20240225, 20240226]  # Saturday, Sunday, Monday


@pytest.mark.slow
def test_the_features_of_alpha158_are_of_every_day_too(
    coin_model: CoinModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learnt, artifact = coin_model.models.parent / "BTCUSDT.csv", tmp_path / "alpha" / "1"
    options = ["--calendar", "24/7", "--features", "alpha158", "--out", artifact]
    assert quantra(["train", "stock", "--bars", learnt, *options, *TINY]) == 0
    told = predicted(replace(coin_model, models=tmp_path, name="alpha"), learnt, capsys)
    assert told["as_of_session"] == FRIDAY + 1
    assert told["target_sessions"] == [20240225, 20240226, 20240227]  # Sunday, Monday, Tuesday
    assert np.isfinite(told["values"]).all()


@pytest.mark.slow
def test_a_session_ends_at_midnight_utc_and_not_before(coin_model: CoinModel, served_model: ServedModel) -> None:
    served_model.clock.now = MIDNIGHT - timedelta(seconds=1)
    with pytest.raises(BarIncompleteError, match="2024-07-13 has not closed yet"):
        served_model.client.predict(coin_model.bars)
    served_model.clock.now = MIDNIGHT
    assert served_model.client.predict(coin_model.bars).target_sessions == tuple(
        date(2024, 7, day) for day in (14, 15, 16)
    )


@pytest.mark.slow
def test_a_session_of_pushed_bars_goes_through_a_weekend(coin_model: CoinModel, served_model: ServedModel) -> None:
    served_model.clock.now, bars = MIDNIGHT, coin_model.bars
    with served_model.client.open_session(bars.until(20240712)) as session:
        pushed = session.push(bars.between(LAST, LAST))
    assert getattr(pushed, "forecast_id", None) == served_model.client.predict(bars).forecast_id


@pytest.mark.slow
def test_server_and_command_line_give_the_same_numbers(
    coin_model: CoinModel, served_model: ServedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    served_model.clock.now = MIDNIGHT
    told, forecast = predicted(coin_model, coin_model.file, capsys), served_model.client.predict(coin_model.bars)
    assert told["target_sessions"] == [to_date_number(day) for day in forecast.target_sessions]
    np.testing.assert_array_equal(np.asarray(told["values"]), forecast.values)


@pytest.mark.slow
def test_bars_of_a_working_week_are_told_that_they_need_another_model(
    coin_model: CoinModel, served_model: ServedModel
) -> None:
    served_model.clock.now = MIDNIGHT
    with pytest.raises(SessionGapError, match="bars of Monday to Friday need a model that was trained with their"):
        served_model.client.predict(at(coin_model.bars, ~is_weekend(coin_model.bars.sessions)))


@pytest.mark.slow
def test_the_calendar_is_shown_and_days_after_the_training_are_judged_and_traded(
    coin_model: CoinModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert quantra(["inspect", coin_model.artifact]) == 0
    assert "24/7, ends 2029-02-28; for bars after that day, train again" in capsys.readouterr().out
    assert quantra(["evaluate", coin_model.artifact, "--bars", coin_model.file]) == 0
    span = ["--start", "2024-03-01", "--end", "2024-06-30", "--horizon", "1", "--strategy", "vol-target"]
    assert quantra(["backtest", coin_model.artifact, "--bars", coin_model.file, *span, "--out", tmp_path / "run"]) == 0
    written = json.loads((tmp_path / "run" / "backtest.json").read_text())
    assert written["terms"]["sessions_a_year"] == 365
    assert written["sharpe"].startswith("sqrt(365) x mean")
    net, book = written["table"][0]["net"], np.asarray(written["tracks"][0]["net"])
    assert net["annual_volatility"] == pytest.approx(book.std() * 365**0.5)
    assert net["sharpe"] == pytest.approx(book.mean() / book.std() * 365**0.5)
    assert {20240302, 20240303} <= set(written["tracks"][0]["sessions"])  # a Saturday and a Sunday


# --- wrong calendars and advice


def at(bars: BarPanel, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> BarPanel:
    """The bars on some days."""
    columns = {name: getattr(bars, name)[:, rows] for name in ("open", "high", "low", "close", "volume")}
    return replace(bars, sessions=bars.sessions[rows], **columns)


def flat_bars(calendar: SessionCalendar, *symbols: str) -> BarPanel:
    """Flat bars on each session of a calendar."""
    sessions = calendar.sessions(20240103, 20240320)
    flat = np.ones((len(symbols), len(sessions)))
    return BarPanel(symbols=symbols, sessions=sessions, open=flat, high=flat, low=flat, close=flat, volume=flat)


@pytest.mark.parametrize("name", ["XNYS", "weekdays", ""])
def test_weekends_need_the_calendar_that_the_message_names(name: str) -> None:
    bars = flat_bars(FEW, "BTCUSDT")
    with pytest.raises(ConfigurationError, match=r"held no session on .*2024-01-06.*") as refused:
        model_fit.fit_calendar(bars, name)
    advised = refused.value.message.rpartition("--calendar ")[2]
    assert model_fit.fit_calendar(bars, advised).name == "24/7"


@pytest.mark.parametrize("calendar", [NYSE, SessionCalendar.weekdays(20240101, 20240331)], ids=lambda one: one.name)
def test_a_bar_on_a_weekend_tells_a_model_of_an_exchange_what_it_would_need(calendar: SessionCalendar) -> None:
    with pytest.raises(BarsError, match=r"2024-01-06 is not a session of .* with --calendar 24/7"):
        calendar.fields(np.array([20240105, 20240106], np.int32))


def test_a_working_week_needs_the_calendar_that_the_message_names() -> None:
    bars = flat_bars(NYSE, "AAPL", "MSFT")
    with pytest.raises(ConfigurationError, match="AAPL, MSFT have no bar on any Saturday or Sunday") as refused:
        model_fit.fit_calendar(bars, "24/7")
    assert "such as XNYS, or weekdays, with --calendar" in refused.value.message
    assert model_fit.fit_calendar(bars, "XNYS").name == "XNYS"


def test_a_stock_among_coins_is_named() -> None:
    coins = flat_bars(FEW, "BTCUSDT", "AAPL", "LATE")
    closed = np.zeros(coins.close.shape, np.bool_)
    closed[1] = is_weekend(coins.sessions)
    closed[2, :-3] = True  # three days of one week: ambiguous
    gone = {name: np.where(closed, np.nan, getattr(coins, name)) for name in ("open", "high", "low", "close", "volume")}
    with pytest.raises(ConfigurationError, match="AAPL has no bar on any Saturday or Sunday, but 24/7 counts"):
        check_sessions(replace(coins, **gone), FEW)


def test_a_coin_with_a_gap_of_some_days_is_taken() -> None:
    bars = flat_bars(FEW, "BTCUSDT")
    check_sessions(at(bars, ~np.isin(bars.sessions, [20240110, 20240113])), FEW)

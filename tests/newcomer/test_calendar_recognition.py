"""Exchange recognition from the dates of the bars, without `--calendar`."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from market import bokeh_panel
from typer.testing import CliRunner, Result

from predictor import artifact
from predictor.bars import read_files
from predictor.errors import ConfigurationError
from predictor.features import load_default_features
from predictor.sessions import EVERY_DAY, SessionCalendar
from predictor.sessions.calendar import find_fitting_calendar
from trainers import StockTrainer
from trainers.cli.commands import app
from trainers.stock.data_warnings import find_recipe_warnings
from trainers.stock.recipe import StockRecipe
from trainers.stock.training_data import TrainingMaterial
from trainers.stock.training_plan import set_calendar


@pytest.mark.parametrize(("exchange", "symbol"), [("XNYS", "IBM"), ("XTKS", "7203.T"), ("XLON", "VOD")])
def test_the_dates_of_an_exchange_are_recognised(exchange: str, symbol: str) -> None:
    sessions = SessionCalendar.named(exchange, 20150101, 20161231).sessions(20150102, 20161230)
    assert find_fitting_calendar(sessions, [symbol]) == exchange


def test_a_halt_does_not_hide_the_exchange() -> None:
    sessions = bokeh_panel("IBM").sessions
    assert find_fitting_calendar(np.delete(sessions, slice(100, 129)), ["IBM"]) == "XNYS"


def test_days_of_every_week_are_those_of_crypto() -> None:
    assert (
        find_fitting_calendar(SessionCalendar.every_day(20200101, 20201231).sessions(20200101, 20201231), ["BTC"])
        == EVERY_DAY
    )


def test_weekdays_without_holidays_are_no_exchange() -> None:
    sessions = SessionCalendar.weekdays(20150101, 20161231).sessions(20150101, 20161231)
    assert find_fitting_calendar(sessions, ["EURUSD"]) == ""


def test_check_counts_gaps_by_the_recognised_calendar_and_passes_it_on(tmp_path: Path) -> None:
    path = tmp_path / "bars.csv"
    bokeh_panel("IBM").write_csv(path)
    said = CliRunner().invoke(app, ["check", str(path)], catch_exceptions=False).stdout
    assert "the dates fit the calendar XNYS" in said
    assert "no bar, though" not in said
    assert f"quantra train stock --bars {path} --calendar XNYS" in said


@pytest.fixture(scope="module")
def bars_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bars") / "bars.csv"
    bokeh_panel("AAPL", "GOOG").last(420).write_csv(path)
    return path


def train(bars: Path, out: Path, *more: str) -> Result:
    settings = ["--epochs", "1", "--hidden", "4", "--layers", "1", "--horizons", "1,3", "--encoder-length", "10"]
    command = ["train", "stock", "--bars", str(bars), "--out", str(out), *settings, *more]
    return CliRunner().invoke(app, command, catch_exceptions=False)


@pytest.fixture(scope="module")
def trained_artifact(bars_file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """An artifact trained without `--calendar`, and the messages of its training."""
    out = tmp_path_factory.mktemp("models") / "mine" / "1"
    return out, train(bars_file, out).stderr


def test_a_training_recognises_the_calendar_and_names_it(trained_artifact: tuple[Path, str]) -> None:
    folder, said = trained_artifact
    assert "calendar: XNYS (recognised from the dates; --calendar NAME chooses another)" in said
    assert artifact.load(folder).artifact.pipeline.calendar.name == "XNYS"


def test_the_recognised_calendar_gives_the_same_model_as_the_given_one(
    trained_artifact: tuple[Path, str], bars_file: Path, tmp_path: Path
) -> None:
    said = train(bars_file, tmp_path / "1", "--calendar", "XNYS").stderr
    assert "recognised" not in said
    assert (tmp_path / "1" / "manifest.json").read_bytes() == (trained_artifact[0] / "manifest.json").read_bytes()


def test_a_finished_training_resumes_without_a_calendar(trained_artifact: tuple[Path, str], bars_file: Path) -> None:
    assert "is finished; there is nothing to resume" in train(bars_file, trained_artifact[0], "--resume").stdout


def test_a_finished_training_does_not_resume_with_another_calendar(
    trained_artifact: tuple[Path, str], bars_file: Path
) -> None:
    with pytest.raises(ConfigurationError, match="calendar was XNYS and is now XLON"):
        train(bars_file, trained_artifact[0], "--resume", "--calendar", "XLON")


def test_a_given_calendar_is_kept() -> None:
    said: list[str] = []
    recipe = replace(StockRecipe(), calendar="weekdays")
    assert set_calendar(recipe, bokeh_panel("IBM"), said.append) == recipe
    assert not said


def test_a_recipe_stays_without_a_calendar_where_none_fits() -> None:
    sessions = SessionCalendar.weekdays(20150101, 20151231).sessions(20150101, 20151231)
    bars = replace(bokeh_panel("IBM").last(sessions.size), sessions=sessions)
    assert set_calendar(StockRecipe(), bars, pytest.fail) == StockRecipe()


def test_a_fit_from_python_recognises_the_calendar_and_names_it(
    trained_artifact: tuple[Path, str], bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = StockTrainer(epochs=1, hidden=4, layers=1, horizons=[1, 3], encoder_length=10)
    trainer.fit(bars_file).close()
    assert "calendar: XNYS (recognised from the dates; calendar=NAME chooses another)" in capsys.readouterr().out
    saved = trainer.save(tmp_path / "1")
    assert (saved / "manifest.json").read_bytes() == (trained_artifact[0] / "manifest.json").read_bytes()


@pytest.mark.slow
def test_a_search_recognises_the_calendar_and_writes_the_first_version(bars_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    settings = ["--epochs", "1", "--horizons", "1,3", "--encoder-length", "10", "--trials", "1", "--seeds", "2"]
    command = ["tune", "stock", "--bars", str(bars_file), "--out", str(tmp_path / "tuned"), *settings]
    assert "calendar: XNYS" in CliRunner().invoke(app, command, catch_exceptions=False).stderr
    assert artifact.load(tmp_path / "tuned" / "1").artifact.pipeline.calendar.name == "XNYS"


@pytest.fixture
def mixed_files(tmp_path: Path) -> list[str]:
    """Files of two exchanges."""
    for symbol, exchange in (("IBM", "XNYS"), ("BP.L", "XLON")):
        sessions = SessionCalendar.named(exchange, 20110101, 20121231).sessions(20110103, 20121231)
        bars = replace(bokeh_panel("IBM").last(sessions.size), symbols=(symbol,), sessions=sessions)
        bars.write_csv(tmp_path / f"{symbol}.csv")
    return [str(tmp_path / "IBM.csv"), str(tmp_path / "BP.L.csv")]


MIXTURE = "no calendar fits all symbols: XNYS fits IBM; XLON fits BP.L; train a model for each exchange"


def test_check_names_the_exchanges_of_symbols_without_a_common_calendar(mixed_files: list[str]) -> None:
    said = CliRunner().invoke(app, ["check", *mixed_files], catch_exceptions=False).stdout
    assert MIXTURE in " ".join(said.split())
    assert said.splitlines()[-1] == "Next: check the files of each exchange separately"


def test_a_training_warns_about_symbols_without_a_common_calendar(mixed_files: list[str]) -> None:
    material = TrainingMaterial(read_files(mixed_files).panel, load_default_features())
    for calendar, is_warned in (("", True), ("XNYS", False)):
        recipe = StockRecipe(calendar=calendar)
        found = find_recipe_warnings(material.bars, material.features, material.covariates, recipe)
        assert (MIXTURE in found) is is_warned

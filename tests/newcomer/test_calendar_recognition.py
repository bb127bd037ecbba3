"""`quantra check` recognises the calendar of a file, so that it counts the gaps of the right exchange."""

from pathlib import Path

import numpy as np
import pytest
from market import bokeh_panel
from typer.testing import CliRunner

from predictor.sessions import EVERY_DAY, SessionCalendar
from predictor.sessions.recognition import fitting_calendar
from trainers.cli.commands import app


@pytest.mark.parametrize(("exchange", "symbol"), [("XNYS", "IBM"), ("XTKS", "7203.T"), ("XLON", "VOD")])
def test_the_dates_of_an_exchange_are_recognised(exchange: str, symbol: str) -> None:
    sessions = SessionCalendar.named(exchange, 20150101, 20161231).sessions(20150102, 20161230)
    assert fitting_calendar(sessions, [symbol]) == exchange


def test_a_halt_does_not_hide_the_exchange() -> None:
    sessions = bokeh_panel("IBM").sessions
    assert fitting_calendar(np.delete(sessions, slice(100, 129)), ["IBM"]) == "XNYS"


def test_days_of_every_week_are_those_of_crypto() -> None:
    assert (
        fitting_calendar(SessionCalendar.every_day(20200101, 20201231).sessions(20200101, 20201231), ["BTC"])
        == EVERY_DAY
    )


def test_weekdays_without_holidays_are_no_exchange() -> None:
    sessions = SessionCalendar.weekdays(20150101, 20161231).sessions(20150101, 20161231)
    assert fitting_calendar(sessions, ["EURUSD"]) == ""


def test_check_counts_gaps_by_the_recognised_calendar_and_passes_it_on(tmp_path: Path) -> None:
    path = tmp_path / "bars.csv"
    bokeh_panel("IBM").write_csv(path)
    said = CliRunner().invoke(app, ["check", str(path)], catch_exceptions=False).stdout
    assert "the dates fit the calendar XNYS" in said
    assert "no bar, though" not in said
    assert f"quantra train stock --bars {path} --calendar XNYS" in said

"""`quantra ledger verify`, `show` and `export`."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from ledger_databases import LedgerDatabase
from ledger_records import forecast_record
from market import bokeh_panel
from typer.testing import CliRunner

from predictor.cli import run
from predictor.evidence import Lamp
from predictor.ledger import (
    EvidenceRecord,
    ForecastRecord,
    Label,
    LabelStatus,
    Ledger,
    LedgerEvent,
    Score,
)
from trainers.cli.commands import app

PANEL = bokeh_panel("AAPL", "IBM").last(10)
DAYS = PANEL.sessions.tolist()
VALUES = np.sort(PANEL.close[:, :2] / 1000)


@pytest.fixture
def path(ledger_database: LedgerDatabase) -> str:
    """The address of a ledger with bars, a forecast, two labels, a lamp and two events."""
    with Ledger.open(ledger_database.address, create=True) as ledger:
        ledger.add_bars(PANEL)
        ledger.append(_records())
    return ledger_database.address


def _records() -> Sequence[ForecastRecord | Label | Score | EvidenceRecord | LedgerEvent]:
    label = Label(forecast=1, horizon=1, session=DAYS[8], value=0.01, bars_batch=1)
    return (
        replace(
            forecast_record(PANEL, 7, horizons=(1, 2)),
            forecast_id="abc",
            version=3,
            quantiles=(0.1, 0.9),
            values=VALUES,
            bars_batch=1,
        ),
        label,
        Label(
            forecast=1,
            horizon=2,
            session=DAYS[9],
            status=LabelStatus.UNSCORABLE,
            value=None,
            reason="halted",
            bars_batch=1,
        ),
        Score(forecast=1, horizon=1, pinball=0.004, below="01", is_inside=True, pit=0.5),
        EvidenceRecord(
            model="mine", version=3, monitor="coverage", horizon=1, session=DAYS[8], lamp=Lamp.GREEN, state={}
        ),
        EvidenceRecord(
            model="mine", version=3, monitor="coverage", horizon=1, session=DAYS[9], lamp=Lamp.AMBER, state={}
        ),
        LedgerEvent(kind="training", model="mine", version=3, session=DAYS[6], reason="schedule"),
        LedgerEvent(kind="promotion", model="mine", version=3, session=DAYS[7], reason="first version"),
    )


def ledger_json(*words: str) -> dict[str, object]:
    result = CliRunner().invoke(app, ["ledger", *words, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_an_untouched_ledger_is_verified_with_its_receipt(path: str) -> None:
    found = ledger_json("verify", path)
    assert found["rows"] == 11
    assert ledger_json("verify", path, "--receipt", str(found["receipt"])) == found
    text = CliRunner().invoke(app, ["ledger", "verify", path]).stdout
    assert text.splitlines()[1] == f"receipt: {found['receipt']}"


def test_a_changed_row_ends_with_1_and_is_named(
    path: str, ledger_database: LedgerDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger_database.tamper("update score set pinball = 0.003")
    with pytest.raises(SystemExit) as ended:
        run(app, ["ledger", "verify", path])
    assert ended.value.code == 1
    assert "batch 2 was changed after it was recorded; the last right one is batch 1" in capsys.readouterr().err


def test_the_summary_counts_forecasts_and_shows_the_newest_lamp(path: str) -> None:
    found = ledger_json("show", path, "--events", "1")
    assert (found["symbols"], found["first_session"], found["last_session"]) == (2, DAYS[0], DAYS[9])
    assert found["models"] == [
        {
            "model": "mine",
            "version": 3,
            "role": "champion",
            "forecasts": 1,
            "first": DAYS[7],
            "last": DAYS[7],
            "scored": 1,
            "unscorable": 1,
            "pinball": 0.004,
            "inside": 1.0,
        }
    ]
    assert [(row["session"], row["lamp"]) for row in found["evidence"]] == [(DAYS[9], "amber")]  # type: ignore[attr-defined]
    assert [row["reason"] for row in found["events"]] == ["first version"]  # type: ignore[attr-defined]


def test_the_summary_is_readable(path: str) -> None:
    text = CliRunner().invoke(app, ["ledger", "show", path]).stdout
    assert "bars of 2 symbols, 2013-02-15 to 2013-03-01" in text
    assert all(word in text for word in ("champion", "100.0 %", "amber", "first version"))


def test_an_empty_ledger_can_be_shown_and_exported(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "ledger.db", create=True).close()
    assert ledger_json("show", str(tmp_path / "ledger.db"))["models"] == []
    assert ledger_json("export", str(tmp_path / "ledger.db"), "--out", str(tmp_path / "out"))["rows"] == {
        "forecasts": 0,
        "scores": 0,
        "evidence": 0,
        "events": 0,
        "requests": 0,
    }


def test_exported_tables_are_those_of_the_ledger(path: str, tmp_path: Path) -> None:
    rows = ledger_json("export", path, "--out", str(tmp_path / "a" / "out"))["rows"]
    assert rows == {"forecasts": 2, "scores": 2, "evidence": 2, "events": 2, "requests": 0, "bars": 20}
    tables = {file.stem: pl.read_parquet(file) for file in (tmp_path / "a" / "out").iterdir()}
    assert tables["bars"].filter(pl.col("symbol") == "IBM")["close"].to_list() == PANEL.select("IBM").close[0].tolist()
    assert tables["forecasts"]["q0.9"].to_list() == VALUES[:, 1].tolist()
    assert tables["scores"]["session"].dt.strftime("%Y%m%d").cast(pl.Int64).to_list() == DAYS[8:]
    assert tables["scores"]["pinball"].to_list() == [0.004, None]
    assert tables["events"]["made_at"].dtype == pl.Datetime("ns", "UTC")


def test_a_ledger_without_forecasts_says_so(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "ledger.db", create=True).close()
    shown = CliRunner().invoke(app, ["ledger", "show", str(tmp_path / "ledger.db")])
    assert "no forecast is recorded" in shown.output

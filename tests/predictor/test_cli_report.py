"""`quantra report` rewrites the page of an artifact with its newest audit."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from artifacts import recent_bars, save_small_artifact
from audits import audit_record
from pages import assert_loads_nothing, page_of

from predictor.audit_record import write_audit
from predictor.bars import BarPanel
from predictor.cli import app, run
from predictor.forecaster import Forecaster

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "small" / "1"
    save_small_artifact(folder)
    return folder


@pytest.fixture
def bars(tmp_path: Path) -> Path:
    path = tmp_path / "bars.csv"
    recent_bars("AAPL", "GOOG").write_csv(path)
    return path


def command(capsys: Capture, *arguments: object, code: int = 0) -> str:
    with pytest.raises(SystemExit) as ended:
        run(app, ["report", *map(str, arguments)])
    told = capsys.readouterr()
    assert ended.value.code == code, told.err
    return told.out if code == 0 else told.err


def test_a_page_without_an_audit_names_the_command_that_makes_one(artifact: Path, bars: Path, capsys: Capture) -> None:
    told = command(capsys, artifact, "--bars", bars)
    page = artifact.with_name("1.report.html")
    assert f"Next: quantra audit {artifact} --bars {bars}\n" in told
    text = page.read_text("utf-8")
    assert_loads_nothing(text)
    assert "AAPL: forecast as of" in page_of(text).words
    assert "Not audited: it has not been checked" in page_of(text).words
    assert "quantra report models/small/1 --bars bars.csv --symbol AAPL" in page_of(text).words


def test_an_audit_that_came_later_is_on_the_page_that_is_written_again(
    artifact: Path, bars: Path, capsys: Capture
) -> None:
    command(capsys, artifact, "--bars", bars)
    digest = hashlib.sha256((artifact / "manifest.json").read_bytes()).hexdigest()
    write_audit(artifact, audit_record(digest=digest, note="a note of the audit"))
    found: dict[str, Any] = json.loads(command(capsys, artifact, "--bars", bars, "--json"))
    page = page_of(Path(found["report"]).read_text("utf-8"))
    assert "a note of the audit" in page.words
    assert "Not audited" not in page.words
    assert found["audited"] is True


def test_the_page_shows_the_forecast_of_the_symbol_that_is_asked_for(
    artifact: Path, bars: Path, tmp_path: Path, capsys: Capture
) -> None:
    page = tmp_path / "own.html"
    command(capsys, artifact, "--bars", bars, "--symbol", "GOOG", "--output", page)
    with Forecaster.load(artifact) as forecaster:
        forecast = forecaster.predict(BarPanel.read(bars).select(["GOOG"]))
    assert forecast.prices is not None
    written = page_of(page.read_text("utf-8"))
    assert "GOOG: forecast as of" in written.words
    assert set(forecast.prices.ravel()) <= set(written.numbers)


def test_a_page_that_cannot_be_written_is_refused_before_the_model_is_loaded(
    bars: Path, tmp_path: Path, capsys: Capture
) -> None:
    told = command(capsys, tmp_path / "no model", "--bars", bars, "--output", tmp_path, code=1)
    assert "is a folder; pass the path of a file" in told


def test_a_model_of_trees_has_a_page(tmp_path: Path, bars: Path, capsys: Capture) -> None:
    artifact = save_small_artifact(tmp_path / "models" / "trees" / "1", "trees")
    command(capsys, artifact, "--bars", bars)
    assert "Method: tree-shap" in page_of(artifact.with_name("1.report.html").read_text("utf-8")).words

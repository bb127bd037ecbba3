"""Forecasts as of many days in Parquet files: numbers, continued folders, refused symbols and the command."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from artifacts import save_artifact, small_artifact
from command_exits import exit_code
from market import bokeh_panel, scaled
from small_jobs import PickledJobs

from predictor.bars import BarPanel
from predictor.dates import to_date
from predictor.errors import ConfigurationError
from predictor.forecaster import Forecaster
from predictor.jobs import JobRunner, LocalRunner
from trainers.stock.data import NO_COVARIATE_FILES
from trainers.stock.forecast_files import (
    SESSIONS_AT_ONCE,
    ForecastFolder,
    ForecastMaterial,
    forecast_command,
    write_forecasts,
)

BARS = bokeh_panel("AAPL", "IBM").last(220)
SESSIONS = BARS.sessions[-(SESSIONS_AT_ONCE + 4) :].tolist()
"""More than one job forecasts at once."""
SPLITS = {name: {"first": 20000103, "last": SESSIONS[9]} for name in ("train", "selection", "calibration")}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = small_artifact()
    card = {**made.manifest.card, "splits": {name: {**part, "windows": 9} for name, part in SPLITS.items()}}
    folder = tmp_path_factory.mktemp("models") / "mine" / "3"
    return save_artifact(folder, replace(made, manifest=replace(made.manifest, card=card)))


@pytest.fixture(scope="module")
def bars_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bars") / "bars.csv"
    BARS.write_csv(path)
    return path


def material(artifact: Path, bars: BarPanel = BARS) -> ForecastMaterial:
    return ForecastMaterial(artifact=artifact, bars=bars, covariates=NO_COVARIATE_FILES, device="cpu")


def written(given: ForecastMaterial, out: Path, runner: JobRunner | None = None) -> pl.DataFrame:
    folder = ForecastFolder(out, given.settings())
    missing = [session for session in SESSIONS if not folder.has_session(session)]
    for _ in write_forecasts(given, missing, folder, runner or LocalRunner()):
        pass
    return pl.read_parquet(out / "**" / "*.parquet", hive_partitioning=True)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_each_day_has_the_forecast_of_the_bars_until_then(artifact: Path, tmp_path: Path) -> None:
    found = written(material(artifact), tmp_path / "out")
    assert found["as_of"].unique().sort().to_list() == [to_date(session) for session in SESSIONS]
    with Forecaster.load(artifact, "cpu") as forecaster:
        for session in (SESSIONS[0], SESSIONS[-1]):
            single = forecaster.predict(BARS.until(session))
            day = found.filter(as_of=to_date(session))
            values = day.select(f"q{level:g}" for level in single.quantiles).to_numpy()
            assert np.array_equal(values.reshape(single.values.shape), single.values)
            assert day["session"].to_list() == 2 * list(single.target_sessions)
            assert day["close"].to_list() == np.repeat(BARS.until(session).close[:, -1], 4).tolist()
            assert set(day["forecast_id"]) == {single.forecast_id}
            assert day["symbol"].to_list() == 4 * ["AAPL"] + 4 * ["IBM"]
            assert (day["model"][0], day["version"][0]) == ("mine", 3)


def test_days_before_the_end_of_the_training_are_marked_as_seen(artifact: Path, tmp_path: Path) -> None:
    found = written(material(artifact), tmp_path / "out")
    assert found.filter("is_seen")["as_of"].unique().sort().to_list() == [to_date(one) for one in SESSIONS[:9]]


def test_parallel_jobs_write_the_same_bytes(artifact: Path, tmp_path: Path) -> None:
    written(material(artifact), tmp_path / "one")
    written(material(artifact), tmp_path / "other", PickledJobs())
    assert files_of(tmp_path / "one") == files_of(tmp_path / "other")


def test_a_stopped_run_continues_with_the_missing_days(artifact: Path, tmp_path: Path) -> None:
    written(material(artifact), tmp_path / "whole")
    folder = ForecastFolder(tmp_path / "stopped", material(artifact).settings())
    next(iter(write_forecasts(material(artifact), SESSIONS, folder, LocalRunner())))
    assert len(list((tmp_path / "stopped").rglob("*.parquet"))) == 1
    changed = tmp_path / "stopped" / f"as_of={to_date(SESSIONS[0])}" / "forecasts.parquet"
    modified = changed.stat().st_mtime_ns
    written(material(artifact), tmp_path / "stopped")
    assert changed.stat().st_mtime_ns == modified
    assert files_of(tmp_path / "whole") == files_of(tmp_path / "stopped")


def test_a_suspect_symbol_has_its_reason_and_the_other_its_forecast(artifact: Path, tmp_path: Path) -> None:
    suspect = scaled(BARS, slice(-1, None), 100.0)
    found = written(material(artifact, suspect), tmp_path / "out")
    last = found.filter(as_of=to_date(SESSIONS[-1]))
    assert last.filter(symbol="IBM")["reason"].to_list() == 4 * ["BAR_SUSPECT"]
    assert last.filter(symbol="IBM")["q0.5"].null_count() == 4
    assert "IBM" in last.filter(symbol="IBM")["message"][0]
    assert last.filter(symbol="AAPL")["reason"].null_count() == 4
    assert last.filter(symbol="AAPL")["q0.5"].null_count() == 0
    assert found.filter(pl.col("as_of") < to_date(SESSIONS[-1]))["q0.5"].null_count() == 0


def test_a_days_file_has_its_warnings(artifact: Path, tmp_path: Path) -> None:
    with Forecaster.load(artifact, "cpu") as forecaster:
        expected = forecaster.predict(BARS.last(60).until(SESSIONS[-1])).warnings
    found = written(material(artifact, BARS.last(60)), tmp_path / "out")
    assert any("forecast from fewer than" in one for one in expected)
    assert set(found.filter(as_of=to_date(SESSIONS[-1]))["warnings"]) == {"\n".join(expected)}


def test_forecasts_of_other_bars_are_not_mixed_in(artifact: Path, tmp_path: Path) -> None:
    written(material(artifact), tmp_path / "out")
    with pytest.raises(ConfigurationError, match="has forecasts with other settings: bars; choose another --out"):
        written(material(artifact, BARS.select("IBM")), tmp_path / "out")


def test_a_second_run_on_the_folder_is_rejected(artifact: Path, tmp_path: Path) -> None:
    first = write_forecasts(
        material(artifact), SESSIONS, ForecastFolder(tmp_path, material(artifact).settings()), LocalRunner()
    )
    next(first)
    with pytest.raises(ConfigurationError, match=rf"^{tmp_path} is in use by process {os.getpid()} on .*; wait until"):
        written(material(artifact), tmp_path)
    assert len(list(first)) == len(SESSIONS) - 1


def test_a_folder_of_something_else_is_left_alone(artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="contains something other than forecasts"):
        ForecastFolder(tmp_path, material(artifact).settings())


# --- the command


def call(artifact: Path, bars_file: Path, out: Path, *flags: object) -> int:
    return exit_code(forecast_command, artifact, "--bars", bars_file, "--out", out, "--device", "cpu", *flags)


def test_the_command_says_what_it_wrote_and_what_was_there(
    artifact: Path, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = to_date(SESSIONS[-3])
    assert call(artifact, bars_file, tmp_path / "out", "--start", start, "--end", to_date(SESSIONS[-2])) == 0
    capsys.readouterr()
    assert call(artifact, bars_file, tmp_path / "out", "--start", start) == 0
    printed = capsys.readouterr().out
    assert "2 forecasts of 1 day in" in printed
    assert "2 days were there before" in printed
    call_shown = printed[printed.index("polars.") :].strip().removeprefix("polars.")
    assert len(eval(f"pl.{call_shown}", {"pl": pl})) == 3 * 2 * 4  # noqa: S307 - our own output


def test_without_a_period_the_command_forecasts_all_days_with_enough_bars(
    artifact: Path, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(artifact, bars_file, tmp_path / "out", "--json") == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (line["forecasts"], line["reasons"]) == (2 * line["days"], {})
    assert line["days"] == len(list((tmp_path / "out").glob("as_of=*")))
    with Forecaster.load(artifact, "cpu") as forecaster:
        assert line["days"] == len(BARS.sessions) - forecaster.model().bars_needed + 1


def test_forecasts_of_mapped_bars_are_the_same(artifact: Path, bars_file: Path, tmp_path: Path) -> None:
    days = ("--start", to_date(SESSIONS[0]), "--end", to_date(SESSIONS[1]))
    assert call(artifact, bars_file, tmp_path / "kept", *days) == 0
    assert call(artifact, bars_file, tmp_path / "mapped", "--feature-cache", tmp_path / "cache", *days) == 0
    assert list((tmp_path / "cache").glob("*/close.npy"))
    assert files_of(tmp_path / "kept") == files_of(tmp_path / "mapped")


def test_the_jobs_of_processes_are_counted_for_programs(
    artifact: Path, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    days = ("--start", to_date(SESSIONS[0]), "--end", to_date(SESSIONS[1]))
    assert call(artifact, bars_file, tmp_path / "out", "--json", "--workers", "2", *days) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    counts = {"jobs": 1, "done": 1, "running": 0, "failed": 0, "lost": 0, "repeated": 0}
    assert (line["new_days"], line["jobs"]) == (2, counts | {"seconds_left": 0.0})


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--workers", "2", "--cluster", "local"), "give either --workers or --cluster"),
        (("--workers", "2", "--job-memory", "4"), "--job-memory needs --cluster"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    artifact: Path,
    bars_file: Path,
    tmp_path: Path,
    flags: tuple[str, ...],
    problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(artifact, bars_file, tmp_path / "out", *flags) == 2
    assert problem in " ".join(capsys.readouterr().err.split())


def test_days_without_any_forecast_are_an_error(
    artifact: Path, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = to_date(int(BARS.sessions[0]))
    assert call(artifact, bars_file, tmp_path / "out", "--start", first, "--end", first) == 1
    assert "no symbol could be forecast on any of 1 day: TOO_FEW_BARS 2 times" in capsys.readouterr().err


def test_a_period_without_a_session_is_refused(
    artifact: Path, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(artifact, bars_file, tmp_path / "out", "--start", "2031-01-01") == 2
    assert "have no session from 2031-01-01" in " ".join(capsys.readouterr().err.replace("│", "").split())
    assert not (tmp_path / "out").exists()

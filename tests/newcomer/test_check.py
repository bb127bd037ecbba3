"""`quantra check`: the summary of a file, and the cleaned file that it writes."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import exports
import numpy as np
import pytest
from market import bokeh_panel
from pages import page_of
from typer.testing import CliRunner

from predictor.bars import BarPanel, read_file
from predictor.sessions import SessionCalendar
from trainers.cli.commands import app
from trainers.stock.bars_report import BarRequirement, check_symbols

HEADER = "symbol,date,open,high,low,close,volume\n"


def check(*arguments: object) -> str:
    ran = CliRunner().invoke(app, ["check", *map(str, arguments)], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def write(folder: Path, rows: str) -> Path:
    path = folder / "own.csv"
    path.write_text(HEADER + rows, encoding="utf-8")
    return path


def test_a_file_is_described_with_what_is_doubtful_in_it(tmp_path: Path) -> None:
    rows = (
        "AAA,2024-01-02,10,12,9,11,100\nAAA,2024-01-03,10,12,9,11,100\nAAA,2024-01-05,5,6,5,5.5,0\n"
        "AAA,2024-01-06,5,6,5,5.5,7\nBBB,2024-01-02,1,1,1,1,1\n"
    )
    said = json.loads(check(write(tmp_path, rows), "--json"))
    first, second = said["symbols"]
    assert (said["layout"], said["first"], said["last"], said["bars_needed"]) == ("plain", 20240102, 20240106, 140)
    assert (first["symbol"], first["bars"], first["windows"]) == ("AAA", 4, 0)
    assert first["gaps"] == [20240104]
    assert first["without_session"] == [20240106]
    assert first["repeated"] == [20240103]
    assert first["without_volume"] == [20240105]
    assert [line[:14] for line in first["suspected_splits"]] == ["AAA 2024-01-05"]
    assert (second["symbol"], second["bars"], second["gaps"]) == ("BBB", 1, [])


def test_windows_are_those_that_a_default_training_could_learn_from() -> None:
    panel = bokeh_panel("AAPL").last(200)
    one = check_symbols(panel, SessionCalendar.weekdays(20120101, 20131231))[0]
    assert one.windows(BarRequirement(bars=140, reach=20, refusal="")) == 200 - 140 - 20 + 1
    assert one.windows(BarRequirement(bars=200, reach=1, refusal="")) == 0


def test_what_is_written_is_the_same_bars_and_has_nothing_left_to_change(tmp_path: Path) -> None:
    names = ("equal_duplicates.csv", "german_excel.csv", "yfinance_two.csv", "investing/AAPL Historical Data.csv")
    for number, name in enumerate(names):
        source, clean = exports.CASES / "exports" / name, tmp_path / f"{number}.csv"
        check(source, "--fix", clean)
        before, after = read_file(source), read_file(clean)
        assert (after.layout, after.remarks, after.warnings) == ("plain", (), ())
        assert after.panel.symbols == before.panel.symbols
        for field in before.panel.columns:
            assert np.array_equal(getattr(after.panel, field), getattr(before.panel, field), equal_nan=True)
        changes = clean.with_name(f"{number}.csv.changes.txt").read_text(encoding="utf-8").splitlines()
        assert changes[0].startswith(f"layout: {before.layout} (")
        assert changes[1:] == [*before.remarks, *before.warnings]


def test_a_clean_file_replaces_no_other(tmp_path: Path) -> None:
    other = tmp_path / "clean.csv"
    other.write_text("mine")
    ran = CliRunner().invoke(app, ["check", str(exports.CASES / "exports" / "plain.csv"), "--fix", str(other)])
    assert "exists already; nothing is overwritten" in str(ran.exception)
    assert other.read_text() == "mine"


def test_holidays_on_which_bars_are_repeated_do_not_hide_the_calendar(tmp_path: Path) -> None:
    bars = bokeh_panel("IBM").last(500)
    weekdays = SessionCalendar.weekdays(20110101, 20131231).sessions(int(bars.sessions[0]), int(bars.sessions[-1]))
    longer = bars.on_sessions(weekdays)
    before = np.maximum.accumulate(np.where(longer.present[0], np.arange(weekdays.size), 0))
    filled = replace(longer, **{name: getattr(longer, name)[:, before] for name in longer.columns})
    filled.write_csv(tmp_path / "bars.csv")
    said = check(tmp_path / "bars.csv")
    assert "the dates fit the calendar XNYS" in said
    repaired = check(*shlex.split(said.rpartition("Next: quantra check ")[2]))
    assert f"Next: quantra train stock --bars {tmp_path}/bars.clean.csv --calendar XNYS" in repaired
    assert np.array_equal(BarPanel.read(tmp_path / "bars.clean.csv").sessions, bars.sessions)


def test_a_price_that_never_changes_is_named(tmp_path: Path) -> None:
    said = check(write(tmp_path, "".join(f"AAA,2024-01-{day:02},5,5,5,5,9\n" for day in range(2, 6))))
    assert "AAA: the close never changes" in said


def test_bars_without_volumes_are_trained_on_prices(tmp_path: Path) -> None:
    bars = bokeh_panel("IBM").last(500)
    replace(bars, volume=np.full(bars.volume.shape, np.nan)).write_csv(tmp_path / "bars.csv")
    assert "--model lstm --features prices --out" in check(tmp_path / "bars.csv")


def test_stocks_beside_cryptocurrencies_have_no_common_calendar(tmp_path: Path) -> None:
    bars = bokeh_panel("IBM").last(300)
    days = SessionCalendar.every_day(20110101, 20131231).sessions(int(bars.sessions[0]), int(bars.sessions[-1]))
    bars.write_csv(tmp_path / "IBM.csv")
    coin = bokeh_panel("AAPL").last(days.size)
    replace(coin, symbols=("BTC",), sessions=days).write_csv(tmp_path / "BTC.csv")
    assert "no calendar fits all symbols: " in check(tmp_path / "BTC.csv", tmp_path / "IBM.csv")


def test_a_price_a_gap_and_a_split_are_named_and_not_changed(tmp_path: Path) -> None:
    rows = "AAA,2024-01-02,10,12,9,11,100\nAAA,2024-01-04,5,6,5,5.5,100\nAAA,2024-01-05,5,6,5,5.5,100\n"
    source, clean = write(tmp_path, rows), tmp_path / "clean.csv"
    printed = check(source, "--fix", clean)
    assert "AAA: no bar, though Monday to Friday has a session: 2024-01-03" in printed
    assert "AAA 2024-01-04" in printed
    assert BarPanel.read(clean).close.tolist() == BarPanel.read(source).close.tolist() == [[11, 5.5, 5.5]]


def test_a_file_that_cannot_be_used_ends_with_1_and_its_reason() -> None:
    ran = CliRunner().invoke(app, ["check", str(exports.CASES / "mistakes" / "closes_only.csv")])
    assert ran.exit_code == 1
    assert "closing prices are not enough" in str(ran.exception)


@pytest.mark.parametrize("out", ["own.csv", "clean.parquet"])
def test_a_clean_file_is_not_written_over_the_source_nor_in_another_format(tmp_path: Path, out: str) -> None:
    source = write(tmp_path, "AAA,2024-01-02,10,12,9,11,100\n")
    before = source.read_bytes()
    ran = CliRunner().invoke(app, ["check", str(source), "--fix", str(tmp_path / out)])
    assert ran.exit_code in {1, 2}
    assert source.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["own.csv"]


def test_the_next_command_fits_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = tmp_path / "many.csv"
    bokeh_panel("AAPL").last(350).write_csv(many)
    command = shlex.split(check(many).strip().splitlines()[-1].removeprefix("Next: "))
    assert command[:5] == ["quantra", "train", "stock", "--bars", str(many)]
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, [*command[1:], "--epochs", "1"], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    bokeh_panel("AAPL").last(330).write_csv(many)
    assert "give 350 sessions or more" in check(many).strip().splitlines()[-1]
    few = check(write(tmp_path, "AAA,2024-01-02,10,12,9,11,100\n")).strip().splitlines()[-1]
    assert few.startswith("Too few bars to train on: 1 sessions are too few to be split into four parts")
    coins = check(exports.CASES / "exports" / "coins.csv")
    assert "the dates fit the calendar 24/7" in coins


def test_the_chart_shows_each_close_and_a_suspected_split(tmp_path: Path) -> None:
    page = tmp_path / "bars.html"
    rows = "AAA,2024-01-02,10,12,9,11,100\nAAA,2024-01-03,5,6,5,5.5,100\n"
    check(write(tmp_path, rows), "--plot", page)
    text = page.read_text(encoding="utf-8")
    assert "AAA: split?" in text
    assert "close, first bar = 100" in text
    assert page_of(text).text.count("AAA") >= 2

"""The ledger: what is recorded once, kept for ever, and refused."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from ledger_databases import LedgerDatabase
from ledger_records import forecast_record
from market import bokeh_panel, scaled, without_bars, without_last_bar

from predictor import file_lock
from predictor.bars import BarPanel
from predictor.errors import BarsError, ConfigurationError, LedgerError
from predictor.evidence import Lamp
from predictor.ledger import (
    ClientRequest,
    EvidenceRecord,
    ForecastRecord,
    ForecastRole,
    KnownBars,
    Label,
    LabelStatus,
    Ledger,
    LedgerEvent,
    LedgerTable,
    Receipt,
    Score,
    sqlite_store,
)
from predictor.ledger.records import LedgerRecord
from predictor.ledger.schema import VERSION

PANEL = bokeh_panel("AAPL", "IBM", "MSFT").last(30)
DAYS = PANEL.sessions.tolist()


@pytest.fixture
def ledger(ledger_database: LedgerDatabase) -> Iterator[Ledger]:
    with Ledger.open(ledger_database.address, create=True) as opened:
        yield opened


@pytest.fixture
def ledger_file(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger for faults that only a file has."""
    with Ledger.open(tmp_path / "ledger.db", create=True) as opened:
        yield opened


def forecast(as_of: int = DAYS[-3], symbol: str = "IBM", **changes: object) -> ForecastRecord:
    record = replace(
        forecast_record(PANEL, len(DAYS) - 3, symbol, (1, 2)),
        forecast_id=f"id-{as_of}",
        as_of=as_of,
        base_session=as_of,
        values=np.array([[-0.1, 0.0, 0.1 / 3], [-0.2, 1e-300, 0.2]]),
    )
    return replace(record, **changes)  # pyright: ignore[reportArgumentType]


LABEL = Label(forecast=1, horizon=1, session=DAYS[-2], value=0.01, bars_batch=1)
SCORE = Score(forecast=1, horizon=1, pinball=0.004, below="001", is_inside=True, pit=0.55)
EVIDENCE = EvidenceRecord(
    model="mine", version=1, monitor="coverage", horizon=1, session=DAYS[-1], lamp=Lamp.AMBER, state={"plain": 21.5}
)
EVENT = LedgerEvent(kind="promotion", model="mine", version=1, reason="first", detail={"from": None}, key="once")


# --- bars


def test_recorded_bars_are_read_back_bit_for_bit(ledger: Ledger) -> None:
    added = ledger.add_bars(without_last_bar(PANEL, "IBM"))
    panel = ledger.panel()
    assert (added.batch, added.new, added.revised) == (1, 89, 0)
    assert panel.symbols == PANEL.symbols
    for name in PANEL.columns:
        np.testing.assert_array_equal(getattr(panel, name), getattr(without_last_bar(PANEL, "IBM"), name))


def test_a_late_bar_is_added_and_only_it(ledger: Ledger) -> None:
    ledger.add_bars(without_last_bar(PANEL, "IBM"))
    added = ledger.add_bars(PANEL)
    assert (added.new, added.revised) == (1, 0)
    np.testing.assert_array_equal(ledger.panel().close, PANEL.close)


def test_a_revised_bar_leaves_the_older_one_readable_at_its_batch(ledger: Ledger) -> None:
    first = ledger.add_bars(PANEL)
    second = ledger.add_bars(scaled(PANEL, slice(4, 5), 1.01, ("adj_close",)))
    row = PANEL.symbols.index("IBM")
    assert (second.new, second.revised) == (0, 1)
    np.testing.assert_array_equal(ledger.panel(batch=first.batch).adj_close, PANEL.adj_close)
    assert ledger.panel().adj_close[row, 4] == pytest.approx(1.01 * PANEL.adj_close[row, 4])  # pyright: ignore[reportOptionalSubscript]


def test_the_same_bars_again_write_nothing(ledger: Ledger) -> None:
    ledger.add_bars(PANEL)
    before = ledger.receipt
    added = ledger.add_bars(PANEL)
    assert (added.new, added.revised, ledger.receipt) == (0, 0, before)


def test_an_unknown_volume_is_no_change(ledger: Ledger) -> None:
    panel = PANEL.without_volumes(PANEL.present)
    assert ledger.add_bars(panel).new == 90
    assert (ledger.add_bars(panel).revised, ledger.add_bars(PANEL).revised) == (0, 90)


def test_a_part_of_the_bars_after_a_dividend_is_refused(ledger: Ledger) -> None:
    ledger.add_bars(PANEL.until(DAYS[-3]))
    paid = scaled(PANEL, slice(-3), 0.98, ("adj_close",))
    with pytest.raises(LedgerError, match="must continue it, but those of IBM have changed; give the whole history"):
        ledger.add_bars(paid.last(10))
    with pytest.raises(LedgerError, match="must continue it, but the ledger does not have these bars"):
        ledger.add_bars(PANEL.last(2))
    assert ledger.add_bars(PANEL.last(10)).new == 6
    assert ledger.add_bars(paid).revised == 27


def test_every_symbols_adjusted_closes_must_continue_its_own(ledger: Ledger) -> None:
    ledger.add_bars(without_bars(PANEL.until(DAYS[-3]), "IBM", slice(-9, None)))
    with pytest.raises(LedgerError, match="the ledger does not have these bars of IBM; give the whole history"):
        ledger.add_bars(PANEL.last(10))


def test_bars_missing_in_a_shorter_panel_stay(ledger: Ledger) -> None:
    ledger.add_bars(PANEL)
    ledger.add_bars(PANEL.last(2))
    ledger.add_bars(PANEL.select(["AAPL", "IBM"]))
    ledger.add_bars(without_last_bar(PANEL, "IBM"))
    np.testing.assert_array_equal(ledger.panel().close, PANEL.close)


def test_a_panel_is_extended_by_what_was_added(ledger: Ledger) -> None:
    known = KnownBars()
    late = without_bars(PANEL, "MSFT", slice(0, 6))
    steps = (late.until(DAYS[3]), late.until(DAYS[6]), scaled(late.until(DAYS[6]), slice(2, 4), 1.01), late)
    for bars in steps:
        ledger.add_bars(bars)
        for last in (DAYS[2], DAYS[5], DAYS[-1]):
            expected, found = ledger.panel(last=last), ledger.extended_panel(known, last=last)
            assert (found.symbols, found.sessions.tolist()) == (expected.symbols, expected.sessions.tolist())
            for name in expected.columns:
                np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert known.row == ledger.query("select max(id) as last from bar")[0]["last"]


def test_a_part_of_the_bars_is_read_by_symbol_and_session(ledger: Ledger) -> None:
    ledger.add_bars(PANEL)
    part = ledger.panel(["MSFT", "AAPL"], first=DAYS[3], last=DAYS[5])
    expected = PANEL.select(["MSFT", "AAPL"]).between(DAYS[3], DAYS[5])
    assert (part.symbols, part.sessions.tolist()) == (("MSFT", "AAPL"), DAYS[3:6])
    np.testing.assert_array_equal(part.open, expected.open)


def test_bars_that_are_not_recorded_are_an_error(ledger: Ledger) -> None:
    with pytest.raises(BarsError, match="no bars of any symbol"):
        ledger.panel()
    ledger.add_bars(PANEL)
    with pytest.raises(BarsError, match="no bars of GOOG from"):
        ledger.panel(["GOOG"])


@pytest.mark.parametrize(
    ("panel", "problem"),
    [
        (bokeh_panel("GOOG").last(30), "3 of the ledger's 3 symbols are missing: AAPL, IBM, MSFT"),
        (replace(PANEL, calendar="XLON"), "the calendar is XLON, but that of the ledger is XNYS"),
        (replace(PANEL, currency="EUR"), "the currency is EUR, but that of the ledger is USD"),
        (replace(PANEL, adj_close=None), "the columns are .*volume, but the ledger has .*adj_close;"),
    ],
)
def test_bars_of_another_universe_are_refused(ledger: Ledger, panel: BarPanel, problem: str) -> None:
    ledger.add_bars(replace(PANEL, calendar="XNYS", currency="USD"))
    with pytest.raises(LedgerError, match=f"another universe: {problem}.*or use another ledger"):
        ledger.add_bars(panel)
    ledger.add_bars(replace(PANEL, calendar="", currency=""))
    assert ledger.receipt.batch == 1


# --- records


def test_records_are_read_back_equal(ledger: Ledger) -> None:
    assert ledger.append([forecast(), LABEL, SCORE, EVIDENCE, EVENT]) == 5
    (read,) = ledger.records(ForecastRecord)
    np.testing.assert_array_equal(read.values, forecast().values)
    assert (read.number, read.horizons, read.quantiles, read.role) == (
        1,
        (1, 2),
        (0.1, 0.5, 0.9),
        ForecastRole.CHAMPION,
    )
    assert ledger.records(Label) == [LABEL]
    assert ledger.records(Score) == [SCORE]
    assert ledger.records(EvidenceRecord) == [EVIDENCE]
    assert ledger.records(LedgerEvent) == [EVENT]


def test_the_same_records_again_write_nothing(ledger: Ledger) -> None:
    ledger.append([forecast(), LABEL, SCORE, EVIDENCE, EVENT])
    before = ledger.receipt
    assert ledger.append([forecast(), LABEL, SCORE, EVIDENCE, EVENT]) == 0
    assert ledger.receipt == before


@pytest.mark.parametrize(
    "given",
    [
        [forecast(), forecast(DAYS[-4])],  # one of them is recorded
        [forecast(DAYS[-4], anchor=2, role=ForecastRole.CLIENT)],
        [
            forecast(DAYS[-4], anchor=np.float32(2.7)),
            ClientRequest(forecast_id="a\u2028\U0001f600", asked_at=1, caller=""),
        ],
        [ClientRequest(forecast_id="same", asked_at=1, caller="desk")] * 600,
    ],
)
def test_a_batch_is_verified_as_it_was_recorded(ledger: Ledger, given: list[LedgerRecord]) -> None:
    ledger.append([forecast(), LedgerEvent(kind="before")])
    assert ledger.append(given) > 0
    assert ledger.append([forecast(DAYS[-5], role=ForecastRole.CLIENT)]) == 1
    assert ledger.verify().problem == ""


def test_a_forecast_of_a_client_without_days_is_recorded(ledger: Ledger) -> None:
    dateless = replace(forecast(role=ForecastRole.CLIENT), as_of=0, base_session=0, target_sessions=())
    assert ledger.append([dateless]) == 1


def test_a_question_mark_within_a_literal_is_no_placeholder(ledger: Ledger) -> None:
    ledger.append([LedgerEvent(kind="why?"), LedgerEvent(kind="how?")])
    rows = ledger.query("select kind from event where kind like '%y?' and kind <> ?", ("how?",))
    assert [row["kind"] for row in rows] == ["why?"]


@pytest.mark.parametrize("table", [LedgerTable.EVIDENCE, LedgerTable.EVENTS])
def test_a_table_without_symbols_cannot_be_filtered_by_them(ledger: Ledger, table: LedgerTable) -> None:
    with pytest.raises(ConfigurationError, match="has no symbol and no as_of; filter it by model only"):
        ledger.columns(table, symbol="IBM")


def test_the_first_forecast_of_a_day_counts_but_clients_may_ask_again(ledger: Ledger) -> None:
    ledger.append([forecast()])
    assert ledger.append([forecast(forecast_id="other", role=ForecastRole.CHALLENGER)]) == 0
    assert (
        ledger.append([forecast(forecast_id="other", role=ForecastRole.CLIENT), forecast(role=ForecastRole.CLIENT)])
        == 2
    )


def test_a_forecast_after_a_later_bar_is_not_prospective(ledger: Ledger) -> None:
    ledger.add_bars(PANEL.until(DAYS[-3]))
    ledger.append([forecast(is_prospective=False), forecast(DAYS[-4], is_prospective=True)])
    assert [one.is_prospective for one in ledger.records(ForecastRecord)] == [True, False]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"values": np.array([[0.0, np.nan, 0.1], [0.0, 0.1, 0.2]])}, "a value is not finite"),
        ({"values": np.array([[0.0, 0.1, np.inf], [0.0, 0.1, 0.2]])}, "a value is not finite"),
        ({"values": np.zeros((1, 3))}, r"shape \(1, 3\), but must have \(2, 3\)"),
        ({"values": np.array([[0.0, 0.2, 0.1], [0.0, 0.1, 0.2]])}, "its quantiles cross"),
        ({"target_sessions": (DAYS[-2],)}, "2 horizons, but 1 target sessions"),
        ({"base_session": DAYS[-2]}, "are not all after its base"),
    ],
)
def test_a_forecast_that_could_never_be_scored_is_refused(
    ledger: Ledger, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(LedgerError, match=f"forecast of IBM by mine@1 on .* is not recorded: .*{problem}"):
        ledger.append([forecast(symbol="AAPL"), forecast(**changes)])
    assert ledger.records(ForecastRecord) == []


def test_opening_another_file_leaves_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "bars.csv").write_text("symbol,date,close")
    with pytest.raises(LedgerError, match="it is not a ledger"):
        Ledger.open(tmp_path / "bars.csv")
    with pytest.raises(LedgerError, match="it is a folder; give the path of a ledger"):
        Ledger.open(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["bars.csv"]


def test_a_batch_is_stored_whole_or_not_at_all(ledger: Ledger, ledger_database: LedgerDatabase) -> None:
    with pytest.raises(ledger_database.refusal):
        ledger.append([EVENT, replace(LABEL, forecast=7)])
    assert ledger.records(LedgerEvent) == []
    assert ledger.receipt.batch == 0


def test_rows_cannot_be_changed_or_deleted(ledger: Ledger, ledger_database: LedgerDatabase) -> None:
    ledger.append([EVENT])
    for change in ("update event set reason = 'second'", "delete from event", "delete from chain"):
        with pytest.raises((sqlite3.IntegrityError, psycopg.errors.RaiseException), match="a ledger only grows"):
            ledger_database.execute(change)


def test_tables_are_frames_with_days(ledger: Ledger) -> None:
    unscorable = replace(LABEL, horizon=2, status=LabelStatus.UNSCORABLE, value=None, reason="halted")
    ledger.append([forecast(), LABEL, SCORE, unscorable, EVIDENCE, EVENT])
    forecasts, scores = ledger.forecasts(model="mine", since=DAYS[-3]), ledger.scores(symbol="IBM")
    assert forecasts["q0.9"].tolist() == [0.1 / 3, 0.2]
    assert forecasts["session"].dt.strftime("%Y%m%d").astype(int).tolist() == DAYS[-2:]
    assert scores["status"].tolist() == ["scored", "unscorable"]
    assert (scores["pinball"][0], np.isnan(scores["pinball"][1])) == (0.004, True)
    assert ledger.events()["kind"].tolist() == ["promotion"]
    assert ledger.evidence(model="mine")["lamp"].tolist() == ["amber"]
    assert ledger.forecasts(since=DAYS[-2]).empty


# --- the chain


def test_an_untouched_ledger_verifies(ledger: Ledger) -> None:
    ledger.add_bars(PANEL)
    ledger.append([forecast(), EVENT])
    found = ledger.verify(Receipt.from_text(str(ledger.receipt)))
    assert (found.problem, found.rows, found.receipt) == ("", 6, ledger.receipt)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("update event set reason = 'second' where id = 2", "batch 3 was changed"),
        ("update bar set bars = (select bars from bar where id = 2) where id = 1", "batch 1 was changed"),
        (
            "update bar set sessions = cast(sessions || substr(bars, 1, 4) as blob), bars = substr(bars, 5)",
            "batch 1 was changed",
        ),
        ("delete from event where id = 1", "batch 2 was changed"),
        ("update chain set previous = 'text' where batch = 2", "batch 2 was changed"),
        (
            "insert into event select 9, 2, kind, model, version, 1, reason, detail, '' from event limit 1",
            "rows after batch 3",
        ),
        ("update chain set made_at = 5 where batch = 2", "batch 2 was changed"),
        ("update chain set previous = hash where batch = 2", "batch 2 was changed"),
        ("delete from chain where batch = 2", "batch 3 was changed"),
    ],
)
def test_a_changed_row_is_found(ledger: Ledger, ledger_database: LedgerDatabase, change: str, problem: str) -> None:
    ledger.add_bars(PANEL)
    ledger.append([EVENT])
    ledger.append([replace(EVENT, key="twice")])
    ledger_database.tamper(change)
    assert problem in ledger.verify().problem


def test_verification_reads_the_ledger_as_it_was_when_it_began(ledger_database: LedgerDatabase) -> None:
    with Ledger.open(ledger_database.address, create=True) as writer:
        writer.append([LedgerEvent(kind="test", key=str(k)) for k in range(250)])
        with (
            Ledger.open(ledger_database.address) as reader,
            reader._store._use_connection(),
            reader._store._begin_snapshot(),
        ):
            assert reader._store.id == writer.id
            writer.append([LedgerEvent(kind="test", key="later")])
            assert reader._store._verify(None).rows == 250
        assert writer.verify().rows == 251


def test_a_change_within_a_large_batch_is_found(ledger: Ledger, ledger_database: LedgerDatabase) -> None:
    ledger.append([replace(EVENT, key=str(number)) for number in range(250)])
    assert (ledger.verify().problem, ledger.verify().rows) == ("", 250)
    ledger_database.tamper("update event set reason = 'changed' where id = 230")
    assert "batch 1 was changed" in ledger.verify().problem


def test_a_cut_tail_is_found_by_a_receipt(ledger: Ledger, ledger_database: LedgerDatabase) -> None:
    ledger.append([EVENT])
    ledger.append([replace(EVENT, key="twice")])
    receipt = ledger.receipt
    ledger_database.tamper("delete from event where id = 2")
    ledger_database.tamper("delete from chain where batch = 2")
    assert ledger.verify().problem == ""
    assert "cut or replaced" in ledger.verify(receipt).problem


def test_a_malformed_receipt_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'12' is not BATCH:HASH"):
        Receipt.from_text("12")


def _all_rows(path: Path) -> list[list[tuple[object, ...]]]:
    with sqlite3.connect(path) as other:
        tables = [name for (name,) in other.execute("select name from sqlite_master where type = 'table'")]
        rows = [other.execute(f"select * from {table}").fetchall() for table in sorted(tables)]  # noqa: S608
    other.close()
    return rows


def test_a_flipped_byte_is_found_or_changes_no_row(tmp_path: Path) -> None:
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    with Ledger.open(path, create=True) as ledger:
        ledger.add_bars(PANEL)
        ledger.append([forecast(), LABEL, SCORE, EVIDENCE, EVENT])
    content, rows = path.read_bytes(), _all_rows(path)
    used = np.flatnonzero(np.frombuffer(content, np.uint8))
    found = 0
    for place in np.random.default_rng(1).choice(used, 60, replace=False).tolist():
        flipped = bytearray(content)
        flipped[place] ^= 0x10
        copy.write_bytes(flipped)
        try:
            with Ledger.open(copy) as damaged:
                problem = damaged.verify().problem
        except LedgerError:
            problem = "refused"
        found += bool(problem)
        assert problem or _all_rows(copy) == rows
    assert found > 30


# --- files and faults


def test_a_ledger_that_does_not_exist_is_made_only_if_asked(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="the file does not exist; give the path of a ledger"):
        Ledger.open(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_becomes_a_ledger_only_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.touch()
    with pytest.raises(LedgerError, match="it is not a ledger"):
        Ledger.open(path)
    with Ledger.open(path, create=True) as ledger:
        assert ledger.verify().problem == ""


@pytest.mark.slow
def test_writes_wait_for_the_lock_of_the_file(ledger_file: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_lock, "_PATIENCE_SECONDS", 0)
    with file_lock.lock_file(Path(f"{ledger_file.address}.lock")), pytest.raises(TimeoutError, match="held the lock"):
        ledger_file.append([EVENT])
    assert ledger_file.append([EVENT]) == 1


def test_closing_without_the_lock_of_the_file_is_logged_and_hides_no_error(
    ledger_file: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(file_lock, "_PATIENCE_SECONDS", 0)
    with (
        file_lock.lock_file(Path(f"{ledger_file.address}.lock")),
        pytest.raises(KeyError, match="ours"),
        ledger_file,
    ):
        raise KeyError("ours")
    assert "closed without a checkpoint" in caplog.text
    ledger_file.close()


def test_nothing_is_written_to_a_removed_file(ledger_file: Ledger) -> None:
    file = Path(ledger_file.address)
    away = file.rename(file.with_name("away.db"))
    with pytest.raises(LedgerError, match="the file was removed or replaced while it was open; move it back"):
        ledger_file.append([forecast()])
    away.rename(file)
    assert ledger_file.append([forecast()]) == 1


def test_another_file_is_refused(tmp_path: Path) -> None:
    text, database = tmp_path / "a.csv", tmp_path / "b.db"
    text.write_text("date,open\n" * 200, encoding="utf-8")
    other = sqlite3.connect(database)
    other.execute("create table bars (close real)")
    other.close()
    with pytest.raises(LedgerError, match=r"a.csv: it is not a ledger, or it is damaged"):
        Ledger.open(text, create=True)
    with pytest.raises(LedgerError, match="it is not a ledger"):
        Ledger.open(database, create=True)


@pytest.mark.parametrize(("schema", "advice"), [(2, "move it away"), (VERSION + 1, "update Quantra")])
def test_another_schema_is_refused(tmp_path: Path, schema: int, advice: str) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path, create=True).close()
    other = sqlite3.connect(path)
    other.execute(f"pragma user_version = {schema}")
    other.close()
    with pytest.raises(LedgerError, match=f"is {schema}, but this version of Quantra reads {VERSION}; {advice}"):
        Ledger.open(path)


def test_a_damaged_file_is_named_and_verified_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path, create=True) as ledger:
        ledger.add_bars(PANEL)
    content = bytearray(path.read_bytes())
    page = 4096
    for start in range(page, len(content), page):
        content[start : start + 8] = b"\xff" * 8
    path.write_bytes(content)
    with (
        pytest.raises(LedgerError, match=r"ledger.db: the ledger is damaged \(.*restore it from a backup"),
        Ledger.open(path) as damaged,
    ):
        damaged.panel()


def test_a_full_disk_stores_nothing_and_the_ledger_goes_on(ledger_file: Ledger) -> None:
    ledger_file.append([EVENT])
    pages = ledger_file._store.read_number("pragma page_count")
    ledger_file._store.execute(f"pragma max_page_count = {pages}")
    with pytest.raises(LedgerError, match="the disk is full, and this write was not recorded"):
        ledger_file.add_bars(bokeh_panel("AAPL", "IBM"))
    ledger_file._store.execute("pragma max_page_count = 1000000")
    ledger_file.append([replace(EVENT, key="after")])
    assert (ledger_file.receipt.batch, ledger_file.verify().problem) == (2, "")


def test_two_open_ledgers_write_one_chain(ledger_database: LedgerDatabase) -> None:
    with Ledger.open(ledger_database.address, create=True) as one, Ledger.open(ledger_database.address) as other:
        for number in range(5):
            one.append([replace(EVENT, key=f"one {number}")])
            other.append([replace(EVENT, key=f"other {number}")])
        assert (one.receipt, one.verify().problem) == (other.receipt, "")
        assert len(other.events()) == 10


def test_a_long_log_is_moved_into_the_file(ledger_file: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger_file.append([EVENT])
    size = Path(ledger_file.address).stat().st_size
    monkeypatch.setattr(sqlite_store, "_MAX_LOG", 1 << 30)
    ledger_file.add_bars(PANEL)
    assert Path(ledger_file.address).stat().st_size == size
    monkeypatch.setattr(sqlite_store, "_MAX_LOG", 1 << 10)
    ledger_file.append([replace(EVENT, key="second")])
    assert Path(ledger_file.address).stat().st_size > size


WRITER = """
import sys
from predictor.ledger import Ledger, LedgerEvent
ledger = Ledger.open(sys.argv[1], create=True)
number = len(ledger.records(LedgerEvent))
while True:
    number += 1
    ledger.append([LedgerEvent(kind="test", key=str(number))])
    print(number, flush=True)
"""


@pytest.mark.slow
def test_a_killed_writer_loses_no_acknowledged_row(ledger_database: LedgerDatabase) -> None:
    for stop_after in (1, 7, 40):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, ledger_database.address], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        acknowledged = 0
        for _ in range(stop_after):
            acknowledged = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
        with Ledger.open(ledger_database.address) as ledger:
            assert [event.key for event in ledger.records(LedgerEvent)][acknowledged - 1] == str(acknowledged)
            assert ledger.verify().problem == ""

"""`quantra daily`: every evening is run once and in order, despite bad bars, damaged models and killed runs."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_exits import program_exit_code
from daily_runs import HAR, daily_bars, run_evenings, save_daily_model
from ledger_databases import LedgerDatabase
from market import scaled, without_last_bar
from pages import HOSTILE, assert_loads_nothing, page_of
from small_jobs import PickledJobs

from predictor.bars import BarPanel
from predictor.cli.options import BarsFlags
from predictor.errors import InSampleError, LedgerError
from predictor.evidence import Lamp
from predictor.ledger import EvidenceRecord, ForecastRecord, Label, Ledger, LedgerEvent
from predictor.networks import LSTMConfig
from trainers.cli.commands import app
from trainers.stock import Optimisation
from trainers.stock.daily import DailySettings, run_due_evenings
from trainers.stock.daily.evenings import ALARM, EVENING, summarise
from trainers.stock.daily.page import render_evenings

DAYS = daily_bars().between(20100101, 20100129).sessions.tolist()
LSTM = replace(
    HAR,
    kind="lstm",
    scale="har",
    config=LSTMConfig(hidden=4, layers=1),
    optimisation=Optimisation(max_epochs=1, device="cpu"),
)
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def saved_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`mine`: version 1, the champion, and 2, a challenger."""
    models = save_daily_model(tmp_path_factory.mktemp("models") / "mine", recipe=LSTM)
    return save_daily_model(models / "mine", 2)


@pytest.fixture
def models(saved_models: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved_models, tmp_path / "models"))


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def read_content(ledger: str | Path) -> dict[str, list[Any]]:
    """What a ledger holds, without numbers and times."""
    with Ledger.open(ledger) as opened:
        tables: dict[str, Any] = {
            "forecast": opened.query(
                'select forecast_id, symbol, role, model, version, as_of, "values", is_prospective from forecast '
                "order by as_of, model, version, symbol"
            ),
            "label": opened.query(
                "select f.as_of, f.model, f.symbol, l.horizon, l.revision, l.value, s.pinball from label l "
                "join forecast f on f.id = l.forecast left join score s on s.forecast = f.id "
                "and s.horizon = l.horizon and s.revision = l.revision order by 1, 2, 3, f.version, 4, 5"
            ),
            "evidence": opened.query("select session, monitor, horizon, lamp, state from evidence order by 1, 2, 3"),
            "event": opened.query("select kind, session, reason, detail, key from event order by session, key"),
        }
    return {name: [tuple(dict(row).values()) for row in rows] for name, rows in tables.items()}


def id_of(ledger: str) -> str:
    with Ledger.open(ledger) as opened:
        return opened.id


def rows_of(ledger: str | Path, kind: type[Any], where: str = "true") -> list[Any]:
    with Ledger.open(ledger) as opened:
        return opened.records(kind, where)


# --- which evenings


def test_the_first_run_forecasts_the_newest_session_with_every_model(models: Path, ledger: Path) -> None:
    summary = run_evenings(ledger, models / "mine", daily_bars(DAYS[3]))
    assert (summary.evenings, summary.session, summary.champion) == (1, DAYS[3], 1)
    found = {(one.model, one.version, one.role.value, one.symbol) for one in rows_of(ledger, ForecastRecord)}
    versions = [("mine", 1, "champion"), ("mine", 2, "challenger")]
    versions += [("mine-har", 1, "baseline"), ("mine-garch", 1, "baseline")]
    assert found == {(*version, symbol) for version in versions for symbol in ("AAPL", "IBM", "MSFT")}
    assert all(one.is_prospective and one.as_of == DAYS[3] for one in rows_of(ledger, ForecastRecord))


def test_parallel_jobs_record_the_same(models: Path, tmp_path: Path) -> None:
    run_evenings(tmp_path / "one.db", models / "mine", daily_bars(DAYS[0]))
    run_evenings(tmp_path / "other.db", models / "mine", daily_bars(DAYS[0]), runner=PickledJobs())
    assert read_content(tmp_path / "other.db") == read_content(tmp_path / "one.db")
    engines = [{one.engine for one in rows_of(tmp_path / f"{name}.db", ForecastRecord)} for name in ("one", "other")]
    assert engines[0] == engines[1]


def test_a_second_run_writes_nothing(models: Path, ledger: Path) -> None:
    run_evenings(ledger, models / "mine", daily_bars(DAYS[3]))
    with Ledger.open(ledger) as opened:
        before = opened.receipt
    summary = run_evenings(ledger, models / "mine", daily_bars(DAYS[3]))
    assert (summary.evenings, summary.rows, summary.bars) == (0, 0, 0)
    with Ledger.open(ledger) as opened:
        assert opened.receipt == before


def test_a_missed_week_gives_what_single_evenings_give(models: Path, tmp_path: Path) -> None:
    for day in DAYS[:7]:
        run_evenings(tmp_path / "single.db", models / "mine", daily_bars(day))
    run_evenings(tmp_path / "late.db", models / "mine", daily_bars(DAYS[0]))
    summary = run_evenings(tmp_path / "late.db", models / "mine", daily_bars(DAYS[6]))
    assert summary.evenings == 6
    assert read_content(tmp_path / "late.db") == read_content(tmp_path / "single.db")


def test_a_session_that_has_not_closed_waits(models: Path, ledger: Path) -> None:
    at_noon = datetime(2010, 1, 7, 17, tzinfo=UTC)
    with Ledger.open(ledger, create=True) as opened:
        settings = DailySettings(ledger=opened, model_folder=models / "mine")
        summary = run_due_evenings(settings, daily_bars(20100107), at_noon)
        assert (summary.session, opened.last_session) == (20100106, 20100106)


def test_a_clock_that_went_back_changes_nothing(models: Path, ledger: Path) -> None:
    run_evenings(ledger, models / "mine", daily_bars(DAYS[3]))
    before = read_content(ledger)
    with Ledger.open(ledger) as opened:
        settings = DailySettings(ledger=opened, model_folder=models / "mine")
        summary = run_due_evenings(settings, daily_bars(DAYS[5]), datetime(2009, 1, 1, tzinfo=UTC))
    assert (summary.evenings, read_content(ledger)) == (0, before)


def test_days_that_the_champion_has_seen_are_refused(models: Path, ledger: Path) -> None:
    with pytest.raises(InSampleError, match=r"2009-12-31.*2009-12-30 would prove nothing"):
        run_evenings(ledger, models / "mine", daily_bars(20091230))


def test_a_challenger_forecasts_no_day_that_it_has_seen(models: Path, ledger: Path) -> None:
    save_daily_model(models / "mine", 3, until=DAYS[5])
    run_evenings(ledger, models / "mine", daily_bars(DAYS[6]), first=DAYS[4])
    assert {one.as_of for one in rows_of(ledger, ForecastRecord, "version = 3")} == set(DAYS[5:7])


# --- scores and evidence


def test_due_forecasts_are_scored_and_the_evidence_is_recorded(models: Path, ledger: Path) -> None:
    summary = run_evenings(ledger, models / "mine", daily_bars(DAYS[4]), first=DAYS[0])
    assert len(rows_of(ledger, Label)) == 3 * 4 * (4 + 2)  # symbols, models, evenings with outcomes after 1 and 3
    assert summary.lamp is Lamp.LEARNING
    monitors = {one.monitor for one in rows_of(ledger, EvidenceRecord, f"session = {DAYS[4]}")}
    assert {"coverage too few", "skill against mine@2", "skill against mine-har@1"} <= monitors


@pytest.mark.parametrize(("every", "tested"), [(1, DAYS[:5]), (2, [DAYS[1], DAYS[3], DAYS[4]]), (9, DAYS[4:5])])
def test_the_newest_evening_always_has_a_test(models: Path, ledger: Path, every: int, tested: list[int]) -> None:
    run_evenings(ledger, models / "mine", daily_bars(DAYS[4]), first=DAYS[0], evidence_every=every)
    assert sorted({one.session for one in rows_of(ledger, EvidenceRecord)}) == tested


def test_a_red_lamp_is_an_event_once_and_needs_a_person(models: Path, ledger: Path) -> None:
    jumps = daily_bars(20100226)
    first_odd = jumps.sessions.tolist().index(DAYS[0]) | 1
    for symbol in jumps.symbols:
        jumps = scaled(jumps, slice(first_odd, None, 2), 1.12, symbol=symbol)
    with Ledger.open(ledger, create=True) as opened:
        settings = DailySettings(ledger=opened, model_folder=models / "mine", accept_suspect_bars=True)
        summary = run_due_evenings(settings, jumps, datetime.now(UTC), first=DAYS[0])
    assert summary.lamp is Lamp.RED
    assert "mine@1, 1 session ahead: too few outcomes in its band; consider: quantra retrain mine" in summary.findings
    alarms = [event.reason for event in rows_of(ledger, LedgerEvent, f"kind = '{ALARM}'")]
    assert len(alarms) == len(set(alarms)) < len(rows_of(ledger, EvidenceRecord, "lamp = 'red'"))


def test_a_large_revision_needs_a_person_until_the_next_evening(models: Path, ledger: Path) -> None:
    run_evenings(ledger, models / "mine", daily_bars(DAYS[3]), first=DAYS[0])
    revised = scaled(daily_bars(DAYS[3]), slice(-2, -1), 1.01)
    for _ in range(2):
        summary = run_evenings(ledger, models / "mine", revised)
        assert ["IBM: its outcome of" in finding for finding in summary.findings] == [True]
    later = scaled(daily_bars(DAYS[5]), slice(-4, -3), 1.01)
    assert run_evenings(ledger, models / "mine", later).findings == ()


# --- faults


def test_one_bad_symbol_fails_alone(models: Path, ledger: Path) -> None:
    bad = scaled(daily_bars(DAYS[3]), slice(-1, None), 1000)
    summary = run_evenings(ledger, models / "mine", bad)
    assert set(summary.refused) == {"IBM"}
    assert "2010-01-07" in summary.refused["IBM"]
    assert {one.symbol for one in rows_of(ledger, ForecastRecord)} == {"AAPL", "MSFT"}


def test_a_symbol_without_tonights_bar_fails_alone(models: Path, ledger: Path) -> None:
    halted = without_last_bar(daily_bars(DAYS[3]), "IBM")
    summary = run_evenings(ledger, models / "mine", halted)
    assert set(summary.refused) == {"IBM"}
    assert {one.symbol for one in rows_of(ledger, ForecastRecord, "model = 'mine'")} == {"AAPL", "MSFT"}


def test_a_damaged_challenger_fails_alone_and_needs_a_person(models: Path, ledger: Path) -> None:
    (models / "mine" / "2" / "weights.safetensors").write_bytes(b"")
    summary = run_evenings(ledger, models / "mine", daily_bars(DAYS[3]))
    assert [finding.startswith("mine@2 made no forecast: ") for finding in summary.findings] == [True]
    assert len(rows_of(ledger, ForecastRecord, "model = 'mine'")) == 3


def test_bars_of_another_universe_write_nothing(models: Path, ledger: Path) -> None:
    run_evenings(ledger, models / "mine", daily_bars(DAYS[3]))
    before = read_content(ledger)
    with pytest.raises(LedgerError, match="another universe"):
        run_evenings(ledger, models / "mine", daily_bars(DAYS[4]).select("AAPL"))
    assert read_content(ledger) == before


class CrashError(Exception):
    """The simulated end of the process."""


@pytest.mark.slow
@pytest.mark.parametrize("is_stored", [False, True])
def test_a_run_that_ends_at_any_write_is_completed_by_the_next(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_stored: bool
) -> None:
    run_evenings(tmp_path / "whole.db", models / "mine", daily_bars(DAYS[2]), first=DAYS[0])
    expected, append = read_content(tmp_path / "whole.db"), Ledger.append
    for crash_at in range(1, 12):
        ledger, writes = tmp_path / f"{crash_at}-{is_stored}.db", [0]
        shutil.copytree(tmp_path / "whole.db.baselines", f"{ledger}.baselines")

        def append_or_crash(self: Ledger, records: Iterable[Any], at: int = crash_at, count: list[int] = writes) -> int:
            count[0] += 1
            if count[0] == at and not is_stored:
                raise CrashError
            rows = append(self, records)
            if count[0] == at:
                raise CrashError
            return rows

        monkeypatch.setattr(Ledger, "append", append_or_crash)
        with pytest.raises(CrashError):
            run_evenings(ledger, models / "mine", daily_bars(DAYS[2]), first=DAYS[0])
        monkeypatch.setattr(Ledger, "append", append)
        run_evenings(ledger, models / "mine", daily_bars(DAYS[2]), first=DAYS[0])
        assert read_content(ledger) == expected


KILLED = """
import os, signal, sys
from pathlib import Path
from daily_runs import daily_bars, run_evenings
from predictor.ledger import Ledger
append, count = Ledger.append, [0]
def append_and_die(self, records):
    rows = append(self, records)
    count[0] += 1
    if count[0] == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return rows
Ledger.append = append_and_die
run_evenings(Path(sys.argv[1]), Path(sys.argv[2]), daily_bars(int(sys.argv[3])), first=int(sys.argv[4]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_killed_run_is_completed_and_the_chain_verifies(models: Path, tmp_path: Path) -> None:
    ledger, model_folder = tmp_path / "killed.db", models / "mine"
    words = [sys.executable, "-c", KILLED, ledger, model_folder, str(DAYS[2]), str(DAYS[0])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(words, check=False, env=environment, capture_output=True)
    assert ran.returncode == -signal.SIGKILL, ran.stderr.decode()
    assert 0 < len(rows_of(ledger, LedgerEvent, f"kind = '{EVENING}'")) < 3
    run_evenings(ledger, model_folder, daily_bars(DAYS[2]), first=DAYS[0])
    run_evenings(tmp_path / "whole.db", model_folder, daily_bars(DAYS[2]), first=DAYS[0])
    assert read_content(ledger) == read_content(tmp_path / "whole.db")
    with Ledger.open(ledger) as opened:
        assert not opened.verify().problem


# --- the command


def run_daily(models: Path, ledger: str | Path, bars: Path, *flags: object) -> int:
    return program_exit_code(app, "daily", "--models", models, "--ledger", ledger, "--bars", bars, "--json", *flags)


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    daily_bars(DAYS[3]).write_csv(tmp_path / "bars.csv")
    return tmp_path / "bars.csv"


def test_the_command_reports_the_evening(models: Path, ledger: Path, csv: Path, capsys: Capture) -> None:
    assert run_daily(models, ledger, csv) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["champion"], found["session"], found["evenings"]) == ("mine", 1, DAYS[3], 1)
    assert (found["lamp"], found["findings"], found["refused"]) == ("learning", [], {})


def test_the_command_says_that_a_late_bar_makes_no_forecast(
    models: Path, ledger: Path, csv: Path, tmp_path: Path, capsys: Capture
) -> None:
    words = ("daily", "--models", models, "--ledger", ledger, "--bars")
    halted = tmp_path / "halted.csv"
    without_last_bar(daily_bars(DAYS[3]), "IBM").write_csv(halted)
    said = "Bars that arrive later do not produce a forecast for this session."
    for bars in (halted, csv):
        assert program_exit_code(app, *words, bars) == 0
        assert said in capsys.readouterr().out
    assert {one.symbol for one in rows_of(ledger, ForecastRecord)} == {"AAPL", "MSFT"}


def test_bars_that_cannot_be_read_leave_no_ledger(models: Path, ledger: Path, csv: Path) -> None:
    assert run_daily(models, ledger, csv.with_name("missing.csv")) == 1
    assert not ledger.exists()


@pytest.mark.parametrize("is_new", [False, True])
def test_bars_are_read_after_other_runs_have_ended(
    models: Path, ledger: Path, csv: Path, monkeypatch: pytest.MonkeyPatch, *, is_new: bool
) -> None:
    """Older bars would revise those of the other run."""
    reads: list[bool] = []

    def read(_: BarsFlags) -> BarPanel:
        with Ledger.open(ledger, create=True) as opened, opened.claim_run() as holder:
            reads.append(bool(holder))
            if not holder:  # another run begins and ends after this one has read its bars
                run_evenings(ledger, models / "mine", daily_bars(DAYS[3]))
        return daily_bars(DAYS[3]) if holder else scaled(daily_bars(DAYS[3]), slice(-1, None), 1.01)

    if not is_new:
        Ledger.open(ledger, create=True).close()
    monkeypatch.setattr(BarsFlags, "read", read)
    assert run_daily(models, ledger, csv) == 0
    assert reads == ([False, True] if is_new else [True])
    with Ledger.open(ledger) as opened:
        assert opened.panel().close[:, -1] == pytest.approx(daily_bars(DAYS[3]).close[:, -1])


def test_the_command_ends_with_3_if_a_person_should_look(models: Path, ledger: Path, csv: Path) -> None:
    (models / "mine" / "2" / "weights.safetensors").write_bytes(b"")
    assert [run_daily(models, ledger, csv) for _ in range(2)] == [3, 3]


def test_a_second_daily_says_who_runs_and_ends_with_0(
    models: Path, ledger_database: LedgerDatabase, csv: Path, capsys: Capture
) -> None:
    address = ledger_database.address
    with Ledger.open(address, create=True) as ledger, ledger.claim_run() as holder:
        assert holder == ""
        assert run_daily(models, address, csv) == 0
    assert f"process {os.getpid()} on " in json.loads(capsys.readouterr().out)["skipped"]
    assert rows_of(address, LedgerEvent) == []


def test_a_database_records_the_same_as_a_file(
    models: Path, ledger: Path, postgresql_database: LedgerDatabase, tmp_path: Path, capsys: Capture
) -> None:
    bars = {day: tmp_path / f"{day}.csv" for day in (DAYS[3], DAYS[7])}
    for address in (ledger, postgresql_database.address):
        for day, file in bars.items():
            daily_bars(day).write_csv(file)
            assert run_daily(models, address, file) == 0
    assert read_content(ledger) == read_content(postgresql_database.address)
    assert [folder.parent for folder in tmp_path.glob("models.baselines/*/mine-har")] == [
        tmp_path / "models.baselines" / id_of(postgresql_database.address)
    ]
    capsys.readouterr()
    words = ("--ledger", postgresql_database.address, "--models", models, "--json")
    assert program_exit_code(app, "replay", "--sample", 100, *words) == 0
    assert json.loads(capsys.readouterr().out)["equal"] > 20


def test_the_model_is_named_if_there_are_several(models: Path, ledger: Path, csv: Path) -> None:
    shutil.copytree(models / "mine", models / "yours")
    assert run_daily(models, ledger, csv) == 2
    assert run_daily(models, ledger, csv, "--name", "yours") == 0
    assert {one.model for one in rows_of(ledger, LedgerEvent)} == {"yours"}


# --- the page


def page_text(ledger: Path, model_folder: Path) -> str:
    with Ledger.open(ledger) as opened:
        settings = DailySettings(ledger=opened, model_folder=model_folder)
        return render_evenings(settings, summarise(settings))


def test_a_second_run_writes_the_same_bytes(models: Path, ledger: Path, csv: Path, tmp_path: Path) -> None:
    pages = [tmp_path / "first.html", tmp_path / "second.html"]
    for page in pages:
        assert run_daily(models, ledger, csv, "--report", page) == 0
    assert pages[0].read_bytes() == pages[1].read_bytes()
    assert_loads_nothing(pages[0].read_text())


def test_the_page_shows_tonights_forecasts_with_the_highest_median_first(models: Path, ledger: Path) -> None:
    run_evenings(ledger, models / "mine", daily_bars(DAYS[3]))
    found = rows_of(ledger, ForecastRecord, "role = 'champion'")
    expected = sorted((100 * np.expm1(one.values[-1]) for one in found), key=lambda row: -row[1])
    numbers = page_of(page_text(ledger, models / "mine")).numbers
    assert numbers == pytest.approx([row[k] for row in expected for k in (1, 0, 2)])


def test_the_page_shows_events_findings_and_what_is_not_known_yet(models: Path, ledger: Path) -> None:
    run_evenings(ledger, models / "mine", daily_bars(DAYS[3]), first=DAYS[0])
    revised = scaled(daily_bars(DAYS[3]), slice(-2, -1), 1.01)
    run_evenings(ledger, models / "mine", revised)
    words = page_of(page_text(ledger, models / "mine")).words
    assert "A person should look." in words
    assert "revised bars" in words
    assert "cannot tell yet when 0.65 instead of 0.80 would be noticed" in words


def test_the_page_shows_the_reliability_of_each_horizon_with_its_dates(models: Path, ledger: Path) -> None:
    run_evenings(ledger, models / "mine", daily_bars(DAYS[6]), first=DAYS[0], evidence_every=9)
    section = page_text(ledger, models / "mine").partition('<section id="reliability">')[2].partition("</section>")[0]
    figure = json.loads(section.partition('-figure">')[2].partition("</script>")[0])
    assert [trace["name"] for trace in figure["data"]] == ["1 ahead, 6 dates", "3 ahead, 4 dates"]


def test_a_symbols_name_or_reason_cannot_inject_a_script(models: Path, ledger: Path) -> None:
    hostile = replace(daily_bars(DAYS[3]), symbols=("AAPL", HOSTILE, "MSFT"))
    bad = scaled(hostile, slice(-1, None), 1000, symbol="MSFT")
    run_evenings(ledger, models / "mine", bad)
    assert HOSTILE not in page_text(ledger, models / "mine")

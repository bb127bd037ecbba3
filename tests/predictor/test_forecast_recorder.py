"""Clients' forecasts in the ledger of a service or server."""

import logging
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
from artifacts import recent_bars, small_models
from ledger_databases import LedgerDatabase, UnreliableDatabase
from request_bytes import flat_window
from serving import failed_start, hosted_server, server_process

from predictor import file_lock
from predictor.bars import BarPanel
from predictor.call_context import CallContext
from predictor.client import QuantraClient
from predictor.dates import to_date_number
from predictor.errors import LedgerError, QuantraError, QueueFullError, UnavailableError
from predictor.file_lock import lock_file
from predictor.forecast import Forecast, Outcome
from predictor.instance import Instance
from predictor.ledger import ClientRequest, ForecastRecord, ForecastRole, Ledger, LedgerEvent
from predictor.service import ForecastRecorder, LazyRequest, PredictionService, QueuedRequest
from predictor.service import forecast_recorder as module

BARS = recent_bars("AAPL", "IBM")
EXAMPLE = LedgerEvent(kind="test")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def ledger(ledger_database: LedgerDatabase) -> Iterator[Ledger]:
    with Ledger.open(ledger_database.address, create=True) as opened:
        yield opened


@pytest.fixture
def ledger_file(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger for faults that only a file has."""
    with Ledger.open(tmp_path / "ledger.db", create=True) as opened:
        yield opened


def recording(
    models: Path, ledger: Ledger, *, is_strict: bool = False, max_waiting: int = 1000
) -> tuple[PredictionService, ForecastRecorder]:
    recorder = ForecastRecorder(ledger, engine="eager", is_strict=is_strict, max_waiting=max_waiting)
    return PredictionService.open(models, device="cpu", recorder=recorder), recorder


def ask(service: PredictionService, bars: BarPanel = BARS, caller: str = "") -> Forecast:
    (outcome,) = service.predict("small", [Instance(input=bars)], CallContext(caller=caller)).result()
    assert isinstance(outcome, Forecast)
    return outcome


def calls_in(ledger: Ledger) -> int:
    return sum(one.calls for one in ledger.records(ClientRequest))


def fill_disk(ledger: Ledger, *, free: bool) -> None:
    """Allow the file no further page, or many."""
    pages = ledger._store.read_number("pragma page_count")
    ledger._store.execute(f"pragma max_page_count = {10**6 if free else pages}")


def test_a_recorded_forecast_is_the_one_that_the_client_got(models: Path, ledger: Ledger) -> None:
    service, _ = recording(models, ledger)
    with service:
        forecast = ask(service, caller="desk")
    records = ledger.records(ForecastRecord)
    assert [one.symbol for one in records] == ["AAPL", "IBM"]
    for row, one in enumerate(records):
        assert one.role is ForecastRole.CLIENT
        assert (one.forecast_id, one.model, one.version) == (forecast.forecast_id, "small", 1)
        assert one.weights_hash == forecast.weights_hash
        assert one.as_of == BARS.sessions[-1]
        assert one.target_sessions == tuple(map(to_date_number, forecast.target_sessions))
        assert np.array_equal(one.values, forecast.values[row])
        assert one.anchor == BARS.close[row, -1]
        assert one.batch_rows == 2
    assert [(one.forecast_id, one.caller) for one in ledger.records(ClientRequest)] == [(forecast.forecast_id, "desk")]


def test_a_repeated_request_is_recorded_with_the_same_forecast(models: Path, ledger: Ledger) -> None:
    service, _ = recording(models, ledger)
    with service:
        ask(service, caller="one")
        ask(service, caller="other")
    assert len(ledger.records(ForecastRecord)) == 2
    assert ledger.requests(symbol="IBM")["caller"].tolist() == ["one", "other"]


def test_calls_that_are_recorded_together_are_counted(models: Path, ledger: Ledger) -> None:
    service, recorder = recording(models, ledger)
    instances = [Instance(input=BARS)] * 3
    with service:
        outcomes = service.predict("small", instances, CallContext(caller="desk")).result()
        service.predict("small", instances[:1], CallContext(caller="other")).result()
    assert isinstance(outcomes[0], Forecast)
    rows = ledger.records(ClientRequest)
    assert {one.forecast_id for one in rows} == {outcomes[0].forecast_id}
    assert Counter(one.caller for one in rows for _ in range(one.calls)) == {"desk": 3, "other": 1}
    assert len(rows) == 2
    assert recorder.recorded == 8


def test_the_oldest_forecasts_are_forgotten(models: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_REMEMBERED", 1)
    service, recorder = recording(models, ledger)
    with service:
        ask(service, BARS.select("AAPL"))
        newest = ask(service, BARS.select("IBM"))
    assert list(recorder._recorded_rows) == [newest.forecast_id]


def test_a_refused_symbol_is_left_out(models: Path, ledger: Ledger) -> None:
    close = BARS.close.copy()
    close[1, -1] *= 100
    wrong = replace(BARS, close=close, high=np.maximum(BARS.high, close))
    service, _ = recording(models, ledger)
    with service:
        assert set(ask(service, wrong).refusals) == {"IBM"}
    assert [one.symbol for one in ledger.records(ForecastRecord)] == ["AAPL"]


def test_a_forecast_without_dates_is_recorded(models: Path, ledger: Ledger) -> None:
    window = replace(flat_window(), as_of_session=None)
    service, _ = recording(models, ledger)
    with service:
        service.predict("small", [Instance(input=window)], CallContext()).result()
    (record,) = ledger.records(ForecastRecord)
    assert (record.as_of, record.target_sessions) == (0, ())


def test_an_error_is_not_recorded(models: Path, ledger: Ledger) -> None:
    service, _ = recording(models, ledger)
    with service:
        outcomes = service.predict(
            "small", [Instance(input=BARS.last(5)), Instance(input=BARS)], CallContext()
        ).result()
    assert isinstance(outcomes[0], QuantraError)
    assert len(ledger.records(ClientRequest)) == 1


def test_a_strict_service_answers_after_it_has_recorded(models: Path, ledger: Ledger) -> None:
    service, _ = recording(models, ledger, is_strict=True)
    with service:
        forecast = ask(service)
        assert {one.forecast_id for one in ledger.records(ForecastRecord)} == {forecast.forecast_id}


def test_a_strict_service_fails_what_it_cannot_record(models: Path, ledger_file: Ledger) -> None:
    ledger_file.append([EXAMPLE])
    service, _ = recording(models, ledger_file, is_strict=True)
    with service:
        fill_disk(ledger_file, free=False)
        with pytest.raises(LedgerError, match=r"^the ledger: the disk is full"):
            deque(iter(lambda: ask(service), None), maxlen=0)
        recorded = len(ledger_file.records(ClientRequest))
        fill_disk(ledger_file, free=True)
        ask(service)
    assert len(ledger_file.records(ClientRequest)) == recorded + 1


def test_a_forecast_that_could_not_be_recorded_is_recorded_the_next_time(models: Path, ledger_file: Ledger) -> None:
    elsewhere = Path(ledger_file.address).with_name("elsewhere")
    service, _ = recording(models, ledger_file, is_strict=True)
    with service:
        Path(ledger_file.address).rename(elsewhere)
        with pytest.raises(LedgerError, match="removed or replaced"):
            ask(service)
        elsewhere.rename(ledger_file.address)
        ask(service)
    assert [one.symbol for one in ledger_file.records(ForecastRecord)] == ["AAPL", "IBM"]


def test_forecasts_wait_for_room_on_the_disk(
    models: Path, ledger_file: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    monkeypatch.setattr(module, "DELAY_S", 0.0)
    ledger_file.append([EXAMPLE])
    service, recorder = recording(models, ledger_file)
    with service, caplog.at_level(logging.WARNING, module.__name__):
        fill_disk(ledger_file, free=False)
        ask(service)
        while not caplog.records:
            ask(service, BARS.select("IBM"))
        fill_disk(ledger_file, free=True)
    (warning,) = caplog.records
    assert "forecasts are not recorded: the ledger: the disk is full" in warning.message
    assert (recorder.recorded, recorder.lost) == (ledger_file.requests()["calls"].sum(), 0)


def test_forecasts_wait_for_a_database_that_is_away(
    models: Path,
    unreliable_database: UnreliableDatabase,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    monkeypatch.setattr(module, "DELAY_S", 0.0)
    with Ledger.open(unreliable_database.address, create=True) as ledger:
        service, recorder = recording(models, ledger)
        with service, caplog.at_level(logging.WARNING, module.__name__):
            unreliable_database.go_away()
            while not caplog.records:
                ask(service)
            unreliable_database.come_back()
        assert "forecasts are not recorded: the ledger: the connection was lost" in caplog.records[0].message
        assert (recorder.recorded, recorder.lost) == (2 * calls_in(ledger), 0)
        assert ledger.verify().problem == ""


def test_a_strict_service_fails_while_its_database_is_away(
    models: Path, unreliable_database: UnreliableDatabase
) -> None:
    with Ledger.open(unreliable_database.address, create=True) as ledger:
        service, _ = recording(models, ledger, is_strict=True)
        with service:
            unreliable_database.go_away()
            for problem in ("the connection was lost", "the database cannot be reached; start it"):
                with pytest.raises(LedgerError, match=f"^the ledger: {problem}") as caught:
                    ask(service)
                assert "127.0.0.1" not in caught.value.message
            unreliable_database.come_back()
            ask(service)
        assert len(ledger.records(ClientRequest)) == 1


def test_forecasts_beyond_the_limit_are_counted_as_a_gap(
    models: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DELAY_S", 30.0)  # nothing is written before the service is closed
    service, recorder = recording(models, ledger, max_waiting=3)
    with service:
        for symbols in (("AAPL", "IBM"), ("IBM", "AAPL"), ("IBM",)):
            ask(service, recent_bars(*symbols))
    assert (recorder.recorded, recorder.lost) == (3, 2)
    (gap,) = ledger.records(LedgerEvent)
    assert (gap.kind, gap.reason) == ("gap", "2 forecasts of clients not recorded")


def queued_request() -> QueuedRequest[tuple[Outcome, ...]]:
    return QueuedRequest(LazyRequest.of(None, 1), CallContext())


def test_a_request_that_comes_after_the_last_write_fails(models: Path, ledger: Ledger) -> None:
    service, recorder = recording(models, ledger, is_strict=True)
    with service:
        forecast = ask(service)
    late = queued_request()
    recorder.respond_and_record(late, (forecast,), 1)
    with pytest.raises(UnavailableError, match="the service is stopping"):
        late.result(0)


def test_a_strict_service_refuses_what_exceeds_the_limit(models: Path, ledger_file: Ledger) -> None:
    service, recorder = recording(models, ledger_file, is_strict=True, max_waiting=2)
    with service:
        forecast = ask(service)
        requests = [queued_request() for _ in range(3)]
        with lock_file(Path(f"{ledger_file.address}.lock")):
            for request in requests:
                recorder.respond_and_record(request, (forecast,), 1)
            with pytest.raises(QueueFullError, match="2 forecasts wait to be recorded already, at most 2"):
                requests[-1].result(30)
        assert [len(request.result(30)) for request in requests[:1]] == [1]


def test_a_write_that_is_repeated_counts_once(
    models: Path, ledger_file: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.001)
    monkeypatch.setattr(file_lock, "_PATIENCE_SECONDS", 0)
    failed = threading.Semaphore(0)

    def note_failure(_recorder: ForecastRecorder, _error: QuantraError) -> None:
        failed.release()

    monkeypatch.setattr(ForecastRecorder, "_warn", note_failure)
    service, recorder = recording(models, ledger_file)
    with service:
        forecast = ask(service)
        unscorable = replace(forecast, values=np.full_like(forecast.values, np.nan), forecast_id="unscorable")
        with lock_file(Path(f"{ledger_file.address}.lock")):
            recorder.respond_and_record(queued_request(), (unscorable,), 1)
            assert all(failed.acquire(timeout=30) for _ in range(5))
    assert (recorder.recorded, recorder.lost) == (2, 2)
    (gap,) = ledger_file.records(LedgerEvent)
    assert gap.reason == "2 forecasts of clients not recorded"


def test_every_call_for_a_lost_forecast_is_counted(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DELAY_S", 30.0)  # as above
    ledger = Ledger.open(tmp_path / "ledger.db", create=True)
    service, recorder = recording(models, ledger)
    with service:
        for _ in range(3):
            ask(service)
        (tmp_path / "ledger.db").unlink()
    ledger.close()
    assert (recorder.recorded, recorder.lost) == (0, 3 * 2)


@pytest.fixture
def bars() -> BarPanel:
    return recent_bars("AAPL")


@pytest.mark.slow
def test_a_killed_strict_server_has_recorded_and_counted_all_its_answers(
    models: Path, tmp_path: Path, bars: BarPanel
) -> None:
    path = tmp_path / "ledger.db"
    with (
        (tmp_path / "log").open("w") as log,
        server_process(models, log, "--ledger", str(path), "--ledger-mode", "strict", "--metrics-port", "0") as process,
        QuantraClient(process.target, "small") as client,
    ):
        answered = {client.predict(bars.until(session)).forecast_id for session in bars.sessions[-9:].tolist()}
        with urlopen(f"http://127.0.0.1:{process.ready['metrics_port']}/metrics") as page:
            metrics = page.read().decode()
        os.kill(process.popen.pid, signal.SIGKILL)
        process.popen.wait()
    with Ledger.open(path) as ledger:
        assert ledger.verify().problem == ""
        assert {one.forecast_id for one in ledger.records(ForecastRecord)} == answered
    assert 'quantra_ledger_forecasts_total{result="recorded"} 9.0' in metrics
    assert 'quantra_ledger_forecasts_total{result="lost"} 0.0' in metrics


@pytest.mark.slow
def test_a_stopped_server_has_recorded_all_its_answers(
    models: Path, tmp_path: Path, bars: BarPanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DELAY_S", 30.0)  # nothing is written before the server stops
    path = tmp_path / "ledger.db"
    with hosted_server(models, "--ledger", str(path)) as running, QuantraClient(running.target, "small") as client:
        answered = client.predict(bars).forecast_id
    with Ledger.open(path) as ledger:
        assert [one.forecast_id for one in ledger.records(ForecastRecord)] == [answered]


def test_a_strict_server_refuses_to_start_with_a_damaged_ledger(models: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"no ledger")
    done = failed_start("--models", str(models), "--ledger", str(path), "--ledger-mode", "strict")
    assert done.returncode == 1
    assert f"{path}: it is not a ledger, or it is damaged" in done.stderr


@pytest.mark.slow
def test_a_server_serves_without_a_damaged_ledger_and_says_so(
    models: Path, tmp_path: Path, bars: BarPanel, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"no ledger")
    with hosted_server(models, "--ledger", str(path)) as running, QuantraClient(running.target, "small") as client:
        client.predict(bars)
    assert "forecasts are not recorded" in caplog.text


@pytest.mark.slow
def test_a_server_that_starts_before_its_database_records_once_it_is_there(
    models: Path, unreliable_database: UnreliableDatabase, bars: BarPanel, caplog: pytest.LogCaptureFixture
) -> None:
    address = unreliable_database.address
    unreliable_database.go_away()
    with hosted_server(models, "--ledger", address) as running, QuantraClient(running.target, "small") as client:
        forecast_id = client.predict(bars).forecast_id
        with pytest.raises(LedgerError, match=r"^the ledger: the database cannot be reached; start it"):
            client.forecasts()
        unreliable_database.come_back()
    with Ledger.open(address) as ledger:
        assert [one.forecast_id for one in ledger.records(ForecastRecord)] == [forecast_id]
    assert "the database cannot be reached: " in caplog.text

"""LedgerService: forecasts, health and events of a ledger over gRPC."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pandas as pd
import pytest
from artifacts import recent_bars, save_small_artifact
from canned_service import CannedService, forecast_of
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_databases import LedgerDatabase
from ledger_records import forecast_record
from market import bokeh_panel, without_bars
from serving import Served, hosted_server, serving

from predictor._pb import ledger_pb2 as pb
from predictor._pb.ledger_pb2_grpc import LedgerServiceStub
from predictor.call_context import CallContext
from predictor.calls import LedgerCalls
from predictor.client import AsyncQuantraClient, QuantraClient
from predictor.due_forecasts import PATIENCE, score_due_forecasts
from predictor.errors import CallCancelledError, InternalError, QuantraError, UnavailableError, get_error_status
from predictor.evidence import CoverageSide, Lamp
from predictor.ledger import EvidenceRecord, ForecastRole, Ledger, LedgerEvent, Score, forecast_listing
from predictor.model_health import COVERAGE, SKILL
from predictor.server import ServerLimits
from predictor.server.tokens import TokenGuard, Tokens
from predictor.wire import errors as wire_errors

PANEL = bokeh_panel("AAPL", "IBM", "MSFT").last(40)
DAYS = PANEL.sessions.tolist()
BAND = f"{COVERAGE} {CoverageSide.TOO_FEW}"
CLIENT = replace(forecast_record(PANEL, 12), role=ForecastRole.CLIENT, forecast_id="client")
OTHER = replace(forecast_record(PANEL, 14), version=2, role=ForecastRole.CHALLENGER, forecast_id="other")


METHODS = ("GetForecast", "ListForecasts", "GetHealth", "WatchEvents")


@pytest.fixture(scope="module")
def filled_calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedgerCalls]:
    """The calls of a ledger with a forecast and an event."""
    with Ledger.open(tmp_path_factory.mktemp("filled") / "ledger.db", create=True) as opened:
        opened.append([forecast_record(PANEL, 10), LedgerEvent(kind="one")])
        calls = LedgerCalls(opened, list)
        yield calls
        calls.close()


@pytest.fixture
def ledger(ledger_database: LedgerDatabase) -> Iterator[Ledger]:
    with Ledger.open(ledger_database.address, create=True) as opened:
        yield opened


@pytest.fixture
def served(ledger: Ledger) -> Iterator[Served]:
    calls = LedgerCalls(ledger, lambda: [("mine", 2)], poll_s=0.01)
    with serving(CannedService(forecast_of), ledger=calls) as running:
        yield running


@contextmanager
def serving_ledger(calls: LedgerCalls, **settings: Any) -> Generator[LedgerServiceStub]:
    """A client of a server with these calls."""
    with (
        serving(CannedService(forecast_of), ledger=calls, **settings) as running,
        grpc.insecure_channel(running.target) as channel,
    ):
        yield LedgerServiceStub(channel)


@pytest.fixture
def stub(served: Served) -> "Iterator[LedgerServiceStub]":
    with grpc.insecure_channel(served.target) as channel:
        yield LedgerServiceStub(channel)


def refusal(call: Callable[[], object]) -> tuple[str, str, str]:
    """Status, reason and message of a failing call."""
    with pytest.raises(grpc.RpcError) as failure:
        call()
    error: Any = failure.value
    details = dict(error.trailing_metadata()).get(wire_errors.DETAILS_KEY, b"")
    meant = wire_errors.decode_details(details)
    return error.code().name, get_error_status(meant).reason if meant else "", error.details()


def listed(stub: LedgerServiceStub, **fields: Any) -> list[pb.RecordedForecast]:
    return [one for part in stub.ListForecasts(pb.ListForecastsRequest(**fields), timeout=30) for one in part.forecasts]


def get_one(stub: LedgerServiceStub, forecast_id: str) -> pb.RecordedForecast:
    (found,) = stub.GetForecast(pb.GetForecastRequest(forecast_id=forecast_id), timeout=30).forecasts
    return found


# --- forecasts


def test_a_forecast_is_read_with_its_outcomes(ledger: Ledger, stub: LedgerServiceStub) -> None:
    record = forecast_record(PANEL, 10)
    ledger.append([record])
    ledger.add_bars(PANEL)
    score_due_forecasts(ledger)
    found = get_one(stub, record.forecast_id)
    assert (found.model, found.version, found.role) == ("mine", 1, pb.FORECAST_ROLE_CHAMPION)
    assert (found.as_of_session, tuple(found.target_sessions)) == (record.as_of, record.target_sessions)
    np.testing.assert_array_equal(np.frombuffer(found.values, "<f8").reshape(2, 3), record.values)
    assert (found.anchor_price, found.is_prospective) == (100.0, True)
    first, second = ledger.records(Score)
    assert [(one.horizon, one.revision, one.status) for one in found.outcomes] == [
        (1, 0, pb.OUTCOME_STATUS_SCORED),
        (5, 0, pb.OUTCOME_STATUS_SCORED),
    ]
    assert [(one.pinball, one.is_inside, one.level) for one in found.outcomes] == [
        (score.pinball, score.is_inside, score.pit) for score in (first, second)
    ]


def test_one_symbol_of_a_forecast_can_be_chosen(ledger: Ledger, stub: LedgerServiceStub) -> None:
    ledger.append([forecast_record(PANEL, 10, symbol) for symbol in ("AAPL", "IBM")])
    both = stub.GetForecast(pb.GetForecastRequest(forecast_id="10"), timeout=30).forecasts
    one = stub.GetForecast(pb.GetForecastRequest(forecast_id="10", symbol="IBM"), timeout=30).forecasts
    assert [[found.symbol for found in part] for part in (both, one)] == [["AAPL", "IBM"], ["IBM"]]


def test_an_unknown_forecast_is_an_empty_list(stub: LedgerServiceStub) -> None:
    assert not stub.GetForecast(pb.GetForecastRequest(forecast_id="none"), timeout=30).forecasts


def test_an_unscorable_outcome_says_why(ledger: Ledger, stub: LedgerServiceStub) -> None:
    ledger.append([forecast_record(PANEL, 10, horizons=(1,))])
    ledger.add_bars(without_bars(PANEL, "IBM", slice(11, 12)).until(DAYS[11 + PATIENCE]))
    score_due_forecasts(ledger)
    (outcome,) = get_one(stub, "10").outcomes
    assert outcome.status == pb.OUTCOME_STATUS_UNSCORABLE
    assert outcome.reason.startswith("halted on")
    assert not any(outcome.HasField(name) for name in ("value", "pinball", "is_inside", "level"))


def test_a_revision_is_a_second_outcome(ledger: Ledger, stub: LedgerServiceStub) -> None:
    ledger.append([forecast_record(PANEL, 10, horizons=(1,))])
    ledger.add_bars(without_bars(PANEL, "IBM", slice(11, 12)))
    score_due_forecasts(ledger)
    ledger.add_bars(PANEL)
    score_due_forecasts(ledger)
    outcomes = get_one(stub, "10").outcomes
    assert [(one.revision, one.status) for one in outcomes] == [
        (0, pb.OUTCOME_STATUS_UNSCORABLE),
        (1, pb.OUTCOME_STATUS_SCORED),
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["10", "12", "client", "other"]),
        ({"model": "mine"}, ["10", "12", "client", "other"]),
        ({"model": "mine@2"}, ["other"]),
        ({"model": "unknown"}, []),
        ({"symbol": "AAPL"}, ["10"]),
        ({"first_session": DAYS[12]}, ["12", "client", "other"]),
        ({"last_session": DAYS[12]}, ["10", "12", "client"]),
        ({"roles": [pb.FORECAST_ROLE_CLIENT, pb.FORECAST_ROLE_CHALLENGER]}, ["client", "other"]),
        ({"newest": 2}, ["client", "other"]),
        ({"newest": 2, "model": "mine@1"}, ["12", "client"]),
        ({"newest": 9}, ["10", "12", "client", "other"]),
    ],
)
def test_filters_choose_forecasts(
    ledger: Ledger, stub: LedgerServiceStub, fields: dict[str, Any], expected: list[str]
) -> None:
    ledger.append([forecast_record(PANEL, 10, "AAPL"), forecast_record(PANEL, 12), CLIENT, OTHER])
    assert [one.forecast_id for one in listed(stub, **fields)] == expected


@pytest.mark.parametrize("newest", [0, 3, 7])
def test_a_long_list_comes_in_parts_without_gaps(
    ledger: Ledger, stub: LedgerServiceStub, monkeypatch: pytest.MonkeyPatch, newest: int
) -> None:
    monkeypatch.setattr(forecast_listing, "PART", 2)
    monkeypatch.setattr(forecast_listing, "_WINDOW", 5)
    ledger.append([forecast_record(PANEL, day, "IBM" if day % 3 else "AAPL") for day in range(20)])
    expected = [str(day) for day in range(20) if day % 3]
    assert [one.forecast_id for one in listed(stub, symbol="IBM", newest=newest)] == expected[-newest:]


def test_no_part_is_read_before_the_caller_has_taken_the_last_one(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast_listing, "PART", 2)
    ledger.append([forecast_record(PANEL, day) for day in range(5)])
    calls, emitted, has_part = LedgerCalls(ledger, list), list[bytes](), threading.Semaphore(0)

    def emit(message: bytes) -> None:
        emitted.append(message)
        has_part.release()

    stream = calls.open("ListForecasts", CallContext(), emit)
    stream.send(b"")
    sizes: list[int] = []
    for _ in range(3):
        assert has_part.acquire(timeout=30)
        calls.handle("GetHealth", b"", CallContext()).result(30)  # on the same thread, so after any further part
        sizes.append(len(emitted))
        stream.acknowledge(len(emitted[-1]))
    stream.completion.result(30)
    calls.close()
    assert sizes == [1, 2, 3]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"first_session": 20240230}, "first_session: 20240230 is not a date"),
        ({"last_session": -1}, "last_session: -1 is not a date"),
        ({"first_session": DAYS[2], "last_session": DAYS[1]}, "exchange them"),
        ({"model": "mine@"}, "is not NAME or NAME@VERSION"),
        ({"model": "mine@champion"}, "is not NAME or NAME@VERSION"),
        ({"model": f"mine@{10**20}"}, "is not NAME or NAME@VERSION"),
        ({"roles": [0]}, "0 is not a role"),
        ({"newest": -1}, "newest: -1 is negative"),
    ],
)
def test_an_invalid_filter_is_refused(stub: LedgerServiceStub, fields: dict[str, Any], message: str) -> None:
    status, reason, told = refusal(lambda: listed(stub, **fields))
    assert (status, reason) == ("INVALID_ARGUMENT", "MALFORMED_REQUEST")
    assert message in told


def test_a_request_of_many_fields_is_too_large(stub: LedgerServiceStub) -> None:
    status, reason, _ = refusal(lambda: listed(stub, roles=[pb.FORECAST_ROLE_CLIENT] * 20_000))
    assert (status, reason) == ("RESOURCE_EXHAUSTED", "REQUEST_TOO_LARGE")


def test_a_forecast_without_an_id_is_refused(stub: LedgerServiceStub) -> None:
    status, reason, _ = refusal(lambda: stub.GetForecast(pb.GetForecastRequest(), timeout=30))
    assert (status, reason) == ("INVALID_ARGUMENT", "MALFORMED_REQUEST")


def test_the_client_reads_forecasts_with_their_newest_outcomes_as_a_table(ledger: Ledger, served: Served) -> None:
    ledger.append([forecast_record(PANEL, day, "IBM", [1, 20]) for day in (10, 11)])
    ledger.add_bars(without_bars(PANEL, "IBM", slice(11, 12)).until(DAYS[25]))
    score_due_forecasts(ledger)
    ledger.add_bars(PANEL.until(DAYS[25]))
    score_due_forecasts(ledger)
    with QuantraClient(served.target) as client:
        found = client.forecasts(symbol="IBM")
        assert client.forecasts(symbol="AAPL").empty
        assert len(client.forecasts(since=DAYS[11])) == 2
    expected = ledger.forecasts().drop(columns="forecast")
    pd.testing.assert_frame_equal(found.loc[:, [*expected.columns]], expected)
    scored = ledger.scores()
    newest = scored[scored["revision"] == scored.groupby("forecast")["revision"].transform("max")]
    assert list(scored["revision"]) == [0, 0, 1, 1]
    assert list(found["value"].dropna()) == list(newest["value"])
    assert list(found["is_inside"].isna()) == [False, True, False, True]


def test_the_asynchronous_client_reads_the_same_table(ledger: Ledger, served: Served) -> None:
    ledger.append([forecast_record(PANEL, day, "IBM", [1, 20]) for day in (10, 11)])

    async def ask() -> tuple[pd.DataFrame, pd.DataFrame]:
        async with AsyncQuantraClient(served.target) as client:
            return await client.forecasts(symbol="IBM"), await client.forecasts(newest=1)

    found, newest = asyncio.run(ask())
    with QuantraClient(served.target) as client:
        pd.testing.assert_frame_equal(found, client.forecasts(symbol="IBM"))
        pd.testing.assert_frame_equal(newest, client.forecasts(newest=1))
    assert (len(found), len(newest)) == (4, 2)


def test_a_closed_asynchronous_client_reads_no_forecasts(served: Served) -> None:
    async def ask() -> None:
        client = AsyncQuantraClient(served.target)
        await client.close()
        await client.forecasts()

    with pytest.raises(UnavailableError, match="closed"):
        asyncio.run(ask())


@pytest.mark.slow
def test_a_server_lists_the_forecasts_that_it_made(tmp_path: Path) -> None:
    save_small_artifact(tmp_path / "models" / "mine" / "1")
    bars = recent_bars("AAPL", "IBM")
    flags = ("--ledger", str(tmp_path / "ledger.db"), "--ledger-mode", "strict")
    with (
        hosted_server(tmp_path / "models", *flags) as running,
        QuantraClient(running.target, model="mine") as client,
        grpc.insecure_channel(running.target) as channel,
    ):
        made = client.predict(bars)
        found = listed(LedgerServiceStub(channel), model="mine@1")
    assert [(one.forecast_id, one.symbol, one.role) for one in found] == [
        (made.forecast_id, symbol, pb.FORECAST_ROLE_CLIENT) for symbol in ("AAPL", "IBM")
    ]


def encoded(message: Message) -> bytes:
    return message.SerializeToString()


NAMES = st.text(max_size=300) | st.sampled_from(["mine", "mine@1", "IBM", "10"])
INTEGERS = st.integers(-(2**31), 2**31 - 1) | st.sampled_from(DAYS)
REQUESTS = (
    st.tuples(st.sampled_from([*METHODS]), st.binary(max_size=60))
    | st.tuples(
        st.just("ListForecasts"),
        st.builds(
            pb.ListForecastsRequest,
            model=NAMES,
            symbol=NAMES,
            first_session=INTEGERS,
            last_session=INTEGERS,
            newest=INTEGERS,
        ).map(encoded),
    )
    | st.tuples(
        st.just("WatchEvents"),
        st.builds(pb.WatchEventsRequest, model=NAMES, after=st.integers(-(2**63), 2**63 - 1)).map(encoded),
    )
)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(request=REQUESTS)
def test_no_request_is_an_internal_error(filled_calls: LedgerCalls, request: tuple[str, bytes]) -> None:
    name, body = request
    context = CallContext()
    if name in {"GetForecast", "GetHealth"}:
        error = filled_calls.handle(name, body, context).exception(30)
    else:
        stream = filled_calls.open(name, context, lambda _: None)
        stream.send(body)
        filled_calls.handle("GetHealth", b"", CallContext()).result(30)  # on the same thread, so after the first part
        error = stream.completion.exception(0) if stream.completion.done() else None
        stream.cancel()
    assert not isinstance(error, InternalError)


# --- health


def test_health_has_the_newest_evidence_of_each_version(ledger: Ledger, stub: LedgerServiceStub) -> None:
    def evidence(
        version: int, session: int, lamp: Lamp, monitor: str = f"{COVERAGE} {CoverageSide.TOO_FEW}"
    ) -> EvidenceRecord:
        state = {"days": 40, "share": 0.75, "promised": 0.8} if monitor.startswith(COVERAGE) else {"days": 30}
        return EvidenceRecord(
            model="mine", version=version, monitor=monitor, horizon=1, session=session, lamp=lamp, state=state
        )

    ledger.add_bars(PANEL)
    skill = f"{SKILL} har@1"
    ledger.append([evidence(1, DAYS[1], Lamp.RED), evidence(2, DAYS[1], Lamp.RED)])
    ledger.append([evidence(2, DAYS[2], Lamp.GREEN), evidence(2, DAYS[2], Lamp.LEARNING, skill)])
    found = stub.GetHealth(pb.GetHealthRequest(), timeout=30)
    assert found.last_session == DAYS[-1]
    assert [(one.version, one.is_champion, one.lamp) for one in found.models] == [
        (1, False, pb.LAMP_RED),
        (2, True, pb.LAMP_GREEN),
    ]
    coverage, losses = found.models[1].tests
    assert (coverage.session, coverage.days, coverage.share, coverage.promised) == (DAYS[2], 40, 0.75, 0.8)
    assert (losses.monitor, losses.days, losses.HasField("share")) == (skill, 30, False)
    assert [one.version for one in stub.GetHealth(pb.GetHealthRequest(model="mine@1"), timeout=30).models] == [1]


# --- events

WRITE_EVENT = """
import sys
from predictor.ledger import Ledger, LedgerEvent
with Ledger.open(sys.argv[1]) as ledger:
    ledger.append([LedgerEvent(kind="alarm", model="mine", version=2, session=20120103, reason="too few")])
"""


def test_a_watcher_gets_past_events_and_those_that_another_process_writes(
    ledger: Ledger, stub: LedgerServiceStub
) -> None:
    ledger.append([LedgerEvent(kind="evening", model=model, detail={"forecasts": 3}) for model in ("mine", "yours")])
    events = stub.WatchEvents(pb.WatchEventsRequest(model="mine"), timeout=60)
    first = next(events)
    assert (first.number, first.kind, first.detail_json) == (1, "evening", '{"forecasts": 3}')
    subprocess.run([sys.executable, "-c", WRITE_EVENT, ledger.address], check=True)
    second = next(events)
    assert (second.number, second.kind, second.version, second.session, second.reason) == (
        *(3, "alarm", 2),
        *(20120103, "too few"),
    )
    assert second.made_at_ns == ledger.query("select made_at from chain order by batch desc")[0]["made_at"]
    events.cancel()


def test_a_watcher_continues_after_the_last_event_that_it_has(ledger: Ledger, stub: LedgerServiceStub) -> None:
    ledger.append([LedgerEvent(kind=kind) for kind in ("one", "two", "three")])
    events = stub.WatchEvents(pb.WatchEventsRequest(after=2), timeout=60)
    assert next(events).kind == "three"
    events.cancel()


def test_a_watcher_of_events_after_a_negative_number_is_refused(stub: LedgerServiceStub) -> None:
    status, reason, message = refusal(lambda: next(stub.WatchEvents(pb.WatchEventsRequest(after=-1), timeout=60)))
    assert (status, reason) == ("INVALID_ARGUMENT", "MALFORMED_REQUEST")
    assert message.startswith("after: -1 is negative")


def test_more_events_than_are_read_at_once_all_arrive(ledger: Ledger, stub: LedgerServiceStub) -> None:
    ledger.append([LedgerEvent(kind="one") for _ in range(250)])
    events = stub.WatchEvents(pb.WatchEventsRequest(), timeout=60)
    assert [next(events).number for _ in range(250)] == list(range(1, 251))
    events.cancel()


def test_a_drain_ends_watchers(ledger: Ledger, served: Served, stub: LedgerServiceStub) -> None:
    ledger.append([LedgerEvent(kind="one")])
    events = stub.WatchEvents(pb.WatchEventsRequest(), timeout=60)
    next(events)
    served.begin_drain()
    status, reason, _ = refusal(lambda: next(events))
    assert (status, reason) == ("UNAVAILABLE", "UNAVAILABLE")
    served.drained.result(30)


def test_watchers_count_as_streams(ledger: Ledger) -> None:
    ledger.append([LedgerEvent(kind="one")])
    calls = LedgerCalls(ledger, list)
    with serving_ledger(calls, limits=ServerLimits(streams=1)) as stub:
        events = stub.WatchEvents(pb.WatchEventsRequest(), timeout=60)
        next(events)
        status, reason, _ = refusal(lambda: next(stub.WatchEvents(pb.WatchEventsRequest(), timeout=60)))
        assert (status, reason) == ("RESOURCE_EXHAUSTED", "QUEUE_FULL")
        events.cancel()


def test_no_thread_outlives_the_watchers_and_their_server(ledger: Ledger) -> None:
    before = {*threading.enumerate()}
    calls = LedgerCalls(ledger, list, poll_s=3600)
    stream = calls.open("WatchEvents", CallContext(), lambda _: None)
    stream.send(b"")
    calls.handle("GetHealth", b"", CallContext()).result(30)  # after the first read, so the stream waits now
    assert {thread.name for thread in {*threading.enumerate()} - before} == {"ledger", "ledger events"}
    calls.close()
    with pytest.raises(QuantraError):
        stream.completion.result(30)
    assert not {*threading.enumerate()} - before


def test_a_cancelled_watcher_reads_no_more(ledger: Ledger) -> None:
    calls = LedgerCalls(ledger, list, poll_s=0.01)
    context, emitted, both = CallContext(), list[bytes](), threading.Barrier(2)
    cancelled = calls.open("WatchEvents", context, emitted.append)
    follower = calls.open("WatchEvents", CallContext(), lambda _: both.wait(30))
    for stream in (cancelled, follower):
        stream.send(b"")
    calls.handle("GetHealth", b"", CallContext()).result(30)  # both wait now
    cancelled.cancel()
    ledger.append([LedgerEvent(kind="one")])
    both.wait(30)
    calls.close()
    assert emitted == []
    with pytest.raises(CallCancelledError):
        context.check()


# --- access


def test_reflection_describes_the_service(served: Served) -> None:
    with grpc.insecure_channel(served.target) as channel:
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        methods = pool.FindServiceByName("quantra.v1.LedgerService").methods_by_name
    assert set(methods) == set(CALLS)


CALLS: dict[str, Callable[[LedgerServiceStub], object]] = {
    "GetForecast": lambda stub: stub.GetForecast(pb.GetForecastRequest(forecast_id="1"), timeout=30),
    "ListForecasts": lambda stub: next(stub.ListForecasts(pb.ListForecastsRequest(), timeout=30)),
    "GetHealth": lambda stub: stub.GetHealth(pb.GetHealthRequest(), timeout=30),
    "WatchEvents": lambda stub: next(stub.WatchEvents(pb.WatchEventsRequest(), timeout=30)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_server_without_a_ledger_says_how_to_start_it_with_one(name: str) -> None:
    with serving_ledger(LedgerCalls(None, list)) as stub:
        status, reason, message = refusal(lambda: CALLS[name](stub))
    assert (status, reason) == ("FAILED_PRECONDITION", "NO_LEDGER")
    assert "--ledger LEDGER" in message


def test_the_ledger_is_for_readers(ledger: Ledger) -> None:
    tokens = {"desk": ("predict,admin", "a" * 32), "page": ("reader", "b" * 32)}
    guard = TokenGuard(Tokens.parse("\n".join(f"{name} {roles} {token}" for name, (roles, token) in tokens.items())))
    calls = LedgerCalls(ledger, list)
    with serving_ledger(calls, guard=guard) as stub:
        health = stub.GetHealth
        desk, page = ((("authorization", f"Bearer {token}"),) for _, token in tokens.values())
        status, reason, message = refusal(lambda: health(pb.GetHealthRequest(), timeout=30, metadata=desk))
        assert (status, reason) == ("PERMISSION_DENIED", "PERMISSION_DENIED")
        assert "needs the role reader" in message
        health(pb.GetHealthRequest(), timeout=30, metadata=page)


def test_a_watcher_whose_token_was_revoked_gets_no_event(ledger: Ledger) -> None:
    guard = TokenGuard(Tokens.parse(f"page reader {'b' * 32}"))
    calls = LedgerCalls(ledger, list, poll_s=0.01)
    ledger.append([LedgerEvent(kind="one")])
    with serving_ledger(calls, guard=guard) as stub:
        metadata = (("authorization", f"Bearer {'b' * 32}"),)
        events = stub.WatchEvents(pb.WatchEventsRequest(), timeout=60, metadata=metadata)
        next(events)
        guard.change(Tokens.parse(f"page reader {'c' * 32}"))
        ledger.append([LedgerEvent(kind="two")])
        assert refusal(lambda: next(events))[0] == "UNAUTHENTICATED"

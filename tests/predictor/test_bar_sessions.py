"""Bar sessions of both Python clients over gRPC: forecasts equal `Predict` on all bars sent."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast, final

import grpc
import grpc.aio
import numpy as np
import pytest
from artifacts import UNIVERSE, recent_bars, save_artifact, save_small_artifact
from canned_service import CannedService, forecast_of
from covariate_files import bars as covered_bars
from covariate_files import save_artifact_with, source
from ensembles import artifact_of, save_ensemble
from model_folders import RUNTIME
from pushing import SentBars, day_of, scaled
from serving import Served, serving

from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.calls import PredictionCalls
from predictor.client import AsyncQuantraClient, PushAccepted, QuantraClient
from predictor.client.sessions import AsyncBarSession, BarSession, SessionRequests
from predictor.covariates import Covariates, CovariateSource
from predictor.errors import (
    BarIncompleteError,
    BarsError,
    CovariateMissingError,
    DeadlineExceededError,
    DuplicateIdError,
    QuantraError,
    ResubscribeError,
    SessionGapError,
    TooFewBarsError,
    UnavailableError,
    UnknownSessionError,
)
from predictor.forecast import Forecast
from predictor.instance import GapPolicy, Instance
from predictor.registry import Registry
from predictor.service import PredictionService
from predictor.subscription import Push
from predictor.wire import instances

PANEL = recent_bars(*UNIVERSE)
DAYS = tuple(int(day) for day in PANEL.sessions)
AHEAD = 12
"""Number of pushed days."""
BEFORE = PANEL.until(DAYS[-AHEAD - 1])
SOON_S = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models: a network, a graph, an ensemble with members of different look-back, and one with covariates."""
    models = tmp_path_factory.mktemp("models")
    save_small_artifact(models / "lstm" / "1")
    save_small_artifact(models / "graph" / "1", "graph")
    short = save_artifact(models / "short" / "1", artifact_of("gru", encoder_length=30, seed=3))
    save_ensemble(models / "joint" / "1", {"long": models / "lstm" / "1", "short": short})
    save_artifact_with(models / "covered" / "1", source(tmp_path_factory.mktemp("files")))
    return models


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Served]:
    with PredictionService.open(folder) as service, serving(service) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[QuantraClient]:
    with QuantraClient(server.target, "lstm") as opened:
        yield opened


def assert_same(pushed: object, asked: Forecast) -> None:
    """Assert bit-for-bit equality, including warnings and input names."""
    assert isinstance(pushed, Forecast)
    assert pushed.forecast_id == asked.forecast_id
    assert np.array_equal(pushed.values, asked.values, equal_nan=True)
    assert (pushed.warnings, pushed.as_of_session) == (asked.warnings, asked.as_of_session)
    assert [error.message for error in pushed.refusals.values()] == [e.message for e in asked.refusals.values()]


# --- forecasts equal those of the whole history


@pytest.mark.parametrize("model", ["lstm", "graph", "joint"])
def test_each_forecast_is_that_of_all_bars_sent_so_far(server: Served, model: str) -> None:
    with QuantraClient(server.target, model) as client, client.open_session(BEFORE) as session:
        assert_same(session.forecast, client.predict(BEFORE))
        for day in DAYS[-AHEAD:]:
            assert_same(session.push(day_of(PANEL, day)), client.predict(PANEL.until(day)))


def with_events(panel: BarPanel) -> BarPanel:
    """Raw bars with a 2:1 split of GOOG, a 1:3 split of MSFT and dividends of IBM among the last days."""
    nothing = np.full_like(panel.close, np.nan)
    split, paid = nothing.copy(), nothing.copy()
    columns = {name: getattr(panel, name).copy() for name in ("open", "high", "low", "close", "volume")}
    for row, back, ratio in ((1, 8, 2.0), (3, 5, 1 / 3)):
        split[row, -back] = ratio
        for name, values in columns.items():
            values[row, -back:] *= ratio if name == "volume" else 1 / ratio
    paid[2, [-120, -7, -2]] = 2.5
    return replace(panel, adj_close=None, split_ratio=split, cash_dividend=paid, **columns)


def with_gaps(panel: BarPanel) -> BarPanel:
    """The panel with missing bars, early and among the last days."""
    columns = {name: getattr(panel, name).copy() for name in panel.columns}
    for values in columns.values():
        values[0, [-40, -39, -6]] = np.nan
        values[2, [-9, -8, -3]] = np.nan
    return replace(panel, **columns)


def raw(panel: BarPanel) -> BarPanel:
    """The panel without adjusted closes, splits and dividends."""
    return replace(panel, adj_close=None)


def single_symbol(panel: BarPanel) -> BarPanel:
    """One symbol of the panel."""
    return panel.select(["IBM"])


@pytest.mark.parametrize("change", [with_events, with_gaps, raw, single_symbol])
def test_bars_of_every_kind_are_gone_on_with(client: QuantraClient, change: Callable[[BarPanel], BarPanel]) -> None:
    panel = change(PANEL)
    with client.open_session(panel.until(DAYS[-AHEAD - 1])) as session:
        for day in DAYS[-AHEAD:]:
            assert_same(session.push(day_of(panel, day)), client.predict(panel.until(day)))


@pytest.mark.parametrize("policy", [GapPolicy.MASK, GapPolicy.IGNORE])
def test_days_that_are_left_out_are_read_as_the_subscription_said(client: QuantraClient, policy: GapPolicy) -> None:
    first = Instance(input=BEFORE, gap_policy=policy)
    sent = SentBars.of(BEFORE)
    with client.open_session(first) as session:
        for day in DAYS[-AHEAD::3]:
            bars = day_of(PANEL, day)
            sent.add(bars)
            assert_same(session.push(bars), client.predict(sent.instance(first)))


def test_symbols_that_come_one_by_one_late_or_corrected_make_the_same_history(client: QuantraClient) -> None:
    sent, rng = SentBars.of(BEFORE), np.random.default_rng(4)
    with client.open_session(BEFORE) as session:
        for place, day in enumerate(DAYS[-AHEAD:]):
            answer: object = None
            for symbol in rng.permutation(UNIVERSE)[: 4 if place % 3 else 3]:
                bars = scaled(day_of(PANEL, day, symbol), 1.001) if symbol == "IBM" else day_of(PANEL, day, symbol)
                sent.add(bars)
                answer = session.push(bars)
            answer = session.flush() if place % 3 == 0 else answer
            assert_same(answer, client.predict(sent.panel()))
            corrected = day_of(PANEL, day, "AAPL", "IBM")
            sent.add(corrected)
            assert_same(session.push(corrected), client.predict(sent.panel()))


def test_a_short_history_grows_until_it_is_as_long_as_the_model_reads(client: QuantraClient) -> None:
    short = PANEL.between(DAYS[60], DAYS[-AHEAD - 1])
    with client.open_session(short) as session:
        for day in DAYS[-AHEAD:]:
            assert_same(session.push(day_of(PANEL, day)), client.predict(PANEL.between(DAYS[60], day)))


@pytest.fixture(scope="module")
def covariates(tmp_path_factory: pytest.TempPathFactory) -> CovariateSource:
    return source(tmp_path_factory.mktemp("same_files"))


def on_day(every: Covariates, sessions: int) -> Covariates:
    """The covariates that are pushed with the last of so many sessions."""
    day = every.last(1)
    assert len(every.known["rebalance"][0]) == sessions + len(every.future_sessions)
    return replace(day, numbers={}, categories={})


def test_covariates_are_pushed_with_the_bars(server: Served, covariates: CovariateSource) -> None:
    panel = covered_bars()
    days = [int(day) for day in panel.sessions[-AHEAD - 10 : -10]]
    with QuantraClient(server.target, "covered") as client:
        info = client.model()
        before = panel.until(days[0])
        with client.open_session(before, covariates.for_model(info, before)) as session:
            for day in days[1:]:
                whole = panel.until(day)
                beside = covariates.for_model(info, whole)
                pushed = session.push(day_of(panel, day), on_day(beside, len(whole.sessions)))
                assert_same(pushed, client.predict(whole, beside))
            with pytest.raises(CovariateMissingError):
                session.push(panel.last(1))


# --- refusals


def refusal(push: Callable[[], object]) -> QuantraError:
    with pytest.raises(QuantraError) as caught:
        push()
    return caught.value


def test_a_refused_push_leaves_the_session_unchanged(client: QuantraClient) -> None:
    first, second, third = DAYS[-AHEAD : -AHEAD + 3]
    bad = [
        (day_of(PANEL, second), SessionGapError),
        (day_of(PANEL, DAYS[-AHEAD - 2]), BarsError),
        (PANEL.between(first, second), BarsError),
        (day_of(recent_bars("FB"), first), BarsError),
        (replace(day_of(PANEL, first), adj_close=None), BarsError),
        (day_of(PANEL, first).without_bars(20130302), BarsError),  # a Saturday
        (scaled(day_of(PANEL, first, "IBM"), 0.5), ResubscribeError),
    ]
    with client.open_session(BEFORE) as session:
        for day in (first, second, third):
            for bars, kind in bad:
                if day == first:
                    assert type(refusal(lambda bars=bars: session.push(bars))) is kind
            assert_same(session.push(day_of(PANEL, day)), client.predict(PANEL.until(day)))


def test_a_bar_of_a_day_on_which_the_exchange_was_closed_is_refused_though_others_have_not_come(
    client: QuantraClient,
) -> None:
    friday, monday = 20130222, 20130225
    with client.open_session(PANEL.until(friday)) as session:
        saturday = replace(day_of(PANEL, monday, "IBM"), sessions=np.array([20130223], np.int32))
        assert isinstance(refusal(lambda: session.push(saturday)), BarsError)
        assert session.push(day_of(PANEL, monday, "IBM")) == PushAccepted(("AAPL", "GOOG", "MSFT"))


def test_a_bar_of_a_session_that_has_not_closed_is_refused_unless_that_was_allowed(folder: Path) -> None:
    day = DAYS[-1]
    noon = datetime(day // 10000, day // 100 % 100, day % 100, 17, tzinfo=UTC)
    registry = Registry.open(folder, RUNTIME)
    with (
        PredictionService(registry, clock=lambda: noon) as service,
        serving(service) as served,
        QuantraClient(served.target, "lstm") as client,
    ):
        before = PANEL.until(DAYS[-2])
        with client.open_session(before) as session:
            assert isinstance(refusal(lambda: session.push(day_of(PANEL, day))), BarIncompleteError)
        with client.open_session(Instance(input=before, allow_incomplete_last_bar=True)) as session:
            assert isinstance(session.push(day_of(PANEL, day)), Forecast)


def test_a_history_that_ends_on_a_wrong_day_opens_no_session(client: QuantraClient) -> None:
    saturday = PANEL.on_sessions(np.append(PANEL.sessions, 20130302))
    columns = {name: getattr(saturday, name).copy() for name in saturday.columns}
    for values in columns.values():
        values[1, -1] = values[1, -2]
    assert isinstance(client.predict(replace(saturday, **columns)), Forecast)
    with pytest.raises(BarsError, match=r"^GOOG: XNYS held no session on 2013-03-02"):
        client.open_session(replace(saturday, **columns))


def test_a_history_that_cannot_be_forecast_opens_no_session(client: QuantraClient) -> None:
    with pytest.raises(TooFewBarsError):
        client.open_session(PANEL.last(5), session_id="short")
    with client.open_session(BEFORE, session_id="short") as session:
        assert session.session_id == "short"


def test_a_name_is_of_one_session(client: QuantraClient) -> None:
    with client.open_session(BEFORE, session_id="mine"), pytest.raises(DuplicateIdError):
        client.open_session(BEFORE, session_id="mine")
    client.open_session(BEFORE, session_id="mine").close()


def test_an_opening_that_is_cancelled_leaves_no_session(server: Served) -> None:
    async def open_twice() -> str:
        async with AsyncQuantraClient(server.target, "lstm") as client:
            opening = asyncio.create_task(client.open_session(BEFORE, session_id="mine"))
            await asyncio.sleep(0)  # until it waits for the response
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            return (await client.open_session(BEFORE, session_id="mine")).session_id

    assert asyncio.run(open_twice()) == "mine"


def test_a_closed_session_raises(client: QuantraClient) -> None:
    session = client.open_session(BEFORE)
    session.close()
    session.close()
    assert isinstance(refusal(lambda: session.push(day_of(PANEL, DAYS[-AHEAD]))), UnknownSessionError)


def test_an_incomplete_day_waits_and_names_its_symbols(client: QuantraClient) -> None:
    with client.open_session(BEFORE) as session:
        assert session.push(day_of(PANEL, DAYS[-AHEAD], "IBM", "GOOG")) == PushAccepted(("AAPL", "MSFT"))
        assert session.push(day_of(PANEL, DAYS[-AHEAD], "MSFT")) == PushAccepted(("AAPL",))
        forecast = session.push(day_of(PANEL, DAYS[-AHEAD], "AAPL"))
        assert_same(forecast, client.predict(PANEL.until(DAYS[-AHEAD])))


# --- the client's stream


def test_sessions_of_many_threads_share_a_client(server: Served) -> None:
    symbols = (*UNIVERSE, *UNIVERSE)
    with QuantraClient(server.target, "lstm") as client, ThreadPoolExecutor(len(symbols)) as threads:

        def follow(symbol: str) -> list[object]:
            own = PANEL.select([symbol])
            with client.open_session(own.until(DAYS[-4])) as session:
                return [session.push(day_of(own, day)) for day in DAYS[-3:]]

        for symbol, pushed in zip(symbols, threads.map(follow, symbols), strict=True):
            for day, answer in zip(DAYS[-3:], pushed, strict=True):
                asked = client.predict(PANEL.select([symbol]).until(day))
                assert isinstance(answer, Forecast)
                assert answer.forecast_id == asked.forecast_id
                np.testing.assert_allclose(answer.values, asked.values, rtol=0, atol=1e-6)  # other batch


def test_sessions_work_the_same_from_asyncio(server: Served) -> None:
    async def follow() -> None:
        async with AsyncQuantraClient(server.target, "lstm") as client:
            async with await client.open_session(BEFORE) as session:
                assert_same(session.forecast, await client.predict(BEFORE))
                assert await session.push(day_of(PANEL, DAYS[-AHEAD], "IBM")) == PushAccepted(("AAPL", "GOOG", "MSFT"))
                assert isinstance(await session.flush(), Forecast)
                with pytest.raises(BarsError):
                    await session.push(day_of(PANEL, DAYS[0]))
                at_once = [session.push(day_of(PANEL, day)) for day in DAYS[-AHEAD:]]
                assert all(isinstance(answer, Forecast) for answer in await asyncio.gather(*at_once))
                assert_same(await session.push(PANEL.last(1)), await client.predict(PANEL))
            with pytest.raises(UnknownSessionError):
                await session.push(PANEL.last(1))
            left = await client.open_session(BEFORE)
        with pytest.raises(UnavailableError, match="closed"):
            await left.push(PANEL.last(1))

    asyncio.run(follow())


def test_a_session_ends_with_its_client(server: Served) -> None:
    with QuantraClient(server.target, "lstm") as client:
        session = client.open_session(BEFORE)
    assert not session._stream._thread.is_alive()
    assert isinstance(refusal(lambda: session.push(PANEL.last(1))), UnavailableError)
    session.close()
    with pytest.raises(UnavailableError, match="closed"):
        client.open_session(BEFORE)


def test_no_thread_is_left_when_a_client_is_closed(server: Served) -> None:
    before = threading.active_count()
    for _ in range(3):
        with QuantraClient(server.target, "lstm") as client:
            client.open_session(BEFORE)
    assert [thread.name for thread in threading.enumerate()].count("sessions") <= 1
    assert threading.active_count() <= before + 2


def test_a_server_that_stops_ends_its_sessions_and_another_one_can_be_asked() -> None:
    service = CannedService(forecast_of)
    with serving(service) as first, QuantraClient(first.target, "canned") as client:
        session = client.open_session(BEFORE)
        first.begin_drain()
        assert isinstance(refusal(lambda: pushed_until_refused(session.push)), UnavailableError)


@final
class RecordingStream:
    """A stream that records its requests."""

    def __init__(self) -> None:
        self.pushed: list[pb.PushBars] = []

    def request(self, request: pb.PredictStreamRequest) -> pb.PredictStreamResponse:
        self.pushed.append(request.push)
        return pb.PredictStreamResponse(ack=pb.Ack(waiting_for=["IBM"]))


@final
class AsyncRecordingStream:
    """The same for asyncio."""

    def __init__(self) -> None:
        self.written = RecordingStream()

    async def request(self, request: pb.PredictStreamRequest) -> pb.PredictStreamResponse:
        return self.written.request(request)


def test_a_push_of_either_client_sends_bars_covariates_and_flush() -> None:
    requests, nothing, bars = SessionRequests("s", 1.0), cast("Any", None), PANEL.last(1)
    covariates = Covariates(observed={"o": np.full(bars.close.shape, 7.0)})
    plain, own = RecordingStream(), AsyncRecordingStream()
    session = BarSession(cast("Any", plain), requests, nothing)
    other = AsyncBarSession(cast("Any", own), requests, nothing)
    for flush in (False, True):
        assert session.push(bars, covariates, flush=flush) == PushAccepted(("IBM",))
        assert asyncio.run(other.push(bars, covariates, flush=flush)) == PushAccepted(("IBM",))
    session.flush()
    asyncio.run(other.flush())
    want = [instances.encode_push("s", Push(bars=bars, covariates=covariates, flush=flush)) for flush in (False, True)]
    assert plain.pushed == own.written.pushed == [*want, instances.encode_push("s", Push(flush=True))]


def test_a_client_that_is_closed_ends_its_sessions_on_a_channel_that_stays_open() -> None:
    service = CannedService(forecast_of)
    calls = PredictionCalls(service)
    with serving(service, calls=calls) as running, grpc.insecure_channel(running.target) as channel:
        with QuantraClient("there", "canned", channel=channel) as client:
            client.open_session(BEFORE)
        wait_for_none(calls, running.target)

        async def open_and_close() -> None:
            async with grpc.aio.insecure_channel(running.target) as own:
                async with AsyncQuantraClient("there", "canned", channel=own) as client:
                    await client.open_session(BEFORE)
                await asyncio.to_thread(wait_for_none, calls, running.target)

        asyncio.run(open_and_close())


def wait_for_none(calls: PredictionCalls, target: str) -> None:
    """Wait until no session is open."""
    with QuantraClient(target) as other:
        while calls.session_load.sessions:
            other.models()


def test_each_request_of_a_session_has_the_clients_time() -> None:
    requests = SessionRequests("s", 7.0)
    sent = (requests.open("m", Instance(input=BEFORE)), requests.push(Push(flush=True)), requests.close())
    assert [(one.WhichOneof("action"), one.timeout_s) for one in sent] == [("open", 7), ("push", 7), ("close", 7)]


def test_a_server_that_stops_ends_the_sessions_of_asyncio() -> None:
    async def follow(running: Served) -> None:
        async with AsyncQuantraClient(running.target, "canned") as client:
            session = await client.open_session(BEFORE)
            running.begin_drain()
            with pytest.raises(UnavailableError):
                await pushed_until_refused_here(session)

    with serving(CannedService(forecast_of)) as running:
        asyncio.run(asyncio.wait_for(follow(running), SOON_S))


async def pushed_until_refused_here(session: AsyncBarSession) -> None:
    while True:
        await session.push(day_of(PANEL, DAYS[-AHEAD]))


def test_an_unresponsive_server_exceeds_the_deadline_and_the_session_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    service = CannedService(forecast_of)
    with serving(service) as running, QuantraClient(running.target, "canned", timeout_s=30.0) as client:
        session = client.open_session(BEFORE)
        service.predictions_released.clear()
        monkeypatch.setattr("predictor.client.sessions.GRACE_S", -29.9)
        with pytest.raises(DeadlineExceededError, match="no response from"):
            session.push(day_of(PANEL, DAYS[-AHEAD]))
        assert session._stream._pending_responses._futures == {}
        monkeypatch.undo()
        service.predictions_released.set()
        assert isinstance(session.push(day_of(PANEL, DAYS[-AHEAD])), Forecast)


def test_a_silent_server_is_a_deadline_of_asyncio_too(monkeypatch: pytest.MonkeyPatch) -> None:
    service = CannedService(forecast_of)

    async def follow(target: str) -> None:
        async with AsyncQuantraClient(target, "canned", timeout_s=30.0) as client:
            session = await client.open_session(BEFORE)
            service.predictions_released.clear()
            monkeypatch.setattr("predictor.client.sessions.GRACE_S", -29.9)
            with pytest.raises(DeadlineExceededError, match="no response from"):
                await session.push(day_of(PANEL, DAYS[-AHEAD]))
            assert session._stream._pending_responses._futures == {}
            monkeypatch.undo()
            service.predictions_released.set()
            assert isinstance(await session.push(day_of(PANEL, DAYS[-AHEAD])), Forecast)

    with serving(service) as running:
        asyncio.run(follow(running.target))


def pushed_until_refused(push: Callable[[BarPanel], object]) -> None:
    for _ in range(1000):
        push(day_of(PANEL, DAYS[-AHEAD]))


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with QuantraClient("127.0.0.1:1", "lstm") as client:
        assert isinstance(refusal(lambda: client.open_session(BEFORE)), UnavailableError)


# --- a new champion


def test_a_plain_name_follows_its_champion_while_bars_suffice(tmp_path: Path) -> None:
    models = tmp_path / "models"
    for version, length in ((1, 60), (2, 30), (3, 70)):
        save_artifact(models / "mine" / str(version), artifact_of("lstm", encoder_length=length, seed=version))
    champion(models, 1)
    with (
        PredictionService.open(models) as service,
        serving(service) as served,
        QuantraClient(served.target, "mine") as client,
        client.open_session(PANEL.until(DAYS[-AHEAD - 1])) as session,
    ):
        versions: list[int] = []
        for day, version in zip(DAYS[-AHEAD : -AHEAD + 4], (1, 2, 1, 1), strict=True):
            champion(models, version)
            service.served.refresh()
            answer = session.push(day_of(PANEL, day))
            assert_same(answer, client.predict(PANEL.until(day)))
            versions.append(answer.version if isinstance(answer, Forecast) else 0)
        assert versions == [1, 2, 1, 1]
        champion(models, 3)
        service.served.refresh()
        error = refusal(lambda: session.push(day_of(PANEL, DAYS[-AHEAD + 4])))
        assert isinstance(error, ResubscribeError)
        with client.open_session(PANEL.until(DAYS[-AHEAD + 3])) as again:
            assert_same(again.push(day_of(PANEL, DAYS[-AHEAD + 4])), client.predict(PANEL.until(DAYS[-AHEAD + 4])))


def champion(models: Path, version: int) -> None:
    (models / "mine" / "aliases.json").write_text(f'{{"champion": {version}}}', encoding="utf-8")

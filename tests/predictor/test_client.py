"""The Python client with a real server, compared with the model in this process."""

import asyncio
import dataclasses
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
from artifacts import recent_bars, small_models
from canned_service import CannedService, forecast, forecast_of
from serving import hosted_server, serving

from predictor._pb import prediction_pb2 as pb
from predictor.client import MAX_TIMEOUT_S, AsyncQuantraClient, QuantraClient
from predictor.errors import (
    CallCancelledError,
    ConfigurationError,
    DeadlineExceededError,
    ExplainUnsupportedError,
    InternalError,
    ModelNotFoundError,
    QuantraError,
    QueueFullError,
    RequestTooLargeError,
    TooFewBarsError,
    UnavailableError,
    UnknownHorizonError,
    UnknownQuantileError,
    VersionNotFoundError,
)
from predictor.forecast import Attribution, Detail, Forecast, TargetPoint
from predictor.forecaster import Forecaster
from predictor.global_importance import GlobalExplanationQuery, GlobalImportance
from predictor.instance import ExplanationQuery, Instance
from predictor.server import ServerLimits
from predictor.server.servicer import PREDICTION
from predictor.service import PredictionService
from predictor.wire import forecasts


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def target(models: Path) -> Iterator[str]:
    with hosted_server(models) as running:
        yield running.target


@pytest.fixture(scope="module")
def client(target: str) -> Iterator[QuantraClient]:
    with QuantraClient(target, "small") as open_client:
        yield open_client


@pytest.fixture(scope="module")
def forecaster(models: Path) -> Iterator[Forecaster]:
    with Forecaster.load(models / "small" / "1") as loaded:
        yield loaded


def assert_same(left: Forecast | Attribution, right: Forecast | Attribution) -> None:
    """Assert bit-for-bit equality, except for name and version, which a bare artifact lacks."""
    for field in dataclasses.fields(left):
        one, other = getattr(left, field.name), getattr(right, field.name)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype, field.name
            assert one.tobytes() == other.tobytes(), field.name
        elif field.name not in {"model", "version"}:
            assert one == other, field.name


def query_of(*targets: TargetPoint, detail: Detail = Detail.FEATURES) -> ExplanationQuery:
    return ExplanationQuery(instance=Instance(input=recent_bars()), targets=targets, detail=detail)


def test_a_forecast_equals_the_one_in_process_bit_for_bit(client: QuantraClient, forecaster: Forecaster) -> None:
    assert_same(client.predict(recent_bars()), forecaster.predict(recent_bars()))


def test_a_forecast_of_a_panel_equals_the_one_in_process_bit_for_bit(
    client: QuantraClient, forecaster: Forecaster
) -> None:
    bars = recent_bars("AAPL", "GOOG", "IBM", "MSFT")
    assert_same(client.predict(bars), forecaster.predict(bars))


@pytest.mark.parametrize("detail", list(Detail))
def test_an_explanation_equals_the_one_in_process_bit_for_bit(
    client: QuantraClient, forecaster: Forecaster, detail: Detail
) -> None:
    query = query_of(TargetPoint(5, 0.9), TargetPoint(1, 0.5), detail=detail)
    ours, theirs = client.explain(query).attributions, forecaster.explain(query).attributions
    assert [(a.horizon, a.quantile) for a in ours] == [(5, 0.9), (1, 0.5)]
    for one, other in zip(ours, theirs, strict=True):
        assert_same(one, other)


def test_feature_importance_is_one_attribution(client: QuantraClient, forecaster: Forecaster) -> None:
    assert_same(
        client.feature_importance(recent_bars(), 20, 0.1), forecaster.feature_importance(recent_bars(), 20, 0.1)
    )


MANY = GlobalExplanationQuery(
    instances=(
        Instance(input=recent_bars()),
        Instance(input=recent_bars().last(5)),
        Instance(input=recent_bars("IBM")),
    ),
    targets=(TargetPoint(5, 0.5),),
)


def report_facts(reports: Iterable[GlobalImportance]) -> list[tuple[int, int, list[bytes]]]:
    """Content of each report, bit for bit."""
    return [(one.done, one.refused, [target.mean_size.tobytes() for target in one.targets]) for one in reports]


def test_reports_of_global_importance_equal_those_in_process_bit_for_bit(
    client: QuantraClient, forecaster: Forecaster
) -> None:
    ours = report_facts(client.explain_global(MANY))
    assert ours == report_facts(forecaster.explain_global(MANY))
    assert [(done, refused) for done, refused, _ in ours] == [(1, 0), (2, 1), (3, 1)]


def test_a_target_that_the_model_lacks_is_raised_where_reports_are_read(
    client: QuantraClient, forecaster: Forecaster
) -> None:
    lacking = dataclasses.replace(MANY, targets=(TargetPoint(7, 0.5),))
    for reports in (client.explain_global(lacking), forecaster.explain_global(lacking)):
        with pytest.raises(UnknownHorizonError):
            next(reports)


def test_who_lets_go_of_reports_ends_the_work() -> None:
    service = CannedService(forecast_of)
    service.explanations_released.clear()
    with serving(service) as held, QuantraClient(held.target) as asking:
        reports = asking.explain_global(MANY)
        assert next(reports).done == 3
        del reports
        assert service.is_cancelled_soon()
        service.explanations_released.set()


def test_one_bad_panel_leaves_the_others_their_forecasts(client: QuantraClient) -> None:
    good, short = Instance(input=recent_bars()), Instance(input=recent_bars("IBM").last(5), request_id="short")
    first, second, third = client.predict_many([good, short, good])
    assert isinstance(first, Forecast)
    assert isinstance(second, TooFewBarsError)
    assert second.metadata["have"] == "5"
    assert isinstance(third, Forecast)


def test_a_bad_panel_alone_is_raised(client: QuantraClient) -> None:
    with pytest.raises(TooFewBarsError, match="have 5 bars in the last 60 sessions, need 30; send earlier bars too"):
        client.predict(recent_bars().last(5))


def test_a_model_is_described_as_in_process(client: QuantraClient, forecaster: Forecaster) -> None:
    ours, theirs = client.model(), forecaster.model()
    assert dataclasses.replace(ours, name="", version=0, is_default=True, aliases=()) == dataclasses.replace(
        theirs, name="", version=0, is_default=True, aliases=()
    )


def test_models_are_listed(client: QuantraClient) -> None:
    assert [(info.name, info.version) for info in client.models()] == [("small", 1)]


def test_no_name_means_the_only_model(target: str) -> None:
    with QuantraClient(target) as nameless:
        assert nameless.predict(recent_bars()).model == "small"


@pytest.mark.parametrize(
    ("reference", "kind", "message"),
    [
        ("nope", ModelNotFoundError, "small"),
        ("small@7", VersionNotFoundError, r"\[1\]"),
        ("small@nobody", VersionNotFoundError, r"\[1\]"),
        ("x" * 1_000_000, RequestTooLargeError, "at most 256"),
    ],
)
def test_an_unknown_reference_names_what_exists(
    target: str, reference: str, kind: type[QuantraError], message: str
) -> None:
    with QuantraClient(target, reference) as lost, pytest.raises(kind, match=message):
        lost.predict(recent_bars())


def test_an_unknown_horizon_lists_the_known_ones(client: QuantraClient) -> None:
    with pytest.raises(UnknownHorizonError, match=r"\[1, 5, 10, 20\]"):
        client.feature_importance(recent_bars(), horizon=3)


def test_an_unknown_quantile_lists_the_known_ones(client: QuantraClient) -> None:
    with pytest.raises(UnknownQuantileError, match=r"\[0.1, 0.5, 0.9\]"):
        client.feature_importance(recent_bars(), quantile=0.4)


def test_an_unknown_method_is_refused_before_it_is_sent(client: QuantraClient) -> None:
    with pytest.raises(ExplainUnsupportedError, match="integrated-gradients"):
        client.explain(dataclasses.replace(query_of(), method="attention"))


def test_the_asynchronous_client_answers_the_same(target: str, client: QuantraClient) -> None:
    async def ask() -> tuple[Forecast, Attribution, str, int]:
        async with AsyncQuantraClient(target, "small") as asking:
            importance = await asking.feature_importance(recent_bars())
            return (
                await asking.predict(recent_bars()),
                importance,
                (await asking.model()).name,
                len(await asking.models()),
            )

    forecast, importance, name, count = asyncio.run(ask())
    assert_same(forecast, client.predict(recent_bars()))
    assert_same(importance, client.feature_importance(recent_bars()))
    assert (name, count) == ("small", 1)


def test_the_asynchronous_client_gives_the_same_reports(target: str, client: QuantraClient) -> None:
    async def ask() -> list[GlobalImportance]:
        async with AsyncQuantraClient(target, "small") as asking:
            return [known async for known in asking.explain_global(MANY)]

    assert report_facts(asyncio.run(ask())) == report_facts(client.explain_global(MANY))


def test_the_asynchronous_client_raises_the_same_errors(target: str) -> None:
    async def ask() -> Forecast:
        async with AsyncQuantraClient(target, "nope") as asking:
            return await asking.predict(recent_bars())

    with pytest.raises(ModelNotFoundError, match="small"):
        asyncio.run(ask())


@pytest.fixture(scope="module")
def two_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of `one` and `two`, with no default model."""
    folder = small_models(small_models(tmp_path_factory.mktemp("two"), name="one"), name="two")
    with PredictionService.open(folder) as service, serving(service) as served:
        yield served.target


@pytest.mark.parametrize(("reference", "name"), [("", "one"), ("two", "two")])
def test_the_model_told_is_the_one_named_else_the_clients_own(two_models: str, reference: str, name: str) -> None:
    async def ask() -> str:
        async with AsyncQuantraClient(two_models, "one") as asking:
            return (await asking.model(reference)).name

    with QuantraClient(two_models, "one") as asking:
        assert asking.model(reference).name == name
    assert asyncio.run(ask()) == name


@pytest.fixture(scope="module")
def long_answers() -> Iterator[str]:
    """A server whose forecasts have 5 MiB, more than gRPC's default limit."""
    note = "x" * (5 * 2**20)
    with serving(CannedService(lambda one: dataclasses.replace(forecast_of(one), warnings=(note,)))) as served:
        yield served.target


def test_an_answer_of_more_than_4_mib_comes_through(long_answers: str) -> None:
    with QuantraClient(long_answers) as asking:
        assert len(asking.predict(recent_bars()).warnings[0]) == 5 * 2**20


def test_an_asynchronous_answer_of_more_than_4_mib_comes_through(long_answers: str) -> None:
    async def ask() -> Forecast:
        async with AsyncQuantraClient(long_answers) as asking:
            return await asking.predict(recent_bars())

    assert len(asyncio.run(ask()).warnings[0]) == 5 * 2**20


def test_an_answer_with_too_few_results_is_refused_with_both_counts() -> None:
    def forgetful(_request: bytes, _context: grpc.ServicerContext) -> bytes:
        one = pb.Result(forecast=pb.Forecast.FromString(forecasts.encode(forecast(("AAPL",)))))
        return pb.PredictResponse(results=[one]).SerializeToString()

    handlers = {"Predict": grpc.unary_unary_rpc_method_handler(forgetful)}
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(PREDICTION.full_name, handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with (
        QuantraClient(f"127.0.0.1:{port}") as asking,
        pytest.raises(InternalError, match="results: have 1, need 2, one per instance"),
    ):
        asking.predict_many([recent_bars().last(100), recent_bars().last(100)])
    server.stop(None).wait()


@pytest.mark.parametrize("kind", [QuantraClient, AsyncQuantraClient])
@pytest.mark.parametrize("timeout_s", [float("nan"), float("inf"), -1.0, 0.0, 86_401.0, 1e300])
def test_a_timeout_that_cannot_be_is_refused(
    kind: type[QuantraClient] | type[AsyncQuantraClient], timeout_s: float
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"timeout_s is {timeout_s:g} seconds, but must")):
        kind("127.0.0.1:1", timeout_s=timeout_s)


def test_the_longest_timeout_is_a_day_and_works(target: str) -> None:
    with QuantraClient(target, timeout_s=MAX_TIMEOUT_S) as patient:
        assert patient.models()


GLOBAL_QUERY = GlobalExplanationQuery(instances=(Instance(input=recent_bars("AAPL")),))
CALLS: dict[str, Callable[[QuantraClient], object]] = {
    "models": lambda client: client.models(),
    "forecasts": lambda client: client.forecasts(),
    "predict_stream": lambda client: list(client.predict_stream([recent_bars("AAPL")])),
    "open_session": lambda client: client.open_session(recent_bars("AAPL")),
    "explain_global": lambda client: list(client.explain_global(GLOBAL_QUERY)),
}
ASYNC_CALLS: dict[str, Callable[[AsyncQuantraClient], Awaitable[object]]] = {
    "models": lambda client: client.models(),
    "forecasts": lambda client: client.forecasts(),
    "predict_stream": lambda client: anext(client.predict_stream([recent_bars("AAPL")])),
    "open_session": lambda client: client.open_session(recent_bars("AAPL")),
    "explain_global": lambda client: anext(client.explain_global(GLOBAL_QUERY)),
}


@pytest.mark.parametrize("is_own", [True, False], ids=["own channel", "channel of the caller"])
@pytest.mark.parametrize("name", CALLS)
def test_a_closed_client_raises(target: str, name: str, *, is_own: bool) -> None:
    with grpc.insecure_channel(target) as channel:
        client = QuantraClient(target, "small", channel=None if is_own else channel)
        client.close()
        with pytest.raises(UnavailableError, match=f"this client of {target} is closed; create a new one"):
            CALLS[name](client)


@pytest.mark.parametrize("name", ASYNC_CALLS)
def test_a_closed_asynchronous_client_raises(target: str, name: str) -> None:
    async def ask() -> None:
        client = AsyncQuantraClient(target, "small")
        await client.close()
        await ASYNC_CALLS[name](client)

    with pytest.raises(UnavailableError, match=f"this client of {target} is closed; create a new one"):
        asyncio.run(ask())


def test_no_response_is_unavailable_with_a_remedy() -> None:
    with QuantraClient("127.0.0.1:1") as lonely, pytest.raises(UnavailableError) as silence:
        lonely.models()
    assert "no server answers at 127.0.0.1:1" in silence.value.message
    assert "quantra serve" in silence.value.message


def test_a_call_that_takes_too_long_ends() -> None:
    service = CannedService(forecast_of)
    service.predictions_released.clear()
    with serving(service) as held, QuantraClient(held.target, timeout_s=0.1) as hurried:
        with pytest.raises(DeadlineExceededError, match=r"no response from .* within 0.1 s; set a longer timeout"):
            hurried.predict(recent_bars())
        service.predictions_released.set()


def test_an_asynchronous_call_that_takes_too_long_ends() -> None:
    service = CannedService(forecast_of)
    service.predictions_released.clear()

    async def ask(target: str) -> None:
        async with AsyncQuantraClient(target, timeout_s=0.1) as hurried:
            await asyncio.wait_for(hurried.predict(recent_bars()), 60)

    with serving(service) as held:
        with pytest.raises(DeadlineExceededError, match=r"no response from .* within 0.1 s; set a longer timeout"):
            asyncio.run(ask(held.target))
        service.predictions_released.set()


def test_a_request_that_the_transport_refuses_is_too_large() -> None:
    with (
        serving(CannedService(forecast_of), ServerLimits(receive_bytes=100)) as small,
        QuantraClient(small.target) as asking,
        pytest.raises(RequestTooLargeError, match="at most 100; send a smaller request"),
    ):
        asking.predict(recent_bars())


def test_closing_the_client_cancels_its_calls() -> None:
    service = CannedService(forecast_of)
    service.predictions_released.clear()

    async def ask(target: str) -> None:
        asking = AsyncQuantraClient(target)
        waiting = asyncio.create_task(asking.predict(recent_bars()))
        await asyncio.to_thread(service.begun.wait)
        await asking.close()
        await waiting

    with serving(service) as held:
        with pytest.raises(CallCancelledError):
            asyncio.run(ask(held.target))
        service.predictions_released.set()


def test_a_task_that_is_cancelled_ends_as_cancelled() -> None:
    service = CannedService(forecast_of)
    service.predictions_released.clear()

    async def ask(target: str) -> None:
        async with AsyncQuantraClient(target) as asking:
            waiting = asyncio.create_task(asking.predict(recent_bars()))
            await asyncio.to_thread(service.begun.wait)
            waiting.cancel()
            await waiting

    with serving(service) as held:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(ask(held.target))
        service.predictions_released.set()


def test_a_server_of_another_kind_is_reported_as_such() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with QuantraClient(f"127.0.0.1:{port}") as asking, pytest.raises(QuantraError, match="UNIMPLEMENTED"):
        asking.models()
    server.stop(None).wait()


def test_the_client_needs_no_torch() -> None:
    script = "import sys, predictor.client; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_refusal_that_is_not_quantras_is_a_full_queue_unless_it_speaks_of_size() -> None:
    """Such statuses come from a proxy or the transport; only a full queue may be retried."""

    def refuse(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "Too many requests")

    bare = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(refuse)
    service = "quantra.v1.PredictionService"
    bare.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"ListModels": handler}),))
    port = bare.add_insecure_port("127.0.0.1:0")
    bare.start()
    with QuantraClient(f"127.0.0.1:{port}") as client, pytest.raises(QueueFullError, match="retry in a moment"):
        client.models()
    bare.stop(None).wait()

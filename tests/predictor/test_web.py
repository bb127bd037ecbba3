"""The HTTP server in a process of its own: the calls of quantra.v1 as JSON, and what it rejects."""

import asyncio
import http.client
import json
import random
import shutil
import socket
import ssl
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, cast, final
from unittest.mock import Mock
from urllib.parse import urlencode

import grpc
import numpy as np
import plotly.graph_objects as go
import pytest
from artifacts import recent_bars, save_small_artifact
from google.protobuf import json_format
from market import bokeh_panel
from serving import server_process
from starlette.requests import Request
from watched_logs import token

from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.call_context import CallContext
from predictor.client import ClientCredentials
from predictor.errors import ConfigurationError, MalformedRequestError, NoLedgerError, QueueFullError
from predictor.forecaster import Forecaster
from predictor.instance import Instance
from predictor.ledger import Ledger
from predictor.server import ServerLimits, ServerSettings, parse_listening
from predictor.server.issued_certificates import IssuedCertificates, issue
from predictor.server.tokens import TokenGuard
from predictor.web import main
from predictor.web.api import SMALL, Api, BodyReader, ServiceCalls
from predictor.web.remote_server import ForwardedCalls, RemoteServer
from predictor.web.responses import parse_message
from predictor.web.settings import WebSettings
from predictor.web.workspace import WorkspaceWidgets
from predictor.wire import attributions, forecasts, instances

TOKENS = {role: token(role) for role in ("predict", "explain")}
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Web:
    """A running server; the one without tokens has a ledger of AAPL, and of IBM with few bars."""

    port: int
    models: Path
    context: ssl.SSLContext | None = None

    def connect(self) -> http.client.HTTPConnection:
        if self.context is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        return http.client.HTTPSConnection("localhost", self.port, timeout=60, context=self.context)

    def ask(
        self, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        """Status, JSON and headers of a response."""
        connection = self.connect()
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = {**(JSON if body is not None else {}), **(headers or {})}
        connection.request("GET" if body is None else "POST", path, sent, given)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, json.loads(content), response.headers


def launch(stack: ExitStack, folder: Path, *options: str) -> int:
    log = stack.enter_context((folder / "log").open("w"))
    program = ("quantra", "ui")
    running = stack.enter_context(server_process(folder / "models", log, "--no-browser", *options, program=program))
    port = running.ready["port"]
    assert isinstance(port, int)
    return port


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Generator[Web]:
    folder = tmp_path_factory.mktemp("web")
    save_small_artifact(folder / "models" / "mine" / "1")
    with Ledger.open(folder / "ledger.db", create=True) as ledger:
        ledger.add_bars(bars_with_a_short_history())
    with ExitStack() as stack:
        yield Web(launch(stack, folder, "--ledger", str(folder / "ledger.db")), folder / "models")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Generator[Web]:
    """A server with TLS, tokens and one web site that may call it."""
    with guarded_server(tmp_path_factory.mktemp("guarded")) as web:
        yield web


@contextmanager
def guarded_server(folder: Path) -> Generator[Web]:
    save_small_artifact(folder / "models" / "mine" / "1")
    issued = issue(folder / "certs", ())
    tokens = folder / "tokens.txt"
    tokens.write_text("".join(f"{role} {role} {own}\n" for role, own in TOKENS.items()))
    tokens.chmod(0o600)
    options = ("--tls-cert", str(issued.server), "--tls-key", str(issued.server_key), "--token-file", str(tokens))
    with ExitStack() as stack:
        port = launch(stack, folder, *options, "--allow-origin", "https://friend.example")
        yield Web(port, folder / "models", ssl.create_default_context(cafile=issued.ca))


def forecast_request(bars: BarPanel, *, as_lists: bool = False) -> dict[str, Any]:
    message = pb.PredictRequest(model="mine", instances=[instances.encode(Instance(input=bars))])
    asked = json_format.MessageToDict(message)
    if as_lists:
        panel = asked["instances"][0]["bars"]
        for name in ("open", "high", "low", "close", "volume"):
            panel[name] = [[None if np.isnan(one) else one for one in row] for row in getattr(bars, name).tolist()]
    return asked


def bars_with_a_short_history() -> BarPanel:
    """AAPL, and IBM with its last 20 bars only."""
    bars = recent_bars("AAPL", "IBM")
    short = {}
    for name in ("open", "high", "low", "close", "volume", "adj_close"):
        column = getattr(bars, name).copy()
        column[1, :-20] = np.nan
        short[name] = column
    return replace(bars, **short)


# --- responses


def test_a_forecast_is_that_of_the_model_bit_by_bit(web: Web) -> None:
    bars = recent_bars("AAPL", "IBM")
    status, answer, _ = web.ask("/v1/forecast", forecast_request(bars))
    assert status == 200
    message = json_format.ParseDict(answer, pb.PredictResponse()).results[0].forecast
    with Forecaster.load(web.models / "mine" / "1") as model:
        expected = model.predict(bars)
    assert np.array_equal(forecasts.decode(message).values, expected.values)


def test_a_request_with_lists_gets_lists_and_null_for_a_missing_number(web: Web) -> None:
    _, answer, _ = web.ask("/v1/forecast", forecast_request(bars_with_a_short_history(), as_lists=True))
    forecast = answer["results"][0]["forecast"]
    values = np.array(forecast["values"], dtype=float).reshape(2, len(forecast["horizons"]), 3)
    assert np.isfinite(values[0]).all()
    assert forecast["values"][values[0].size :] == [None] * values[1].size


def test_a_symbol_that_cannot_be_forecast_has_its_reason_beside_the_others(web: Web) -> None:
    _, answer, _ = web.ask("/v1/forecast", forecast_request(bars_with_a_short_history()))
    (refusal,) = answer["results"][0]["forecast"]["refusals"]
    assert (refusal["symbol"], refusal["error"]["reason"]) == ("IBM", "TOO_FEW_BARS")


def test_an_explanation_adds_up(web: Web) -> None:
    asked = forecast_request(recent_bars("AAPL"))
    status, answer, _ = web.ask("/v1/explain", {"model": "mine", "instance": asked["instances"][0]})
    assert status == 200
    explained = attributions.decode(json_format.ParseDict(answer, pb.ExplainResponse())).attributions[0]
    assert explained.per_row.sum() == pytest.approx((explained.prediction - explained.baseline_prediction)[0], abs=1e-3)


def test_paths_come_in_one_response(web: Web) -> None:
    instance = forecast_request(bokeh_panel("AAPL", "IBM").last(600), as_lists=True)["instances"][0]
    asked = {"model": "mine", "instance": instance, "paths": 100, "includePaths": True}
    status, answer, _ = web.ask("/v1/paths", asked)
    assert status == 200
    assert len(answer["returns"]) == 100 * 2 * answer["days"]


def test_models_and_one_model_are_described(web: Web) -> None:
    _, listed, _ = web.ask("/v1/models")
    _, one, _ = web.ask("/v1/models/mine@1")
    assert [model["name"] for model in listed["models"]] == ["mine"]
    assert one["model"]["horizons"] == [1, 5, 10, 20]


def test_health_says_that_the_server_serves(web: Web) -> None:
    assert web.ask("/v1/health")[:2] == (200, {"status": "SERVING"})


def test_the_description_has_every_route_and_message(web: Web) -> None:
    _, described, _ = web.ask("/openapi.json")
    assert {"/v1/forecast", "/v1/explain", "/v1/paths", "/v1/models", "/v1/health"} <= set(described["paths"])
    text = json.dumps(described)
    referred = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert referred <= set(described["components"]["schemas"])
    assert "quantra.v1.Forecast" in referred


# --- rejections


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "MALFORMED_REQUEST"),
        (b"[]", "MALFORMED_REQUEST"),
        (b'{"wrong": 1}', "MALFORMED_REQUEST"),
        (b'{"model": NaN}', "MALFORMED_REQUEST"),
        (b'{"model": "\\ud800"}', "MALFORMED_REQUEST"),
        (b'{"instances": [{"maxAgeSessions": 1e400}]}', "MALFORMED_REQUEST"),
        (b'{"instances": [{"bars": {"open": [[1], [2, 3]]}}]}', "MALFORMED_REQUEST"),
        (b'{"instances": [{"bars": {"open": ["one"]}}]}', "MALFORMED_REQUEST"),
        (b'{"instances": [{"bars": {"open": ["2"]}}]}', "MALFORMED_REQUEST"),
        (b'{"instances": [{"bars": {"open": ["nan"]}}]}', "MALFORMED_REQUEST"),
        (b'{"instances": [{"bars": {"open": [true]}}]}', "MALFORMED_REQUEST"),
        (b'{"instances": [{"bars": {"open": [1e400]}}]}', "MALFORMED_REQUEST"),
        (b"[" * 100_000, "MALFORMED_REQUEST"),
        (b'{"model":' * 100_000, "MALFORMED_REQUEST"),
        (b"[" * 16_000_000, "REQUEST_TOO_LARGE"),
        (b"[" + b"{}," * 5_000_000 + b"{}]", "REQUEST_TOO_LARGE"),
        (b'{"instances":[' + b"{}," * 200_000 + b"{}]}", "REQUEST_TOO_LARGE"),
        (b'{"model":"' + b"a" * 65_537 + b'"}', "REQUEST_TOO_LARGE"),
        (b'{"instances":[{"bars":{"symbols":["A","' + b"a" * 65_537 + b'"]}}]}', "REQUEST_TOO_LARGE"),
        (b'{"model": "unknown", "instances": [{}]}', "MODEL_NOT_FOUND"),
        (b'{"model": "../../etc", "instances": [{}]}', "MODEL_NOT_FOUND"),
    ],
)
def test_a_bad_body_gets_its_reason(web: Web, body: bytes, reason: str) -> None:
    status, answer, _ = web.ask("/v1/forecast", body)
    assert answer["reason"] == reason
    assert status == {"REQUEST_TOO_LARGE": 413, "MODEL_NOT_FOUND": 404}.get(reason, 400)


@pytest.mark.parametrize("name", ["open", "volume"])
def test_lists_that_are_nested_by_session_are_refused(web: Web, name: str) -> None:
    asked = forecast_request(recent_bars("AAPL", "IBM"), as_lists=True)
    panel = asked["instances"][0]["bars"]
    panel[name] = [list(pair) for pair in zip(*panel[name], strict=True)]
    status, answer, _ = web.ask("/v1/forecast", asked)
    assert (status, answer["reason"]) == (400, "MALFORMED_REQUEST")
    assert "one row per symbol" in answer["message"]


@pytest.mark.parametrize("nested", [[[1, 2, 3]], [[1], [2], [3]]])
def test_nested_lists_of_a_tensor_or_covariate_have_its_shape(nested: list[list[int]]) -> None:
    window = {"window": {"symbols": ["A"], "observed": {"type": "DATA_TYPE_FLOAT64", "shape": ["1", "3"]}}}
    window["window"]["observed"]["data"] = nested  # type: ignore[index]
    covariates = {"covariates": {"observed": [{"name": "a", "values": nested}]}, "bars": {"symbols": ["A"]}}
    for instance in (window, covariates):
        with nullcontext() if len(nested) == 1 else pytest.raises(MalformedRequestError, match="nest"):
            parse_message(json.dumps({"instances": [instance]}).encode(), pb.PredictRequest)


def test_a_mask_may_be_a_list_of_booleans() -> None:
    mask = {"type": "DATA_TYPE_BOOL", "shape": [2], "data": [True, False]}
    body = json.dumps({"instances": [{"window": {"mask": mask}}]}).encode()
    parsed, has_lists = parse_message(body, pb.PredictRequest)
    assert (parsed.instances[0].window.mask.data, has_lists) == (b"\1\0", True)


def test_mutated_bodies_get_no_unknown_errors(web: Web) -> None:
    bodies = [
        json.dumps(forecast_request(recent_bars("AAPL"), as_lists=as_lists)).encode() for as_lists in (True, False)
    ]
    assert {answer_to(web, mutated(bodies[seed % 2], seed)) for seed in range(300)} <= {200, 400, 404, 413}


def mutated(body: bytes, seed: int) -> bytes:
    source = random.Random(seed)
    changed = bytearray(body)
    for _ in range(source.randint(1, 6)):
        place = source.randrange(len(changed))
        if source.random() < 0.5:
            changed[place] = source.choice(b'{}[]",:0123456789-eE.nNtf\\u\x00\xff')
        else:
            other = source.randrange(len(changed))
            changed[place : place + source.randint(0, 40)] = changed[other : other + source.randint(0, 40)]
    return bytes(changed)


def answer_to(web: Web, body: bytes) -> int:
    return web.ask("/v1/forecast", body)[0]


def test_an_announced_body_of_2_gib_is_rejected_unread(web: Web) -> None:
    connection = web.connect()
    connection.putrequest("POST", "/v1/forecast")
    for name, value in {**JSON, "content-length": str(2 << 30)}.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    assert (response.status, response.headers["connection"]) == (413, "close")
    response.read()
    connection.close()


def test_a_body_of_unknown_length_is_limited_while_it_arrives(web: Web) -> None:
    connection = web.connect()
    connection.putrequest("POST", "/v1/forecast")
    for name, value in {**JSON, "transfer-encoding": "chunked"}.items():
        connection.putheader(name, value)
    connection.endheaders()
    chunk = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
    with pytest.raises(OSError):  # noqa: PT011, PT012 - the server closes at 16 MiB
        for _ in range(64):
            connection.send(chunk)
    connection.close()


def test_health_answers_beside_a_thousand_idle_connections(web: Web) -> None:
    with ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(socket.create_connection(("127.0.0.1", web.port)))
        assert web.ask("/v1/health")[0] == 200


def test_another_host_is_rejected(web: Web) -> None:
    for host in ("evil.example", f"evil.example:{web.port}", "localhost.evil.example", ""):
        status, answer, _ = web.ask("/v1/health", headers={"host": host})
        assert (status, answer["reason"]) == (403, "PERMISSION_DENIED")
    assert web.ask("/v1/health", headers={"host": f"localhost:{web.port}"})[0] == 200


def test_a_body_that_another_site_may_send_is_rejected(web: Web) -> None:
    body = json.dumps(forecast_request(recent_bars("AAPL"))).encode()
    status, answer, _ = web.ask("/v1/forecast", body, {"content-type": "text/plain"})
    assert (status, answer["reason"]) == (400, "MALFORMED_REQUEST")


def test_no_other_site_may_read_responses_by_default(web: Web) -> None:
    _, _, headers = web.ask("/v1/health", headers={"origin": "https://friend.example"})
    assert "access-control-allow-origin" not in headers
    assert headers["content-security-policy"].startswith("default-src 'none'")


def test_a_call_ends_at_its_deadline(web: Web) -> None:
    asked = forecast_request(recent_bars("AAPL"))
    status, answer, _ = web.ask("/v1/forecast", asked, {"x-timeout-seconds": "0.00001"})
    assert (status, answer["reason"]) == (504, "DEADLINE_EXCEEDED")
    assert web.ask("/v1/forecast", asked, {"x-timeout-seconds": "soon"})[0] == 400


@pytest.mark.parametrize("limits", [ServerLimits(streams=1), ServerLimits(calls_in_flight=1)])
def test_simulations_of_paths_are_limited_like_streams(limits: ServerLimits) -> None:
    async def admit_two() -> None:
        api = Api(TokenGuard(), limits)
        request = Request({"type": "http", "headers": []})
        api.admit("SimulatePaths", request)
        api._in_flight["SimulatePaths"] += 1
        with pytest.raises(QueueFullError, match="1"):
            api.admit("SimulatePaths", request)

    asyncio.run(admit_two())


class ClockedLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock that a test advances."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def test_the_time_in_which_a_body_waits_for_others_is_not_its_callers() -> None:
    body = bytes(SMALL + 1)

    async def send(begun: asyncio.Event) -> dict[str, object]:
        begun.set()
        return {"type": "http.request", "body": body}

    async def read_two(loop: ClockedLoop) -> bytes:
        reader = BodyReader(ServerLimits(arriving=1, request_s=10.0), 1 << 20)
        async with reader._slots:
            begun = asyncio.Event()
            waiting = asyncio.create_task(
                reader.read(Request({"type": "http", "headers": []}, lambda: send(begun)), bytes)
            )
            await begun.wait()
            loop.ahead_s += 11.0
            await asyncio.wait({waiting}, timeout=0)
            await asyncio.wait({waiting}, timeout=0)
        return await waiting

    with asyncio.Runner(loop_factory=ClockedLoop) as runner:
        assert runner.run(read_two(cast("ClockedLoop", runner.get_loop()))) == body


@final
class NoPaths:
    """A call of simulated paths that ends with no message."""

    def __init__(self) -> None:
        self.completion = Future[None]()

    def open(self, *_: object) -> Self:
        return self

    def send(self, _: bytes) -> None:
        self.completion.set_result(None)

    def end_requests(self) -> None:
        pass


def test_paths_without_a_message_are_an_error_of_their_call() -> None:
    calls = ServiceCalls(cast("Any", NoPaths()))
    with pytest.raises(IndexError):
        calls.call("SimulatePaths", b"", CallContext()).result(10)


def test_paths_of_another_server_without_a_message_are_an_error_of_their_call() -> None:
    def respond(_body: bytes, _context: grpc.ServicerContext) -> Iterator[bytes]:
        return iter(())

    handler: Any = grpc.unary_stream_rpc_method_handler(respond)
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("quantra.v1.PredictionService", {"SimulatePaths": handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    calls = ForwardedCalls(RemoteServer(address=f"127.0.0.1:{port}", credentials=ClientCredentials()))
    try:
        with pytest.raises(IndexError):
            calls.call("SimulatePaths", b"", CallContext()).result(10)
    finally:
        calls.close()
        server.stop(None).wait()


def test_a_server_that_cannot_serve_is_never_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_small_artifact(tmp_path / "mine" / "1")
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams:  # uvicorn refuses it
        datagrams.bind(("127.0.0.1", 0))
        monkeypatch.setattr(main, "bind", Mock(return_value=[datagrams]))
        with pytest.raises(ValueError, match="Stream Socket"):
            asyncio.run(main._serve(WebSettings(server=ServerSettings(models=tmp_path)), None))
    assert not capsys.readouterr().out


def test_unknown_routes_and_methods_are_errors_in_json(web: Web) -> None:
    assert web.ask("/v2/forecast")[0] == 404
    status, _, headers = web.ask("/v1/forecast")
    assert (status, headers["allow"]) == (405, "POST")


# --- widgets of OpenBB Workspace


def test_every_widget_of_the_workspace_and_its_choices_have_a_route(web: Web) -> None:
    _, widgets, _ = web.ask("/widgets.json")
    assert {one["type"] for one in widgets.values()} == {"table", "chart"}
    for widget in widgets.values():
        query = {}
        for parameter in widget.get("params", ()):
            _, choices, _ = web.ask(f"/{parameter['optionsEndpoint']}")
            query[parameter["paramName"]] = choices[0]["value"]
        assert web.ask(f"/{widget['endpoint']}?{urlencode(query)}")[0] == 200


def test_the_table_has_the_forecasts_of_the_ledgers_bars_and_the_reasons_of_the_others(web: Web) -> None:
    _, rows, _ = web.ask("/workspace/forecasts?model=mine")
    with Forecaster.load(web.models / "mine" / "1") as model:
        expected = model.predict(recent_bars("AAPL"))
    own = [[row["p10"], row["p50"], row["p90"]] for row in rows if row["symbol"] == "AAPL"]
    np.testing.assert_allclose(np.log1p(own), expected.values[0], rtol=1e-9)
    assert [row["session"] for row in rows[: len(own)]] == [str(day) for day in expected.target_sessions]
    assert {(row["symbol"], row["p50"], "bars" in row["problem"]) for row in rows[len(own) :]} == {("IBM", None, True)}


def test_the_fan_is_a_figure_of_plotly_without_a_size(web: Web) -> None:
    _, figure, _ = web.ask("/workspace/fan?model=mine&symbol=AAPL")
    go.Figure(figure)  # refuses what is not a figure
    assert "candlestick" in {trace["type"] for trace in figure["data"]}
    assert "AAPL" in figure["layout"]["title"]["text"]
    assert "height" not in figure["layout"]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("model=mine", "the query has no symbol"),
        ("model=mine&symbol=NONE", "the ledger has no bars of NONE"),
        ("model=mine&symbol=IBM", "bars"),
        ("model=other&symbol=AAPL", "other"),
        ("model=../x&symbol=..%2F..%2Fetc%2Fpasswd", "x"),
    ],
)
def test_a_fan_that_cannot_be_drawn_has_its_reason(web: Web, query: str, reason: str) -> None:
    status, answer, _ = web.ask(f"/workspace/fan?{query}")
    assert 400 <= status < 500
    assert reason in answer["message"]


def test_the_page_of_another_site_makes_the_server_read_nothing(web: Web) -> None:
    for headers in ({}, {"origin": "https://pro.openbb.co"}):  # an image, and a script
        status, answer, _ = web.ask("/workspace/symbols", headers={**headers, "sec-fetch-site": "cross-site"})
        assert (status, answer["reason"]) == (403, "PERMISSION_DENIED")


def test_widgets_need_a_ledger() -> None:
    async def list_symbols() -> None:
        widgets = WorkspaceWidgets(Api(TokenGuard(), ServerLimits()), "", ())
        await widgets._list_symbols(Request({"type": "http", "headers": []}))

    with pytest.raises(NoLedgerError, match="--ledger LEDGER"):
        asyncio.run(list_symbols())


# --- tokens, TLS and named sites


def test_calls_need_a_token_with_their_role(guarded: Web) -> None:
    asked = forecast_request(recent_bars("AAPL"))
    tried = {
        role: guarded.ask("/v1/forecast", asked, {"authorization": f"Bearer {sent}"})[0]
        for role, sent in {**TOKENS, "unknown": token("unknown")}.items()
    }
    assert tried == {"predict": 200, "explain": 403, "unknown": 401}
    assert guarded.ask("/v1/models")[0] == 401
    assert guarded.ask("/v1/health")[0] == 200


def test_a_named_site_may_read_responses(guarded: Web) -> None:
    _, _, headers = guarded.ask("/v1/health", headers={"origin": "https://friend.example"})
    assert headers["access-control-allow-origin"] == "https://friend.example"
    _, _, headers = guarded.ask("/v1/health", headers={"origin": "https://other.example"})
    assert "access-control-allow-origin" not in headers


def test_a_named_site_may_read_the_widgets_with_a_token_that_may_read_the_ledger(guarded: Web) -> None:
    site = {"origin": "https://friend.example", "sec-fetch-site": "cross-site"}
    assert guarded.ask("/widgets.json", headers=site)[0] == 200
    sent = {"authorization": f"Bearer {TOKENS['predict']}"}
    assert guarded.ask("/workspace/models", headers=site | sent)[0] == 200
    status, answer, _ = guarded.ask("/workspace/symbols", headers=site | sent)
    assert (status, "reader" in answer["message"]) == (403, True)
    connection = guarded.connect()
    asked = {"access-control-request-method": "GET", "access-control-request-headers": "authorization"}
    connection.request(
        "OPTIONS", "/widgets.json", headers=site | asked | {"access-control-request-private-network": "true"}
    )
    response = connection.getresponse()
    connection.close()
    assert (response.status, response.headers["access-control-allow-private-network"]) == (200, "true")


def test_a_renewed_certificate_is_presented_once_the_log_says_so(tmp_path: Path) -> None:
    with guarded_server(tmp_path) as web:
        issued, renewed = IssuedCertificates(tmp_path / "certs"), issue(tmp_path / "renewed")
        for old, new in ((issued.server_key, renewed.server_key), (issued.server, renewed.server)):
            shutil.copy(new, old)
        while "certificates changed; the new ones are active" not in (tmp_path / "log").read_text():
            pass
        with pytest.raises(ssl.SSLCertVerificationError):
            web.ask("/v1/health")
        assert replace(web, context=ssl.create_default_context(cafile=renewed.ca)).ask("/v1/health")[0] == 200


def test_an_address_of_other_machines_needs_tls_and_tokens() -> None:
    with pytest.raises(ConfigurationError, match="without encryption"):
        ServerSettings(models=Path("models"), listen=parse_listening("0.0.0.0:50080"))
    server = ServerSettings(models=Path("models"), listen=parse_listening("0.0.0.0:50080"), insecure_public=True)
    with pytest.raises(ConfigurationError, match="--token-file"):
        WebSettings(server=server)

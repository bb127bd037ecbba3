"""TLS, tokens and Unix sockets: real handshakes, credential rotation, and refused callers."""

import asyncio
import os
import queue
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from artifacts import recent_bars
from canned_service import CannedService, forecast_of
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2_grpc
from serving import Served, serving
from watched_logs import token

from predictor._pb import prediction_pb2 as pb
from predictor._pb.prediction_pb2_grpc import PredictionServiceStub
from predictor.client import AsyncQuantraClient, ClientCredentials, QuantraClient
from predictor.errors import (
    ConfigurationError,
    PermissionDeniedError,
    RetryableError,
    UnauthenticatedError,
    UnavailableError,
)
from predictor.forecast import Forecast
from predictor.instance import ExplanationQuery, Instance
from predictor.server import (
    Address,
    ServerLimits,
    ServerSettings,
    TlsFiles,
    UnixAddress,
    credentials,
    parse_listening,
    serve,
)
from predictor.server.credentials import CredentialRotation
from predictor.server.issued_certificates import IssuedCertificates, issue
from predictor.server.servicer import PREDICTION
from predictor.server.tokens import TokenGuard, Tokens
from predictor.wire import instances

posix = pytest.mark.skipif(os.name != "posix", reason="of POSIX alone")
PREDICTS, EXPLAINS, NEXT = map(token, ("predicts", "explains", "next"))
TOKENS = f"desk predict {PREDICTS}\nresearch explain {EXPLAINS}\n"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
BARS = recent_bars()


@pytest.fixture(autouse=True)
def without_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUANTRA_TOKEN", raising=False)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> IssuedCertificates:
    return issue(tmp_path_factory.mktemp("ours") / "certs")


@pytest.fixture(scope="module")
def other_certificates(tmp_path_factory: pytest.TempPathFactory) -> IssuedCertificates:
    return issue(tmp_path_factory.mktemp("others") / "certs")


@pytest.fixture
def service() -> CannedService:
    return CannedService(forecast_of)


def settings(folder: Path, tls: TlsFiles | None = None, tokens: Path | None = None, token: str = "") -> ServerSettings:
    return ServerSettings(models=folder, tls=tls, token_file=tokens, token=token)


def tls_of(issued: IssuedCertificates, *, asks_clients: bool = False) -> TlsFiles:
    return TlsFiles(issued.server, issued.server_key, issued.ca if asks_clients else None)


def token_file(folder: Path, text: str = TOKENS) -> Path:
    path = folder / "tokens.txt"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def trusting(issued: IssuedCertificates, **further: Path | str) -> ClientCredentials:
    """Client credentials that trust this authority."""
    return replace(ClientCredentials(ca=issued.ca), **further)


def with_certificate(issued: IssuedCertificates) -> ClientCredentials:
    """Client credentials with a client certificate."""
    return ClientCredentials(ca=issued.ca, cert=issued.client, key=issued.client_key)


@dataclass(frozen=True, slots=True)
class SecureServer:
    """A server in this process whose files are polled by the test."""

    served: Served
    rotation: CredentialRotation

    def models(self, credentials: ClientCredentials | None = None) -> tuple[str, ...]:
        """The models that a new client lists."""
        with QuantraClient(self.served.target, credentials=credentials) as client:
            return tuple(info.name for info in client.models())


@pytest.fixture
def tls(ours: IssuedCertificates, tmp_path: Path, service: CannedService) -> Iterator[tuple[SecureServer, TlsFiles]]:
    """A server with TLS whose files can be replaced."""
    for path in ours.all:
        shutil.copy(path, tmp_path)
    files = tls_of(IssuedCertificates(tmp_path))
    rotation = CredentialRotation(settings(tmp_path, files))
    with serving(service, certificates=rotation.certificates) as served:
        yield SecureServer(served, rotation), files


@pytest.fixture
def mutual(ours: IssuedCertificates, service: CannedService, tmp_path: Path) -> Iterator[SecureServer]:
    """A server that requires client certificates."""
    rotation = CredentialRotation(settings(tmp_path, tls_of(ours, asks_clients=True)))
    with serving(service, certificates=rotation.certificates) as served:
        yield SecureServer(served, rotation)


@pytest.fixture
def guarded(service: CannedService, tmp_path: Path) -> Iterator[tuple[SecureServer, Path]]:
    """A server that requires tokens, without TLS."""
    path = token_file(tmp_path)
    rotation = CredentialRotation(settings(tmp_path, tokens=path))
    with serving(service, guard=rotation.guard) as served:
        yield SecureServer(served, rotation), path


# --- TLS


def test_a_forecast_comes_over_tls(tls: tuple[SecureServer, TlsFiles], ours: IssuedCertificates) -> None:
    with QuantraClient(tls[0].served.target, credentials=trusting(ours)) as client:
        assert client.predict(BARS).symbols == BARS.symbols


def test_a_forecast_comes_over_tls_to_asyncio(tls: tuple[SecureServer, TlsFiles], ours: IssuedCertificates) -> None:
    async def ask() -> tuple[str, ...]:
        async with AsyncQuantraClient(tls[0].served.target, credentials=trusting(ours)) as client:
            return (await client.predict(BARS)).symbols

    assert asyncio.run(ask()) == BARS.symbols


def refused_by(secured: SecureServer, credentials: ClientCredentials | None) -> str:
    with pytest.raises(UnavailableError) as refused:
        secured.models(credentials)
    assert isinstance(refused.value.__cause__, grpc.RpcError)
    return refused.value.message


def test_a_client_without_tls_learns_that_it_may_need_it(tls: tuple[SecureServer, TlsFiles]) -> None:
    assert "if it uses TLS, pass ca= (--tls-ca)" in refused_by(tls[0], None)


def test_a_client_with_tls_learns_that_the_server_has_none(service: CannedService, ours: IssuedCertificates) -> None:
    with serving(service) as plain, pytest.raises(UnavailableError, match="uses plain text: remove ca="):
        SecureServer(plain, CredentialRotation(settings(ours.folder))).models(trusting(ours))


def test_a_client_of_another_authority_gets_the_file_to_pass(
    tls: tuple[SecureServer, TlsFiles], other_certificates: IssuedCertificates
) -> None:
    assert "no authority in ca= (--tls-ca) has signed its certificate" in refused_by(
        tls[0], trusting(other_certificates)
    )


def test_an_expired_certificate_is_reported(tmp_path: Path, service: CannedService) -> None:
    old = issue(tmp_path / "old", begin=LONG_AGO)
    rotation = CredentialRotation(settings(tmp_path, tls_of(old)))
    with serving(service, certificates=rotation.certificates) as served:
        assert "has expired" in refused_by(SecureServer(served, rotation), trusting(old))


def test_a_certificate_of_another_name_is_reported(tmp_path: Path, service: CannedService) -> None:
    issued = issue(tmp_path / "named", ["server.example.com"])
    rotation = CredentialRotation(settings(tmp_path, tls_of(issued)))
    address = Address("127.0.0.2", 0)  # localhost addresses that the certificate lacks
    with serving(service, address=address, certificates=rotation.certificates) as served:
        assert "its certificate is for other host names" in refused_by(SecureServer(served, rotation), trusting(issued))


def test_a_server_that_asks_for_certificates_answers_who_shows_one(
    mutual: SecureServer, ours: IssuedCertificates
) -> None:
    assert mutual.models(with_certificate(ours)) == ("canned",)


def test_a_server_that_asks_for_certificates_refuses_who_shows_none(
    mutual: SecureServer, ours: IssuedCertificates
) -> None:
    assert "pass a certificate that its authorities signed as cert= and key=" in refused_by(mutual, trusting(ours))


def test_a_server_that_asks_for_certificates_refuses_those_of_others(
    mutual: SecureServer, ours: IssuedCertificates, other_certificates: IssuedCertificates
) -> None:
    refused_by(mutual, replace(with_certificate(other_certificates), ca=ours.ca))


def test_a_server_that_asks_for_certificates_refuses_expired_ones(
    service: CannedService, ours: IssuedCertificates, tmp_path: Path
) -> None:
    """The client's certificate and its authority are expired, the server's is valid."""
    old = issue(tmp_path / "old", begin=LONG_AGO)
    rotation = CredentialRotation(settings(tmp_path, TlsFiles(ours.server, ours.server_key, old.ca)))
    with serving(service, certificates=rotation.certificates) as served:
        refused_by(SecureServer(served, rotation), replace(with_certificate(old), ca=ours.ca))


def test_certificates_change_while_the_server_runs(
    tls: tuple[SecureServer, TlsFiles], ours: IssuedCertificates, other_certificates: IssuedCertificates
) -> None:
    secured, files = tls
    with QuantraClient(secured.served.target, credentials=trusting(ours)) as before:
        assert before.models()
        shutil.copy(other_certificates.server, files.cert)
        shutil.copy(other_certificates.server_key, files.key)
        secured.rotation.reload()
        assert secured.models(trusting(other_certificates)) == ("canned",)
        refused_by(secured, trusting(ours))
        assert before.models()  # its connection is older


def test_a_broken_certificate_keeps_the_last_good_one_and_is_logged_once(
    tls: tuple[SecureServer, TlsFiles],
    ours: IssuedCertificates,
    other_certificates: IssuedCertificates,
    caplog: pytest.LogCaptureFixture,
) -> None:
    secured, files = tls
    shutil.copy(other_certificates.server, files.cert)
    for _ in range(3):
        secured.rotation.reload()
    assert secured.models(trusting(ours)) == ("canned",)
    (told,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "the key does not belong to the certificate" in told
    files.cert.unlink()
    secured.rotation.reload()
    assert "No such file" in caplog.records[-1].message
    shutil.copy(ours.server, files.cert)
    secured.rotation.reload()
    assert secured.models(trusting(ours)) == ("canned",)
    assert str(files.cert.parent) not in caplog.text


def test_a_client_whose_authority_was_taken_away_is_refused(
    service: CannedService, ours: IssuedCertificates, other_certificates: IssuedCertificates, tmp_path: Path
) -> None:
    authorities = tmp_path / "authorities.pem"
    shutil.copy(ours.ca, authorities)
    rotation = CredentialRotation(settings(tmp_path, TlsFiles(ours.server, ours.server_key, authorities)))
    with serving(service, certificates=rotation.certificates) as served:
        secured = SecureServer(served, rotation)
        assert secured.models(with_certificate(ours))
        shutil.copy(other_certificates.ca, authorities)
        rotation.reload()
        refused_by(secured, with_certificate(ours))
        assert secured.models(replace(with_certificate(other_certificates), ca=ours.ca))


def first_refusal(client: QuantraClient) -> str:
    """Repeat a call until it fails, up to a limit."""
    for _ in range(10_000):
        try:
            client.models()
        except UnavailableError as error:
            return error.message
    return ""


def client_context(issued: IssuedCertificates, *protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=issued.ca)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # which has the session before any data
    if protocols:
        context.set_alpn_protocols(protocols)
    return context


@pytest.mark.parametrize("protocols", [("http/1.1",), ()])
def test_a_client_that_does_not_agree_on_http2_is_disconnected(
    tls: tuple[SecureServer, TlsFiles], ours: IssuedCertificates, protocols: tuple[str, ...]
) -> None:
    place = ("127.0.0.1", int(tls[0].served.target.rpartition(":")[2]))
    context = client_context(ours, *protocols)
    received = b""
    with (
        suppress(ssl.SSLError, ConnectionError),  # already during the handshake
        socket.create_connection(place, 10) as bare,
        context.wrap_socket(bare, server_hostname="127.0.0.1") as one,
    ):
        received = one.recv(9)
    assert received == b""


def test_a_connection_resumes_no_earlier_session(tls: tuple[SecureServer, TlsFiles], ours: IssuedCertificates) -> None:
    place, context = ("127.0.0.1", int(tls[0].served.target.rpartition(":")[2])), client_context(ours, "h2")
    session: ssl.SSLSession | None = None
    for _ in range(2):
        with (
            socket.create_connection(place, 10) as bare,
            context.wrap_socket(bare, server_hostname="127.0.0.1", session=session) as one,
        ):
            assert one.recv(9)
            assert not one.session_reused
            session = one.session


def test_a_connection_with_tls_ends_after_its_time_and_no_call_is_lost(
    service: CannedService, ours: IssuedCertificates, other_certificates: IssuedCertificates, tmp_path: Path
) -> None:
    """This bounds the use of a revoked certificate: an hour, and ten milliseconds here."""
    authorities = tmp_path / "authorities.pem"
    shutil.copy(ours.ca, authorities)
    rotation = CredentialRotation(settings(tmp_path, TlsFiles(ours.server, ours.server_key, authorities)))
    limits = ServerLimits(age_s=0.01)
    with (
        serving(service, limits, certificates=rotation.certificates) as served,
        QuantraClient(served.target, credentials=with_certificate(ours)) as client,
    ):
        assert all(client.models() for _ in range(300))
        shutil.copy(other_certificates.ca, authorities)
        rotation.reload()
        assert "accepted the connection and closed it" in first_refusal(client)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cert": Path("away.pem")}, "--tls-cert away.pem: No such file or directory"),
        ({"key": "of others"}, "the key does not belong to the certificate"),
        ({"cert": "a key"}, "must be a certificate and a key"),
        ({"key": "locked"}, "a key without a password, in PEM"),
        ({"client_ca": "a key"}, "--tls-client-ca server.key has no certificate in PEM"),
        ({"client_ca": Path("away.pem")}, "--tls-client-ca away.pem: No such file"),
        ({"cert": "a folder"}, "Is a directory"),
    ],
)
@posix
def test_a_server_does_not_start_with_files_that_are_no_pair(
    ours: IssuedCertificates,
    other_certificates: IssuedCertificates,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    change: dict[str, Path | str],
    message: str,
) -> None:
    locked = tmp_path / "locked.key"
    locked.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGbMFc=\n-----END ENCRYPTED PRIVATE KEY-----\n")
    known = {
        "of others": other_certificates.server_key,
        "a key": ours.server_key,
        "locked": locked,
        "a folder": tmp_path,
    }
    wrong = {field: known[path] if isinstance(path, str) else path for field, path in change.items()}
    files = replace(tls_of(ours), **wrong)
    assert serve(ServerSettings(models=tmp_path, listen=Address("127.0.0.1", 0), tls=files)) == 1
    told = capfd.readouterr()
    assert not told.out
    (line,) = told.err.splitlines()
    assert message in line


# --- tokens


def test_a_token_is_good_for_its_roles(guarded: tuple[SecureServer, Path]) -> None:
    target = guarded[0].served.target
    with QuantraClient(target, credentials=ClientCredentials(token=PREDICTS)) as client:
        assert client.predict(BARS).symbols == BARS.symbols
        assert client.model().name == "canned"
        with pytest.raises(
            PermissionDeniedError, match="the token of desk has the roles predict; Explain needs"
        ) as told:
            client.explain(ExplanationQuery(instance=Instance(input=BARS)))
        assert told.value.metadata == {"role": "explain"}
    with QuantraClient(target, credentials=ClientCredentials(token=EXPLAINS)) as client:
        assert client.explain(ExplanationQuery(instance=Instance(input=BARS))).attributions
        with pytest.raises(PermissionDeniedError):
            client.predict(BARS)


@pytest.mark.parametrize("token", [None, "", token("wrong"), PREDICTS[:-1]])
def test_a_caller_without_a_known_token_is_refused(guarded: tuple[SecureServer, Path], token: str | None) -> None:
    credentials = ClientCredentials(token=token)
    with (
        QuantraClient(guarded[0].served.target, credentials=credentials) as client,
        pytest.raises(UnauthenticatedError) as refused,
    ):
        client.models()
    assert not isinstance(refused.value, RetryableError)


def test_clients_take_the_token_of_the_environment(
    guarded: tuple[SecureServer, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUANTRA_TOKEN", PREDICTS)
    assert guarded[0].models() == ("canned",)
    with pytest.raises(UnauthenticatedError):
        guarded[0].models(ClientCredentials(token=""))


def test_streams_and_sessions_of_both_clients_send_the_token(guarded: tuple[SecureServer, Path]) -> None:
    target, credentials, bars = guarded[0].served.target, ClientCredentials(token=PREDICTS), recent_bars("AAPL")
    with QuantraClient(target, "canned", credentials=credentials) as client:
        assert isinstance(client.open_session(bars).forecast, Forecast)
        assert [type(one.outcome) for one in client.predict_stream([bars])] == [Forecast]

    async def follow() -> None:
        async with AsyncQuantraClient(target, "canned", credentials=credentials) as client:
            assert isinstance((await client.open_session(bars)).forecast, Forecast)
            assert [type(one.outcome) async for one in client.predict_stream([bars])] == [Forecast]

    asyncio.run(follow())


def test_a_caller_without_a_token_is_refused_also_by_a_full_server(service: CannedService) -> None:
    guard = TokenGuard(Tokens.parse(f"desk predict {PREDICTS}\n"))
    service.predictions_released.clear()
    limits = ServerLimits(calls_in_flight=1)
    with serving(service, limits, guard=guard) as running, grpc.insecure_channel(running.target) as channel:
        stub, headers = PredictionServiceStub(channel), (("authorization", f"Bearer {PREDICTS}"),)
        asked = pb.PredictRequest(instances=[instances.encode(Instance(input=BARS))])
        held: Any = stub.Predict.future(asked, metadata=headers)
        assert service.begun.wait(30)
        for sent, code in ((None, "UNAUTHENTICATED"), (headers, "RESOURCE_EXHAUSTED")):
            with pytest.raises(grpc.RpcError) as refused:
                stub.Predict(asked, metadata=sent)
            assert _code(refused.value) == code
        service.predictions_released.set()
        assert held.result(30).results


def _code(failure: Any) -> str:
    return failure.code().name


def test_health_needs_no_token(guarded: tuple[SecureServer, Path]) -> None:
    with grpc.insecure_channel(guarded[0].served.target) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_a_caller_without_a_token_is_refused_before_its_request_is_read(guarded: tuple[SecureServer, Path]) -> None:
    """The request never arrives, so a server that waited for it would run into the deadline."""
    released = threading.Event()

    def never() -> Iterator[bytes]:
        released.wait(30)
        yield b""

    with grpc.insecure_channel(guarded[0].served.target) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            channel.stream_unary(f"/{PREDICTION.full_name}/Predict")(never(), timeout=20)
        released.set()
    failure: Any = refused.value
    assert failure.code() is grpc.StatusCode.UNAUTHENTICATED


def test_tokens_change_while_the_server_runs(guarded: tuple[SecureServer, Path]) -> None:
    secured, path = guarded
    with QuantraClient(secured.served.target, credentials=ClientCredentials(token=PREDICTS)) as before:
        assert before.models()
        path.write_text(f"desk predict {NEXT}\n")
        secured.rotation.reload()
        assert secured.models(ClientCredentials(token=NEXT)) == ("canned",)
        with pytest.raises(UnauthenticatedError):
            before.models()  # tokens are checked at every call, also on existing connections


def test_a_stream_whose_token_was_taken_away_ends_at_its_next_request(guarded: tuple[SecureServer, Path]) -> None:
    secured, path = guarded
    requests = queue.SimpleQueue[pb.PredictStreamRequest | None]()
    asked = pb.PredictStreamRequest(
        request_id="1", predict=pb.StreamPredict(instance=instances.encode(Instance(input=BARS)))
    )
    with grpc.insecure_channel(secured.served.target) as channel:
        headers = (("authorization", f"Bearer {PREDICTS}"),)
        answers = PredictionServiceStub(channel).PredictStream(iter(requests.get, None), metadata=headers, timeout=30)
        requests.put(asked)
        assert next(answers).HasField("forecast")
        path.write_text(f"desk predict {NEXT}\n")
        secured.rotation.reload()
        requests.put(asked)
        with pytest.raises(grpc.RpcError) as refused:
            next(answers)
        requests.put(None)
    failure: Any = refused.value
    assert failure.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("broken", [b"", b"# nothing\n", b"desk predict short\n", b"\xff\xfe", b"x" * 2_000_000, None])
def test_a_broken_token_file_keeps_the_last_good_one_and_is_logged_once(
    guarded: tuple[SecureServer, Path], caplog: pytest.LogCaptureFixture, broken: bytes | None
) -> None:
    secured, path = guarded
    if broken is None:
        path.unlink()
    else:
        path.write_bytes(broken)
    for _ in range(3):
        secured.rotation.reload()
    assert secured.models(ClientCredentials(token=PREDICTS)) == ("canned",)
    (told,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "the previous ones stay active: --token-file tokens.txt" in told
    assert "short" not in told
    token_file(path.parent)
    secured.rotation.reload()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_token_file_that_breaks_twice_is_logged_twice(
    guarded: tuple[SecureServer, Path], caplog: pytest.LogCaptureFixture
) -> None:
    secured, path = guarded
    for _ in range(2):
        path.write_bytes(b"# nothing\n")
        secured.rotation.reload()
        token_file(path.parent)
        secured.rotation.reload()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


def test_the_servers_own_token_predicts_and_explains_and_no_more(tmp_path: Path) -> None:
    guard = CredentialRotation(settings(tmp_path, token=NEXT)).guard
    headers = [("authorization", f"Bearer {NEXT}")]
    for name in ("Predict", "ExplainGlobal", "GetModel"):
        guard.check(name, headers)
    with pytest.raises(PermissionDeniedError):
        guard.check("LoadModel", headers)


def test_the_servers_own_token_stays_when_the_file_changes(tmp_path: Path) -> None:
    path = token_file(tmp_path)
    rotation = CredentialRotation(settings(tmp_path, tokens=path, token=NEXT))
    path.write_text(f"desk predict {EXPLAINS}")
    rotation.reload()
    for known in (EXPLAINS, NEXT):
        rotation.guard.check("Predict", [("authorization", f"Bearer {known}")])
    with pytest.raises(UnauthenticatedError):
        rotation.guard.check("Predict", [("authorization", f"Bearer {PREDICTS}")])


def test_the_servers_own_admin_token_permits_admin_calls_only(tmp_path: Path) -> None:
    guard = CredentialRotation(replace(settings(tmp_path, token=PREDICTS), admin_token=NEXT)).guard
    for name in ("LoadModel", "PromoteVersion"):
        guard.check(name, [("authorization", f"Bearer {NEXT}")])
        with pytest.raises(PermissionDeniedError):
            guard.check(name, [("authorization", f"Bearer {PREDICTS}")])
    with pytest.raises(PermissionDeniedError):
        guard.check("Predict", [("authorization", f"Bearer {NEXT}")])


def test_without_another_token_an_admin_token_closes_the_server(tmp_path: Path) -> None:
    guard = CredentialRotation(replace(settings(tmp_path), admin_token=NEXT)).guard
    with pytest.raises(UnauthenticatedError):
        guard.check("Predict", [])


def test_a_short_token_in_the_environment_is_reported_without_its_value(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="QUANTRA_TOKEN: the token has 6 characters") as refused:
        CredentialRotation(settings(tmp_path, token=PREDICTS[:6]))
    assert PREDICTS[:6] not in refused.value.message
    with pytest.raises(ConfigurationError, match="QUANTRA_ADMIN_TOKEN: the token has 6 characters"):
        CredentialRotation(replace(settings(tmp_path), admin_token=PREDICTS[:6]))


@posix
@pytest.mark.parametrize(("mode", "is_told"), [(0o600, False), (0o640, True), (0o604, True)])
def test_the_permissions_of_the_token_file_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, *, is_told: bool
) -> None:
    path = token_file(tmp_path)
    path.chmod(mode)

    async def begin() -> None:
        following = asyncio.create_task(CredentialRotation(settings(tmp_path, tokens=path)).follow())
        await asyncio.sleep(0)
        following.cancel()

    asyncio.run(begin())
    assert ["other users can read tokens.txt" in line for line in caplog.messages] == [True] * is_told


def test_files_are_looked_at_again_after_a_look_that_broke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = iter((True, True, False))

    async def follow() -> None:
        following = CredentialRotation(settings(tmp_path, tokens=token_file(tmp_path)))
        looked_often = asyncio.Event()
        loop = asyncio.get_running_loop()

        def look(_: CredentialRotation) -> None:
            if next(looks, False):
                raise ZeroDivisionError
            loop.call_soon_threadsafe(looked_often.set)

        monkeypatch.setattr(CredentialRotation, "reload", look)
        task = asyncio.create_task(following.follow())
        await asyncio.wait_for(looked_often.wait(), 20)
        task.cancel()

    monkeypatch.setattr(credentials, "LOOK_S", 0)
    asyncio.run(follow())
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"] * 2


def test_a_file_that_windows_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens.txt"
    path.write_bytes(b"\xef\xbb\xbf" + TOKENS.replace("\n", "\r\n").encode())
    CredentialRotation(settings(tmp_path, tokens=path)).guard.check(
        "Predict", [("authorization", f"Bearer {PREDICTS}")]
    )


# --- refusals by clients


@pytest.mark.parametrize(
    "target",
    [
        "server.example.com:50051",
        "10.0.0.1:50051",
        "0.0.0.0:50051",
        "localhost.example.com:50051",
        "127.0.0.1.example.com:50051",
        "dns://evil.example.com/localhost:50051",
        "dns:///server.example.com:50051",
        "ipv4:127.0.0.1:50051,10.0.0.1:50051",
        "[2001:db8::1]:50051",
        "xds:///localhost",
    ],
)
def test_a_token_is_never_sent_over_a_network_in_plain_text(target: str, ours: IssuedCertificates) -> None:
    with pytest.raises(ConfigurationError, match="in plain text; pass ca=") as refused:
        QuantraClient(target, credentials=ClientCredentials(token=PREDICTS))
    assert PREDICTS not in refused.value.message
    QuantraClient(target, credentials=trusting(ours, token=PREDICTS)).close()
    QuantraClient(target, credentials=ClientCredentials(token="")).close()


def test_a_token_is_not_sent_to_a_plain_http_address_over_a_network_either() -> None:
    with pytest.raises(ConfigurationError, match="in plain text; pass ca="):
        QuantraClient("http://server.example.com:50051", credentials=ClientCredentials(token=PREDICTS))


LOCAL = """localhost:1 http://localhost:1
127.0.0.1:1 127.1.2.3:1 [::1]:1 dns:///localhost:1 dns:localhost:1 ipv4:127.0.0.1:1
ipv6:[::1]:1 unix:some.sock unix:///run/some.sock"""


@pytest.mark.parametrize("target", LOCAL.split())
def test_a_token_may_go_to_this_machine_in_plain_text(target: str) -> None:
    QuantraClient(target, credentials=ClientCredentials(token=PREDICTS)).close()


def test_a_token_for_this_machine_goes_through_no_proxy(
    guarded: tuple[SecureServer, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC would use a proxy from the environment even for localhost."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        assert guarded[0].models(ClientCredentials(token=PREDICTS)) == ("canned",)
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()


@pytest.mark.parametrize("token", ["two words", "line\n", "caf\N{LATIN SMALL LETTER E WITH ACUTE}"])
def test_a_token_that_no_header_can_have_is_refused_before_a_call(token: str) -> None:
    with pytest.raises(ConfigurationError, match="headers do not allow") as refused:
        QuantraClient("localhost:1", credentials=ClientCredentials(token=token))
    assert token not in refused.value.message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("cert", "key"), "a client certificate needs TLS"),
        (("ca", "cert"), "belong together"),
        (("ca", "key"), "belong together"),
    ],
)
def test_credentials_that_are_not_whole_are_refused(
    ours: IssuedCertificates, fields: tuple[str, ...], message: str
) -> None:
    files = {"ca": ours.ca, "cert": ours.client, "key": ours.client_key}
    with pytest.raises(ConfigurationError, match=message):
        QuantraClient("localhost:1", credentials=replace(ClientCredentials(), **{name: files[name] for name in fields}))


def test_invalid_files_are_refused_before_a_call(
    ours: IssuedCertificates, other_certificates: IssuedCertificates
) -> None:
    with pytest.raises(ConfigurationError, match=r"--tls-ca away\.pem"):
        QuantraClient("localhost:1", credentials=ClientCredentials(ca=Path("away.pem")))
    with pytest.raises(ConfigurationError, match="no certificate in PEM"):
        QuantraClient("localhost:1", credentials=ClientCredentials(ca=ours.client_key))
    with pytest.raises(ConfigurationError, match="the key does not belong to the certificate"):
        QuantraClient("localhost:1", credentials=replace(with_certificate(ours), key=other_certificates.client_key))


def test_a_token_is_not_in_what_is_shown_of_credentials() -> None:
    assert PREDICTS not in repr(ClientCredentials(token=PREDICTS))


# --- the caller's own channel


def test_a_channel_of_the_callers_is_used_and_stays_open(service: CannedService) -> None:
    with serving(service) as served, grpc.insecure_channel(served.target) as channel:
        with QuantraClient("the desk's server", channel=channel) as client:
            assert client.models()
        with pytest.raises(UnavailableError, match="this client of the desk's server is closed"):
            client.models()
        assert QuantraClient("again", channel=channel).models()


def test_a_channel_of_the_callers_gets_no_token(
    guarded: tuple[SecureServer, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its destination is unknown."""
    monkeypatch.setenv("QUANTRA_TOKEN", PREDICTS)
    with grpc.insecure_channel(guarded[0].served.target) as channel, pytest.raises(UnauthenticatedError):
        QuantraClient("mine", channel=channel).models()


def test_asyncio_takes_a_token_or_a_channel_too(guarded: tuple[SecureServer, Path]) -> None:
    target = guarded[0].served.target

    async def ask() -> None:
        async with AsyncQuantraClient(target, credentials=ClientCredentials(token=PREDICTS)) as client:
            assert await client.models()
        async with grpc.aio.insecure_channel(target) as channel:
            for _ in range(2):  # the first client does not close it
                async with AsyncQuantraClient("mine", channel=channel) as client:
                    with pytest.raises(UnauthenticatedError):
                        await client.models()

    asyncio.run(ask())


def test_a_channel_and_credentials_are_too_much() -> None:
    with grpc.insecure_channel("localhost:1") as channel, pytest.raises(ConfigurationError, match="not both"):
        QuantraClient("mine", channel=channel, credentials=ClientCredentials())


# --- time


def are_long(service: CannedService) -> list[bool]:
    """Whether each call has more than 900 seconds left."""
    then_s = time.monotonic() + 900
    return [context.expires_at_s is None or context.expires_at_s > then_s for context in service.contexts]


def test_each_call_has_a_time_of_its_own(service: CannedService) -> None:
    with serving(service) as served, QuantraClient(served.target, timeout_s=30) as client:
        client.predict(BARS, timeout_s=1000)
        client.predict_many([BARS], timeout_s=1000)
        client.explain(ExplanationQuery(instance=Instance(input=BARS)), timeout_s=1000)
        client.feature_importance(BARS, timeout_s=1000)
        client.predict(BARS)
        for timeout_s in (0.0, float("nan"), 1e9):
            with pytest.raises(ConfigurationError, match="timeout_s is"):
                client.models(timeout_s=timeout_s)
    assert are_long(service) == [True, True, True, True, False]


def test_each_call_of_asyncio_has_a_time_of_its_own(service: CannedService) -> None:
    async def ask(target: str) -> None:
        async with AsyncQuantraClient(target, timeout_s=30) as client:
            await client.predict(BARS, timeout_s=1000)
            await client.explain(ExplanationQuery(instance=Instance(input=BARS)), timeout_s=1000)
            await client.predict(BARS)

    with serving(service) as served:
        asyncio.run(ask(served.target))
    assert are_long(service) == [True, True, False]


# --- Unix sockets


@pytest.fixture
def socket_address(tmp_path_factory: pytest.TempPathFactory) -> UnixAddress:
    """A path short enough for a Unix socket."""
    return UnixAddress.parse(f"unix:{tmp_path_factory.mktemp('s')}/run/q.sock")


@posix
def test_a_forecast_comes_over_a_unix_socket_of_this_user_alone(
    service: CannedService, socket_address: UnixAddress
) -> None:
    with serving(service, address=socket_address) as served, QuantraClient(served.target) as client:
        assert client.predict(BARS).symbols == BARS.symbols
        assert stat.S_IMODE(socket_address.path.parent.stat().st_mode) == 0o700
    assert list(socket_address.path.parent.iterdir()) == []


@posix
def test_a_socket_needs_its_token_too(service: CannedService, socket_address: UnixAddress, tmp_path: Path) -> None:
    rotation = CredentialRotation(settings(tmp_path, tokens=token_file(tmp_path)))
    with serving(service, address=socket_address, guard=rotation.guard) as served:
        secured = SecureServer(served, rotation)
        assert secured.models(ClientCredentials(token=PREDICTS)) == ("canned",)
        with pytest.raises(UnauthenticatedError):
            secured.models()


def start_at(place: UnixAddress, models: Path) -> int:
    return serve(ServerSettings(models=models, listen=place))


@posix
@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701, 0o777])
def test_a_folder_that_others_can_enter_is_refused(
    socket_address: UnixAddress, tmp_path: Path, capfd: pytest.CaptureFixture[str], mode: int
) -> None:
    socket_address.path.parent.mkdir()
    socket_address.path.parent.chmod(mode)
    assert start_at(socket_address, tmp_path) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert f"other users can enter the socket's folder 'run' (mode {mode:04o})" in line


@posix
def test_the_socket_of_a_dead_server_is_replaced(service: CannedService, socket_address: UnixAddress) -> None:
    socket_address.path.parent.mkdir(0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(socket_address.path))
    with serving(service, address=socket_address) as served:
        assert SecureServer(served, CredentialRotation(settings(socket_address.path.parent))).models() == ("canned",)


@posix
def test_the_socket_of_a_live_server_is_left_alone(
    service: CannedService, socket_address: UnixAddress, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(service, address=socket_address) as served:
        assert start_at(socket_address, tmp_path) == 1
        (line,) = capfd.readouterr().err.splitlines()
        assert "the socket q.sock is in use" in line
        assert SecureServer(served, CredentialRotation(settings(tmp_path))).models() == ("canned",)


@posix
def test_a_file_in_the_place_of_a_socket_is_left_alone(
    socket_address: UnixAddress, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    socket_address.path.parent.mkdir(0o700)
    socket_address.path.write_text("mine")
    assert start_at(socket_address, tmp_path) == 1
    assert "q.sock exists and is not a socket" in capfd.readouterr().err
    assert socket_address.path.read_text() == "mine"


@posix
@pytest.mark.parametrize("text", ["unix:", "unix:run/", "unix:" + "x" * 120, "unix:a\0b"])
def test_an_address_that_is_no_socket_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="unix:"):
        parse_listening(text)


@posix
def test_a_socket_has_one_address_for_all_spellings() -> None:
    here = UnixAddress(Path.cwd() / "run" / "q.sock")
    assert parse_listening("unix:run/q.sock") == parse_listening(f"unix://{here.path}") == here


# --- public addresses

PUBLIC = Address("0.0.0.0", 0)  # noqa: S104 - to be refused


def test_a_public_address_needs_tls_or_a_flag(ours: IssuedCertificates, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--tls-cert and --tls-key, or pass --insecure-public"):
        ServerSettings(models=tmp_path, listen=PUBLIC, token="x" * 32)
    assert ServerSettings(models=tmp_path, listen=PUBLIC, tls=tls_of(ours)).is_open
    assert ServerSettings(models=tmp_path, listen=PUBLIC, insecure_public=True).is_open
    assert not ServerSettings(models=tmp_path, listen=PUBLIC, tls=tls_of(ours, asks_clients=True)).is_open
    assert not ServerSettings(models=tmp_path, listen=PUBLIC, tls=tls_of(ours), token_file=tmp_path / "t").is_open


def test_a_public_address_does_not_reflect(service: CannedService, ours: IssuedCertificates, tmp_path: Path) -> None:
    rotation = CredentialRotation(settings(tmp_path, tls_of(ours)))
    tls = grpc.ssl_channel_credentials(ours.ca.read_bytes())
    with serving(service, address=PUBLIC, certificates=rotation.certificates) as served:
        target = f"127.0.0.1:{served.target.rpartition(':')[2]}"
        assert SecureServer(replace(served, target=target), rotation).models(trusting(ours)) == ("canned",)
        with grpc.secure_channel(target, tls) as channel:
            stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
            with pytest.raises(grpc.RpcError) as refused:
                list(stub.ServerReflectionInfo(iter(())))
    failure: Any = refused.value
    assert failure.code() is grpc.StatusCode.UNIMPLEMENTED


def test_changes_over_a_public_address_need_tls_and_tokens(ours: IssuedCertificates, tmp_path: Path) -> None:
    held = ServerSettings(models=tmp_path, tls=tls_of(ours), token_file=tmp_path / "tokens", admin_listen=PUBLIC)
    for less in ({"tls": None}, {"token_file": None, "token": "x" * 32}):
        with pytest.raises(ConfigurationError, match=r"admin address .* is reachable from other machines"):
            replace(held, **less)


def test_a_certificate_without_its_key_is_refused(ours: IssuedCertificates) -> None:
    assert TlsFiles.of(None, None, None) is None
    for files in ((ours.server, None, None), (None, ours.server_key, None), (None, None, ours.ca)):
        with pytest.raises(ConfigurationError, match="needs both"):
            TlsFiles.of(*files)


@posix
def test_tls_on_sockets_alone_is_refused(ours: IssuedCertificates, socket_address: UnixAddress, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a Unix socket has no TLS"):
        ServerSettings(models=tmp_path, listen=socket_address, tls=tls_of(ours))


# --- certificates for development


@posix
def test_keys_are_for_this_user_alone_whatever_the_mask_and_nothing_is_overwritten(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        issued = issue(tmp_path / "certs")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in issued.all}
    assert {modes[name] for name in ("ca.key", "server.key", "client.key")} == {0o600}
    contents = [path.read_bytes() for path in issued.all]
    with pytest.raises(ConfigurationError, match=r"has ca\.pem, ca\.key"):
        issue(tmp_path / "certs")
    assert [path.read_bytes() for path in issued.all] == contents


@pytest.mark.parametrize("host", ["", "two words", "http://host", "a,b"])
def test_a_host_that_is_no_name_is_refused_and_nothing_written(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a host name"):
        issue(tmp_path / "certs", [host])
    assert not (tmp_path / "certs").exists()


def test_servers_and_clients_need_no_cryptography() -> None:
    """Certificates may come from other tools."""
    program = "import sys; sys.modules['cryptography'] = None; import predictor.server, predictor.client"
    subprocess.run([sys.executable, "-c", program], check=True)

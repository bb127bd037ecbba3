"""A server process with TLS, tokens and an admin Unix socket, from startup to its log."""

import os
import re
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from artifacts import recent_bars, small_models
from serving import Process, server_process
from watched_logs import token

from predictor._pb import prediction_pb2 as pb
from predictor._pb.prediction_pb2_grpc import ModelAdminServiceStub
from predictor.client import ClientCredentials, QuantraClient
from predictor.errors import PermissionDeniedError, QuantraError, UnauthenticatedError
from predictor.instance import ExplanationQuery, Instance
from predictor.server.issued_certificates import IssuedCertificates, issue

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Unix sockets")
FIRST, SECOND, OPERATOR, OWN = map(token, ("first", "second", "operator", "own"))


@dataclass(frozen=True, slots=True)
class ProcessOutput:
    """Responses and output of one process."""

    ready: dict[str, object]
    answers: dict[str, str]
    socket_is_left: bool
    status: int
    log: str
    secrets: tuple[str, ...]


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> ProcessOutput:
    folder = tmp_path_factory.mktemp("secured")
    models = small_models(folder / "models")
    certs, tokens, place = issue(folder / "certs"), folder / "tokens.txt", folder / "run" / "admin.sock"
    tokens.write_text(f"desk predict {FIRST}\nops admin {OPERATOR}\n")
    options = ("--tls-cert", str(certs.server), "--tls-key", str(certs.server_key), "--token-file", str(tokens))
    log = folder / "server.log"
    with pytest.MonkeyPatch.context() as environment, log.open("w") as file:
        environment.setenv("QUANTRA_TOKEN", OWN)
        further = ("--admin-listen", f"unix:{place}", "--log-level", "debug")
        with server_process(models, file, *options, *further) as process:
            answers = dict(make_calls(process, certs, tokens, place))
            process.popen.send_signal(signal.SIGTERM)
            status = process.popen.wait()
    secrets = (FIRST, SECOND, OPERATOR, OWN, str(folder))
    return ProcessOutput(process.ready, answers, place.exists(), status, log.read_text(), secrets)


def make_calls(process: Process, certs: IssuedCertificates, tokens: Path, place: Path) -> Iterator[tuple[str, str]]:
    """Make every call that must succeed or fail."""

    @contextmanager
    def client(token: str) -> Generator[QuantraClient]:
        with QuantraClient(process.target, credentials=ClientCredentials(ca=certs.ca, token=token)) as made:
            yield made

    with client(FIRST) as desk, client(OWN) as own, client(SECOND) as unknown:
        yield "predict", call_status(lambda: desk.predict(recent_bars()))
        yield "explain", call_status(lambda: desk.explain(ExplanationQuery(instance=Instance(input=recent_bars()))))
        yield "own predicts", call_status(lambda: own.predict(recent_bars()))
        yield "unknown", call_status(unknown.models)
        yield "too few", call_status(lambda: desk.predict(recent_bars().last(3)))
        yield "change", reloaded(place, OPERATOR)
        yield "change with a token that predicts", reloaded(place, FIRST)
        yield "change without a token", reloaded(place, "")
        tokens.write_text("broken\n")
        tokens.write_text(f"desk predict {SECOND}\n")
        while call_status(unknown.models) != "answered":
            pass  # the server checks the file every second
        yield "the earlier token", call_status(desk.models)


def call_status(call: Callable[[], object]) -> str:
    try:
        call()
    except QuantraError as error:
        return type(error).__name__
    return "answered"


def reloaded(place: Path, token: str) -> str:
    with grpc.insecure_channel(f"unix:{place}") as channel:
        try:
            ModelAdminServiceStub(channel).ReloadModel(
                pb.ReloadModelRequest(model="small"), metadata=(("authorization", f"Bearer {token}".strip()),)
            )
        except grpc.RpcError as failure:
            return failure.code().name
    return "answered"


def test_calls_are_answered_and_refused_by_token(life: ProcessOutput) -> None:
    assert life.answers == {
        "predict": "answered",
        "explain": PermissionDeniedError.__name__,
        "own predicts": "answered",
        "unknown": UnauthenticatedError.__name__,
        "too few": "TooFewBarsError",
        "change": "answered",
        "change with a token that predicts": "PERMISSION_DENIED",
        "change without a token": "UNAUTHENTICATED",
        "the earlier token": UnauthenticatedError.__name__,
    }


def test_the_first_line_has_a_socket_in_the_place_of_its_port(life: ProcessOutput) -> None:
    assert str(life.ready["admin_socket"]).endswith("run/admin.sock")
    assert "admin_port" not in life.ready


def test_the_socket_is_removed_at_the_end(life: ProcessOutput) -> None:
    assert not life.socket_is_left
    assert life.status == 0


def test_the_log_tells_of_tokens_without_showing_one(life: ProcessOutput) -> None:
    assert "other users can read tokens.txt" in life.log
    assert "tokens changed; the new ones are active" in life.log


def test_the_log_has_no_token_no_path_and_no_price(life: ProcessOutput) -> None:
    """At the most verbose level, after successful, refused and malformed calls."""
    assert " Predict " in life.log
    assert [secret for secret in life.secrets if secret in life.log] == []
    bars = recent_bars()
    written = set(re.findall(r"\d+\.\d+", life.log))
    prices = {f"{price:.{digits}f}" for price in bars.close[0, -20:] for digits in (2, 3, 4)}
    assert not written & prices
    assert "Traceback" not in life.log

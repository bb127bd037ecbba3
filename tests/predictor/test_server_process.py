"""`python -m predictor.server` from its first line to its exit status."""

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest
from artifacts import recent_bars, small_models
from raw_http2 import Connection, message
from serving import failed_process, failed_start, hosted_server, lines_of, server_process

from predictor._pb import prediction_pb2 as pb
from predictor.client import QuantraClient
from predictor.errors import UnavailableError
from predictor.forecast import Explanation
from predictor.instance import ExplanationQuery, Instance
from predictor.server import logs
from predictor.wire import instances

CALLS = 8


@dataclass(frozen=True, slots=True)
class ProcessOutput:
    """Results of one server process: a good and a broken artifact, a dangling alias, calls in flight, SIGTERM."""

    ready: dict[str, object]
    pid: int
    served: tuple[str, ...]
    answers: tuple[Explanation | UnavailableError, ...]
    status: int
    log: str
    later_output: str


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> ProcessOutput:
    models = small_models(tmp_path_factory.mktemp("models"))
    shutil.copytree(models / "small", models / "broken")
    weights = models / "broken" / "1" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    (models / "small" / "aliases.json").write_text('{"champion": 1, "canary": 9}')
    log = models / "server.log"
    with (
        log.open("w") as file,
        server_process(models, file) as process,
        QuantraClient(process.target, "small") as client,
    ):
        served = tuple(info.name for info in client.models())
        query = ExplanationQuery(instance=Instance(input=recent_bars()))

        def ask(_: int) -> Explanation | UnavailableError:
            try:
                return client.explain(query)
            except UnavailableError as error:
                return error

        with ThreadPoolExecutor(CALLS) as callers:
            asked = [callers.submit(ask, n) for n in range(CALLS)]
            asked[0].result()
            process.popen.send_signal(signal.SIGTERM)
            answers = tuple(future.result() for future in asked)
        assert process.popen.stdout is not None
        output = process.popen.stdout.read()
        return ProcessOutput(
            process.ready, process.popen.pid, served, answers, process.popen.wait(), log.read_text(), output
        )


def test_the_first_line_says_ready_with_port_process_and_version(life: ProcessOutput) -> None:
    port = life.ready["port"]
    assert isinstance(port, int)
    assert port > 0
    assert life.ready == {"ready": True, "port": port, "pid": life.pid, "version": version("quantra")}


def test_nothing_else_is_printed(life: ProcessOutput) -> None:
    assert not life.later_output


def test_the_signal_to_stop_lets_calls_in_flight_finish(life: ProcessOutput) -> None:
    assert all(isinstance(answer, (Explanation, UnavailableError)) for answer in life.answers)
    assert isinstance(life.answers[0], Explanation)
    assert life.status == 0


def test_a_broken_artifact_is_logged_in_one_line_and_the_others_are_served(life: ProcessOutput) -> None:
    assert life.served == ("small",)
    (told,) = [line for line in lines_of(life.log) if "not served: broken" in line]
    assert "broken/1" in told
    assert "weights.safetensors" in told


def test_a_dangling_alias_is_a_one_line_error(life: ProcessOutput) -> None:
    (told,) = [line for line in lines_of(life.log) if "aliases.json" in line]
    assert "alias 'canary' names version 9, which is missing" in told


def test_the_log_holds_no_stack_trace(life: ProcessOutput) -> None:
    assert "Traceback" not in life.log


def test_an_empty_folder_is_a_one_line_error(tmp_path: Path) -> None:
    done = failed_process("--models", str(tmp_path), "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert not done.stdout
    (line,) = lines_of(done.stderr)
    assert "holds no model that can be served" in line


def test_a_port_in_use_is_a_one_line_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = failed_start("--models", str(tmp_path), "--listen", f"127.0.0.1:{port}")
    assert done.returncode == 1
    (line,) = lines_of(done.stderr)
    assert (
        line
        == f"127.0.0.1:{port} is in use; stop the server there, or listen on another port (port 0 picks a free one)"
    )


@pytest.mark.parametrize(
    ("option", "message"),
    [("0.0.0.0:0", "--insecure-public"), ("nonsense", "is not HOST:PORT")],
)
def test_an_address_that_may_not_be_is_bad_usage(tmp_path: Path, option: str, message: str) -> None:
    done = failed_start("--models", str(tmp_path), "--listen", option)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.slow
def test_callers_that_go_while_their_answers_are_sent_are_no_errors_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    question = pb.PredictRequest(model="small", instances=[instances.encode(Instance(input=recent_bars("AAPL")))])
    content = message(question.SerializeToString())
    with caplog.at_level(logging.DEBUG, "predictor"), hosted_server(small_models(tmp_path)) as server:
        for _ in range(10):
            leave_while_answered(int(server.target.rpartition(":")[2]), content)
    assert "Predict small@1: OK" in caplog.text
    assert "ERROR" not in caplog.text


@pytest.mark.slow
def test_a_log_that_nobody_reads_blocks_no_call_and_no_shutdown(tmp_path: Path) -> None:
    models = small_models(tmp_path / "models")
    command = [sys.executable, "-m", "predictor.server", "--models", str(models), "--listen", "127.0.0.1:0"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, "--log-level", "debug"], stdout=pipe, stderr=pipe, text=True) as popen:
        assert popen.stdout is not None
        port = json.loads(popen.stdout.readline())["port"]
        with QuantraClient(f"127.0.0.1:{port}", "small") as client:
            for _ in range(1500):  # more lines than a pipe holds
                client.models()
        popen.terminate()
        assert popen.wait(30) == 0


def test_lines_that_nobody_reads_are_dropped_and_counted() -> None:
    reader, writer = os.pipe()
    handler = logs.BackgroundHandler(writer)
    record = logging.LogRecord("test", logging.INFO, "", 0, "x" * 100, None, None)
    for _ in range(20_000):
        handler.emit(record)
    dropped = handler.dropped
    assert 20_000 - 10_000 - 65_536 // 100 - 1 <= dropped <= 10_000
    received = 0
    while received < 101 * (20_000 - dropped):
        received += len(os.read(reader, 1 << 16))
    handler.flush()
    assert received == 101 * (20_000 - dropped)
    for end in (reader, writer):
        os.close(end)


def leave_while_answered(port: int, content: bytes) -> None:
    """Close the socket like a killed process, while the rest of the response is unsent."""
    with Connection(port, window=0) as connection:
        stream = connection.call("/quantra.v1.PredictionService/Predict")
        connection.send(stream, content, last=True)
        while not stream.headers:
            connection.read()
        connection.reset()

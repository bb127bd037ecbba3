"""HTTP against gRPC, the time until `quantra ui` answers, and its page.

The shipped LSTM, trained for one epoch on AAPL's real bars, is served by both servers. One client per server sends the
same request in turns, encoded beforehand, over one connection that stays open; responses stay bytes.
"""

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import grpc
import numpy as np
from google.protobuf import json_format

from benchmarks.calling.subject import PREDICT, Subject, server, subject_in
from benchmarks.report import Row, at_most, parse_arguments, publish, shown
from predictor._pb import prediction_pb2 as pb
from trainers.demo.market import real_bars

ROUNDS: Final = 400
STARTS: Final = 5
MAX_RATIO: Final = 1.5
MAX_START_S: Final = 3.0
MAX_FAN_S: Final = 3.0
MAX_PAGE_MB: Final = 2.0


@contextmanager
def web_server(models: Path) -> Generator[tuple[int, str]]:
    """Start `quantra ui`, and yield its port and the path that opens its page, once it is ready."""
    command = [sys.executable, "-m", "quantra", "ui", "--models", models, "--listen", "127.0.0.1:0", "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as process:
        assert process.stdout is not None
        try:
            ready = json.loads(process.stdout.readline())
            yield ready["port"], ready["page"].partition(str(ready["port"]))[2]
        finally:
            process.terminate()


def speed_rows(subject: Subject, rounds: int, *, judged: bool) -> Iterator[Row]:
    body = subject.asked_with_bars()
    message = pb.PredictRequest.FromString(body)
    bars = message.instances[0].bars
    lists = json_format.MessageToDict(message)
    for name in ("open", "high", "low", "close", "volume", "adjClose"):
        if name in lists["instances"][0]["bars"]:
            lists["instances"][0]["bars"][name] = _numbers(getattr(bars, "adj_close" if name == "adjClose" else name))
    bodies = {"base64": json_format.MessageToJson(message).encode(), "lists": json.dumps(lists).encode()}
    with (
        server(subject.models) as target,
        web_server(subject.models) as (port, _),
        grpc.insecure_channel(target) as channel,
    ):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        call = channel.unary_unary(PREDICT)
        subjects: dict[str, Callable[[], object]] = {"gRPC": partial(call, body)}
        for name, sent in bodies.items():
            subjects[name] = partial(_post, connection, sent)
        times: dict[str, list[float]] = {name: [] for name in subjects}
        for _ in range(rounds):
            for name, ask in subjects.items():
                start = time.perf_counter()
                ask()
                times[name].append(time.perf_counter() - start)
    p50 = {name: median(taken[rounds // 10 :]) for name, taken in times.items()}
    for name in bodies:
        detail = f"{1000 * p50[name]:.2f} ms against {1000 * p50['gRPC']:.2f} ms, one symbol with bars"
        ratio = p50[name] / p50["gRPC"]
        yield at_most(f"HTTP/JSON over gRPC, p50, {name}", ratio, MAX_RATIO, detail=detail, judged=judged)


def start_rows(models: Path, starts: int, *, judged: bool) -> Iterator[Row]:
    taken: list[float] = []
    for _ in range(starts):
        start = time.perf_counter()
        with web_server(models) as (port, _):
            taken.append(time.perf_counter() - start)
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/v1/health")
            assert connection.getresponse().status == http.client.OK
    detail = f"process start to ready, median of {starts}"
    yield at_most("start of quantra ui, s", median(taken), MAX_START_S, detail=detail, judged=judged)
    yield shown("slowest start, s", max(taken), detail="")


def page_rows(subject: Subject, rounds: int, *, judged: bool) -> Iterator[Row]:
    """From a dropped file of the demo's bars to the fan of one symbol; the first one also loads plotly's Python."""
    file = subject.models / "bars.csv"
    real_bars(["AAPL", "GOOG", "IBM", "MSFT"]).write_csv(file)
    content, taken, heaviest = file.read_bytes(), list[float](), 0
    with web_server(subject.models) as (port, path):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        headers, _ = _ask(connection, "GET", path, None, {})
        cookie = {"cookie": headers["set-cookie"].partition(";")[0], "origin": f"http://127.0.0.1:{port}"}
        for _ in range(rounds):
            start = time.perf_counter()
            _ask(connection, "POST", "/page/files?name=bars.csv&first=yes", content, cookie)
            for shown in ("/page/bars", "/page/forecast?symbol=AAPL"):
                _, text = _ask(connection, "GET", shown, None, cookie)
                heaviest = max(heaviest, len(text))
            taken.append(time.perf_counter() - start)
    detail = f"{len(content) / 1e6:.1f} MB of bars of four symbols, read and checked, then the page with the fan"
    yield at_most("dropped file to its fan, first, s", taken[0], MAX_FAN_S, detail=detail, judged=judged)
    yield at_most("dropped file to its fan, median, s", median(taken), MAX_FAN_S, detail="", judged=judged)
    yield at_most(
        "heaviest page, MB", heaviest / 1e6, MAX_PAGE_MB, detail="the forecast with its reasons", judged=judged
    )


def _ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> tuple[http.client.HTTPMessage, bytes]:
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    answer = response.read()
    assert response.status < http.client.BAD_REQUEST, answer
    return response.headers, answer


def _post(connection: http.client.HTTPConnection, body: bytes) -> bytes:
    connection.request("POST", "/v1/forecast", body, {"content-type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    assert response.status == http.client.OK, answer
    return answer


def _numbers(data: bytes) -> list[float | None]:
    return [None if value != value else value for value in np.frombuffer(data, "<f8").tolist()]  # noqa: PLR0124 - NaN


def all_rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    subject = subject_in(folder)
    yield from speed_rows(subject, 40 if quick else ROUNDS, judged=not quick)
    yield from page_rows(subject, 2 if quick else 5, judged=not quick)
    yield from start_rows(folder, 1 if quick else STARTS, judged=not quick)


def main() -> int:
    arguments = parse_arguments(__doc__ or "")
    with tempfile.TemporaryDirectory() as folder:
        return publish(all_rows(Path(folder), quick=arguments.quick), arguments.json)


if __name__ == "__main__":
    sys.exit(main())

"""Triton beside our server: the same network, eager on one torch thread, asked by the same load in turns.

Triton runs the network and nothing else; our server checks what it is sent, and answers with prices and warnings too.
A bare server on the same gRPC gives back a part of what it is sent: what no server on it can exceed.
"""

import os
import socket
import statistics
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc
import numpy as np

from benchmarks.calling.bare import echoing
from benchmarks.calling.kserve import infer_bytes
from benchmarks.calling.load import Calls, Load, Turn, load
from benchmarks.calling.rates import IN_FLIGHT, WINDOWS
from benchmarks.calling.subject import INFER, PREDICT, Subject, server
from benchmarks.report import Row, at_least, shown, unmeasured
from benchmarks.training.environments import ROOT, SERVERS, NoEnvironmentError, python_of
from predictor._pb import inference_pb2
from predictor._pb import prediction_pb2 as pb

ONE_STREAM_REACH: Final = 1.5
MANY_REACHES: Final = {1: 2.0, 8: 2.0, 32: 1.8}
NOT_READ: Final = ("anchor_price", "date")
"""Inputs that the network does not read; Triton has none of these names."""
_READY: Final = "/inference.GRPCInferenceService/ServerReady"
_PATIENCE_S: Final = 120.0

Cell = tuple[str, int, int]
"""Who is asked, how many requests are in flight, and over how many streams; 0 = as unary calls."""
Round = dict[Cell, Calls]


def rival_rows(subject: Subject, rounds: int, seconds: float, *, judged: bool) -> list[Row]:
    """Requests a second over our streams against Triton's calls, and over one stream of each."""
    try:
        python = python_of("triton")
    except NoEnvironmentError as error:
        return [unmeasured("our streams / Triton", str(error), reach=f">= {ONE_STREAM_REACH:g}")]
    request = infer_bytes(subject, NOT_READ)
    asked = {WINDOWS: subject.asked_with_windows()}
    with (
        server(subject.models) as ours,
        triton(python, subject.models / "stock" / "1") as theirs,
        echoing(_answer_bytes(ours, asked[WINDOWS])) as bare,
        load(ours, asked) as here,
        load(theirs, {WINDOWS: request}, methods={WINDOWS: INFER}) as there,
        load(bare, asked) as nowhere,
    ):
        _check_alike(ours, asked[WINDOWS], theirs, request)
        found = _rounds({"ours": here, "Triton": there, "bare": nowhere}, rounds, seconds)
    return _rows(found, f"{SERVERS['triton'][0]}; medians of {rounds} rounds of {seconds:g} s each", judged=judged)


@contextmanager
def triton(python: Path, artifact: Path) -> Generator[str]:
    """The address of a Triton that answers with this artifact's network."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [str(python), "-m", "benchmarks.peers.serve_with_triton", str(artifact), str(port)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait(f"127.0.0.1:{port}")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait(target: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    with grpc.insecure_channel(target) as channel:
        ready = channel.unary_unary(_READY)
        while time.monotonic() < end:
            try:
                if inference_pb2.ServerReadyResponse.FromString(ready(b"", timeout=1)).ready:
                    return
            except grpc.RpcError:
                pass
            time.sleep(0.2)
    raise TimeoutError(target)


def _answer_bytes(ours: str, asked: bytes) -> int:
    with grpc.insecure_channel(ours) as channel:
        return len(channel.unary_unary(PREDICT)(asked))


def _check_alike(ours: str, asked: bytes, theirs: str, request: bytes) -> None:
    """Hold that both answer with the same quantiles."""
    with grpc.insecure_channel(ours) as here, grpc.insecure_channel(theirs) as there:
        answer = pb.PredictResponse.FromString(here.unary_unary(PREDICT)(asked)).results[0].forecast.values
        other = inference_pb2.ModelInferResponse.FromString(there.unary_unary(INFER)(request)).raw_output_contents[0]
    np.testing.assert_allclose(np.frombuffer(answer), np.frombuffer(other), rtol=0, atol=1e-6)


def _rounds(loads: dict[str, Load], rounds: int, seconds: float) -> list[Round]:
    """Every cell's turn in every round; every other round goes backwards."""
    most = IN_FLIGHT[-1]
    cells: list[Cell] = [("Triton", many, 0) for many in IN_FLIGHT]
    cells += [("ours", many, many) for many in IN_FLIGHT]
    cells += [("ours", many, 0) for many in IN_FLIGHT]
    cells += [("ours", most, 1), ("Triton", most, 1)]
    cells += [("bare", many, many) for many in IN_FLIGHT] + [("bare", most, 1)]
    found: list[Round] = []
    for count in range(rounds):
        order = cells if count % 2 == 0 else cells[::-1]
        found.append({cell: loads[cell[0]].run(Turn(WINDOWS, cell[1], seconds, cell[2])) for cell in order})
    return found


def _rows(found: Sequence[Round], detail: str, *, judged: bool) -> list[Row]:
    most = IN_FLIGHT[-1]
    one = _ratio(found, ("ours", most, 1), ("Triton", most, 1))
    name = f"one stream / Triton's, {most} in flight, requests/s"
    rows = [at_least(name, one, ONE_STREAM_REACH, detail=detail, judged=judged)]
    rows.append(
        shown(
            f"one bare stream / Triton's, {most} in flight",
            _ratio(found, ("bare", most, 1), ("Triton", most, 1)),
            detail=detail,
        )
    )
    for many in IN_FLIGHT:
        share = _ratio(found, ("bare", many, many), ("Triton", many, 0))
        rows.append(shown(f"{many} bare streams / Triton's calls, {many} in flight", share, detail=detail))
        share = _ratio(found, ("ours", many, many), ("Triton", many, 0))
        name = f"{many} streams / Triton's calls, {many} in flight, requests/s"
        rows.append(at_least(name, share, MANY_REACHES[many], detail=detail, judged=judged))
        share = _ratio(found, ("ours", many, 0), ("Triton", many, 0))
        rows.append(shown(f"our calls / Triton's, {many} in flight, requests/s", share, detail=detail))
    rates = [(cell, statistics.median(one[cell].per_second for one in found)) for cell in found[0]]
    return rows + [
        shown(f"{who}, {many} in flight on {streams} streams, requests/s", rate, detail=detail)
        for (who, many, streams), rate in rates
    ]


def _ratio(found: Sequence[Round], over: Cell, under: Cell) -> float:
    return statistics.median(one[over].per_second / one[under].per_second for one in found)

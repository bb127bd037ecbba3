"""Our server against Triton with the same network on one torch thread, called in turn by the same load.

Triton runs only the network; our server also checks its input, and answers with prices and warnings.
"""

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc
import numpy as np

from benchmarks.calling.kserve import infer_bytes
from benchmarks.calling.load import Calls, Turn, load
from benchmarks.calling.rates import IN_FLIGHT, WINDOWS, middle, ratio, run_rounds
from benchmarks.calling.subject import INFER, PREDICT, Subject, server
from benchmarks.environments import ROOT, SERVERS, NoEnvironmentError, python_of
from benchmarks.report import Row, at_least, at_most, shown, unmeasured
from predictor._pb import inference_pb2
from predictor._pb import prediction_pb2 as pb

UNARY_REACHES: Final = {1: 2.2, 8: 1.8, 32: 1.15}
STREAMS_REACHES: Final = {1: 2.7, 8: 2.0, 32: 1.2}
ONE_STREAM_REACH, P99_REACH = 1.4, 1.0
UTILISATION: Final = 0.8
NOT_READ: Final = ("anchor_price", "date")
"""Inputs that the network does not read, so Triton does not have them."""
TRITON: Final = "Triton"
ENGINES: Final = ("eager", "onnxruntime")
_READY: Final = "/inference.GRPCInferenceService/ServerReady"
MAX_START_S: Final = 120.0

Cell = tuple[str, int, int]
"""Name of a server, number of requests in flight, and of streams; 0 streams for unary calls."""


def triton_rows(subject: Subject, rounds: int, seconds: float, *, judged: bool) -> list[Row]:
    """Requests per second and latency of unary calls and streams of both engines against Triton's."""
    try:
        python = python_of("triton")
    except NoEnvironmentError as error:
        return [unmeasured("ours / Triton", str(error))]
    ours, theirs = subject.asked_with_windows(), infer_bytes(subject, NOT_READ)
    with (
        server(subject.models) as eager,
        server(subject.models, "--engine", "onnxruntime") as graph,
        triton(python, subject.models / "stock" / "1", theirs) as other,
        load(eager, {WINDOWS: ours}) as to_eager,
        load(graph, {WINDOWS: ours}) as to_graph,
        load(other, {WINDOWS: theirs}, methods={WINDOWS: INFER}) as to_triton,
    ):
        for target in (eager, graph):
            check_alike(target, ours, other, theirs)
        loads = {**dict(zip(ENGINES, (to_eager, to_graph), strict=True)), TRITON: to_triton}
        most = IN_FLIGHT[-1]

        def run_cells(cells: list[Cell]) -> list[dict[Cell, Calls]]:
            return run_rounds(lambda cell: loads[cell[0]].run(Turn(WINDOWS, cell[1], seconds, cell[2])), cells, rounds)

        unary: list[Cell] = [(name, many, 0) for many in IN_FLIGHT for name in loads]
        closed = run_cells(unary)
        rate = UTILISATION * min(middle(closed, (name, most, 0)) for name in loads)
        paced = run_rounds(lambda name: loads[name].run(Turn(WINDOWS, most, seconds, rate=rate)), [*loads], rounds)
        shapes = [(most, 1), *((many, many) for many in IN_FLIGHT)]
        streams: list[Cell] = [(name, many, count) for many, count in shapes for name in loads]
        # last, because Triton can end with a segmentation fault when a stream closes
        try:
            streamed = run_cells(streams)
        except EOFError:
            streamed = None
    detail = f"{SERVERS['triton'][0]}; medians of {rounds} rounds of {seconds:g} s each"
    rows: list[Row] = []
    for engine in ENGINES:
        rows += unary_rows(closed, engine, detail, judged=judged)
        name = f"{engine} / Triton, {rate:.0f} calls/s, p99"
        how = f"open loop, {UTILISATION:.0%} of the slowest server's calls; {detail}"
        rows.append(at_most(name, ratio(paced, engine, TRITON, p99), P99_REACH, detail=how, judged=judged))
    rows += [cell_row(closed, cell, detail) for cell in unary]
    if streamed is None:
        return [*rows, unmeasured("streams / Triton", "Triton ended during its streams; run the benchmark again")]
    both = [{**calls, **more} for calls, more in zip(closed, streamed, strict=True)]
    for engine in ENGINES:
        rows += stream_rows(both, engine, detail, judged=judged)
    return rows + [cell_row(both, cell, detail) for cell in streams]


def p99(calls: Calls) -> float:
    """Milliseconds."""
    return calls.percentile_ms(99)


def compare(
    found: Sequence[Mapping[Cell, Calls]],
    ours: Cell,
    theirs: Cell,
    name: str,
    reach: float,
    detail: str,
    *,
    judged: bool,
) -> Row:
    """Compare the requests per second of two cells."""
    more = ratio(found, ours, theirs)
    return at_least(f"{ours[0]}: {name}, requests/s", more, reach, detail=detail, judged=judged)


def unary_rows(found: Sequence[Mapping[Cell, Calls]], engine: str, detail: str, *, judged: bool) -> list[Row]:
    """Compare one engine's unary calls with Triton's."""
    rows = [
        compare(
            found,
            (engine, many, 0),
            (TRITON, many, 0),
            f"{many} calls at a time / Triton's",
            reach,
            detail,
            judged=judged,
        )
        for many, reach in UNARY_REACHES.items()
    ]
    slower = ratio(found, (engine, 1, 0), (TRITON, 1, 0), p99)
    return [*rows, at_most(f"{engine} / Triton, one at a time, p99", slower, P99_REACH, detail=detail, judged=judged)]


def stream_rows(found: Sequence[Mapping[Cell, Calls]], engine: str, detail: str, *, judged: bool) -> list[Row]:
    """Compare one engine's streams with Triton's stream and its unary calls."""
    most = IN_FLIGHT[-1]
    one = f"one stream / Triton's, {most} in flight"
    rows = [compare(found, (engine, most, 1), (TRITON, most, 1), one, ONE_STREAM_REACH, detail, judged=judged)]
    for many, reach in STREAMS_REACHES.items():
        name = f"{many} streams / Triton's calls"
        rows.append(compare(found, (engine, many, many), (TRITON, many, 0), name, reach, detail, judged=judged))
    return rows


def cell_row(found: Sequence[Mapping[Cell, Calls]], cell: Cell, detail: str) -> Row:
    """The numbers of one cell."""
    name, many, streams = cell
    how = f"on {streams} streams" if streams else "as unary calls"
    title = f"{name}: {many} in flight {how}, requests/s"
    return shown(title, middle(found, cell), detail=f"p99 {middle(found, cell, p99):.3g} ms; {detail}")


@contextmanager
def triton(python: Path, artifact: Path, request: bytes) -> Generator[str]:
    """Start the Triton of an environment with this artifact's network, and yield its address."""
    packages = next(python.parents[1].glob("lib/*/site-packages"))
    program, libraries = packages / "pytriton" / "tritonserver", sysconfig.get_config_var("LIBDIR")
    environment = {"LD_LIBRARY_PATH": f"{packages / 'nvidia_pytriton.libs'}:{libraries}", "OMP_NUM_THREADS": "1"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as work:
        model, backend = Path(work) / "models" / "stock", Path(work) / "backends" / "python"
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(configuration(artifact, request), encoding="utf-8")
        paths = [str(path) for path in (packages, ROOT / "python", ROOT)]
        name = "from benchmarks.peers.network_in_triton import TritonPythonModel"
        (model / "1" / "model.py").write_text(f"import sys\nsys.path[:0] = {paths}\n{name}\n", encoding="utf-8")
        shutil.copytree(program / "backends" / "python", backend)
        stub = program / "python_backend_stubs" / f"{sys.version_info[0]}.{sys.version_info[1]}"
        shutil.copy(stub / "triton_python_backend_stub", backend)
        command = [program / "bin" / "tritonserver", f"--model-repository={model.parent}"]
        command += [f"--backend-directory={backend.parent}", "--grpc-address=127.0.0.1", f"--grpc-port={port}"]
        command += ["--allow-http=false", "--allow-metrics=false", f"--log-file={work}/log"]
        with subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL) as process:
            try:
                wait_until_ready(f"127.0.0.1:{port}", process)
                yield f"127.0.0.1:{port}"
            finally:
                process.terminate()


def configuration(artifact: Path, request: bytes) -> str:
    """The model's config.pbtxt: the inputs of a request, and batches of up to 256 rows without a delay."""
    inputs = ", ".join(
        f'{{ name: "{one.name}" data_type: TYPE_{one.datatype} dims: {list(one.shape[1:])} }}'
        for one in inference_pb2.ModelInferRequest.FromString(request).inputs
    )
    return f"""backend: "python"
max_batch_size: 256
input [ {inputs} ]
output [ {{ name: "values" data_type: TYPE_FP64 dims: [ -1, -1 ] }} ]
dynamic_batching {{ max_queue_delay_microseconds: 0 }}
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
parameters {{ key: "artifact" value {{ string_value: "{artifact.resolve()}" }} }}
"""


def wait_until_ready(target: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait for the start of Triton."""
    end = time.monotonic() + MAX_START_S
    with grpc.insecure_channel(target) as channel:
        ready = channel.unary_unary(_READY)
        while process.poll() is None and time.monotonic() < end:
            try:
                if inference_pb2.ServerReadyResponse.FromString(ready(b"", timeout=1)).ready:
                    return
            except grpc.RpcError:
                time.sleep(0.2)
    raise TimeoutError(f"Triton does not start (exit code {process.poll()})")


def check_alike(ours: str, asked: bytes, theirs: str, request: bytes) -> None:
    """Raise AssertionError unless both answer with the same quantiles."""
    with grpc.insecure_channel(ours) as here, grpc.insecure_channel(theirs) as there:
        answer = pb.PredictResponse.FromString(here.unary_unary(PREDICT)(asked)).results[0].forecast.values
        other = inference_pb2.ModelInferResponse.FromString(there.unary_unary(INFER)(request)).raw_output_contents[0]
    np.testing.assert_allclose(np.frombuffer(answer), np.frombuffer(other), rtol=0, atol=1e-6)

"""What the server adds to a forecast, over a real connection to a server process of its own.

The shipped LSTM, trained for one epoch on AAPL's real bars by the shipped code, is served by `python -m
predictor.server` with one torch thread. Every figure is the median over single calls of one caller; calls that are
compared alternate, so a busy machine hits all of them. The bare call is gRPC alone: a server in a process of its own
takes as many bytes and gives as many back.
"""

import asyncio
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from benchmarks.report import Row, at_most, interleaved_medians, parse_arguments, publish, shown
from predictor import artifact
from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.client import QuantraClient
from predictor.errors import CallCancelledError, UnavailableError
from predictor.features import default_features
from predictor.forecast import Forecast
from predictor.instance import FeatureWindow, Instance, Query
from predictor.windows import Pipeline
from predictor.wire import forecasts, instances
from trainers.demo.market import real_bars
from trainers.loop import Report
from trainers.stock.recipe import Optimisation, Recipe
from trainers.stock.training import train
from trainers.stock.training_data import Material

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized  # no generic class while the program runs

BARS_REACH: Final = 1.5
EXPLAIN_REACH: Final = 1.1
_SPAWN: Final = multiprocessing.get_context("spawn")
_ECHO: Final = "/echo/Echo"


def save_model(folder: Path, bars: BarPanel) -> Pipeline:
    """Write `folder/stock/1`; what it forecasts does not matter here, how large it is does."""
    recipe = Recipe(calendar="XNYS", optimisation=Optimisation(max_epochs=1, patience=1, device="cpu"))
    made = train(Material(bars, default_features()), recipe, folder / "stock" / "1", consume=unseen)
    return artifact.load(made.folder).artifact.pipeline


def unseen(reports: Iterable[Report]) -> Iterator[Report]:
    """Let the training run without showing its progress."""
    return iter(reports)


def window_of(bars: BarPanel, pipeline: Pipeline) -> FeatureWindow:
    """What a caller sends that computes the features itself."""
    inputs = pipeline.latest_window(pipeline.encode_latest(bars))
    return FeatureWindow(
        symbols=bars.symbols,
        observed=inputs.observed.numpy(),
        known=inputs.known.numpy(),
        static=inputs.static.numpy(),
        mask=inputs.mask.numpy(),
        location=inputs.location.numpy(),
        scale=inputs.scale.numpy(),
        schema_hash=pipeline.features.schema_hash,
        anchor_price=bars.close[:, -1],
        as_of_session=int(bars.sessions[-1]),
    )


@contextmanager
def server(models: Path) -> Generator[str]:
    """The address of a server process that answers."""
    command = [sys.executable, "-m", "predictor.server", "--models", models, "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    quiet = ["--log-level", "error"]
    with subprocess.Popen([*command, *quiet], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{json.loads(process.stdout.readline())['port']}"
        finally:
            process.terminate()


@contextmanager
def echo(answer: bytes) -> Generator[Callable[[bytes], bytes]]:
    """A call that sends bytes to a bare server process and gets `answer` back."""
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=run_echo, args=(answer, there), daemon=True)
    process.start()
    with grpc.insecure_channel(f"127.0.0.1:{here.recv()}") as channel:
        yield channel.unary_unary(_ECHO)
    process.terminate()
    process.join()


def run_echo(answer: bytes, told: Connection) -> None:
    """Serve `answer` until the process is ended; runs in its own process."""

    async def answered(_body: bytes, _context: object) -> bytes:
        return answer

    async def serve() -> None:
        bare = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(answered)
        bare.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo", {"Echo": handler}),))
        told.send(bare.add_insecure_port("127.0.0.1:0"))
        await bare.start()
        await bare.wait_for_termination()

    asyncio.run(serve())


@dataclass(frozen=True, slots=True)
class Explaining:
    """Another process that asks for one explanation after the other."""

    wanted: Event
    """It asks while this is set."""
    answered: "Synchronized[int]"
    """Explanations so far."""


@contextmanager
def explaining(target: str) -> Generator[Explaining]:
    """Start the process that explains; it has had its first answer before this yields."""
    told = Explaining(_SPAWN.Event(), _SPAWN.Value("q", 0))
    ready = _SPAWN.Event()
    process = _SPAWN.Process(target=explain_while, args=(target, told.wanted, told.answered, ready), daemon=True)
    process.start()
    told.wanted.set()
    ready.wait()
    told.wanted.clear()
    try:
        yield told
    finally:
        process.terminate()
        process.join()


def explain_while(target: str, wanted: Event, answered: "Synchronized[int]", ready: Event) -> None:
    """Explain every horizon of the last bars, over and over; runs in its own process."""
    query = Query(instance=Instance(input=real_bars(["AAPL"]).last(200)))
    with QuantraClient(target) as client:
        while True:
            wanted.wait()
            try:
                client.explain(query)
            except (CallCancelledError, UnavailableError):  # the server ends first
                return
            answered.value += 1
            ready.set()


def input_rows(client: QuantraClient, bars: BarPanel, window: FeatureWindow, calls: int, *, judged: bool) -> list[Row]:
    """Bars in against windows in."""
    medians = interleaved_medians(
        {"bars": lambda: client.predict(bars), "window": lambda: client.predict(window)}, rounds=calls, calls=1
    )
    detail = f"1 symbol, {len(bars.sessions)} bars; medians of {calls} calls each"
    return [
        shown("bars in, p50, ms", 1e3 * medians["bars"], detail=detail),
        shown("windows in, p50, ms", 1e3 * medians["window"], detail=detail),
        at_most(
            "bars in / windows in, p50", medians["bars"] / medians["window"], BARS_REACH, detail=detail, judged=judged
        ),
    ]


def explain_rows(client: QuantraClient, bars: BarPanel, told: Explaining, calls: int, *, judged: bool) -> list[Row]:
    """Predictions while explanations run without pause, against alone, and how many explanations that leaves."""
    alone: list[float] = []
    beside: list[float] = []
    busy_s, explained = 0.0, 0
    turns, each = 20, max(calls // 20, 1)
    for _ in range(turns):
        told.wanted.clear()
        alone.append(prediction_s(client, bars, each))
        told.wanted.set()
        start, before = time.perf_counter(), told.answered.value
        beside.append(prediction_s(client, bars, each))
        busy_s, explained = busy_s + time.perf_counter() - start, explained + told.answered.value - before
    told.wanted.clear()
    ratio = statistics.median(busy / quiet for quiet, busy in zip(alone, beside, strict=True))
    detail = f"{turns} turns of {each} predictions each way; medians"
    return [
        shown("prediction alone, p50, ms", 1e3 * statistics.median(alone), detail=detail),
        shown("prediction beside explanations, p50, ms", 1e3 * statistics.median(beside), detail=detail),
        shown("explanations meanwhile, a second", explained / busy_s, detail="they pause while predictions come"),
        at_most("prediction beside explanations / alone, p50", ratio, EXPLAIN_REACH, detail=detail, judged=judged),
    ]


def prediction_s(client: QuantraClient, bars: BarPanel, calls: int) -> float:
    """Median of single calls, seconds."""
    return interleaved_medians({"predict": lambda: client.predict(bars)}, rounds=calls, calls=1)["predict"]


def client_rows(client: QuantraClient, bars: BarPanel, calls: int) -> list[Row]:
    """The Python client beside gRPC alone."""
    request, answer = request_bytes(bars), answer_bytes(client.predict(bars))
    with echo(answer) as bare:
        medians = interleaved_medians(
            {"client": lambda: client.predict(bars), "bare": lambda: bare(request)}, rounds=calls, calls=1
        )
    detail = f"{len(request)} bytes out, {len(answer)} back; medians of {calls} calls each"
    return [
        shown("Python client, a forecast, p50, ms", 1e3 * medians["client"], detail=detail),
        shown("bare gRPC call of the same size, p50, ms", 1e3 * medians["bare"], detail=detail),
    ]


def request_bytes(bars: BarPanel) -> bytes:
    """What the client sends."""
    return pb.PredictRequest(instances=[instances.encode(Instance(input=bars))]).SerializeToString()


def answer_bytes(forecast: Forecast) -> bytes:
    """What the server sends back."""
    return pb.PredictResponse(results=[pb.Result(forecast=forecasts.encode(forecast))]).SerializeToString()


def main() -> int:
    arguments = parse_arguments("What the server adds to a forecast.")
    calls, judged = (100, False) if arguments.quick else (1000, True)
    with tempfile.TemporaryDirectory() as folder:
        pipeline = save_model(Path(folder), real_bars(["AAPL"]))
        bars = real_bars(["AAPL"]).last(pipeline.bars_needed)
        with server(Path(folder)) as target, QuantraClient(target) as client:
            rows = input_rows(client, bars, window_of(bars, pipeline), calls, judged=judged)
            rows += client_rows(client, bars, calls)
            with explaining(target) as told:
                rows += explain_rows(client, bars, told, calls, judged=judged)
    return publish(rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

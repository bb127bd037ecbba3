"""The Python client beside gRPC alone: a server in a process of its own takes as many bytes and gives as many back."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Final

import grpc
import grpc.aio

from benchmarks.calling.load import SPAWN
from benchmarks.calling.subject import request_bytes
from benchmarks.report import Row, interleaved_medians, shown
from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.client import QuantraClient
from predictor.forecast import Forecast
from predictor.wire import forecasts

_ECHO: Final = "/echo/Echo"


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


def answer_bytes(forecast: Forecast) -> bytes:
    """What the server sends back."""
    return pb.PredictResponse(results=[pb.Result(forecast=forecasts.encode(forecast))]).SerializeToString()


@contextmanager
def echo(answer: bytes) -> Generator[Callable[[bytes], bytes]]:
    """A call that sends bytes to a bare server process and gets `answer` back."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=run_echo, args=(answer, there), daemon=True)
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

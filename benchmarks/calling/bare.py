"""A bare gRPC server that receives and returns as many bytes as ours and does nothing else."""

from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import grpc
import grpc.aio

from benchmarks.calling.load import SPAWN
from benchmarks.calling.subject import PREDICT, PREDICT_STREAM, request_bytes
from benchmarks.report import Row, interleaved_medians, shown
from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.client import QuantraClient
from predictor.forecast import Forecast
from predictor.server.process_tuning import run, tuned
from predictor.server.servicer import PREDICTION
from predictor.wire import forecasts


def client_rows(client: QuantraClient, bars: BarPanel, calls: int) -> list[Row]:
    """Compare the Python client with a bare gRPC call of the same size."""
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
    """Encode the response that the server sends for a forecast."""
    return pb.PredictResponse(results=[pb.Result(forecast=forecasts.encode(forecast))]).SerializeToString()


@contextmanager
def echo(answer: bytes) -> Generator[Callable[[bytes], bytes]]:
    """A call to a bare server process, which returns `len(answer)` bytes."""
    with echoing(len(answer)) as target, grpc.insecure_channel(target) as channel:
        yield channel.unary_unary(PREDICT)


@contextmanager
def echoing(size: int) -> Generator[str]:
    """The address of a bare server process that returns the first `size` bytes of each request, on streams too."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=run_echo, args=(size, there), daemon=True)
    process.start()
    yield f"127.0.0.1:{here.recv()}"
    process.terminate()
    process.join()


def run_echo(size: int, pipe: Connection) -> None:
    """Serve until the process is terminated, with the settings of our server; runs in a child process."""

    async def unary(body: bytes, _context: object) -> bytes:
        return body[:size]

    async def stream(bodies: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
        async for body in bodies:
            yield body[:size]

    async def serve() -> None:
        bare = grpc.aio.server()
        handlers = {
            PREDICT: grpc.unary_unary_rpc_method_handler(unary),
            PREDICT_STREAM: grpc.stream_stream_rpc_method_handler(stream),
        }
        methods = {path.rpartition("/")[2]: handler for path, handler in handlers.items()}
        bare.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(PREDICTION.full_name, methods),))
        pipe.send(bare.add_insecure_port("127.0.0.1:0"))
        await bare.start()
        await bare.wait_for_termination()

    with tuned():
        run(serve())

"""A closed loop of calls from a separate process: a fixed number is in flight, and each response starts the next call.

Requests and responses stay bytes, so the client spends its time in gRPC only.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import grpc
import grpc.aio
import numpy as np

from benchmarks.calling.subject import INFER, PREDICT, PREDICT_STREAM
from predictor._pb import inference_pb2 as inference_pb
from predictor._pb import prediction_pb2 as pb
from predictor.arrays import FloatArray

if TYPE_CHECKING:
    from multiprocessing.connection import Connection  # not subscriptable at runtime

SPAWN: Final = multiprocessing.get_context("spawn")
MAX_CHANNELS: Final = 4
WARM_S: Final = 0.2
_PREDICT_ALL: Final[Mapping[str, str]] = {}
_OPTIONS: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 16 << 20))


@final
@dataclass(frozen=True, slots=True)
class Access:
    """Credentials for the server."""

    authority: bytes
    """PEM; empty for plain text."""
    token: str = ""

    def open(self, target: str) -> grpc.aio.Channel:
        """Open a separate connection."""
        if not self.authority:
            return grpc.aio.insecure_channel(target, options=_OPTIONS)
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(self.authority), options=_OPTIONS)

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Metadata of each call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


PLAIN: Final = Access(b"")


@final
@dataclass(frozen=True, slots=True)
class Turn:
    """A load for a fixed time."""

    request: str
    """Name of the request."""
    in_flight: int
    seconds: float
    streams: int = 0
    """Number of streams; 0 for unary calls."""
    rate: float = 0.0
    """Unary calls per second at random times, however many are in flight; 0 to start a call when another has ended."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """The calls of one or several turns."""

    took_s: FloatArray
    """[N] from each request to its response, all within the time."""
    seconds: float

    @property
    def per_second(self) -> float:
        """Calls per second."""
        return len(self.took_s) / self.seconds

    def percentile_ms(self, percent: float) -> float:
        """Percentile of the latency."""
        return 1e3 * float(np.percentile(self.took_s, percent))


def together(turns: list[Calls]) -> Calls:
    """Pool the calls of several turns."""
    return Calls(np.concatenate([one.took_s for one in turns]), sum(one.seconds for one in turns))


@final
class Load:
    """Handle of the load process, which runs one turn at a time.

    Args:
        there: connection to the process.
    """

    def __init__(self, there: "Connection[Turn, Calls]") -> None:
        self._there = there

    def run(self, turn: Turn) -> Calls:
        """Run a turn; raises EOFError if a call fails, because that ends the load process."""
        self._there.send(turn)
        return self._there.recv()


@contextmanager
def load(
    target: str,
    requests: Mapping[str, bytes],
    access: Access = PLAIN,
    *,
    methods: Mapping[str, str] = _PREDICT_ALL,
) -> Generator[Load]:
    """Start the load process.

    Args:
        target: address of the server.
        requests: encoded requests by name.
        access: credentials.
        methods: path of the method, for requests other than Predict.
    """
    here, there = SPAWN.Pipe()
    settings = LoadSettings(target, dict(requests), dict(methods), access)
    process = SPAWN.Process(target=serve_turns, args=(settings, there), daemon=True)
    process.start()
    there.close()
    try:
        yield Load(here)
    finally:
        process.terminate()
        process.join()


@final
@dataclass(frozen=True, slots=True)
class LoadSettings:
    """Settings of the load process."""

    target: str
    requests: Mapping[str, bytes]
    methods: Mapping[str, str]
    access: Access


def serve_turns(settings: LoadSettings, pipe: "Connection[Calls, Turn]") -> None:
    """Run turns until the process is terminated; runs in a child process."""
    while True:
        turn = pipe.recv()
        method = settings.methods.get(turn.request, PREDICT)
        calls = streamed_calls_of if turn.streams else paced_calls_of if turn.rate else calls_of
        pipe.send(asyncio.run(calls(settings.target, method, settings.requests[turn.request], turn, settings.access)))


async def calls_of(target: str, method: str, request: bytes, turn: Turn, access: Access = PLAIN) -> Calls:
    """Call for the turn's time, after a short warm-up that does not count."""
    channels = [access.open(target) for _ in range(min(turn.in_flight, MAX_CHANNELS))]
    begin = time.perf_counter() + WARM_S
    end, took_s = begin + turn.seconds, list[float]()

    async def caller(channel: grpc.aio.Channel) -> None:
        call = channel.unary_unary(method)
        while (asked := time.perf_counter()) < end:
            await call(request, metadata=access.headers)
            answered = time.perf_counter()
            if asked >= begin and answered <= end:
                took_s.append(answered - asked)

    await asyncio.gather(*(caller(channels[place % len(channels)]) for place in range(turn.in_flight)))
    for channel in channels:
        await channel.close()
    return Calls(np.array(took_s), turn.seconds)


async def paced_calls_of(target: str, method: str, request: bytes, turn: Turn, access: Access = PLAIN) -> Calls:
    """Call at the turn's rate. A call counts from the time at which it was due."""
    channels = [access.open(target) for _ in range(min(turn.in_flight, MAX_CHANNELS))]
    pauses_s = np.random.default_rng(0).exponential(1 / turn.rate, int(2 * turn.rate * (WARM_S + turn.seconds)))
    due_s = np.cumsum(pauses_s)
    begin = time.perf_counter()

    async def call(channel: grpc.aio.Channel, due: float) -> float:
        await channel.unary_unary(method)(request, metadata=access.headers)
        return time.perf_counter() - begin - due

    calls = list[asyncio.Task[float]]()
    for place, due in enumerate(due_s[due_s < WARM_S + turn.seconds]):
        await asyncio.sleep(max(0.0, begin + due - time.perf_counter()))
        calls.append(asyncio.create_task(call(channels[place % len(channels)], due)))
    took_s = await asyncio.gather(*calls)
    for channel in channels:
        await channel.close()
    return Calls(np.array(took_s)[np.count_nonzero(due_s < WARM_S) :], turn.seconds)


async def streamed_calls_of(target: str, method: str, request: bytes, turn: Turn, access: Access = PLAIN) -> Calls:
    """Call over streams, which share the requests in flight."""
    streaming = _STREAMING_METHODS[method]
    channels = [access.open(target) for _ in range(min(turn.streams, MAX_CHANNELS))]
    begin = time.perf_counter() + WARM_S
    end, took_s = begin + turn.seconds, list[float]()
    bodies = streaming.requests(request, turn.in_flight // turn.streams)

    async def converse(channel: grpc.aio.Channel) -> None:
        call: Any = channel.stream_stream(streaming.path)()
        asked, free = dict[bytes, float](), asyncio.Queue[bytes]()

        async def ask() -> None:
            while (name := await free.get()) and (now := time.perf_counter()) < end:
                asked[name] = now
                await call.write(bodies[name])
            await call.done_writing()

        for name in bodies:
            free.put_nowait(name)
        asking = asyncio.create_task(ask())
        while (answer := await call.read()) is not grpc.aio.EOF:
            name, answered = streaming.name_of(answer), time.perf_counter()
            if asked[name] >= begin and answered <= end:
                took_s.append(answered - asked[name])
            free.put_nowait(name)
        await asking

    await asyncio.gather(*(converse(channels[place % len(channels)]) for place in range(turn.streams)))
    for channel in channels:
        await channel.close()
    return Calls(np.array(took_s), turn.seconds)


def stream_requests(request: bytes, count: int) -> dict[bytes, bytes]:
    """Convert the bytes of a PredictRequest with one instance to `count` stream requests by id."""
    asked = pb.PredictRequest.FromString(request)
    predict = pb.StreamPredict(model=asked.model, instance=asked.instances[0])
    names = [str(place) for place in range(count)]
    return {
        name.encode(): pb.PredictStreamRequest(request_id=name, predict=predict).SerializeToString() for name in names
    }


def infer_requests(request: bytes, count: int) -> dict[bytes, bytes]:
    """Convert the bytes of a ModelInferRequest to `count` stream requests by id."""
    asked = inference_pb.ModelInferRequest.FromString(request)
    found: dict[bytes, bytes] = {}
    for place in range(count):
        asked.id = str(place)
        found[asked.id.encode()] = asked.SerializeToString()
    return found


def _infer_name(answer: bytes) -> bytes:
    return inference_pb.ModelStreamInferResponse.FromString(answer).infer_response.id.encode()


@final
@dataclass(frozen=True, slots=True)
class StreamingMethod:
    """A streaming method and its encoding."""

    path: str
    requests: Callable[[bytes, int], dict[bytes, bytes]]
    """Converts a unary request to a number of stream requests by id."""
    name_of: Callable[[bytes], bytes]
    """Reads the id of a response."""


_STREAMING_METHODS: Final[Mapping[str, StreamingMethod]] = {
    # the id is the first field of a PredictStreamResponse
    PREDICT: StreamingMethod(PREDICT_STREAM, stream_requests, lambda answer: answer[2 : 2 + answer[1]]),
    INFER: StreamingMethod("/inference.GRPCInferenceService/ModelStreamInfer", infer_requests, _infer_name),
}
"""By path of the unary method."""

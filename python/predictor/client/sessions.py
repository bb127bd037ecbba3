"""Bar sessions: the client sends a panel's history once and then each day's bars, and receives a forecast per day."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar, final

import grpc

from predictor._pb import prediction_pb2 as pb
from predictor._pb.prediction_pb2_grpc import PredictionServiceStub
from predictor.bars import BarPanel
from predictor.client.calls import make_call_error, make_cancelled_error, make_closed_error
from predictor.client.streams import GRACE_S
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.errors import DeadlineExceededError, InternalError, MalformedRequestError, QuantraError, UnavailableError
from predictor.forecast import Forecast
from predictor.instance import Instance
from predictor.subscription import Push
from predictor.wire import errors, forecasts, instances

if TYPE_CHECKING:
    from predictor._pb.prediction_pb2_grpc import PredictionServiceAsyncStub


_JOIN_S: Final = 5.0
"""Seconds that `close` waits for the reader thread."""


ResponseFuture = Future[pb.PredictStreamResponse] | asyncio.Future[pb.PredictStreamResponse]

Headers = tuple[tuple[str, str], ...]
"""Headers of a call."""


@final
class PendingResponses:
    """Pending responses of one stream by request id. Thread-safe."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._futures: dict[str, ResponseFuture] = {}
        self._count = 0
        self._error: QuantraError | None = None

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended."""
        with self._lock:
            return self._error is not None

    def register(self, request: pb.PredictStreamRequest, future: ResponseFuture) -> None:
        """Register the future of a request and set the request's id. If the stream has ended, raise its error."""
        with self._lock:
            if self._error is not None:
                raise _copy(self._error)
            self._count += 1
            request.request_id = str(self._count)
            self._futures[request.request_id] = future

    def resolve(self, response: pb.PredictStreamResponse) -> None:
        """Resolve the future of a response; drop responses to forgotten requests."""
        with self._lock:
            future = self._futures.pop(response.request_id, None)
        if future is not None and not future.done():
            future.set_result(response)

    def forget(self, request: pb.PredictStreamRequest) -> None:
        """Remove the future of a request."""
        with self._lock:
            self._futures.pop(request.request_id, None)

    def end(self, error: QuantraError) -> None:
        """End the stream and its sessions: the error resolves all pending and later requests."""
        with self._lock:
            self._error = error
            futures, self._futures = [*self._futures.values()], {}
        for future in futures:
            if not future.done():
                future.set_exception(_copy(error))

    def make_timeout_error(self, waited_s: float) -> DeadlineExceededError:
        """Return the error of a server that does not respond."""
        return DeadlineExceededError(
            f"no response from {self._target} within {waited_s:g} s; set a longer timeout, or open the session on "
            "another server"
        )


def make_stream_ended_error(target: str) -> UnavailableError:
    """Return the error of a stream that its server ended."""
    return UnavailableError(f"{target} ended the stream of sessions; reopen them with their histories")


def _copy(error: QuantraError) -> QuantraError:
    """Copy an error, so that each request raises its own instance."""
    return type(error)(error.message, metadata=error.metadata)


@final
class SessionStream:
    """A stream to a server, read by a dedicated thread. Thread-safe.

    Args:
        stub: stub of the server.
        target: address of the server, for messages.
        headers: headers of the call.

    Raises:
        ValueError: the stub's channel is closed.
    """

    def __init__(self, stub: PredictionServiceStub, target: str, headers: Headers = ()) -> None:
        self._target = target
        self._pending_responses = PendingResponses(target)
        self._outgoing_requests: SimpleQueue[pb.PredictStreamRequest | None] = SimpleQueue()
        self._call = stub.PredictStream(self._requests(), metadata=headers)
        self._thread = threading.Thread(target=self._read, name="sessions", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether the stream and its sessions have ended."""
        return self._pending_responses.is_over

    def request(self, request: pb.PredictStreamRequest) -> pb.PredictStreamResponse:
        """Send a request and wait for its response.

        Raises:
            QuantraError: the stream has ended or ends before the response arrives.
        """
        future: Future[pb.PredictStreamResponse] = Future()
        self._pending_responses.register(request, future)
        self._outgoing_requests.put(request)
        waited_s = request.timeout_s + GRACE_S
        try:
            return future.result(waited_s)
        except TimeoutError:
            self._pending_responses.forget(request)
            raise self._pending_responses.make_timeout_error(waited_s) from None

    def send(self, request: pb.PredictStreamRequest) -> None:
        """Send a request without waiting for its response, unless the stream has ended."""
        with suppress(QuantraError):
            self._pending_responses.register(request, Future())
            self._outgoing_requests.put(request)

    def close_session(self, request: pb.PredictStreamRequest) -> None:
        """Send the request that closes a session; ignore errors, because the session may have ended already."""
        with suppress(QuantraError):
            self.request(request)

    def close(self) -> None:
        """End the stream and its pending requests."""
        self._call.cancel()
        self._thread.join(_JOIN_S)
        self._pending_responses.end(make_closed_error(self._target))

    def _requests(self) -> Iterator[pb.PredictStreamRequest]:
        return iter(self._outgoing_requests.get, None)

    def _read(self) -> None:
        error: QuantraError = make_stream_ended_error(self._target)
        try:
            for response in self._call:
                self._pending_responses.resolve(response)
        except grpc.RpcError as failure:
            error = make_call_error(failure, self._target, GRACE_S)
        finally:
            self._pending_responses.end(error)
            self._outgoing_requests.put(None)


@final
class AsyncSessionStream:
    """`SessionStream` for asyncio, read by a task; the arguments are the same."""

    def __init__(self, stub: "PredictionServiceAsyncStub", target: str, headers: Headers = ()) -> None:
        self._target = target
        self._pending_responses = PendingResponses(target)
        self._outgoing_requests: asyncio.Queue[pb.PredictStreamRequest | None] = asyncio.Queue()
        self._call = stub.PredictStream(self._requests(), metadata=headers)
        self._task = asyncio.create_task(self._read())

    @property
    def is_over(self) -> bool:
        """Whether the stream and its sessions have ended."""
        return self._pending_responses.is_over

    async def request(self, request: pb.PredictStreamRequest) -> pb.PredictStreamResponse:
        """See `SessionStream.request`."""
        future: asyncio.Future[pb.PredictStreamResponse] = asyncio.get_running_loop().create_future()
        self._pending_responses.register(request, future)
        self._outgoing_requests.put_nowait(request)
        waited_s = request.timeout_s + GRACE_S
        try:
            return await asyncio.wait_for(future, waited_s)
        except TimeoutError:
            raise self._pending_responses.make_timeout_error(waited_s) from None
        finally:
            self._pending_responses.forget(request)

    def send(self, request: pb.PredictStreamRequest) -> None:
        """See `SessionStream.send`."""
        with suppress(QuantraError):
            self._pending_responses.register(request, Future())
            self._outgoing_requests.put_nowait(request)

    async def close_session(self, request: pb.PredictStreamRequest) -> None:
        """See `SessionStream.close_session`."""
        with suppress(QuantraError):
            await self.request(request)

    async def close(self) -> None:
        """See `SessionStream.close`."""
        self._call.cancel()
        await asyncio.wait([self._task])
        self._pending_responses.end(make_closed_error(self._target))

    async def _requests(self) -> AsyncIterator[pb.PredictStreamRequest]:
        while (request := await self._outgoing_requests.get()) is not None:
            yield request

    async def _read(self) -> None:
        error: QuantraError = make_cancelled_error(self._target)
        try:
            async for response in self._call:
                self._pending_responses.resolve(response)
            error = make_stream_ended_error(self._target)
        except grpc.RpcError as failure:
            error = make_call_error(failure, self._target, GRACE_S)
        except asyncio.CancelledError:
            pass  # the client was closed, or its event loop is stopping
        finally:
            self._pending_responses.end(error)
            self._outgoing_requests.put_nowait(None)


_COUNT: Final = count(1)
"""Numbers for the names of unnamed sessions."""


@final
@dataclass(frozen=True, slots=True)
class PushAccepted:
    """The server accepted a push but has no forecast of the day yet. If no symbol is missing, nothing traded."""

    waits_for: tuple[str, ...]
    """Symbols whose bars of the day are missing."""


Pushed = Forecast | PushAccepted
"""Response to an accepted push."""


@final
class SessionRequests:
    """Builds the requests of one session.

    Args:
        session_id: name of the session on its stream; empty: a generated name.
        timeout_s: timeout of each request in seconds.
    """

    def __init__(self, session_id: str, timeout_s: float) -> None:
        self.session_id = session_id or f"session-{next(_COUNT)}"
        self.timeout_s = timeout_s

    def open(self, model: str, instance: Instance) -> pb.PredictStreamRequest:
        """Build the request that opens the session with a history."""
        opened = pb.OpenSession(session_id=self.session_id, model=model, instance=instances.encode(instance))
        return pb.PredictStreamRequest(timeout_s=self.timeout_s, open=opened)

    def abandon(self, opening: pb.PredictStreamRequest) -> tuple[pb.PredictStreamRequest, ...]:
        """Build the requests after an opening whose response nobody awaits: cancel it, or close what it has opened."""
        if not opening.request_id:  # it was not sent
            return ()
        cancel = pb.CancelRequest(request_id=opening.request_id)
        return pb.PredictStreamRequest(timeout_s=self.timeout_s, cancel=cancel), self.close()

    def push(self, push: Push) -> pb.PredictStreamRequest:
        """Build the request that pushes bars."""
        return pb.PredictStreamRequest(timeout_s=self.timeout_s, push=instances.encode_push(self.session_id, push))

    def close(self) -> pb.PredictStreamRequest:
        """Build the request that closes the session."""
        return pb.PredictStreamRequest(timeout_s=self.timeout_s, close=pb.CloseSession(session_id=self.session_id))


def decode_push_response(response: pb.PredictStreamResponse) -> Pushed:
    """Decode the response to a push.

    Raises:
        QuantraError: the server rejected the push, or the response is malformed.
    """
    kind = response.WhichOneof("outcome")
    if kind == "error":
        raise errors.decode(response.error)
    if kind == "ack":
        return PushAccepted(tuple(response.ack.waiting_for))
    try:
        return forecasts.decode(response.forecast)
    except MalformedRequestError as error:
        raise InternalError(
            f"the server's response is malformed: {error.message}; use the same version of client and server"
        ) from error


def decode_first_forecast(response: pb.PredictStreamResponse) -> Forecast:
    """Decode the first forecast of a session; raises as `decode_push_response`."""
    forecast = decode_push_response(response)
    if isinstance(forecast, Forecast):
        return forecast
    raise InternalError("the server opened the session without a forecast; use the same version of client and server")


StreamT = TypeVar("StreamT", SessionStream, AsyncSessionStream)


class OpenSession(Generic[StreamT]):
    """An open session on a stream of its client."""

    def __init__(self, stream: StreamT, requests: SessionRequests, forecast: Forecast) -> None:
        self._stream, self._requests = stream, requests
        self.forecast = forecast
        """Forecast of the initial history."""

    @property
    def session_id(self) -> str:
        """Name of the session."""
        return self._requests.session_id


@final
class BarSession(OpenSession[SessionStream]):
    """An open session, created by `QuantraClient.open_session`. Thread-safe.

    It uses a stream of its client. It ends when it or the client is closed, or when the connection is lost.
    """

    def push(self, bars: BarPanel, covariates: Covariates | None = None, *, flush: bool = False) -> Pushed:
        """Send the bars of one day, the next day or the last one again, for some or all symbols.

        Args:
            bars: bars of one day, with the columns of the history.
            covariates: the history's covariates for this day: the observed ones, and the known ones of this day and
                the days ahead.
            flush: do not wait for the day's other symbols.

        Returns:
            The forecast from all bars sent so far, or the symbols whose bars of the day are missing.

        Raises:
            QuantraError: the server rejected the bars; the session is unchanged.
            ResubscribeError: the session cannot continue; open a new one.
            UnavailableError: the connection is lost.
            DeadlineExceededError: the server did not respond in time. Pushing the same bars again is safe.
        """
        return self._push(Push(bars=bars, covariates=covariates or NO_COVARIATES, flush=flush))

    def flush(self) -> Pushed:
        """Forecast the current day without its missing bars; raises as `push`."""
        return self._push(Push(flush=True))

    def close(self) -> None:
        """Close the session; does nothing if it has ended."""
        self._stream.close_session(self._requests.close())

    def __enter__(self) -> Self:
        """Return the session."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session."""
        self.close()

    def _push(self, push: Push) -> Pushed:
        return decode_push_response(self._stream.request(self._requests.push(push)))


@final
class AsyncBarSession(OpenSession[AsyncSessionStream]):
    """`BarSession` for asyncio: await each method; the arguments are the same."""

    async def push(self, bars: BarPanel, covariates: Covariates | None = None, *, flush: bool = False) -> Pushed:
        """See `BarSession.push`."""
        return await self._push(Push(bars=bars, covariates=covariates or NO_COVARIATES, flush=flush))

    async def flush(self) -> Pushed:
        """See `BarSession.flush`."""
        return await self._push(Push(flush=True))

    async def close(self) -> None:
        """See `BarSession.close`."""
        await self._stream.close_session(self._requests.close())

    async def __aenter__(self) -> Self:
        """Return the session."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the session."""
        await self.close()

    async def _push(self, push: Push) -> Pushed:
        return decode_push_response(await self._stream.request(self._requests.push(push)))

"""Sessions: a panel's history is sent once, then the bars of one day after the other, each answered with a forecast."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol, Self, final

import grpc

from predictor._pb import prediction_pb2 as pb
from predictor._pb.prediction_pb2_grpc import PredictionServiceStub
from predictor.bars import BarPanel
from predictor.client.calls import cancelled, closed, error_of
from predictor.client.streams import GRACE_S
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.errors import DeadlineExceededError, InternalError, MalformedRequestError, QuantraError, UnavailableError
from predictor.forecast import Forecast
from predictor.instance import Instance
from predictor.subscription import Push
from predictor.wire import errors, forecasts, instances, pushes

if TYPE_CHECKING:
    from predictor._pb.prediction_pb2_grpc import PredictionServiceAsyncStub


_JOIN_S: Final = 5.0
"""How long closing waits for the thread that reads."""


class ResponseFuture(Protocol):
    """A future of the answer, of either kind."""

    def done(self) -> bool:
        """Whether it has ended."""
        ...

    def set_result(self, result: pb.PredictStreamResponse, /) -> None:
        """End it."""
        ...

    def set_exception(self, exception: QuantraError, /) -> None:
        """End it with an error."""
        ...


Headers = tuple[tuple[str, str], ...]
"""Of a call."""


@final
class PendingResponses:
    """Who waits for which answer on one stream. Threads may share it."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._answers: dict[str, ResponseFuture] = {}
        self._count = 0
        self._error: QuantraError | None = None

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended."""
        with self._lock:
            return self._error is not None

    def wait(self, request: pb.PredictStreamRequest, answer: ResponseFuture) -> None:
        """Let somebody wait for the answer to this request, which gets its id; raises what the stream ended with."""
        with self._lock:
            if self._error is not None:
                raise _again(self._error)
            self._count += 1
            request.request_id = str(self._count)
            self._answers[request.request_id] = answer

    def answer(self, response: pb.PredictStreamResponse) -> None:
        """An answer came; one that nobody waits for any more is dropped."""
        with self._lock:
            answer = self._answers.pop(response.request_id, None)
        if answer is not None and not answer.done():
            answer.set_result(response)

    def forget(self, request: pb.PredictStreamRequest) -> None:
        """Nobody waits for this answer any more."""
        with self._lock:
            self._answers.pop(request.request_id, None)

    def end(self, error: QuantraError) -> None:
        """The stream has ended, and so have its sessions: whoever waits gets the error, and so does who comes later."""
        with self._lock:
            self._error = error
            waiting, self._answers = [*self._answers.values()], {}
        for answer in waiting:
            if not answer.done():
                answer.set_exception(_again(error))

    def silence(self, waited_s: float) -> DeadlineExceededError:
        """The error of a server that does not answer."""
        return DeadlineExceededError(
            f"{self._target} gave no answer for {waited_s:g} seconds; allow more time, or open the session elsewhere"
        )


def ended(target: str) -> UnavailableError:
    """The error of a stream that its server ended."""
    return UnavailableError(f"{target} ended the stream of sessions; open them again with their histories")


def _again(error: QuantraError) -> QuantraError:
    """The same error, for another one who gets it."""
    return type(error)(error.message, metadata=error.metadata)


@final
class SessionStream:
    """A stream to a server, read by a thread of its own. Safe to use from many threads.

    Args:
        stub: of the server.
        target: its address.
        headers: of the call.

    Raises:
        ValueError: the stub's channel is closed.
    """

    def __init__(self, stub: PredictionServiceStub, target: str, headers: Headers = ()) -> None:
        self._target = target
        self._asked = PendingResponses(target)
        self._sent: SimpleQueue[pb.PredictStreamRequest | None] = SimpleQueue()
        self._call = stub.PredictStream(self._requests(), metadata=headers)
        self._thread = threading.Thread(target=self._read, name="sessions", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, with its sessions."""
        return self._asked.is_over

    def ask(self, request: pb.PredictStreamRequest) -> pb.PredictStreamResponse:
        """The answer to a request; raises QuantraError if the stream ends before it, or has ended."""
        answer: Future[pb.PredictStreamResponse] = Future()
        self._asked.wait(request, answer)
        self._sent.put(request)
        waited_s = request.timeout_s + GRACE_S
        try:
            return answer.result(waited_s)
        except TimeoutError:
            self._asked.forget(request)
            raise self._asked.silence(waited_s) from None

    def leave(self, request: pb.PredictStreamRequest) -> None:
        """Send the request that ends a session; that it has ended already is as good."""
        with suppress(QuantraError):
            self.ask(request)

    def close(self) -> None:
        """End the stream, and what waits with it."""
        self._call.cancel()
        self._thread.join(_JOIN_S)
        self._asked.end(closed(self._target))

    def _requests(self) -> Iterator[pb.PredictStreamRequest]:
        return iter(self._sent.get, None)

    def _read(self) -> None:
        error: QuantraError = ended(self._target)
        try:
            for response in self._call:
                self._asked.answer(response)
        except grpc.RpcError as failure:
            error = error_of(failure, self._target, GRACE_S)
        finally:
            self._asked.end(error)
            self._sent.put(None)


@final
class AsyncSessionStream:
    """The same for asyncio, read by a task; the arguments are SessionStream's."""

    def __init__(self, stub: "PredictionServiceAsyncStub", target: str, headers: Headers = ()) -> None:
        self._target = target
        self._asked = PendingResponses(target)
        self._sent: asyncio.Queue[pb.PredictStreamRequest | None] = asyncio.Queue()
        self._call = stub.PredictStream(self._requests(), metadata=headers)
        self._task = asyncio.create_task(self._read())

    @property
    def is_over(self) -> bool:
        """Whether it has ended, with its sessions."""
        return self._asked.is_over

    async def ask(self, request: pb.PredictStreamRequest) -> pb.PredictStreamResponse:
        """As `SessionStream.ask`."""
        answer: asyncio.Future[pb.PredictStreamResponse] = asyncio.get_running_loop().create_future()
        self._asked.wait(request, answer)
        self._sent.put_nowait(request)
        waited_s = request.timeout_s + GRACE_S
        try:
            return await asyncio.wait_for(answer, waited_s)
        except TimeoutError:
            raise self._asked.silence(waited_s) from None
        finally:
            self._asked.forget(request)

    async def leave(self, request: pb.PredictStreamRequest) -> None:
        """As `SessionStream.leave`."""
        with suppress(QuantraError):
            await self.ask(request)

    async def close(self) -> None:
        """As `SessionStream.close`."""
        self._call.cancel()
        await asyncio.wait([self._task])
        self._asked.end(closed(self._target))

    async def _requests(self) -> AsyncIterator[pb.PredictStreamRequest]:
        while (request := await self._sent.get()) is not None:
            yield request

    async def _read(self) -> None:
        error: QuantraError = cancelled(self._target)
        try:
            async for response in self._call:
                self._asked.answer(response)
            error = ended(self._target)
        except grpc.RpcError as failure:
            error = error_of(failure, self._target, GRACE_S)
        except asyncio.CancelledError:
            pass  # the client was closed, or its event loop ends
        finally:
            self._asked.end(error)
            self._sent.put_nowait(None)


_COUNT: Final = count(1)
"""Names the sessions that their caller did not."""


@final
@dataclass(frozen=True, slots=True)
class PushAccepted:
    """A push was taken, and there is no forecast of its day yet; none of these: nothing traded that day."""

    waits_for: tuple[str, ...]
    """Symbols whose bars of the day have not come."""


Pushed = Forecast | PushAccepted
"""What a push is answered with, unless it is refused."""


@final
class SessionRequests:
    """What one session sends, and what the answers mean.

    Args:
        session_id: names the session on its stream; empty = any name.
        timeout_s: of each request.
    """

    def __init__(self, session_id: str, timeout_s: float) -> None:
        self.session_id = session_id or f"session-{next(_COUNT)}"
        self.timeout_s = timeout_s

    def open(self, model: str, instance: Instance) -> pb.PredictStreamRequest:
        """Subscribe to a model with this history."""
        opened = pb.OpenSession(session_id=self.session_id, model=model, instance=instances.encode(instance))
        return pb.PredictStreamRequest(timeout_s=self.timeout_s, open=opened)

    def push(self, push: Push) -> pb.PredictStreamRequest:
        """Send bars."""
        return pb.PredictStreamRequest(timeout_s=self.timeout_s, push=pushes.encode(self.session_id, push))

    def close(self) -> pb.PredictStreamRequest:
        """End the session."""
        return pb.PredictStreamRequest(timeout_s=self.timeout_s, close=pb.CloseSession(session_id=self.session_id))


def answer_of(response: pb.PredictStreamResponse) -> Pushed:
    """The forecast, or what it waits for.

    Raises:
        QuantraError: what the server refused, or an answer that cannot be read.
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
            f"the server's answer cannot be read: {error.message}; use the same version of client and server"
        ) from error


def forecast_of(response: pb.PredictStreamResponse) -> Forecast:
    """The forecast that a session begins with; raises as `answer_of`."""
    answer = answer_of(response)
    if isinstance(answer, Forecast):
        return answer
    raise InternalError("the server opened the session without a forecast; use the same version of client and server")


@final
class BarSession:
    """A session that is open, made by `QuantraClient.open_session`. Safe to use from many threads.

    It lives on a stream of its client: it ends when it or the client is closed, or the connection is lost.
    """

    def __init__(self, stream: SessionStream, requests: SessionRequests, forecast: Forecast) -> None:
        self._stream, self._requests = stream, requests
        self.forecast = forecast
        """The forecast of the history that the session began with."""

    @property
    def session_id(self) -> str:
        """Its name."""
        return self._requests.session_id

    def push(self, bars: BarPanel, covariates: Covariates | None = None, *, flush: bool = False) -> Pushed:
        """Send the bars of one day, of some of the symbols: of the day after the last one, or of the last one again.

        Args:
            bars: one session, with the columns that the history has.
            covariates: beside them, as the history had them: observed, and known of this day and the days ahead.
            flush: do not wait for the day's other symbols.

        Returns:
            The forecast of all bars sent so far; or whom it waits for, while bars of the day are missing.

        Raises:
            QuantraError: the bars were refused, and the session is as it was before; ResubscribeError: it cannot go on,
                open another one; UnavailableError or DeadlineExceededError: nobody answered. To push the same bars
                again does no harm.
        """
        return self._push(Push(bars=bars, covariates=covariates or NO_COVARIATES, flush=flush))

    def flush(self) -> Pushed:
        """The forecast of a day that waits for bars, without them; raises as `push`."""
        return self._push(Push(flush=True))

    def close(self) -> None:
        """End the session; does nothing if it has ended."""
        self._stream.leave(self._requests.close())

    def __enter__(self) -> Self:
        """The session itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.close()

    def _push(self, push: Push) -> Pushed:
        return answer_of(self._stream.ask(self._requests.push(push)))


@final
class AsyncBarSession:
    """The same for asyncio: await each method; the arguments are BarSession's."""

    def __init__(self, stream: AsyncSessionStream, requests: SessionRequests, forecast: Forecast) -> None:
        self._stream, self._requests = stream, requests
        self.forecast = forecast
        """The forecast of the history that the session began with."""

    @property
    def session_id(self) -> str:
        """Its name."""
        return self._requests.session_id

    async def push(self, bars: BarPanel, covariates: Covariates | None = None, *, flush: bool = False) -> Pushed:
        """As `BarSession.push`."""
        return await self._push(Push(bars=bars, covariates=covariates or NO_COVARIATES, flush=flush))

    async def flush(self) -> Pushed:
        """As `BarSession.flush`."""
        return await self._push(Push(flush=True))

    async def close(self) -> None:
        """As `BarSession.close`."""
        await self._stream.leave(self._requests.close())

    async def __aenter__(self) -> Self:
        """The session itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        await self.close()

    async def _push(self, push: Push) -> Pushed:
        return answer_of(await self._stream.ask(self._requests.push(push)))

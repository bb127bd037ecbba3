"""A service of quantra.v1 on gRPC: it takes each call's bytes to `predictor.calls`, and its answer back.

Requests are read here and not by gRPC: bytes that are no request get an answer of ours, and one that never comes whole
does not wait for ever.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Never, Protocol, final

import grpc

from predictor._pb import prediction_pb2 as pb
from predictor.errors import (
    CallCancelledError,
    InternalError,
    QuantraError,
    RequestTooLargeError,
    Status,
    UnavailableError,
    answer_of,
)
from predictor.instance import Deadline
from predictor.server.admission import Admission, Arrivals, Context, Peer
from predictor.server.guard import Guard
from predictor.server.settings import ServerLimits
from predictor.server.watching import WatchedCall, Watching
from predictor.wire import errors

if TYPE_CHECKING:
    from concurrent.futures import Future

    from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

    from predictor.calls import OpenCall

STATUS_CODES = {status: grpc.StatusCode[status.value] for status in Status}
"""gRPC's own constant for each status."""

PREDICTION: Final = pb.DESCRIPTOR.services_by_name["PredictionService"]
ADMIN: Final = pb.DESCRIPTOR.services_by_name["ModelAdminService"]

_log = logging.getLogger(__name__)


class Calls(Protocol):
    """What answers; see predictor.calls."""

    def call(self, name: str, request: bytes, deadline: Deadline) -> "Future[bytes]":
        """Answer one call; the future fails with a QuantraError and nothing else."""
        ...

    def open(self, name: str, deadline: Deadline, emit: Callable[[bytes], None]) -> "OpenCall":
        """Begin a call whose answer is a stream of messages."""
        ...


async def refuse(context: Context, error: QuantraError) -> Never:
    """End the call with the error's status, its message, google.rpc.Status details, and when it may be repeated."""
    pushback_ms = errors.pushback_ms(error)
    pushback = () if pushback_ms is None else ((errors.PUSHBACK_KEY, str(pushback_ms)),)
    await context.abort(
        STATUS_CODES[answer_of(error).status],
        errors.shortened(error.message, errors.MAX_CALL_MESSAGE),
        (*context.trailing_metadata(), (errors.DETAILS_KEY, errors.encode_details(error)), *pushback),
    )


@final
class Handover:
    """Takes answers from the threads that have them to the running event loop.

    To wake the loop costs a thread as much as to encode a forecast, and several answers are there at once: what comes
    before the loop has woken up goes with what woke it.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Callable[[], None]] = deque()
        self._is_woken = False

    async def result(self, answer: "Future[bytes]") -> bytes:
        """The answer, or its error; whoever is cancelled here cancels it."""
        waiting: asyncio.Future[bytes] = self._loop.create_future()
        answer.add_done_callback(lambda _: self._put(partial(_settle, waiting, answer)))
        try:
            return await waiting
        except asyncio.CancelledError:
            answer.cancel()
            raise

    def _put(self, settle: Callable[[], None]) -> None:
        self._ready.append(settle)
        if not self._is_woken and not self._loop.is_closed():
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._is_woken = False  # first: what comes from now on wakes the loop again
        while self._ready:
            self._ready.popleft()()


def _settle(waiting: "asyncio.Future[bytes]", answer: "Future[bytes]") -> None:
    if waiting.done():  # nobody waits any more
        return
    if answer.cancelled():
        waiting.cancel()
    elif (error := answer.exception()) is not None:
        waiting.set_exception(error)
    else:
        waiting.set_result(answer.result())


async def _fail(call: WatchedCall, context: Context, error: QuantraError) -> Never:
    """End a call that was let in, or was not, as this error."""
    call.end(error)
    await refuse(context, error)


def _why_gone(deadline: Deadline) -> QuantraError:
    """What ended a call whose caller no longer waits: its time, or the caller."""
    try:
        deadline.check()
    except QuantraError as error:
        return error
    return CallCancelledError("the caller went away")


@final
class Servicer:
    """Lets the calls of a service in, reads them, and sends their answers. Until it serves, each is UNAVAILABLE."""

    def __init__(
        self,
        service: "ServiceDescriptor",
        guard: Guard,
        admission: Admission,
        arrivals: Arrivals,
        limits: ServerLimits,
        watching: Watching,
    ) -> None:
        self._service = service
        self._guard = guard
        self._watching = watching
        self._admission = admission
        self._arrivals = arrivals
        self._limits = limits
        self._handover = Handover()
        self._calls: Calls | None = None

    def serve(self, calls: Calls) -> None:
        """Answer from now on."""
        self._calls = calls

    def handler(self) -> grpc.GenericRpcHandler:
        """What gRPC routes calls to."""
        methods = {method.name: self._method(method) for method in self._service.methods}
        return grpc.method_handlers_generic_handler(self._service.full_name, methods)

    def _method(self, method: "MethodDescriptor") -> Any:
        """The handler of a call; requests come as a stream whatever the call, so that they are read here."""
        if method.server_streaming:
            return grpc.stream_stream_rpc_method_handler(self._guarded(method.name, self._stream))
        return grpc.stream_unary_rpc_method_handler(self._guarded(method.name, self._unary))

    def _guarded(self, name: str, work: Callable[[str, Calls, Context, Peer, Deadline], Awaitable[Any]]) -> Any:
        """A handler that lets a call in, and whose every error ends as a status."""
        has_many: bool = self._service.methods_by_name[name].client_streaming

        async def answer(_requests: object, context: Context) -> Any:
            call = self._watching.begin(self._service.full_name, name, context, has_many=has_many)
            deadline = Deadline.after(context.time_remaining(), call)
            try:
                self._guard.check(name, context.invocation_metadata() or ())
                peer = self._admission.enter(context)
                answered = await work(name, self._ready(), context, peer, deadline)
            except asyncio.CancelledError:
                call.end(_why_gone(deadline))
                deadline.cancelled.set()
                raise
            except QuantraError as error:
                await _fail(call, context, error)
            except Exception as error:  # noqa: BLE001 - the process's edge: our own bug must not end in the caller's hands
                await _fail(call, context, InternalError.of(name, error, _log))
            else:
                call.end(None)
                return answered

        return answer

    def _ready(self) -> Calls:
        if self._calls is None:
            raise UnavailableError("the models are still being loaded (loading); ask again in a moment")
        return self._calls

    async def _unary(self, name: str, calls: Calls, context: Context, peer: Peer, deadline: Deadline) -> bytes:
        body = await self._arrivals.request(context, peer)
        return self._sendable(await self._handover.result(calls.call(name, body, deadline)))

    async def _stream(self, name: str, calls: Calls, context: Context, peer: Peer, deadline: Deadline) -> None:
        body = await self._arrivals.request(context, peer)
        loop, messages = asyncio.get_running_loop(), asyncio.Queue[bytes | None]()

        def put(message: bytes | None) -> None:
            loop.call_soon_threadsafe(messages.put_nowait, message)

        call = calls.open(name, deadline, put)
        call.ended.add_done_callback(lambda _: put(None))
        try:
            call.send(body)
            while (message := await messages.get()) is not None:
                await context.write(self._sendable(message))
            await asyncio.wrap_future(call.ended)
        finally:
            call.cancel()  # whatever ended it here, nobody waits for the rest

    def _sendable(self, answer: bytes) -> bytes:
        """The answer, if clients accept as many bytes."""
        if len(answer) > self._limits.send_bytes:
            raise RequestTooLargeError(
                f"the answer has {len(answer)} bytes, at most {self._limits.send_bytes}; ask for fewer symbols or "
                "targets, or for less detail",
                metadata={"have": str(len(answer)), "most": str(self._limits.send_bytes)},
            )
        return answer

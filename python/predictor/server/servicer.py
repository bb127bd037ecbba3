"""The handlers of calls: they pass the bytes of each call to `predictor.calls` and send its response."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, Self, cast, final

import grpc

from predictor._pb import inference_pb2 as inference_pb
from predictor._pb import ledger_pb2 as ledger_pb
from predictor._pb import prediction_pb2 as pb
from predictor.call_context import CallContext
from predictor.errors import (
    CallCancelledError,
    QuantraError,
    Status,
    UnavailableError,
    get_error_status,
)
from predictor.memory import make_caller_error
from predictor.server.admission import Admission, ConnectionUsage, RequestReceiver
from predictor.server.loop_bridge import LoopBridge
from predictor.server.observed_calls import CallObservers, ObservedCall
from predictor.server.settings import ServerLimits
from predictor.server.tokens import TokenGuard
from predictor.server.transport import IncomingCall, MethodHandler
from predictor.wire import errors

if TYPE_CHECKING:
    from concurrent.futures import Future

    from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

    from predictor.calls import OpenCall


STATUS_CODES = {status: grpc.StatusCode[status.value] for status in Status}
"""The gRPC status code of each status."""


@final
@dataclass(frozen=True, slots=True)
class ServiceEndpoint:
    """A service at one address, or some of its methods."""

    service: "ServiceDescriptor"
    methods: frozenset[str]
    """All others are UNIMPLEMENTED."""
    while_loading: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Responses before models are loaded, by method."""

    @classmethod
    def whole(cls, service: "ServiceDescriptor", while_loading: Mapping[str, bytes] | None = None) -> Self:
        """Create an endpoint with all methods of a service."""
        return cls(service, frozenset(service.methods_by_name), while_loading or {})


PREDICTION: Final = pb.DESCRIPTOR.services_by_name["PredictionService"]
ADMIN: Final = pb.DESCRIPTOR.services_by_name["ModelAdminService"]
LEDGER: Final = ledger_pb.DESCRIPTOR.services_by_name["LedgerService"]
LIFECYCLE: Final = ledger_pb.DESCRIPTOR.services_by_name["LifecycleService"]
INFERENCE: Final = inference_pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]
_RESPONSES_WHILE_LOADING: Final = {
    "ServerLive": inference_pb.ServerLiveResponse(live=True).SerializeToString(),
    "ServerReady": inference_pb.ServerReadyResponse(ready=False).SerializeToString(),
}
_LONG_LIVED_METHODS: Final = frozenset({"WatchEvents", "SimulatePaths"})
"""Methods with one request that stay open, or hold paths until the caller has read them; they count as streams."""
_ADMIN_INFERENCE_METHODS: Final = frozenset({"RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"})
PUBLIC_ENDPOINTS: Final = (
    ServiceEndpoint.whole(PREDICTION),
    ServiceEndpoint.whole(LEDGER),
    ServiceEndpoint.whole(INFERENCE, _RESPONSES_WHILE_LOADING),
)
"""Endpoints at the public address."""
ADMIN_ENDPOINTS: Final = (
    ServiceEndpoint.whole(ADMIN),
    ServiceEndpoint.whole(LIFECYCLE),
    ServiceEndpoint(INFERENCE, _ADMIN_INFERENCE_METHODS | _RESPONSES_WHILE_LOADING.keys(), _RESPONSES_WHILE_LOADING),
)
"""Endpoints at the admin address."""

_log = logging.getLogger(__name__)


class CallHandler(Protocol):
    """The calls behind a service; see predictor.calls."""

    def handle(self, name: str, request: bytes, context: CallContext) -> "Future[bytes]":
        """Answer one call; the future fails only with a QuantraError."""
        ...

    def drain(self) -> None:
        """Answer the pending requests of all streams, then end them."""
        ...


class StreamHandler(CallHandler, Protocol):
    """The calls behind a service that has streams."""

    def open(
        self, name: str, context: CallContext, emit: Callable[[bytes], object], max_bytes: int | None = None
    ) -> "OpenCall":
        """Open a call with a stream of response messages of at most `max_bytes` each."""
        ...


def refuse(call: IncomingCall, error: QuantraError) -> None:
    """End a call with the error's status, message, google.rpc.Status details and retry delay."""
    pushback_ms = errors.pushback_ms(error)
    call.trailing_metadata = {
        **call.trailing_metadata,
        errors.DETAILS_KEY: errors.encode_details(error),
        **({} if pushback_ms is None else {errors.PUSHBACK_KEY: str(pushback_ms)}),
    }
    call.end(STATUS_CODES[get_error_status(error).status], errors.shortened(error.message, errors.MAX_CALL_MESSAGE))


@final
class ServedCall:
    """A call, its observers and its context."""

    def __init__(self, name: str, call: IncomingCall, observed: ObservedCall) -> None:
        self.name, self.call = name, call
        self._observed: ObservedCall | None = observed
        self.context = CallContext.with_timeout(call.time_left_s, observed)
        self.cancel_work: Callable[[], object] | None = None
        """Cancels the work if the caller leaves."""
        call.on_cancel = self.cancel

    def cancel(self) -> None:
        """Stop the work, because the caller no longer waits."""
        cancel_work = self.cancel_work
        self._report(self._find_reason())
        self.context.cancel()
        if cancel_work is not None:
            cancel_work()

    def respond(self, message: bytes) -> None:
        """End the call with its only response."""
        self._report(None)
        self.call.respond(message)

    def close(self, error: Exception | None) -> None:
        """End the call after its last response, or with an error."""
        if error is not None:
            self.fail(error)
        else:
            self._report(None)
            self.call.end()

    def fail(self, error: Exception) -> None:
        """End the call with an error; callers get no internal ones."""
        if not self.call.is_over:
            failure = make_caller_error(self.name, error, _log)
            self._report(failure)
            refuse(self.call, failure.without_frames())

    def _report(self, error: QuantraError | None) -> None:
        """Report the end once: a caller may go while its response waits to be sent."""
        observed, self._observed, self.cancel_work = self._observed, None, None
        if observed is not None:
            observed.end(error)

    def _find_reason(self) -> QuantraError:
        """Return the reason that the caller no longer waits: deadline exceeded or cancelled."""
        try:
            CallContext(self.context.expires_at_s).check()
        except QuantraError as error:
            return error
        return CallCancelledError("the caller disconnected or cancelled")


@final
class CallMessages:
    """The messages of one call, on the running event loop. It uses callbacks, because a task per message is slower.

    Args:
        call: The call.
        bridge: Hands responses over from threads.
        check_token: Checks before each further request and each response that the token is still valid.
        on_finish: Called once, with None or the error of the call, after the last response.
    """

    def __init__(
        self,
        call: IncomingCall,
        bridge: LoopBridge,
        check_token: Callable[[], object],
        on_finish: Callable[[Exception | None], None],
    ) -> None:
        self._call, self._bridge = call, bridge
        self._check_token, self._on_finish = check_token, on_finish
        self._opened: OpenCall | None = None
        self._responses: deque[bytes] = deque()
        self._unread_size: int | None = None
        """Size of a sent response that the caller may not have read yet."""
        self._may_read_next = True
        """Whether the next request may be passed on."""
        self._in_flight = 0
        """Requests without a response."""
        self._is_pipelined = False
        """Whether several requests were in flight at once."""
        self._is_reading = self._is_writing = self._is_complete = False
        self._read_error: QuantraError | None = None

    def emit(self, message: bytes) -> None:
        """Queue a response; from any thread."""
        self._bridge.call(partial(self._put, message))

    def send_one(self, opened: "OpenCall", request: bytes) -> None:
        """Pass on the only request, and send its responses."""
        self._begin(opened)
        opened.send(request)
        opened.end_requests()

    def send_all(self, opened: "OpenCall") -> None:
        """Pass on requests and send their responses until the call ends."""
        self._begin(opened)
        self._read()

    def cancel(self) -> None:
        """Drop what was not sent yet: the caller has left, or the call has failed."""
        opened, self._opened = self._opened, None
        self._responses.clear()
        if opened is not None:
            opened.cancel()

    def _begin(self, opened: "OpenCall") -> None:
        self._opened = opened
        opened.completion.add_done_callback(lambda _: self._bridge.call(self._end))

    def _read_soon(self) -> None:
        self._call_soon(self._read)

    def _call_soon(self, callback: Callable[[], None]) -> None:
        """Read or write in the next turn of the loop if the caller sends requests without waiting for responses.

        Messages of several requests then go together: batches of one take more time than the turn.
        """
        if self._is_pipelined:
            asyncio.get_running_loop().call_soon(callback)
        else:
            callback()

    def _read(self) -> None:
        """Pass on the requests that have arrived, until there is no room for more."""
        if self._is_reading or self._opened is None:
            return
        self._is_reading = True
        try:
            while self._may_read_next and (body := self._call.take_next(self._read_soon)) is not None:
                self._check_token()
                self._in_flight += 1
                self._is_pipelined = self._is_pipelined or self._in_flight > 1
                self._may_read_next = self._opened.send(body)
            if self._call.has_all_requests:
                self._opened.end_requests()
        except QuantraError as error:
            self._read_error = error
            self._end()
        except Exception as error:  # noqa: BLE001 - callback's boundary
            self._close(error)
        finally:
            self._is_reading = False

    def _put(self, message: bytes) -> None:
        if self._opened is None:  # the call is over
            return
        self._responses.append(message)
        self._in_flight -= 1
        self._call_soon(self._write)

    def _end(self) -> None:
        self._is_complete = True
        self._write()

    def _write(self) -> None:
        """Send responses as fast as the caller reads, and finish after the last."""
        if self._is_writing or self._opened is None:
            return
        self._is_writing = True
        try:
            self._write_all(self._opened)
        except Exception as error:  # noqa: BLE001 - callback's boundary
            self._close(error)
        finally:
            self._is_writing = False

    def _write_all(self, opened: "OpenCall") -> None:
        while self._responses or self._unread_size is not None:
            if not self._call.can_send:
                self._call.when_writable(self._write)
                return
            if self._unread_size is not None:
                size, self._unread_size = self._unread_size, None
                if opened.acknowledge(size) and not self._may_read_next:
                    self._may_read_next = True
                    asyncio.get_running_loop().call_soon(self._read)
            else:
                message = self._responses.popleft()
                self._check_token()
                self._call.check_response(message)
                self._unread_size = len(message)
                self._call.send(message)
        if self._is_complete:
            if self._read_error is not None:
                raise self._read_error
            opened.completion.result()
            self._close(None)

    def _close(self, error: Exception | None) -> None:
        self.cancel()
        self._on_finish(error)


@final
class Servicer:
    """Admits the calls of a service, reads them and sends responses. Before `serve`, calls are UNAVAILABLE."""

    def __init__(
        self,
        endpoint: ServiceEndpoint,
        guard: TokenGuard,
        observers: CallObservers,
        admission: Admission,
        receiver: RequestReceiver,
        limits: ServerLimits,
    ) -> None:
        self.name: str = endpoint.service.full_name
        """Full name of the service."""
        self._endpoint, self._guard, self._observers = endpoint, guard, observers
        self._admission, self._receiver, self._limits = admission, receiver, limits
        self._bridge = LoopBridge()
        self._calls: CallHandler | None = None

    def serve(self, calls: CallHandler) -> None:
        """Start answering calls."""
        self._calls = calls

    def drain(self) -> None:
        """Reject new requests on streams."""
        if self._calls is not None:
            self._calls.drain()

    def create_handlers(self) -> dict[str, MethodHandler]:
        """Create the handlers of the methods, by name."""
        methods = self._endpoint.service.methods_by_name
        return {name: partial(self._begin, name, methods[name]) for name in self._endpoint.methods}

    def _begin(self, name: str, method: "MethodDescriptor", call: IncomingCall) -> None:
        """Admit a call and start the work on it; every error becomes a status."""
        is_stream = method.client_streaming or name in _LONG_LIVED_METHODS
        served = ServedCall(name, call, self._observers.begin(self.name, name, call, has_many=is_stream))
        try:
            if caller := self._guard.check(name, call.head.metadata):
                served.context.caller = caller
            connection = self._admission.enter(call, is_stream=is_stream)
            if self._calls is None:
                served.respond(self._find_loading_response(name))
            elif method.client_streaming:
                messages = self._create_messages(served)
                messages.send_all(self._open(served, self._calls, messages))
            elif (request := call.take_request()) is not None:
                self._dispatch(served, method, self._calls, request)
            else:
                call.run(self._read_and_dispatch(served, method, self._calls, connection))
        except Exception as error:  # noqa: BLE001 - process boundary
            served.fail(error)

    def _find_loading_response(self, name: str) -> bytes:
        if name not in self._endpoint.while_loading:
            raise UnavailableError("the models are still loading; retry in a moment")
        return self._endpoint.while_loading[name]

    async def _read_and_dispatch(
        self, served: ServedCall, method: "MethodDescriptor", calls: CallHandler, connection: ConnectionUsage
    ) -> None:
        try:
            self._dispatch(served, method, calls, await self._receiver.receive(served.call, connection))
        except Exception as error:  # noqa: BLE001 - process boundary
            served.fail(error)

    def _dispatch(self, served: ServedCall, method: "MethodDescriptor", calls: CallHandler, request: bytes) -> None:
        if method.server_streaming:
            messages = self._create_messages(served)
            messages.send_one(self._open(served, calls, messages), request)
            return
        response = calls.handle(served.name, request, served.context)
        served.cancel_work = response.cancel
        if response.done():
            self._send_response(served, response)
        else:
            response.add_done_callback(lambda future: self._bridge.call(partial(self._send_response, served, future)))

    def _send_response(self, served: ServedCall, response: "Future[bytes]") -> None:
        if served.call.is_over or response.cancelled():
            return
        try:
            message = response.result()
            served.call.check_response(message)
            served.respond(message)
        except Exception as error:  # noqa: BLE001 - process boundary
            served.fail(error)

    def _create_messages(self, served: ServedCall) -> CallMessages:
        check_token = partial(self._guard.check, served.name, served.call.head.metadata)
        return CallMessages(served.call, self._bridge, check_token, served.close)

    def _open(self, served: ServedCall, calls: CallHandler, messages: CallMessages) -> "OpenCall":
        served.cancel_work = messages.cancel
        streams = cast("StreamHandler", calls)  # the service of a streaming method has one
        return streams.open(served.name, served.context, messages.emit, self._limits.send_bytes)

"""The gRPC handlers: they pass the bytes of each call to `predictor.calls` and send its response.

Requests are read here instead of by gRPC, so that malformed requests get our errors and incomplete ones time out.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Never, Protocol, Self, final

import grpc

from predictor._pb import inference_pb2 as inference_pb
from predictor._pb import prediction_pb2 as pb
from predictor.errors import (
    CallCancelledError,
    QuantraError,
    RequestTooLargeError,
    Status,
    UnavailableError,
    answer_of,
)
from predictor.instance import Deadline
from predictor.memory import error_of
from predictor.server.admission import Admission, IncomingRequests, PeerConnection
from predictor.server.call_messages import CallMessages
from predictor.server.loop_bridge import LoopBridge
from predictor.server.monitoring import CallObservers, ObservedCall
from predictor.server.settings import ServerLimits
from predictor.server.token_guard import TokenGuard
from predictor.server.transport import CallContext
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
INFERENCE: Final = inference_pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]
_LOADING: Final = {
    "ServerLive": inference_pb.ServerLiveResponse(live=True).SerializeToString(),
    "ServerReady": inference_pb.ServerReadyResponse(ready=False).SerializeToString(),
}
_CHANGING: Final = frozenset({"RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"})

CALLS: Final = (
    ServiceEndpoint.whole(PREDICTION),
    ServiceEndpoint.whole(INFERENCE, _LOADING),
)
"""Services at the public address."""
CHANGES: Final = (
    ServiceEndpoint.whole(ADMIN),
    ServiceEndpoint(INFERENCE, _CHANGING | _LOADING.keys(), _LOADING),
)
"""Services at the admin address."""

_log = logging.getLogger(__name__)


class CallHandler(Protocol):
    """The calls behind a service; see predictor.calls."""

    def call(self, name: str, request: bytes, deadline: Deadline) -> "Future[bytes]":
        """Answer one call; the future fails only with a QuantraError."""
        ...

    def open(
        self, name: str, deadline: Deadline, emit: Callable[[bytes], object], most_bytes: int | None = None
    ) -> "OpenCall":
        """Open a call with a stream of response messages of at most `most_bytes` each."""
        ...

    def drain(self) -> None:
        """Answer the pending requests of all streams, then end them."""
        ...


async def refuse(context: CallContext, error: QuantraError) -> Never:
    """Abort the call with the error's status, message, google.rpc.Status details and retry delay."""
    pushback_ms = errors.pushback_ms(error)
    pushback = () if pushback_ms is None else ((errors.PUSHBACK_KEY, str(pushback_ms)),)
    await context.abort(
        STATUS_CODES[answer_of(error).status],
        errors.shortened(error.message, errors.MAX_CALL_MESSAGE),
        (*context.trailing_metadata(), (errors.DETAILS_KEY, errors.encode_details(error)), *pushback),
    )


async def _fail(call: ObservedCall, context: CallContext, error: QuantraError) -> Never:
    """Record the error and abort the call."""
    call.end(error)
    await refuse(context, error)


def _caller_error(deadline: Deadline) -> QuantraError:
    """Return the reason that the caller no longer waits: deadline exceeded or cancelled."""
    try:
        Deadline(deadline.expires_at_s).check()  # a new one, because a stream sets `cancelled` in both cases
    except QuantraError as error:
        return error
    return CallCancelledError("the caller disconnected or cancelled")


@final
class Servicer:
    """Admits the calls of a service, reads them and sends responses. Before `serve`, calls are UNAVAILABLE."""

    def __init__(
        self,
        offer: ServiceEndpoint,
        guard: TokenGuard,
        observers: CallObservers,
        admission: Admission,
        arrivals: IncomingRequests,
        limits: ServerLimits,
    ) -> None:
        self._offer = offer
        self._guard = guard
        self._observers = observers
        self._admission = admission
        self._arrivals = arrivals
        self._limits = limits
        self._bridge = LoopBridge()
        self._calls: CallHandler | None = None

    def serve(self, calls: CallHandler) -> None:
        """Start answering calls."""
        self._calls = calls

    def drain(self) -> None:
        """Reject new requests on streams."""
        if self._calls is not None:
            self._calls.drain()

    @property
    def name(self) -> str:
        """Full name of the service."""
        return self._offer.service.full_name

    def handlers(self) -> dict[str, Any]:
        """Create gRPC's handlers of the methods, by name."""
        service, names = self._offer.service, self._offer.methods
        return {method.name: self._method(method) for method in service.methods if method.name in names}

    def _method(self, method: "MethodDescriptor") -> Any:
        """Create the handler of a method, always with streaming requests, so that they are read here."""
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(self._admitted(method.name, self._converse, is_stream=True))
        if method.server_streaming:
            return grpc.stream_stream_rpc_method_handler(self._admitted(method.name, self._stream))
        return grpc.stream_unary_rpc_method_handler(self._admitted(method.name, self._unary))

    def _admitted(
        self,
        name: str,
        work: Callable[[str, CallHandler, CallContext, PeerConnection, Deadline], Awaitable[Any]],
        *,
        is_stream: bool = False,
    ) -> Any:
        """Create a handler that admits a call and turns every error into a status."""

        async def answer(_requests: object, context: CallContext) -> Any:
            call = self._observers.begin(self._offer.service.full_name, name, context, has_many=is_stream)
            deadline = Deadline.after(context.time_remaining(), call)
            try:
                self._guard.check(name, context.invocation_metadata() or ())
                peer = self._admission.enter(context, is_stream=is_stream)
                calls = self._calls
                answered = (
                    self._while_loading(name) if calls is None else await work(name, calls, context, peer, deadline)
                )
            except asyncio.CancelledError:
                call.end(_caller_error(deadline))
                deadline.cancelled.set()
                raise
            except QuantraError as error:
                await _fail(call, context, error)
            except Exception as error:  # noqa: BLE001 - process boundary: callers get no internal errors
                await _fail(call, context, error_of(name, error, _log))
            else:
                call.end(None)
                return answered

        return answer

    def _while_loading(self, name: str) -> bytes:
        if name not in self._offer.while_loading:
            raise UnavailableError("the models are still loading; retry in a moment")
        return self._offer.while_loading[name]

    async def _unary(
        self, name: str, calls: CallHandler, context: CallContext, peer: PeerConnection, deadline: Deadline
    ) -> bytes:
        body = await self._arrivals.request(context, peer)
        return self._sendable(await self._bridge.result(calls.call(name, body, deadline)))

    async def _stream(
        self, name: str, calls: CallHandler, context: CallContext, peer: PeerConnection, deadline: Deadline
    ) -> None:
        body = await self._arrivals.request(context, peer)
        messages = CallMessages(context, self._bridge, self._sendable)
        await messages.answer(calls.open(name, deadline, messages.emit, self._limits.send_bytes), body)

    async def _converse(
        self, name: str, calls: CallHandler, context: CallContext, _peer: PeerConnection, deadline: Deadline
    ) -> None:
        headers = context.invocation_metadata() or ()
        admit = partial(self._guard.check, name, headers)  # the token may be revoked while the stream is open
        messages = CallMessages(context, self._bridge, self._sendable, admit)
        await messages.converse(calls.open(name, deadline, messages.emit, self._limits.send_bytes))

    def _sendable(self, answer: bytes) -> bytes:
        """Return the response, unless it is larger than clients accept."""
        if len(answer) > self._limits.send_bytes:
            raise RequestTooLargeError(
                f"the response has {len(answer)} bytes, at most {self._limits.send_bytes}; request fewer symbols or "
                "targets, or less detail",
                metadata={"have": str(len(answer)), "most": str(self._limits.send_bytes)},
            )
        return answer

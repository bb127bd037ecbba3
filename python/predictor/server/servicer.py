"""The handlers of calls: they pass the bytes of each call to `predictor.calls` and send its response."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, Self, cast, final

import grpc

from predictor._pb import inference_pb2 as inference_pb
from predictor._pb import ledger_pb2 as ledger_pb
from predictor._pb import prediction_pb2 as pb
from predictor.errors import (
    CallCancelledError,
    QuantraError,
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
_LOADING: Final = {
    "ServerLive": inference_pb.ServerLiveResponse(live=True).SerializeToString(),
    "ServerReady": inference_pb.ServerReadyResponse(ready=False).SerializeToString(),
}
_LONG: Final = frozenset({"WatchEvents", "SimulatePaths"})
"""Calls with one request that stay open, or hold paths until the caller has read them; they count as streams."""
_CHANGING: Final = frozenset({"RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"})

CALLS: Final = (
    ServiceEndpoint.whole(PREDICTION),
    ServiceEndpoint.whole(LEDGER),
    ServiceEndpoint.whole(INFERENCE, _LOADING),
)
"""Services at the public address."""
CHANGES: Final = (
    ServiceEndpoint.whole(ADMIN),
    ServiceEndpoint.whole(LIFECYCLE),
    ServiceEndpoint(INFERENCE, _CHANGING | _LOADING.keys(), _LOADING),
)
"""Services at the admin address."""

_log = logging.getLogger(__name__)


class CallHandler(Protocol):
    """The calls behind a service; see predictor.calls."""

    def call(self, name: str, request: bytes, deadline: Deadline) -> "Future[bytes]":
        """Answer one call; the future fails only with a QuantraError."""
        ...

    def drain(self) -> None:
        """Answer the pending requests of all streams, then end them."""
        ...


class StreamHandler(CallHandler, Protocol):
    """The calls behind a service that has streams."""

    def open(
        self, name: str, deadline: Deadline, emit: Callable[[bytes], object], most_bytes: int | None = None
    ) -> "OpenCall":
        """Open a call with a stream of response messages of at most `most_bytes` each."""
        ...


def refuse(call: IncomingCall, error: QuantraError) -> None:
    """End a call with the error's status, message, google.rpc.Status details and retry delay."""
    pushback_ms = errors.pushback_ms(error)
    call.trailing = {
        **call.trailing,
        errors.DETAILS_KEY: errors.encode_details(error),
        **({} if pushback_ms is None else {errors.PUSHBACK_KEY: str(pushback_ms)}),
    }
    call.end(STATUS_CODES[answer_of(error).status], errors.shortened(error.message, errors.MAX_CALL_MESSAGE))


@final
class AdmittedCall:
    """A call, its observers and its deadline.

    Args:
        name: Name of the method.
        call: The call.
        observed: Receives its end.
    """

    def __init__(self, name: str, call: IncomingCall, observed: ObservedCall) -> None:
        self.name, self.call = name, call
        self._observed: ObservedCall | None = observed
        self.deadline = Deadline.after(call.time_left_s, observed)
        self.cancel_work: Callable[[], object] | None = None
        """Cancels the work if the caller leaves."""
        call.when_cancelled(self.cancel)

    def cancel(self) -> None:
        """Stop the work, because the caller no longer waits."""
        cancel_work = self.cancel_work
        self._report(self._caller_error())
        self.deadline.cancel()
        if cancel_work is not None:
            cancel_work()

    def reply(self, message: bytes) -> None:
        """End the call with its only response."""
        self._report(None)
        self.call.reply(message)

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
            known = error if isinstance(error, QuantraError) else error_of(self.name, error, _log)
            self._report(known)
            refuse(self.call, known.without_frames())

    def _report(self, error: QuantraError | None) -> None:
        """Report the end once: a caller may go while its response waits to be sent."""
        observed, self._observed, self.cancel_work = self._observed, None, None
        if observed is not None:
            observed.end(error)

    def _caller_error(self) -> QuantraError:
        """Return the reason that the caller no longer waits: deadline exceeded or cancelled."""
        try:
            Deadline(self.deadline.expires_at_s).check()
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
        self.name: str = offer.service.full_name
        """Full name of the service."""
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

    def handlers(self) -> dict[str, MethodHandler]:
        """Create the handlers of the methods, by name."""
        return {name: self._handler(self._offer.service.methods_by_name[name]) for name in self._offer.methods}

    def _handler(self, method: "MethodDescriptor") -> MethodHandler:
        if method.client_streaming:
            return partial(self._begin, method.name, self._begin_conversation, True)
        work = self._begin_stream if method.server_streaming else self._begin_unary
        return partial(self._begin, method.name, work, method.name in _LONG)

    def _begin(
        self,
        name: str,
        work: Callable[[AdmittedCall, CallHandler, PeerConnection], None],
        is_stream: bool,  # noqa: FBT001 - bound by position above
        call: IncomingCall,
    ) -> None:
        """Admit a call and start the work on it; every error becomes a status."""
        admitted = AdmittedCall(name, call, self._observers.begin(self.name, name, call, has_many=is_stream))
        try:
            if caller := self._guard.check(name, call.head.metadata):
                admitted.deadline.caller = caller
            peer = self._admission.enter(call, is_stream=is_stream)
            if self._calls is None:
                admitted.reply(self._while_loading(name))
            else:
                work(admitted, self._calls, peer)
        except Exception as error:  # noqa: BLE001 - process boundary
            admitted.fail(error)

    def _while_loading(self, name: str) -> bytes:
        if name not in self._offer.while_loading:
            raise UnavailableError("the models are still loading; retry in a moment")
        return self._offer.while_loading[name]

    def _begin_unary(self, admitted: AdmittedCall, calls: CallHandler, peer: PeerConnection) -> None:
        request = admitted.call.take_request()
        if request is None:
            admitted.call.run(self._read_and_answer(admitted, calls, peer))
        else:
            self._answer(admitted, calls, request)

    async def _read_and_answer(self, admitted: AdmittedCall, calls: CallHandler, peer: PeerConnection) -> None:
        try:
            self._answer(admitted, calls, await self._arrivals.request(admitted.call, peer))
        except Exception as error:  # noqa: BLE001 - process boundary
            admitted.fail(error)

    def _answer(self, admitted: AdmittedCall, calls: CallHandler, request: bytes) -> None:
        answer = calls.call(admitted.name, request, admitted.deadline)
        admitted.cancel_work = answer.cancel
        if answer.done():
            self._reply(admitted, answer)
        else:
            answer.add_done_callback(lambda ended: self._bridge.call(partial(self._reply, admitted, ended)))

    def _reply(self, admitted: AdmittedCall, answer: "Future[bytes]") -> None:
        if admitted.call.is_over or answer.cancelled():
            return
        try:
            message = answer.result()
            admitted.call.check_response(message)
            admitted.reply(message)
        except Exception as error:  # noqa: BLE001 - process boundary
            admitted.fail(error)

    def _begin_stream(self, admitted: AdmittedCall, calls: CallHandler, peer: PeerConnection) -> None:
        admitted.call.run(self._answer_with_stream(admitted, calls, peer))

    async def _answer_with_stream(self, admitted: AdmittedCall, calls: CallHandler, peer: PeerConnection) -> None:
        try:
            body = await self._arrivals.request(admitted.call, peer)
            messages = self._messages(admitted)
            messages.answer(self._open(admitted, calls, messages), body)
        except Exception as error:  # noqa: BLE001 - process boundary
            admitted.fail(error)

    def _begin_conversation(self, admitted: AdmittedCall, calls: CallHandler, _peer: PeerConnection) -> None:
        messages = self._messages(admitted)
        messages.converse(self._open(admitted, calls, messages))

    def _messages(self, admitted: AdmittedCall) -> CallMessages:
        check_token = partial(self._guard.check, admitted.name, admitted.call.head.metadata)
        return CallMessages(admitted.call, self._bridge, check_token, admitted.close)

    def _open(self, admitted: AdmittedCall, calls: CallHandler, messages: CallMessages) -> "OpenCall":
        admitted.cancel_work = messages.cancel
        streams = cast("StreamHandler", calls)  # the service of a streaming method has one
        return streams.open(admitted.name, admitted.deadline, messages.emit, self._limits.send_bytes)

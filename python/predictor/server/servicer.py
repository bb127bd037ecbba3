"""A service on gRPC: it takes each call's bytes to `predictor.calls`, and its answer back.

Requests are read here and not by gRPC: bytes that are no request get an answer of ours, and one that never comes whole
does not wait for ever.
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
from predictor.server.admission import Admission, Context, IncomingRequests, PeerConnection
from predictor.server.call_messages import CallMessages
from predictor.server.loop_bridge import LoopBridge
from predictor.server.monitoring import CallObservers, ObservedCall
from predictor.server.settings import ServerLimits
from predictor.server.token_guard import TokenGuard
from predictor.wire import errors

if TYPE_CHECKING:
    from concurrent.futures import Future

    from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

    from predictor.calls import OpenCall

STATUS_CODES = {status: grpc.StatusCode[status.value] for status in Status}
"""gRPC's own constant for each status."""


@final
@dataclass(frozen=True, slots=True)
class ServiceEndpoint:
    """A service on one address, or those of its methods that are answered there."""

    service: "ServiceDescriptor"
    methods: frozenset[str]
    """The others are UNIMPLEMENTED."""
    while_loading: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """What can be answered before models are loaded."""

    @classmethod
    def whole(cls, service: "ServiceDescriptor", while_loading: Mapping[str, bytes] | None = None) -> Self:
        """All methods of a service."""
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
"""What everybody may ask."""
CHANGES: Final = (
    ServiceEndpoint.whole(ADMIN),
    ServiceEndpoint(INFERENCE, _CHANGING | _LOADING.keys(), _LOADING),
)
"""What changes models."""

_log = logging.getLogger(__name__)


class CallHandler(Protocol):
    """What answers; see predictor.calls."""

    def call(self, name: str, request: bytes, deadline: Deadline) -> "Future[bytes]":
        """Answer one call; the future fails with a QuantraError and nothing else."""
        ...

    def open(
        self, name: str, deadline: Deadline, emit: Callable[[bytes], object], most_bytes: int | None = None
    ) -> "OpenCall":
        """Begin a call whose answer is a stream of messages, each of so many bytes at most."""
        ...

    def drain(self) -> None:
        """End streams once what they have asked already is answered."""
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


async def _fail(call: ObservedCall, context: Context, error: QuantraError) -> Never:
    """End a call that was let in, or was not, as this error."""
    call.end(error)
    await refuse(context, error)


def _why_gone(deadline: Deadline) -> QuantraError:
    """What ended a call whose caller no longer waits: its time, or the caller."""
    try:
        Deadline(deadline.expires_at_s).check()  # that nobody waits any more, a stream has noted already
    except QuantraError as error:
        return error
    return CallCancelledError("the caller went away")


@final
class Servicer:
    """Lets the calls of a service in, reads them, and sends their answers. Until it serves, each is UNAVAILABLE."""

    def __init__(
        self,
        offer: ServiceEndpoint,
        guard: TokenGuard,
        watching: CallObservers,
        admission: Admission,
        arrivals: IncomingRequests,
        limits: ServerLimits,
    ) -> None:
        self._offer = offer
        self._guard = guard
        self._watching = watching
        self._admission = admission
        self._arrivals = arrivals
        self._limits = limits
        self._handover = LoopBridge()
        self._calls: CallHandler | None = None

    def serve(self, calls: CallHandler) -> None:
        """Answer from now on."""
        self._calls = calls

    def drain(self) -> None:
        """Take no more requests on streams."""
        if self._calls is not None:
            self._calls.drain()

    def handler(self) -> grpc.GenericRpcHandler:
        """What gRPC routes calls to."""
        service, names = self._offer.service, self._offer.methods
        methods = {method.name: self._method(method) for method in service.methods if method.name in names}
        return grpc.method_handlers_generic_handler(service.full_name, methods)

    def _method(self, method: "MethodDescriptor") -> Any:
        """The handler of a call; requests come as a stream whatever the call, so that they are read here."""
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(self._guarded(method.name, self._converse, is_stream=True))
        if method.server_streaming:
            return grpc.stream_stream_rpc_method_handler(self._guarded(method.name, self._stream))
        return grpc.stream_unary_rpc_method_handler(self._guarded(method.name, self._unary))

    def _guarded(
        self,
        name: str,
        work: Callable[[str, CallHandler, Context, PeerConnection, Deadline], Awaitable[Any]],
        *,
        is_stream: bool = False,
    ) -> Any:
        """A handler that lets a call in, and whose every error ends as a status."""

        async def answer(_requests: object, context: Context) -> Any:
            call = self._watching.begin(self._offer.service.full_name, name, context, has_many=is_stream)
            deadline = Deadline.after(context.time_remaining(), call)
            try:
                self._guard.check(name, context.invocation_metadata() or ())
                peer = self._admission.enter(context, is_stream=is_stream)
                calls = self._calls
                answered = (
                    self._while_loading(name) if calls is None else await work(name, calls, context, peer, deadline)
                )
            except asyncio.CancelledError:
                call.end(_why_gone(deadline))
                deadline.cancelled.set()
                raise
            except QuantraError as error:
                await _fail(call, context, error)
            except Exception as error:  # noqa: BLE001 - the process's edge: our own bug must not end in the caller's hands
                await _fail(call, context, error_of(name, error, _log))
            else:
                call.end(None)
                return answered

        return answer

    def _while_loading(self, name: str) -> bytes:
        if name not in self._offer.while_loading:
            raise UnavailableError("the models are still being loaded (loading); ask again in a moment")
        return self._offer.while_loading[name]

    async def _unary(
        self, name: str, calls: CallHandler, context: Context, peer: PeerConnection, deadline: Deadline
    ) -> bytes:
        body = await self._arrivals.request(context, peer)
        return self._sendable(await self._handover.result(calls.call(name, body, deadline)))

    async def _stream(
        self, name: str, calls: CallHandler, context: Context, peer: PeerConnection, deadline: Deadline
    ) -> None:
        body = await self._arrivals.request(context, peer)
        messages = CallMessages(context, self._handover, self._sendable)
        await messages.answer(calls.open(name, deadline, messages.emit, self._limits.send_bytes), body)

    async def _converse(
        self, name: str, calls: CallHandler, context: Context, _peer: PeerConnection, deadline: Deadline
    ) -> None:
        headers = context.invocation_metadata() or ()
        admit = partial(self._guard.check, name, headers)  # a token may be taken away while the stream goes on
        messages = CallMessages(context, self._handover, self._sendable, admit)
        await messages.converse(calls.open(name, deadline, messages.emit, self._limits.send_bytes))

    def _sendable(self, answer: bytes) -> bytes:
        """The answer, if clients accept as many bytes."""
        if len(answer) > self._limits.send_bytes:
            raise RequestTooLargeError(
                f"the answer has {len(answer)} bytes, at most {self._limits.send_bytes}; ask for fewer symbols or "
                "targets, or for less detail",
                metadata={"have": str(len(answer)), "most": str(self._limits.send_bytes)},
            )
        return answer

"""gRPC's health and reflection services, with requests read and parsed here.

If gRPC read them, incomplete requests would never time out and malformed ones would end as UNKNOWN.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Never, TypeVar, final

import grpc
import grpc.aio
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from predictor._pb import inference_pb2, prediction_pb2
from predictor.errors import QuantraError
from predictor.server.admission import Admission, IncomingRequests
from predictor.server.servicer import refuse
from predictor.server.transport import CallContext, CallServer

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor

ValueT = TypeVar("ValueT")


@final
@dataclass(frozen=True, slots=True)
class ServiceRegistrar:
    """Takes the server's role when generated code registers a service.

    Attributes:
        server: The real server.
        admission: Admission of these calls. They need no token and have their own count, so that health checks work
            under any load.
        arrivals: Reads their requests.
    """

    server: CallServer
    admission: Admission
    arrivals: IncomingRequests

    def add_generic_rpc_handlers(self, generic_rpc_handlers: object) -> None:
        """Do nothing: the same handlers are also registered by name."""

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Any]) -> None:
        """Register handlers, with requests read and parsed here."""
        handlers = {name: _parsing(self, handler) for name, handler in method_handlers.items()}
        self.server.add_handlers(service_name, handlers)


def _parsing(registrar: ServiceRegistrar, handler: Any) -> Any:
    """Wrap a method as one with streaming requests, so that they are read here."""
    answer: Callable[..., Any] = handler.stream_stream or handler.unary_stream or handler.unary_unary
    parse: Callable[[bytes], Any] = handler.request_deserializer

    async def answer_one(_bodies: object, context: CallContext) -> Any:
        body = await _or_abort(context, _one_request(registrar, context))
        request = await _parsed(parse, body, context)
        try:
            return await answer(request, context)
        except NotImplementedError:  # declared but not implemented by gRPC's package, such as Health/List
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this server does not implement this method")

    async def answer_stream(_bodies: object, context: CallContext) -> AsyncIterator[Any]:
        bodies = await _or_abort(context, _each_request(registrar, context))
        requests = (await _parsed(parse, body, context) async for body in bodies)
        async for reply in answer(requests, context):
            yield reply

    serialize = handler.response_serializer
    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(answer_stream, response_serializer=serialize)
    if handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler(answer_one, response_serializer=serialize)
    return grpc.stream_unary_rpc_method_handler(answer_one, response_serializer=serialize)


async def _one_request(registrar: ServiceRegistrar, context: CallContext) -> bytes:
    return await registrar.arrivals.request(context, registrar.admission.enter(context))


async def _each_request(registrar: ServiceRegistrar, context: CallContext) -> AsyncIterator[bytes]:
    peer = registrar.admission.enter(context)

    async def each() -> AsyncIterator[bytes]:
        while (body := await _or_abort(context, registrar.arrivals.message(context, peer))) is not grpc.aio.EOF:
            yield body

    return each()


async def _or_abort(context: CallContext, work: Awaitable[ValueT]) -> ValueT:
    """Return the result of the work; a QuantraError aborts the call."""
    try:
        return await work
    except QuantraError as error:
        await refuse(context, error)


async def _parsed(parse: Callable[[bytes], Any], body: bytes, context: CallContext) -> Any:
    try:
        return parse(body)
    except DecodeError:
        await _refuse(context, len(body))


async def _refuse(context: CallContext, size: int) -> Never:
    await context.abort(
        grpc.StatusCode.INVALID_ARGUMENT,
        f"the {size} bytes of the request are not a message of this method; encode it from the service's .proto",
    )


def descriptor_pool() -> DescriptorPool:
    """Collect the descriptors for reflection: the files of every service in one pool.

    The open inference protocol has a separate pool; the others share the default one.
    """
    pool, known = DescriptorPool(), set[str]()
    for module in (prediction_pb2, inference_pb2, health_pb2, reflection_pb2):
        _add(module.DESCRIPTOR, pool, known)
    return pool


def _add(file: "FileDescriptor", pool: DescriptorPool, known: set[str]) -> None:
    """Add a file after those that it imports."""
    if file.name in known:
        return
    known.add(file.name)
    for imported in file.dependencies:
        _add(imported, pool, known)
    pool.AddSerializedFile(file.serialized_pb)

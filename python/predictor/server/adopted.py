"""Services of gRPC's own packages, health and reflection, whose requests are parsed here: bytes that are none get an
answer that says so.

What gRPC parses itself ends as UNKNOWN where it cannot be parsed.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Never, final

import grpc
import grpc.aio
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from predictor._pb import inference_pb2, prediction_pb2

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor

Context = grpc.aio.ServicerContext[Any, Any]


@final
class Adopting:
    """Where generated code registers a service, in the place of a server.

    Args:
        server: that answers.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Register handlers, with requests parsed here."""
        self._server.add_generic_rpc_handlers([_Adopted(handlers) for handlers in generic_rpc_handlers])

    def add_registered_method_handlers(self, service_name: str, method_handlers: object) -> None:
        """Nothing: the same handlers come by the other way."""


@final
class _Adopted(grpc.GenericRpcHandler):
    def __init__(self, handlers: grpc.GenericRpcHandler) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        handler: Any = self._handlers.service(handler_call_details)
        return None if handler is None else _parsing(handler)


def _parsing(handler: Any) -> Any:
    """The same method, asked with bytes."""
    answer: Callable[..., Any] = handler.stream_stream or handler.unary_stream or handler.unary_unary
    parse: Callable[[bytes], Any] = handler.request_deserializer

    async def one(body: bytes, context: Context) -> Any:
        request = await _parsed(parse, body, context)
        try:
            return await answer(request, context)
        except NotImplementedError:  # a method that gRPC's package describes and lacks, such as Health/List
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this server does not have this method")

    async def many(bodies: AsyncIterator[bytes], context: Context) -> AsyncIterator[Any]:
        requests = (await _parsed(parse, body, context) async for body in bodies)
        async for reply in answer(requests, context):
            yield reply

    serialize = handler.response_serializer
    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(many, response_serializer=serialize)
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(one, response_serializer=serialize)
    return grpc.unary_unary_rpc_method_handler(one, response_serializer=serialize)


async def _parsed(parse: Callable[[bytes], Any], body: bytes, context: Context) -> Any:
    try:
        return parse(body)
    except DecodeError:
        await _refuse(context, len(body))


async def _refuse(context: Context, size: int) -> Never:
    await context.abort(
        grpc.StatusCode.INVALID_ARGUMENT,
        f"the {size} bytes of the request are not what this method reads; encode it from the service's own .proto",
    )


def described() -> DescriptorPool:
    """What reflection tells of: the files of every service, in one pool.

    The public inference protocol has a pool of its own, beside the default one of the others.
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

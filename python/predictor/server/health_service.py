"""The services of gRPC itself: health and reflection."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from google.protobuf.descriptor_pool import DescriptorPool
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from predictor._pb import inference_pb2, ledger_pb2, prediction_pb2
from predictor.errors import QuantraError
from predictor.memory import make_caller_error
from predictor.server.admission import Admission, make_incomplete_request_error, require_request
from predictor.server.servicer import refuse
from predictor.server.settings import ServerLimits
from predictor.server.transport import IncomingCall, MethodHandler
from predictor.wire.request_counts import parse

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor

HEALTH: Final = "grpc.health.v1.Health"
REFLECTION: Final = reflection.SERVICE_NAME
_SERVING, _NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
_MAX_BYTES: Final = 1 << 15
"""Of a request; names of services and symbols are shorter."""

_log = logging.getLogger(__name__)


@final
class GrpcServices:
    """Health and reflection. Their calls need no token and are counted apart, so that they work under any load.

    Their requests need no slot to arrive, because they fit the window of a stream.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._admission = Admission(limits)
        self._serving_by_name: dict[str, bool] = {}
        self._is_draining = False
        self._change_event = asyncio.Event()
        """Set, and replaced, at each change."""

    def set_health(self, names: Iterable[str], *, serving: bool) -> None:
        """Set the health of services and models; ignored after `drain`."""
        if not self._is_draining:
            self._serving_by_name |= dict.fromkeys(names, serving)
            self._announce()

    def drain(self) -> None:
        """Report NOT_SERVING from now on."""
        self._is_draining = True
        self._serving_by_name = dict.fromkeys(self._serving_by_name, False)
        self._announce()

    def create_health_handlers(self) -> dict[str, MethodHandler]:
        """Create the handlers of the health service."""
        watch = partial(self._begin, self._watch, is_stream=True)
        return {"Check": self._begin_check, "Watch": watch}

    def create_reflection_handlers(self, services: Sequence[str]) -> dict[str, MethodHandler]:
        """Create the handlers of the reflection service."""
        names = (*services, HEALTH, REFLECTION)
        servicer = reflection.aio.ReflectionServicer(names, pool=collect_descriptors())
        return {"ServerReflectionInfo": partial(self._begin, partial(self._reflect, servicer), is_stream=True)}

    def _announce(self) -> None:
        self._change_event.set()
        self._change_event = asyncio.Event()

    def _begin_check(self, call: IncomingCall) -> None:
        """Answer a check at once, without a limit, if its request has arrived with its headers."""
        call.limit_request(_MAX_BYTES)
        try:
            request = call.take_request()
            if request is None:
                self._begin(self._check, call, is_stream=False)
            else:
                self._answer_check(call, request)
        except QuantraError as error:
            refuse(call, error)

    def _begin(
        self, work: Callable[[IncomingCall], Coroutine[Any, Any, None]], call: IncomingCall, *, is_stream: bool
    ) -> None:
        call.limit_request(_MAX_BYTES)
        try:
            self._admission.enter(call, is_stream=is_stream)
        except QuantraError as error:
            refuse(call, error)
        else:
            call.run(_run_to_end(call, work(call)))

    async def _check(self, call: IncomingCall) -> None:
        self._answer_check(call, require_request(await self._read(call)))

    def _answer_check(self, call: IncomingCall, request: bytes) -> None:
        name = parse(request, health_pb2.HealthCheckRequest).service
        if name in self._serving_by_name:
            call.respond(self._encode_status(name))
        else:
            call.end(StatusCode.NOT_FOUND, "no service or model of this name")

    async def _watch(self, call: IncomingCall) -> None:
        request = require_request(await self._read(call))
        name, last = parse(request, health_pb2.HealthCheckRequest).service, b""
        while True:
            changed, report = self._change_event, self._encode_status(name)
            if report != last:
                await call.write(report)
            last = report
            await changed.wait()

    async def _read(self, call: IncomingCall) -> bytes | None:
        try:
            async with asyncio.timeout(self._limits.request_s):
                return await call.read()
        except TimeoutError:
            raise make_incomplete_request_error(self._limits) from None

    def _encode_status(self, name: str) -> bytes:
        status = (
            _UNKNOWN if name not in self._serving_by_name else _SERVING if self._serving_by_name[name] else _NOT_SERVING
        )
        return health_pb2.HealthCheckResponse(status=status).SerializeToString()

    async def _reflect(self, servicer: Any, call: IncomingCall) -> None:
        async def read_requests() -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
            while (body := await self._read(call)) is not None:
                yield parse(body, reflection_pb2.ServerReflectionRequest)

        async for reply in servicer.ServerReflectionInfo(read_requests(), None):
            await call.write(reply.SerializeToString())


async def _run_to_end(call: IncomingCall, work: Coroutine[Any, Any, None]) -> None:
    """Do the work and end the call; every error becomes a status."""
    try:
        await work
        call.end()
    except QuantraError as error:
        refuse(call, error)
    except Exception as error:  # noqa: BLE001 - process boundary: callers get no internal errors
        refuse(call, make_caller_error(call.head.method, error, _log))


def collect_descriptors() -> DescriptorPool:
    """Collect the descriptors for reflection: the files of every service in one pool.

    The open inference protocol has a separate pool; the others share the default one.
    """
    pool, added = DescriptorPool(), set[str]()
    for module in (prediction_pb2, ledger_pb2, inference_pb2, health_pb2, reflection_pb2):
        _add_file(module.DESCRIPTOR, pool, added)
    return pool


def _add_file(file: "FileDescriptor", pool: DescriptorPool, added: set[str]) -> None:
    """Add a file after those that it imports."""
    if file.name in added:
        return
    added.add(file.name)
    for imported in file.dependencies:
        _add_file(imported, pool, added)
    pool.AddSerializedFile(file.serialized_pb)

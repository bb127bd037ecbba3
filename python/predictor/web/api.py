"""The calls of quantra.v1 over HTTP, as JSON; a thin caller of `predictor.calls`."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, final

from google.protobuf.message import Message
from grpc_health.v1.health_pb2 import HealthCheckResponse
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from predictor._pb import prediction_pb2 as pb
from predictor.call_context import CallContext
from predictor.errors import (
    CallCancelledError,
    DeadlineExceededError,
    MalformedRequestError,
    QuantraError,
    QueueFullError,
    RequestTooLargeError,
    UnavailableError,
)
from predictor.memory import make_caller_error
from predictor.server import ServerLimits
from predictor.server.loop_bridge import LoopBridge
from predictor.server.tokens import TokenGuard
from predictor.web.openapi import PATHS, POST_ROUTES, PostRoute, describe_api
from predictor.web.responses import JSON, parse_message, respond, respond_error

if TYPE_CHECKING:
    from predictor.calls import PredictionCalls


SMALL: Final = 64 * 1024
"""Bytes of a body that needs no slot."""


ResultT = TypeVar("ResultT")


class UnreadBodyError(Exception):
    """The body was not read to its end, for this error."""

    def __init__(self, error: QuantraError) -> None:
        super().__init__(error.message)
        self.error = error


@final
class BodyReader:
    """Reads and parses bodies of at most `max_bytes`, on one event loop.

    Bodies larger than SMALL share a few slots until they are parsed, and one of them is parsed at a time.
    """

    def __init__(self, limits: ServerLimits, max_bytes: int) -> None:
        self._max_bytes, self._request_s = max_bytes, limits.request_s
        self._slots, self._parsing = asyncio.Semaphore(limits.arriving), asyncio.Semaphore(1)

    async def read(self, request: Request, parse: Callable[[bytes], ResultT]) -> ResultT:
        """Read the body of a request and return `parse(body)`, which runs on another thread if the body is large.

        Raises:
            UnreadBodyError: It is too large or too slow, or the caller has left.
            QuantraError: As `parse`.
        """
        announced = request.headers.get("content-length", "")[:_DIGITS]
        if announced.isdecimal() and int(announced) > self._max_bytes:
            raise UnreadBodyError(self._make_excess_error(announced))
        has_slot, loop = False, asyncio.get_running_loop()
        end_s = loop.time() + self._request_s
        parts, size = list[bytes](), 0
        try:
            async with asyncio.timeout_at(end_s) as timeout:
                async for part in request.stream():
                    size += len(part)
                    if size > self._max_bytes:
                        raise UnreadBodyError(self._make_excess_error(f"more than {self._max_bytes}"))
                    if size > SMALL and not has_slot:
                        full_s = loop.time()
                        timeout.reschedule(None)  # the caller cannot send faster now
                        await self._slots.acquire()
                        has_slot = True
                        timeout.reschedule(end_s + loop.time() - full_s)
                    parts.append(part)
            if not has_slot:
                return parse(b"".join(parts))
            async with self._parsing:
                return await asyncio.to_thread(lambda: parse(b"".join(parts)))
        except TimeoutError:
            raise UnreadBodyError(
                DeadlineExceededError(
                    f"the request was incomplete after {self._request_s:g} seconds; send a smaller request, or faster"
                )
            ) from None
        except ClientDisconnect:
            raise UnreadBodyError(CallCancelledError("the caller disconnected")) from None
        finally:
            if has_slot:
                self._slots.release()

    def _make_excess_error(self, have: str) -> RequestTooLargeError:
        return RequestTooLargeError(
            f"the request has {have} bytes, at most {self._max_bytes}; send several requests",
            metadata={"have": have, "most": str(self._max_bytes)},
        )


_DIGITS: Final = 19
TIMEOUT_HEADER: Final = "x-timeout-seconds"
"""Header with the deadline of a call, in seconds from its arrival."""
MAX_TIMEOUT_S: Final = 3600.0
_SERVING: Final = HealthCheckResponse(status=HealthCheckResponse.SERVING).SerializeToString()
_HEALTH_S: Final = 5.0

_log = logging.getLogger(__name__)

MessageT = TypeVar("MessageT", bound=Message)


class ByteCalls(Protocol):
    """The calls of quantra.v1 as bytes: those of this process, or of another server."""

    def call(self, name: str, body: bytes, context: CallContext) -> "Future[bytes]":
        """Answer a call; all messages of simulated paths are joined into one."""
        ...

    def check_health(self, context: CallContext) -> "Future[bytes]":
        """Answer whether models are served."""
        ...


@final
@dataclass(frozen=True, slots=True)
class ServiceCalls:
    """The calls of this process."""

    calls: "PredictionCalls"

    def call(self, name: str, body: bytes, context: CallContext) -> "Future[bytes]":
        """See `ByteCalls`."""
        return _simulate(self.calls, body, context) if name == PATHS else self.calls.handle(name, body, context)

    def check_health(self, context: CallContext) -> "Future[bytes]":  # noqa: ARG002 - as another server's
        """Answer that models are served, because they are loaded."""
        answer = Future[bytes]()
        answer.set_result(_SERVING)
        return answer


@final
class Api:
    """The routes of the calls, on the running event loop. Before `serve`, calls are UNAVAILABLE.

    Args:
        guard: Checks the tokens of callers.
        limits: Limits of the server.
    """

    def __init__(self, guard: TokenGuard, limits: ServerLimits) -> None:
        self._guard, self._limits = guard, limits
        self._bodies = BodyReader(limits, limits.receive_bytes)
        self._bridge = LoopBridge()
        self._in_flight: Counter[str] = Counter()
        self._calls: ByteCalls | None = None

    def serve(self, calls: ByteCalls) -> None:
        """Start answering calls."""
        self._calls = calls

    def routes(self) -> list[Route]:
        """Create the routes."""
        return [
            *(Route(route.path, self._post(route), methods=["POST"]) for route in POST_ROUTES),
            Route("/v1/models", self.with_error_responses(self._list_models), methods=["GET"]),
            Route("/v1/models/{model}", self.with_error_responses(self._describe_model), methods=["GET"]),
            Route("/v1/health", self._report_health, methods=["GET"]),
            Route("/openapi.json", self._serve_openapi, methods=["GET"]),
        ]

    def _post(self, route: PostRoute) -> Callable[[Request], object]:
        name, kind = route.name, route.request

        async def handle(request: Request) -> Response:
            try:
                context = self.admit(name, request)
                _check_type(request)
                self._in_flight[name] += 1
                try:
                    message, has_lists = await self._bodies.read(request, lambda body: parse_message(body, kind))
                    response_body = await self._call(name, message.SerializeToString(), context, request)
                finally:
                    self._in_flight[name] -= 1
                return respond(route.response.FromString(response_body), as_lists=has_lists)
            except UnreadBodyError as unread:
                return respond_error(unread.error, ends_connection=True)
            except Exception as error:  # noqa: BLE001 - process boundary
                return respond_error(make_caller_error(name, error, _log).without_frames())

        return handle

    def with_error_responses(
        self, handle: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that responds with the error that `handle` raises."""

        async def handle_safely(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:  # noqa: BLE001 - process boundary
                return respond_error(make_caller_error(request.url.path, error, _log).without_frames())

        return handle_safely

    async def call(self, name: str, message: Message, response: type[MessageT], request: Request) -> MessageT:
        """Make a call for a request without a body.

        Raises:
            QuantraError: As `PredictionCalls.handle`, the caller has no token for it, or its deadline has passed.
        """
        return response.FromString(
            await self._call(name, message.SerializeToString(), self.admit(name, request), request)
        )

    async def _list_models(self, request: Request) -> Response:
        return respond(await self.call("ListModels", pb.ListModelsRequest(), pb.ListModelsResponse, request))

    async def _describe_model(self, request: Request) -> Response:
        message = pb.GetModelRequest(model=request.path_params["model"])
        return respond(await self.call("GetModel", message, pb.GetModelResponse, request))

    async def _report_health(self, request: Request) -> Response:
        health = HealthCheckResponse(status=HealthCheckResponse.NOT_SERVING)
        if self._calls is not None:
            context = CallContext.with_timeout(_HEALTH_S)
            try:
                answer = await self._await_answer(self._calls.check_health(context), context, request)
                health = HealthCheckResponse.FromString(answer)
            except QuantraError as error:
                return respond_error(error)
        return respond(health, code=200 if health.status == HealthCheckResponse.SERVING else 503)

    async def _serve_openapi(self, _: Request) -> Response:
        return Response(describe_api(), media_type=JSON)

    def admit(self, name: str, request: Request) -> CallContext:
        """Check the token, the number of calls and the deadline of a call before its body is read.

        Raises:
            QuantraError: The token is not for the call, too many calls are in flight, or the deadline is invalid.
        """
        caller = self._guard.check(name, request.headers.items())
        if (have := self._in_flight.total()) >= self._limits.calls_in_flight:
            raise QueueFullError.of("calls are in flight", have, self._limits.calls_in_flight)
        if name == PATHS and (have := self._in_flight[name]) >= self._limits.streams:  # each may hold 16 MB of paths
            raise QueueFullError.of("simulations of paths are in flight", have, self._limits.streams)
        return replace(CallContext.with_timeout(_read_timeout_s(request)), caller=caller)

    async def _call(self, name: str, body: bytes, context: CallContext, request: Request) -> bytes:
        """Answer a call; its work ends if the caller leaves.

        Raises:
            QuantraError: As `PredictionCalls.handle`, or the deadline has passed.
        """
        if self._calls is None:
            raise UnavailableError("the models are still loading; retry in a moment")
        answer = await self._await_answer(self._calls.call(name, body, context), context, request)
        if len(answer) > self._limits.send_bytes:
            raise RequestTooLargeError(
                f"the response has {len(answer)} bytes, at most {self._limits.send_bytes}; request fewer symbols, "
                "targets or paths, or less detail",
                metadata={"have": str(len(answer)), "most": str(self._limits.send_bytes)},
            )
        return answer

    async def _await_answer(self, answer: "Future[bytes]", context: CallContext, request: Request) -> bytes:
        """Wait for an answer, as `_await_finish`.

        Raises:
            QuantraError: As `_call`.
        """
        if not answer.done():
            await self._await_finish(answer, context, request)
        try:
            return answer.result()
        except CancelledError:
            raise CallCancelledError("the call was cancelled before its response was ready") from None

    async def _await_finish(self, answer: "Future[bytes]", context: CallContext, request: Request) -> None:
        """Wait for an answer until its deadline, or until the caller leaves; then its work is cancelled.

        Raises:
            QuantraError: One of both happened.
        """
        completion = asyncio.Event()
        answer.add_done_callback(lambda _: self._bridge.call(completion.set))
        answer_task = asyncio.ensure_future(completion.wait())
        disconnect_task = asyncio.ensure_future(_wait_until_left(request))
        timeout_s = None if math.isinf(context.left_s) else context.left_s
        try:
            await asyncio.wait({answer_task, disconnect_task}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answer_task.cancel()
            disconnect_task.cancel()
        if not answer.done():
            try:
                context.check()
                raise CallCancelledError("the caller disconnected")
            finally:
                context.cancel()
                answer.cancel()


async def _wait_until_left(request: Request) -> None:
    """Wait until the caller disconnects; the body of a GET may come before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check_type(request: Request) -> None:
    """Check the content type; a page of another site may send only others."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise MalformedRequestError(f"the content type is not {JSON}; send the header content-type: {JSON}")


def _read_timeout_s(request: Request) -> float | None:
    """Read the deadline of a call; None without one."""
    text = request.headers.get(TIMEOUT_HEADER)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise MalformedRequestError(
            f"{TIMEOUT_HEADER} is {text[:20]!r}; send seconds above 0 and up to {MAX_TIMEOUT_S:g}, such as 2.5"
        )
    return seconds


def join_paths(messages: Sequence[bytes]) -> bytes:
    """Join the messages of simulated paths into one, whose first path is 0."""
    parts = [pb.SimulatePathsResponse.FromString(message) for message in messages]
    parts[0].returns = b"".join(part.returns for part in parts)
    return parts[0].SerializeToString()


def _simulate(calls: "PredictionCalls", body: bytes, context: CallContext) -> "Future[bytes]":
    """Simulate paths, and join the messages of the response."""
    messages: list[bytes] = []
    answer: Future[bytes] = Future()
    call = calls.open(PATHS, context, messages.append)

    def finish(future: "Future[None]") -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            future.result()
            answer.set_result(join_paths(messages))
        except Exception as error:  # noqa: BLE001 - callback's boundary: the caller gets the error
            answer.set_exception(error)

    call.completion.add_done_callback(finish)
    call.send(body)
    call.end_requests()
    return answer

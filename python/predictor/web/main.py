"""The life cycle of an HTTP server: bind, answer that models are loading, load, serve, drain."""

import asyncio
import json
import logging
import os
import ssl
import sys
import threading
import webbrowser
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from socket import socket
from typing import Any, Final, final

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from predictor.errors import MalformedRequestError, PermissionDeniedError, QuantraError
from predictor.server import Address
from predictor.server.addresses import bind
from predictor.server.credentials import CredentialRotation, make_current_context
from predictor.server.host import join_lines, load_service, log_problems, watch_models
from predictor.server.loop_bridge import InlineBatcher
from predictor.server.process import ShutdownSignal, exit_now, handle_signals, run, tune_process
from predictor.web.api import TIMEOUT_HEADER, Api, ByteCalls, ServiceCalls
from predictor.web.page_access import (
    ROOT,
    LoadedPage,
    LoadPage,
    PageAccess,
    PageContext,
    PageModels,
    PageToken,
    ServiceModels,
)
from predictor.web.remote_server import ForwardedCalls, RemoteModels, RemoteServer
from predictor.web.responses import respond, respond_error
from predictor.web.settings import WebSettings
from predictor.web.workspace import WorkspaceWidgets
from predictor.wire import errors

LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of each response that does not set them."""


@final
class HostCheck:
    """Rejects requests whose Host header does not name this server. This prevents DNS rebinding.

    Args:
        app: The routes.
        names: Names and addresses of this server.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app, self._names = app, frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        host = _parse_host(Headers(scope=scope).getlist("host"))
        if scope["type"] != "http":
            return
        if host in self._names:
            await self._app(scope, receive, send_with_headers)
            return
        error = PermissionDeniedError(
            f"{host[:80]!r} is not a name of this server; use {' or '.join(sorted(self._names))}, or start it with "
            "--host NAME"
        )
        await respond_error(error, ends_connection=True)(scope, receive, send_with_headers)


def host_names(address: Address, others: Iterable[str]) -> frozenset[str]:
    """Return the names of a server: that of its address, those of this machine if it is local, and others."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return frozenset({host.lower(), *(name.lower() for name in others)}) | (
        LOCAL_NAMES if address.is_loopback else frozenset()
    )


def _parse_host(values: list[str]) -> str:
    """Return the host of a request, without the port; empty if there is not exactly one."""
    if len(values) != 1:
        return ""
    name, colon, port = values[0].lower().rpartition(":")
    return name if colon and port.isdecimal() else values[0].lower()


_HEADER_TIMEOUT_S: Final = 10.0
"""Seconds in which the headers of a request must arrive."""
_IDLE_TIMEOUT_S: Final = 300
"""Seconds after which a connection without requests is closed."""


def serve(settings: WebSettings, load_page: LoadPage | None = None) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; the first line on stdout is JSON and means that the server is ready.

    Args:
        settings: Settings of the server.
        load_page: Creates the page; None: only calls.

    Returns:
        0 after a clean shutdown, 1 if the server could not start, with the reason on stderr.
    """
    try:
        with tune_process():
            is_loading = run(_serve(settings, load_page))
    except QuantraError as error:
        sys.stderr.write(f"{join_lines(error)}\n")
        return 1
    if is_loading:
        exit_now()
    return 0


async def _serve(settings: WebSettings, load_page: LoadPage | None) -> bool:
    """Serve; whether models were still loading at the end."""
    limits, shutdown = settings.server.limits, ShutdownSignal()
    rotation = CredentialRotation(settings.server, protocol="http/1.1")
    api = Api(rotation.guard, limits)
    with handle_signals(shutdown):
        sockets = bind(settings.address)
        app = create_app(settings, api)
        certificates = rotation.certificates
        tls = None if certificates is None else make_current_context(certificates)
        server = _create_server(app, tls, limits.drain_s)
        serving = asyncio.create_task(server.serve(sockets))
        serving.add_done_callback(lambda _: shutdown.requested.set())  # if it fails, everything else ends
        tasks = [asyncio.create_task(rotation.follow())]
        backend: _Backend | None = None
        page: LoadedPage | None = None
        try:
            loading = asyncio.ensure_future(_load(settings, may_be_empty=load_page is not None))
            if not await shutdown.run(_wait(loading)):
                return True
            backend = loading.result()
            api.serve(backend.calls)
            if backend.refresh is not None:
                tasks.append(asyncio.create_task(watch_models(backend.refresh)))
            if load_page is not None:
                page = load_page(PageContext(settings.server, backend.models, backend.refresh))
            _announce(settings, sockets, None if page is None else _add_page(app, page))
            await shutdown.requested.wait()
        finally:
            async with AsyncExitStack() as cleanup:
                if backend is not None:
                    cleanup.callback(backend.close)
                if page is not None:
                    cleanup.push_async_callback(asyncio.to_thread, page.close)
                for task in tasks:
                    cleanup.callback(task.cancel)
                server.should_exit = True
                await serving
    return False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Backend:
    """Source of the responses: the models of a folder, or another server."""

    calls: ByteCalls
    models: PageModels
    refresh: Callable[[], None] | None
    """Applies changes of the models folder; None for another server."""
    close: Callable[[], None]


async def _load(settings: WebSettings, *, may_be_empty: bool) -> _Backend:
    """Load the models on another thread, or connect; a page may start without models, because it can train one."""
    if settings.remote is not None:
        return await asyncio.to_thread(_connect, settings.remote)
    schedule = InlineBatcher().schedule
    backend = await asyncio.to_thread(
        load_service,
        settings.server,
        log_problems,
        lambda: None,
        None,
        schedule,
        is_recording=False,
        may_be_empty=may_be_empty,
    )
    log_problems(backend.service.problems)

    def refresh() -> None:
        if backend.widths is not None:
            backend.widths.follow()
        log_problems(backend.service.served.refresh())

    return _Backend(
        calls=ServiceCalls(backend.calls),
        models=ServiceModels(backend.service),
        refresh=refresh,
        close=backend.close,
    )


def _connect(server: RemoteServer) -> _Backend:
    """Connect to another server, and check that it answers; raises QuantraError if the server does not respond."""
    calls, models = ForwardedCalls(server), RemoteModels(server)

    def close() -> None:
        calls.close()
        models.close()

    try:
        models.models()
    except QuantraError:
        close()
        raise
    return _Backend(calls=calls, models=models, refresh=None, close=close)


async def _wait(future: "asyncio.Future[_Backend]") -> None:
    """Wait for the backend; a cancellation does not reach it."""
    await asyncio.shield(future)


def _add_page(app: Starlette, page: LoadedPage) -> PageToken:
    """Add the routes of the page, and return the token that opens it."""
    token = PageToken()
    app.mount(ROOT, PageAccess(Router(page.routes), token))
    app.add_route("/", lambda _: RedirectResponse(f"{ROOT}/"))
    return token


def _announce(settings: WebSettings, sockets: Sequence[socket], token: PageToken | None) -> None:
    """Print the ready line, with the page's address, and open the page."""
    port = sockets[0].getsockname()[1]
    line = {"ready": True, "port": port, "pid": os.getpid(), "version": version("quantra")}
    if token is not None:
        scheme = "http" if settings.server.tls is None else "https"
        line["page"] = token.address(scheme, str(replace(settings.address, port=port)))
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    if settings.opens_browser and token is not None:
        threading.Thread(target=webbrowser.open, args=(line["page"],), name="browser", daemon=True).start()


def create_app(settings: WebSettings, api: Api) -> Starlette:
    """Create the routes, behind the checks of every request."""
    middleware = [Middleware(HostCheck, names=host_names(settings.address, settings.hosts))]
    if settings.origins:
        headers = ["authorization", "content-type", TIMEOUT_HEADER]
        cors = Middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_headers=headers,
            allow_private_network=True,  # browsers ask for it before a public site reaches 127.0.0.1
        )
        middleware.append(cors)
    unknown = {404: _respond_unknown, 405: _respond_unknown}
    widgets = WorkspaceWidgets(api, settings.server.ledger, settings.origins)
    return Starlette(routes=[*api.routes(), *widgets.routes()], middleware=middleware, exception_handlers=unknown)


async def _respond_unknown(request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 404
    problem = MalformedRequestError(f"no {request.method} of {request.url.path[:80]!r}; see /openapi.json")
    response = respond(errors.encode(problem), code=code)
    if isinstance(error, HTTPException) and error.headers:
        response.headers.update(error.headers)
    return response


def _create_server(app: Starlette, tls: ssl.SSLContext | None, drain_s: float) -> "Server":
    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=logging.ERROR,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_IDLE_TIMEOUT_S,
        timeout_graceful_shutdown=round(drain_s),
    )
    config.load()
    config.ssl = tls  # uvicorn's own context reads the files once
    return Server(config)


@final
class Server(uvicorn.Server):
    """Uvicorn's server, without its signal handlers."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the signals to `handle_signals`."""
        yield


@final
class TimedProtocol(H11Protocol):
    """Uvicorn's HTTP/1.1, which also closes connections whose first request or whose headers do not arrive."""

    def connection_made(self, transport: Any) -> None:
        """Begin a connection."""
        super().connection_made(transport)
        self._limit_headers()

    def data_received(self, data: bytes) -> None:
        """Read bytes of a request."""
        super().data_received(data)
        is_idle = not self.cycle or self.cycle.response_complete
        if is_idle and self.timeout_keep_alive_task is None:
            self._limit_headers()

    def _limit_headers(self) -> None:
        if not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(_HEADER_TIMEOUT_S, self.timeout_keep_alive_handler)

"""The life cycle of a server: bind, load, serve, watch the models folder, drain."""

import asyncio
import gc
import logging
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from predictor._pb import prediction_pb2 as pb
from predictor.call_context import NEVER, Observer
from predictor.errors import InternalError, LedgerError, QuantraError
from predictor.server.addresses import BoundAddresses
from predictor.server.credentials import CredentialRotation
from predictor.server.lifecycle_calls import LifecycleCalls, LoadLifecycle
from predictor.server.listener import Listener
from predictor.server.logs import LogSettings
from predictor.server.loop_bridge import InlineBatcher
from predictor.server.metrics import LedgerGauges, Metrics, MetricsPort, ServerGauges
from predictor.server.observed_calls import AccessLog, CallObserver, CallObservers
from predictor.server.process import ShutdownSignal, end_with_parent, exit_now, handle_signals, run, tune_process
from predictor.server.servicer import ADMIN_ENDPOINTS, LEDGER, LIFECYCLE, PUBLIC_ENDPOINTS
from predictor.server.settings import ServerSettings

if TYPE_CHECKING:
    from predictor.adaptive_widths import RecordedWidths
    from predictor.calls import AdminCalls, LedgerCalls, PredictionCalls
    from predictor.ledger import Ledger
    from predictor.service import ModelWorker, PredictionService, ServedSnapshot
    from predictor.service.served_models import ServedModels

WATCH_S: Final = 2.0
"""Seconds between two checks of the models folder."""
WIDTHS_S: Final = 1.0
"""Seconds between two searches for new adaptive widths in the ledger."""

_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True, slots=True)
class LoadedService:
    """The models and the calls that use them."""

    service: "PredictionService"
    calls: "PredictionCalls"
    admin: "AdminCalls"
    ledger: "Ledger | None"
    """None if it is disabled or cannot be opened."""
    ledger_calls: "LedgerCalls"
    widths: "RecordedWidths | None"
    """Adaptive widths of the models' bands; None without --adaptive."""

    @property
    def names(self) -> list[str]:
        """Names of the models whose champion is served."""
        return [name for name, _ in _list_champions(self.service)]

    @property
    def gauges(self) -> ServerGauges:
        """Gauges to read at any time."""
        service, calls, recorder = self.service, self.calls, self.service.recorder
        return ServerGauges(
            versions=lambda: service.served.versions,
            queues={"predictions": lambda: service.prediction_load, "explanations": lambda: service.explanation_load},
            sessions=lambda: calls.session_load.sessions,
            ledger=tuple if self.ledger is None else LedgerGauges(self.ledger).read_families,
            recorded={} if recorder is None else {"recorded": lambda: recorder.recorded, "lost": lambda: recorder.lost},
        )

    def close(self) -> None:
        """Reject new requests and finish queued ones."""
        self.admin.close()
        self.calls.close()
        self.ledger_calls.close()
        self.service.close()
        if self.ledger is not None:
            self.ledger.close()


@final
class Host:
    """One server, on the running event loop. Call `bind`, `start`, `load`, `serve` and `drain` in this order.

    `close` works at any time. A worker loads first, then binds, serves and starts, while others answer.

    Args:
        settings: Settings of the server.
        is_worker: Whether it shares its port with other processes.
        load_lifecycle: Creates the lifecycle of the models; None if the server cannot compare versions.

    Raises:
        ConfigurationError: Certificates or tokens are invalid.
    """

    def __init__(
        self, settings: ServerSettings, *, is_worker: bool = False, load_lifecycle: LoadLifecycle | None = None
    ) -> None:
        self._settings = settings
        self._lifecycle = LifecycleCalls(settings, load_lifecycle, self._serve_champion)
        self._metrics = None if settings.metrics_port is None else Metrics()
        self._metrics_port: MetricsPort | None = None
        if self._metrics is not None and settings.metrics_port is not None and not is_worker:
            self._metrics_port = MetricsPort(self._metrics, settings.metrics_port)
        self._tracer = None
        if settings.otel:
            from predictor.server.tracer import CallTracer  # needs optional packages

            self._tracer = CallTracer()
        observers: tuple[CallObserver | None, ...] = (AccessLog(), self._metrics, self._tracer)
        self._observers = CallObservers([observer for observer in observers if observer is not None])
        self._rotation = CredentialRotation(settings)
        shared = (self._rotation.guard, self._rotation.certificates)
        self._listener = Listener(
            settings.listen, settings.limits, PUBLIC_ENDPOINTS, *shared, observers=self._observers, is_shared=is_worker
        )
        self._admin: Listener | None = None
        if settings.admin_listen is not None:
            self._admin = Listener(
                settings.admin_listen, settings.limits, ADMIN_ENDPOINTS, *shared, observers=self._observers
            )
        self._loaded_service: LoadedService | None = None
        self._loop = asyncio.get_running_loop()
        self._batcher = InlineBatcher()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def models(self) -> "ServedModels":
        """The served models, after loading."""
        return self._ready_service.service.served

    @property
    def _ready_service(self) -> LoadedService:
        assert self._loaded_service is not None  # noqa: S101 - `load` came first
        return self._loaded_service

    @property
    def _listeners(self) -> list[Listener]:
        return [self._listener] if self._admin is None else [self._listener, self._admin]

    def bind(self) -> BoundAddresses:
        """Bind the addresses before loading; raises as `Listener.bind` and `MetricsPort.bind`."""
        calls = self._listener.bind()
        admin = None if self._admin is None else self._admin.bind()
        return BoundAddresses(calls, admin, None if self._metrics_port is None else self._metrics_port.bind())

    async def start(self) -> None:
        """Start responding that models are loading."""
        if self._metrics_port is not None:
            await self._metrics_port.start()
        for listener in self._listeners:
            await listener.start()
        if self._settings.is_open:
            _log.warning("other machines can call this server without authentication; restrict it with --token-file")
        self._start_task(self._rotation.follow())

    async def load(self) -> None:
        """Load the models on a separate thread; raises QuantraError if no model can be served."""
        future: Future[LoadedService] = Future()
        future.set_running_or_notify_cancel()  # a shutdown does not cancel it, so the thread can always set its result
        schedule, observer = self._batcher.schedule, self._metrics

        def load() -> None:
            try:
                future.set_result(load_service(self._settings, self._report_change, self.refresh, observer, schedule))
            except Exception as error:  # noqa: BLE001 - thread boundary: the waiting task raises it
                future.set_exception(error)

        threading.Thread(target=load, name="load", daemon=True).start()
        self._loaded_service = await asyncio.wrap_future(future)

    def serve(self) -> None:
        """Answer calls with the loaded models."""
        backend = self._ready_service
        if self._metrics is not None:
            self._metrics.read(backend.gauges)
        log_problems(backend.service.problems)
        self._listener.serve(backend.calls, backend.names, {LEDGER.full_name: backend.ledger_calls})
        if self._admin is not None:
            self._admin.serve(backend.admin, (), {LIFECYCLE.full_name: self._lifecycle})
        if self._settings.watch:
            self._start_task(watch_models(self.refresh))
        if backend.widths is not None:
            self._start_task(self._watch_widths(backend.widths))

    @property
    def is_busy(self) -> bool:
        """Whether a comparison or promotion is in progress, which ends at its next step."""
        return self._lifecycle.is_busy

    def metrics(self) -> bytes:
        """Return the Prometheus metrics as text; empty if they are disabled."""
        return b"" if self._metrics is None else self._metrics.page("")[0]

    def change(self, name: str, request: bytes) -> "Future[bytes]":
        """Answer a call of the admin service, after loading; as `AdminCalls.handle`."""
        return self._ready_service.admin.handle(name, request, NEVER)

    def _serve_champion(self, name: str) -> None:
        self.change("ReloadModel", pb.ReloadModelRequest(model=name).SerializeToString()).result()

    def restore(self, snapshot: "ServedSnapshot") -> None:
        """Return to the models served before a change."""
        self.models.restore(snapshot)
        self._report_change()

    def refresh(self) -> None:
        """Apply changes of the models folder if it is watched. May load models, so do not call it on the event loop."""
        if self._settings.watch:
            self._report_change(self.models.refresh())

    async def drain(self) -> None:
        """Reject new calls, let those in flight finish, and close."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(listener.drain() for listener in self._listeners))

    async def close(self) -> None:
        """Release everything immediately, in any state."""
        for listener in self._listeners:
            await listener.close()
        if self._metrics_port is not None:
            await self._metrics_port.close()
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.close)
        self._lifecycle.drain()
        if self._loaded_service is not None:
            self._batcher.finish()
            self._loaded_service.close()

    @staticmethod
    async def _watch_widths(widths: "RecordedWidths") -> None:
        while True:
            await asyncio.sleep(WIDTHS_S)
            await asyncio.to_thread(widths.follow)

    def _report_change(self, problems: Sequence[QuantraError] = ()) -> None:
        """Log new problems and update health after a change of the models; called on that change's thread."""
        log_problems(problems)
        self._loop.call_soon_threadsafe(self._update_health)

    def _update_health(self) -> None:
        if self._loaded_service is not None:
            self._listener.set_health(self._loaded_service.names)

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def load_service(
    settings: ServerSettings,
    on_change: Callable[[Sequence[QuantraError]], None],
    refresh_models: Callable[[], None],
    observer: Observer | None,
    schedule: Callable[["ModelWorker"], None],
    *,
    is_recording: bool = True,
    may_be_empty: bool = False,
) -> LoadedService:
    """Load the models, and create their calls.

    Args:
        settings: Settings of the server.
        on_change: Called after a change of the models, with the problems.
        refresh_models: Applies changes of the models folder.
        observer: Receives an observation of each request.
        schedule: As for `PredictionService`.
        is_recording: Whether the ledger records clients' forecasts.
        may_be_empty: Whether the folder may be missing or hold no model yet.

    Raises:
        QuantraError: No model can be served, or the adaptive widths cannot be read.
    """
    from predictor.adaptive_widths import RecordedWidths
    from predictor.calls import (  # imports torch; import it after binding the address
        AdminCalls,
        LedgerCalls,
        PredictionCalls,
    )
    from predictor.inference import describe_engine, use_threads
    from predictor.service import ForecastRecorder, PredictionService

    # Exclude imported modules from garbage collection, which pauses every call. Models load later, so that replaced
    # ones are collected.
    gc.freeze()
    use_threads(settings.threads)
    ledger = _open_ledger(settings) if is_recording or settings.adaptive else None
    recorder = widths = None
    if ledger is not None and settings.adaptive:
        widths = RecordedWidths(ledger)
        widths.refresh()
    if ledger is not None and is_recording:
        is_strict = settings.ledger_mode == "strict"
        recorder = ForecastRecorder(ledger, engine=describe_engine(settings.engine), is_strict=is_strict)
    service = PredictionService.open(
        settings.models,
        device=settings.device,
        max_batch_rows=settings.max_batch_rows,
        limits=settings.limits.service,
        lock=settings.lock,
        max_age_sessions=settings.max_age_sessions,
        observer=observer,
        engine=settings.engine,
        schedule=schedule,
        recorder=recorder,
        widths=widths,
        may_be_empty=may_be_empty,
    )
    admin = AdminCalls(service.served, on_change, refresh_models)
    calls = PredictionCalls(service, settings.limits.service, max_bytes=settings.limits.receive_bytes)
    ledger_calls = LedgerCalls(ledger, lambda: _list_champions(service))
    return LoadedService(service, calls, admin, ledger, ledger_calls, widths)


def _list_champions(service: "PredictionService") -> list[tuple[str, int]]:
    return [(info.name, info.version) for info in service.models() if info.is_default]


def _open_ledger(settings: ServerSettings) -> "Ledger | None":
    """Open the ledger, or make it; None without --ledger, or if the server continues without it.

    Raises:
        LedgerError, OSError: The ledger cannot be opened, and the mode is strict or the widths are adaptive.
    """
    if not settings.ledger:
        return None
    from predictor.ledger import Ledger

    must_open = settings.adaptive or settings.ledger_mode == "strict"
    try:
        return Ledger.open(settings.ledger, create=not settings.adaptive, can_wait=not must_open)
    except (LedgerError, OSError) as error:
        if must_open:
            raise
        reason = error.without_address() if isinstance(error, LedgerError) else f"the ledger: {error.strerror}"
        _log.warning("forecasts are not recorded: %s", reason)
        return None


async def watch_models(refresh: Callable[[], None]) -> None:
    """Apply changes of the models folder with `refresh`, on another thread; runs until cancelled."""
    while True:
        await asyncio.sleep(WATCH_S)
        try:
            await asyncio.to_thread(refresh)
        except Exception as error:  # noqa: BLE001 - task boundary: the next check may succeed
            _log.warning("%s", InternalError.of("watching the models", error, _log).message)


def log_problems(problems: Iterable[QuantraError]) -> None:
    """Log one line per model that cannot be served."""
    lines: dict[str, list[str]] = {}
    for problem in problems:
        lines.setdefault(problem.metadata.get("model", ""), []).append(join_lines(problem))
    for messages in lines.values():
        _log.warning("not served: %s", "; ".join(messages))


def join_lines(error: QuantraError) -> str:
    """Return the message of an error as one line."""
    return " ".join(error.message.split())


def serve(settings: ServerSettings, log: LogSettings | None = None, load_lifecycle: LoadLifecycle | None = None) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP. The first line on stdout is JSON and means that the server is ready.

    Call it on the main thread. It restores signal handlers, switch interval and garbage collector settings at the end.
    A signal during loading exits the process with status 0, because loading cannot be interrupted. With
    `parent_watch`, the end of standard input exits the process after the calls in flight.

    Args:
        settings: Settings of the server.
        log: Log settings of worker processes; None: `LogSettings()`. This process keeps its own logging.
        load_lifecycle: Creates the lifecycle of the models for LifecycleService; None: its calls are rejected.

    Returns:
        0 after a clean shutdown, 1 if the server could not start, with the reason on stderr.
    """
    try:
        with tune_process():
            if settings.processes == 1:
                must_exit = run(_serve_here(settings, load_lifecycle))
            else:
                from predictor.server.workers.supervisor import supervise

                must_exit = run(supervise(settings, log or LogSettings(), load_lifecycle))
    except QuantraError as error:
        sys.stderr.write(f"{join_lines(error)}\n")
        return 1
    if must_exit:
        exit_now()
    return 0


async def _serve_here(settings: ServerSettings, load_lifecycle: LoadLifecycle | None) -> bool:
    """Run in this process.

    Returns:
        True if the process must exit without cleanup, because models are loading or compared, or the parent is gone.
    """
    host, shutdown = Host(settings, load_lifecycle=load_lifecycle), ShutdownSignal()
    with handle_signals(shutdown, parent_watch=settings.parent_watch):
        try:
            if settings.parent_watch:
                end_with_parent(shutdown)
            addresses = host.bind()
            await host.start()
            if not await shutdown.run(host.load()):
                _log.info("stopping before the models are loaded")
                return True
            host.serve()
            addresses.announce()
            await shutdown.requested.wait()
            _log.info("stopping: calls in flight may finish")
            await shutdown.drain(host.drain())
        finally:
            await host.close()
    return shutdown.orphaned.is_set() or host.is_busy

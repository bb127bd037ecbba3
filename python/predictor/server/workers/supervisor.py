"""A supervisor process: it owns the port, the admin address and the metrics of all workers, and serves no forecasts."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias, final

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from predictor._pb import inference_pb2 as inference_pb
from predictor._pb import prediction_pb2 as pb
from predictor.errors import QueueFullError
from predictor.memory import make_caller_error
from predictor.server.addresses import Address, BoundAddresses, reserve_address
from predictor.server.credentials import CredentialRotation
from predictor.server.lifecycle_calls import LifecycleCalls, LoadLifecycle
from predictor.server.listener import Listener
from predictor.server.logs import LogSettings
from predictor.server.metrics import LEDGER_GAUGES, MetricsPort
from predictor.server.process import ShutdownSignal, end_with_parent, handle_signals
from predictor.server.servicer import ADMIN_ENDPOINTS, LIFECYCLE
from predictor.server.settings import ServerSettings
from predictor.server.workers.channel import LoadModels
from predictor.server.workers.pool import WorkerPool

if TYPE_CHECKING:
    from predictor.call_context import CallContext
    from predictor.server.workers.worker_process import WorkerProcess

_log = logging.getLogger(__name__)

_MAX_WAITING: Final = 16
TIMEOUT_S: Final = 4.0
"""Longest wait for the metrics of workers in seconds."""
_NOT_SUMMED: Final = LEDGER_GAUGES | {"quantra_build_info", "process_start_time_seconds", "process_max_fds"}
"""Metrics whose sum is meaningless; the largest value is reported instead."""
_CUMULATIVE: Final = frozenset({"counter", "histogram"})
"""Metric types that keep the counts of ended workers, because they must never decrease."""

Families: TypeAlias = Mapping[str, Metric]
"""Metrics by name."""
Sample: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels of a sample."""


@final
class MetricTotals:
    """Metrics of all workers, ended ones included.

    Counts between the last scrape of a worker and its death are lost.
    """

    def __init__(self, pool: WorkerPool, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self._loop = loop
        self._last_metrics: dict[WorkerProcess, Families] = {}
        """Last metrics of each worker."""
        self._ended_metrics: Families = {}
        """Summed metrics of ended workers."""

    def page(self, accepted: str) -> tuple[bytes, str]:
        """Return all metrics and their content type. See `Metrics.page`. Call it on a thread other than the loop's."""
        pages = asyncio.run_coroutine_threadsafe(self._pool.metrics(TIMEOUT_S), self._loop).result()
        for worker in self._last_metrics.keys() - pages.keys():
            last = self._last_metrics.pop(worker)
            cumulative = {name: family for name, family in last.items() if family.type in _CUMULATIVE}
            self._ended_metrics = combine([self._ended_metrics, cumulative])
        for worker, page in pages.items():
            if page is not None:  # otherwise it is busy, and its last metrics count
                self._last_metrics[worker] = parse_families(page)
        encode, content_type = choose_encoder(accepted)
        return encode(self), content_type

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, as of the last call of `page`."""
        yield from combine([self._ended_metrics, *self._last_metrics.values()]).values()


def parse_families(page: bytes) -> Families:
    """Parse metrics in Prometheus' text format."""
    return {family.name: family for family in text_string_to_metric_families(page.decode())}


def combine(pages: Iterable[Families]) -> Families:
    """Combine samples of the same name and labels: their sum, or the largest value for metrics in `_NOT_SUMMED`."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[Sample, list[float]]] = defaultdict(lambda: defaultdict(list))
    for page in pages:
        for name, family in page.items():
            families.setdefault(name, Metric(name, family.documentation, family.type, family.unit))
            for sample in family.samples:
                values[name][sample.name, tuple(sample.labels.items())].append(sample.value)
    for name, family in families.items():
        join = max if name in _NOT_SUMMED else sum
        for (sample, labels), numbers in values[name].items():
            family.add_sample(sample, dict(labels), join(numbers))
    return families


@final
class AdminCallRouter:
    """Sends changes of models to all workers and lists of models to one, on the running event loop."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._changes, self._queries = set[asyncio.Task[None]](), set[asyncio.Task[None]]()

    def handle(self, name: str, request: bytes, context: "CallContext") -> "Future[bytes]":
        """Apply changes one at a time, or list the served models; as `AdminCalls.handle`."""
        answer: Future[bytes] = Future()
        if name == "ServerLive":
            answer.set_result(inference_pb.ServerLiveResponse(live=True).SerializeToString())
        elif name == "ServerReady":
            is_ready = bool(self._pool.serving)
            answer.set_result(inference_pb.ServerReadyResponse(ready=is_ready).SerializeToString())
        elif name == "RepositoryIndex":
            self._start(self._queries, self._pool.query(name, request), name, answer)
        elif len(self._changes) >= _MAX_WAITING:
            answer.set_exception(QueueFullError.of("changes wait", len(self._changes), _MAX_WAITING))
        else:
            self._start(self._changes, self._pool.change(name, request, context), name, answer)
        return answer

    def drain(self) -> None:
        """Do nothing: this service has no streams."""

    def _start(
        self, tasks: "set[asyncio.Task[None]]", call: Coroutine[None, None, bytes], name: str, answer: "Future[bytes]"
    ) -> None:
        task = asyncio.create_task(self._answer(call, name, answer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _answer(self, call: Coroutine[None, None, bytes], name: str, answer: "Future[bytes]") -> None:
        try:
            response = await call
        except Exception as error:  # noqa: BLE001 - task boundary: the caller gets the error
            if answer.set_running_or_notify_cancel():
                answer.set_exception(make_caller_error(name, error, _log))
        else:
            if answer.set_running_or_notify_cancel():
                answer.set_result(response)


@final
class SupervisorEndpoint:
    """The supervisor's own addresses, if any, on the running event loop.

    Call `bind`, `start`, `serve` and `drain` in this order; `close` works at any time.

    Raises:
        ConfigurationError: certificates or tokens are invalid.
    """

    def __init__(self, settings: ServerSettings, pool: WorkerPool, load_lifecycle: LoadLifecycle | None = None) -> None:
        self._settings = settings
        self._pool = pool
        self._rotation = CredentialRotation(settings)
        guard, certificates = self._rotation.guard, self._rotation.certificates
        self._admin: Listener | None = None
        if settings.admin_listen is not None:
            self._admin = Listener(settings.admin_listen, settings.limits, ADMIN_ENDPOINTS, guard, certificates)
        self._loop = asyncio.get_running_loop()
        self._lifecycle = LifecycleCalls(settings, load_lifecycle, self._serve_champion)
        totals = MetricTotals(pool, self._loop)
        self._metrics = None if settings.metrics_port is None else MetricsPort(totals, settings.metrics_port)
        self._rotation_task: asyncio.Task[None] | None = None

    def bind(self, shared: Address) -> BoundAddresses:
        """Bind the addresses; return all of the server, whose workers share one. Raises as `Host.bind`."""
        admin = None if self._admin is None else self._admin.bind()
        return BoundAddresses(shared, admin, None if self._metrics is None else self._metrics.bind())

    async def start(self) -> None:
        """Start responding that models are loading, and serving the metrics."""
        if self._metrics is not None:
            await self._metrics.start()
        if self._admin is not None:
            await self._admin.start()
            self._rotation_task = asyncio.create_task(self._rotation.follow())

    def serve(self) -> None:
        """Start executing admin calls."""
        if self._admin is not None:
            self._admin.serve(AdminCallRouter(self._pool), (), {LIFECYCLE.full_name: self._lifecycle})

    @property
    def is_busy(self) -> bool:
        """Whether a comparison or promotion is in progress, which ends at its next step."""
        return self._lifecycle.is_busy

    def _serve_champion(self, name: str) -> None:
        change = self._pool.change("ReloadModel", pb.ReloadModelRequest(model=name).SerializeToString())
        asyncio.run_coroutine_threadsafe(change, self._loop).result()

    async def drain(self) -> None:
        """Reject new admin calls and let those in progress finish."""
        if self._admin is not None:
            await self._admin.drain()

    async def close(self) -> None:
        """Release everything immediately."""
        if self._rotation_task is not None:
            self._rotation_task.cancel()
        self._lifecycle.drain()
        if self._admin is not None:
            await self._admin.close()
        if self._metrics is not None:
            await self._metrics.close()


async def supervise(settings: ServerSettings, log: LogSettings, load_lifecycle: LoadLifecycle | None = None) -> bool:
    """Serve with `settings.processes` workers until a shutdown request.

    Returns:
        Whether this process must exit immediately: its parent has exited, or versions are being compared.

    Raises:
        ConfigurationError: an address is in use, or workers cannot serve.
    """
    assert isinstance(settings.listen, Address)  # noqa: S101 - checked by the settings
    shutdown = ShutdownSignal()
    with (
        handle_signals(shutdown, parent_watch=settings.parent_watch),
        reserve_address(settings.listen) as address,
    ):
        if settings.parent_watch:
            end_with_parent(shutdown)
        worker_settings = replace(settings, listen=address, admin_listen=None, processes=1, parent_watch=False)
        pool = WorkerPool(LoadModels(worker_settings, log), settings.processes)
        endpoint = SupervisorEndpoint(settings, pool, load_lifecycle)
        try:
            await _serve(pool, endpoint, endpoint.bind(address), shutdown)
        finally:
            await pool.close()
            await endpoint.close()
    return shutdown.orphaned.is_set() or endpoint.is_busy


async def _serve(
    pool: WorkerPool, endpoint: SupervisorEndpoint, addresses: BoundAddresses, shutdown: ShutdownSignal
) -> None:
    await endpoint.start()
    _log.info("starting the workers")
    try:
        if await shutdown.run(pool.start()):
            endpoint.serve()
            addresses.announce()
            await shutdown.run(pool.replace_exited_workers())
    finally:
        if shutdown.requested.is_set():
            _log.info("stopping: calls in flight may finish")
        await shutdown.drain(endpoint.drain())
        await pool.drain(shutdown.orphaned)

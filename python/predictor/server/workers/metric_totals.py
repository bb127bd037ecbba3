"""Prometheus metrics summed over all workers."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, final

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from predictor.server.monitoring import ledger_gauges
from predictor.server.workers.pool import WorkerPool

if TYPE_CHECKING:
    from predictor.server.workers.process import Worker

TIMEOUT_S: Final = 4.0
"""Longest wait for the metrics of workers in seconds."""
_NOT_SUMMED: Final = ledger_gauges.NAMES | {"quantra_build_info", "process_start_time_seconds", "process_max_fds"}
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

    Args:
        pool: the workers.
        loop: event loop of the workers.
    """

    def __init__(self, pool: WorkerPool, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self._loop = loop
        self._last: dict[Worker, Families] = {}
        """Last metrics of each worker."""
        self._ended: Families = {}
        """Summed metrics of ended workers."""

    def page(self, accepted: str) -> tuple[bytes, str]:
        """Return all metrics and their content type. See `Metrics.page`. Call it on a thread other than the loop's."""
        pages = asyncio.run_coroutine_threadsafe(self._pool.metrics(TIMEOUT_S), self._loop).result()
        for worker in self._last.keys() - pages.keys():
            last = self._last.pop(worker)
            cumulative = {name: family for name, family in last.items() if family.type in _CUMULATIVE}
            self._ended = combine([self._ended, cumulative])
        for worker, page in pages.items():
            if page is not None:  # otherwise it is busy, and its last metrics count
                self._last[worker] = parse_families(page)
        encode, content_type = choose_encoder(accepted)
        return encode(_FamiliesRegistry(combine([self._ended, *self._last.values()]))), content_type


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
class _FamiliesRegistry:
    """Metrics with the interface of a registry."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Iterate over the metrics."""
        return iter(self._families.values())

"""Prometheus metrics summed over all workers."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, final

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from predictor.server.workers.pool import WorkerPool

if TYPE_CHECKING:
    from predictor.server.workers.process import Worker

PATIENCE_S: Final = 4.0
"""Longest wait for the metrics of workers in seconds."""
_LARGEST: Final = frozenset({"quantra_build_info", "process_start_time_seconds", "process_max_fds"})
"""Metrics whose sum is meaningless; the largest value is reported instead."""
_COUNTED: Final = frozenset({"counter", "histogram"})
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
        team: the workers.
        loop: event loop of the workers.
    """

    def __init__(self, team: WorkerPool, loop: asyncio.AbstractEventLoop) -> None:
        self._team = team
        self._loop = loop
        self._last: dict[Worker, Families] = {}
        """Last metrics of each worker."""
        self._ended: Families = {}
        """Summed metrics of ended workers."""

    def page(self, accepted: str) -> tuple[bytes, str]:
        """Return all metrics and their content type. See `Metrics.page`. Call it on a thread other than the loop's."""
        pages = asyncio.run_coroutine_threadsafe(self._team.numbers(PATIENCE_S), self._loop).result()
        for worker in self._last.keys() - pages.keys():
            counted = {name: one for name, one in self._last.pop(worker).items() if one.type in _COUNTED}
            self._ended = added([self._ended, counted])
        for worker, page in pages.items():
            if page is not None:  # otherwise it is busy, and its last metrics count
                self._last[worker] = families_of(page)
        encode, content_type = choose_encoder(accepted)
        return encode(_Page(added([self._ended, *self._last.values()]))), content_type


def families_of(page: bytes) -> Families:
    """Parse metrics in Prometheus' text format."""
    return {family.name: family for family in text_string_to_metric_families(page.decode())}


def added(pages: Iterable[Families]) -> Families:
    """Combine samples of the same name and labels: their sum, or the largest value for metrics in `_LARGEST`."""
    found: dict[str, Metric] = {}
    values: dict[str, dict[Sample, list[float]]] = defaultdict(lambda: defaultdict(list))
    for page in pages:
        for name, family in page.items():
            found.setdefault(name, Metric(name, family.documentation, family.type, family.unit))
            for sample in family.samples:
                values[name][sample.name, tuple(sample.labels.items())].append(sample.value)
    for name, family in found.items():
        join = max if name in _LARGEST else sum
        for (sample, labels), every in values[name].items():
            family.add_sample(sample, dict(labels), join(every))
    return found


@final
class _Page:
    """Metrics with the interface of a registry."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Iterate over the metrics."""
        return iter(self._families.values())

"""The numbers of all workers together, for Prometheus."""

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
"""How long workers may take to tell their numbers."""
_LARGEST: Final = frozenset({"quantra_build_info", "process_start_time_seconds", "process_max_fds"})
"""Of which a sum would say nothing."""
_COUNTED: Final = frozenset({"counter", "histogram"})
"""Kinds of which what an ended worker has counted still counts: they never fall."""

Families: TypeAlias = Mapping[str, Metric]
"""By their names."""
Sample: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""Its name and labels."""


@final
class MetricTotals:
    """What Prometheus reads of several workers, those that have ended included.

    What a worker counted between the last time that it was asked and its death is lost with it.

    Args:
        team: the workers.
        loop: the event loop on which they are.
    """

    def __init__(self, team: WorkerPool, loop: asyncio.AbstractEventLoop) -> None:
        self._team = team
        self._loop = loop
        self._last: dict[Worker, Families] = {}
        """What each told last."""
        self._ended: Families = {}
        """What those that have ended told, together."""

    def page(self, accepted: str) -> tuple[bytes, str]:
        """All of it, and its content type; as `Metrics.page`, on a thread other than the loop's."""
        pages = asyncio.run_coroutine_threadsafe(self._team.numbers(PATIENCE_S), self._loop).result()
        for worker in self._last.keys() - pages.keys():
            counted = {name: one for name, one in self._last.pop(worker).items() if one.type in _COUNTED}
            self._ended = added([self._ended, counted])
        for worker, page in pages.items():
            if page is not None:  # else it is busy, and what it told before stands
                self._last[worker] = families_of(page)
        encode, content_type = choose_encoder(accepted)
        return encode(_Page(added([self._ended, *self._last.values()]))), content_type


def families_of(page: bytes) -> Families:
    """Read what Prometheus would."""
    return {family.name: family for family in text_string_to_metric_families(page.decode())}


def added(pages: Iterable[Families]) -> Families:
    """Samples of the same name and labels as one; their sum, or of those that are no amounts the largest."""
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
    """As a registry is read."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Every metric."""
        return iter(self._families.values())

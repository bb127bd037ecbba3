"""What a consumer of reports is, and several of them as one."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, final

from trainers.loop import Report


class Consumer(Protocol):
    """Takes reports and hands them on."""

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """The same reports, in the same order."""
        ...


@final
class Chain:
    """Several consumers as one; without any it only hands reports on.

    Args:
        consumers: The first of them sees a report before the others do.
    """

    def __init__(self, consumers: Sequence[Consumer] = ()) -> None:
        self._consumers = tuple(consumers)

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Hand every report through all consumers."""
        passing = iter(reports)
        for consumer in self._consumers:
            passing = consumer(passing)
        return passing

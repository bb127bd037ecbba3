"""Counting what a request holds, before it waits: at once where that takes a moment, else on a thread for it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from predictor.calls.chaining import follow
from predictor.instance import Cancellation, Deadline
from predictor.limits import QueueLimits
from predictor.service import Item, TurnLane, WorkQueue
from predictor.wire.limits import MAX_PARTS
from predictor.wire.tags import TooManyPartsError

if TYPE_CHECKING:
    from concurrent.futures import Future

AT_ONCE: Final = 256
"""Fields of a request that are counted on the caller's own thread, in a tenth of a millisecond; larger requests are
counted on a thread for it, so that no caller, such as an event loop, is held up."""

CountedT = TypeVar("CountedT")
Count = Callable[[bytes, int], CountedT]
"""Count a request of so many fields at most; raises as `count_parts`."""


@final
@dataclass(frozen=True, slots=True)
class Uncounted(Generic[CountedT]):
    """A request that is counted in its turn."""

    body: bytes
    count: Count[CountedT]
    rows: int = 0

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.body)

    def step(self, now: datetime, deadline: Cancellation) -> CountedT:  # noqa: ARG002 - it takes a moment only
        """What it holds; raises as `count`."""
        return self.count(self.body, MAX_PARTS)


@final
class Counting:
    """Counts requests. Thread-safe.

    Args:
        limits: of those that wait for it.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self._queue = WorkQueue(limits)
        self._lane = TurnLane("count", self._queue)

    def then(  # one request on its way, whole
        self,
        name: str,
        body: bytes,
        count: Count[CountedT],
        deadline: Deadline,
        answer: "Future[bytes]",
        begin: Callable[[CountedT], None],
    ) -> None:
        """Count a request of this call and let `begin` go on with what it holds, perhaps on another thread.

        Raises:
            QuantraError: what was counted at once is refused; what is counted later ends `answer` so.
        """
        try:
            counted = count(body, AT_ONCE)
        except TooManyPartsError:
            item: Item[Uncounted[CountedT], CountedT] = Item(Uncounted(body, count), deadline)
            self._lane.put(name, item)
            follow(name, item.answer, answer, begin)
        else:
            begin(counted)

    def close(self) -> None:
        """Finish counting what waits, and count no more."""
        self._queue.close()
        self._queue.join()

"""What waits for its answer: one queue for all models, bounded in calls, rows and bytes.

`QueuedRequests` is the policy alone: who comes next, who is dropped, who is refused. `RequestQueue` lets threads use
it.
"""

import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar, final
from weakref import WeakSet

from predictor.errors import QuantraError, QueueFullError, UnavailableError
from predictor.instance import Deadline
from predictor.limits import QueueLimits
from predictor.service.request_record import RequestRecord


class SizedRequest(Protocol):
    """What is asked, whatever it is."""

    @property
    def rows(self) -> int:
        """Symbols that it asks about."""
        ...

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        ...


AskedT = TypeVar("AskedT", bound=SizedRequest)
AnswerT = TypeVar("AnswerT")


@final
@dataclass(frozen=True, slots=True, eq=False)
class QueuedRequest(Generic[AskedT, AnswerT]):
    """One call that waits, or is being worked on. Each is itself alone: two with the same content are not equal."""

    asked: AskedT
    deadline: Deadline
    answer: "Future[AnswerT]" = field(default_factory=Future)
    asked_at_s: float = field(default_factory=time.perf_counter)
    record: RequestRecord | None = None
    """What is noted of it; None = nobody observes."""

    def __post_init__(self) -> None:
        """Have its record told of the answer, before anybody else is."""
        if self.record is not None:
            self.answer.add_done_callback(self.record.told)

    def begin(self) -> bool:
        """Whether work on it may begin, or go on: from then on it can no longer be cancelled by its future."""
        return (self.answer.running() or self.answer.set_running_or_notify_cancel()) and self.is_wanted()

    def is_wanted(self) -> bool:
        """Whether anybody still waits for the answer; where not, the answer is why."""
        try:
            self.deadline.check()
        except QuantraError as error:
            self.answer.set_exception(error)
            return False
        return True


AnyItem = QueuedRequest[Any, Any]


@final
class ModelQueue:
    """Those who wait for the same, where a thread of their own takes them. Only its queue changes it."""

    def __init__(self) -> None:
        self.bell: SimpleQueue[None] = SimpleQueue()
        """Rung when the thread has to look."""
        self.is_closed = False


@final
class QueuedRequests:
    """Items in lines, first come first served within each. Not safe for threads.

    Args:
        limits: of everything that waits or is being worked on.
        clock: seconds, of the deadlines' clock.
    """

    def __init__(self, limits: QueueLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._lines: dict[Hashable, dict[AnyItem, None]] = {}
        self._held: dict[AnyItem, Hashable] = {}
        self._rows = self._size = 0

    def put(self, line: Hashable, item: AnyItem) -> list[AnyItem]:
        """Let an item wait.

        Returns:
            Items whose time is over, which were dropped to make room.

        Raises:
            QueueFullError: there is no room for it.
        """
        dropped = self._drop_late() if self._excess(item) else []
        if excess := self._excess(item):
            raise excess
        self._lines.setdefault(line, {})[item] = None
        self._count(line, item)
        return dropped

    def hold(self, line: Hashable, item: AnyItem) -> bool:
        """Count an item that is worked on at once; False, and not counted, where others wait or are worked on."""
        if self._held or self._excess(item):
            return False
        self._count(line, item)
        return True

    def take(self, line: Hashable, most_rows: int) -> list[AnyItem]:
        """The next items of a line, up to so many rows together, but at least one if any waits."""
        waiting = self._lines.get(line, {})
        taken: list[AnyItem] = []
        rows = 0
        for item in waiting:
            rows += item.asked.rows
            if taken and rows > most_rows:
                break
            taken.append(item)
        for item in taken:
            self._leave(line, item)
        return taken

    def take_in_turn(self) -> AnyItem | None:
        """The next item of the line that was served longest ago; None if nothing waits."""
        if not self._lines:
            return None
        line, waiting = next(iter(self._lines.items()))
        item = next(iter(waiting))
        self._leave(line, item)
        if line in self._lines:
            self._lines[line] = self._lines.pop(line)
        return item

    def put_back(self, item: AnyItem) -> None:
        """Let an item that was taken wait for another turn."""
        self._lines.setdefault(self._held[item], {})[item] = None

    def release(self, item: AnyItem) -> None:
        """An item has its answer, or needs none: it neither waits nor counts any longer."""
        line = self._held.pop(item, None)
        if line is not None:
            self._leave(line, item)
            self._rows -= item.asked.rows
            self._size -= item.asked.size

    def has(self, line: Hashable) -> bool:
        """Whether anything waits in a line."""
        return line in self._lines

    @property
    def held(self) -> tuple[int, int, int]:
        """Calls, rows and bytes that wait or are being worked on."""
        return len(self._held), self._rows, self._size

    def _count(self, line: Hashable, item: AnyItem) -> None:
        self._held[item] = line
        self._rows += item.asked.rows
        self._size += item.asked.size

    def _leave(self, line: Hashable, item: AnyItem) -> None:
        waiting = self._lines.get(line, {})
        waiting.pop(item, None)
        if not waiting:
            self._lines.pop(line, None)

    def _drop_late(self) -> list[AnyItem]:
        now = self._clock()
        late = [item for items in self._lines.values() for item in items if item.deadline.is_over(now)]
        for item in late:
            self.release(item)
        return late

    def _excess(self, item: AnyItem) -> QueueFullError | None:
        """The limit that one item more would break; where nothing waits, one of any size may come."""
        calls, most = len(self._held), self._limits
        if calls + 1 > most.calls:
            return QueueFullError.of("calls wait", calls, most.calls)
        if calls and self._rows + item.asked.rows > most.rows:
            return QueueFullError.of("symbols wait", self._rows, most.rows)
        if calls and self._size + item.asked.size > most.size:
            return QueueFullError.of("bytes of requests wait", self._size, most.size)
        return None


class ModelQueueClosedError(Exception):
    """The line takes no more; its model was replaced meanwhile."""


@final
class RequestQueue:
    """`QueuedRequests` for many threads: whoever takes sleeps until something comes.

    A line that has a thread of its own is a `ModelQueue`; all others are names, and one thread takes from them in
    turn. A process that was forked from one whose queue was used lacks these threads, and is refused.

    Args:
        limits: as for `QueuedRequests`.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self._waiting = QueuedRequests(limits)
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._lines: WeakSet[ModelQueue] = WeakSet()
        self._is_closed = False
        self._process: int | None = None

    def put(self, line: ModelQueue | str, item: AnyItem) -> None:
        """Let an item wait; one that is cancelled leaves at once.

        Raises:
            QueueFullError: there is no room for it.
            UnavailableError: the queue is closed, or belongs to the process that this one was forked from.
            LineClosedError: the line takes no more.
        """
        self._check_process()
        with self._lock:
            if self._is_closed:
                raise UnavailableError("the service is stopping; call again when it is back")
            bell = self._bell_of(line)
            dropped = self._waiting.put(line, item)
            bell.put(None)
        item.answer.add_done_callback(lambda answer: self.release([item]) if answer.cancelled() else None)
        for late in dropped:
            late.begin()

    def begin_alone(self, line: ModelQueue, item: AnyItem) -> bool:
        """Let the caller's own thread work on an item; False where others wait or are worked on, and it has to wait.

        Whoever is let in releases the item when it has its answer.

        Raises:
            UnavailableError: the queue belongs to the process that this one was forked from.
        """
        self._check_process()
        with self._lock:
            return not (self._is_closed or line.is_closed) and self._waiting.hold(line, item)

    def take(self, line: ModelQueue, most_rows: int) -> list[AnyItem]:
        """Wait for the next items of a line that somebody wants; none once it is closed and nothing waits."""
        while True:
            line.bell.get()
            with self._lock:
                items = self._waiting.take(line, most_rows)
                is_over = (self._is_closed or line.is_closed) and not self._waiting.has(line)
                if is_over or self._waiting.has(line):
                    line.bell.put(None)
            wanted = self._begun(items)
            if wanted or is_over:
                return wanted

    def take_in_turn(self) -> AnyItem | None:
        """Wait for the next item of any line that somebody wants; None once the queue is closed and nothing waits."""
        while True:
            self._bell.get()
            with self._lock:
                item = self._waiting.take_in_turn()
                if item is None and self._is_closed:
                    self._bell.put(None)
                    return None
            if item is not None and self._begun([item]):
                return item

    def put_back(self, item: AnyItem) -> None:
        """Let an item that was taken in turn wait for another one, after those that wait already."""
        with self._lock:
            self._waiting.put_back(item)
            self._bell.put(None)

    def release(self, items: Iterable[AnyItem]) -> None:
        """Items have their answers: they count no longer."""
        with self._lock:
            for item in items:
                self._waiting.release(item)
            if not self._waiting.held[0]:
                self._idle.notify_all()

    def close_line(self, line: ModelQueue) -> None:
        """Take no more in this line; what waits is still taken."""
        with self._lock:
            line.is_closed = True
            line.bell.put(None)

    def close(self) -> None:
        """Take no more; what waits is still taken."""
        with self._lock:
            self._is_closed = True
            for bell in (self._bell, *(line.bell for line in self._lines)):
                bell.put(None)

    def join(self) -> None:
        """Wait until everything is answered; for a queue that is closed."""
        with self._idle:
            self._idle.wait_for(lambda: not self._waiting.held[0])

    @property
    def held(self) -> tuple[int, int, int]:
        """Calls, rows and bytes that wait or are being worked on."""
        with self._lock:
            return self._waiting.held

    def _begun(self, items: Sequence[AnyItem]) -> list[AnyItem]:
        """Those that nobody cancelled and whose time is not over."""
        begun = [item for item in items if item.begin()]
        if len(begun) < len(items):
            self.release(item for item in items if item.answer.done())
        return begun

    def _bell_of(self, line: ModelQueue | str) -> "SimpleQueue[None]":
        if isinstance(line, str):
            return self._bell
        if line.is_closed:
            raise ModelQueueClosedError
        self._lines.add(line)
        return line.bell

    def _check_process(self) -> None:
        process = os.getpid()
        self._process = self._process or process
        if self._process != process:
            raise UnavailableError(
                f"these models work in process {self._process}, from which this one was forked without their threads; "
                "open them here, or before any forecast, or start processes by spawn"
            )

"""Streams of questions: what both clients send and read, how many are under way, and how long silence may last."""

import asyncio
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Self, final

from predictor._pb import prediction_pb2 as pb
from predictor.errors import ConfigurationError, DeadlineExceededError, InternalError
from predictor.forecast import Outcome
from predictor.instance import Question, instance_of
from predictor.wire import errors, forecasts, instances

DEFAULT_IN_FLIGHT: Final = 32
"""Questions of one stream that are asked and not answered."""
GRACE_S: Final = 5.0
"""A server answers a question whose time is over; one that has not by so much later never will."""
WATCH_S: Final = 1.0
"""How often that is looked at."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamResponse:
    """The answer to one question of a stream."""

    place: int
    """Of the question among all, from 0."""
    request_id: str
    """The question's own; may be empty."""
    outcome: Outcome
    """Its forecast, or the error that it alone has."""


@final
class RequestStream:
    """The questions of one stream and their answers. One thread may ask while another reads.

    Args:
        target: who is asked.
        model: what is asked.
        timeout_s: of each question.
        in_flight: how many may be under way.

    Raises:
        ConfigurationError: none may be under way.
    """

    def __init__(self, target: str, model: str, timeout_s: float, in_flight: int) -> None:
        if in_flight < 1:
            raise ConfigurationError(f"in_flight is {in_flight}, but must be at least 1")
        self.target = target
        self.in_flight = in_flight
        self._model = model
        self._timeout_s = timeout_s
        self._count = 0
        self._waiting: dict[str, tuple[str, float]] = {}
        self._reads_since_s: float | None = None

    def request(self, question: Question) -> pb.PredictStreamRequest:
        """What is sent for the next question; its id on the wire is its place."""
        instance, wire_id = instance_of(question), str(self._count)
        predict = pb.StreamPredict(model=self._model, instance=instances.encode(instance))
        self._waiting[wire_id] = instance.request_id, time.monotonic()
        self._count += 1
        return pb.PredictStreamRequest(request_id=wire_id, timeout_s=self._timeout_s, predict=predict)

    def answered(self, response: pb.PredictStreamResponse) -> StreamResponse:
        """The answer in a response; raises InternalError if nobody asked for it."""
        self._reads_since_s = None
        asked = self._waiting.pop(response.request_id, None)
        if asked is None:
            raise InternalError(
                f"{self.target} answered request {response.request_id[:80]!r}, which is not under way; use the same "
                "version of client and server"
            )
        has_forecast = response.WhichOneof("outcome") == "forecast"
        outcome = forecasts.decode(response.forecast) if has_forecast else errors.decode(response.error)
        return StreamResponse(place=int(response.request_id), request_id=asked[0], outcome=outcome)

    def reads(self) -> None:
        """The caller waits for the next answer."""
        self._reads_since_s = time.monotonic()

    def is_overdue(self) -> bool:
        """Whether the answer that the caller waits for should have come long ago."""
        oldest_s = next((asked_s for _, asked_s in [*self._waiting.values()]), None)
        reads_since_s = self._reads_since_s
        if oldest_s is None or reads_since_s is None:
            return False
        return time.monotonic() > max(oldest_s, reads_since_s) + self._timeout_s + GRACE_S

    def silence(self) -> DeadlineExceededError:
        """The error of a server that has fallen silent."""
        return DeadlineExceededError(
            f"{self.target} gave no answer for {self._timeout_s + GRACE_S:g} seconds; allow more time, or ask elsewhere"
        )

    def check_whole(self) -> None:
        """Raises InternalError if the stream ended in order and left a question unanswered."""
        if self._waiting:
            raise InternalError(f"{self.target} ended the stream with {len(self._waiting)} questions unanswered")


@final
class RequestSender:
    """The requests of a stream, which gRPC takes on a thread of its own.

    Args:
        asking: makes them.
        questions: are taken on that thread, as soon as there is room for one more.
    """

    def __init__(self, asking: RequestStream, questions: Iterable[Question]) -> None:
        self._asking = asking
        self._questions = questions
        self._room = threading.Semaphore(asking.in_flight)
        self._is_over = False
        self._failure: Exception | None = None

    def requests(self) -> Iterator[pb.PredictStreamRequest]:
        """Each request once there is room for it; ends where a question cannot be had, and `check` tells why."""
        questions = iter(self._questions)
        try:
            while self._has_room() and (question := next(questions, None)) is not None:
                yield self._asking.request(question)
        except Exception as error:  # noqa: BLE001 - a thread's edge: whoever reads raises it
            self._failure = error

    def make_room(self) -> None:
        """A question was answered."""
        self._room.release()

    def check(self) -> None:
        """Raises what the questions raised."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Nobody reads any more."""
        self._is_over = True
        self._room.release()

    def _has_room(self) -> bool:
        """Wait for room; False once nobody reads any more."""
        self._room.acquire()
        return not self._is_over


@final
class AsyncRequestSender:
    """The same for asyncio, where gRPC takes the requests in a task.

    Args:
        asking: makes them.
        questions: are taken in that task, as soon as there is room for one more.
    """

    def __init__(self, asking: RequestStream, questions: Iterable[Question] | AsyncIterable[Question]) -> None:
        self._asking = asking
        self._questions = questions
        self._room = asyncio.Semaphore(asking.in_flight)
        self._failure: Exception | None = None

    async def requests(self) -> AsyncIterator[pb.PredictStreamRequest]:
        """As `RequestSender.requests`."""
        questions = _each(self._questions)
        try:
            while await self._room.acquire() and (question := await anext(questions, None)) is not None:
                yield self._asking.request(question)
        except Exception as error:  # noqa: BLE001 - a task's edge: whoever reads raises it
            self._failure = error

    def make_room(self) -> None:
        """A question was answered."""
        self._room.release()

    def check(self) -> None:
        """Raises what the questions raised."""
        if self._failure is not None:
            raise self._failure


async def _each(questions: Iterable[Question] | AsyncIterable[Question]) -> AsyncIterator[Question]:
    if isinstance(questions, AsyncIterable):
        async for question in questions:
            yield question
    else:
        for question in questions:
            yield question


@final
class SilenceMonitor:
    """A thread that ends a call once its server has fallen silent.

    Args:
        asking: of the call.
        end: the call.
    """

    def __init__(self, asking: RequestStream, end: Callable[[], object]) -> None:
        self._asking, self._end = asking, end
        self._is_over = threading.Event()
        self.has_ended_it = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._run, name="stream-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def _run(self) -> None:
        while not self._is_over.wait(WATCH_S):
            if self._asking.is_overdue():
                self.has_ended_it = True
                self._end()
                return

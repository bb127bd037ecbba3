"""The calls of ModelAdminService: which models are served."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol, final

from predictor._pb import prediction_pb2 as pb
from predictor.calls.chaining import chain, fail
from predictor.calls.requests import checked_reference, parsed
from predictor.calls.streams import Emit, OneRequestCall, OpenCall
from predictor.catalog import ModelInfo
from predictor.errors import MalformedRequestError
from predictor.instance import Cancellation, Deadline
from predictor.limits import QueueLimits
from predictor.service import Item, TurnLane, WorkQueue
from predictor.wire import models
from predictor.wire.counting import count_parts

if TYPE_CHECKING:
    from google.protobuf.message import Message

_WAITING: Final = QueueLimits(calls=16)


class Changeable(Protocol):
    """The models that are served; see predictor.service.ServedModels."""

    def infos(self) -> tuple[ModelInfo, ...]:
        """Every version that is served."""
        ...

    def load(self, reference: str) -> None:
        """Serve what is not served yet; raises QuantraError, and then nothing has changed."""
        ...

    def unload(self, reference: str) -> None:
        """Serve it no more; raises as `load`."""
        ...

    def reload(self, reference: str) -> None:
        """Read it again; raises as `load`."""
        ...


@final
@dataclass(frozen=True, slots=True)
class ChangeMethod:
    """One of the calls."""

    request: "type[pb.LoadModelRequest | pb.UnloadModelRequest | pb.ReloadModelRequest]"
    answer: "type[Message]"
    change: Callable[[str], None]


@final
@dataclass(frozen=True, slots=True)
class Change:
    """One change, as its thread works on it."""

    method: ChangeMethod
    reference: str
    served: Callable[[], tuple[ModelInfo, ...]]
    changed: Callable[[], None]
    rows: int = 0
    size: int = 0

    def step(self, now: datetime, deadline: Cancellation) -> bytes:  # noqa: ARG002 - once begun, a change is carried out
        """The versions of this model that are served afterwards."""
        self.method.change(self.reference)
        self.changed()
        name = self.reference.partition("@")[0]
        infos = [info for info in self.served() if info.name == name]
        return self.method.answer(models=map(models.encode, infos)).SerializeToString()


@final
class AdminCalls:
    """Answers the calls of ModelAdminService, one change after the other. Thread-safe.

    Args:
        served: the models.
        changed: told after each change, on the thread that carried it out.
    """

    def __init__(self, served: Changeable, changed: Callable[[], None]) -> None:
        self._served = served
        self._changed = changed
        self._queue = WorkQueue(_WAITING)
        self._lane = TurnLane("admin", self._queue)
        self._methods = {
            "LoadModel": ChangeMethod(pb.LoadModelRequest, pb.LoadModelResponse, served.load),
            "UnloadModel": ChangeMethod(pb.UnloadModelRequest, pb.UnloadModelResponse, served.unload),
            "ReloadModel": ChangeMethod(pb.ReloadModelRequest, pb.ReloadModelResponse, served.reload),
        }

    def call(self, name: str, request: bytes, deadline: Deadline) -> "Future[bytes]":
        """Carry out one change; as `Calls.call`."""
        answer: Future[bytes] = Future()
        try:
            method = self._methods[name]
            count_parts(request, method.request)
            reference = checked_reference(parsed(request, method.request).model)
            change = Change(method, reference, self._served.infos, self._changed)
            item: Item[Change, bytes] = Item(change, deadline)
            self._lane.put(name, item)
            chain(name, item.answer, answer, lambda made: made)
        except Exception as error:  # noqa: BLE001 - the layer's edge
            fail(name, answer, error)
        return answer

    def open(self, name: str, deadline: Deadline, emit: Emit, most_bytes: int | None = None) -> OpenCall:  # noqa: ARG002
        """A call whose answer is a stream: there is none."""
        return OneRequestCall(name, lambda _: _no_stream(name), deadline, emit)

    def drain(self) -> None:
        """There is no stream to end."""

    def close(self) -> None:
        """Carry out what waits, and take no more."""
        self._queue.close()


def _no_stream(name: str) -> "Future[bytes]":
    refused: Future[bytes] = Future()
    fail(name, refused, MalformedRequestError(f"{name} is no call whose answer is a stream"))
    return refused

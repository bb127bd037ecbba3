"""The calls that change which models are served: those of ModelAdminService, and of the public inference protocol."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol, final

from predictor._pb import inference_pb2 as inference_pb
from predictor._pb import prediction_pb2 as pb
from predictor.calls import inference
from predictor.calls.futures import chain, fail, settle
from predictor.calls.requests import checked_reference, parsed
from predictor.calls.streams import Emit, OneRequestCall, OpenCall
from predictor.catalog import ModelInfo
from predictor.errors import MalformedRequestError
from predictor.instance import Cancellation, Deadline
from predictor.limits import QueueLimits
from predictor.service import ExplanationWorker, QueuedRequest, RequestQueue
from predictor.wire import models
from predictor.wire.request_counts import count_parts

_WAITING: Final = QueueLimits(calls=16)


class ModelAdministration(Protocol):
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
class AdminMethod:
    """One of the calls."""

    reference: Callable[[bytes], str]
    """What its request is about; raises QuantraError where that cannot be told."""
    change: Callable[[str], None]
    answer: Callable[[Sequence[ModelInfo]], bytes]
    """From the versions of the model that are served afterwards."""


@final
@dataclass(frozen=True, slots=True)
class ModelChange:
    """One change, as its thread works on it."""

    method: AdminMethod
    reference: str
    served: Callable[[], tuple[ModelInfo, ...]]
    changed: Callable[[], None]
    look: Callable[[], None] | None
    rows: int = 0
    size: int = 0

    def step(self, now: datetime, deadline: Cancellation) -> bytes:  # noqa: ARG002 - once begun, a change is carried out
        """The answer."""
        if self.look is not None:
            self.look()
        self.method.change(self.reference)
        self.changed()
        name = self.reference.partition("@")[0]
        return self.method.answer([info for info in self.served() if info.name == name])


@final
class AdminCalls:
    """Answers the calls that change models, of both protocols, one change after the other. Thread-safe.

    Args:
        served: the models.
        changed: told after each change, on the thread that carried it out.
        look: called before each, on that thread, where a folder of models is followed: what has come there by then is
            older than the change.
    """

    def __init__(
        self, served: ModelAdministration, changed: Callable[[], None], look: Callable[[], None] | None = None
    ) -> None:
        self._served = served
        self._changed = changed
        self._look = look
        self._queue = RequestQueue(_WAITING)
        self._lane = ExplanationWorker("admin", self._queue)
        self._methods = {
            "LoadModel": AdminMethod(_reference_in(pb.LoadModelRequest), served.load, _telling(pb.LoadModelResponse)),
            "UnloadModel": AdminMethod(
                _reference_in(pb.UnloadModelRequest), served.unload, _telling(pb.UnloadModelResponse)
            ),
            "ReloadModel": AdminMethod(
                _reference_in(pb.ReloadModelRequest), served.reload, _telling(pb.ReloadModelResponse)
            ),
            "RepositoryModelLoad": AdminMethod(
                inference.loaded,
                served.reload,
                lambda _: inference_pb.RepositoryModelLoadResponse().SerializeToString(),
            ),
            "RepositoryModelUnload": AdminMethod(
                inference.unloaded,
                served.unload,
                lambda _: inference_pb.RepositoryModelUnloadResponse().SerializeToString(),
            ),
        }
        self._told: Mapping[str, Callable[[bytes], bytes]] = {
            "ServerLive": inference.live,
            "ServerReady": inference.ready,
            "RepositoryIndex": lambda body: inference.repository_index(body, served.infos()),
        }

    def call(self, name: str, request: bytes, deadline: Deadline) -> "Future[bytes]":
        """Carry out one change, or tell what is served; as `Calls.call`."""
        answer: Future[bytes] = Future()
        try:
            if name in self._told:
                settle(answer, self._told[name](request))
            else:
                self._begin(name, self._methods[name], request, deadline, answer)
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

    def _begin(
        self, name: str, method: AdminMethod, request: bytes, deadline: Deadline, answer: "Future[bytes]"
    ) -> None:
        change = ModelChange(method, method.reference(request), self._served.infos, self._changed, self._look)
        item: QueuedRequest[ModelChange, bytes] = QueuedRequest(change, deadline)
        self._lane.put(name, item)
        chain(name, item.answer, answer, lambda made: made)


def _reference_in(
    kind: "type[pb.LoadModelRequest | pb.UnloadModelRequest | pb.ReloadModelRequest]",
) -> Callable[[bytes], str]:
    """What reads a request of ModelAdminService."""

    def reference(body: bytes) -> str:
        count_parts(body, kind)
        return checked_reference(parsed(body, kind).model)

    return reference


def _telling(
    kind: "type[pb.LoadModelResponse | pb.UnloadModelResponse | pb.ReloadModelResponse]",
) -> Callable[[Sequence[ModelInfo]], bytes]:
    """What encodes an answer of ModelAdminService."""
    return lambda infos: kind(models=map(models.encode, infos)).SerializeToString()


def _no_stream(name: str) -> "Future[bytes]":
    refused: Future[bytes] = Future()
    fail(name, refused, MalformedRequestError(f"{name} is no call whose answer is a stream"))
    return refused

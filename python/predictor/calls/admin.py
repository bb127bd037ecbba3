"""The calls that change the served models, of ModelAdminService and of the open inference protocol."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, final

from predictor._pb import inference_pb2 as inference_pb
from predictor._pb import prediction_pb2 as pb
from predictor.calls import inference
from predictor.calls.futures import failed, finished
from predictor.calls.requests import checked_reference, parsed
from predictor.calls.streams import OneRequestCall, OpenCall, ResponseCallback
from predictor.catalog import ModelInfo
from predictor.errors import ArtifactError, MalformedRequestError
from predictor.instance import Cancellation, Deadline
from predictor.limits import QueueLimits
from predictor.service import ExplanationWorker, QueuedRequest, RequestQueue, ServedModels
from predictor.wire import models
from predictor.wire.request_counts import count_parts

if TYPE_CHECKING:
    from concurrent.futures import Future

_WAITING: Final = QueueLimits(calls=16)


@final
@dataclass(frozen=True, slots=True)
class AdminMethod:
    """One admin call."""

    reference: Callable[[bytes], str]
    """Decodes the model reference of a request; raises QuantraError."""
    change: Callable[[str], None]
    answer: Callable[[Sequence[ModelInfo], Sequence[ArtifactError]], bytes]
    """Encodes the response from the model's versions and problems after the change."""


@final
@dataclass(frozen=True, slots=True)
class ModelChange:
    """One queued change."""

    method: AdminMethod
    reference: str
    served: ServedModels
    changed: Callable[[Sequence[ArtifactError]], None]
    refresh: Callable[[], None] | None
    rows: int = 0
    size: int = 0

    def step(self, now: datetime, deadline: Cancellation) -> bytes:  # noqa: ARG002 - a change is never interrupted
        """Apply the change and encode the response."""
        if self.refresh is not None:
            self.refresh()
        before = self.served.now.registry
        self.method.change(self.reference)
        after = self.served.now.registry
        self.changed(after.problems_since(before))
        name = self.reference.partition("@")[0]
        return self.method.answer([info for info in after.infos() if info.name == name], after.problems_of(name))


@final
class AdminCalls:
    """The calls that change models, of both protocols, applied one at a time. Thread-safe.

    Args:
        served: The models.
        changed: Called after each change, on the same thread, with the new problems of the models folder.
        refresh: Called before each change, on the same thread, if a models folder is watched, so that earlier changes
            of the folder are applied first.
    """

    def __init__(
        self,
        served: ServedModels,
        changed: Callable[[Sequence[ArtifactError]], None],
        refresh: Callable[[], None] | None = None,
    ) -> None:
        self._served = served
        self._changed = changed
        self._refresh = refresh
        self._queue = RequestQueue(_WAITING)
        self._worker = ExplanationWorker("admin", self._queue)
        self._methods = {
            "LoadModel": AdminMethod(
                _reference_decoder(pb.LoadModelRequest), served.load, _change_encoder(pb.LoadModelResponse)
            ),
            "UnloadModel": AdminMethod(
                _reference_decoder(pb.UnloadModelRequest),
                served.unload,
                lambda infos, _: pb.UnloadModelResponse(models=map(models.encode, infos)).SerializeToString(),
            ),
            "ReloadModel": AdminMethod(
                _reference_decoder(pb.ReloadModelRequest), served.reload, _change_encoder(pb.ReloadModelResponse)
            ),
            "RepositoryModelLoad": AdminMethod(
                inference.loaded,
                served.reload,
                lambda _infos, _problems: inference_pb.RepositoryModelLoadResponse().SerializeToString(),
            ),
            "RepositoryModelUnload": AdminMethod(
                inference.unloaded,
                served.unload,
                lambda _infos, _problems: inference_pb.RepositoryModelUnloadResponse().SerializeToString(),
            ),
        }
        self._queries: Mapping[str, Callable[[bytes], bytes]] = {
            "ServerLive": inference.live,
            "ServerReady": inference.ready,
            "RepositoryIndex": lambda body: inference.repository_index(body, served.infos()),
        }

    def call(self, name: str, request: bytes, deadline: Deadline) -> "Future[bytes]":
        """Apply one change or list the served models. See `Calls.call`."""
        try:
            if name in self._queries:
                return finished(self._queries[name](request))
            return self._begin(name, self._methods[name], request, deadline)
        except Exception as error:  # noqa: BLE001 - layer boundary
            return failed(name, error)

    def open(self, name: str, deadline: Deadline, emit: ResponseCallback, most_bytes: int | None = None) -> OpenCall:  # noqa: ARG002
        """Return a call that fails, because no admin call has a response stream."""
        return OneRequestCall(name, lambda _: _reject_stream(name), deadline, emit)

    def drain(self) -> None:
        """Do nothing: this service has no streams."""

    def close(self) -> None:
        """Reject new changes and apply the queued ones."""
        self._queue.close()

    def _begin(self, name: str, method: AdminMethod, request: bytes, deadline: Deadline) -> "Future[bytes]":
        change = ModelChange(method, method.reference(request), self._served, self._changed, self._refresh)
        item: QueuedRequest[ModelChange, bytes] = QueuedRequest(change, deadline, name, encode=bytes)
        self._worker.put(name, item)
        return item


def _reference_decoder(
    kind: "type[pb.LoadModelRequest | pb.UnloadModelRequest | pb.ReloadModelRequest]",
) -> Callable[[bytes], str]:
    """Create a decoder for the model reference of a ModelAdminService request."""

    def reference(body: bytes) -> str:
        count_parts(body, kind)
        return checked_reference(parsed(body, kind).model)

    return reference


def _change_encoder(
    kind: "type[pb.LoadModelResponse | pb.ReloadModelResponse]",
) -> Callable[[Sequence[ModelInfo], Sequence[ArtifactError]], bytes]:
    """Create an encoder for the response of a call that reads the models folder."""

    def encode(infos: Sequence[ModelInfo], problems: Sequence[ArtifactError]) -> bytes:
        return kind(
            models=map(models.encode, infos), problems=[problem.message for problem in problems]
        ).SerializeToString()

    return encode


def _reject_stream(name: str) -> "Future[bytes]":
    return failed(name, MalformedRequestError(f"{name} has no response stream; call it as a unary method"))

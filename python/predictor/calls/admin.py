"""The calls that change the served models, of ModelAdminService and of the open inference protocol."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

from predictor._pb import inference_pb2 as inference_pb
from predictor._pb import prediction_pb2 as pb
from predictor.call_context import CallContext
from predictor.calls import inference
from predictor.calls.futures import JobThread, completed_future, failed_future
from predictor.catalog import ModelInfo
from predictor.errors import ArtifactError
from predictor.limits import QueueLimits
from predictor.service import ServedModels
from predictor.wire import models
from predictor.wire.limits import check_reference
from predictor.wire.request_counts import count_parts, parse

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
    encode: Callable[[Sequence[ModelInfo], Sequence[ArtifactError]], bytes]
    """Encodes the response from the model's versions and problems after the change."""


@final
class AdminCalls:
    """The calls that change models, of both protocols, applied one at a time. Thread-safe.

    Args:
        served: The models.
        on_change: Called after each change, on the same thread, with the new problems of the models folder.
        refresh_models: Called before each change, on the same thread, if a models folder is watched, so that earlier
            changes of the folder are applied first.
    """

    def __init__(
        self,
        served: ServedModels,
        on_change: Callable[[Sequence[ArtifactError]], None],
        refresh_models: Callable[[], None] | None = None,
    ) -> None:
        self._served = served
        self._on_change = on_change
        self._refresh_models = refresh_models
        self._jobs = JobThread("admin", _WAITING)
        self._methods = {
            "LoadModel": AdminMethod(
                partial(_decode_reference, pb.LoadModelRequest), served.load, partial(_encode, pb.LoadModelResponse)
            ),
            "UnloadModel": AdminMethod(
                partial(_decode_reference, pb.UnloadModelRequest),
                served.unload,
                lambda infos, _: pb.UnloadModelResponse(models=map(models.encode, infos)).SerializeToString(),
            ),
            "ReloadModel": AdminMethod(
                partial(_decode_reference, pb.ReloadModelRequest),
                served.reload,
                partial(_encode, pb.ReloadModelResponse),
            ),
            "RepositoryModelLoad": AdminMethod(
                inference.decode_load,
                served.reload,
                lambda _infos, _problems: inference_pb.RepositoryModelLoadResponse().SerializeToString(),
            ),
            "RepositoryModelUnload": AdminMethod(
                inference.decode_unload,
                served.unload,
                lambda _infos, _problems: inference_pb.RepositoryModelUnloadResponse().SerializeToString(),
            ),
        }
        self._queries: Mapping[str, Callable[[bytes], bytes]] = {
            "ServerLive": inference.answer_live,
            "ServerReady": inference.answer_ready,
            "RepositoryIndex": lambda body: inference.answer_index(body, served.infos()),
        }

    def handle(self, name: str, request: bytes, context: CallContext) -> "Future[bytes]":
        """Apply one change or list the served models. See `PredictionCalls.handle`."""
        try:
            if name in self._queries:
                return completed_future(self._queries[name](request))
            method = self._methods[name]
            change = partial(self._apply, method, method.reference(request))
        except Exception as error:  # noqa: BLE001 - layer boundary
            return failed_future(name, error)
        return self._jobs.run(name, change, context, encode=bytes)

    def drain(self) -> None:
        """Do nothing: this service has no streams."""

    def close(self) -> None:
        """Reject new changes and apply the queued ones."""
        self._jobs.close(waits=False)

    def _apply(self, method: AdminMethod, reference: str) -> bytes:
        """Apply a change and encode the response."""
        if self._refresh_models is not None:
            self._refresh_models()
        before = self._served.current.registry
        method.change(reference)
        after = self._served.current.registry
        self._on_change(after.problems_since(before))
        name = reference.partition("@")[0]
        return method.encode([info for info in after.infos() if info.name == name], after.problems_of(name))


def _decode_reference(
    kind: "type[pb.LoadModelRequest | pb.UnloadModelRequest | pb.ReloadModelRequest]", body: bytes
) -> str:
    count_parts(body, kind)
    return check_reference(parse(body, kind).model)


def _encode(
    kind: "type[pb.LoadModelResponse | pb.ReloadModelResponse]",
    infos: Sequence[ModelInfo],
    problems: Sequence[ArtifactError],
) -> bytes:
    response = kind(models=map(models.encode, infos), problems=[problem.message for problem in problems])
    return response.SerializeToString()

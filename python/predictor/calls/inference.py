"""The calls of the public inference protocol, from request bytes to answer bytes, on the same service and queue."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Protocol, final

import numpy as np

from predictor._pb import inference_pb2 as pb
from predictor.calls.futures import chain, follow, settle
from predictor.calls.request_counter import AT_ONCE, RequestCounter
from predictor.calls.requests import MessageT, parsed
from predictor.catalog import ModelInfo
from predictor.errors import MalformedRequestError, ModelNotFoundError, PermissionDeniedError, VersionNotFoundError
from predictor.forecast import Outcome
from predictor.instance import Cancellation, Deadline, ReadInstance
from predictor.service import PredictionRequest
from predictor.wire.kserve import inputs, models
from predictor.wire.kserve.answers import encode_answer, wanted_outputs
from predictor.wire.kserve.requests import InferRequest, RequestParameters, choices_of, read_request, reference_of
from predictor.wire.limits import MAX_HEAD, check_count, check_text
from predictor.wire.request_counts import TooManyPartsError

if TYPE_CHECKING:
    from predictor.arrays import PositionArray

Begin = Callable[[bytes, Deadline, "Future[bytes]"], None]
"""Begin to answer a request; raises QuantraError where that cannot be."""

INFER: Final = "ModelInfer"
_ONLY: Final = np.zeros(1, np.intp)
"""Where a window's one symbol is."""


class InferenceService(Protocol):
    """What these calls need of the service."""

    def models(self) -> tuple[ModelInfo, ...]:
        """Every version that is served."""
        ...

    def model(self, reference: str) -> ModelInfo:
        """One version; raises ModelNotFoundError or VersionNotFoundError."""
        ...

    def predict(self, reference: str, asked: PredictionRequest, deadline: Deadline) -> Future[tuple[Outcome, ...]]:
        """Each instance's forecast or error, in order; raises at once if the model is unknown or the queue is full."""
        ...


@final
@dataclass(frozen=True, slots=True)
class DeferredRequest:
    """A request of so many parts that it is looked at in its turn."""

    body: bytes
    rows: int = 0

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return len(self.body)

    def step(self, now: datetime, deadline: Cancellation) -> InferRequest:  # noqa: ARG002 - it takes a moment only
        """Its tensors; raises as `read_request`."""
        return read_request(self.body)


@final
class EncodedRows:
    """The rows of a ModelInferRequest, which are read when their turn comes.

    Args:
        request: its tensors.
        choices: its parameters.
        info: the model, for windows; bars need none.
        size: bytes of the request.
    """

    def __init__(self, request: InferRequest, choices: RequestParameters, info: ModelInfo | None, size: int) -> None:
        self._request: InferRequest | None = request
        self._choices = choices
        self._info = info
        self.rows = request.rows
        self.size = size
        self.places: list[PositionArray] = []
        """Where the symbols of each row are among those that were sent, once the rows were read."""

    def instances(self) -> list[ReadInstance]:
        """Each row, or what is wrong with it; called once, for the bytes are let go then."""
        request, self._request = self._request, None
        assert request is not None  # noqa: S101 - it is called once
        if self._info is not None:
            self.places = [_ONLY] * request.count
            return [*inputs.read_windows(request.tensors, self._info, self._choices)]
        arrays = inputs.read_bars(request.tensors)
        self.places = inputs.places_of(arrays)
        return [inputs.instance_of(arrays, row, places, self._choices) for row, places in enumerate(self.places)]


@final
class InferenceCalls:
    """Answers the unary calls of GRPCInferenceService.

    Args:
        service: computes the answers.
        counting: counts requests.
    """

    def __init__(self, service: InferenceService, counting: RequestCounter) -> None:
        self._service = service
        self._counting = counting
        told: Mapping[str, Callable[[bytes], bytes]] = {
            "ServerLive": live,
            "ServerReady": ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "RepositoryIndex": lambda body: repository_index(body, service.models()),
            "RepositoryModelLoad": _elsewhere,
            "RepositoryModelUnload": _elsewhere,
        }
        self.unary: dict[str, Begin] = {
            INFER: self._infer,
            **{name: _at_once(answer) for name, answer in told.items()},
        }
        """How each call is begun, by its name."""

    def _infer(self, body: bytes, deadline: Deadline, answer: "Future[bytes]") -> None:
        size = len(body)
        try:
            request = read_request(body, AT_ONCE)
        except TooManyPartsError:
            reading = self._counting.later(INFER, DeferredRequest(body), deadline)
            follow(INFER, reading, answer, lambda read: self._forecast(read, size, deadline, answer))
        else:
            self._forecast(request, size, deadline, answer)

    def _forecast(self, request: InferRequest, size: int, deadline: Deadline, answer: "Future[bytes]") -> None:
        request_id, symbols = request.head.id, request.symbols
        check_text("id", request_id)
        wanted = wanted_outputs(request.head)
        choices = choices_of(request.head, are_bars=request.are_bars)
        reference, info = request.reference, None
        if not request.are_bars:  # their form is the model's, which must be the one that answers
            info = self._service.model(reference)
            reference = f"{info.name}@{info.version}"
        asked = EncodedRows(request, choices, info, size)
        outcomes = self._service.predict(reference, asked, deadline)
        chain(
            INFER,
            outcomes,
            answer,
            lambda done: encode_answer(done, asked.places, symbols, request_id=request_id, wanted=wanted),
        )

    def _model_ready(self, body: bytes) -> bytes:
        request = small(body, pb.ModelReadyRequest)
        try:
            self._service.model(reference_of(request.name, request.version))
        except (ModelNotFoundError, VersionNotFoundError):
            return pb.ModelReadyResponse(ready=False).SerializeToString()
        return pb.ModelReadyResponse(ready=True).SerializeToString()

    def _model_metadata(self, body: bytes) -> bytes:
        request = small(body, pb.ModelMetadataRequest)
        info = self._service.model(reference_of(request.name, request.version))
        versions = [one.version for one in self._service.models() if one.name == info.name]
        return models.metadata(info, versions).SerializeToString()

    def _model_config(self, body: bytes) -> bytes:
        request = small(body, pb.ModelConfigRequest)
        info = self._service.model(reference_of(request.name, request.version))
        return pb.ModelConfigResponse(config=models.config(info)).SerializeToString()


def live(body: bytes) -> bytes:
    """The answer to ServerLive."""
    small(body, pb.ServerLiveRequest)
    return pb.ServerLiveResponse(live=True).SerializeToString()


def ready(body: bytes) -> bytes:
    """The answer to ServerReady, once models are loaded."""
    small(body, pb.ServerReadyRequest)
    return pb.ServerReadyResponse(ready=True).SerializeToString()


def server_metadata(body: bytes) -> bytes:
    """The answer to ServerMetadata."""
    small(body, pb.ServerMetadataRequest)
    return pb.ServerMetadataResponse(
        name=models.PLATFORM, version=version("quantra"), extensions=models.EXTENSIONS
    ).SerializeToString()


def repository_index(body: bytes, infos: tuple[ModelInfo, ...]) -> bytes:
    """The answer to RepositoryIndex."""
    small(body, pb.RepositoryIndexRequest)
    return models.index(infos).SerializeToString()


def loaded(body: bytes) -> str:
    """The reference in a RepositoryModelLoadRequest.

    Raises:
        MalformedRequestError: it brings parameters, such as files of the model.
    """
    request = small(body, pb.RepositoryModelLoadRequest)
    _check_parameters(request.parameters, frozenset())
    return reference_of(request.model_name, "")


def unloaded(body: bytes) -> str:
    """The reference in a RepositoryModelUnloadRequest; raises as `loaded`."""
    request = small(body, pb.RepositoryModelUnloadRequest)
    _check_parameters(request.parameters, frozenset({"unload_dependents"}))
    return reference_of(request.model_name, "")


def _check_parameters(sent: Mapping[str, pb.ModelRepositoryParameter], known: frozenset[str]) -> None:
    for name in sent:
        if name not in known:
            raise MalformedRequestError(
                f"parameter {name[:80]!r} is not supported; a model is what its folder holds",
                metadata={"field": "parameters"},
            )


def _elsewhere(_body: bytes) -> bytes:
    raise PermissionDeniedError(
        "models are loaded and unloaded at the server's address for changes alone (--admin-listen); ask there",
        metadata={"role": "admin"},
    )


def _at_once(answer_of: Callable[[bytes], bytes]) -> Begin:
    """A call that takes a moment."""

    def begin(body: bytes, _deadline: Deadline, answer: "Future[bytes]") -> None:
        settle(answer, answer_of(body))

    return begin


def small(body: bytes, kind: type[MessageT]) -> MessageT:
    """The message of a request that holds a few texts."""
    check_count("the request: bytes", len(body), MAX_HEAD)
    return parsed(body, kind)

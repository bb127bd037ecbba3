"""Which calls there are, and how each is answered."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol, TypeVar, final

from google.protobuf.message import Message

from predictor._pb import prediction_pb2 as pb
from predictor.calls.chaining import chain, fail, follow, settle
from predictor.calls.requests import EncodedInstances, EncodedQuery, checked_reference, parsed
from predictor.catalog import ModelInfo
from predictor.errors import MalformedRequestError
from predictor.forecast import Explanation, Forecast, Outcome
from predictor.instance import Cancellation, Deadline
from predictor.limits import ServiceLimits
from predictor.service import Asked, AskedQuery, Item, TurnLane, WorkQueue
from predictor.wire import attributions, errors, forecasts, models
from predictor.wire.counting import Counted, TooManyPartsError, count_parts

SERVICE_NAME: Final = pb.DESCRIPTOR.services_by_name["PredictionService"].full_name

AT_ONCE: Final = 256
"""Fields of a request that are counted on the caller's own thread, in a tenth of a millisecond; larger requests are
counted on a thread for it, so that no caller, such as an event loop, is held up."""

ReadT = TypeVar("ReadT")


class Service(Protocol):
    """What the calls need from predictor.service.PredictionService."""

    def models(self) -> tuple[ModelInfo, ...]:
        """Every version that is served."""
        ...

    def model(self, reference: str) -> ModelInfo:
        """One version; raises ModelNotFoundError or VersionNotFoundError."""
        ...

    def predict(self, reference: str, asked: Asked, deadline: Deadline) -> Future[tuple[Outcome, ...]]:
        """Each instance's forecast or error, in order; raises at once if the model is unknown or the queue is full."""
        ...

    def explain(self, reference: str, asked: AskedQuery, deadline: Deadline) -> Future[Explanation]:
        """The reasons behind one forecast; never keeps a prediction waiting."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Method:
    """One unary call."""

    request: type[Message]
    begin: Callable[[bytes, Counted, Deadline, "Future[bytes]"], None]
    """Begin to answer counted bytes; raises QuantraError where that cannot be."""


@final
@dataclass(frozen=True, slots=True)
class Uncounted:
    """A request that is counted in its turn."""

    body: bytes
    request: type[Message]
    rows: int = 0

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.body)

    def step(self, now: datetime, deadline: Cancellation) -> Counted:  # noqa: ARG002 - it takes a moment only
        """What it holds; raises as `count_parts`."""
        return count_parts(self.body, self.request)


@final
class Calls:
    """Answers the calls of PredictionService. Thread-safe.

    Args:
        service: computes the answers.
        limits: the service's.
    """

    def __init__(self, service: Service, limits: ServiceLimits | None = None) -> None:
        self._service = service
        self._uncounted = WorkQueue((limits or ServiceLimits()).uncounted)
        self._counting = TurnLane("count", self._uncounted)
        self._methods = {
            "ListModels": Method(pb.ListModelsRequest, self._list_models),
            "GetModel": Method(pb.GetModelRequest, self._get_model),
            "Predict": Method(pb.PredictRequest, self._predict),
            "Explain": Method(pb.ExplainRequest, self._explain),
        }

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the calls that have one answer."""
        return tuple(self._methods)

    def call(self, name: str, request: bytes, deadline: Deadline) -> "Future[bytes]":
        """Answer one call. Never raises: the future fails, with a QuantraError and nothing else.

        Cancelling the future drops a call that waits; the deadline's flag ends one that is worked on.
        """
        answer: Future[bytes] = Future()
        try:
            self._begin(name, self._method(name), request, deadline, answer)
        except Exception as error:  # noqa: BLE001 - the layer's edge
            fail(name, answer, error)
        return answer

    def close(self) -> None:
        """Count no more requests; those that were counted are the service's."""
        self._uncounted.close()

    def _method(self, name: str) -> Method:
        if name not in self._methods:
            raise MalformedRequestError(f"there is no call {name[:80]!r}; there are {', '.join(self._methods)}")
        return self._methods[name]

    def _begin(self, name: str, method: Method, request: bytes, deadline: Deadline, answer: "Future[bytes]") -> None:
        try:
            counted = count_parts(request, method.request, AT_ONCE)
        except TooManyPartsError:
            item: Item[Uncounted, Counted] = Item(Uncounted(request, method.request), deadline)
            self._counting.put(name, item)
            follow(name, item.answer, answer, lambda counted: method.begin(request, counted, deadline, answer))
        else:
            method.begin(request, counted, deadline, answer)

    def _list_models(self, body: bytes, _counted: Counted, _deadline: Deadline, answer: "Future[bytes]") -> None:
        parsed(body, pb.ListModelsRequest)
        infos = self._service.models()
        settle(answer, pb.ListModelsResponse(models=map(models.encode, infos)).SerializeToString())

    def _get_model(self, body: bytes, _counted: Counted, _deadline: Deadline, answer: "Future[bytes]") -> None:
        request = parsed(body, pb.GetModelRequest)
        info = self._service.model(checked_reference(request.model))
        settle(answer, pb.GetModelResponse(model=models.encode(info)).SerializeToString())

    def _predict(self, body: bytes, counted: Counted, deadline: Deadline, answer: "Future[bytes]") -> None:
        asked = EncodedInstances(body, counted)
        model = checked_reference(parsed(counted.head, pb.PredictRequest).model)
        outcomes = self._service.predict(model, asked, deadline)
        chain("Predict", outcomes, answer, lambda done: encode_results(asked.request_ids, done))

    def _explain(self, body: bytes, counted: Counted, deadline: Deadline, answer: "Future[bytes]") -> None:
        asked = EncodedQuery(body, counted)
        explanation = self._service.explain(asked.model, asked, deadline)
        chain("Explain", explanation, answer, lambda done: encode_explanation(asked.request_id, done))


def encode_results(request_ids: Sequence[str], outcomes: Sequence[Outcome]) -> bytes:
    """The answer to Predict."""
    pairs = zip(request_ids, outcomes, strict=True)
    return pb.PredictResponse(results=[_result(*pair) for pair in pairs]).SerializeToString()


def _result(request_id: str, outcome: Outcome) -> pb.Result:
    if isinstance(outcome, Forecast):
        return pb.Result(request_id=request_id, forecast=forecasts.encode(outcome))
    return pb.Result(request_id=request_id, error=errors.encode(outcome))


def encode_explanation(request_id: str, explanation: Explanation) -> bytes:
    """The answer to Explain."""
    return attributions.encode(explanation, request_id).SerializeToString()

"""The calls of both clients: what each sends, and how its answer is read."""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, final

from google.protobuf.message import Message

from predictor._pb import prediction_pb2 as pb
from predictor._pb.prediction_pb2_grpc import PredictionServiceStub
from predictor.client.served import ServedModel
from predictor.errors import (
    ConfigurationError,
    DeadlineExceededError,
    ExplainUnsupportedError,
    InternalError,
    MalformedRequestError,
)
from predictor.forecast import Explanation, Outcome
from predictor.instance import Query, Question, instance_of
from predictor.wire import attributions, errors, forecasts, instances, models

if TYPE_CHECKING:
    from predictor.catalog import ModelInfo

DEFAULT_TIMEOUT_S: Final = 30.0
LONGEST_TIMEOUT_S: Final = 86_400.0
"""A day, as in the .NET client. Centuries overflow gRPC's clock, and such a call ends before it begins."""

# No bounds of our own: the server's hold.
OPTIONS: Final = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))

ValueT = TypeVar("ValueT")


@final
@dataclass(frozen=True, slots=True)
class CallTimeout:
    """One deadline for all calls that a question takes."""

    limit_s: float
    """Seconds from its begin to its end."""
    ends_s: float
    """Its end on the monotonic clock."""

    @classmethod
    def after(cls, limit_s: float) -> Self:
        """So many seconds from now."""
        return cls(limit_s, time.monotonic() + limit_s)

    def left_s(self, target: str) -> float:
        """Seconds that the next call may take.

        Raises:
            DeadlineExceededError: none.
        """
        left_s = self.ends_s - time.monotonic()
        if left_s <= 0:
            raise DeadlineExceededError(f"{target} gave no answer within {self.limit_s:g} seconds; allow more time")
        return left_s


@final
@dataclass(frozen=True, slots=True)
class UnaryCall(Generic[ValueT]):
    """One call: which of the stub's it is, what it sends, and how its answer is read."""

    method: Callable[[PredictionServiceStub], Any]
    request: Message
    read: Callable[[Any], ValueT]

    @classmethod
    def predict(cls, model: str, asked: Sequence[Question]) -> "UnaryCall[tuple[Outcome, ...]]":
        """Forecasts of instances, or the error of each, in order."""
        sent = (instances.encode(instance_of(question)) for question in asked)
        request = pb.PredictRequest(model=model, instances=sent)
        return UnaryCall(lambda stub: stub.Predict, request, lambda answer: _outcomes(answer, len(asked)))

    @classmethod
    def explain(cls, model: str, query: Query) -> "UnaryCall[Explanation]":
        """The reasons behind one forecast."""
        return UnaryCall(lambda stub: stub.Explain, attributions.encode_query(query, model), attributions.decode)

    @classmethod
    def models(cls) -> "UnaryCall[tuple[ModelInfo, ...]]":
        """Every version that the server has."""
        request = pb.ListModelsRequest()
        return UnaryCall(lambda stub: stub.ListModels, request, lambda answer: tuple(map(models.decode, answer.models)))

    @classmethod
    def model(cls, reference: str) -> "UnaryCall[ModelInfo]":
        """One version."""
        request = pb.GetModelRequest(model=reference)
        return UnaryCall(lambda stub: stub.GetModel, request, lambda answer: models.decode(answer.model))

    @classmethod
    def served(cls, reference: str) -> "UnaryCall[ServedModel]":
        """What a client has to know of one version before it asks it about large panels."""
        request = pb.GetModelRequest(model=reference)
        return UnaryCall(lambda stub: stub.GetModel, request, ServedModel.of)


Steps = Generator[UnaryCall[Any], Any, ValueT]
"""Calls, one after the other, each once the answer to the one before is there; then what they give together."""


def checked_timeout(timeout_s: float) -> float:
    """The timeout itself.

    Raises:
        ConfigurationError: it is out of range.
    """
    if not 0 < timeout_s <= LONGEST_TIMEOUT_S:  # NaN is neither
        raise ConfigurationError(
            f"timeout_s is {timeout_s:g} seconds, but must be above 0 and at most {LONGEST_TIMEOUT_S:g}, which is a day"
        )
    return timeout_s


def _outcomes(response: pb.PredictResponse, count: int) -> tuple[Outcome, ...]:
    if len(response.results) != count:
        raise MalformedRequestError(f"results: have {len(response.results)}, need {count}, one per instance")
    return tuple(
        errors.decode(result.error) if result.HasField("error") else forecasts.decode(result.forecast)
        for result in response.results
    )


def read(target: str, call: UnaryCall[ValueT], answer: Message) -> ValueT:
    """Decode an answer. What is wrong with it is not the fault of the caller's input."""
    try:
        return call.read(answer)
    except (MalformedRequestError, ExplainUnsupportedError) as error:
        raise InternalError(
            f"the answer of {target} cannot be read: {error.message}; use the same version of client and server"
        ) from error

"""Requests, responses, deadlines and errors of both clients."""

import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast, final

import grpc
from google.protobuf.message import Message

from predictor._pb import prediction_pb2 as pb
from predictor._pb.prediction_pb2_grpc import PredictionServiceStub
from predictor.client.panel_calls import ServedModel
from predictor.errors import (
    CallCancelledError,
    ConfigurationError,
    DeadlineExceededError,
    ExplainUnsupportedError,
    InternalError,
    MalformedRequestError,
    PermissionDeniedError,
    QuantraError,
    QueueFullError,
    RequestTooLargeError,
    UnauthenticatedError,
    UnavailableError,
)
from predictor.forecast import Explanation, Outcome
from predictor.instance import ExplanationQuery, InstanceLike, to_instance
from predictor.wire import attributions, errors, forecasts, instances, models

if TYPE_CHECKING:
    from collections.abc import Iterable

    from predictor.catalog import ModelInfo


DEFAULT_TIMEOUT_S: Final = 30.0
MAX_TIMEOUT_S: Final = 86_400.0
"""One day, as in the .NET client. Timeouts of centuries overflow gRPC's clock and expire at once."""


# The client sets no message size limits; the server's limits apply.
OPTIONS: Final = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


ValueT = TypeVar("ValueT")
MessageT = TypeVar("MessageT", bound=Message)


@final
@dataclass(frozen=True, slots=True)
class CallTimeout:
    """One deadline shared by several calls."""

    limit_s: float
    """Total timeout in seconds."""
    expires_at_s: float
    """Deadline on the monotonic clock."""

    @classmethod
    def after(cls, limit_s: float) -> Self:
        """Create a deadline `limit_s` seconds from now."""
        return cls(limit_s, time.monotonic() + limit_s)

    def remaining_s(self, target: str) -> float:
        """Return the timeout in seconds of the next call; raises DeadlineExceededError if the deadline has passed."""
        remaining_s = self.expires_at_s - time.monotonic()
        if remaining_s <= 0:
            raise make_timeout_error(target, self.limit_s)
        return remaining_s


@final
@dataclass(frozen=True, slots=True)
class UnaryCall(Generic[ValueT]):
    """A unary call: the stub's method, the request, and the decoder of the response."""

    method: Callable[[PredictionServiceStub], Any]
    request: Message
    decode: Callable[[Any], ValueT]

    @classmethod
    def predict(cls, model: str, inputs: Sequence[InstanceLike]) -> "UnaryCall[tuple[Outcome, ...]]":
        """Request the forecast or the error of each instance, in order."""
        encoded = (instances.encode(to_instance(item)) for item in inputs)
        request = pb.PredictRequest(model=model, instances=encoded)
        return UnaryCall(lambda stub: stub.Predict, request, lambda response: _decode_outcomes(response, len(inputs)))

    @classmethod
    def explain(cls, model: str, query: ExplanationQuery) -> "UnaryCall[Explanation]":
        """Request the explanation of one forecast."""
        return UnaryCall(lambda stub: stub.Explain, attributions.encode_query(query, model), attributions.decode)

    @classmethod
    def models(cls) -> "UnaryCall[tuple[ModelInfo, ...]]":
        """Request the list of all model versions."""
        request = pb.ListModelsRequest()
        return UnaryCall(
            lambda stub: stub.ListModels, request, lambda response: tuple(map(models.decode, response.models))
        )

    @classmethod
    def model(cls, reference: str) -> "UnaryCall[ModelInfo]":
        """Request the description of one model version."""
        request = pb.GetModelRequest(model=reference)
        return UnaryCall(lambda stub: stub.GetModel, request, lambda response: models.decode(response.model))

    @classmethod
    def served(cls, reference: str) -> "UnaryCall[ServedModel]":
        """Request the facts about one model version that are needed to split large panels."""
        request = pb.GetModelRequest(model=reference)
        return UnaryCall(lambda stub: stub.GetModel, request, ServedModel.of)


CallSequence = Generator[UnaryCall[Any], Any, ValueT]
"""Generator of calls: it yields each call, receives its decoded response, and returns their combined result."""


def validate_timeout(timeout_s: float) -> float:
    """Return the timeout; raises ConfigurationError if it is out of range."""
    if not 0 < timeout_s <= MAX_TIMEOUT_S:  # also rejects NaN
        raise ConfigurationError(
            f"timeout_s is {timeout_s:g} seconds, but must be above 0 and at most {MAX_TIMEOUT_S:g}, which is a day"
        )
    return timeout_s


def _decode_outcomes(response: pb.PredictResponse, count: int) -> tuple[Outcome, ...]:
    if len(response.results) != count:
        raise MalformedRequestError(f"results: have {len(response.results)}, need {count}, one per instance")
    return tuple(
        errors.decode(result.error) if result.HasField("error") else forecasts.decode(result.forecast)
        for result in response.results
    )


def decode_response(target: str, decode: Callable[[MessageT], ValueT], response: MessageT) -> ValueT:
    """Decode a response. A malformed response raises InternalError, because the caller's input is not at fault."""
    try:
        return decode(response)
    except (MalformedRequestError, ExplainUnsupportedError) as error:
        raise InternalError(
            f"the response of {target} is malformed: {error.message}; use the same version of client and server"
        ) from error


_CONNECTION_CLOSED: Final = re.compile(r"Socket closed|Connection reset|Broken pipe")
_STATUS_ERRORS: Final[Mapping[grpc.StatusCode, tuple[type[QuantraError], str]]] = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: (QueueFullError, "retry in a moment"),
    grpc.StatusCode.UNAUTHENTICATED: (UnauthenticatedError, "pass a valid token"),
    grpc.StatusCode.PERMISSION_DENIED: (PermissionDeniedError, "pass a token with the required role"),
}
"""Error and advice by status, for responses without error details."""
_ENDED_WHILE_WRITING: Final = "Internal error from Core"
"""Message of grpc.aio if the server ends a stream during a write; it replaces the server's status."""


def make_call_error(failure: grpc.RpcError, target: str, timeout_s: float) -> QuantraError:
    """Return the error that the server sent, or a network error."""
    trailers = cast("Iterable[tuple[str, str | bytes]]", failure.trailing_metadata() or ())  # the stubs lack __iter__
    for key, value in trailers:
        if key == errors.DETAILS_KEY and isinstance(value, bytes):
            error = errors.decode_details(value)
            if error is not None:
                return error
    code, details = failure.code(), failure.details() or ""
    match code:
        case grpc.StatusCode.UNAVAILABLE:
            problem = f"no server answers at {target} ({details}); {_advise(target, details)}"
        case grpc.StatusCode.INTERNAL if details == _ENDED_WHILE_WRITING:
            problem = f"{target} ended the stream while a request was being sent; open a new one"
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return make_timeout_error(target, timeout_s)
        case grpc.StatusCode.CANCELLED:
            return make_cancelled_error(target)
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than max" in details:
            return RequestTooLargeError(f"{target} rejected the call: {details}; send a smaller request")
        case _ if code in _STATUS_ERRORS:
            kind, advice = _STATUS_ERRORS[code]
            return kind(f"{target} rejected the call: {details}; {advice}")
        case _:
            return QuantraError(f"{target} answered {code.name}: {details}; is it a Quantra server of this version?")
    return UnavailableError(problem)


def make_timeout_error(target: str, timeout_s: float) -> DeadlineExceededError:
    """Return the error of a call whose timeout has passed."""
    return DeadlineExceededError(f"no response from {target} within {timeout_s:g} s; set a longer timeout")


def make_closed_error(target: str) -> UnavailableError:
    """Return the error of a call on a closed client."""
    return UnavailableError(f"this client of {target} is closed; create a new one")


def make_cancelled_error(target: str) -> CallCancelledError:
    """Return the error of a call that was cancelled by its caller or by closing the client."""
    return CallCancelledError(f"the call to {target} was cancelled before its response arrived")


def _advise(target: str, details: str) -> str:
    """Return the probable cause of a failed connection, derived from gRPC's message."""
    if "Hostname Verification" in details:
        return "its certificate is for other host names: connect by one of those, or issue a certificate for this one"
    if "certificate has expired" in details:
        return "its certificate has expired: ask the operator to replace it"
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return "no authority in ca= (--tls-ca) has signed its certificate: pass the file of the one that has"
    if "WRONG_VERSION_NUMBER" in details:
        return "the server uses plain text: remove ca= (--tls-ca), or start it with --tls-cert"
    if "failed to connect" in details and _CONNECTION_CLOSED.search(details):
        return (
            "a server accepted the connection and closed it: if it uses TLS, pass ca= (--tls-ca); if it runs with "
            "--tls-client-ca, pass a certificate that its authorities signed as cert= and key= (--tls-cert, --tls-key)"
        )
    return f"start a server there (quantra serve --models DIR --listen {target}), or check the address"

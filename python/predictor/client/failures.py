"""What a call that failed means."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

import grpc

from predictor.errors import (
    CallCancelledError,
    DeadlineExceededError,
    PermissionDeniedError,
    QuantraError,
    QueueFullError,
    RequestTooLargeError,
    UnauthenticatedError,
    UnavailableError,
)
from predictor.wire import errors

if TYPE_CHECKING:
    from collections.abc import Iterable

_HUNG_UP: Final = re.compile(r"Socket closed|Connection reset|Broken pipe")

_REFUSALS: Final[Mapping[grpc.StatusCode, tuple[type[QuantraError], str]]] = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: (QueueFullError, "ask again in a moment"),
    grpc.StatusCode.UNAUTHENTICATED: (UnauthenticatedError, "give a token that it knows"),
    grpc.StatusCode.PERMISSION_DENIED: (PermissionDeniedError, "give a token that is good for it"),
}
"""By status, where the answer says nothing more: the error, and what to do."""

_ENDED_WHILE_WRITING: Final = "Internal error from Core"
"""What grpc.aio says instead of the server's status, where a stream ends just while a message is written to it."""


def error_of(failure: grpc.RpcError, target: str, timeout_s: float) -> QuantraError:
    """The error that the server meant, or the network's."""
    trailers = cast("Iterable[tuple[str, str | bytes]]", failure.trailing_metadata() or ())  # the stubs lack __iter__
    for key, value in trailers:
        if key == errors.DETAILS_KEY and isinstance(value, bytes):
            meant = errors.decode_details(value)
            if meant is not None:
                return meant
    return _network_error(failure, target, timeout_s)


def closed(target: str) -> UnavailableError:
    """The error of a call on a client that was closed."""
    return UnavailableError(f"this client of {target} is closed; make another one")


def cancelled(target: str) -> CallCancelledError:
    """The error of a call that its caller, or the end of its client, cut off."""
    return CallCancelledError(f"the call to {target} was cancelled before its answer was there")


def _network_error(failure: grpc.RpcError, target: str, timeout_s: float) -> QuantraError:
    code, details = failure.code(), failure.details() or ""
    match code:
        case grpc.StatusCode.UNAVAILABLE:
            problem = f"no server answers at {target} ({details}); {_advice(target, details)}"
        case grpc.StatusCode.INTERNAL if details == _ENDED_WHILE_WRITING:
            problem = f"{target} ended the stream while a request was being sent; open another one"
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceededError(f"{target} gave no answer within {timeout_s:g} seconds; allow more time")
        case grpc.StatusCode.CANCELLED:
            return cancelled(target)
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than max" in details:
            return RequestTooLargeError(f"{target} refused the call: {details}; send less at once")
        case _ if code in _REFUSALS:
            kind, advice = _REFUSALS[code]
            return kind(f"{target} refused the call: {details}; {advice}")
        case _:
            return QuantraError(f"{target} answered {code.name}: {details}; is it a Quantra server of this version?")
    return UnavailableError(problem)


def _advice(target: str, details: str) -> str:
    """What is probably wrong where nobody answers, from what gRPC says of it."""
    if "Hostname Verification" in details:
        return "its certificate is for other names: connect by one of those, or have one made for this one"
    if "certificate has expired" in details:
        return "its certificate has expired: have whoever runs it put another in its place"
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return "no authority in ca= (--tls-ca) vouches for its certificate: give the file of the one that does"
    if "WRONG_VERSION_NUMBER" in details:
        return "a server is there, but speaks plain text: take ca= (--tls-ca) away, or start it with --tls-cert"
    if "failed to connect" in details and _HUNG_UP.search(details):
        return (
            "somebody is there and hung up: a server with TLS does so unless there is ca= (--tls-ca), and one with "
            "--tls-client-ca unless its authorities vouch for cert= and key= (--tls-cert, --tls-key)"
        )
    return f"start a server there (quantra serve --models DIR --listen {target}), or check the address"

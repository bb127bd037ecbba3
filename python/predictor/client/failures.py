"""What a call that failed means."""

from typing import TYPE_CHECKING, cast

import grpc

from predictor.errors import (
    CallCancelledError,
    DeadlineExceededError,
    QuantraError,
    QueueFullError,
    RequestTooLargeError,
    UnavailableError,
)
from predictor.wire import errors

if TYPE_CHECKING:
    from collections.abc import Iterable


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
            return UnavailableError(
                f"no server answers at {target} ({details}); start a server there (quantra serve --models DIR --listen "
                f"{target}), or check the address"
            )
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceededError(f"{target} gave no answer within {timeout_s:g} seconds; allow more time")
        case grpc.StatusCode.CANCELLED:
            return cancelled(target)
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than max" in details:
            return RequestTooLargeError(f"{target} refused the call: {details}; send less at once")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return QueueFullError(f"{target} refused the call: {details}; ask again in a moment")
        case _:
            return QuantraError(f"{target} answered {code.name}: {details}; is it a Quantra server of this version?")

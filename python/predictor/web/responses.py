"""Responses of the HTTP server: JSON of messages and of errors."""

import math
from collections.abc import Mapping
from typing import Final

from google.protobuf.message import Message
from starlette.responses import Response

from predictor.errors import QuantraError, QueueFullError, RequestTooLargeError, Status, get_error_status
from predictor.web.json_messages import format_message
from predictor.wire import errors

STATUS_CODES: Final[Mapping[Status, int]] = {
    Status.INVALID_ARGUMENT: 400,
    Status.FAILED_PRECONDITION: 400,
    Status.UNAUTHENTICATED: 401,
    Status.PERMISSION_DENIED: 403,
    Status.NOT_FOUND: 404,
    Status.RESOURCE_EXHAUSTED: 429,
    Status.CANCELLED: 499,
    Status.INTERNAL: 500,
    Status.DATA_LOSS: 500,
    Status.UNIMPLEMENTED: 501,
    Status.UNAVAILABLE: 503,
    Status.DEADLINE_EXCEEDED: 504,
}
"""HTTP status of each status, as google.rpc.Code lists them."""
TOO_LARGE: Final = 413
"""HTTP status of a request that stays too large, unlike one that finds a full queue."""
JSON: Final = "application/json"


def respond(message: Message, *, as_lists: bool = False, code: int = 200) -> Response:
    """Respond with the JSON of a message."""
    return Response(format_message(message, as_lists=as_lists), code, media_type=JSON)


def respond_error(error: QuantraError, *, ends_connection: bool = False) -> Response:
    """Respond with the JSON of quantra.v1.Error.

    Args:
        error: The error.
        ends_connection: Whether to close the connection, because the rest of its request is not read.
    """
    response = respond(errors.encode(error), code=status_code(error))
    if isinstance(error, QueueFullError):
        response.headers["retry-after"] = str(math.ceil(error.retry_after_s))
    if ends_connection:
        response.headers["connection"] = "close"
    return response


def status_code(error: QuantraError) -> int:
    """Return the HTTP status of an error."""
    return TOO_LARGE if isinstance(error, RequestTooLargeError) else STATUS_CODES[get_error_status(error).status]

"""How a call fails on gRPC: the one place where an error becomes a status."""

from typing import Any, Never

import grpc
import grpc.aio

from predictor.errors import QuantraError, Status, answer_of
from predictor.wire import errors

STATUS_CODES = {status: grpc.StatusCode[status.value] for status in Status}
"""gRPC's own constant for each status."""


async def refuse(context: grpc.aio.ServicerContext[Any, Any], error: QuantraError) -> Never:
    """End the call with the error's status, its message, and google.rpc.Status details."""
    await context.abort(
        STATUS_CODES[answer_of(error).status],
        errors.shortened(error.message, errors.MAX_CALL_MESSAGE),
        ((errors.DETAILS_KEY, errors.encode_details(error)),),
    )

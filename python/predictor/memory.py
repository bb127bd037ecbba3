"""Detection of out-of-memory errors, and the error returned for them and for bugs.

Out of memory is reported as QUEUE_FULL: a request within the limits can succeed once other requests free their memory.
"""

import logging
import traceback
from logging import Logger
from typing import Final

from predictor.errors import InternalError, QuantraError, QueueFullError

_log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""Seconds after which a concurrent batch or step of an explanation has usually freed its memory."""

ONEDNN: Final = ("could not create a memory", "could not create a primitive", "could not execute a primitive")
"""Messages of oneDNN, which omit the status. A network that has run before has its kernels, so memory is the cause."""

TEXTS: Final = (
    "out of memory",  # CUDA: torch.OutOfMemoryError, or a plain RuntimeError
    "can't allocate memory",  # torch's CPU allocator, a plain RuntimeError
    "[enforce fail a",  # the same message, truncated for lack of memory
    "not enough memory",  # the same on Windows
    "std::bad_alloc",  # from C++, passed on by torch
    *ONEDNN,
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "can't start new thread",  # no memory for its stack
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means out of memory, on any device.

    Matches the text of torch's errors, so that callers do not need to import torch.
    """
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in TEXTS)


def prepare_retry(error: BaseException) -> None:
    """Prepare a retry with smaller pieces; disable oneDNN for the process if the error comes from it.

    After running out of memory while creating a kernel, oneDNN never creates that kernel again, even with enough
    memory (torch 2.13). Torch's native kernels are slower, and their results differ by rounding.
    """
    _log.info("memory ran out, retrying with smaller pieces: %s", str(error).partition("\n")[0])
    if any(text in str(error) for text in ONEDNN):
        import torch  # loaded already, since this error comes from it

        torch.backends.mkldnn.set_flags(_enabled=False)
        _log.warning("memory ran out in oneDNN, which is now disabled: forward passes are slower until a restart")


def make_caller_error(call: str, error: Exception, log: Logger) -> QuantraError:
    """The error to return to the caller: `error` itself if it is a QuantraError, else QueueFullError or InternalError.

    Details that are not for the caller are logged.
    """
    if isinstance(error, QuantraError):
        return error
    if is_out_of_memory(error):
        log.error("%s: memory ran out: %s", call, str(error).partition("\n")[0] or type(error).__name__)
        # otherwise its arrays would live until the next full garbage collection
        cause: BaseException | None = error
        while cause is not None:
            traceback.clear_frames(cause.__traceback__)
            cause = cause.__context__
        return QueueFullError(
            "memory ran out during this call; retry in a moment, or send fewer symbols at once",
            metadata={"retry_after_ms": str(round(1000 * RETRY_S))},
        )
    return InternalError.of(call, error, log)

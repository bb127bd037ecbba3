"""How to know that memory ran out, and what a caller is told when that, or a bug of ours, ended its call.

Memory that ran out is QUEUE_FULL: a request within its limits is none that could never be answered, and what others
hold meanwhile comes free again.
"""

import logging
import traceback
from logging import Logger
from typing import Final

from predictor.errors import InternalError, QuantraError, QueueFullError

_log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""Seconds in which a batch or an explanation's step beside the call has ended and given its memory back."""

ONEDNN: Final = ("could not create a memory", "could not create a primitive", "could not execute a primitive")
"""What oneDNN says, whose statuses do not reach its messages; a network that has answered before has its kernels."""

TEXTS: Final = (
    "out of memory",  # torch.OutOfMemoryError of CUDA, and what it is a plain RuntimeError of
    "can't allocate memory",  # torch's CPU allocator, a plain RuntimeError
    "[enforce fail a",  # as much of the same as there is memory for
    "not enough memory",  # the same on Windows
    "std::bad_alloc",  # C++'s own, as torch hands it on
    *ONEDNN,
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "can't start new thread",  # no room for its stack
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on whatever device.

    It is told by its text, so that nobody needs torch to know torch's.
    """
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in TEXTS)


def recover(error: BaseException) -> None:
    """Make ready for another try in smaller pieces: do without oneDNN from now on, if the error is its own.

    Once memory has run out while it made a kernel, it never makes one again, however much memory there is (torch
    2.13); torch's own are slower, and what they answer differs by rounding. This is for the whole process.
    """
    _log.info("memory ran out, so the next try is smaller: %s", str(error).partition("\n")[0])
    if any(text in str(error) for text in ONEDNN):
        import torch  # whoever meets this error has it

        torch.backends.mkldnn.set_flags(_enabled=False)
        _log.warning("memory ran out in oneDNN, which is not used from now on: forwards are slower until a restart")


def no_memory() -> QueueFullError:
    """What a caller is told whose call did not fit into memory."""
    return QueueFullError(
        "memory ran out while this call was worked on; ask again in a moment, or for fewer symbols at once",
        metadata={"retry_after_ms": str(round(1000 * RETRY_S))},
    )


def error_of(call: str, error: Exception, log: Logger) -> QuantraError:
    """The error that a caller gets: the error itself, that memory ran out, or that of a bug of ours.

    The log has what the caller is not told.
    """
    if isinstance(error, QuantraError):
        return error
    if is_out_of_memory(error):
        log.error("%s: memory ran out: %s", call, str(error).partition("\n")[0] or type(error).__name__)
        _let_go(error)
        return no_memory()
    return InternalError.of(call, error, log)


def _let_go(error: BaseException) -> None:
    """Free what the frames hold that an error came through: arrays that would live until the next full collection."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__context__

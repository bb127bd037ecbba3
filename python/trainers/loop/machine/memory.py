"""Memory that ran out: how to know it, and how to give back what is no longer used."""

import gc

import torch

from trainers.loop.machine.footprint import in_words, total_bytes, used_bytes

TEXTS = (
    "out of memory",  # CUDA, HIP and XPU; "MPS backend out of memory" is a plain RuntimeError
    "can't allocate memory",  # the CPU's allocator, and that is a plain RuntimeError too
    "not enough memory",  # the same on Windows
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
WITHOUT_KERNEL = (
    "nable to find an engine to execute this computation",  # after "GET was u", "FIND was u" or, of older torch, "U"
    "Unable to find a valid cuDNN algorithm to run convolution",
)
"""Convolutions on CUDA. Torch tries one kernel after the other, passes over those whose workspace finds no memory, and
says this when none is left (aten/src/ATen/native/cudnn, Conv_v8.cpp and Conv_v7.cpp). It also says so where cuDNN has
no kernel at all, such as for depthwise convolutions in bfloat16 on older GPUs; then no smaller piece helps."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on whatever device.

    Other CUDA errors are not among them: after those the device cannot be used any more.
    """
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in (*TEXTS, *WITHOUT_KERNEL))


def cause_of(error: BaseException) -> str:
    """What the allocator said, in one line; where it may mean something else, that too."""
    said = str(error).partition("\n")[0]
    if isinstance(error, torch.OutOfMemoryError) or not any(text in said for text in WITHOUT_KERNEL):
        return said
    return (
        f"{said}: cuDNN found no memory for its workspace, or it has no kernel for these shapes in this precision; if "
        "there is memory left, take another precision, or set torch.backends.cudnn.enabled = False"
    )


def usage(device: torch.device) -> str:
    """How much memory is in use now and how much there is, in words."""
    used, total = used_bytes(device), total_bytes(device)
    known = "an unknown amount" if used is None else in_words(used)
    return f"{known} in use on {device}" + ("" if total is None else f" of {in_words(total)}")


def release(device: torch.device, *, thorough: bool = True) -> None:
    """Free what nobody refers to any more; call it outside of the `except` block, which keeps the failed frames.

    Args:
        device: Whose cache is emptied.
        thorough: Look for old garbage too, which takes longer than many a window.
    """
    gc.collect(2 if thorough else 1)
    if device.type != "cpu":
        torch.accelerator.empty_cache()

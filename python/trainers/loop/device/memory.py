"""Memory use of devices, detection of out-of-memory errors, and release of memory."""

import gc
import os
import sys
from pathlib import Path
from typing import Final

import torch

KIBIBYTE = 1024
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
STATM = Path("/proc/self/statm")  # Linux: sizes of the process in pages; the second is what is resident

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

_BLOCK: Final = 2**24
"""Bytes. Larger arrays go back to the system when they are freed, as glibc has them."""


def peak_bytes(device: torch.device) -> int | None:
    """The most memory used so far, in bytes.

    On CUDA and XPU that of torch's tensors since the start of the process or the last reset of torch's count; on Apple
    GPUs, which count no peak, what the driver holds now, unused cache included; on a CPU the largest resident size of
    the process; None where it is unknown.
    """
    match device.type:
        case "cuda":
            return torch.cuda.max_memory_allocated(device)
        case "xpu":
            return torch.xpu.max_memory_allocated(device)
        case "mps":
            return torch.mps.driver_allocated_memory()
        case _:
            return _peak_resident_bytes()


def used_bytes(device: torch.device) -> int | None:
    """Memory in use now, in bytes: of tensors on a GPU, of the whole process on a CPU; None where that is unknown."""
    match device.type:
        case "cuda":
            return torch.cuda.memory_allocated(device)
        case "xpu":
            return torch.xpu.memory_allocated(device)
        case "mps":
            return torch.mps.current_allocated_memory()
        case _:
            return _resident_bytes()


def total_bytes(device: torch.device) -> int | None:
    """Memory that there is, in bytes, whoever uses it.

    On Apple GPUs what the system recommends as the most; on a CPU the machine's memory or, where it is less, the
    process's limit of address space; None where that is unknown.
    """
    match device.type:
        case "cuda":
            return torch.cuda.get_device_properties(device).total_memory
        case "xpu":
            return torch.xpu.get_device_properties(device).total_memory
        case "mps":
            return torch.mps.recommended_max_memory()
        case _:
            return _host_bytes()


def free_bytes(device: torch.device) -> int | None:
    """Memory that is not in use, in bytes, torch's own cache not counted; None where that is unknown."""
    match device.type:
        case "cuda":
            return torch.cuda.mem_get_info(device)[0]
        case "xpu":
            return torch.xpu.mem_get_info(device)[0]
        case _:
            return None


def in_words(size: int) -> str:
    """A size in bytes as people write it, such as `1.5 GiB`."""
    amount = float(size)
    for unit in UNITS[:-1]:
        if amount < KIBIBYTE:
            return f"{size} {unit}" if unit == UNITS[0] else f"{amount:.1f} {unit}"
        amount /= KIBIBYTE
    return f"{amount:.1f} {UNITS[-1]}"


def _peak_resident_bytes() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * KIBIBYTE  # macOS counts bytes, Linux KiB


def _resident_bytes() -> int | None:
    if sys.platform == "win32" or not STATM.exists():
        return None
    return int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _host_bytes() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return physical if limit == resource.RLIM_INFINITY else min(physical, limit)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on whatever device.

    Other CUDA errors are not among them: after those the device cannot be used any more.
    """
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in (*TEXTS, *WITHOUT_KERNEL))


def cause_of(error: BaseException) -> str:
    """What the allocator message, in one line; where it may mean something else, that too."""
    message = str(error).partition("\n")[0]
    if isinstance(error, torch.OutOfMemoryError) or not any(text in message for text in WITHOUT_KERNEL):
        return message
    return (
        f"{message}: cuDNN found no memory for its workspace, or it has no kernel for these shapes in this precision; "
        "if there is memory left, use another precision, or set torch.backends.cudnn.enabled = False"
    )


def usage(device: torch.device) -> str:
    """How much memory is in use now and how much there is, in words."""
    used, total = used_bytes(device), total_bytes(device)
    known = "an unknown amount" if used is None else in_words(used)
    return f"{known} in use on {device}" + ("" if total is None else f" of {in_words(total)}")


def release(device: torch.device, *, thorough: bool = True) -> None:
    """Free unreferenced memory; call it outside of the `except` block, which keeps the failed frames.

    Args:
        device: Whose cache is emptied.
        thorough: Look for old garbage too, which takes longer than many a window.
    """
    gc.collect(2 if thorough else 1)
    if device.type != "cpu":
        torch.accelerator.empty_cache()


def keep_freed_memory() -> None:
    """Let the process keep up to 32 MiB of freed memory, so that a training step finds again what the last one freed.

    glibc returns the free end of its heap once that is twice as large as the largest block it has seen freed (see
    M_MMAP_THRESHOLD in mallopt(3)). Small networks free a little more at the end of every step, and the pages, which
    the system must clear and hand out again, then cost as much as the step itself. A large block that is taken and
    freed, and never written to, moves that limit. Where the C library is another one, nothing changes.
    """
    torch.empty(_BLOCK, dtype=torch.uint8)

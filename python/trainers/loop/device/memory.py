"""Memory use of devices, detection of out-of-memory errors, and release of memory."""

import gc
import os
import sys
from pathlib import Path
from typing import Final

import torch

KIBIBYTE = 1024
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
STATM = Path("/proc/self/statm")  # Linux: sizes of the process in pages; the second is the resident size

OUT_OF_MEMORY_TEXTS = (
    "out of memory",  # CUDA, HIP and XPU; "MPS backend out of memory" is a plain RuntimeError
    "can't allocate memory",  # the CPU's allocator, also a plain RuntimeError
    "not enough memory",  # the same on Windows
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
NO_KERNEL_TEXTS = (
    "nable to find an engine to execute this computation",  # after "GET was u", "FIND was u" or, of older torch, "U"
    "Unable to find a valid cuDNN algorithm to run convolution",
)
"""Messages of convolutions on CUDA. Torch tries all kernels, skips those whose workspace does not fit in memory, and
raises this if none is left (aten/src/ATen/native/cudnn, Conv_v8.cpp and Conv_v7.cpp). It raises the same if cuDNN has
no kernel at all, as for depthwise convolutions in bfloat16 on older GPUs; smaller micro-batches do not help then."""

_BLOCK: Final = 2**24
"""Bytes. glibc then keeps twice as much; see `keep_freed_memory`."""


def measure_peak_bytes(device: torch.device) -> int | None:
    """Return the peak memory use in bytes; None if unknown.

    On CUDA and XPU it is that of torch's tensors since the start of the process or the last reset. Apple GPUs have no
    peak counter, so it is the current memory of the driver, including unused cache. On a CPU it is the peak resident
    size of the process.
    """
    match device.type:
        case "cuda":
            return torch.cuda.max_memory_allocated(device)
        case "xpu":
            return torch.xpu.max_memory_allocated(device)
        case "mps":
            return torch.mps.driver_allocated_memory()
        case _:
            if sys.platform == "win32":
                return None
            import resource

            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return peak if sys.platform == "darwin" else peak * KIBIBYTE  # macOS counts bytes, Linux KiB


def measure_used_bytes(device: torch.device) -> int | None:
    """Return the memory in use in bytes: by tensors on a GPU, by the process on a CPU; None if unknown."""
    match device.type:
        case "cuda":
            return torch.cuda.memory_allocated(device)
        case "xpu":
            return torch.xpu.memory_allocated(device)
        case "mps":
            return torch.mps.current_allocated_memory()
        case _:
            if sys.platform == "win32" or not STATM.exists():
                return None
            return int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure_total_bytes(device: torch.device) -> int | None:
    """Return the total memory of a device in bytes; None if unknown.

    On Apple GPUs it is the maximum that the system recommends. On a CPU it is the machine's memory or the process's
    limit on address space, whichever is lower.
    """
    match device.type:
        case "cuda":
            return torch.cuda.get_device_properties(device).total_memory
        case "xpu":
            return torch.xpu.get_device_properties(device).total_memory
        case "mps":
            return torch.mps.recommended_max_memory()
        case _:
            if sys.platform == "win32":
                return None
            import resource

            limit, _ = resource.getrlimit(resource.RLIMIT_AS)
            physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            return physical if limit == resource.RLIM_INFINITY else min(physical, limit)


def measure_free_bytes(device: torch.device) -> int | None:
    """Return the free memory of a device in bytes, without torch's cache; None if unknown."""
    match device.type:
        case "cuda":
            return torch.cuda.mem_get_info(device)[0]
        case "xpu":
            return torch.xpu.mem_get_info(device)[0]
        case _:
            return None


def format_size(size: int) -> str:
    """Format a size in bytes, such as `1.5 GiB`."""
    amount = float(size)
    for unit in UNITS[:-1]:
        if amount < KIBIBYTE:
            return f"{size} {unit}" if unit == UNITS[0] else f"{amount:.1f} {unit}"
        amount /= KIBIBYTE
    return f"{amount:.1f} {UNITS[-1]}"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on any device.

    Other CUDA errors do not count, because the device is unusable after them.
    """
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    texts = (*OUT_OF_MEMORY_TEXTS, *NO_KERNEL_TEXTS)
    return isinstance(error, RuntimeError) and any(text in str(error) for text in texts)


def describe_cause(error: BaseException) -> str:
    """Return the message of the allocator in one line, with other possible causes."""
    message = str(error).partition("\n")[0]
    if isinstance(error, torch.OutOfMemoryError) or not any(text in message for text in NO_KERNEL_TEXTS):
        return message
    return (
        f"{message}: cuDNN found no memory for its workspace, or it has no kernel for these shapes in this precision; "
        "if memory is left, use another precision, or set torch.backends.cudnn.enabled = False"
    )


def describe_usage(device: torch.device) -> str:
    """Describe the memory in use and the total memory."""
    used, total = measure_used_bytes(device), measure_total_bytes(device)
    amount = "an unknown amount" if used is None else format_size(used)
    return f"{amount} in use on {device}" + ("" if total is None else f" of {format_size(total)}")


def release(device: torch.device, *, thorough: bool = True) -> None:
    """Free unreferenced memory; call it outside the `except` block, which keeps the failed frames alive.

    Args:
        device: The device whose cache is emptied.
        thorough: Collect old garbage too, which may take longer than a window.
    """
    gc.collect(2 if thorough else 1)
    if device.type != "cpu":
        torch.accelerator.empty_cache()


def keep_freed_memory() -> None:
    """Let the process keep up to 32 MiB of freed memory for the next training step.

    glibc returns the free end of its heap to the system when it is twice as large as the largest block freed so far
    (see M_MMAP_THRESHOLD in mallopt(3)). Small networks exceed this at the end of every step, and then allocating and
    clearing the pages again takes as long as the step itself. Allocating and freeing a large block, without writing to
    it, raises the limit. With other C libraries this has no effect.
    """
    torch.empty(_BLOCK, dtype=torch.uint8)

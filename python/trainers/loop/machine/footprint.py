"""How much memory is used, was used at most, and is there."""

import os
import sys
from pathlib import Path

import torch

KIBIBYTE = 1024
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
STATM = Path("/proc/self/statm")  # Linux: sizes of the process in pages; the second is what is resident


def peak_bytes(device: torch.device) -> int | None:
    """The most memory used so far, in bytes.

    On CUDA and XPU that of torch's tensors since the start of the process or the last reset of torch's count; on Apple
    GPUs, which count no peak, what the driver holds now, unused cache included; on a CPU the largest resident size of
    the process; None where the system does not tell.
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
    """Memory that nobody uses, in bytes, torch's own cache not counted; None where that is unknown."""
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

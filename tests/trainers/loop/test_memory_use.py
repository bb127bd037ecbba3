"""Memory figures, and reuse of memory between training steps."""

import mmap
import os
import platform
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest
import torch

from trainers.loop.device.memory import format_size, measure_peak_bytes, measure_total_bytes, measure_used_bytes

CPU = torch.device("cpu")
MEBIBYTE = 2**20


@contextmanager
def use_memory(size: int) -> Generator[None]:
    """Fill `size` bytes of its own mapping, because the allocator of tensors reuses and keeps what was freed."""
    with mmap.mmap(-1, size) as mapping:
        for start in range(0, size, mmap.PAGESIZE):
            mapping[start] = 1
        yield


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (3 * 2**29, "1.5 GiB"),
        (139 * 2**30, "139.0 GiB"),
        (3 * 2**50, "3072.0 TiB"),
    ],
)
def test_a_size_is_written_in_the_unit_that_people_use(size: int, words: str) -> None:
    assert format_size(size) == words


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the present size, which the peak is built on")
def test_the_peak_of_the_process_grows_with_its_memory_and_stays() -> None:
    before, used = measure_peak_bytes(CPU), measure_used_bytes(CPU)
    assert before is not None
    assert used is not None
    with use_memory(before - used + 64 * MEBIBYTE):
        held = measure_peak_bytes(CPU)
    after = measure_peak_bytes(CPU)
    assert held is not None
    assert after is not None
    assert before + 32 * MEBIBYTE <= held <= after


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the present size")
def test_the_present_size_of_the_process_follows_its_memory() -> None:
    before = measure_used_bytes(CPU)
    with use_memory(64 * MEBIBYTE):
        held = measure_used_bytes(CPU)
    after = measure_used_bytes(CPU)
    assert before is not None
    assert held is not None
    assert after is not None
    assert held - before > 48 * MEBIBYTE
    assert held - after > 48 * MEBIBYTE


@pytest.mark.skipif(sys.platform == "win32", reason="Windows tells no total")
def test_a_limit_of_address_space_counts_as_the_memory_there_is() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    physical = measure_total_bytes(CPU)
    assert physical is not None
    limit = physical - MEBIBYTE
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
        assert measure_total_bytes(CPU) == limit
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert measure_total_bytes(CPU) == physical


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_figures_of_a_gpu_follow_its_tensors() -> None:
    device = torch.device("cuda", 0)
    before = measure_used_bytes(device)
    large = torch.empty(64 * MEBIBYTE, dtype=torch.uint8, device=device)
    held, peak, total = measure_used_bytes(device), measure_peak_bytes(device), measure_total_bytes(device)
    assert before is not None
    assert held == before + large.nbytes
    assert peak is not None
    assert total is not None
    assert before + large.nbytes <= peak <= total


PROGRAM = """
import resource
import torch
from torch import nn
from trainers.loop import Loop, Loss, Phase

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(2**19) for _ in range(8)]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

net = nn.Linear(1, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
phase = Phase("train", lambda batch: Loss(net(batch).mean(), len(batch)), net.parameters(), optimizer)
with Loop([phase], modules={"net": net}, device="cpu").running():
    faults()
    print(faults() + faults())
"""
PAGES = 8 * 2**21 // 4096


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have limits of their own")
def test_memory_that_a_step_freed_is_not_asked_of_the_system_again() -> None:
    # MALLOC_ settings of the caller would switch off what glibc learns
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=own, check=True, capture_output=True, text=True, timeout=120
    )
    assert int(ran.stdout) < PAGES

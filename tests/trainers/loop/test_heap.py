"""Memory that a training step frees is there for the next one."""

import os
import platform
import subprocess
import sys

import pytest

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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have limits of their own")
def test_memory_that_a_step_freed_is_not_asked_of_the_system_again() -> None:
    # MALLOC_ settings of the caller would switch off what glibc learns
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=own, check=True, capture_output=True, text=True, timeout=120
    )
    assert int(ran.stdout) < PAGES

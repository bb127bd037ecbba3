"""Joining the group that `torchrun` started, or staying alone."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from trainers.loop.errors import ParallelismError
from trainers.loop.group.alone import Alone
from trainers.loop.group.collective import answered
from trainers.loop.group.group import Group
from trainers.loop.group.processes import Processes

PATIENCE = timedelta(minutes=10)
BACKENDS = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl"}


@contextmanager
def joined(device_type: str, *, timeout: timedelta = PATIENCE) -> Generator[Group]:
    """The group that this process belongs to.

    That is the one that `torchrun` describes in the environment, left at the end; or torch's default group where it
    exists already, which stays; or this process alone.

    Args:
        device_type: Where the modules are: `cpu`, `cuda` or `xpu`.
        timeout: How long a process waits for another before it counts as lost. Longer than the longest time by which
            one may be behind, such as for a checkpoint, a validation or slow data.

    Raises:
        ParallelismError: There are several processes, and this device or this torch does not let them speak.
        PeerLostError: The processes did not meet in time.
    """
    if dist.is_available() and dist.is_initialized():
        yield Alone() if dist.get_world_size() == 1 else Processes()
    elif int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Alone()
    else:
        backend = _backend(device_type)
        with answered("meeting the group"):
            _meet(backend, timeout)
        try:
            group = Processes()
            group.gather(group.rank)  # nobody leaves, with an error of its own, while another is still arriving
            yield group
        finally:
            # At once, also after an error: it closes the connections, by which the others notice.
            dist.destroy_process_group()


def local_rank() -> int:
    """This process's number on its machine, from 0: which of the machine's GPUs is its own."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def launched_rank() -> int:
    """This process's number among all that `torchrun` started, before it has joined them; 0 without them."""
    return int(os.environ.get("RANK", "0"))


def launched_size() -> int:
    """How many processes `torchrun` started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _backend(device_type: str) -> str:
    """The backend for the device's tensors; Python objects go over gloo everywhere."""
    backend = BACKENDS.get(device_type)
    if backend is None:
        raise ParallelismError(
            f"several processes were started (WORLD_SIZE is {os.environ['WORLD_SIZE']}), but on {device_type!r} they "
            "cannot add up gradients; start one process, or take device='cpu'"
        )
    if not dist.is_available() or not dist.is_backend_available(backend):
        raise ParallelismError(
            f"several processes on {device_type!r} speak through {backend}, which this build of torch lacks; install "
            "one that has it, or start one process"
        )
    return backend if backend == "gloo" else f"cpu:gloo,{device_type}:{backend}"


def _meet(backend: str, timeout: timedelta) -> None:
    # A lost process must end a wait with an error. By default nccl ends the whole program instead, without one.
    os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
    store, rank, size = next(rendezvous("env://", timeout=timeout))
    # torchrun keeps what is stored as long as it lives; a second group of the same processes needs names of its own.
    visit = store.add(f"visits of rank {rank}", 1)
    dist.init_process_group(
        backend, store=PrefixStore(f"visit {visit}", store), rank=rank, world_size=size, timeout=timeout
    )

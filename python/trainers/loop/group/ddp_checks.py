"""Checks before several processes train together: the same phases everywhere, and modules that do not communicate."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainers.loop.checkpoint.compatibility import layout
from trainers.loop.errors import ParallelismError
from trainers.loop.group.group import Group
from trainers.loop.window.phase_run import PhaseRun


def check_phases(group: Group, trained: Mapping[str, nn.Module], phases: Sequence[PhaseRun[Any]]) -> None:
    """Check that the phases are the same everywhere; otherwise the weights would part, or the processes wait in vain.

    Raises:
        ParallelismError: A phase, its optimizer or a setting of that is not.
        PeerLostError: Another process ended or hangs.
    """
    if group.size == 1:
        return
    group.check_same("the phases", str(layout(trained, phases)))
    for phase in phases:
        settings = [
            {name: value for name, value in content.items() if name != "params"}
            for content in phase.phase.optimizer.param_groups
        ]
        group.check_same(f"the optimizer's settings in phase {phase.phase.name!r}", str(settings))


def check_modules(modules: Mapping[str, nn.Module], *, size: int, splitting: bool) -> None:
    """Refuse modules that a group cannot train.

    A process that runs out of memory repeats a piece of a window. A module that exchanges something in its forward or
    backward would then exchange it once more than the others do, which hangs or, worse, mixes different things up.

    Args:
        modules: By name.
        size: How many processes there are.
        splitting: Whether a piece is repeated when memory runs out.

    Raises:
        ParallelismError: A module is sharded, wrapped in DistributedDataParallel, computes statistics over all
            processes or has sparse gradients. One process alone may use all but the last, and sharded ones only where
            nothing is repeated.
    """
    for name, module in modules.items():
        for path, part in module.named_modules(prefix=name):
            if size > 1 or splitting:
                _check_whole(path, part)
            if size > 1:
                _check_silent(path, part)
            _check_dense(path, part)


def _check_whole(path: str, part: nn.Module) -> None:
    if _is_sharded(part):
        raise ParallelismError(
            f"{path} is sharded (FSDP or DTensor): its forward and backward gather weights from all processes, which "
            "one that runs out of memory cannot repeat alone, and its gradients are shards. Give the loop the module "
            "itself: it adds the gradients up once per window. Where the module is too large for one device, use a "
            "trainer made for sharding"
        )


def _check_silent(path: str, part: nn.Module) -> None:
    if isinstance(part, DistributedDataParallel):
        raise ParallelismError(
            f"{path} is wrapped in DistributedDataParallel, which adds gradients up in every backward; the loop does "
            "so itself, once per window: give it the wrapped module (.module)"
        )
    if isinstance(part, nn.SyncBatchNorm):
        raise ParallelismError(
            f"{path} is a SyncBatchNorm: its forward waits for the other processes, but each may cut its batches "
            "differently; use GroupNorm or LayerNorm"
        )


def _check_dense(path: str, part: nn.Module) -> None:
    if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse:
        raise ParallelismError(
            f"{path} has sparse gradients, whose norm is not measured and which no group can add up in one vector; "
            "make it with sparse=False"
        )


def _is_sharded(part: nn.Module) -> bool:
    # What was never imported is not in use, and importing it takes a while.
    if "torch.distributed.fsdp" in sys.modules:
        from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

        if isinstance(part, FSDPModule | FullyShardedDataParallel):
            return True
    if "torch.distributed.tensor" in sys.modules:
        from torch.distributed.tensor import DTensor

        return any(isinstance(parameter, DTensor) for parameter in part.parameters(recurse=False))
    return False

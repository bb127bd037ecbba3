"""A group of one process, and the checks of the modules that a group trains."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.parallel import DistributedDataParallel

from trainers.loop.errors import ParallelismError
from trainers.loop.group.totals import LocalTotals, Totals
from trainers.loop.loss import WeightedMean

Value = TypeVar("Value")


class Group:
    """The processes that train the same modules, each on its share of the batches; here, this process only.

    In `Processes`, every process must make the same calls in the same order, because each call waits for all
    processes. It raises `PeerLostError` if another process has ended or hangs. Processes are independent between two
    calls: forward and backward exchange nothing, so a process may repeat micro-batches of a window.

    Attributes:
        rank: Number of this process, from 0.
        size: Number of processes.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size

    def combine(self, local: LocalTotals, parameters: Sequence[Parameter]) -> Totals:  # noqa: ARG002  this process has nothing to add
        """Sum a window over all processes: totals, requests and gradients.

        Args:
            local: The totals of this process, which may have no batch or no target.
            parameters: The phase's parameters [...], with this process's gradients. No other phase may have them.
                Afterwards the gradients of all processes are the same sums, up to the totals' correction. A parameter
                has no gradient if it has none in any process.

        Returns:
            The totals over all processes; read them before the phase's next window is combined.

        Raises:
            ContractError: The loss has a part that no process had in the phase's first window.
            ParallelismError: The parameters cannot be summed in one vector.
        """
        return local

    def add_counts(self, counts: Mapping[str, int], parameters: Sequence[Parameter]) -> Mapping[str, int]:  # noqa: ARG002  as above
        """Sum the targets of every term of a phase's loss over all processes, before its first forward.

        Args:
            counts: The counts of this process by term; empty if it has no batch.
            parameters: The phase's parameters [...], which identify the phase.

        Raises:
            ContractError: The counts have a term that no process had in the phase's first window.
        """
        return counts

    def list_mean_names(self, parameters: Sequence[Parameter]) -> Sequence[str]:  # noqa: ARG002  as above
        """Return the names of the parts or terms that the processes exchange for a phase's parameters [...], if any."""
        return ()

    def restore_mean_names(self, parameters: Sequence[Parameter], names: Sequence[str]) -> None:
        """Exchange these names, known before a resume, from the first window of a phase's parameters [...] on."""

    def merge_means(self, mean: WeightedMean) -> WeightedMean:
        """Merge the weighted means of all processes; a process may have a count of 0."""
        return mean

    def agree_on_length(self, length: int | None) -> int | None:
        """Return the number of batches in an epoch; with several processes, all must know it and agree.

        Raises:
            ParallelismError: It is unknown or differs between processes.
        """
        return length

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all processes in the order of ranks; the values are pickled."""
        return [value]

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Copy the contents of rank 0's tensors to all processes, in place.

        Args:
            tensors: Tensors of the same shapes, dtypes and order in every process.
        """

    def check_same(self, what: str, value: str) -> None:
        """Check that a value is the same in all processes.

        Args:
            what: The name of the value for the message.
            value: The value of this process.

        Raises:
            ParallelismError: It differs.
        """


def check_modules(modules: Mapping[str, nn.Module], *, size: int, splitting: bool) -> None:
    """Check that a group can train the modules.

    A process that runs out of memory repeats a micro-batch of a window. If a module communicated in its forward or
    backward, that process would communicate once more than the others, which hangs or mixes up values.

    Args:
        modules: The modules by name.
        size: Number of processes.
        splitting: Whether a micro-batch is repeated when memory runs out.

    Raises:
        ParallelismError: With several processes, a module is sharded, wrapped in DistributedDataParallel, computes
            statistics over all processes or has sparse gradients. Or, with one process: it is sharded and micro-batches
            may be repeated.
    """
    for name, module in modules.items():
        for path, part in module.named_modules(prefix=name):
            if (size > 1 or splitting) and _is_sharded(part):
                raise ParallelismError(
                    f"{path} is sharded (FSDP or DTensor): its forward and backward gather weights from all processes, "
                    "which a process that runs out of memory cannot repeat, and its gradients are shards. Give the "
                    "loop the unsharded module: it sums the gradients once per window. If the module is too large for "
                    "one device, use a trainer that supports sharding"
                )
            if size > 1:
                _check_one_exchange(path, part)


def _check_one_exchange(path: str, part: nn.Module) -> None:
    """Check that a module neither communicates nor has gradients that the group's exchange cannot sum."""
    if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse:
        raise ParallelismError(
            f"{path} has sparse gradients, which several processes cannot sum in one vector; create it with "
            "sparse=False, or train in one process"
        )
    if isinstance(part, DistributedDataParallel):
        raise ParallelismError(
            f"{path} is wrapped in DistributedDataParallel, which sums gradients in every backward, but the loop "
            "already does so once per window: give it the wrapped module (.module)"
        )
    if isinstance(part, nn.SyncBatchNorm):
        raise ParallelismError(
            f"{path} is a SyncBatchNorm: its forward waits for the other processes, but each may cut its batches "
            "differently; use GroupNorm or LayerNorm"
        )


def _is_sharded(part: nn.Module) -> bool:
    # A module that was never imported is not in use, and importing it is slow.
    if "torch.distributed.fsdp" in sys.modules:
        from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

        if isinstance(part, FSDPModule | FullyShardedDataParallel):
            return True
    if "torch.distributed.tensor" in sys.modules:
        from torch.distributed.tensor import DTensor

        return any(isinstance(parameter, DTensor) for parameter in part.parameters(recurse=False))
    return False

"""Processes that train together: this process only, or several that communicate through torch.distributed."""

import math
import os
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar, cast, final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn import Parameter

from trainers.loop.errors import ContractError, ParallelismError, PeerLostError, join_names
from trainers.loop.group.totals import GroupTotals, LocalTotals, RowFormat, Totals
from trainers.loop.loss import WeightedMean

BROADCAST_BYTES = 2**26  # tensors are copied into vectors of at most this size or one tensor, which saves memory

MAX_SHOWN_CHARACTERS = 40


Value = TypeVar("Value")


PEER_TIMEOUT = timedelta(minutes=10)

BACKENDS = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl"}


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

    def check_same(self, name: str, value: str) -> None:
        """Check that a value is the same in all processes.

        Args:
            name: The name of the value for the message.
            value: The value of this process.

        Raises:
            ParallelismError: It differs.
        """


@contextmanager
def convert_peer_errors(operation: str) -> Generator[None]:
    """Convert the error of exactly one collective operation, which is named in the message.

    Raises:
        ParallelismError: Another program uses the group's address.
        PeerLostError: Another process did not complete the operation.
    """
    try:
        yield
    except torch.OutOfMemoryError:  # a RuntimeError, but it concerns only this process
        raise
    except RuntimeError as error:  # the common base class of the errors of torch's collectives
        if "EADDRINUSE" in str(error):
            raise ParallelismError(
                f"while {operation}, another program used the group's address; end it, or choose another MASTER_PORT"
            ) from error
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise PeerLostError(
            f"while {operation}, another process of the group did not respond: it ended, was killed (out of memory?) "
            "or hangs. Look for the first error in the output of the other ranks, and start the group again: it "
            f"resumes from the last checkpoint. Message of torch: {first_line}"
        ) from error


@final
class GradientVector:
    """The vector of one phase, reused from window to window.

    It consists of: the number of processes that have a gradient, per parameter | the row of every process | the
    gradients, multiplied by the count that backward assumed and divided by the divisor. The vector is float64 if a
    parameter is, otherwise float32: gradients of fewer bits are summed in float32 and rounded once, in `unpack`.

    Args:
        parameters: The phase's parameters.
        row_format: The format of the rows.
        rank: Number of this process.
        size: Number of processes.
        divisor: A power of two near a typical count. Dividing by it is exact, and keeps the gradients from overflowing.

    Attributes:
        row_format: The format of the rows.
        vector: The values to sum, shape [N].

    Raises:
        ParallelismError: The parameters are on several devices, complex, or have sparse gradients.
    """

    def __init__(
        self, parameters: Sequence[Parameter], *, row_format: RowFormat, rank: int, size: int, divisor: float
    ) -> None:
        check_one_vector(parameters)
        self._parameters = tuple(parameters)
        self.row_format = row_format
        self._divisor = divisor
        double = any(parameter.dtype == torch.float64 for parameter in parameters)
        lengths = [parameter.numel() for parameter in parameters]
        sizes = [len(lengths), size * row_format.width, sum(lengths)]
        self.vector = torch.zeros(
            sum(sizes), dtype=torch.float64 if double else torch.float32, device=parameters[0].device
        )
        self._owners, rows, self._gradients = self.vector.split(sizes)
        self._rows = rows.view(size, row_format.width)
        self._row = self._rows[rank]
        views = self._gradients.split(lengths)
        self._views = [view.view(parameter.shape) for parameter, view in zip(parameters, views, strict=True)]

    def pack(self, local: LocalTotals) -> None:
        """Write this process's totals and gradients into the vector.

        Raises:
            ContractError: The loss has a part that the processes have not agreed on.
        """
        self._rows.zero_()
        self.row_format.write(local, self._row)
        self.row_format.write_requests(local.requests, self._row)
        missing = self._find_missing()
        self._owners.fill_(1.0)
        for index in missing:
            self._owners[index] = 0.0
            self._views[index].zero_()
        self._copy_present(set(missing), inward=True)
        self._gradients.mul_(local.assumed_count / self._divisor)

    def unpack(self) -> None:
        """Write the sums of all processes from the vector into the parameters' gradients.

        It synchronises only if a gradient is missing here, to read whether another process has it.
        """
        missing = self._find_missing()
        self._copy_present(set(missing), inward=False)
        if not missing:
            return
        owners = self._owners.tolist()
        for index in missing:
            if owners[index]:
                parameter = self._parameters[index]
                parameter.grad = torch.empty_like(parameter).copy_(self._views[index])

    def get_totals(self) -> GroupTotals:
        """Return the totals, which stay on the device."""
        return GroupTotals(rows=self._rows, row_format=self.row_format, divisor=self._divisor)

    def _find_missing(self) -> list[int]:
        return [index for index, parameter in enumerate(self._parameters) if parameter.grad is None]

    def _copy_present(self, missing: set[int], *, inward: bool) -> None:
        views = [view for index, view in enumerate(self._views) if index not in missing]
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if gradients:
            target, source = (views, gradients) if inward else (gradients, views)
            torch._foreach_copy_(target, source)  # pyright: ignore[reportPrivateImportUsage]  no public name


def check_one_vector(parameters: Sequence[Parameter]) -> None:
    """Check that one real vector [N] can hold all gradients.

    Raises:
        ParallelismError: The parameters are on several devices, complex, or have sparse gradients.
    """
    if any(parameter.grad is not None and parameter.grad.is_sparse for parameter in parameters):
        raise ParallelismError(
            "a phase has sparse gradients (sparse=True), which several processes cannot sum in one vector; use dense "
            "ones, or train in one process"
        )
    devices = sorted({str(parameter.device) for parameter in parameters})
    if len(devices) > 1:
        raise ParallelismError(
            f"a phase's parameters are on several devices ({', '.join(devices)}), but a process of a group trains on "
            "one: move all modules of the phase to it"
        )
    if any(parameter.is_complex() for parameter in parameters):
        raise ParallelismError(
            "a phase has complex parameters, which a group cannot sum; use two real parameters for real and imaginary "
            "parts (torch.view_as_complex in the forward)"
        )


@final
class Processes(Group):
    """The processes of torch's default group; `Group` documents the methods.

    It does not use DistributedDataParallel: the gradients of a window are summed once, at its end.
    """

    def __init__(self) -> None:
        super().__init__(dist.get_rank(), dist.get_world_size())
        self._vectors: dict[Parameter, GradientVector] = {}
        self._restored_names: dict[Parameter, Sequence[str]] = {}
        self._term_names: dict[Parameter, Sequence[str]] = {}

    def combine(self, local: LocalTotals, parameters: Sequence[Parameter]) -> Totals:
        """Sum totals and gradients in one all-reduce."""
        vector = self._get_vector(local, parameters)
        vector.pack(local)
        with convert_peer_errors("summing the window's gradients"):
            dist.all_reduce(vector.vector)
        vector.unpack()
        return vector.get_totals()

    def add_counts(self, counts: Mapping[str, int], parameters: Sequence[Parameter]) -> Mapping[str, int]:
        """Sum the counts [terms] in one all-reduce on the parameters' device."""
        names = self._agree_on_terms(counts, parameters)
        vector = torch.tensor([counts.get(name, 0) for name in names], dtype=torch.int64, device=parameters[0].device)
        with convert_peer_errors("summing the targets of a window"):
            dist.all_reduce(vector)
        return dict(zip(names, vector.tolist(), strict=True))

    def list_mean_names(self, parameters: Sequence[Parameter]) -> Sequence[str]:
        """Return the names in the rows of the phase with these parameters."""
        vector = self._vectors.get(parameters[0])
        return self._restored_names.get(parameters[0], ()) if vector is None else vector.row_format.names

    def restore_mean_names(self, parameters: Sequence[Parameter], names: Sequence[str]) -> None:
        """Store the names until the first window of the phase with these parameters."""
        self._restored_names[parameters[0]] = names

    def merge_means(self, mean: WeightedMean) -> WeightedMean:
        """Merge the means in the order of ranks, so that all processes get bit-identical results."""
        merged = WeightedMean()
        for rank_mean in self._gather_all(mean, "merging the validation"):
            merged.merge(rank_mean)
        return merged

    def agree_on_length(self, length: int | None) -> int:
        """Return the number of batches in an epoch."""
        lengths = self._gather_all(length, "comparing the epochs' lengths")
        first = lengths[0]
        if first is None or len(set(lengths)) > 1:
            lengths_by_rank = ", ".join(
                f"rank {rank}: {'unknown' if length is None else length}" for rank, length in enumerate(lengths)
            )
            raise ParallelismError(
                "the processes of a group share the batches of an epoch, so all must have the same number of batches; "
                f"found {lengths_by_rank}. Give every process the complete source, with a known length: "
                "IterableSource(batches, length=...)"
            )
        return first

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all processes in the order of ranks."""
        return self._gather_all(value, "gathering values")

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Broadcast rank 0's tensors of any shapes and dtypes as flat bytes."""
        for chunk in chunks(tensors, BROADCAST_BYTES):
            flat = torch.cat([tensor.flatten() for tensor in chunk])
            with convert_peer_errors("copying rank 0's tensors"):
                dist.broadcast(flat.view(torch.uint8), src=0)
            for tensor, values in zip(chunk, flat.split([tensor.numel() for tensor in chunk]), strict=True):
                tensor.copy_(values.view(tensor.shape))

    def check_same(self, name: str, value: str) -> None:
        """Compare the values of all processes with rank 0's."""
        values = self._gather_all(value, f"comparing {name}")
        differing = [rank for rank, other in enumerate(values) if other != values[0]]
        if differing:
            rank = differing[0]
            raise ParallelismError(
                f"the processes of a group must agree on {name}, but "
                f"{_find_difference(values[0], values[rank], rank)}; "
                "start every process with the same code, arguments and versions"
            )

    def _get_vector(self, local: LocalTotals, parameters: Sequence[Parameter]) -> GradientVector:
        """Return the vector of a phase; in its first window the processes agree on the names and the divisor."""
        vector = self._vectors.get(parameters[0])
        if vector is not None:
            return vector
        names = self._term_names.get(parameters[0])
        has_terms = names is not None
        if names is None:
            parts = dict.fromkeys(name for loss in local.losses for name in loss.parts)
            names = [*self._restored_names.get(parameters[0], ()), *parts]
        gathered = self._gather_all((names, local.assumed_count), "agreeing on the loss's parts")
        row_format = RowFormat(
            list(dict.fromkeys(name for names, _ in gathered for name in names)), has_terms=has_terms
        )
        divisor = round_down_to_power_of_two(max(count for _, count in gathered))
        vector = GradientVector(parameters, row_format=row_format, rank=self.rank, size=self.size, divisor=divisor)
        self._vectors[parameters[0]] = vector
        return vector

    def _agree_on_terms(self, counts: Mapping[str, int], parameters: Sequence[Parameter]) -> Sequence[str]:
        """Return the names of a phase's terms, which the processes agree on in its first window."""
        agreed = self._term_names.get(parameters[0])
        if agreed is None:
            names = [*self._restored_names.get(parameters[0], ()), *counts]
            gathered = self._gather_all(names, "agreeing on the loss's terms")
            agreed = self._term_names[parameters[0]] = list(dict.fromkeys(name for names in gathered for name in names))
        unknown = [repr(name) for name in counts if name not in agreed]
        if unknown:
            raise ContractError(
                f"counts has the terms {join_names(unknown)}, which no process had in the phase's first window (there: "
                f"{join_names([repr(name) for name in agreed]) or 'none'}); return all terms for every batch, with the "
                "count 0 if it has no target"
            )
        return agreed

    def _gather_all(self, value: Value, operation: str) -> list[Value]:
        values: list[Value | None] = [None] * self.size
        with convert_peer_errors(operation):
            dist.all_gather_object(values, value)
        return cast("list[Value]", values)


def round_down_to_power_of_two(value: float) -> float:
    """Return the largest power of two that does not exceed a positive value; 1 for 0."""
    return 2.0 ** math.floor(math.log2(value)) if value > 0 else 1.0


def chunks(tensors: Iterable[Tensor], limit: int) -> Iterator[list[Tensor]]:
    """Yield lists of tensors of one dtype and device, of up to `limit` bytes or a single larger tensor.

    The tensors are detached and share memory with the originals. Empty tensors are left out.
    """
    kinds: defaultdict[tuple[torch.dtype, torch.device], list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        if tensor.numel():
            kinds[tensor.dtype, tensor.device].append(tensor.detach())
    for kind in kinds.values():
        chunk: list[Tensor] = []
        for tensor in kind:
            if chunk and sum(other.nbytes for other in chunk) + tensor.nbytes > limit:
                yield chunk
                chunk = []
            chunk.append(tensor)
        yield chunk


def _find_difference(first: str, other: str, rank: int) -> str:
    """Return excerpts of both values around the first difference."""
    pairs = enumerate(zip(first, other, strict=False))
    index = next((index for index, pair in pairs if pair[0] != pair[1]), min(len(first), len(other)))
    start = max(0, index - MAX_SHOWN_CHARACTERS // 2)
    return f"rank 0 has {_cut_excerpt(first, start)} where rank {rank} has {_cut_excerpt(other, start)}"


def _cut_excerpt(text: str, start: int) -> str:
    stop = start + MAX_SHOWN_CHARACTERS
    return repr(("…" if start else "") + text[start:stop] + ("…" if stop < len(text) else ""))


@contextmanager
def join_group(device_type: str, *, timeout: timedelta = PEER_TIMEOUT) -> Generator[Group]:
    """Join the group of this process.

    An existing default group of torch is used and stays open. Otherwise the process joins the group that `torchrun`
    describes in the environment, and leaves it at the end. Without either, the group is this process only.

    Args:
        device_type: The device of the modules: `cpu`, `cuda` or `xpu`.
        timeout: How long a process waits for another before that one counts as lost. It must exceed the longest
            possible delay of a process, such as for a checkpoint, a validation or slow data.

    Raises:
        ParallelismError: The processes cannot communicate on this device or with this build of torch.
        PeerLostError: The processes did not all join in time.
    """
    if dist.is_available() and dist.is_initialized():
        yield Group() if dist.get_world_size() == 1 else Processes()
    elif int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Group()
    else:
        backend = _choose_backend(device_type)
        with convert_peer_errors("joining the group"):
            # Losing a process must raise an error in the waiting ones. By default nccl aborts the program instead.
            os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
            store, rank, size = next(rendezvous("env://", timeout=timeout))
            # torchrun keeps the store until it exits, so a second group of the same processes needs other keys.
            visit = store.add(f"visits of rank {rank}", 1)
            visited = PrefixStore(f"visit {visit}", store)
            dist.init_process_group(backend, store=visited, rank=rank, world_size=size, timeout=timeout)
        try:
            group = Processes()
            group.gather(group.rank)  # no process fails and leaves while another is still joining
            yield group
        finally:
            # Also after an error: closing the connections lets the other processes notice at once.
            dist.destroy_process_group()


def local_rank() -> int:
    """Return the number of this process on its machine, from 0, which is also the index of its GPU."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def launched_rank() -> int:
    """Return the rank that `torchrun` assigned to this process, even before it has joined the group; 0 without it."""
    return int(os.environ.get("RANK", "0"))


def launched_size() -> int:
    """Return the number of processes that `torchrun` started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _choose_backend(device_type: str) -> str:
    """Return the backends: the device's for its tensors, and gloo for Python objects."""
    backend = BACKENDS.get(device_type)
    if backend is None:
        raise ParallelismError(
            f"several processes were started (WORLD_SIZE is {os.environ['WORLD_SIZE']}), but they cannot sum gradients "
            f"on {device_type!r}; start one process, or use device='cpu'"
        )
    if not dist.is_available() or not dist.is_backend_available(backend):
        raise ParallelismError(
            f"several processes on {device_type!r} communicate through {backend}, which this build of torch lacks; "
            "install a build that has it, or start one process"
        )
    return backend if backend == "gloo" else f"cpu:gloo,{device_type}:{backend}"

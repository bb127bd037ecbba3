"""The interface of a process group, and the values exchanged at the end of a window."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar, final

from torch import Tensor
from torch.nn import Parameter

from trainers.loop.errors import EmptyTargetError
from trainers.loop.loss import Loss, WeightedMean, combine_losses, list_scalars

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRequests:
    """The requests of a process at the end of a window; in a group, the request of one process applies to all.

    Attributes:
        stop: The number of the signal that ends the training; 0 to continue.
        save: Whether a checkpoint is due.
    """

    stop: int = 0
    save: bool = False

    @property
    def any(self) -> bool:
        """Whether anything is requested."""
        return self.save or self.stop != 0

    def merge(self, others: "WindowRequests") -> "WindowRequests":
        """Combine two requests; of two stop signals, the first one counts."""
        return WindowRequests(stop=self.stop or others.stop, save=self.save or others.save) if others.any else self


class WindowTotals(NamedTuple):
    """The totals of a window as plain numbers.

    Attributes:
        loss: Weighted mean, count and parts.
        correction: Factor that the gradients must still be multiplied by.
        requests: The requests of all processes.
    """

    loss: WeightedMean
    correction: float
    requests: WindowRequests


class Totals(Protocol):
    """The totals of a window on the device, so that one synchronisation reads them with the gradient's norm."""

    @property
    def correction(self) -> float | Tensor:
        """Factor that the gradients must still be multiplied by, without synchronisation."""
        ...

    def means(self) -> Sequence[Tensor]:
        """Return scalars that are all finite if the window's loss is."""
        ...

    def scalars(self) -> Sequence[Tensor]:
        """Return the scalars to read."""
        ...

    def read(self, values: Iterator[float]) -> WindowTotals:
        """Convert the values of `scalars` to totals.

        Raises:
            EmptyTargetError: There is no target.
        """
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTotals:
    """The totals of this process.

    Attributes:
        losses: The detached loss of every piece with targets; empty if there is no target.
        expected: The count that backward assumed: a piece with n targets started from n / expected. It is 1 if the
            true counts were known before.
        requests: The requests of this process.
        targets: The targets of every term over all processes, if they were known before the first backward.
    """

    losses: Sequence[Loss]
    expected: float
    requests: WindowRequests
    targets: Mapping[str, int] | None = None

    @property
    def count(self) -> int:
        """Number of targets in the window."""
        return sum(loss.count for loss in self.losses)

    @property
    def correction(self) -> float:
        """Expected count divided by true count; 1 if the counts were known before."""
        return 1.0 if self.targets is not None else self.expected / (self.count or 1)

    def means(self) -> Sequence[Tensor]:
        """Return the means of the pieces, scalars."""
        return [loss.mean for loss in self.losses]

    def scalars(self) -> Sequence[Tensor]:
        """Return means and parts, scalars."""
        return list_scalars(self.losses)

    def read(self, values: Iterator[float]) -> WindowTotals:
        """Compute the weighted mean.

        Raises:
            EmptyTargetError: There is no target.
        """
        loss = combine_losses(self.losses, values)
        check_targets(loss.count)
        known = self.targets is not None
        return WindowTotals(loss=loss, correction=1.0 if known else self.expected / loss.count, requests=self.requests)


def check_targets(count: int) -> None:
    """Check that a window has targets.

    Raises:
        EmptyTargetError: The count is 0.
    """
    if not count:
        raise EmptyTargetError(
            "no batch of the window has a target (every Loss.count is 0, not counting terms of weight 0); check the "
            "mask that determines the count, or remove such samples from the source"
        )


class Group(Protocol):
    """Processes that train the same modules, each on its share of the batches.

    Every process must make the same calls in the same order, because each call waits for all processes. It raises
    `PeerLostError` if another process has ended or hangs. Processes are independent between two calls: forward and
    backward exchange nothing, so a process may repeat pieces of a window.
    """

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""
        ...

    @property
    def size(self) -> int:
        """Number of processes."""
        ...

    def combine(self, local: LocalTotals, parameters: Sequence[Parameter]) -> Totals:
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
        ...

    def add_counts(self, counts: Mapping[str, int], parameters: Sequence[Parameter]) -> Mapping[str, int]:
        """Sum the targets of every term of a phase's loss over all processes, before its first forward.

        Args:
            counts: The counts of this process by term; empty if it has no batch.
            parameters: The phase's parameters [...], which identify the phase.

        Raises:
            ContractError: The counts have a term that no process had in the phase's first window.
        """
        ...

    def parts(self, parameters: Sequence[Parameter]) -> Sequence[str]:
        """Return the names of the parts that the processes have agreed on for a phase's parameters [...], if any."""
        ...

    def expect(self, parameters: Sequence[Parameter], parts: Sequence[str]) -> None:
        """Add parts to agree on in the first window of a phase's parameters [...], as those known before a resume."""
        ...

    def total(self, mean: WeightedMean) -> WeightedMean:
        """Merge the weighted means of all processes; a process may have a count of 0."""
        ...

    def agree_on_length(self, length: int | None) -> int | None:
        """Return the number of batches in an epoch; with several processes, all must know it and agree.

        Raises:
            ParallelismError: It is unknown or differs between processes.
        """
        ...

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all processes in the order of ranks; the values are pickled."""
        ...

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Copy the contents of rank 0's tensors to all processes, in place.

        Args:
            tensors: Tensors of the same shapes, dtypes and order in every process.
        """
        ...

    def check_same(self, what: str, value: str) -> None:
        """Check that a value is the same in all processes.

        Args:
            what: The name of the value for the message.
            value: The value of this process.

        Raises:
            ParallelismError: It differs.
        """
        ...


@final
class SingleProcess:
    """A group of one process; `Group` documents the methods."""

    @property
    def rank(self) -> int:
        """Always 0."""
        return 0

    @property
    def size(self) -> int:
        """Always 1."""
        return 1

    def combine(self, local: LocalTotals, parameters: Sequence[Parameter]) -> Totals:  # noqa: ARG002  nothing to add
        """Return the local totals; the gradients [...] are unchanged."""
        return local

    def add_counts(self, counts: Mapping[str, int], parameters: Sequence[Parameter]) -> Mapping[str, int]:  # noqa: ARG002  as above
        """Return the counts unchanged, for any parameters [...]."""
        return counts

    def parts(self, parameters: Sequence[Parameter]) -> Sequence[str]:  # noqa: ARG002  no other process
        """Return no parts, for any parameters [...]: one process needs no agreement."""
        return ()

    def expect(self, parameters: Sequence[Parameter], parts: Sequence[str]) -> None:
        """Do nothing, for any parameters [...]."""

    def total(self, mean: WeightedMean) -> WeightedMean:
        """Return the mean unchanged."""
        return mean

    def agree_on_length(self, length: int | None) -> int | None:
        """Return the length, known or not."""
        return length

    def gather(self, value: Value) -> list[Value]:
        """Return a list of this one value."""
        return [value]

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Do nothing, for tensors of any shape."""

    def check_same(self, what: str, value: str) -> None:
        """Do nothing."""

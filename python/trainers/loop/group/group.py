"""The interface of a process group, and the values exchanged at the end of a window."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar, final

from torch import Tensor
from torch.nn import Parameter

from trainers.loop.errors import EmptyTargetError
from trainers.loop.loss import Loss, WeightedMean, scalars_of, weighted_mean_of

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRequests:
    """What a process asks for at the end of a window; in a group, one that asks is enough.

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

    def and_those(self, others: "WindowRequests") -> "WindowRequests":
        """These and others."""
        return WindowRequests(stop=self.stop or others.stop, save=self.save or others.save) if others.any else self


class WindowTotals(NamedTuple):
    """A window's totals as plain numbers.

    Attributes:
        loss: Weighted mean, count and parts.
        correction: What the gradients must still be multiplied by.
        requests: Of all processes.
    """

    loss: WeightedMean
    correction: float
    requests: WindowRequests


class Totals(Protocol):
    """Totals that are still on the device, so that they are waited for once, together with the gradient's norm."""

    @property
    def correction(self) -> float | Tensor:
        """What the gradients must still be multiplied by, without waiting for it."""
        ...

    def means(self) -> Sequence[Tensor]:
        """A few scalars that are all finite if the window's loss is."""
        ...

    def scalars(self) -> Sequence[Tensor]:
        """The scalars that must be read."""
        ...

    def read(self, values: Iterator[float]) -> WindowTotals:
        """What the values of those scalars mean.

        Raises:
            EmptyTargetError: There was no target.
        """
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTotals:
    """The totals of this process.

    Attributes:
        losses: The detached loss of every piece that had targets; none if there was no target.
        expected: The count that the backward reckoned with: a piece with n targets started from n / expected; 1 where
            the true counts were known before it.
        requests: Of this process.
        targets: The targets of every term over all processes, where they were known before the first backward.
    """

    losses: Sequence[Loss]
    expected: float
    requests: WindowRequests
    targets: Mapping[str, int] | None = None

    @property
    def count(self) -> int:
        """Targets in the window."""
        return sum(loss.count for loss in self.losses)

    @property
    def correction(self) -> float:
        """Expected by true count; 1 if that was known, or if there is no target."""
        return 1.0 if self.targets is not None else self.expected / (self.count or 1)

    def means(self) -> Sequence[Tensor]:
        """The means of the pieces, scalars."""
        return [loss.mean for loss in self.losses]

    def scalars(self) -> Sequence[Tensor]:
        """The means and parts, scalars."""
        return scalars_of(self.losses)

    def read(self, values: Iterator[float]) -> WindowTotals:
        """Their weighted mean.

        Raises:
            EmptyTargetError: There was no target.
        """
        loss = weighted_mean_of(self.losses, values)
        check_targets(loss.count)
        known = self.targets is not None
        return WindowTotals(loss=loss, correction=1.0 if known else self.expected / loss.count, requests=self.requests)


def check_targets(count: int) -> None:
    """Check a window's count.

    Raises:
        EmptyTargetError: It is 0.
    """
    if not count:
        raise EmptyTargetError(
            "no batch of the window has a target (every Loss.count is 0, terms of weight 0 not counted), so there is "
            "nothing to learn from; look at the mask that the count comes from, or leave such samples out of the source"
        )


class Group(Protocol):
    """Processes that train the same modules, each on its share of the batches.

    Every process must make the same calls in the same order, since each call waits for all of them, and raises
    `PeerLostError` where one of them has ended or hangs. Between two calls a process may do what it likes: nothing is
    exchanged during forward and backward, so one of them may repeat pieces of a window as often as it must.
    """

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many processes there are."""
        ...

    def combine(self, local: LocalTotals, parameters: Sequence[Parameter]) -> Totals:
        """Add up a window of all processes: totals, requests and gradients.

        Args:
            local: This process's totals. It may have had no batch, or none with a target.
            parameters: The phase's [...], each in one phase only, with this process's gradients. Afterwards all
                processes hold the same sums, up to the totals' correction; a parameter has no gradient if it has none
                anywhere.

        Returns:
            The totals over all processes, to be read before the phase's next window is combined.

        Raises:
            ContractError: A part of the loss that no process had in the phase's first window.
            ParallelismError: Parameters that cannot be added up in one vector.
        """
        ...

    def add_counts(self, counts: Mapping[str, int], parameters: Sequence[Parameter]) -> Mapping[str, int]:
        """Add up the targets of every term of a phase's loss over all processes, before its first forward.

        Args:
            counts: This process's, by term; none where it has no batch.
            parameters: The phase's [...], by which its terms are known again.

        Raises:
            ContractError: A term that no process had in the phase's first window.
        """
        ...

    def parts(self, parameters: Sequence[Parameter]) -> Sequence[str]:
        """The names of the parts that the processes have agreed on for a phase's parameters [...]; at first none."""
        ...

    def expect(self, parameters: Sequence[Parameter], parts: Sequence[str]) -> None:
        """Agree on these parts too in the first window of a phase's parameters [...], as before a resume."""
        ...

    def total(self, mean: WeightedMean) -> WeightedMean:
        """The weighted means of all processes as one; a process may have counted nothing."""
        ...

    def agreed_length(self, length: int | None) -> int | None:
        """The number of batches in an epoch, which several processes must know and agree on; a single one need not.

        Raises:
            ParallelismError: It is not known, or not the same everywhere.
        """
        ...

    def gather(self, value: Value) -> list[Value]:
        """Every process's value, in the order of ranks, on every process; the values are pickled."""
        ...

    def spread(self, tensors: Iterable[Tensor]) -> None:
        """Copy the contents of rank 0's tensors into everybody's, in place.

        Args:
            tensors: Of the same shapes, dtypes and order in every process.
        """
        ...

    def check_same(self, what: str, value: str) -> None:
        """Check that a value is the same everywhere.

        Args:
            what: Names the value in the message.
            value: This process's.

        Raises:
            ParallelismError: It is not.
        """
        ...


@final
class SingleProcess:
    """This process and no other. Every method has the meaning that `Group` gives it."""

    @property
    def rank(self) -> int:
        """Always 0."""
        return 0

    @property
    def size(self) -> int:
        """Always 1."""
        return 1

    def combine(self, local: LocalTotals, parameters: Sequence[Parameter]) -> Totals:  # noqa: ARG002  nothing to add
        """The local totals; the gradients [...] stay as they are."""
        return local

    def add_counts(self, counts: Mapping[str, int], parameters: Sequence[Parameter]) -> Mapping[str, int]:  # noqa: ARG002  as above
        """The counts as they are, whatever the parameters [...]."""
        return counts

    def parts(self, parameters: Sequence[Parameter]) -> Sequence[str]:  # noqa: ARG002  no other process
        """None, whatever the parameters [...]: one process needs no agreement."""
        return ()

    def expect(self, parameters: Sequence[Parameter], parts: Sequence[str]) -> None:
        """Do nothing for parameters [...]: a single process has no peer."""

    def total(self, mean: WeightedMean) -> WeightedMean:
        """The mean itself."""
        return mean

    def agreed_length(self, length: int | None) -> int | None:
        """The length itself, known or not."""
        return length

    def gather(self, value: Value) -> list[Value]:
        """The value in a list."""
        return [value]

    def spread(self, tensors: Iterable[Tensor]) -> None:
        """Do nothing for tensors of any shape: a single process has no peer."""

    def check_same(self, what: str, value: str) -> None:
        """Do nothing: a single process has no peer."""

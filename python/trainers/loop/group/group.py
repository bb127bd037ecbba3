"""What the loop asks of the processes that train together."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from torch import Tensor
from torch.nn import Parameter

from trainers.loop.loss import Tally
from trainers.loop.window.totals import LocalTotals, Totals

Value = TypeVar("Value")


class Group(Protocol):
    """Processes that train the same modules, each on its share of the batches.

    Every process must make the same calls in the same order, since each call waits for all of them. Between two calls a
    process may do what it likes: nothing is exchanged during forward and backward, so one of them may repeat pieces of
    a window as often as it must.
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
        """Add up a window of all processes: totals, wishes and gradients.

        Args:
            local: This process's totals. It may have had no batch, or none with a target.
            parameters: The phase's, each in one phase only, with this process's gradients. Afterwards all processes
                hold the same sums, up to the totals' correction; a parameter has no gradient if it has none anywhere.

        Returns:
            The totals over all processes, to be read before the phase's next window is combined.

        Raises:
            ContractError: A part of the loss that no process had in the phase's first window.
            ParallelismError: Parameters that cannot be added up in one vector.
            PeerLostError: Another process ended or hangs.
        """
        ...

    def add_counts(self, counts: Mapping[str, int], parameters: Sequence[Parameter]) -> Mapping[str, int]:
        """Add up the targets of every term of a phase's loss over all processes, before the window is worked.

        Args:
            counts: This process's, by term; none where it has no batch.
            parameters: The phase's, by which its terms are known again.

        Raises:
            ContractError: A term that no process had in the phase's first window.
            PeerLostError: Another process ended or hangs.
        """
        ...

    def parts(self, parameters: Sequence[Parameter]) -> Sequence[str]:
        """The names of the loss's parts that the processes have agreed on for a phase; none before its first window."""
        ...

    def expect(self, parameters: Sequence[Parameter], parts: Sequence[str]) -> None:
        """Agree on these parts too in the phase's first window, as before a training was resumed."""
        ...

    def total(self, tally: Tally) -> Tally:
        """The tallies of all processes as one; a process may have counted nothing.

        Raises:
            PeerLostError: Another process ended or hangs.
        """
        ...

    def agreed_length(self, length: int | None) -> int | None:
        """The number of batches in an epoch, which several processes must know and agree on; one alone need not.

        Raises:
            ParallelismError: It is not known, or not the same everywhere.
            PeerLostError: Another process ended or hangs.
        """
        ...

    def gather(self, value: Value) -> list[Value]:
        """Every process's value, in the order of ranks, on every process; the values are pickled.

        Raises:
            PeerLostError: Another process ended or hangs.
        """
        ...

    def spread(self, tensors: Iterable[Tensor]) -> None:
        """Copy the contents of rank 0's tensors into everybody's, in place.

        Args:
            tensors: Of the same shapes, dtypes and order in every process.

        Raises:
            PeerLostError: Another process ended or hangs.
        """
        ...

    def check_same(self, what: str, value: str) -> None:
        """Check that a value is the same everywhere.

        Args:
            what: Names the value in the message.
            value: This process's.

        Raises:
            ParallelismError: It is not.
            PeerLostError: Another process ended or hangs.
        """
        ...

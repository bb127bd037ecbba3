"""A group of one process, which costs nothing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar, final

from torch import Tensor
from torch.nn import Parameter

from trainers.loop.loss import Tally
from trainers.loop.window.totals import LocalTotals, Totals

Value = TypeVar("Value")


@final
class Alone:
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
        """The local totals; the gradients stay as they are."""
        return local

    def add_counts(self, counts: Mapping[str, int], parameters: Sequence[Parameter]) -> Mapping[str, int]:  # noqa: ARG002  as above
        """The counts as they are."""
        return counts

    def parts(self, parameters: Sequence[Parameter]) -> Sequence[str]:  # noqa: ARG002  nobody to agree with
        """None: one process needs no agreement."""
        return ()

    def expect(self, parameters: Sequence[Parameter], parts: Sequence[str]) -> None:
        """Nobody to agree with."""

    def total(self, tally: Tally) -> Tally:
        """The tally itself."""
        return tally

    def agreed_length(self, length: int | None) -> int | None:
        """The length itself, known or not."""
        return length

    def gather(self, value: Value) -> list[Value]:
        """The value in a list."""
        return [value]

    def spread(self, tensors: Iterable[Tensor]) -> None:
        """Nobody to give them to."""

    def check_same(self, what: str, value: str) -> None:
        """Nobody to differ from."""

"""What a window's forward and backward came to, beside the gradients."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, final

from torch import Tensor

from trainers.loop.errors import EmptyTargetError
from trainers.loop.loss import Loss, Tally, scalars_of, tally_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a process wants to happen at the window's end; in a group, one that wants it is enough.

    Attributes:
        stop: The number of the signal that ends the training; 0 to go on.
        save: Whether a checkpoint is due.
    """

    stop: int = 0
    save: bool = False

    @property
    def any(self) -> bool:
        """Whether anything is wanted."""
        return self.save or self.stop != 0

    def and_those(self, others: "Wishes") -> "Wishes":
        """These and others."""
        return Wishes(stop=self.stop or others.stop, save=self.save or others.save) if others.any else self


class Reading(NamedTuple):
    """A window's totals as plain numbers.

    Attributes:
        loss: Weighted mean, count and parts.
        correction: What the gradients must still be multiplied by.
        wishes: What everybody wants.
    """

    loss: Tally
    correction: float
    wishes: Wishes


class Totals(Protocol):
    """Totals that are still on the device, so that they are waited for once, together with the gradient's norm."""

    @property
    def correction(self) -> float | Tensor:
        """What the gradients must still be multiplied by, without waiting for it."""
        ...

    def means(self) -> Sequence[Tensor]:
        """Scalars that are all finite if the window's loss is."""
        ...

    def scalars(self) -> Sequence[Tensor]:
        """The scalars that must be read."""
        ...

    def reading(self, values: Iterator[float]) -> Reading:
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
        wishes: What this process wants.
        targets: The targets of every term over all processes, where they were known before the first backward.
    """

    losses: Sequence[Loss]
    expected: float
    wishes: Wishes
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
        """The means of the pieces."""
        return [loss.mean for loss in self.losses]

    def scalars(self) -> Sequence[Tensor]:
        """The means and parts."""
        return scalars_of(self.losses)

    def reading(self, values: Iterator[float]) -> Reading:
        """Their weighted mean.

        Raises:
            EmptyTargetError: There was no target.
        """
        loss = tally_of(self.losses, values)
        check_targets(loss.count)
        known = self.targets is not None
        return Reading(loss=loss, correction=1.0 if known else self.expected / loss.count, wishes=self.wishes)


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

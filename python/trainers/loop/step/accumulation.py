"""The accumulation window: forward and backward of all its batches, weighted by their true counts.

The gradient of a window is that of the mean loss over all its targets, however they are distributed over batches and
micro-batches. A micro-batch with n targets starts its backward from n / assumed_count instead of 1, which needs no
extra operation. `assumed_count` is an estimate of the window's count from its first micro-batch, and the update
corrects it once by assumed_count / count. The gradients of several terms are summed in `.grad`, so they cannot be
corrected separately afterwards: their counts must be known in advance, and a micro-batch with n of a term's N targets
starts that term's backward from weight * n / N.

When memory runs out, the batch is cut into smaller micro-batches and no sample is skipped. The result depends only on
the samples, the generators at the start of the window and the final micro-batch size. After a failed forward, only the
micro-batch is repeated. The window is repeated if an earlier micro-batch was larger, or after a failed backward, which
leaves partial gradients.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any, Generic, Literal, TypeVar, cast, final

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.autograd import Variable
from torch.nn import Parameter

from trainers.loop.data.batch_splitter import BatchCutter, MicroBatch
from trainers.loop.data.tree import make_mover
from trainers.loop.device import Precision, describe_cause, describe_usage, is_out_of_memory, release
from trainers.loop.errors import ContractError, join_names
from trainers.loop.group.totals import LocalTotals, StepRequests
from trainers.loop.loss import Loss, check_loss, check_width
from trainers.loop.phase import FrozenParameters, Phase
from trainers.loop.step.guards import Position, make_detached_loss_error
from trainers.loop.step.shared_forward import ForwardState, Rewind, SharedForward

Batch = TypeVar("Batch")
Counts = Mapping[str, int]


@final
@dataclass(frozen=True, slots=True)
class Targets(Generic[Batch]):
    """The targets of every term in one window.

    Attributes:
        count: Counts the targets of a batch or micro-batch on the host, without a forward.
        batches: The counts of every batch of this process.
        totals: The counts of the window over all processes.
    """

    count: Callable[[Batch], Counts]
    batches: Sequence[Counts]
    totals: Counts


def count_targets(count: Callable[[Any], Counts], batch: object) -> Counts:
    """Count the targets of every term in a batch or micro-batch.

    Raises:
        ContractError: The function did not return counts by name.
    """
    counts = count(batch)
    if not isinstance(cast("object", counts), Mapping):
        raise ContractError(
            f"counts returned a {type(counts).__name__}; expected the number of targets of every term by name, such as "
            '{"mel": 8192, "tokens": 60}'
        )
    wrong = [
        f"{number!r} for {name!r}"
        for name, number in cast("Mapping[object, object]", counts).items()
        if not isinstance(number, int) or isinstance(number, bool) or number < 0
    ]
    if wrong:
        raise ContractError(f"counts returned {join_names(wrong)}; expected an int of 0 or more for every term")
    return counts


def make_missing_counts_error(phase: str, loss: Loss) -> ContractError:
    """Return the error for a loss of several terms in a phase without counts."""
    return ContractError(
        f"the loss has the terms {join_names([repr(name) for name in loss.terms])}, whose numbers of targets in the "
        "window "
        f"must be known before the first backward: give Phase({phase!r}, …, counts=…) a function that returns the "
        "number of targets of every term of a batch by name"
    )


def sum_counts(batches: Sequence[Counts]) -> Counts:
    """Return the sums by term."""
    total: Counter[str] = Counter()
    for counts in batches:
        total.update(counts)
    return total


@final
@dataclass(slots=True)
class TermTargets(Generic[Batch]):
    """Weights the terms of the micro-batches in one attempt at a window, and checks them against the counted targets.

    Attributes:
        targets: The counted targets of the window.
    """

    targets: Targets[Batch]
    _weights: dict[str, float] = field(default_factory=dict[str, float])
    _seen: Counter[str] = field(default_factory=Counter[str])

    def weigh(self, loss: Loss, micro_batch: MicroBatch[Batch], number: int) -> list[tuple[Tensor, float]]:
        """Return the means, scalars, to start the backward from, each with its weight in the window.

        Args:
            loss: The loss of the micro-batch.
            micro_batch: The micro-batch, on the host.
            number: The number of its batch in the window.

        Raises:
            ContractError: The terms or counts of the loss differ from the counted targets, or a weight has changed.
        """
        expected = (
            self.targets.batches[number]
            if micro_batch.stop is None
            else count_targets(self.targets.count, micro_batch.batch)
        )
        self._check_terms(loss, expected)
        for name, term in loss.terms.items():
            if self._weights.setdefault(name, term.weight) != term.weight:
                raise ContractError(
                    f"the weight of the term {name!r} is {term.weight} and was {self._weights[name]} in an earlier "
                    "micro-batch of the same window; change it only between windows"
                )
        totals = self.targets.totals
        return [
            (term.mean, term.weight * term.count / totals[name])
            for name, term in loss.terms.items()
            if term.count and term.weight
        ]

    def note(self, micro_batch: MicroBatch[Batch], number: int) -> None:
        """Count a completed micro-batch, and at the end of the batch check that the micro-batches add up to it.

        Raises:
            ContractError: The counts of the micro-batches do not add up to that of the batch.
        """
        if micro_batch.stop is None:
            return
        if micro_batch.start == 0:
            self._seen.clear()
        self._seen.update(count_targets(self.targets.count, micro_batch.batch))
        wrong = [
            f"{name!r}: {self._seen[name]} instead of {count}"
            for name, count in self.targets.batches[number].items()
            if self._seen[name] != count
        ]
        if micro_batch.is_last and wrong:
            raise ContractError(
                f"the micro-batches of a batch do not have the targets of the batch ({join_names(wrong)}); counts "
                "must add up over samples, and not depend on padding or on the size of the batch"
            )

    def _check_terms(self, loss: Loss, expected: Counts) -> None:
        if not loss.terms:
            raise ContractError(
                "the loss function returned Loss(mean, count), but the phase has counts; return Loss.of(…) with the "
                f"terms {join_names([repr(name) for name in expected])}, or remove counts"
            )
        for name in dict.fromkeys((*loss.terms, *expected)):
            actual, promised = loss.terms[name].count if name in loss.terms else 0, expected.get(name, 0)
            if actual != promised:
                raise ContractError(
                    f"the term {name!r} has {actual} targets in the loss and {promised} by counts, for the same "
                    "micro-batch; both must count the same, or its weight in the window is wrong"
                )


MAX_CACHED_SEEDS = 64


def windows(batches: Iterator[Batch], size: int, count: int | None = None) -> Iterator[tuple[Batch, ...]]:
    """Yield windows of `size` batches; the last one may be smaller.

    With a `count`, yield exactly that many windows; the last ones may be empty.
    """
    collected = iter(lambda: tuple(islice(batches, size)), ())
    return collected if count is None else islice(chain(collected, repeat(())), count)


@dataclass(slots=True)
class AccumulationAttempt:
    """An attempt to compute a window.

    Attributes:
        batches: Number of batches in the window.
        losses: The detached loss of every micro-batch with targets.
        assumed_count: The estimate of the window's count; 0 before the first micro-batch with targets.
        start: The state before the first micro-batch.
        done: The completed micro-batches.
        term_targets: Weights the terms of the loss; None for a loss of one term.
    """

    batches: int
    losses: list[Loss] = field(default_factory=list[Loss])
    assumed_count: float = 0.0
    start: ForwardState | None = None
    done: list[MicroBatch[Any]] = field(default_factory=list[MicroBatch[Any]])
    term_targets: TermTargets[Any] | None = None


@dataclass(frozen=True, slots=True)
class MemoryShortage:
    """A failed memory allocation.

    Attributes:
        stage: The stage that failed.
        cause: The message of the allocator.
    """

    stage: Literal["forward", "backward"]
    cause: str


@final
class Accumulator(Generic[Batch]):
    """Accumulates the gradient of a phase over a window.

    Args:
        phase: The phase.
        foreign: Parameters of the other phases, frozen during the run.
        device: The device to compute on.
        precision: The precision of the forward.
        scaler: Scales the loss; None does not scale.
        cutter: Cuts the batches.
        rewind: Restores state after memory ran out.
        shared: The forward that the phase owns or uses; None for a loss that needs only the batch.
        move: Moves a batch or a micro-batch to the device; None copies it each time.

    Attributes:
        shortages: How often memory has run out.
    """

    def __init__(
        self,
        phase: Phase[Batch],
        foreign: Iterable[Parameter],
        device: torch.device,
        precision: Precision,
        *,
        scaler: GradScaler | None,
        cutter: BatchCutter[Batch],
        rewind: Rewind,
        shared: SharedForward[Batch] | None = None,
        move: Callable[[Any], Any] | None = None,
    ) -> None:
        self._phase = phase.name
        self._loss: Callable[..., Loss] = phase.loss
        self._parameters = tuple(phase.parameters)
        self._foreign = FrozenParameters(tuple(foreign))
        self._device = device
        self._move = make_mover(device) if move is None else move
        self._dtype = precision.dtype
        self._scaler = scaler
        self._cutter = cutter
        self._rewind = rewind
        self._shared = shared
        self._seeds: dict[tuple[float, torch.dtype], Tensor] = {}
        self._short_of_memory = False
        self._window_start: ForwardState | None = None
        self.shortages = 0

    def run(
        self,
        window: Sequence[Batch],
        position: Position,
        requests: Callable[[], StepRequests],
        targets: Targets[Batch] | None = None,
    ) -> LocalTotals:
        """Run forward and backward of every batch, which sets the parameters' gradients, up to the correction.

        Args:
            window: The batches.
            position: The loop's position; updated with the current batch.
            requests: Returns the requests of this process after the window; called at the end.
            targets: The counted targets of a loss of several terms; None for a loss of one term.

        Raises:
            ContractError: The loss function did not return a valid `Loss`, or its counts differ from `targets`.
            DetachedLossError: A loss has no graph.
            OutOfMemoryError: Memory ran out and smaller micro-batches are not possible.
        """
        with self._foreign:
            while (attempt := self._run_window(window, position, targets)) is None:
                pass
        position.set_batch(None)
        self._window_start = attempt.start
        return LocalTotals(
            losses=attempt.losses,
            assumed_count=attempt.assumed_count if targets is None else 1.0,
            requests=requests(),
            targets=None if targets is None else targets.totals,
        )

    def restore_buffers(self) -> None:
        """Undo the changes of the last window's forward to buffers, such as statistics of data that is not finite."""
        if self._window_start is not None:
            self._rewind.restore_buffers(
                self._window_start, but=() if self._shared is None else self._shared.find_restored_by_owner(self._phase)
            )
        if self._shared is not None and self._shared.owner == self._phase:
            self._shared.restore_buffers()

    def _run_window(
        self, window: Sequence[Batch], position: Position, targets: Targets[Batch] | None
    ) -> AccumulationAttempt | None:
        """Compute the window; None if it must be repeated, with all state restored to that at its start."""
        for parameter in self._parameters:
            parameter.grad = None
        attempt = AccumulationAttempt(len(window))
        if targets is not None:
            attempt.term_targets = TermTargets(targets)
        for number, batch in enumerate(window):
            position.set_batch(number)
            if not self._run_batch(number, batch, attempt):
                return None
        return attempt

    def _run_batch(self, number: int, batch: Batch, attempt: AccumulationAttempt) -> bool:
        """Compute all micro-batches of a batch; False if the window must be repeated."""
        start: int | None = 0
        while start is not None:
            micro_batch = self._cutter.cut(batch, start)
            state = self._rewind.save()
            attempt.start = attempt.start or state
            shortage = self._run_micro_batch(number, micro_batch, attempt)
            if shortage is None:
                self._short_of_memory = False
                attempt.done.append(micro_batch)
                start = None if micro_batch.is_last else micro_batch.stop
            elif not self._recover(number, micro_batch, state, attempt, shortage):
                return False
        return True

    def _run_micro_batch(
        self, number: int, micro_batch: MicroBatch[Batch], attempt: AccumulationAttempt
    ) -> MemoryShortage | None:
        """Run forward and backward; return a memory shortage, because an exception would keep its frames alive."""
        stage: Literal["forward", "backward"] = "forward"
        try:
            loss = self._forward(number, micro_batch)
            stage = "backward"
            if loss.terms or attempt.term_targets is not None:
                self._run_backward_of_terms(loss, number, micro_batch, attempt)
            elif loss.count:
                self._run_backward(loss, micro_batch, attempt)
            if self._shared is not None:
                self._shared.check_unchanged(self._phase, number, micro_batch)
            if loss.has_targets:
                attempt.losses.append(loss.without_graph())
            if attempt.term_targets is not None:
                attempt.term_targets.note(micro_batch, number)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return MemoryShortage(stage, describe_cause(error))
        return None

    def _recover(
        self,
        number: int,
        micro_batch: MicroBatch[Batch],
        state: ForwardState,
        attempt: AccumulationAttempt,
        shortage: MemoryShortage,
    ) -> bool:
        """Lower the limit and restore the state before the micro-batch; False if it is the state before the window."""
        self.shortages += 1
        graphs = "" if self._shared is None else self._shared.describe_graphs()
        is_shared_run = self._shared is not None and self._shared.was_run_by_other_phase(self._phase)
        if self._shared is not None:
            self._shared.drop(number, micro_batch)
        release(self._device, thorough=self._short_of_memory)  # thorough only if a quick release was not enough
        self._short_of_memory = True
        usage = describe_usage(self._device)
        self._cutter.lower(
            micro_batch, f"memory ran out in the {shortage.stage} ({shortage.cause}; now {usage}{graphs})"
        )
        repeat = (
            is_shared_run
            or shortage.stage == "backward"
            or any(self._cutter.exceeds_limit(micro_batch) for micro_batch in attempt.done)
        )
        self._rewind.restore(attempt.start if repeat and attempt.start else state)
        if repeat and self._shared is not None:
            self._shared.restart()
        return not repeat

    def _forward(self, number: int, micro_batch: MicroBatch[Batch]) -> Loss:
        batch = self._move(micro_batch.batch)
        arguments: tuple[Any, ...] = (batch,)
        if self._shared is not None:
            arguments = (batch, self._shared.result(self._phase, number, micro_batch, batch, self._foreign))
        if self._dtype is None:
            return check_loss(self._loss(*arguments))
        with torch.autocast(self._device.type, dtype=self._dtype):
            return check_loss(self._loss(*arguments))

    def _run_backward(self, loss: Loss, micro_batch: MicroBatch[Batch], attempt: AccumulationAttempt) -> None:
        """Run the backward of a loss of one term, weighted by the estimate of the window's count."""
        attempt.assumed_count = attempt.assumed_count or loss.count / micro_batch.share * attempt.batches
        self._check_attached(loss.mean, loss)
        seed = self._seed(loss.count / attempt.assumed_count, loss.mean, loss)
        backward((loss.mean,), (seed if self._scaler is None else self._scaler.scale(seed),))

    def _run_backward_of_terms(
        self, loss: Loss, number: int, micro_batch: MicroBatch[Batch], attempt: AccumulationAttempt
    ) -> None:
        """Run the backward of a loss with terms, each weighted by its share of the window's targets."""
        if attempt.term_targets is None:
            if len(loss.terms) > 1:
                raise make_missing_counts_error(self._phase, loss)
            if loss.count:
                self._run_backward(loss, micro_batch, attempt)
            return
        roots = attempt.term_targets.weigh(loss, micro_batch, number)
        for mean, _ in roots:
            self._check_attached(mean, loss)
        seeds = [self._seed(weight, mean, loss) for mean, weight in roots]
        if roots:
            scaled = seeds if self._scaler is None else [self._scaler.scale(seed) for seed in seeds]
            backward(tuple([mean for mean, _ in roots]), tuple(scaled))

    def _check_attached(self, mean: Tensor, loss: Loss) -> None:
        if not mean.requires_grad:
            raise make_detached_loss_error(loss.name_of(mean), mean, self._parameters)

    def _seed(self, weight: float, mean: Tensor, loss: Loss) -> Tensor:
        """Return the tensor that backward starts from; tensors are cached, because most windows use few weights."""
        key = (weight, mean.dtype)
        seed = self._seeds.get(key)
        if seed is None or seed.device != mean.device:
            if weight != 1.0 or self._scaler is not None:
                check_width(loss.name_of(mean), mean)
            if len(self._seeds) >= MAX_CACHED_SEEDS:
                self._seeds.clear()
            seed = self._seeds[key] = torch.full_like(mean, weight, requires_grad=False)
        return seed


def backward(roots: tuple[Tensor, ...], seeds: tuple[Tensor, ...]) -> None:
    """Run `torch.autograd.backward(roots, seeds)` for scalars, without torch's checks.

    Args:
        roots: Scalars, each with a graph.
        seeds: The gradients to start from, each with the dtype and device of its root.
    """
    if type(roots[0]) is Tensor and not torch.autograd._profiler_enabled():  # noqa: SLF001  # pyright: ignore[reportPrivateImportUsage]  no public name
        Variable._execution_engine.run_backward(  # noqa: SLF001  `torch.autograd.backward` calls it too
            roots, seeds, False, False, (), allow_unreachable=True, accumulate_grad=True
        )
    elif len(roots) == 1:
        roots[0].backward(seeds[0])
    else:
        torch.autograd.backward(roots, seeds)

"""Non-finite validation loss: reported, never an improvement, and an error after several in a row."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from rank_processes import on_ranks
from regression import Rows, linear, rows, squares
from torch import nn

from trainers.loop import (
    Checkpoints,
    EpochReport,
    IterableSource,
    Loop,
    Loss,
    NoBestWeightsError,
    NonFiniteError,
    Phase,
    Validation,
)
from trainers.loop.step.guards import Nonfinite

NAN, INFINITE = math.nan, math.inf


def loop_of(net: nn.Module, *, skip_limit: int = 20, nonfinite: Nonfinite = "skip") -> Loop[Rows]:
    phase = Phase[Rows]("main", lambda batch: squares(net, batch), net.parameters(), torch.optim.SGD(net.parameters()))
    return Loop([phase], modules={"net": net}, device="cpu", skip_limit=skip_limit, nonfinite=nonfinite)


def validation_of(values: Sequence[float]) -> Validation[Rows]:
    """A validation that returns these values in turn."""
    coming = iter(values)
    return Validation(lambda batch: Loss(torch.tensor(next(coming)), len(batch.x)), IterableSource([rows()]))


def validate_epochs(
    values: Sequence[float], *, skip_limit: int = 20, patience: int = 99
) -> Iterator[tuple[float, int]]:
    """Validation of every epoch, and the number of epochs since the best."""
    with loop_of(linear(), skip_limit=skip_limit).running() as run:
        reports = run.epochs(IterableSource([rows()]), max_epochs=len(values), validation=validation_of(values))
        for report in reports:
            if isinstance(report, EpochReport):
                stalled = run.stalled(report.monitored, patience=patience)
                yield report.monitored, run.best.stale
                if stalled:
                    break


def test_it_is_reported_and_counts_as_no_improvement() -> None:
    assert repr(list(validate_epochs([0.5, NAN, 0.25, INFINITE, -INFINITE, NAN]))) == repr(
        [(0.5, 0), (NAN, 1), (0.25, 0), (INFINITE, 1), (-INFINITE, 2), (NAN, 3)]
    )


def test_before_any_other_it_is_no_best() -> None:
    assert [stale for _, stale in validate_epochs([NAN, NAN, 0.5, 0.6])] == [1, 2, 0, 1]


def test_it_uses_patience_up() -> None:
    assert len(list(validate_epochs([0.5, NAN, NAN, 0.1], patience=2))) == 3


def test_as_many_in_a_row_as_steps_may_be_skipped_are_an_error() -> None:
    seen = validate_epochs([0.5, NAN, INFINITE, NAN, 0.1], skip_limit=3)
    assert [next(seen)[1] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(NonFiniteError, match="mean, not finite for the last 3 validations, is nan: the score function"):
        next(seen)


def test_those_apart_from_each_other_are_no_error() -> None:
    assert len(list(validate_epochs([NAN, 0.5, NAN, 0.5, NAN, 0.5], skip_limit=2))) == 6


def test_one_of_the_caller_s_own_counts_in_the_same_row() -> None:
    with loop_of(linear(), skip_limit=2).running() as run:
        held = validation_of([NAN, NAN])
        assert math.isnan(run.validate(held.score, held.source).mean)
        with pytest.raises(NonFiniteError, match="the last 2 validations"):
            run.validate(held.score, held.source)


@pytest.mark.parametrize("value", [NAN, INFINITE])
def test_it_raises_at_once_if_asked_to(value: float) -> None:
    with loop_of(linear(), nonfinite="raise").running() as run:
        held = validation_of([value])
        with pytest.raises(NonFiniteError, match="the validation's mean is"):
            run.validate(held.score, held.source)
        with pytest.raises(NonFiniteError, match="the recorded value is"):
            run.stalled(value, patience=3)


def test_the_best_weights_are_those_of_a_number() -> None:
    net = linear()
    with loop_of(net).running() as run:
        run.stalled(0.5, patience=9)
        nn.init.constant_(net.weight, 7.0)
        run.stalled(NAN, patience=9)
        run.restore_best()
    assert (net.weight != 7.0).all()


def test_without_a_finite_loss_there_are_no_best_weights_with_the_reason() -> None:
    with loop_of(linear()).running() as run:
        run.stalled(NAN, patience=9)
        run.stalled(INFINITE, patience=9)
        with pytest.raises(NoBestWeightsError, match="no recorded value was finite \\(2 values\\)"):
            run.restore_best()


def test_the_row_goes_on_after_a_resume(tmp_path: Path) -> None:
    def live(values: Sequence[float], *, epochs: int) -> list[int]:
        """Number of validations since the best, after every epoch of this run."""
        stale: list[int] = []
        with loop_of(linear(), skip_limit=3).running(Checkpoints(tmp_path)) as run:
            for report in run.epochs(IterableSource([rows()]), max_epochs=epochs, validation=validation_of(values)):
                if isinstance(report, EpochReport):
                    run.stalled(report.monitored, patience=9)
                    stale.append(run.best.stale)
            assert run.best.has_value
        return stale

    assert live([NAN], epochs=1) == [1]
    assert live([NAN], epochs=2) == [2]
    with pytest.raises(NonFiniteError, match="the last 3 validations"):
        live([NAN], epochs=3)


def of_one_rank(skip_limit: int) -> list[float]:
    """Validation of two epochs that is NaN on the second rank only."""
    net = linear()
    told: list[float] = []
    with loop_of(net, skip_limit=skip_limit).running() as run:
        value = NAN if run.group.rank else 0.5
        held = Validation[Rows](lambda batch: Loss(torch.tensor(value), len(batch.x)), IterableSource([rows()] * 2))
        for report in run.epochs(IterableSource([rows()] * 2), max_epochs=2, validation=held):
            if isinstance(report, EpochReport):
                run.stalled(report.monitored, patience=9)
                told.append(report.monitored)
    return told


@pytest.mark.parametrize("skip_limit", [3, 2])
def test_one_on_one_rank_is_one_on_both(skip_limit: int) -> None:
    for ended in on_ranks(of_one_rank, skip_limit):
        if skip_limit == 3:
            assert repr(ended.value) == "[nan, nan]"
        else:
            assert ended.error.startswith("NonFiniteError: the validation's mean, not finite for the last 2")

"""Sparse gradients: the steps are those of dense ones, only rows of the window change, and a group refuses them."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from shortages import Shortage
from torch import Tensor, nn
from torch.nn.functional import embedding
from torch.optim import SGD, Optimizer, SparseAdam

from trainers.loop import Checkpoints, IterableSource, Loop, Loss, NonFiniteError, ParallelismError, Phase, Precision
from trainers.loop.group.processes import check_one_vector

GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
ROWS = 12
FAST = partial(SGD, lr=5.0)


class Lookups(NamedTuple):
    rows: Tensor
    factor: Tensor


def lookups(*windows: Sequence[int], factors: Sequence[float] = ()) -> list[Lookups]:
    known = [*factors, *[1.0] * (len(windows) - len(factors))]
    return [Lookups(torch.tensor(rows), torch.tensor(factor)) for rows, factor in zip(windows, known, strict=True)]


def table(*, sparse: bool, device: str = "cpu") -> nn.Embedding:
    torch.manual_seed(1)
    return nn.Embedding(ROWS, 3, sparse=sparse).to(device)


def loss_of(net: nn.Embedding, batch: Lookups) -> Loss:
    return Loss((net(batch.rows) - 1.0).square().mean() * batch.factor, len(batch.rows))


def train(
    net: nn.Embedding,
    data: Sequence[Lookups],
    make: Callable[[list[nn.Parameter]], Optimizer] = FAST,
    *,
    clip: float | None = 0.2,
    checkpoints: Checkpoints | None = None,
    epochs: int = 1,
    accumulate: int = 1,
    precision: str | Precision = "fp32",
) -> nn.Embedding:
    phase = Phase("main", partial(loss_of, net), net.parameters(), make(list(net.parameters())), clip=clip)
    device = net.weight.device.type
    loop = Loop([phase], modules={"net": net}, device=device, precision=precision, accumulate=accumulate)
    with loop.running(checkpoints) as run:
        for _ in run.epochs(IterableSource(data), max_epochs=epochs):
            pass
    return net


WINDOWS = lookups([0, 0, 4], [4, 5, 5, 5], [7], [0, 7, 7, 9], [2, 2])


@DEVICES
@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_steps_are_those_of_dense_gradients(device: str, clip: float | None, accumulate: int) -> None:
    sparse, dense = (
        train(table(sparse=kind, device=device), WINDOWS, clip=clip, accumulate=accumulate) for kind in (True, False)
    )
    torch.testing.assert_close(sparse.weight, dense.weight)
    assert not torch.equal(sparse.weight[0], table(sparse=True, device=device).weight[0])


@DEVICES
def test_a_scaler_does_not_change_the_steps(device: str) -> None:
    scaled = Precision(name="fp16", dtype=None, scaler=partial(torch.amp.GradScaler, device), reason="a test")
    plain = train(table(sparse=True, device=device), WINDOWS, SparseAdam)
    torch.testing.assert_close(
        train(table(sparse=True, device=device), WINDOWS, SparseAdam, precision=scaled).weight, plain.weight
    )


def test_only_rows_of_the_window_change() -> None:
    before, after = table(sparse=True).weight, train(table(sparse=True), lookups([3, 3, 8]), SparseAdam).weight
    assert (before != after).any(1).nonzero().flatten().tolist() == [3, 8]


def test_a_window_that_is_not_finite_changes_nothing() -> None:
    bad = lookups([0, 1], [1, 1, 2], [3], factors=[1.0, torch.nan, 1.0])
    trained = train(table(sparse=True), bad, SparseAdam)
    assert torch.equal(trained.weight, train(table(sparse=True), [bad[0], bad[2]], SparseAdam).weight)


def test_the_error_of_values_that_are_not_finite_names_the_gradient() -> None:
    net = table(sparse=True)

    def loss(batch: Lookups) -> Loss:  # the root's slope at zero is infinite, while its value is not
        return Loss((net(batch.rows).sum() * 0).sqrt(), len(batch.rows))

    phase = Phase("main", loss, net.parameters(), SGD(net.parameters(), lr=0.1))
    loop = Loop([phase], modules={"net": net}, device="cpu", nonfinite="raise")
    with loop.running() as run, pytest.raises(NonFiniteError, match=r"these gradients are not: net\.weight"):
        list(run.epochs(IterableSource(WINDOWS), max_epochs=1))


def test_a_resumed_training_takes_the_same_steps(tmp_path: Path) -> None:
    whole = train(table(sparse=True), WINDOWS * 2, SparseAdam)
    train(table(sparse=True), WINDOWS, SparseAdam, checkpoints=Checkpoints(tmp_path))
    resumed = train(table(sparse=True), WINDOWS, SparseAdam, epochs=2, checkpoints=Checkpoints(tmp_path))
    assert torch.equal(resumed.weight, whole.weight)


def test_a_window_that_is_repeated_in_smaller_micro_batches_takes_the_same_step() -> None:
    whole, cut = table(sparse=True), table(sparse=True)
    shortage = Shortage("backward", fits=2)

    def run_out(_net: nn.Module, _rows: object, looked_up: Tensor) -> Tensor:
        return shortage(looked_up)

    cut.register_forward_hook(run_out)
    torch.testing.assert_close(train(cut, WINDOWS).weight, train(whole, WINDOWS).weight)
    assert shortage.failures == 1


def test_several_processes_refuse_the_gradients_of_a_function() -> None:
    weight = nn.Parameter(torch.ones(4, 2))
    embedding(torch.tensor([1]), weight, sparse=True).sum().backward()
    with pytest.raises(ParallelismError, match="train in one process"):
        check_one_vector([weight])

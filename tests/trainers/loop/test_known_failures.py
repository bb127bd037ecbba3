"""Known failures of other training loops that no other module of tests covers.

Memory shortages, groups, checkpoints, resuming and unusual tasks have test modules of their own; a detached loss is in
tests/contract/test_known_pitfalls.py.
"""

import copy
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from regression import Rows, linear, rows, squares
from shortages import Shortage
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader

from trainers import loop as loop_package
from trainers.loop import (
    Checkpoints,
    EpochReport,
    FrozenModule,
    Hardware,
    IterableSource,
    Loop,
    Loss,
    NoGradientError,
    Phase,
    Precision,
    Report,
    Source,
    StepReport,
    seed_everything,
)
from trainers.loop.device.memory import release
from trainers.loop.step import update

SCALED = Precision(name="fp16", dtype=None, scaler=partial(torch.amp.GradScaler, "cpu"), reason="a test")


def join_rows(*batches: Rows) -> Rows:
    return Rows(torch.cat([batch.x for batch in batches]), torch.cat([batch.y for batch in batches]))


def poisoned() -> Rows:
    return Rows(torch.full((4, 3), torch.nan), torch.ones(4, 1))


def descent(net: nn.Module) -> Optimizer:
    return SGD(net.parameters(), lr=0.1)


def train(
    net: nn.Module,
    batches: Sequence[Rows] | Source[Rows],
    *,
    loss: Callable[[Rows], Loss] | None = None,
    optimizer: Optimizer | None = None,
    decays: bool = False,
    epochs: int = 1,
    clip: float | None = None,
    checkpoints: Checkpoints | None = None,
    **settings: Any,
) -> list[Report]:
    """Train on the CPU, by default with squared error and plain gradient descent."""
    optimizer = optimizer or descent(net)
    scheduler = ExponentialLR(optimizer, 0.5) if decays else None
    phase = Phase("main", loss or partial(squares, net), net.parameters(), optimizer, scheduler, clip=clip)
    source = IterableSource(batches) if isinstance(batches, Sequence) else batches
    with Loop([phase], modules={"net": net}, device="cpu", **settings).running(checkpoints) as run:
        return list(run.epochs(source, max_epochs=epochs))


def windows_of(reports: Sequence[Report]) -> list[StepReport]:
    return [report for report in reports if isinstance(report, StepReport)]


def stepped(reports: Sequence[Report]) -> list[bool]:
    return [report.stepped for report in windows_of(reports)]


def descend_by_hand(net: nn.Linear, *windows: Rows) -> Tensor:
    """The weight after a step by hand per window."""
    for window in windows:
        optimizer = descent(net)
        optimizer.zero_grad()
        squares(net, window).mean.backward()
        optimizer.step()
    return net.weight.detach()


# --- the gradient scaler


def test_an_enabled_grad_scaler_of_the_cpu_crashes_no_training_and_changes_no_step() -> None:
    assert torch.amp.GradScaler("cpu").is_enabled()
    scaled, plain = linear(), linear()
    assert stepped(train(scaled, [rows()] * 3, precision=SCALED)) == [True] * 3
    train(plain, [rows()] * 3)
    assert torch.equal(scaled.weight, plain.weight)


def test_a_grad_scaler_that_disabled_itself_trains_like_none() -> None:
    disabled, plain = linear(), linear()
    precision = Precision(
        name="fp16", dtype=None, scaler=partial(torch.amp.GradScaler, "cuda", enabled=False), reason="a test"
    )
    assert stepped(train(disabled, [rows(), poisoned(), rows()], precision=precision)) == [True, False, True]
    train(plain, [rows()] * 2)
    assert torch.equal(disabled.weight, plain.weight)


def test_a_scaled_loss_that_misses_the_parameters_is_told_before_the_scaler_misses_its_inf_checks() -> None:
    with pytest.raises(NoGradientError):
        train(
            linear(),
            [rows()],
            loss=lambda batch: Loss(torch.ones((), requires_grad=True), len(batch.x)),
            precision=SCALED,
        )


def test_float16_parameters_under_a_scaler_are_an_error_with_its_place() -> None:
    net = linear().half()

    def loss(batch: Rows) -> Loss:
        return Loss(net(batch.x.half()).float().mean(), len(batch.x))

    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients") as caught:
        train(net, [rows()], loss=loss, precision=SCALED)
    assert caught.value.__notes__ == [
        "in phase 'main', epoch 0, window 0 of 1 batches: batch.x float32[4, 3], batch.y float32[4, 1]"
    ]


# --- autocast and precisions


def test_autocast_is_not_entered_where_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def entered(*_: object, **__: object) -> None:
        raise AssertionError("it would warn without CUDA, and cost time")

    monkeypatch.setattr(torch, "autocast", entered)
    net = linear()
    phase = Phase[Rows]("main", partial(squares, net), net.parameters(), descent(net))
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        list(run.epochs(IterableSource([rows()]), max_epochs=1))
        run.validate(partial(squares, net), IterableSource([rows()]))


def test_a_forward_without_gradients_leaves_autocast_no_weights_without_a_graph() -> None:
    """Autocast caches a forward's cast weights for the next one."""
    net = linear()

    def loss(batch: Rows) -> Loss:
        with torch.no_grad():
            before = net(batch.x)
        return Loss((net(batch.x) - before + 1).float().square().mean(), len(batch.x))

    assert windows_of(train(net, [rows()], loss=loss, precision="bf16"))[0].grad_norm > 0


def test_deprecated_autocasts_and_scalers_are_not_used() -> None:
    sources = Path(loop_package.__file__).parent.parent.rglob("*.py")
    found = [path.name for path in sources if re.search(r"torch\.(cuda|cpu)\.amp", path.read_text(encoding="utf-8"))]
    assert found == []


def test_bfloat16_is_only_looked_for_in_the_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    def supported(*, including_emulation: bool = True) -> bool:
        return including_emulation

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", "GPU {}".format)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    assert not Hardware.detect().cuda_bf16


# --- the weights of batches, the tail


def test_an_epoch_s_loss_is_not_divided_by_the_length_of_the_loader() -> None:
    net = linear()
    *_, epoch = train(net, [rows(8), poisoned(), rows(1, 1)], optimizer=SGD(net.parameters(), lr=0.0))
    assert isinstance(epoch, EpochReport)
    assert epoch.loss == pytest.approx(squares(net, join_rows(rows(8), rows(1, 1))).mean.item(), rel=1e-6)


def test_the_device_is_waited_for_once_a_window_and_not_once_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []

    def counted(scalars: Sequence[Tensor]) -> list[float]:
        waits.append(len(scalars))
        return [scalar.item() for scalar in scalars]

    monkeypatch.setattr(update, "read", counted)
    train(linear(), [rows()] * 8, accumulate=4)
    assert len(waits) == 2


def test_a_gradient_from_before_does_not_enter_a_step_and_the_window_s_own_is_there_when_it_is_taken() -> None:
    net = linear()
    squares(net, rows(4, seed=9)).mean.backward()
    train(net, [rows()])
    assert torch.allclose(net.weight, descend_by_hand(linear(), rows()), rtol=1e-6)


# --- memory that runs out


def test_giving_memory_back_on_a_cpu_asks_no_accelerator() -> None:
    release(torch.device("cpu"))


def test_the_size_found_is_that_of_the_resumed_training_too(tmp_path: Path) -> None:
    shortages = [Shortage("forward", fits=4), Shortage("forward", fits=4)]
    for epochs, shortage in enumerate(shortages, start=1):
        net = linear()

        def loss(batch: Rows, net: nn.Linear = net, shortage: Shortage = shortage) -> Loss:
            return squares(net, Rows(shortage(batch.x), batch.y))

        train(net, [rows(8)], loss=loss, epochs=epochs, checkpoints=Checkpoints(tmp_path, every_windows=1))
    assert [shortage.sizes for shortage in shortages] == [[8, 4, 4], [4, 4]]


# --- swallowed errors


def test_a_loss_that_is_no_number_is_reported_as_such_and_not_hidden_from_the_log() -> None:
    first, *_ = windows_of(train(linear(), [poisoned(), rows()]))
    assert repr(first.loss) == "nan"
    assert not first.stepped


# --- losses without effect


def test_data_out_of_inference_mode_is_named_where_the_training_meets_it() -> None:
    with torch.inference_mode():
        encoded = torch.ones(4, 3)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward") as caught:
        train(linear(), [Rows(encoded, torch.ones(4, 1))])
    assert "batch.x float32[4, 3] (inference tensor)" in caught.value.__notes__[0]


def test_a_frozen_encoder_without_gradients_trains_what_follows_it() -> None:
    encoder, net = nn.Linear(3, 3), linear()

    def loss(batch: Rows) -> Loss:
        with torch.no_grad():
            encoded = encoder(batch.x)
        return squares(net, Rows(encoded, batch.y))

    phase = Phase("main", loss, net.parameters(), descent(net))
    with Loop([phase], modules={"net": net, "encoder": FrozenModule(encoder)}, device="cpu").running() as run:
        assert stepped(list(run.epochs(IterableSource([rows()]), max_epochs=1))) == [True]


def test_a_reward_computed_without_gradients_is_a_figure_and_moves_no_weight() -> None:
    rewarded, plain = linear(), linear()

    def loss(batch: Rows) -> Loss:
        with torch.no_grad():
            reward = rewarded(batch.x).mean()
        return Loss(squares(rewarded, batch).mean, len(batch.x), {"reward": reward})

    expected = plain(rows().x).mean().item()
    (window,) = windows_of(train(rewarded, [rows()], loss=loss))
    train(plain, [rows()])
    assert window.parts["reward"] == pytest.approx(expected, rel=1e-6)
    assert torch.equal(rewarded.weight, plain.weight)


# --- skipped steps


def test_a_first_step_that_is_skipped_brings_no_warning_of_a_scheduler_before_its_optimizer() -> None:
    assert stepped(train(linear(), [poisoned(), rows()], decays=True)) == [False, True]


@pytest.mark.parametrize("fused", [False, True])
def test_a_skipped_step_leaves_the_optimizer_s_own_count_of_steps_alone(*, fused: bool) -> None:
    net = linear()
    optimizer = AdamW(net.parameters(), fused=fused)
    train(net, [rows(), poisoned(), rows()], optimizer=optimizer)
    assert optimizer.state[net.weight]["step"] == 2


# --- phases and parameters


class BranchingNetwork(nn.Module):
    """A network that uses one layer for batches of two, and the other otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.rare = nn.Linear(3, 1)
        self.usual = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.rare(x) if len(x) == 2 else self.usual(x)


@pytest.mark.parametrize("order", [(2, 4), (4, 2)])
def test_a_parameter_used_in_only_one_batch_of_a_window_gets_its_gradient(order: tuple[int, int]) -> None:
    torch.manual_seed(4)
    net = BranchingNetwork()
    by_hand = copy.deepcopy(net)
    batches = [rows(size) for size in order]
    train(net, batches, accumulate=2)
    errors = [(by_hand(batch.x) - batch.y).square().sum() for batch in batches]
    (torch.stack(errors).sum() / 6).backward()
    descent(by_hand).step()
    for found, expected in zip(net.parameters(), by_hand.parameters(), strict=True):
        assert torch.allclose(found, expected, rtol=1e-5)


# --- recurrent layers


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.head = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x.unsqueeze(1))[0][:, -1])


def is_flat(net: Recurrent) -> bool:
    """Whether the layer computes with its own parameters, not copies."""
    return all(one is other for one, other in zip(net.lstm._flat_weights, net.lstm.parameters(), strict=True))


def test_an_average_and_a_copy_leave_a_recurrent_layer_its_weights() -> None:
    torch.manual_seed(6)
    net = copy.deepcopy(Recurrent())
    places = [parameter.data_ptr() for parameter in net.parameters()]
    optimizer = AdamW(net.parameters(), lr=0.1)
    phase = Phase[Rows]("main", partial(squares, net), net.parameters(), optimizer)
    with Loop([phase], modules={"net": net}, device="cpu", ema=0.5).running() as run:
        list(run.epochs(IterableSource([rows()] * 3), max_epochs=1))
        averaged = run.validate(partial(squares, net), IterableSource([rows()])).mean
        current = squares(net, rows()).mean.item()
        run.use_average()
        assert squares(net, rows()).mean.item() == averaged != current
    assert is_flat(net)
    assert [parameter.data_ptr() for parameter in net.parameters()] == places


def test_weights_that_were_assigned_are_what_a_recurrent_layer_trains() -> None:
    torch.manual_seed(6)
    net, other = Recurrent(), Recurrent()
    net.load_state_dict({name: tensor.clone() for name, tensor in other.state_dict().items()}, assign=True)
    train(net, [rows()] * 2)
    train(other, [rows()] * 2)
    assert is_flat(net)
    assert all(torch.equal(one, two) for one, two in zip(net.parameters(), other.parameters(), strict=True))


def test_a_recurrent_network_left_in_evaluation_mode_is_trained_in_training_mode_also_after_a_validation() -> None:
    """The backward of cuDNN's recurrent layers refuses evaluation mode."""
    net, modes = Recurrent().eval(), list[bool]()

    def loss(batch: Rows) -> Loss:
        modes.append(net.lstm.training)
        return squares(net, batch)

    phase = Phase("main", loss, net.parameters(), descent(net))
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        for _ in run.epochs(IterableSource([rows()] * 2), max_epochs=2):
            run.validate(loss, IterableSource([rows()]))
    assert modes == [True, False] * 2 + [False] + [True, False] * 2 + [False]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cudnn_finds_flat_weights_after_an_average_was_validated() -> None:
    net = Recurrent()
    phase = Phase[Rows]("main", partial(squares, net), net.parameters(), AdamW(net.parameters()))
    with Loop([phase], modules={"net": net}, device="cuda", ema=0.5).running() as run:
        list(run.epochs(IterableSource([rows()] * 2), max_epochs=1))
        run.validate(partial(squares, net), IterableSource([rows()]))
        storages = {parameter.untyped_storage().data_ptr() for parameter in net.lstm.parameters()}
    assert len(storages) == 1


# --- checkpoints, resumption, signals


class DrawingLoss:
    """A loss that draws from NumPy's generator and records its samples."""

    def __init__(self, net: nn.Linear) -> None:
        self._net = net
        self.seen: list[float] = []

    def __call__(self, batch: Rows) -> Loss:
        self.seen.extend(batch.y[:, 0].tolist())
        return squares(self._net, Rows(batch.x + np.random.normal(), batch.y))  # noqa: NPY002  what a library may do


def shuffled(data: Rows) -> Source[Rows]:
    def joined_again(pairs: list[tuple[Tensor, Tensor]]) -> Rows:
        return Rows(torch.stack([x for x, _ in pairs]), torch.stack([y for _, y in pairs]))

    pairs = list(zip(*data, strict=True))
    return IterableSource(DataLoader(pairs, batch_size=2, shuffle=True, collate_fn=joined_again))  # pyright: ignore[reportArgumentType]  a list is a dataset


def run_samples(folder: Path, *, seed: int, windows: int) -> tuple[list[float], Tensor]:
    """Samples in the order of use in a run of so many windows, and the final weight."""
    seed_everything(seed)
    net = nn.Linear(3, 1)
    loss = DrawingLoss(net)
    phase = Phase("main", loss, net.parameters(), AdamW(net.parameters(), lr=0.1))
    with Loop([phase], modules={"net": net}, device="cpu").running(Checkpoints(folder, every_windows=1)) as run:
        reports: Iterator[Report] = run.epochs(shuffled(rows(12)), max_epochs=2)
        for report in reports:
            if isinstance(report, StepReport) and report.epoch * 6 + report.window == windows:
                break
    return loss.seen, net.weight.detach()


def test_a_checkpoint_with_numpy_s_generator_can_be_read_and_gives_the_same_bits(tmp_path: Path) -> None:
    _, whole = run_samples(tmp_path / "whole", seed=1, windows=99)
    run_samples(tmp_path / "cut", seed=1, windows=8)
    newest = max((tmp_path / "cut").glob("window-*"))
    state = torch.load(newest / "state.pt", weights_only=True)
    assert state["processes"][0]["generators"]["numpy"][0] == "MT19937"
    _, resumed = run_samples(tmp_path / "cut", seed=2, windows=99)
    assert torch.equal(resumed, whole)


def test_a_best_value_that_numpy_computed_does_not_make_a_checkpoint_unreadable(tmp_path: Path) -> None:
    for epochs in (1, 2):
        net = linear()
        phase = Phase[Rows]("main", partial(squares, net), net.parameters(), descent(net))
        loop = Loop([phase], modules={"net": net}, device="cpu")
        with loop.running(Checkpoints(tmp_path, every_windows=1)) as run:
            for report in run.epochs(IterableSource([rows()]), max_epochs=epochs):
                if isinstance(report, EpochReport):
                    run.stalled(np.float64(report.loss), patience=3)
            assert type(run.best.value) is float
    assert run.epoch == 2


def test_a_training_outside_of_the_main_thread_is_written_down_and_installs_no_signal_handler(tmp_path: Path) -> None:
    told: list[list[Report]] = []

    def work() -> None:
        told.append(train(linear(), [rows()] * 2, checkpoints=Checkpoints(tmp_path, every_windows=1)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert stepped(told[0]) == [True, True]
    assert list(tmp_path.glob("window-*"))

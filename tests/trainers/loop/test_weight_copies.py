"""Weight copies, averages and digests: values, location, and no leftovers."""

from collections.abc import Sequence
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import Parameter

from trainers.loop import BestWeights, weights
from trainers.loop.errors import ResumeMismatchError, SettingsError
from trainers.loop.weights import LARGE, AveragedWeights, copy_tensors, hash_tensors, is_large


def parameter(*values: float, dtype: torch.dtype = torch.float32) -> Parameter:
    return Parameter(torch.tensor(values, dtype=dtype))


def set_to(target: Parameter, value: float) -> None:
    with torch.no_grad():
        target.fill_(value)


def test_the_average_moves_by_what_the_decay_leaves() -> None:
    weight = parameter(0.0, 2.0)
    average = AveragedWeights([weight], 0.75)
    set_to(weight, 4.0)
    average.update(1000)
    assert average.tensors[0].tolist() == [1.0, 2.5]
    assert weight.tolist() == [4.0, 4.0]


@pytest.mark.parametrize(("step", "decay"), [(1, 2 / 11), (8, 0.5), (80, 0.9), (10_000, 0.99)])
def test_early_steps_forget_faster(step: int, decay: float) -> None:
    weight = parameter(0.0)
    average = AveragedWeights([weight], 0.99)
    set_to(weight, 1.0)
    average.update(step)
    assert average.tensors[0].item() == pytest.approx(1 - decay, rel=1e-5)


def test_inside_the_parameters_hold_the_average_and_afterwards_the_same_bits_as_before() -> None:
    torch.manual_seed(1)
    net = nn.LSTM(3, 4)
    average = AveragedWeights(tuple(net.parameters()), 0.9)
    for weight in net.parameters():
        set_to(weight, 0.1)
    average.update(1)
    before = [weight.detach().clone() for weight in net.parameters()]
    places = [weight.data_ptr() for weight in net.parameters()]
    with average.applied():
        assert all(torch.equal(weight, mean) for weight, mean in zip(net.parameters(), average.tensors, strict=True))
        assert not any(torch.equal(weight, old) for weight, old in zip(net.parameters(), before, strict=True))
        assert [weight.data_ptr() for weight in net.parameters()] == places
    assert all(torch.equal(weight, old) for weight, old in zip(net.parameters(), before, strict=True))
    assert [weight.data_ptr() for weight in net.parameters()] == places


def test_an_error_inside_brings_the_parameters_back() -> None:
    weight = parameter(1.0)
    average = AveragedWeights([weight], 0.5)
    set_to(weight, float("nan"))
    with pytest.raises(KeyError, match=r"1\.0"), average.applied():
        raise KeyError(weight.item())
    assert weight.isnan().item()


def test_training_goes_on_after_an_evaluation_as_if_it_had_not_been() -> None:
    weights = [parameter(1.0, -2.0), parameter(1.0, -2.0)]
    for number, weight in enumerate(weights):
        optimizer = torch.optim.AdamW([weight], lr=0.1)
        average = AveragedWeights([weight], 0.5)
        for step in range(1, 4):
            optimizer.zero_grad()
            weight.square().sum().backward()
            optimizer.step()
            average.update(step)
            if number:
                with average.applied(), torch.inference_mode():
                    weight.square().sum()
    assert torch.equal(weights[0], weights[1])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_works_where_gradients_are_disabled(mode: type[torch.no_grad | torch.inference_mode]) -> None:
    weight = parameter(1.0)
    with mode():
        average = AveragedWeights([weight], 0.5)
    average.update(1)
    with mode():
        average.update(2)
        with average.applied():
            pass
    weight.square().sum().backward()
    assert cast("Tensor", weight.grad).item() == 2.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_average_of_half_precision_parameters_moves_by_less_than_they_can_express(dtype: torch.dtype) -> None:
    weight = parameter(1.0, dtype=dtype)
    average = AveragedWeights([weight], 0.999)
    set_to(weight, 1.125)
    for _ in range(50):
        average.update(100_000)
    assert average.tensors[0].item() == pytest.approx(1 + 0.125 * (1 - 0.999**50), rel=1e-5)
    before = average.tensors[0].clone()
    with average.applied():
        assert weight.dtype == dtype
        assert weight.item() == average.tensors[0].to(dtype).item()
    assert weight.item() == 1.125
    assert torch.equal(average.tensors[0], before)


def test_float64_stays_float64() -> None:
    assert AveragedWeights([parameter(1.0, dtype=torch.float64)], 0.5).tensors[0].dtype == torch.float64


def test_an_average_is_taken_up_from_a_checkpoint() -> None:
    first, second = parameter(3.0), parameter(5.0)
    average = AveragedWeights([second], 0.5)
    average.load([tensor.clone() for tensor in AveragedWeights([first], 0.5).tensors])
    assert average.tensors[0].item() == 3.0
    assert second.item() == 5.0


def test_the_average_of_another_network_is_refused() -> None:
    average = AveragedWeights([parameter(1.0, 2.0)], 0.5)
    with pytest.raises(ResumeMismatchError, match=r"have the shapes \[\[1\]\], but the parameters have \[\[2\]\]"):
        average.load([torch.zeros(1)])
    assert average.tensors[0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.5, 1.5, float("nan")])
def test_an_invalid_decay_is_refused(decay: float) -> None:
    with pytest.raises(SettingsError, match=r"the decay of the average is .*; it must be above 0 and below 1"):
        AveragedWeights([parameter(1.0)], decay)


BYTES = 4 * 10


def ten(device: str) -> Tensor:
    return torch.zeros(10, device=device)


def _always(_tensors: Sequence[Tensor], *, large: int = LARGE) -> bool:  # noqa: ARG001
    return True


def test_copies_are_large_by_all_their_bytes_together() -> None:
    assert not is_large([ten("meta"), ten("meta")], large=2 * BYTES)
    assert is_large([ten("meta"), ten("meta")], large=2 * BYTES - 1)
    assert is_large([torch.empty(LARGE // 4 + 1, device="meta")])
    assert not is_large([torch.empty(LARGE // 4, device="meta")])


def test_weights_on_the_host_are_copied_where_they_are_however_large() -> None:
    assert not is_large([ten("cpu")], large=0)
    assert is_large([ten("cpu"), ten("meta")], large=0)


def test_small_copies_stay_on_the_device_and_large_ones_leave_it() -> None:
    assert [copy.device.type for copy in copy_tensors([ten("meta")], large=BYTES)] == ["meta"]
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):  # the only possibility there
        copy_tensors([ten("meta")], large=BYTES - 1)


def test_a_copy_has_neither_graph_nor_memory_of_the_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = nn.Parameter(torch.randn(4, 3).t())
    (beside,) = copy_tensors([weight])
    monkeypatch.setattr(weights, "is_large", _always)
    (aside,) = copy_tensors([weight])
    for copy in (beside, aside):
        assert torch.equal(copy, weight)
        assert copy.stride() == weight.stride()
        assert not copy.requires_grad
        assert copy.data_ptr() != weight.data_ptr()


def test_weights_that_were_kept_on_the_host_come_back_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "is_large", _always)
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    expected = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    best = BestWeights({"net": net})
    best.record(1.0)
    read = BestWeights({"net": net})
    read.load(best.state(), best.tensors)
    for kept in (best, read):
        with torch.no_grad():
            for tensor in net.state_dict().values():
                tensor.fill_(7)
        kept.restore()
        assert all(torch.equal(tensor, expected[name]) for name, tensor in net.state_dict().items())


def test_weights_that_gave_way_to_their_average_come_back_from_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "is_large", _always)
    weight = nn.Parameter(torch.tensor([0.1, 0.2]))
    average = AveragedWeights([weight], 0.5)
    with torch.no_grad():
        weight.fill_(0.3)
    with average.applied():
        assert torch.equal(weight, torch.tensor([0.1, 0.2]))
    assert torch.equal(weight, torch.tensor([0.3, 0.3]))


def test_equal_weights_have_one_digest_and_any_other_bit_another() -> None:
    torch.manual_seed(0)
    one, same = nn.Linear(3, 2), nn.Linear(3, 2)
    same.load_state_dict(one.state_dict())
    assert hash_tensors(one) == hash_tensors(same)
    with torch.no_grad():
        same.weight[0, 0].mul_(1.0 + 1e-6)
    assert hash_tensors(one) != hash_tensors(same)


def test_buffers_and_half_precision_count_too() -> None:
    layer = nn.BatchNorm1d(3)
    before = hash_tensors(layer)
    assert layer.running_mean is not None
    layer.running_mean.add_(1.0)
    assert hash_tensors(layer) not in {before, hash_tensors(nn.BatchNorm1d(3).to(torch.bfloat16))}

"""Process groups: sums, agreement, and detection of failed ranks, with real groups."""

import os
import signal
import socket
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from rank_processes import meeting_store, on_ranks, results_on_ranks
from torch import Tensor, nn
from torch.nn import Parameter

from trainers.loop.errors import ContractError, EmptyTargetError, ParallelismError, PeerLostError
from trainers.loop.group.processes import (
    Group,
    Processes,
    check_one_vector,
    chunks,
    convert_peer_errors,
    join_group,
    local_rank,
    round_down_to_power_of_two,
)
from trainers.loop.group.totals import LocalTotals, StepRequests, StepTotals, Totals
from trainers.loop.loss import Loss, WeightedMean, read
from trainers.loop.step.guards import check_modules


@dataclass(frozen=True, slots=True)
class MicroBatchLoss:
    """Loss of a micro-batch: mean, count and terms."""

    mean: float
    count: int
    parts: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class RankTotals:
    """A rank's totals after a window."""

    mean: float
    count: int
    parts: dict[str, float]
    requests: StepRequests
    gradients: list[Tensor | None]


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)).to(dtype)


def samples(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randn(19, 5, generator=generator, dtype=torch.float64)
    return inputs.to(dtype), torch.randn(19, 2, generator=generator, dtype=torch.float64).to(dtype)


def run_micro_batches(
    net: nn.Module, micro_batches: Sequence[tuple[Tensor, Tensor]], *, expected: float
) -> LocalTotals:
    """Forward and backward of micro-batches, as in a window."""
    net.zero_grad(set_to_none=True)
    losses: list[Loss] = []
    for inputs, targets in micro_batches:
        mean = (net(inputs) - targets).square().mean()
        mean.backward(torch.tensor(targets.numel() / expected, dtype=mean.dtype))
        losses.append(Loss(mean, targets.numel()))
    return LocalTotals(losses=losses, assumed_count=expected, requests=StepRequests())


def local_totals(micro_batches: Sequence[MicroBatchLoss], requests: StepRequests | None = None) -> LocalTotals:
    """Totals without a network behind them."""
    losses = [
        Loss(
            torch.tensor(micro_batch.mean),
            micro_batch.count,
            {name: torch.tensor(part) for name, part in micro_batch.parts.items()},
        )
        for micro_batch in micro_batches
    ]
    expected = float(sum(micro_batch.count for micro_batch in micro_batches))
    return LocalTotals(losses=losses, assumed_count=expected, requests=requests or StepRequests())


def read_totals(totals: Totals) -> StepTotals:
    return totals.read(iter(read(totals.scalars())))


def combined(group: Group, local: LocalTotals, parameters: Sequence[Parameter]) -> RankTotals:
    result = read_totals(group.combine(local, parameters))
    gradients = [None if one.grad is None else one.grad * result.correction for one in parameters]
    return RankTotals(result.loss.mean(), result.loss.count, result.loss.parts(), result.requests, gradients)


def weight() -> Parameter:
    """A parameter with the gradient 1."""
    parameter = Parameter(torch.zeros(3))
    parameter.grad = torch.ones(3)
    return parameter


# --- adding a window up -----------------------------------------------------------------------------------------------


def share_unevenly(dtype: torch.dtype, windows: int) -> RankTotals:
    """Rank 0 works 8 + 5 samples, rank 1 the other 6, each with its own count."""
    net, (inputs, targets) = network(dtype), samples(dtype)
    with join_group("cpu") as group:
        bounds, expected = ([(0, 8), (8, 13)], 16.0) if group.rank == 0 else ([(13, 19)], 37.0)
        micro_batches = [(inputs[start:stop], targets[start:stop]) for start, stop in bounds]
        results = [
            combined(group, run_micro_batches(net, micro_batches, expected=expected), list(net.parameters()))
            for _ in range(windows)
        ]
    return results[-1]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 5e-7), (torch.float64, 1e-14)])
@pytest.mark.parametrize("windows", [1, 3])
def test_uneven_shares_give_the_gradient_of_one_process(dtype: torch.dtype, tolerance: float, windows: int) -> None:
    net, (inputs, targets) = network(dtype), samples(dtype)
    mean = (net(inputs) - targets).square().mean()
    mean.backward()
    for result in results_on_ranks(share_unevenly, dtype, windows):
        assert result.mean == pytest.approx(mean.item(), rel=tolerance)
        assert result.count == 38
        for gradient, parameter in zip(result.gradients, net.parameters(), strict=True):
            assert gradient is not None
            assert parameter.grad is not None
            assert (gradient - parameter.grad).abs().max() <= tolerance * parameter.grad.abs().max()


def test_all_ranks_hold_the_same_bits_after_a_window() -> None:
    first, second = results_on_ranks(share_unevenly, torch.float32, 1)
    for one, other in zip(first.gradients, second.gradients, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)


def combine_ranks(micro_batches: Sequence[Sequence[MicroBatchLoss]], requests: Sequence[StepRequests]) -> RankTotals:
    """Combine per-rank micro-batches and requests."""
    with join_group("cpu") as group:
        return combined(group, local_totals(micro_batches[group.rank], requests[group.rank]), [weight()])


def test_counts_beyond_what_float32_holds_are_exact() -> None:
    micro_batches = [[MicroBatchLoss(0.1, 2**24 + 1), MicroBatchLoss(0.7, 10**7 + 3)], [MicroBatchLoss(2.0, 2**30 + 5)]]
    count = 2**24 + 10**7 + 2**30 + 9
    mean = (0.1 * (2**24 + 1) + 0.7 * (10**7 + 3) + 2.0 * (2**30 + 5)) / count
    for result in results_on_ranks(combine_ranks, micro_batches, [StepRequests(), StepRequests()]):
        assert result.count == count
        assert result.mean == pytest.approx(mean, rel=2e-7)


def test_a_part_is_the_mean_over_the_micro_batches_that_have_it() -> None:
    micro_batches = [
        [MicroBatchLoss(1.0, 3, {"near": 4.0})],
        [MicroBatchLoss(2.0, 5), MicroBatchLoss(4.0, 2, {"far": 7.0, "near": 1.0})],
    ]
    for result in results_on_ranks(combine_ranks, micro_batches, [StepRequests(), StepRequests()]):
        assert result.mean == pytest.approx((3 * 1.0 + 5 * 2.0 + 2 * 4.0) / 10)
        assert result.parts == pytest.approx({"near": (3 * 4.0 + 2 * 1.0) / 5, "far": 7.0})


def test_what_one_rank_wishes_is_known_to_all() -> None:
    micro_batches = [[MicroBatchLoss(1.0, 1)], [MicroBatchLoss(1.0, 1)]]
    for result in results_on_ranks(combine_ranks, micro_batches, [StepRequests(save=True), StepRequests(stop=15)]):
        assert result.requests == StepRequests(stop=15, save=True)


def test_nobody_wishes_anything_unless_somebody_does() -> None:
    micro_batches = [[MicroBatchLoss(1.0, 1)], [MicroBatchLoss(1.0, 1)]]
    for result in results_on_ranks(combine_ranks, micro_batches, [StepRequests(), StepRequests()]):
        assert result.requests == StepRequests()


def test_a_nan_loss_on_one_rank_is_nan_on_all() -> None:
    micro_batches = [[MicroBatchLoss(1.0, 3)], [MicroBatchLoss(float("nan"), 4)]]
    for result in results_on_ranks(combine_ranks, micro_batches, [StepRequests(), StepRequests()]):
        assert result.mean != result.mean
        assert result.count == 7


def test_a_group_without_any_target_has_nothing_to_learn_from() -> None:
    for ended in on_ranks(combine_ranks, [[], []], [StepRequests(), StepRequests()]):
        assert ended.error.startswith(EmptyTargetError.__name__)


def leave_one_rank_empty() -> RankTotals:
    net, (inputs, targets) = network(), samples()
    with join_group("cpu") as group:
        micro_batches = [(inputs, targets)] if group.rank == 1 else []
        return combined(
            group, run_micro_batches(net, micro_batches, expected=40.0 * group.rank), list(net.parameters())
        )


def test_a_rank_without_a_batch_gets_the_gradient_of_the_others() -> None:
    net, (inputs, targets) = network(), samples()
    (net(inputs) - targets).square().mean().backward()
    for result in results_on_ranks(leave_one_rank_empty):
        assert result.count == 38
        for gradient, parameter in zip(result.gradients, net.parameters(), strict=True):
            assert gradient is not None
            torch.testing.assert_close(gradient, parameter.grad)


def miss_gradients() -> list[RankTotals]:
    """In the first window rank 0 lacks the last gradient and rank 1 all but the first; in the second both have none."""
    parameters = [Parameter(torch.zeros(2)) for _ in range(3)]
    with join_group("cpu") as group:
        for place, parameter in enumerate(parameters[: 2 - group.rank]):
            parameter.grad = torch.full((2,), 1.0 + place + group.rank)
        first = combined(group, local_totals([MicroBatchLoss(1.0, 1)]), parameters)
        for parameter in parameters:
            parameter.grad = None
        return [first, combined(group, local_totals([MicroBatchLoss(1.0, 1)]), parameters)]


def test_a_gradient_that_only_one_rank_has_reaches_all() -> None:
    for first, _ in results_on_ranks(miss_gradients):
        assert [None if one is None else one.tolist() for one in first.gradients] == [[1.5, 1.5], [1.0, 1.0], None]


def test_a_gradient_that_no_rank_has_stays_missing() -> None:
    for _, second in results_on_ranks(miss_gradients):
        assert second.gradients == [None, None, None]


def lose_a_gradient() -> RankTotals:
    """Two windows: in the second, rank 1 has no gradient."""
    parameter = weight()
    with join_group("cpu") as group:
        combined(group, local_totals([MicroBatchLoss(1.0, 1)]), [parameter])
        parameter.grad = None if group.rank else torch.ones(3)
        return combined(group, local_totals([MicroBatchLoss(1.0, 1)]), [parameter])


def test_a_gradient_of_an_earlier_window_is_not_added_again() -> None:
    for result in results_on_ranks(lose_a_gradient):
        (gradient,) = result.gradients
        assert gradient is not None
        assert gradient.tolist() == [0.5] * 3


def add_mixed_dtypes() -> list[Tensor | None]:
    parameters = [Parameter(torch.zeros(2, dtype=dtype)) for dtype in (torch.bfloat16, torch.float64)]
    with join_group("cpu") as group:
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 1.0 + 2.0**-7 * group.rank)
        group.combine(local_totals([MicroBatchLoss(1.0, 1)]), parameters)
    return [parameter.grad for parameter in parameters]


def test_gradients_keep_their_dtypes() -> None:
    for half, double in results_on_ranks(add_mixed_dtypes):
        assert half is not None
        assert double is not None
        assert (half.dtype, double.dtype) == (torch.bfloat16, torch.float64)
        assert double.tolist() == [2.0 + 2.0**-7] * 2


def read_on_device() -> tuple[float, float, list[float]]:
    with join_group("cpu") as group:
        totals = group.combine(local_totals([MicroBatchLoss(1.0 + group.rank, 300 + group.rank)]), [weight()])
        return read_totals(totals).correction, float(totals.correction), [mean.item() for mean in totals.means()]


def test_totals_are_known_on_the_device_before_they_are_read() -> None:
    for read_later, at_once, means in results_on_ranks(read_on_device):
        assert at_once == pytest.approx(read_later, rel=1e-6)
        assert means == [1.0, 2.0]


def invent_a_part() -> RankTotals:
    parameter = weight()
    with join_group("cpu") as group:
        combined(group, local_totals([MicroBatchLoss(1.0, 1, {"known": 1.0})]), [parameter])
        return combined(group, local_totals([MicroBatchLoss(1.0, 1, {"late": 1.0} if group.rank else {})]), [parameter])


def test_a_part_that_turns_up_later_is_refused_by_name() -> None:
    waiting, inventing = on_ranks(invent_a_part)
    assert inventing.error.startswith(ContractError.__name__)
    assert "'late'" in inventing.error
    assert waiting.error.startswith(PeerLostError.__name__)


def train_two_phases() -> tuple[RankTotals, RankTotals]:
    one, other = weight(), weight()
    with join_group("cpu") as group:
        return (
            combined(group, local_totals([MicroBatchLoss(1.0, 1, {"fake": 2.0})]), [one]),
            combined(group, local_totals([MicroBatchLoss(3.0, 1, {"feature": 4.0})]), [other]),
        )


def test_phases_have_parts_of_their_own() -> None:
    for first, second in results_on_ranks(train_two_phases):
        assert (first.parts, second.parts) == ({"fake": 2.0}, {"feature": 4.0})


def test_parameters_on_two_devices_are_refused() -> None:
    with pytest.raises(ParallelismError, match="cpu, meta"):
        check_one_vector([Parameter(torch.zeros(1)), Parameter(torch.zeros(1, device="meta"))])


def test_complex_parameters_are_refused() -> None:
    with pytest.raises(ParallelismError, match="complex"):
        check_one_vector([Parameter(torch.zeros(1, dtype=torch.complex64))])


def test_gradients_are_measured_in_powers_of_two() -> None:
    assert [round_down_to_power_of_two(value) for value in (0.0, 0.3, 1.0, 38.0)] == [1.0, 0.25, 1.0, 32.0]


# --- agreeing ---------------------------------------------------------------------------------------------------------


def agree_on_length(lengths: Sequence[int | None]) -> int | None:
    with join_group("cpu") as group:
        return group.agree_on_length(lengths[group.rank])


def test_an_agreed_length_is_returned() -> None:
    assert results_on_ranks(agree_on_length, [5, 5]) == [5, 5]


@pytest.mark.parametrize(
    ("lengths", "found"),
    [([5, 6], "rank 0: 5, rank 1: 6"), ([5, None], "rank 1: unknown"), ([None, None], "rank 0: unknown")],
)
def test_lengths_that_differ_or_are_unknown_are_refused(lengths: Sequence[int | None], found: str) -> None:
    for ended in on_ranks(agree_on_length, lengths):
        assert ended.error.startswith(ParallelismError.__name__)
        assert found in ended.error


def compare(values: Sequence[str]) -> None:
    with join_group("cpu") as group:
        group.check_same("the settings", values[group.rank])


def test_the_same_value_everywhere_passes() -> None:
    results_on_ranks(compare, ["lr=0.1", "lr=0.1"])


def test_values_that_differ_are_refused_with_the_place_where_they_do() -> None:
    for ended in on_ranks(compare, ["x" * 500 + "lr=0.1", "x" * 500 + "lr=0.2"]):
        assert ended.error.startswith(ParallelismError.__name__)
        assert "the settings" in ended.error
        assert "lr=0.1' where rank 1 has '…" in ended.error


def exchange() -> tuple[list[object], float, int, dict[str, float]]:
    tally = WeightedMean()
    with join_group("cpu") as group:
        if group.rank == 1:
            tally.add(2.0, 3, {"near": 5.0})
            tally.add(1.0, 1, {})
        total = group.merge_means(tally)
        return group.gather({"rank": group.rank}), total.mean(), total.count, total.parts()


def test_values_are_gathered_in_the_order_of_ranks() -> None:
    for gathered, *_ in results_on_ranks(exchange):
        assert gathered == [{"rank": 0}, {"rank": 1}]


def test_a_rank_that_validated_nothing_does_not_weigh() -> None:
    for _, mean, count, parts in results_on_ranks(exchange):
        assert (mean, count, parts) == (7.0 / 4, 4, {"near": 5.0})


def spread_from_zero() -> list[Tensor]:
    with join_group("cpu") as group:
        tensors = [
            Parameter(torch.full((2, 3), 1.5 + group.rank)),
            torch.full((3, 2), 7.0 + group.rank).t(),
            torch.tensor(2**40 + group.rank),
            torch.tensor([group.rank == 0, False]),
            torch.zeros(0),
            torch.full((4,), 0.25 + group.rank, dtype=torch.bfloat16),
        ]
        group.broadcast(iter(tensors))
    return [tensor.detach() for tensor in tensors]


def test_everybody_gets_the_tensors_of_rank_zero() -> None:
    first, second = results_on_ranks(spread_from_zero)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)
    assert second[0].tolist() == [[1.5] * 3] * 2
    assert second[2].item() == 2**40


def test_tensors_travel_by_dtype_in_chunks_of_bounded_size() -> None:
    tensors = [torch.zeros(4), torch.zeros(2, dtype=torch.int64), torch.zeros(4), torch.zeros(100), torch.zeros(1)]
    sizes = [[tensor.numel() for tensor in chunk] for chunk in chunks(tensors, 32)]
    assert sizes == [[4, 4], [100], [1], [2]]


# --- losing a rank ----------------------------------------------------------------------------------------------------


@contextmanager
def telling_the_end() -> Generator[None]:
    """Signal the other rank when this one has ended."""
    store = meeting_store()
    try:
        yield
    finally:
        store.set("ended", "yes")


def arrive_together() -> None:
    """Wait until both ranks have reached this point."""
    store, rank = meeting_store(), local_rank()
    store.set(f"arrived {rank}", "yes")
    store.wait([f"arrived {1 - rank}"])


def lose_a_rank_to_an_error() -> None:
    """Rank 1 leaves the group with an error, but its process lives on until rank 0 has ended."""
    if os.environ["RANK"] == "0":
        with telling_the_end(), join_group("cpu") as group:
            combined(group, local_totals([MicroBatchLoss(1.0, 1)]), [weight()])
    else:
        with pytest.raises(ValueError, match="bad batch"), join_group("cpu"):
            raise ValueError("bad batch")
        meeting_store().wait(["ended"])


def test_a_rank_that_raises_ends_the_others_at_once() -> None:
    lost, raised = on_ranks(lose_a_rank_to_an_error)
    assert lost.error.startswith(PeerLostError.__name__)
    assert "agreeing on the loss's parts" in lost.error
    assert "resumes from the last checkpoint" in lost.error
    assert raised.exit_code == 0


def lose_a_rank_to_a_kill() -> None:
    parameter = weight()
    with join_group("cpu") as group:
        combined(group, local_totals([MicroBatchLoss(1.0, 1)]), [parameter])
        if group.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        combined(group, local_totals([MicroBatchLoss(1.0, 1)]), [parameter])


def test_a_rank_that_is_killed_ends_the_others() -> None:
    lost, killed = on_ranks(lose_a_rank_to_a_kill)
    assert killed.exit_code == -signal.SIGKILL
    assert lost.error.startswith(PeerLostError.__name__)
    assert "summing the window's gradients" in lost.error


def lose_a_rank_that_hangs() -> None:
    parameter = weight()
    arrive_together()  # only the hang must end within the timeout, not the start of a process
    with join_group("cpu", timeout=timedelta(seconds=10)) as group:
        combined(group, local_totals([MicroBatchLoss(1.0, 1)]), [parameter])
        if group.rank == 1:
            meeting_store().wait(["ended"])
        else:
            with telling_the_end():
                combined(group, local_totals([MicroBatchLoss(1.0, 1)]), [parameter])


@pytest.mark.slow
def test_a_rank_that_hangs_ends_the_others_after_the_timeout() -> None:
    lost, hung = on_ranks(lose_a_rank_that_hangs)
    assert lost.error.startswith(PeerLostError.__name__)
    assert hung.exit_code == 0


def test_memory_that_runs_out_here_is_not_blamed_on_others() -> None:
    with pytest.raises(torch.OutOfMemoryError), convert_peer_errors("summing"):
        raise torch.OutOfMemoryError("CUDA out of memory")


# --- joining ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, "1"])
def test_a_process_that_torchrun_did_not_start_is_alone(size: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if size is not None:
        monkeypatch.setenv("WORLD_SIZE", size)
    with join_group("mps") as group:
        assert type(group) is Group
        assert (group.rank, group.size) == (0, 1)


def test_alone_everything_stays_as_it_is() -> None:
    group, local, parameter, tally = Group(), local_totals([MicroBatchLoss(2.0, 3)]), weight(), WeightedMean()
    assert group.combine(local, [parameter]) is local
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [1.0] * 3
    assert group.merge_means(tally) is tally
    assert (group.agree_on_length(None), group.agree_on_length(4)) == (None, 4)
    assert group.gather("x") == ["x"]


def test_the_local_rank_chooses_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert local_rank() == 3
    monkeypatch.delenv("LOCAL_RANK")
    assert local_rank() == 0


def test_apple_gpus_cannot_form_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ParallelismError, match="'mps'"), join_group("mps"):
        pass


@pytest.mark.skipif(dist.is_backend_available("xccl"), reason="this torch can speak to Intel GPUs")
def test_a_backend_that_torch_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ParallelismError, match="xccl"), join_group("xpu"):
        pass


def test_an_address_that_another_program_uses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        variables = {
            "WORLD_SIZE": "2",
            "RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(server.getsockname()[1]),
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ParallelismError, match="another program used the group's address"), join_group("cpu"):
            pass


def use_the_users_group() -> tuple[list[int], bool]:
    dist.init_process_group("gloo")
    with join_group("cpu") as group:
        assert isinstance(group, Processes)
        gathered = group.gather(group.rank)
    still_there = dist.is_initialized()
    dist.destroy_process_group()
    return gathered, still_there


def test_a_group_that_the_user_made_is_used_and_kept() -> None:
    assert results_on_ranks(use_the_users_group) == [([0, 1], True)] * 2


def join_three_times() -> list[list[object]]:
    gathered: list[list[object]] = []
    for visit in range(3):
        with join_group("cpu") as group:
            gathered.append(group.gather((visit, group.rank)))
    return gathered


def test_processes_can_join_again_after_leaving() -> None:
    expected = [[(visit, 0), (visit, 1)] for visit in range(3)]
    assert results_on_ranks(join_three_times) == [expected] * 2


def miss_a_rank_that_was_there() -> None:
    """Rank 0 joins again, rank 1 does not."""
    with join_group("cpu") as group:
        rank = group.rank
    if rank == 1:
        meeting_store().wait(["ended"])
    else:
        with telling_the_end(), join_group("cpu", timeout=timedelta(seconds=5)):
            pass


@pytest.mark.slow
def test_a_rank_that_has_not_come_again_is_waited_for_under_a_new_name() -> None:
    missing_it, _ = on_ranks(miss_a_rank_that_was_there)
    assert missing_it.error.startswith(PeerLostError.__name__)
    assert "joining the group" in missing_it.error
    assert "visit 2" in missing_it.error


# --- modules that a group cannot train --------------------------------------------------------------------------------


def refusal(module: nn.Module, *, size: int, can_repeat: bool = True) -> str:
    """Error message of the check; empty if it passes."""
    try:
        check_modules({"net": module}, size=size, can_repeat=can_repeat)
    except ParallelismError as error:
        return str(error)
    return ""


def test_plain_modules_pass() -> None:
    assert not refusal(network(), size=2)


def test_a_layer_that_a_group_cannot_train_is_refused_by_name() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.SyncBatchNorm(3))
    assert "net.1 " in refusal(net, size=2)
    assert not refusal(net, size=1)


def test_sparse_gradients_are_refused_by_name() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Embedding(3, 2, sparse=True))
    assert "net.1 has sparse gradients" in refusal(net, size=2)
    assert not refusal(net, size=1)


def test_statistics_and_gradients_of_this_process_alone_pass() -> None:
    assert not refusal(nn.Sequential(nn.BatchNorm1d(3), nn.Embedding(3, 2)), size=2)


def wrap_in_ddp() -> tuple[str, str]:
    with join_group("cpu"):
        wrapped = nn.parallel.DistributedDataParallel(network())
        return refusal(wrapped, size=2), refusal(wrapped.module, size=2)


def test_a_ddp_wrapper_is_refused_and_what_it_wraps_is_not() -> None:
    for wrapped, module in results_on_ranks(wrap_in_ddp):
        assert "DistributedDataParallel" in wrapped
        assert not module


def shard() -> list[tuple[str, str, str]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import distribute_module

    with join_group("cpu"):
        mesh = init_device_mesh("cpu", (2,))
        fully = network()
        fully_shard(fully, mesh=mesh)
        sharded = [fully, distribute_module(network(), mesh)]
        return [
            (refusal(net, size=2, can_repeat=False), refusal(net, size=1), refusal(net, size=1, can_repeat=False))
            for net in sharded
        ]


def test_sharded_modules_are_refused_where_a_micro_batch_may_be_repeated() -> None:
    for found in results_on_ranks(shard):
        for in_a_group, with_can_repeat, alone in found:
            assert "is sharded" in in_a_group
            assert "is sharded" in with_can_repeat
            assert not alone

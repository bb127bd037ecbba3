"""Trains one window in a process with limited address space, so that torch's allocator fails.

For each given headroom, in MiB above the memory in use, it prints as JSON how often memory ran out in forward and
backward, the size of the micro-batches, and the distance of the gradient from that without a limit.
"""

import gc
import json
import resource
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from trainers.loop import IterableSource, Loop, Loss, Phase, StepReport
from trainers.loop.device.memory import KIBIBYTE, STATM

SAMPLES = 2048
WIDTH = 1024


@contextmanager
def limited(headroom_mib: int) -> Generator[None]:
    """Limit the address space to little more than the process has."""
    gc.collect()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(STATM.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + headroom_mib * KIBIBYTE**2, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def gradient(net: nn.Module, x: Tensor, headroom_mib: int | None) -> tuple[list[Tensor], StepReport, int]:
    """The gradient of one window, and how often its forward failed."""
    begun, done = 0, 0

    def loss(batch: Tensor) -> Loss:
        nonlocal begun, done
        begun += 1
        mean = (net(batch) - 1.0).square().mean()
        done += 1
        return Loss(mean, len(batch))

    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.0), clip=None)
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        reports = run.epochs(IterableSource([x]), max_epochs=1)
        if headroom_mib is None:
            report = next(reports)
        else:
            with limited(headroom_mib):
                report = next(reports)
        assert isinstance(report, StepReport)
        found = [parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None]
    return found, report, begun - done


def main(headrooms_mib: Sequence[int]) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
    x = torch.randn(SAMPLES, 32)
    expected, _, _ = gradient(net, x, None)
    for headroom in headrooms_mib:
        found, report, failed_forwards = gradient(net, x, headroom)
        error = max(float((one - other).norm() / other.norm()) for one, other in zip(found, expected, strict=True))
        backward = report.shortages - failed_forwards
        facts = {"forward": failed_forwards, "backward": backward, "limit": report.micro_batch_limit, "error": error}
        print(json.dumps(facts))  # noqa: T201  read by the test


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]])

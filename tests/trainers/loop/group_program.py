"""A torchrun program that joins the group twice and writes its sums into the given folder."""

import sys
from pathlib import Path

import torch
from torch.nn import Parameter

from trainers.loop.group.group import Group, LocalTotals, WindowRequests
from trainers.loop.group.processes import join_group, local_rank
from trainers.loop.loss import Loss, read


def main(folder: Path) -> None:
    with join_group("cpu") as group:
        first = added_up(group)
    with join_group("cpu") as group:
        second = added_up(group)
    text = f"rank {group.rank} of {group.size} on device {local_rank()}: {first}, again {second}"
    (folder / str(group.rank)).write_text(text)


def added_up(group: Group) -> str:
    """Count and gradient sum of a window in which rank r has 1 + r targets, each with gradient 1 + r."""
    count = 1 + group.rank
    parameter = Parameter(torch.zeros(()))
    parameter.grad = torch.tensor(float(count))
    local = LocalTotals(losses=[Loss(torch.tensor(1.0), count)], expected=float(count), requests=WindowRequests())
    totals = group.combine(local, [parameter])
    result = totals.read(iter(read(totals.scalars())))
    return f"count {result.loss.count}, gradient {parameter.grad.item() * result.correction * result.loss.count}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))

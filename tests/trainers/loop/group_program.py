"""A program for torchrun: joins the group twice and writes down what it added up, into the folder that it is given."""

import sys
from pathlib import Path

import torch
from torch.nn import Parameter

from trainers.loop.group.joining import joined, local_rank
from trainers.loop.loss import Loss, read
from trainers.loop.window.totals import LocalTotals, Wishes


def main(folder: Path) -> None:
    for _ in range(2):
        with joined("cpu") as group:
            count = 1 + group.rank
            parameter = Parameter(torch.zeros(()))
            parameter.grad = torch.tensor(float(count))
            local = LocalTotals(losses=[Loss(torch.tensor(1.0), count)], expected=float(count), wishes=Wishes())
            totals = group.combine(local, [parameter])
            reading = totals.reading(iter(read(totals.scalars())))
    gradient = parameter.grad.item() * reading.loss.count * reading.correction
    place = f"rank {group.rank} of {group.size} on device {local_rank()}"
    (folder / str(group.rank)).write_text(f"{place}: count {reading.loss.count}, gradient {gradient}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

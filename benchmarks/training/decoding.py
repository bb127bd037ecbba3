"""How many samples of a `DataLoader` each of two processes that train together decodes.

Run as a program it is one of those processes; the first one prints what each has decoded in an epoch.
"""

import json
import os
import subprocess
import sys
from typing import final

import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.utils.data import DataLoader, Dataset

from benchmarks.report import Row, at_most
from benchmarks.training.asking import ROOT
from trainers.loop import IterableSource, Loop, Loss, Phase

RANKS, SAMPLES, SIZE = 2, 640, 8
NAME, REACH = "DataLoader in a group of 2: decoded by a rank / samples", 0.5


@final
class Counting(Dataset[Tensor]):
    """Samples that are counted when they are read.

    Attributes:
        decoded: How many were.
    """

    def __init__(self) -> None:
        self.decoded = 0

    def __len__(self) -> int:
        """All of them."""
        return SAMPLES

    def __getitem__(self, index: int) -> Tensor:
        """One of them."""
        self.decoded += 1
        return torch.full((4,), index / SAMPLES)


def rows(*, quick: bool) -> list[Row]:  # noqa: ARG001  it is counted, not timed
    """The greatest share that a rank has decoded."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "python")]),
    }
    ran = subprocess.run(
        [*launcher, "-m", __spec__.name], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    decoded: list[int] = json.loads(ran.stdout.splitlines()[-1])
    detail = f"{decoded} of {SAMPLES} samples, shuffled, in batches of {SIZE}; counted"
    return [at_most(NAME, max(decoded) / SAMPLES, REACH, detail=detail)]


def main() -> int:
    """Train an epoch, and let the first process say what each has decoded."""
    torch.set_num_threads(1)
    network, dataset = nn.Linear(4, 1), Counting()
    optimizer = SGD(network.parameters(), lr=1e-3)
    phase = Phase[Tensor]("main", lambda x: Loss(network(x).square().mean(), len(x)), network.parameters(), optimizer)
    source = IterableSource(DataLoader(dataset, batch_size=SIZE, shuffle=True))
    with Loop([phase], modules={"network": network}, device="cpu").running() as run:
        for _ in run.epochs(source, max_epochs=1):
            pass
        decoded = run.group.gather(dataset.decoded)
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(decoded), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

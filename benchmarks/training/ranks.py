"""Two processes that train together against one, with the same global batch.

As a program, this module is one of those processes and prints the time of a window.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import SGD

from benchmarks.environments import ROOT
from benchmarks.report import Row, at_least, shown, unmeasured
from trainers.loop import IterableSource, Loop, Loss, Phase, StepReport

RANKS = 2
SAMPLES, INPUTS, WIDTH = 512, 256, 1024
WARM, WINDOWS = 3, 12
NAME, REACH = "two ranks / one process, windows/s", 1.6
BUSY = 1.15


def rows(*, quick: bool) -> list[Row]:
    """Rows for the speed-up, judged only if two independent processes do not slow each other down."""
    if (os.cpu_count() or 1) < RANKS:
        return [unmeasured(NAME, "needs 2 cores", reach=f">= {REACH:g}")]
    rounds = [(_single(), _together(), _independent()) for _ in range(1 if quick else 5)]
    speed_up = statistics.median(single / together for single, together, _ in rounds)
    slowdown = statistics.median(independent / single for single, _, independent in rounds)
    free = slowdown <= BUSY
    load = f"each of two independent processes takes {slowdown:.2f} times as long" + ("" if free else ": not judged")
    window = statistics.median(single for single, _, _ in rounds)
    return [
        at_least(
            NAME, speed_up, REACH, detail=f"gloo, 2 x {SAMPLES} samples per window; {load}", judged=free and not quick
        ),
        shown("two independent processes at once / one process", slowdown, detail="1 on a machine with free cores"),
        shown("one process, ms per window", 1e3 * window, detail=f"{INPUTS} inputs, two layers of {WIDTH}"),
    ]


def _single() -> float:
    return _seconds([_start([sys.executable, "-m", __spec__.name, str(RANKS)])])


def _independent() -> float:
    return _seconds([_start([sys.executable, "-m", __spec__.name, str(RANKS)]) for _ in range(RANKS)])


def _together() -> float:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    return _seconds([_start([*launcher, "-m", __spec__.name, "1"])])


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "python")]),
    }
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def _seconds(processes: Sequence[subprocess.Popen[str]]) -> float:
    """Mean of the times that the processes print as their last lines."""
    said = [process.communicate()[0] for process in processes]
    return statistics.mean(float(json.loads(text.splitlines()[-1])) for text in said)


def _train(accumulate: int) -> float:
    """Median seconds of a window, including its wait for the other processes."""
    torch.manual_seed(0)
    body = [nn.Linear(INPUTS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)]
    network = nn.Sequential(*body)
    phase = Phase[Tensor](
        name="main",
        loss=lambda x: Loss(network(x).square().mean(), len(x)),
        parameters=network.parameters(),
        optimizer=SGD(network.parameters(), lr=1e-3),
    )
    batches = [torch.randn(SAMPLES, INPUTS)] * (RANKS * (WARM + WINDOWS))
    with Loop([phase], modules={"network": network}, device="cpu", accumulate=accumulate).running() as run:
        reports = run.epochs(IterableSource(batches), max_epochs=1)
        moments = [time.perf_counter() for report in reports if isinstance(report, StepReport)]
    return statistics.median(after - before for before, after in itertools.pairwise(moments[WARM:]))


def main() -> int:
    """Train; the first process prints the time of a window."""
    torch.set_num_threads(1)
    seconds = _train(int(sys.argv[1]))
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

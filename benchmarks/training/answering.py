"""Times training loops in the environment of one library, for `benchmarks.training.peers`.

python -m benchmarks.training.answering LIBRARY
"""

import json
import os
import sys
from importlib import import_module

import torch

from benchmarks.training import hand, ours
from benchmarks.training.job import Timing, default_optimizer, seconds_per_step


def main() -> int:
    """Answer requests until the input ends; output of libraries goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    torch.set_num_threads(1)
    peer = import_module(f"benchmarks.peers.with_{sys.argv[1]}")
    loops = {"by hand": hand.train, "ours": ours.train, sys.argv[1]: peer.train}
    for line in sys.stdin:
        question = json.loads(line)
        timing = Timing(warm=question["warm"], steps=question["steps"])
        seconds = {
            name: seconds_per_step(train, question["kind"], default_optimizer, timing) for name, train in loops.items()
        }
        print(json.dumps(seconds), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

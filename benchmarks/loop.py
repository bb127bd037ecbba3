"""Cost of the training loop against loops by hand and other libraries, on one thread.

Every round measures all subjects in turn; ratios are medians over rounds. `--peers` includes the other libraries, each
in a virtual environment that is created once in `.venv-peers` (a few GB).
"""

import sys

import torch

from benchmarks.environments import TRAINERS
from benchmarks.report import common_options, publish
from benchmarks.training import amp, peers, ranks, sharing, steps, windows


def main() -> int:
    parser = common_options(__doc__ or "")
    parser.add_argument("--peers", action="store_true", help="also measure other libraries, in their environments")
    parser.add_argument("--cuda", action="store_true", help="only the rows that need a CUDA device")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.cuda:
        return publish(amp.rows(quick=arguments.quick), arguments.json)
    timed = [
        *steps.rows(quick=arguments.quick),
        *peers.rows(list(TRAINERS) if arguments.peers else [], quick=arguments.quick),
    ]
    parts = (sharing, windows, ranks, amp)
    return publish([*timed, *(row for part in parts for row in part.rows(quick=arguments.quick))], arguments.json)


if __name__ == "__main__":
    sys.exit(main())

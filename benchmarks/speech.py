"""Speech quality after training, the effect of corrections, and the cost of a training step.

espeak-ng makes the recordings (`apt install espeak-ng`); a quick run uses those of the tests. The user's commands train
and score the voices, with one seed unless a row names several. Voices stay in `--work FOLDER`, so an interrupted run
continues. A full run takes about two hours on one core.
"""

import sys
from pathlib import Path

import torch

from benchmarks.report import common_options, publish
from benchmarks.speaking import corrections, learning, search, steps
from benchmarks.speaking.voices import workplace


def main() -> int:
    parser = common_options(__doc__ or "")
    parser.add_argument("--work", type=Path, default=Path("speech.run"), help="corpora and voices; default: speech.run")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    work = workplace(arguments.work, quick=arguments.quick)
    rows = [
        *search.rows(quick=arguments.quick),
        *steps.rows(work, quick=arguments.quick),
        *learning.rows(work, quick=arguments.quick),
        *corrections.rows(work, work.folder / "long", quick=arguments.quick),
    ]
    return publish(rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

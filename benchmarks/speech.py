"""How well a voice learns to speak, what corrections do to it, and what a step costs.

Recordings are made by espeak-ng (`apt install espeak-ng`); a quick run takes those of the tests. Voices are trained and
judged by the commands that a user has, one seed each where no seeds are named. They stay in `--work FOLDER`, so that a
run that was stopped goes on; all of it takes some two hours on one core.
"""

import sys
from pathlib import Path

import torch

from benchmarks.report import common_options, publish
from benchmarks.speaking import learning, search, steps
from benchmarks.speaking.voices import workplace


def main() -> int:
    parser = common_options(__doc__ or "")
    parser.add_argument("--work", type=Path, default=Path("speech.run"), help="corpora and voices; default: speech.run")
    given = parser.parse_args()
    torch.set_num_threads(1)
    work = workplace(given.work, quick=given.quick)
    rows = [
        *search.rows(quick=given.quick),
        *steps.rows(work, quick=given.quick),
        *learning.rows(work, quick=given.quick),
    ]
    return publish(rows, given.json)


if __name__ == "__main__":
    sys.exit(main())

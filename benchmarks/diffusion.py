"""Image quality after training, the effect of tuning by a reward, and the cost of a training step.

Images are scikit-learn's digits with prompts; `examples/make_digits.py` makes them, a VAE and a text encoder. The
user's commands train and tune the models, with three seeds unless a row names one. Models stay in `--work FOLDER`, so
an interrupted run continues. A full run takes half an hour on one core.
"""

import sys
from pathlib import Path

import torch

from benchmarks.drawing import learning, precision, steps, tuning
from benchmarks.drawing.digits import quieten, workplace
from benchmarks.drawing.judging import ImageJudge
from benchmarks.report import common_options, publish


def main() -> int:
    parser = common_options(__doc__ or "")
    parser.add_argument(
        "--work", type=Path, default=Path("diffusion.run"), help="digits and models; default: %(default)s"
    )
    parser.add_argument("--cuda", action="store_true", help="only the rows that need a CUDA device")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    quieten()
    work = workplace(arguments.work, quick=arguments.quick)
    if arguments.cuda:
        return publish(precision.rows(work, quick=arguments.quick), arguments.json)
    judging = ImageJudge(work)
    rows = [
        *learning.rows(work, judging, quick=arguments.quick),
        *tuning.rows(work, judging, quick=arguments.quick),
        *steps.rows(work, quick=arguments.quick),
        *precision.rows(work, quick=arguments.quick),
    ]
    return publish(rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

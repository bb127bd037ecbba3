"""Times one library in its environment, with one line of JSON per request and response.

python -m benchmarks.forecasts.speed_answering ours|neuralforecast
"""

import json
import os
import sys
import warnings
from functools import cache
from importlib import import_module

import torch

from benchmarks.forecasts.speed_work import Subject, seconds

SUBJECTS = {
    "ours": "benchmarks.forecasts.speed_ours",
    "neuralforecast": "benchmarks.peers.speed_with_neuralforecast",
}


def main() -> int:
    """Answer requests until the input ends; output of libraries goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    torch.set_num_threads(1)
    subject: Subject = import_module(SUBJECTS[sys.argv[1]]).SUBJECT
    call = cache(subject.call)
    for line in sys.stdin:
        question = json.loads(line)
        took = seconds(call(question["kind"], question["work"]), warm=question["warm"], calls=question["calls"])
        print(json.dumps(took._asdict()), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())

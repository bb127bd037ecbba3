"""Answers the questions of `benchmarks.training.asking` in an environment of its own: one JSON line each way.

python -m benchmarks.training.answering SUBJECT
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.training.job import Timing, default_optimizer, fastest_optimizer, seconds_per_step
from benchmarks.training.probes import PROBES, saved
from benchmarks.training.subject import subject


def seconds(names: list[str], question: dict[str, Any]) -> dict[str, float]:
    """Processor time of one step of each subject, one after another."""
    timing = Timing(warm=question["warm"], steps=question["steps"])
    return {name: seconds_per_step(subject(name).train, question["kind"], default_optimizer, timing) for name in names}


def loop_seconds(name: str, question: dict[str, Any]) -> float:
    """Processor time of one batch of a subject alone, with the fastest optimizer, beside which a loop shows most."""
    timing = Timing(warm=question["warm"], steps=question["steps"], accumulate=question["accumulate"])
    return seconds_per_step(subject(name).train, question["kind"], fastest_optimizer, timing)


def answer(name: str, question: dict[str, Any]) -> object:
    """What the question asks for: `seconds` a step of several or of the `loop` alone, `saved` weights, or a probe."""
    match question["what"]:
        case "seconds":
            return seconds(["by hand", "ours", name], question)
        case "loop":
            return loop_seconds(name, question)
        case "saved":
            return saved(subject(name), Path(question["folder"]), die_after=question["die_after"])
        case probe:
            return PROBES[probe](subject(name))


def main() -> int:
    """Answer until there are no more questions; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(answer(sys.argv[1], json.loads(line))), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

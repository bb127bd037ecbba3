"""The examples run as they stand, and do what they say."""

import re
import subprocess
import sys

from shown_commands import ENVIRONMENT, ROOT


def shown_by(example: str) -> str:
    program = [sys.executable, str(ROOT / "examples" / example)]
    return subprocess.run(program, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout


def test_the_example_of_a_module_of_ones_own_learns_its_sine() -> None:
    shown = shown_by("train_your_own_module.py")
    best = re.search(r"best ([\d.]+)", shown)
    assert best is not None
    assert 0.009 < float(best[1]) < 0.012


def test_the_example_of_fine_tuning_says_what_it_reuses_and_gains_by_it() -> None:
    shown = shown_by("fine_tune.py")
    assert (
        "reused 4 weights: body.0.weight, body.0.bias, body.2.weight, body.2.bias; new: head.weight, head.bias; "
        "dropped: head." in shown
    )
    head_alone, all_of_it = (float(re.findall(rf"{part}: ([\d.]+)", shown)[0]) for part in ("alone", "of it"))
    assert all_of_it < head_alone < 0.1


def test_the_example_of_two_adversaries_learns_to_draw() -> None:
    shown = shown_by("train_a_gan.py")
    found = re.search(r"distance ([\d.]+); of zeros ([\d.]+)", shown)
    assert found is not None
    assert float(found[1]) < 0.25
    assert float(found[2]) > 1.4

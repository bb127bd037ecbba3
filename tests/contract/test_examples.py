"""The examples run as they stand, and do what they say."""

import re
import subprocess
import sys

from printed import ENVIRONMENT, ROOT


def test_the_example_of_a_module_of_ones_own_learns_its_sine() -> None:
    program = [sys.executable, str(ROOT / "examples" / "train_your_own_module.py")]
    shown = subprocess.run(program, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout
    best = re.search(r"best ([\d.]+)", shown)
    assert best is not None
    assert 0.009 < float(best[1]) < 0.012


def test_the_example_of_two_adversaries_learns_to_draw() -> None:
    program = [sys.executable, str(ROOT / "examples" / "train_a_gan.py")]
    shown = subprocess.run(program, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout
    found = re.search(r"distance ([\d.]+); of zeros ([\d.]+)", shown)
    assert found is not None
    assert float(found[1]) < 0.25
    assert float(found[2]) > 1.4

"""The examples run unchanged and print what they promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from market import bokeh_panel
from shown_commands import ENVIRONMENT, ROOT


def shown_by(example: str, *arguments: Path) -> str:
    program = [sys.executable, str(ROOT / "examples" / example), *map(str, arguments)]
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
    head_alone, all_of_it = (
        float(re.findall(rf"{part}: ([\d.]+)", shown)[0]) for part in ("head only", "whole network")
    )
    assert all_of_it < head_alone < 0.1


def test_the_example_of_two_adversaries_learns_to_draw() -> None:
    shown = shown_by("train_a_gan.py")
    found = re.search(r"distance ([\d.]+); of zeros ([\d.]+)", shown)
    assert found is not None
    assert float(found[1]) < 0.25
    assert float(found[2]) > 1.4


@pytest.mark.slow
def test_the_example_of_a_stock_model_forecasts_and_tells_how_far_it_can_be_trusted(tmp_path: Path) -> None:
    bokeh_panel("AAPL", "GOOG").last(500).write_csv(tmp_path / "bars.csv")
    first, second, evaluation, trainer = shown_by("train_and_forecast.py", tmp_path / "bars.csv").splitlines()
    assert "AAPL" in first
    assert "AAPL" in second
    assert evaluation.startswith("Evaluation(2012-")
    assert trainer == "StockTrainer(model='gru', horizons=[1, 5], epochs=5, fitted)"

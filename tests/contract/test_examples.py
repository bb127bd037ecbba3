"""The examples run unchanged and print what they promise."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from market import bokeh_panel
from shown_commands import ENVIRONMENT, ROOT


def shown_by(example: str, *arguments: Path) -> str:
    program = [sys.executable, str(ROOT / "examples" / example), *map(str, arguments)]
    return subprocess.run(program, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_the_example_of_a_module_of_ones_own_learns_its_sine() -> None:
    shown = shown_by("train_your_own_module.py")
    best = re.search(r"best ([\d.]+)", shown)
    assert best is not None
    assert 0.009 < float(best[1]) < 0.012


@pytest.mark.slow
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


@pytest.mark.slow
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


CANNED_TRAINING = """
import runpy, sys
from types import SimpleNamespace
from quantra import StockTrainer
from trainers.loop import EpochReport, PhaseTotals

def fit(trainer, bars):
    for epoch, loss in enumerate((0.5, 0.25)):
        totals = PhaseTotals(loss=loss, parts={}, count=1, step=1, skipped=0, shortages=0)
        trainer.on_report(EpochReport(epoch=epoch, epochs=2, windows=1, phases={"fit": totals}, validation=None,
                                      seconds=1.0, data_seconds=0.0, peak_bytes=None))
    return SimpleNamespace(close=lambda: None)

StockTrainer.fit = fit
runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""Runs an example whose training reports two epochs at once; a real fit reports to the same function."""


def run_tracked(example: str, folder: Path, **environment: str) -> None:
    program = [sys.executable, "-c", CANNED_TRAINING, str(ROOT / "examples" / example), "bars.csv"]
    subprocess.run(program, cwd=folder, env={**ENVIRONMENT, **environment}, capture_output=True, check=True)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mlflow") is None, reason="needs mlflow-skinny, of the extra tracking")
def test_the_example_of_mlflow_logs_the_losses_of_every_epoch(tmp_path: Path) -> None:
    run_tracked(
        "track_with_mlflow.py",
        tmp_path,
        MLFLOW_TRACKING_URI=(tmp_path / "runs").as_uri(),
        MLFLOW_ALLOW_FILE_STORE="true",
        MLFLOW_DISABLE_TELEMETRY="true",
    )
    (losses,) = (tmp_path / "runs").rglob("metrics/loss")
    assert [line.split()[1:] for line in losses.read_text().splitlines()] == [["0.5", "1"], ["0.25", "2"]]
    (epochs,) = (tmp_path / "runs").rglob("params/epochs")
    assert epochs.read_text() == "3"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("wandb") is None, reason="needs wandb, of the extra tracking")
def test_the_example_of_weights_and_biases_logs_the_losses_of_every_epoch(tmp_path: Path) -> None:
    run_tracked("track_with_wandb.py", tmp_path, WANDB_MODE="offline", WANDB_DIR=str(tmp_path))
    (log,) = tmp_path.rglob("run-*.wandb")
    losses = re.findall(rb"loss\x82\x01.(0\.\d+)", log.read_bytes(), re.DOTALL)  # a key and its value in protobuf
    assert [*dict.fromkeys(losses)] == [b"0.5", b"0.25"]

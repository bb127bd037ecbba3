"""Training on digits, compared with a recipe whose noising does not match its sampler."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.drawing import control
from benchmarks.drawing.digits import workplace
from benchmarks.drawing.judging import ImageJudge

pytestmark = pytest.mark.minutes


def test_1500_steps_teach_digits_and_the_same_steps_for_another_sampler_draw_fewer(tmp_path: Path) -> None:
    """Measured: 1.00 recognised at a distance of 4.8; control .76 at 17.0; real images .98 at 1.6."""
    work = workplace(tmp_path, quick=False)
    judging = ImageJudge(work)
    ours = judging.judged(work.trained("ours", 0))
    assert ours.accuracy >= 0.98
    assert ours.distance <= 6.5
    model = control.trained(work, "control", steps=1500, seed=0)
    model.objective = control.samplers()["drawn by FlowMatchEuler"]
    compared = judging.figures(model)
    assert compared.accuracy < ours.accuracy - 0.1
    assert compared.distance > 1.5 * ours.distance


def test_a_quick_run_has_every_row_and_judges_only_what_needs_no_training(tmp_path: Path) -> None:
    words = ("--quick", "--work", str(tmp_path / "work"), "--json", str(tmp_path / "rows.json"))
    subprocess.run([sys.executable, "-m", "benchmarks.diffusion", *words], check=True, stdout=subprocess.DEVNULL)
    rows = {row["name"]: row for row in json.loads((tmp_path / "rows.json").read_text())["rows"]}
    assert rows["gradients: transformer, %"]["ok"]
    assert rows["15 steps: prompts recognised"] == {
        **rows["15 steps: prompts recognised"],
        "reach": ">= 0.98",
        "ok": None,
    }
    assert rows["GRPO, all seeds: reward gained, lower bound of 95 %"]["ok"] is None
    assert not any(row["ok"] is False for row in rows.values())

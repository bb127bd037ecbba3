"""Jobs on a Ray cluster of several nodes on this machine: lost nodes, a lost head, and whole commands."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from artifacts import save_small_artifact
from daily_runs import daily_bars, run_evenings, save_daily_model
from market import bokeh_panel
from ray_clusters import BARE, connect, start_cluster
from small_jobs import killer, multiplier
from small_recipes import SMALL_RECIPE

from predictor.bars import BarPanel
from predictor.cluster import RayRunner
from predictor.features import load_default_features
from predictor.jobs import JobRunner, LocalRunner
from predictor.ledger import Ledger
from predictor.registry import Runtime, load_single
from trainers.stock import RollingSplits, TrainingMaterial, train
from trainers.stock.audit.audit import AuditBudget, audit
from trainers.stock.backtest.source import artifact_source
from trainers.stock.backtest.strategies import StrategySettings, TradingTerms
from trainers.stock.data import History
from trainers.stock.evaluation.evaluation import EvaluationSettings, evaluate
from trainers.stock.model_fit import fit_pipeline
from trainers.stock.training_jobs import PlannedTraining, TrainingRunner
from trainers.stock.tuning import Search, StudyStorage, search

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

    from predictor.errors import QuantraError


pytestmark = pytest.mark.minutes


@pytest.fixture(scope="module")
def nodes() -> "Iterator[Cluster]":
    """A head without CPUs and two nodes with one each; this process is connected to them."""
    with connect(0, 1, 1) as made:
        yield made


def test_jobs_of_a_lost_node_run_again(nodes: "Cluster", tmp_path: Path) -> None:
    added = nodes.add_node(num_cpus=1, **BARE)
    runner = RayRunner("auto")
    assert dict(runner.run(partial(killer, tmp_path), range(20))) == {number: number for number in range(20)}
    assert runner.progress.lost >= 1
    assert runner.progress.repeated == runner.progress.lost
    nodes.remove_node(added)


# --- commands

TINY = replace(SMALL_RECIPE, parts=RollingSplits(selection=40, calibration=60))


def learnt_and_later() -> tuple[BarPanel, BarPanel]:
    """Bars of a training run, and the same with 120 later sessions."""
    bars = bokeh_panel("AAPL", "IBM").last(420)
    return bars.until(int(bars.sessions[-121])), bars


def train_tiny(folder: Path) -> Path:
    train(TrainingMaterial(learnt_and_later()[0], load_default_features()), TINY, folder, consume=iter)
    return folder


def audit_with(runner: JobRunner, folder: Path) -> object:
    return audit(
        artifact_source(train_tiny(folder / "1"), "cpu"),
        learnt_and_later()[1],
        terms=TradingTerms(horizon=3),
        strategy_settings=StrategySettings(),
        depth=AuditBudget(sessions=2, permutations=2, epochs=1),
        announce=ignore,
        runner=runner,
    )


def evaluate_with(runner: JobRunner, folder: Path) -> object:
    made = load_single(train_tiny(folder / "1"), ("tiny", 1), Runtime(device=torch.device("cpu"), max_rows=256))
    wanted = EvaluationSettings(seeds=3, device="cpu")
    found = evaluate(made, learnt_and_later()[1], wanted, consume=iter, announce=ignore, runner=runner)
    assert found.seeds is not None
    return found.seeds


def tune_with(runner: JobRunner, folder: Path) -> object:
    bars = learnt_and_later()[0]
    splits = TINY.splits(bars.sessions)
    history = History(bars, fit_pipeline(bars, load_default_features(), TINY, splits))
    asked = Search(history=history, splits=splits, recipe=TINY, settings={}, trials=2, seeds=2)
    return search(asked, StudyStorage(uri=f"sqlite:///{folder / 'study.db'}", name="tiny"), consume=iter, runner=runner)


def run_an_evening_with(runner: JobRunner, folder: Path) -> object:
    save_daily_model(folder / "models" / "mine")
    bars = daily_bars()
    run_evenings(folder / "ledger.db", folder / "models" / "mine", bars, first=int(bars.sessions[-2]), runner=runner)
    with Ledger.open(folder / "ledger.db") as opened:
        query = 'select "values" from forecast order by as_of, model, version, symbol'
        rows = [row["values"] for row in opened.query(query)]
    assert rows
    return rows


def retrain_with(runner: JobRunner, folder: Path) -> object:
    planned = PlannedTraining(material=TrainingMaterial(learnt_and_later()[0], load_default_features()), recipe=TINY)
    plans, folders = {"a": planned, "b": planned}, {name: folder / name for name in "ab"}
    failed: dict[str, QuantraError] = {}
    made = TrainingRunner(jobs=runner).run(plans, folders, begin=lambda _: iter, on_failure=failed.__setitem__)
    return {name: (one.folder / "weights.safetensors").read_bytes() for name, one in sorted(made)}


def ignore(_line: str) -> None:
    """Show nothing."""


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("work", [audit_with, evaluate_with, tune_with, run_an_evening_with, retrain_with])
def test_a_command_finds_the_same_on_ray(work: Callable[[JobRunner, Path], object], tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    assert work(RayRunner("auto"), there) == work(LocalRunner(), here)


def test_after_the_head_is_killed_the_same_command_computes_only_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars, out = bokeh_panel("AAPL").last(700), tmp_path / "forecasts"
    bars.write_csv(tmp_path / "bars.csv")
    artifact = save_small_artifact(tmp_path / "models" / "mine" / "1")
    flags = ("--start", bars.sessions[-400], "--device", "cpu", "--cluster", "auto", "--job-memory", "0.1")
    words = ("forecast", artifact, "--bars", tmp_path / "bars.csv", "--out", out, *flags)
    command = [sys.executable, "-m", "quantra", *map(str, words)]
    with start_cluster(0, 1) as made:
        monkeypatch.setenv("RAY_ADDRESS", str(made.address))
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
            assert driver.stdout is not None
            assert next(driver.stdout).startswith("day 1/400")
            assert made.head_node is not None
            made.head_node.kill_gcs_server(check_alive=False)
            _, told = driver.communicate()
    assert driver.returncode == 1
    assert re.search(r"does not answer any more; \d+ of 25 jobs were done\. Start a cluster and the same command", told)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    assert 0 < len(before) < 400
    with start_cluster(0, 1) as made:
        monkeypatch.setenv("RAY_ADDRESS", str(made.address))
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert len(list(out.rglob("*.parquet"))) == 400
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_node_that_is_lost_before_the_jobs_is_left_out(nodes: "Cluster") -> None:
    added = nodes.add_node(num_cpus=1, **BARE)
    added.kill_raylet(check_alive=False)
    assert dict(RayRunner("auto").run(partial(multiplier, 3), [1, 2])) == {1: 3, 2: 6}
    nodes.remove_node(added)

"""`quantra train stock --model best`: several kinds within a budget become one ensemble."""

import json
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager, redirect_stdout
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from command_exits import exit_code
from market import bokeh_panel
from small_jobs import PickledJobs

from predictor import artifact
from predictor.errors import ConfigurationError, InvalidInputError
from predictor.features import load_default_features
from predictor.flags import ParsedFlags
from predictor.forecaster import Forecaster
from predictor.jobs import JobRunner
from predictor.networks import TargetKind, get_kind
from predictor.replacement import claim_output
from trainers import StockTrainer
from trainers.loop import EpochReport, PhaseTotals, Report, ValidationReport
from trainers.progress import ReportConsumer
from trainers.stock import TrainingMaterial, TrainingResult, command
from trainers.stock.data_warnings import without_repeats
from trainers.stock.ensembles import member_training
from trainers.stock.ensembles.member_training import (
    BestPlan,
    BestTraining,
    TimeBudget,
    TrainedMembers,
    TrainingDeadline,
    parse_budget,
)
from trainers.stock.recipe import RecipeChanges, recipe_of
from trainers.stock.training_jobs import PlannedTraining, TrainAndSave, TrainingRunner, train_quietly

call = partial(exit_code, command.stock)

HOUR = 3600.0


@pytest.fixture(scope="module")
def bars_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bars") / "bars.csv"
    bokeh_panel("AAPL").last(420).write_csv(path)
    return path


# --- the order of trainings


class FakeTraining:
    """Makes cards instead of models, and records the names and seeds."""

    def __init__(self, losses: dict[str, float], *, start: frozenset[str] = frozenset()) -> None:
        self.losses = losses
        self.start = start
        self.trained: list[tuple[str, int]] = []

    def __call__(self, planned: PlannedTraining, folder: Path, _limit: ReportConsumer) -> TrainingResult:
        name, recipe = folder.name, planned.recipe
        self.trained.append((name, recipe.optimisation.seed))
        if recipe.kind not in self.losses:
            raise InvalidInputError(f"{recipe.kind} has too few bars")
        training: dict[str, Any] = {
            "device": "cpu",
            "precision": "fp32",
            "parameters": 1,
            "best_epoch": 0 if name in self.start else 1,
            "best_selection": self.losses[recipe.kind],
            "epochs": [{"epoch": 1, "train": 1.0, "selection": 1.0}] if get_kind(recipe.kind).is_trainable else [],
        }
        return TrainingResult(folder=folder, card={"recipe": dict(recipe.settings()), "training": training})


def run_best(train: TrainAndSave, *kinds: str, seconds: float = HOUR, folder: Path = Path("best")) -> TrainedMembers:
    recipes = {kind: recipe_of(kind) for kind in kinds}
    return best_training(TrainingRunner(train=train), folder, seconds).run(recipes, {"gru": "not wanted"})


def best_training(trainer: TrainingRunner, folder: Path, seconds: float = HOUR) -> BestTraining:
    material = TrainingMaterial(bokeh_panel("AAPL").last(420), load_default_features())
    return BestTraining(trainer, material, folder, budget=TimeBudget(seconds), announce=ignore, warn=ignore)


def ignore(line: str) -> None:
    del line


def test_every_kind_is_trained_and_then_two_more_seeds_of_the_best_network() -> None:
    train = FakeTraining({"har": 0.1, "lstm": 0.3, "tft": 0.2})
    made = run_best(train, "har", "lstm", "tft")
    assert train.trained == [("har", 0), ("lstm", 0), ("tft", 0), ("tft-seed1", 1), ("tft-seed2", 2)]
    assert list(made.folders) == ["har", "lstm", "tft", "tft-seed1", "tft-seed2"]
    assert made.left_out == {"gru": "not wanted"}


def test_a_kind_that_fails_is_left_out_with_its_reason_and_the_others_go_on() -> None:
    made = run_best(FakeTraining({"har": 0.1, "tft": 0.2}), "har", "lstm", "tft")
    assert made.left_out["lstm"] == "lstm has too few bars"
    assert {"har", "tft"} <= set(made.folders)


def test_the_reason_of_several_kinds_is_given_once(tmp_path: Path) -> None:
    material = TrainingMaterial(bokeh_panel("AAPL").last(420), load_default_features())
    lines: list[str] = []
    trainer = TrainingRunner(train=fail)
    training = BestTraining(trainer, material, tmp_path, budget=TimeBudget(HOUR), announce=ignore, warn=lines.append)
    with pytest.raises(ConfigurationError, match=r"could be trained: gru: not wanted; har, garch: constant$"):
        training.run({kind: recipe_of(kind) for kind in ("har", "garch")}, {"gru": "not wanted"})
    assert lines == [
        "gru is left out: not wanted",
        "har is left out: constant",
        "garch is left out for the same reason as har",
    ]


def fail(*_: object) -> NoReturn:
    raise InvalidInputError("constant")


def test_a_data_warning_of_several_trainings_is_given_once() -> None:
    lines: list[str] = []
    warn = without_repeats(lines.append)
    for line in ("IBM: halted", "AAPL: halted", "IBM: halted"):
        warn(line)
    assert lines == ["IBM: halted", "AAPL: halted"]


def test_without_lightgbm_trees_are_left_out_and_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(ConfigurationError, match=r"trees: .*pip install 'quantra\[baselines\]'"):
        run_best(train_quietly, "trees", folder=tmp_path)


def test_kinds_of_parallel_jobs_have_the_same_bytes_and_one_that_fails_is_left_out(tmp_path: Path) -> None:
    recipes = {"har": replace(recipe_of("har"), calendar="XNYS")}
    recipes["long"] = replace(recipes["har"], encoder_length=900)
    here = best_training(TrainingRunner(), tmp_path / "here").run(recipes, {})
    there = best_training(TrainingRunner(jobs=PickledJobs()), tmp_path / "there").run(recipes, {})
    assert list(there.folders) == ["har"]
    assert files_of(there.folders["har"]) == files_of(here.folders["har"])
    assert there.left_out == here.left_out
    assert "sessions" in there.left_out["long"]


def test_a_network_that_added_nothing_to_its_scale_is_left_out() -> None:
    made = run_best(FakeTraining({"har": 0.1, "lstm": 0.2}, start=frozenset({"lstm"})), "har", "lstm")
    assert list(made.folders) == ["har"]
    assert "forecasts as `har` does" in made.left_out["lstm"]


def test_a_network_that_kept_its_fitted_map_is_a_member() -> None:
    made = run_best(FakeTraining({"har": 0.1, "tft": 0.2}, start=frozenset({"tft"})), "har", "tft")
    assert "tft" in made.folders


def test_without_time_kinds_are_named_and_none_is_trained() -> None:
    train = FakeTraining({"har": 0.1})
    with pytest.raises(ConfigurationError, match=r"no kind .* gru: not wanted; har: did not fit .* no time left"):
        run_best(train, "har", seconds=0.0)
    assert train.trained == []


def test_without_a_network_no_seed_is_repeated() -> None:
    train = FakeTraining({"har": 0.1, "garch": 0.1})
    run_best(train, "har", "garch")
    assert [name for name, _ in train.trained] == ["har", "garch"]


# --- the budget


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0)])
def test_a_budget_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["10", "0m", "ten minutes", "-5m", "5d", ""])
def test_a_budget_without_time_or_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time; write 90s, 10m or 2h"):
        parse_budget(text)


def epoch(number: int, *, loss: float, seconds: float, of: int = 20) -> EpochReport:
    totals = PhaseTotals(loss=loss, parts={}, count=1, step=1, skipped=0, shortages=0)
    validation = ValidationReport(mean=loss, parts={}, count=1, seconds=0.0)
    return EpochReport(
        epoch=number, epochs=of, windows=1, phases={"network": totals}, validation=validation,
        seconds=seconds, data_seconds=0.0, peak_bytes=None,
    )  # fmt: skip


def test_a_budget_goes_on_in_another_process_with_what_is_left() -> None:
    sent = copy(TimeBudget(HOUR, left=40.0))
    assert sent.seconds == HOUR
    assert 0 < sent.left <= 40


def passed_before_the_deadline(reports: list[EpochReport], *, patience: int = 5) -> int:
    """The number of reports before the training was stopped; all if it was not."""
    passed = 0

    def passing() -> Iterator[Report]:
        yield from reports

    try:
        for _ in TrainingDeadline(TimeBudget(HOUR), patience)(passing()):
            passed += 1
    except ConfigurationError:
        pass
    return passed


def test_a_training_is_stopped_after_the_first_epoch_if_early_stopping_cannot_come_in_time() -> None:
    assert passed_before_the_deadline([epoch(k, loss=1.0, seconds=1000.0) for k in range(9)]) == 1
    assert passed_before_the_deadline([epoch(k, loss=1.0, seconds=100.0) for k in range(9)]) == 9


def test_epochs_without_improvement_bring_the_end_nearer() -> None:
    """Two epochs of 1000 s are left after the third without improvement, one less than after an improvement."""
    worse = [epoch(0, loss=1.0, seconds=1.0), *(epoch(k, loss=2.0, seconds=1500.0) for k in range(1, 3))]
    better = [epoch(0, loss=1.0, seconds=1.0), *(epoch(k, loss=1.0 / (k + 1), seconds=1500.0) for k in range(1, 3))]
    assert passed_before_the_deadline([*worse, epoch(3, loss=2.0, seconds=1.0)], patience=4) == 2 + 2
    assert passed_before_the_deadline([*better, epoch(3, loss=0.1, seconds=1.0)], patience=4) == 2


def test_a_training_is_not_stopped_after_its_last_epoch() -> None:
    last = [epoch(0, loss=1.0, seconds=HOUR, of=1), epoch(0, loss=1.0, seconds=HOUR, of=1)]
    assert passed_before_the_deadline(last) == 2


# --- the command


@pytest.mark.parametrize(
    ("flags", "cause"),
    [
        (("--hidden", "4"), "--hidden belong to one kind of model"),
        (("--scale", "window"), "--scale belong to one kind of model"),
        (("--from", "models/x/1"), "--from is for one model"),
        (("--edges", "edges.csv"), "--edges is for one model"),
        (("--splits", "rolling"), "--splits has no test part"),
        (("--budget", "soon"), "'soon' is not a time"),
        (("--quantiles", "0.9,0.1"), "quantiles"),
        (("--workers", "2", "--threads", "2"), "--threads 2 is for one process"),
    ],
)
def test_flags_that_do_not_go_with_best_are_refused(
    flags: tuple[str, ...], cause: str, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--bars", bars_file, "--out", tmp_path / "1", "--model", "best", *flags) != 0
    assert cause in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_best_is_refused_under_torchrun(
    bars_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert call("--bars", bars_file, "--out", tmp_path / "1", "--model", "best") != 0
    assert "without torchrun" in " ".join(capsys.readouterr().err.split())


def test_processes_for_one_model_are_refused(
    bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--bars", bars_file, "--out", tmp_path / "1", "--model", "gru", "--cluster", "local") != 0
    assert "model gru is one model; leave them out" in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_budget_for_one_model_is_refused(bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--bars", bars_file, "--out", tmp_path / "1", "--model", "gru", "--budget", "5m") != 0
    assert "--budget is the time of --model best" in " ".join(capsys.readouterr().err.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class BestRun:
    """A finished training of few kinds."""

    out: Path
    flags: tuple[object, ...]
    result: dict[str, Any]
    """The last line of its JSON."""

    def repeat(self, folder: Path, *flags: str) -> int:
        """Run the command again in a copy of its folder without the ensemble."""
        shutil.copytree(self.out.with_name("1.run"), folder / "1.run")
        with few_kinds():
            return call(*self.flags, "--out", folder / "1", *flags)


@contextmanager
def few_kinds() -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(member_training, "MEMBER_KINDS", ("har", "garch", "trees", "lstm"))
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, bars_file: Path) -> BestRun:
    out = tmp_path_factory.mktemp("models") / "best" / "1"
    quick = ("--epochs", "1", "--horizons", "1,3", "--encoder-length", "10", "--budget", "1h", "--json")
    flags = ("--bars", bars_file, "--model", "best", *quick)
    with few_kinds(), redirect_stdout(StringIO()) as told:
        assert call(*flags, "--out", out) == 0
    return BestRun(out=out, flags=flags, result=json.loads(told.getvalue().splitlines()[-1]))


@pytest.mark.slow
def test_best_is_one_ensemble_and_every_kind_is_named(trained: BestRun) -> None:
    result = trained.result
    assert result["kind"] == "joined"
    others = [*result["dropped"], *result["left_out"]]
    assert {"har", "garch", "trees", "lstm"} <= {*result["members"], *(one["name"] for one in others)}
    assert all(one["reason"] for one in others)
    assert artifact.is_ensemble(trained.out)
    with Forecaster.load(trained.out) as forecaster:
        assert forecaster.model().horizons == (1, 3)


@pytest.mark.slow
def test_a_finished_best_has_nothing_to_resume(trained: BestRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*trained.flags, "--out", trained.out, "--resume") == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "finished"


@pytest.mark.slow
def test_a_resumed_best_continues_with_its_finished_members(trained: BestRun, tmp_path: Path) -> None:
    assert trained.repeat(tmp_path, "--resume") == 0
    assert (tmp_path / "1" / "manifest.json").read_bytes() == (trained.out / "manifest.json").read_bytes()
    logs = [path.relative_to(tmp_path) for path in tmp_path.glob("1.run/members/*.run/reports.jsonl")]
    assert logs
    assert all((tmp_path / path).read_bytes() == (trained.out.parent / path).read_bytes() for path in logs)


@pytest.mark.slow
def test_members_in_other_processes_make_the_same_ensemble(
    trained: BestRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained.out.with_name("1.run"), tmp_path / "1.run")
    shutil.rmtree(tmp_path / "1.run" / "members" / "lstm")
    with few_kinds():
        assert call(*trained.flags, "--out", tmp_path / "1", "--resume", "--workers", 2) == 0
    assert files_of(tmp_path / "1") == files_of(trained.out)
    stages = [json.loads(line).get("stage", "") for line in capsys.readouterr().out.splitlines()]
    assert [stage for stage in stages if "training" in stage][1] == "the training of lstm is done"


def test_two_commands_on_the_same_members_are_refused(
    bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "1.run").mkdir()
    with claim_output(tmp_path / "1.run"):
        assert call("--bars", bars_file, "--out", tmp_path / "1", "--model", "best") != 0
    assert "1.run is in use by process" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_finished_members_without_resume_are_refused(
    trained: BestRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained.repeat(tmp_path) != 0
    assert "holds members of a training run that was stopped" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_finished_members_of_other_settings_are_refused(
    trained: BestRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained.repeat(tmp_path, "--resume", "--lag", "1") != 0
    assert "was made with other settings: lag was 0 and is now 1" in " ".join(capsys.readouterr().err.split())


def test_a_target_that_a_kind_does_not_have_leaves_it_out() -> None:
    changes = RecipeChanges(
        recipe=ParsedFlags({"kind": "best"}),
        target=ParsedFlags({"kind": TargetKind.LOG_VOLATILITY}),
        optimisation=ParsedFlags(),
    )
    recipes, left_out = BestPlan(changes=changes, reads=ParsedFlags(), budget=1.0).plan_recipes()
    assert list(recipes) == ["har", "trees", "lstm", "gru", "hybrid", "tft"]
    assert "scale garch forecasts the volatility of returns" in left_out["garch"]


# --- from Python


@pytest.fixture(scope="module")
def fitted(bars_file: Path) -> Generator[tuple[StockTrainer, Forecaster]]:
    """A training run with the settings of `trained`."""
    made = StockTrainer(model="best", epochs=1, horizons=[1, 3], encoder_length=10, budget="1h", quiet=True)
    with few_kinds():
        forecaster = made.fit(bars_file)
    with forecaster:
        yield made, forecaster


@pytest.mark.slow
def test_best_from_python_has_the_bytes_of_the_command(
    fitted: tuple[StockTrainer, Forecaster], trained: BestRun, tmp_path: Path
) -> None:
    saved = fitted[0].save(tmp_path / "best" / "1")
    assert files_of(saved) == files_of(trained.out)
    assert artifact.is_ensemble(saved)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_best_from_python_forecasts_and_is_evaluated(
    fitted: tuple[StockTrainer, Forecaster], trained: BestRun, bars_file: Path
) -> None:
    made, forecaster = fitted
    recent = bokeh_panel("AAPL").last(100)
    with Forecaster.load(trained.out) as loaded:
        assert np.array_equal(forecaster.predict(recent).values, loaded.predict(recent).values)
    evaluation = made.evaluate(bars_file, seeds=2)
    assert "an ensemble has no recipe, so it is not trained from other seeds" in evaluation.notes
    assert made.card.weighting is not None


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({"hidden": 4}, "hidden belong to one kind of model"),
        ({"scale": "window"}, "scale belong to one kind of model"),
        ({"from_artifact": "models/x/1"}, "from_artifact is for one model"),
        ({"edges": "edges.csv"}, "edges is for one model"),
        ({"recipe": recipe_of("gru")}, "recipe is for one model"),
        ({"splits": "rolling"}, "splits has no test part"),
        ({"budget": "soon"}, "budget: 'soon' is not a time"),
        ({"quantiles": [0.9, 0.1]}, "quantiles"),
        ({"model": "gru", "budget": "5m"}, "budget is the time of model best"),
        ({"model": None, "budget": "5m"}, "budget is the time of model best"),
        ({"model": "gru", "workers": 2}, "workers and cluster are for model best"),
        ({"workers": 0}, "workers is 0, but must be 1 or more"),
        ({"workers": 2, "cluster": "local"}, "give either workers or a cluster"),
        ({"cluster": "here"}, "here is not the address of a Ray cluster"),
        ({"workers": 2, "on_report": print}, "which have one thread and no reports"),
        ({"workers": 2, "threads": 2}, "which have one thread and no reports"),
    ],
)
def test_settings_that_do_not_go_with_best_are_refused(given: dict[str, Any], cause: str) -> None:
    settings: dict[str, Any] = {"model": "best", **given}
    with pytest.raises(ConfigurationError, match=cause):
        StockTrainer(**settings)


@pytest.mark.slow
def test_workers_of_a_trainer_run_its_trainings(bars_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str | None]] = []

    def choose(workers: int, cluster: str | None, *, tell: object) -> JobRunner:
        del tell
        asked.append((workers, cluster))
        return PickledJobs()

    monkeypatch.setattr(member_training, "MEMBER_KINDS", ("har",))
    monkeypatch.setattr("trainers.stock.fitted_artifact.train_in_memory", refuse)
    monkeypatch.setattr("trainers.stock.trainer.choose_runner", choose)
    made = StockTrainer(model="best", horizons=[1], encoder_length=10, device="cpu", workers=2, quiet=True)
    with made.fit(bars_file) as forecaster:
        assert forecaster.model().horizons == (1,)
    assert set(asked) == {(2, None)}


def refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("trained by no job")


def test_a_failed_member_of_best_leaves_no_folder_behind(
    bars_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with few_kinds(), pytest.raises(ConfigurationError, match="could be trained: har, garch, trees, lstm: the bars"):
        StockTrainer(model="best", encoder_length=900, horizons=[1], quiet=True).fit(bars_file)
    assert list(tmp_path.iterdir()) == []

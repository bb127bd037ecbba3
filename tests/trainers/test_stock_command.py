"""`python -m trainers.stock`: flags become a recipe, and errors are one line."""

import csv
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

import pytest
import torch
from command_exits import exit_code, interrupted_at
from free_ports import free_port
from market import bokeh_panel
from safetensors.torch import load_file

from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.errors import ConfigurationError
from predictor.features import load_alpha158_features, load_default_features
from predictor.networks import KINDS, LSTMConfig, Target, TargetKind, get_kind
from trainers.loop import CheckpointError, Checkpoints
from trainers.progress import ReportConsumer, StepProgress
from trainers.stock import CheckpointSettings, DataSplits, Optimisation, StockRecipe, TrainingResult, command, train
from trainers.stock.card import hash_bars
from trainers.stock.recipe import choose_default_optimisation
from trainers.stock.training_data import TrainingMaterial

QUICK = ("--epochs", "1", "--hidden", "4", "--layers", "1", "--horizons", "1,3", "--encoder-length", "10")


@pytest.fixture(scope="module")
def bars_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bars") / "bars.csv"
    bokeh_panel("AAPL").last(420).write_csv(path)
    return path


call = partial(exit_code, command.stock)


class RecordedTraining:
    """Replaces the training and records its arguments."""

    def __init__(self) -> None:
        self.recipe = StockRecipe()
        self.material: TrainingMaterial | None = None
        self.checkpoint_settings = CheckpointSettings(folder=Path())

    def __call__(
        self,
        material: TrainingMaterial,
        recipe: StockRecipe,
        out: Path,
        *,
        consume: ReportConsumer,  # noqa: ARG002 - as the training has it
        announce: Callable[[str], None],  # noqa: ARG002
        warn: Callable[[str], None],  # noqa: ARG002
        track_steps: StepProgress,  # noqa: ARG002
        checkpoint_settings: CheckpointSettings,
        sections: Mapping[str, Json] | None,  # noqa: ARG002
    ) -> TrainingResult:
        self.material, self.recipe, self.checkpoint_settings = material, recipe, checkpoint_settings
        return TrainingResult(folder=out, card={})

    @property
    def given(self) -> TrainingMaterial:
        """The recorded training material."""
        assert self.material is not None
        return self.material


@pytest.fixture
def recorded_training(monkeypatch: pytest.MonkeyPatch) -> RecordedTraining:
    found = RecordedTraining()
    monkeypatch.setattr(command, "train", found)
    return found


def test_help_names_the_flags_and_an_example() -> None:
    program = [sys.executable, "-m", "trainers.stock", "--help"]
    shown = subprocess.run(
        program, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2] / "python"
    )
    assert "Usage: python -m trainers.stock [OPTIONS]" in shown.stdout
    for word in ("--bars", "--out", "--calendar", "--horizons", "--learning-rate", "models/demo/1"):
        assert word in shown.stdout


def test_without_flags_the_recipe_is_the_default_one_of_the_recognised_calendar(
    recorded_training: RecordedTraining, bars_file: Path, tmp_path: Path
) -> None:
    assert call("--bars", bars_file, "--out", tmp_path / "1", "--json") == 0
    assert recorded_training.recipe == StockRecipe(calendar="XNYS")
    assert recorded_training.given.features == load_default_features()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_kind_of_network_has_its_own_defaults(
    kind: str, recorded_training: RecordedTraining, bars_file: Path, tmp_path: Path
) -> None:
    assert call("--bars", bars_file, "--out", tmp_path / "1", "--model", kind, "--json") == 0
    assert recorded_training.recipe.config == get_kind(kind).config()
    assert recorded_training.recipe.optimisation == choose_default_optimisation(kind)
    assert recorded_training.recipe.target.lag == (1 if kind == "graph" else 0)


def test_the_features_of_alpha158_are_to_be_had_by_name(
    recorded_training: RecordedTraining, bars_file: Path, tmp_path: Path
) -> None:
    assert call("--bars", bars_file, "--out", tmp_path / "1", "--features", "alpha158", "--json") == 0
    assert recorded_training.given.features == load_alpha158_features()


def test_bars_come_from_a_database_too(recorded_training: RecordedTraining, bars_file: Path, tmp_path: Path) -> None:
    rows = list(csv.reader(bars_file.read_text().splitlines()))
    with closing(sqlite3.connect(tmp_path / "bars.db")) as database, database:
        database.execute(f"CREATE TABLE bars ({', '.join(rows[0])})")
        places = ", ".join("?" * len(rows[0]))
        database.executemany(f"INSERT INTO bars VALUES ({places})", rows[1:])  # noqa: S608 - question marks alone
    address = f"sqlite:///{tmp_path / 'bars.db'}"
    assert call("--bars", address, "--query", "SELECT * FROM bars", "--out", tmp_path / "1", "--json") == 0
    assert hash_bars(recorded_training.given.bars) == hash_bars(BarPanel.read(bars_file))


def test_neither_bars_nor_a_variable_that_holds_their_address_is_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--out", tmp_path / "1") == 2
    assert "give either --bars or --bars-env" in capsys.readouterr().err


def test_every_flag_reaches_the_recipe(recorded_training: RecordedTraining, bars_file: Path, tmp_path: Path) -> None:
    flags = (
        "--model lstm --calendar XNYS --target log-volatility --horizons 2,7 --quantiles 0.05,0.5,0.95 --lag "
        "1 --encoder-length 30 --hidden 5 --layers 1 --dropout 0.25 --epochs 3 --patience 2 --batch-size 17 "
        "--accumulate 4 --learning-rate 0.002 --weight-decay 0.01 --clip 0.5 --precision fp32 --device cpu "
        "--seed 11 --ema 0.99 --schedule cosine --ranking-weight 0.3 --oom fail --nonfinite raise --compile "
        "--deterministic --resume --keep 7 --checkpoint-seconds 5 --splits "
        "2000-01-03/2007-12-31,2008-01-02/2009-06-30,2009-07-01/2010-12-31,2011-01-03/2012-12-31"
    )
    assert call("--bars", bars_file, "--out", tmp_path / "1", *flags.split(), "--json") == 0
    assert recorded_training.recipe == StockRecipe(
        calendar="XNYS",
        target=Target(kind=TargetKind.LOG_VOLATILITY, horizons=(2, 7), lag=1),
        quantiles=(0.05, 0.5, 0.95),
        encoder_length=30,
        config=LSTMConfig(hidden=5, layers=1, dropout=0.25),
        parts=DataSplits.by_dates(
            [(20000103, 20071231), (20080102, 20090630), (20090701, 20101231), (20110103, 20121231)]
        ),
        optimisation=Optimisation(
            max_epochs=3,
            patience=2,
            batch_size=17,
            accumulate=4,
            learning_rate=0.002,
            weight_decay=0.01,
            clip=0.5,
            precision="fp32",
            device="cpu",
            seed=11,
            ema=0.99,
            schedule="cosine",
            ranking_weight=0.3,
            oom="fail",
            nonfinite="raise",
            compiled=True,
            deterministic=True,
        ),
    )
    folder = tmp_path / "1.run" / "checkpoints"
    assert recorded_training.checkpoint_settings == CheckpointSettings(
        folder=folder, resume=True, every_seconds=5, keep=7
    )


def test_a_training_writes_the_artifact_its_log_and_json_lines(
    bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--bars", bars_file, "--calendar", "XNYS", "--out", tmp_path / "1", *QUICK, "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    stages = [line["stage"] for line in lines if line["kind"] == "stage"]
    assert [stage.split()[0] for stage in stages] == ["computing", "training", "the", "recording"]
    assert stages[2].startswith(
        "the network added nothing to HAR on these data: this model forecasts as `har` does; calibrating and"
    )
    assert lines[-1]["kind"] == "trained"
    assert lines[-1]["artifact"] == str(tmp_path / "1")
    assert (tmp_path / "1" / "manifest.json").is_file()
    log = (tmp_path / "1.run" / "reports.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in log] == [
        line for line in lines if line["kind"] not in {"stage", "warning", "trained"}
    ]


def test_the_log_of_a_training_that_was_stopped_is_not_gone_on_with(bars_file: Path, tmp_path: Path) -> None:
    log = tmp_path / "1.run" / "reports.jsonl"
    log.parent.mkdir()
    log.write_text("of another training\n")
    assert call("--bars", bars_file, "--out", tmp_path / "1", *QUICK) == 0
    assert "another" not in log.read_text()


def test_a_person_sees_the_scores_and_the_sentence_about_skill(
    bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--bars", bars_file, "--out", tmp_path / "1", *QUICK) == 0
    shown = capsys.readouterr().out
    assert "training on cpu (automatic:" in shown
    assert (
        shown.index("computing features") < shown.index("epoch 1/1") < shown.index("scoring it against the baselines")
    )
    assert "this model" in shown
    assert "No skill shown" in shown
    assert "Next: quantra inspect" in shown


BAD = [
    (
        "--model prophet",
        "unknown network kind 'prophet'; choose one of ['garch', 'graph', 'gru', 'har', 'hybrid', 'lstm', 'tft',",
    ),
    ("--model gru --heads 4", "network 'gru' has no setting 'heads'; its settings are"),
    ("--model lstm --edges edges.csv", "a network of kind 'lstm' has no graph; use graph"),
    ("--query SELECT", "--query needs a database, but"),
    ("--schedule constant --ranking-weight 0", "ranking weight is 0, but must be above 0"),
    ("--target price", "target is 'price', but must be one of"),
    ("--horizons 1,x", "horizons is '1,x', but must be comma-separated integers"),
    ("--horizons 5,1", "horizons are [5, 1], but must be ascending"),
    ("--quantiles high", "quantiles is 'high', but must be comma-separated numbers"),
    ("--quantiles 0.9,0.1", "quantiles are [0.9, 0.1], but must be ascending levels"),
    ("--splits 2000-01-03", "splits is '2000-01-03', but must be three or four ranges of dates"),
    (
        "--splits 2000-01-03/2007-12-31,2007-12-31/2009-06-30,2009-07-01/2010-12-31,2011-01-03/2012-12-31",
        "target intervals of train and selection meet",
    ),
    ("--lag 2", "lag is 2, but must be 0 or 1"),
    ("--encoder-length 0", "encoder length is 0 sessions"),
    ("--hidden 0", "hidden is 0"),
    ("--dropout 1", "dropout is 1, but must be at least 0 and below 1"),
    ("--learning-rate 3", "learning rate is 3"),
    ("--weight-decay nan", "weight decay is nan"),
    ("--calendar XNIX", "unknown exchange 'XNIX'"),
    ("--features nowhere.json", "feature file nowhere.json cannot be read"),
    ("--bars nowhere.csv", "nowhere.csv"),
    ("--device cpu --precision fp16", "no float16 kernel"),
    ("--model=", "unknown network kind ''"),
    ("--features=", "feature file . cannot be read"),
    ("--target=", "target is '', but must be one of"),
    ("--horizons=", "horizons is '', but must be comma-separated integers"),
    ("--quantiles=", "quantiles is '', but must be comma-separated numbers"),
]


@pytest.mark.parametrize(("flags", "message"), BAD, ids=[flags for flags, _ in BAD])
def test_a_bad_flag_gives_one_clear_line_and_leaves_nothing_behind(
    flags: str, message: str, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = flags.split()
    bars = [] if "--bars" in given else ["--bars", str(bars_file)]
    assert call(*bars, "--out", tmp_path / "1", *given) == 1
    error = capsys.readouterr().err
    *read, failed = error.splitlines()
    assert message in failed
    assert all(" read as plain, " in line or line.startswith("calendar: XNYS ") for line in read)
    assert list(tmp_path.iterdir()) == []


OUT_OF_RANGE = [
    "seed -1",
    "precision fp8",
    "device abacus",
    "accumulate 0",
    "ema 1",
    "epochs 0",
    "patience 0",
    "batch-size 0",
]


@pytest.mark.parametrize("flag", OUT_OF_RANGE)
def test_a_flag_out_of_its_range_is_bad_usage(flag: str, bars_file: Path, tmp_path: Path) -> None:
    assert call("--bars", bars_file, "--out", tmp_path / "1", *f"--{flag}".split()) == 2
    assert list(tmp_path.iterdir()) == []


def test_flags_of_learning_are_refused_by_name_for_a_model_that_learns_nothing(
    bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--epochs", 3, "--batch-size", 64)
    assert call("--bars", bars_file, "--out", tmp_path / "1", "--model", "har", *map(str, flags)) == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "--epochs, --batch-size say how epochs train, but model har has no epochs; leave them out" in said


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


LONGER = ("--epochs", "8", "--patience", "8", "--hidden", "4", "--horizons", "1,3", "--encoder-length", "10")


@pytest.fixture(scope="module")
def uninterrupted(bars_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("uninterrupted") / "1"
    assert call("--bars", bars_file, "--out", out, *LONGER) == 0
    return files_of(out)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills the training with SIGKILL")
def test_a_training_killed_half_way_and_resumed_gives_the_uninterrupted_artifact_byte_for_byte(
    bars_file: Path, tmp_path: Path, uninterrupted: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "1"
    flags = ["--bars", str(bars_file), "--out", str(out), "--checkpoint-seconds", "0.05", "--json", *LONGER]
    command_line = [sys.executable, "-m", "trainers.stock", *flags]
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout is not None
        lines = (json.loads(line) for line in training.stdout)
        assert any(line["kind"] == "window" and line["epoch"] == 4 for line in lines)
        training.kill()
    assert call("--bars", bars_file, "--out", out, "--resume", *LONGER) == 0
    assert "resuming after" in capsys.readouterr().out
    assert files_of(out) == uninterrupted
    windows = [json.loads(line) for line in (tmp_path / "1.run" / "reports.jsonl").read_text().splitlines()]
    places = [(line["epoch"], line["window"]) for line in windows if line["kind"] == "window"]
    assert places == sorted(set(places))
    assert {epoch for epoch, _ in places} == set(range(8))


@pytest.mark.skipif(os.name != "posix", reason="stops the training with SIGTERM")
def test_a_training_stopped_by_a_signal_writes_a_checkpoint_and_shows_how_to_resume(
    bars_file: Path, tmp_path: Path, uninterrupted: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "1"
    with interrupted_at(10, "trainers.stock.command", signal.SIGTERM):
        assert call("--bars", bars_file, "--out", out, *LONGER) == 128 + signal.SIGTERM
    shown = capsys.readouterr().err
    assert "stopped by SIGTERM after " in shown
    assert "--resume" in shown
    assert not out.exists()
    assert call("--bars", bars_file, "--out", out, "--resume", *LONGER) == 0
    assert files_of(out) == uninterrupted


def leave_a_checkpoint(bars_file: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the process had ended after training and before saving the artifact."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("trainers.stock.training.artifact.save", fail)
        with pytest.raises(ConfigurationError, match="No space left on device; repair this, then --resume saves it"):
            train(
                TrainingMaterial(BarPanel.read(bars_file), load_default_features()),
                QUICK_RECIPE,
                out,
                consume=iter,
                checkpoint_settings=CheckpointSettings(folder=out.parent / f"{out.name}.run" / "checkpoints"),
            )


QUICK_RECIPE = StockRecipe(
    config=LSTMConfig(hidden=4, layers=1),
    target=Target(horizons=(1, 3)),
    encoder_length=10,
    calendar="XNYS",
    optimisation=Optimisation(max_epochs=1),
)


def test_checkpoints_of_a_stopped_training_are_not_gone_over_without_being_asked(
    bars_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_a_checkpoint(bars_file, tmp_path / "1", monkeypatch)
    before = files_of(tmp_path)
    assert call("--bars", bars_file, "--out", tmp_path / "1", *QUICK) == 1
    assert "continue it (--resume), or remove the folder" in capsys.readouterr().err
    assert files_of(tmp_path) == before


def test_checkpoints_of_a_training_that_still_runs_are_not_called_those_of_a_stopped_one(
    bars_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_a_checkpoint(bars_file, tmp_path / "1", monkeypatch)
    with Checkpoints(tmp_path / "1.run" / "checkpoints").open():
        assert call("--bars", bars_file, "--out", tmp_path / "1", *QUICK) == 1
    error = capsys.readouterr().err
    assert "is in use by process" in error
    assert "remove" not in error


def test_another_recipe_does_not_resume_and_the_difference_is_named(
    bars_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_a_checkpoint(bars_file, tmp_path / "1", monkeypatch)
    assert call("--bars", bars_file, "--out", tmp_path / "1", *QUICK, "--resume", "--learning-rate", "0.5") == 1
    assert "learning_rate" in capsys.readouterr().err


def test_the_checkpoints_go_when_the_artifact_is_saved(
    bars_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_a_checkpoint(bars_file, tmp_path / "1", monkeypatch)
    assert list((tmp_path / "1.run" / "checkpoints").glob("window-*"))
    assert call("--bars", bars_file, "--out", tmp_path / "1", *QUICK, "--resume") == 0
    assert not list((tmp_path / "1.run" / "checkpoints").glob("window-*"))


def test_the_folder_is_locked_until_the_artifact_is_written(bars_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "1.run" / "checkpoints"
    refused: list[str] = []

    def another_begins(stage: str) -> None:
        if "golden instance" in stage:
            with pytest.raises(CheckpointError, match="in use"), Checkpoints(folder).open():
                pass
            refused.append(stage)

    train(
        TrainingMaterial(BarPanel.read(bars_file), load_default_features()),
        QUICK_RECIPE,
        tmp_path / "1",
        consume=iter,
        announce=another_begins,
        checkpoint_settings=CheckpointSettings(folder=folder),
    )
    assert len(refused) == 1


def test_resuming_what_is_finished_says_so_and_changes_nothing(
    bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--bars", bars_file, "--out", tmp_path / "1", *QUICK) == 0
    before = files_of(tmp_path)
    capsys.readouterr()
    assert call("--bars", bars_file, "--out", tmp_path / "1", *QUICK, "--resume") == 0
    assert "is finished; there is nothing to resume" in capsys.readouterr().out
    assert files_of(tmp_path) == before


def test_resuming_what_is_finished_with_another_flag_names_the_difference(
    bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--bars", bars_file, "--out", tmp_path / "1", *QUICK) == 0
    assert call("--bars", bars_file, "--out", tmp_path / "1", *QUICK, "--resume", "--learning-rate", "0.5") == 1
    error = capsys.readouterr().err
    assert "is finished, and was made with other settings: learning_rate was 0.0003 and is now 0.5; choose" in error


def test_only_the_first_process_of_a_group_says_that_a_training_is_finished(
    bars_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--bars", bars_file, "--out", tmp_path / "1", *QUICK) == 0
    capsys.readouterr()
    monkeypatch.setenv("RANK", "1")
    assert call("--bars", bars_file, "--out", tmp_path / "1", *QUICK, "--resume") == 0
    assert capsys.readouterr().out == ""


@pytest.mark.minutes
@pytest.mark.skipif(os.name != "posix", reason="gloo is tested on Linux")
def test_two_processes_of_torchrun_train_what_one_does_with_the_same_windows(bars_file: Path, tmp_path: Path) -> None:
    flags = ["--bars", str(bars_file), *QUICK, "--epochs", "2", "--dropout", "0", "--device", "cpu", "--batch-size"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = [*launcher, "-m", "trainers.stock", *flags, "16", "--out", str(tmp_path / "2")]
    ended = subprocess.run(program, check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("Saved") == 1
    assert call(*flags, "16", "--accumulate", "2", "--out", tmp_path / "1") == 0
    one, two = (load_file(tmp_path / name / "weights.safetensors") for name in ("1", "2"))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-4, atol=1e-6)


def end_node(launcher: subprocess.Popen[bytes]) -> None:
    """Kill a launcher and its process, which is in a session of its own, as when their machine is lost."""
    if launcher.poll() is None:
        found = subprocess.run(["pgrep", "-P", str(launcher.pid)], check=False, capture_output=True, text=True)
        launcher.kill()
        for child in found.stdout.split():
            os.kill(int(child), signal.SIGKILL)
        launcher.wait()


@pytest.mark.minutes
@pytest.mark.skipif(sys.platform != "linux", reason="gloo is tested on Linux")
def test_a_training_goes_on_with_one_node_after_the_other_is_lost(bars_file: Path, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--rdzv-backend", "c10d"]
    program = ["-m", "trainers.stock", "--bars", str(bars_file), *QUICK, "--epochs", "12", "--patience", "12", "--json"]
    program += [
        "--batch-size",
        "16",
        "--device",
        "cpu",
        "--resume",
        "--checkpoint-seconds",
        "0.05",
        "--out",
        str(tmp_path / "1"),
    ]
    meeting = ["--rdzv-endpoint", f"localhost:{free_port()}", "--nnodes", "2"]
    with ExitStack() as stack:
        error = stack.enter_context(TemporaryFile("w+"))
        begin, end = os.pipe()
        printed = stack.enter_context(os.fdopen(begin))
        nodes = [subprocess.Popen([*launcher, *meeting, *program], stdout=end, stderr=error) for _ in range(2)]
        for node in nodes:
            stack.callback(end_node, node)
        os.close(end)
        assert any('"kind": "checkpoint"' in line for line in printed)
        end_node(nodes[1])
        assert nodes[0].wait(60) == 1
        error.seek(0)
        assert "another process of the group did not respond: it ended, was killed" in error.read()
    again = [*launcher, "--standalone", *program]
    ended = subprocess.run(again, check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    reports = [json.loads(line) for line in ended.stdout.splitlines()]
    (resumed,) = (report["message"] for report in reports if report["kind"] == "notice")
    assert resumed.startswith("resuming after ")
    assert reports[-1]["kind"] == "trained"
    assert len(reports[-1]["card"]["training"]["epochs"]) == 12
    first = next(report for report in reports if report["kind"] == "window")
    assert (first["epoch"], first["window"]) > (0, 0)


def test_an_existing_artifact_is_refused_before_a_log_is_begun(
    bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "1").mkdir()
    assert call("--bars", bars_file, "--out", tmp_path / "1") == 1
    assert "exists already; an artifact is never overwritten" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_an_out_without_a_version_number_becomes_the_next_version(
    recorded_training: RecordedTraining, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "models" / "mine"
    for version in (model / "1", model / "2"):
        assert call("--bars", bars_file, "--out", model, "--json") == 0
        assert recorded_training.checkpoint_settings.folder == version.with_name(f"{version.name}.run") / "checkpoints"
        assert f"{model} has no version number, so the artifact is {version}" in capsys.readouterr().err
        version.mkdir(parents=True)


def test_a_finished_version_is_resumed_without_its_number(
    bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--bars", bars_file, "--out", tmp_path, *QUICK) == 0
    assert call("--bars", bars_file, "--out", tmp_path, *QUICK, "--resume") == 0
    assert f"{tmp_path / '1'} is finished; there is nothing to resume" in capsys.readouterr().out


def test_a_stopped_version_is_resumed_without_its_number(
    bars_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1").mkdir()
    leave_a_checkpoint(bars_file, tmp_path / "2", monkeypatch)
    assert call("--bars", bars_file, "--out", tmp_path, *QUICK, "--resume") == 0
    assert (tmp_path / "2" / "manifest.json").is_file()


def test_a_folder_of_models_is_no_model(bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lstm" / "1").mkdir(parents=True)
    (tmp_path / "lstm" / "1" / "manifest.json").touch()
    assert call("--bars", bars_file, "--out", tmp_path, *QUICK) == 1
    assert f"{tmp_path} holds several models; name one of them, such as --out" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="stops the training with SIGINT")
def test_ctrl_c_ends_a_training_with_a_checkpoint_and_leaves_no_artifact(
    bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with interrupted_at(2, "trainers.stock.command"):
        assert call("--bars", bars_file, "--out", tmp_path / "1", *LONGER, "--json") == 130
    printed, error = capsys.readouterr()
    stopped = json.loads(printed.splitlines()[-1])
    assert (stopped["kind"], stopped["signal"]) == ("stopped", signal.SIGINT)
    read, calendar, first, second = error.splitlines()
    assert " read as plain, " in read
    assert calendar.startswith("calendar: XNYS ")
    assert first.startswith("stopped by SIGINT after ")
    assert second == "stopped by Ctrl+C"
    assert list((tmp_path / "1.run" / "checkpoints").glob("window-*"))
    assert [path.name for path in tmp_path.iterdir()] == ["1.run"]


@pytest.mark.slow
def test_a_training_stops_with_a_checkpoint_when_its_parent_exits(bars_file: Path, tmp_path: Path) -> None:
    flags = ["--bars", str(bars_file), "--out", str(tmp_path / "1"), "--epochs", "10000", "--patience", "10000"]
    command_line = [sys.executable, "-m", "trainers.stock", *flags, "--json", "--parent-watch"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command_line, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as training:
        assert training.stdin is not None
        assert training.stdout is not None
        assert any('"kind": "window"' in line for line in training.stdout)
        training.stdin.close()
        stopped = json.loads(training.stdout.read().splitlines()[-1])
    assert training.returncode == 128 + signal.SIGTERM
    assert (stopped["kind"], stopped["signal"]) == ("stopped", signal.SIGTERM)
    assert list((tmp_path / "1.run" / "checkpoints").glob("window-*"))


@pytest.mark.skipif(os.name != "posix", reason="a process is ended by a signal")
def test_a_training_whose_parent_has_exited_ends_at_once(bars_file: Path, tmp_path: Path) -> None:
    flags = ["--bars", str(bars_file), "--out", str(tmp_path / "1"), *QUICK]
    command_line = [sys.executable, "-m", "trainers.stock", *flags, "--parent-watch"]
    ended = subprocess.run(command_line, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert ended.returncode == -signal.SIGTERM
    assert not (tmp_path / "1").exists()


def test_the_trainer_as_a_script_says_what_to_install() -> None:
    code = "import sys, runpy; sys.modules['typer'] = None; runpy.run_module('trainers.stock', run_name='__main__')"
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "the command line needs typer: pip install 'quantra[cli]'\n"


def test_a_flag_that_is_missing_is_bad_usage(bars_file: Path) -> None:
    assert call("--bars", bars_file) == 2

"""Training stock models from Python: the short form, and all options of the command line."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import date
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final, TypedDict

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
import typer
from baseline_cases import few_baselines
from command_exits import exit_code
from market import bokeh_panel
from polars.testing import assert_frame_equal
from shown_commands import ENVIRONMENT
from sklearn.base import clone

from predictor import BarPanel, Forecaster
from predictor.errors import ConfigurationError, InSampleError, QuantraError, format_date
from predictor.networks import KINDS
from predictor.registry import read_aliases
from trainers import StockTrainer
from trainers.loop import Report, StepReport, TrainingNotice
from trainers.stock import SplitShares, fitted_artifact
from trainers.stock.backtest.command import backtest_command
from trainers.stock.card import hash_bars
from trainers.stock.command import stock
from trainers.stock.evaluation.command import evaluate_command
from trainers.stock.fitted_artifact import FittedArtifact
from trainers.stock.progress_output import open_progress
from trainers.stock.recipe import recipe_of
from trainers.stock.training_plan import load_bars

NOT_FROM_PYTHON: Final = {
    *("bars", "bars_env", "query", "covariates", "static"),  # arguments of `fit`
    *("layout", "date_order", "time_zone", "decimal", "volume_unit"),  # flags of a file, which is already a panel
    *("out", "resume", "checkpoint_seconds", "keep", "profile", "tensorboard"),  # flags of a training run in a folder
    *("job_memory", "job_timeout"),  # limits of jobs
    *("parent_watch", "json"),  # flags of a process started by another one
}
NOT_A_FLAG: Final = {"recipe", "quiet", "on_report"}
FLAGS: Final = (
    *("--epochs", "1", "--hidden", "4", "--layers", "1", "--horizons", "1,3"),
    *("--encoder-length", "10", "--calendar", "XNYS"),
)
START, END = "2013-01-10", "2013-03-01"
PERIOD: Final = ("--start", START, "--end", END)


class Quick(TypedDict, total=False):
    epochs: int
    hidden: int
    layers: int
    horizons: list[int]
    encoder_length: int
    calendar: str
    quiet: bool


QUICK: Final = Quick(epochs=1, hidden=4, layers=1, horizons=[1, 3], encoder_length=10, calendar="XNYS", quiet=True)
"""The same as `FLAGS`."""


@pytest.fixture(autouse=True, scope="module")
def with_few_baselines() -> Iterator[None]:
    with few_baselines():
        yield


@cache
def bars() -> BarPanel:
    return bokeh_panel("AAPL", "GOOG").last(420)


@pytest.fixture(scope="module")
def bars_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bars") / "bars.csv"
    bars().write_csv(path)
    return path


@pytest.fixture(scope="module")
def fitted_trainer() -> tuple[StockTrainer, Forecaster]:
    """A fitted trainer and its result."""
    made = StockTrainer(**QUICK)
    return made, made.fit(bars())


@pytest.fixture(scope="module")
def saved_model(fitted_trainer: tuple[StockTrainer, Forecaster], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted_trainer[0].save(tmp_path_factory.mktemp("models") / "mine" / "1")


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


class CannedTraining:
    """Replaces the training: returns prepared files, or raises an error."""

    def __init__(self, files: dict[str, bytes] | BaseException) -> None:
        self.files = files

    def __call__(self, *_: object, announce: Callable[[str], None], warn: Callable[[str], None], **__: object) -> Any:
        announce("training")
        warn("few bars")
        torch.set_num_threads(torch.get_num_threads() + 1)
        random.seed(5)
        np.random.seed(5)  # noqa: NPY002 - the program's, which must be left as it is
        torch.manual_seed(5)
        if isinstance(self.files, BaseException):
            raise self.files
        return self.files


@pytest.fixture
def canned(saved_model: Path, monkeypatch: pytest.MonkeyPatch) -> CannedTraining:
    found = CannedTraining(files_of(saved_model))
    monkeypatch.setattr(fitted_artifact, "train_in_memory", found)
    return found


# --- the same as on the command line


def test_a_saved_model_has_the_bytes_that_the_command_writes(
    saved_model: Path, bars_file: Path, tmp_path: Path
) -> None:
    assert exit_code(stock, "--bars", bars_file, "--out", tmp_path / "1", *FLAGS, "--json") == 0
    assert files_of(saved_model) == files_of(tmp_path / "1")
    assert len(files_of(saved_model)) == 7


OWN: Final[dict[str, tuple[dict[str, Any], list[str]]]] = {
    "gru": (
        {"hidden": 4, "layers": 1, "quantiles": [0.25, 0.5]},
        ["--hidden", "4", "--layers", "1", "--quantiles", ".25,.5"],
    ),
    "hybrid": ({"hidden": 4, "heads": 2, "blocks": 1}, ["--hidden", "4", "--heads", "2", "--blocks", "1"]),
    "tft": ({"hidden": 4, "heads": 2, "calendar": "XNYS"}, ["--hidden", "4", "--heads", "2", "--calendar", "XNYS"]),
    "graph": ({"hidden": 4, "heads": 2, "neighbours": 1}, ["--hidden", "4", "--heads", "2", "--neighbours", "1"]),
    "har": ({"lag": 1}, ["--lag", "1"]),
    "garch": ({}, []),
}
"""Settings specific to each kind, in Python and as flags."""
COSTLY: Final = {"hybrid", "tft", "graph", "har", "garch"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.minutes if kind in COSTLY else ()) for kind in OWN]
)
def test_so_does_one_of_each_other_kind(kind: str, bars_file: Path, tmp_path: Path) -> None:
    own, flags = OWN[kind]
    learns = KINDS[kind].is_trainable
    given: dict[str, Any] = {**own, **({"epochs": 2, "seed": 3, "batch_size": 32} if learns else {})}
    made = StockTrainer(model=kind, horizons=[1, 3], encoder_length=10, quiet=True, **given)
    made.fit(bars_file)
    asked = ["--model", kind, *flags, "--horizons", "1,3", "--encoder-length", "10"]
    asked += ["--epochs", "2", "--seed", "3", "--batch-size", "32"] if learns else []
    assert exit_code(stock, "--bars", bars_file, "--out", tmp_path / "1", *asked, "--json") == 0
    assert files_of(made.save(tmp_path / "2")) == files_of(tmp_path / "1")


@pytest.mark.minutes
def test_so_does_one_that_reads_covariates_or_starts_from_another(
    saved_model: Path, bars_file: Path, tmp_path: Path
) -> None:
    rows = [f"{day // 10000}-{day // 100 % 100:02d}-{day % 100:02d}" for day in bars().sessions.tolist()]
    lines = [f"{day},{day},{k % 7}" for k, day in enumerate(rows)]
    (tmp_path / "mood.csv").write_text("\n".join(["date,known_from,mood", *lines]) + "\n")
    made = StockTrainer(**QUICK)
    made.fit(bars_file, [tmp_path / "mood.csv"])
    given = ("--bars", bars_file, "--covariates", tmp_path / "mood.csv")
    assert exit_code(stock, *given, "--out", tmp_path / "1", *FLAGS, "--json") == 0
    assert files_of(made.save(tmp_path / "2")) == files_of(tmp_path / "1")

    later = "2011-07-01/2012-12-03,2012-12-10/2012-12-28,2013-01-02/2013-01-25,2013-01-28/2013-02-28"
    following = StockTrainer(from_artifact=saved_model, epochs=1, splits=later, quiet=True)
    following.fit(bars_file)
    asked = ("--from", saved_model, "--epochs", "1", "--splits", later)
    assert exit_code(stock, "--bars", bars_file, "--out", tmp_path / "3", *asked, "--json") == 0
    assert files_of(following.save(tmp_path / "4")) == files_of(tmp_path / "3")


def test_a_model_that_is_saved_as_the_first_version_is_the_champion(saved_model: Path) -> None:
    assert read_aliases(saved_model.parent) == {"champion": 1}


def test_an_evaluation_has_the_numbers_of_the_command(
    fitted_trainer: tuple[StockTrainer, Forecaster],
    saved_model: Path,
    bars_file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = fitted_trainer[0].evaluate(bars_file, start="2012-12-20", seeds=1)
    assert (
        exit_code(evaluate_command, saved_model, "--bars", bars_file, "--start", "2012-12-20", "--seeds", "1", "--json")
        == 0
    )
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(found.to_json()))


@pytest.mark.minutes
def test_an_evaluation_over_seeds_has_the_numbers_of_the_command_too(
    fitted_trainer: tuple[StockTrainer, Forecaster],
    saved_model: Path,
    bars_file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = fitted_trainer[0].evaluate(bars_file, seeds=2, aci=True)
    assert exit_code(evaluate_command, saved_model, "--bars", bars_file, "--seeds", "2", "--aci", "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(found.to_json()))


def test_a_backtest_has_the_numbers_of_the_command(
    fitted_trainer: tuple[StockTrainer, Forecaster], saved_model: Path, bars_file: Path, tmp_path: Path
) -> None:
    found = fitted_trainer[0].backtest(bars_file, start=START, end=END, horizon=3, cost_bps=7, strategy="sign")
    period = (*PERIOD, "--out", tmp_path / "run")
    traded = ("--horizon", "3", "--cost-bps", "7", "--strategy", "sign")
    assert exit_code(backtest_command, saved_model, "--bars", bars_file, *period, *traded, "--json") == 0
    assert json.loads((tmp_path / "run" / "backtest.json").read_text()) == json.loads(json.dumps(found.to_json()))


def test_a_backtest_without_days_covers_all_that_the_model_has_not_seen(
    fitted_trainer: tuple[StockTrainer, Forecaster],
) -> None:
    (fold,) = fitted_trainer[0].backtest(bars()).folds
    assert fold.last == bars().sessions[-1]
    with pytest.raises(InSampleError, match=f"first allowed decision day is {format_date(fold.first)}"):
        fitted_trainer[0].backtest(bars(), start=fold.learn_last)


@pytest.mark.minutes
def test_a_backtest_with_refits_has_the_numbers_of_the_command_too(
    fitted_trainer: tuple[StockTrainer, Forecaster], saved_model: Path, bars_file: Path, tmp_path: Path
) -> None:
    found = fitted_trainer[0].backtest(
        bars_file, start=START, end=END, refit=20, window="rolling:350", horizon=3, workers=2
    )
    period = (*PERIOD, "--out", tmp_path / "run", "--horizon", "3")
    traded = ("--refit", "20", "--window", "rolling:350", "--json")
    assert exit_code(backtest_command, saved_model, "--bars", bars_file, *period, *traded) == 0
    assert json.loads((tmp_path / "run" / "backtest.json").read_text()) == json.loads(json.dumps(found.to_json()))


def test_the_settings_are_the_flags_of_the_command_by_the_same_names() -> None:
    app = typer.Typer(add_completion=False)
    app.command()(stock)
    spelt = {option.opts[0].lstrip("-").replace("-", "_") for option in typer.main.get_command(app).params}
    flags = {"from_artifact" if name == "from" else name for name in spelt - NOT_FROM_PYTHON - {"help"}}
    assert {name for name in StockTrainer.__dataclass_fields__ if name != "_artifact"} - NOT_A_FLAG == flags


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_without_settings_the_recipe_is_that_of_the_kind(kind: str) -> None:
    assert StockTrainer(model=kind).plan.recipe == recipe_of(kind)


def test_a_recipe_brings_what_has_no_flag_and_settings_go_before_it() -> None:
    own = recipe_of("gru")
    given = StockTrainer(recipe=own, epochs=3, target="log-volatility", splits="").plan.recipe
    assert (given.kind, given.optimisation.max_epochs, given.target.kind) == ("gru", 3, "log-volatility")
    with pytest.raises(ConfigurationError, match="model is tft, but the recipe's is gru; leave one of them out"):
        StockTrainer(recipe=own, model="tft")
    assert given.shares == SplitShares()


# --- results of a fit


def test_the_forecaster_of_a_fit_answers_as_the_saved_artifact_does(
    fitted_trainer: tuple[StockTrainer, Forecaster], saved_model: Path
) -> None:
    ours = fitted_trainer[1].predict(bars().last(150))
    with Forecaster.load(saved_model) as loaded:
        theirs = loaded.predict(bars().last(150))
    assert np.array_equal(ours.values, theirs.values)
    assert ours.weights_hash == theirs.weights_hash


def test_saving_refuses_a_folder_that_is_there(
    fitted_trainer: tuple[StockTrainer, Forecaster], saved_model: Path
) -> None:
    before = files_of(saved_model)
    with pytest.raises(ConfigurationError, match="exists already; an artifact is never overwritten"):
        fitted_trainer[0].save(saved_model)
    assert files_of(saved_model) == before


def test_days_that_the_model_has_seen_are_refused(fitted_trainer: tuple[StockTrainer, Forecaster]) -> None:
    with pytest.raises(InSampleError, match="The first allowed decision day is"):
        fitted_trainer[0].backtest(bars(), start="2012-01-03", end="2013-03-01")


ASKING: Final[dict[str, Callable[[StockTrainer], object]]] = {
    "evaluate": lambda made: made.evaluate(bars()),
    "backtest": lambda made: made.backtest(bars(), start=START, end=END),
    "save": lambda made: made.save("nowhere"),
    "card": lambda made: made.card,
}


@pytest.mark.parametrize("purpose", ASKING)
def test_use_before_a_fit_asks_to_fit_first(purpose: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"nothing was fitted yet; call fit\(bars\) before {purpose}"):
        ASKING[purpose](StockTrainer(**QUICK))


def test_a_second_fit_replaces_the_first_and_a_failed_one_does_not(canned: CannedTraining, tmp_path: Path) -> None:
    assert isinstance(canned.files, dict)
    made, other = StockTrainer(**QUICK), dict(canned.files)
    made.fit(bars())
    canned.files = ConfigurationError("split train holds no window")
    with pytest.raises(ConfigurationError, match="no window"):
        made.fit(bars())
    assert files_of(made.save(tmp_path / "1")) == other

    manifest = json.loads(other["manifest.json"])
    manifest["card"]["notes"] = ["another"]
    before = FittedArtifact.of(other)
    canned.files = other | {"manifest.json": json.dumps(manifest).encode()}
    made.fit(bars())
    assert made.card.notes == ("another",)
    assert before.card.notes != ("another",)


def test_a_fit_leaves_torchs_threads_and_the_generators_as_they_are(canned: CannedTraining) -> None:
    def state() -> tuple[object, ...]:
        drawn: Any = np.random.get_state(legacy=True)  # noqa: NPY002 - the program's
        return torch.get_num_threads(), random.getstate(), np.asarray(drawn[1]).tolist(), torch.get_rng_state().tolist()

    before = state()
    StockTrainer(threads=2, **QUICK).fit(bars())
    assert state() == before
    canned.files = ConfigurationError("failed")
    with pytest.raises(ConfigurationError, match="failed"):
        StockTrainer(threads=2, **QUICK).fit(bars())
    assert state() == before


# --- output


def test_a_person_sees_stages_warnings_and_the_verdict_unless_it_is_to_be_quiet(
    canned: CannedTraining, capsys: pytest.CaptureFixture[str]
) -> None:
    assert canned.files
    StockTrainer(**QUICK).fit(bars())
    assert capsys.readouterr().out == ""
    StockTrainer(**QUICK | Quick(quiet=False)).fit(bars())
    shown = capsys.readouterr().out
    assert shown.startswith("training …\nwarning: few bars\nNo skill shown")


def test_a_function_gets_every_report_of_a_fit() -> None:
    reports: list[Report] = []
    made = StockTrainer(**QUICK, on_report=reports.append)
    made.fit(bars()).close()
    made.evaluate(bars(), seeds=2, start=START, end=END)  # another training, which is not reported
    assert [type(report).__name__ for report in reports].count("EpochReport") == 1
    assert any(isinstance(report, StepReport) for report in reports)
    assert made.get_params()["on_report"] == reports.append
    assert repr(made).endswith("epochs=1, fitted)")


def test_an_error_of_the_function_of_reports_ends_the_fit() -> None:
    def fail(report: Report) -> None:
        raise OSError(f"no connection for {type(report).__name__}")

    made = StockTrainer(**QUICK, on_report=fail)
    with pytest.raises(OSError, match="no connection for"):
        made.fit(bars())
    assert repr(made).endswith("not fitted)")


def test_a_live_bar_ends_with_the_work_though_an_exception_keeps_its_reports_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    ended: list[bool] = []

    def endless() -> Iterator[Report]:
        try:
            for epoch in count():
                yield TrainingNotice(message=f"report {epoch}")
        finally:
            ended.append(True)

    before, kept = set(threading.enumerate()), list[Iterator[Report]]()

    def watched() -> None:
        with open_progress(quiet=False) as heard:
            kept.append(heard.consume(endless()))
            next(kept[0])
            assert set(threading.enumerate()) > before
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watched()
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)  # rich does not wait for its own thread
    assert set(threading.enumerate()) == before
    assert ended == [True]


def test_the_live_bar_of_a_training_that_stops_early_ends_before_the_next_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two live bars at once would overwrite each other."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    ended: list[int] = []

    def endless(number: int) -> Iterator[Report]:
        try:
            while True:
                yield TrainingNotice(message="a report")
        finally:
            ended.append(number)

    with open_progress(quiet=False) as heard:
        for number in range(3):
            assert ended == [*range(number)]
            for _ in heard.consume(endless(number)):
                break


def test_what_is_made_says_in_short_what_it_is(fitted_trainer: tuple[StockTrainer, Forecaster]) -> None:
    assert repr(StockTrainer(model="tft", horizons=[1, 5])) == "StockTrainer(model='tft', horizons=[1, 5], not fitted)"
    assert repr(fitted_trainer[0]).endswith("epochs=1, fitted)")
    assert repr(fitted_trainer[1]) == "Forecaster(lstm@1: lstm, log-return, 1, 3 sessions ahead)"
    backtest = fitted_trainer[0].backtest(bars(), start=START, end=END)
    assert repr(backtest).startswith("Backtest(2013-01-11 to 2013-03-01, 2 symbols; model, rank: Sharpe ")
    assert len(repr(backtest)) < 150


# --- errors when the trainer is created


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"horizon": [1]}, "StockTrainer has no setting horizon; did you mean horizons?"),
        ({"max_epochs": 1}, "StockTrainer has no setting max_epochs; did you mean epochs?"),
        ({"zzz": 1}, "StockTrainer has no setting zzz; it has model, target, horizons, lag, "),
    ],
)
def test_a_wrong_name_gets_the_right_one(given: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError) as wrong:
        StockTrainer(**given)
    assert str(wrong.value).startswith(said)


def test_settings_go_by_their_names() -> None:
    positional: Any = StockTrainer
    with pytest.raises(TypeError, match=r"takes its settings by name: StockTrainer\(model='tft'\)"):
        positional("tft")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": "tftt"}, r"unknown network kind 'tftt'; choose one of \['garch'"),
        ({"horizons": 5}, r"horizons is 5, but must be whole numbers in a list, such as \[5\]"),
        ({"horizons": [1.5]}, "horizons is 1.5, but must be a whole number"),
        ({"horizons": [5, 1]}, "horizons are .5, 1., but must be ascending"),
        ({"quantiles": [0.9, 0.1]}, "quantile"),
        ({"epochs": 0}, "epochs is 0, but must be at least 1"),
        ({"epochs": True}, "epochs is True, but must be a whole number"),
        ({"seed": -1}, "seed is -1, but must be at least 0 and at most"),
        ({"precision": "fp8"}, "precision is 'fp8', but must be one of 'auto', 'fp32', 'bf16', 'fp16'"),
        ({"device": "gpu"}, "device: 'gpu' is not a device; use auto, cpu, cuda"),
        ({"target": "return"}, "target is 'return', but must be one of"),
        ({"splits": "2001"}, "splits is '2001', but must be three or four ranges of dates"),
        ({"compile": "yes"}, "compile is 'yes', but must be True or False"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast', but must be a number"),
        ({"heads": 2}, "network 'lstm' .*heads"),
        ({"model": "har", "epochs": 3}, "epochs say how epochs train, but model har has no epochs; leave them out"),
        ({"edges": "edges.csv"}, "edges is given, but a network of kind 'lstm' has no graph; use graph"),
        ({"features": "alpha360"}, "features is 'alpha360', but must be default, prices, alpha158 or a file"),
    ],
)
def test_a_wrong_value_says_what_is_right(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        StockTrainer(**given)


def test_what_comes_with_the_weights_of_another_cannot_be_asked_for(saved_model: Path) -> None:
    with pytest.raises(ConfigurationError, match="horizons is 2 and the artifact's 1,3: these come with the weights"):
        StockTrainer(from_artifact=saved_model, horizons=[2])
    assert StockTrainer(from_artifact=saved_model, epochs=7).plan.recipe.optimisation.max_epochs == 7


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"start": "soon"}, "start is 'soon', but must be a date such as 2011-01-03"),
        ({"start": 20130230}, "start is '2013-02-30', but must be a date"),
        ({"seeds": 0}, "seeds is 0, but must be at least 1"),
    ],
)
def test_so_do_wrong_values_of_an_evaluation(
    fitted_trainer: tuple[StockTrainer, Forecaster], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        fitted_trainer[0].evaluate(bars(), **given)


@pytest.mark.parametrize("of", ["pandas", "polars", "a file", "its name"])
def test_bars_come_from_whatever_holds_them(of: str, bars_file: Path) -> None:
    table = pl.read_csv(bars_file)
    pandas = pd.DataFrame(table.to_dict(as_series=False))
    given = {"pandas": pandas, "polars": table, "a file": bars_file, "its name": str(bars_file)}[of]
    assert hash_bars(load_bars(given)) == hash_bars(bars())


def test_a_data_frame_becomes_a_forecast_in_three_lines(canned: CannedTraining, bars_file: Path) -> None:
    assert canned.files
    frame = pl.read_csv(bars_file)
    forecaster = StockTrainer(model="lstm", quiet=True).fit(frame)
    assert forecaster.predict(frame).symbols == ("AAPL", "GOOG")


def test_covariates_are_a_list_of_files() -> None:
    one: Any = "mood.csv"
    with pytest.raises(ConfigurationError, match=r"covariates is mood\.csv, but must be a list of files"):
        StockTrainer(**QUICK).fit(bars(), one)


def test_a_file_that_is_not_there_is_an_error_of_the_bars() -> None:
    with pytest.raises(QuantraError, match=r"nowhere\.csv"):
        StockTrainer(**QUICK).fit("nowhere.csv")


# --- separate processes

LIGHT: Final = """
import sys
import trainers
assert "torch" not in sys.modules and "numpy" not in sys.modules
sys.modules |= {name: None for name in ("rich", "typer", "polars", "plotly")}
from trainers import StockTrainer
from trainers.stock.progress_output import open_progress
with open_progress(quiet=False) as heard:
    heard.announce("training")
    list(heard.consume([]))
print(StockTrainer(model="gru"))
"""
INTERRUPTED: Final = """
import multiprocessing, os, signal, sys, tempfile, threading
from trainers import StockTrainer
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where whoever started the tests ignores it
sys.stdout.isatty = lambda: True
trainer = StockTrainer(epochs=9999, patience=9999, hidden=4, layers=1, horizons=[1], encoder_length=10)
try:
    trainer.fit(sys.argv[1])
except KeyboardInterrupt as kept:
    for thread in threading.enumerate()[1:]:
        thread.join(10)  # rich tells its own to end, and does not wait for it
    print("left", threading.active_count(), multiprocessing.active_children(), os.listdir(tempfile.gettempdir()),
          os.listdir(), trainer, flush=True)
"""


@pytest.mark.slow
def test_the_package_is_light_and_the_trainer_needs_no_package_of_the_command_line() -> None:
    asked = [sys.executable, "-c", LIGHT]
    ran = subprocess.run(asked, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("training …\nStockTrainer(model='gru', not fitted)\n", "")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there a signal goes to a whole console")
def test_ctrl_c_in_the_midst_of_a_training_leaves_no_file_no_process_and_no_thread(
    bars_file: Path, tmp_path: Path
) -> None:
    for name in ("here", "temporary"):
        (tmp_path / name).mkdir()
    environment = {**ENVIRONMENT, "TMPDIR": str(tmp_path / "temporary"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(bars_file)],
        cwd=tmp_path / "here",
        env=environment,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        shown = b""
        while b"validation" not in shown:
            shown += (more := os.read(child.stdout.fileno(), 4096))
            assert more, shown.decode()
        child.send_signal(signal.SIGINT)
        rest = child.stdout.read().decode()
    assert child.returncode == 0
    assert "left 1 [] [] [] StockTrainer(" in rest
    assert "not fitted)" in rest


def test_scikit_learn_clones_the_settings_and_not_the_model(fitted_trainer: tuple[StockTrainer, Forecaster]) -> None:
    fitted, _ = fitted_trainer
    copy = clone(fitted)
    assert isinstance(copy, StockTrainer)
    assert copy.get_params() == fitted.get_params()
    assert repr(copy).endswith("not fitted)")
    assert repr(fitted).endswith(", fitted)")


# --- past forecasts as frames

PAST_COLUMNS: Final = ["unique_id", "ds", "cutoff", "horizon", "y", "0.1", "0.5", "0.9"]


def test_a_forecast_history_has_what_predict_forecasts_and_what_happened(
    fitted_trainer: tuple[StockTrainer, Forecaster],
) -> None:
    made, model = fitted_trainer
    day = int(bars().sessions[-4])
    history = made.forecast_history(bars(), start=day, end=day)
    forecast = model.predict(bars().until(day))
    assert history.columns == PAST_COLUMNS
    assert history["unique_id"].to_list() == ["AAPL", "AAPL", "GOOG", "GOOG"]
    assert history["ds"].to_list() == list(forecast.target_sessions) * 2
    assert set(history["cutoff"]) == {forecast.as_of_session}
    assert history[["0.1", "0.5", "0.9"]].to_numpy().reshape(2, 2, 3).tolist() == forecast.to_numpy().tolist()
    closes = bars().adjusted().close
    moved = np.log(closes[:, [-3, -1]] / closes[:, [-4]])
    np.testing.assert_allclose(history["y"].to_numpy().reshape(2, 2), moved)


def test_a_forecast_history_begins_after_what_the_model_has_seen(
    fitted_trainer: tuple[StockTrainer, Forecaster],
) -> None:
    made, _ = fitted_trainer
    history = made.forecast_history(bars())
    with pytest.raises(InSampleError, match="is in sample"):
        made.forecast_history(bars(), start=bars().sessions[300].item())
    first = made.evaluate(bars(), seeds=1).period.first
    assert history["cutoff"].min() == date.fromisoformat(format_date(first))


def test_a_cross_validation_trains_only_on_bars_before_each_window() -> None:
    made = StockTrainer(model="har", horizons=[1, 3], calendar="XNYS", quiet=True)
    whole = made.cross_validation(bars(), windows=2, step=5)
    assert whole.columns == PAST_COLUMNS
    cutoffs = [int(f"{day:%Y%m%d}") for day in sorted(set(whole["cutoff"]))]
    assert cutoffs == bars().sessions[-13:-3].tolist()
    assert whole.height == 2 * 10 * 2
    assert whole["y"].null_count() == 0
    until = bars().until(int(bars().sessions[-6]))
    short = made.cross_validation(until, windows=1, step=2)
    later = made.cross_validation(bars().until(int(bars().sessions[-5])), windows=1, step=3)
    shared = later.filter(pl.col("cutoff").is_in(short["cutoff"].unique().implode()))
    assert_frame_equal(shared, short, rel_tol=1e-9)  # adjusted closes are rebased to another last bar


def test_a_cross_validation_with_too_few_bars_says_what_to_change() -> None:
    made = StockTrainer(model="har", horizons=[1, 3], calendar="XNYS", quiet=True)
    with pytest.raises(ConfigurationError, match="use fewer or shorter windows, or more bars"):
        made.cross_validation(bars(), windows=10, step=63)
    with pytest.raises(ConfigurationError, match="leave out model='best'"):
        StockTrainer(model="best", quiet=True).cross_validation(bars())


def test_days_of_a_panel_can_be_passed_on(fitted_trainer: tuple[StockTrainer, Forecaster]) -> None:
    first: Any = bars().sessions[0]  # a NumPy integer
    with pytest.raises(InSampleError):
        fitted_trainer[0].backtest(bars(), start=first)

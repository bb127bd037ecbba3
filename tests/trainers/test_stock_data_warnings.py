"""Data warnings of training and evaluation: before the work, once, and in the record."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from baseline_cases import few_baselines
from command_exits import exit_code
from market import bokeh_panel, scaled
from typer.testing import CliRunner

from predictor.bars import BarPanel
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError
from predictor.features import CovariateFields, load_default_features
from predictor.forecaster import Forecaster
from predictor.networks import LSTMConfig, Target, UnconditionalConfig
from trainers.cli.commands import app
from trainers.loop import Report
from trainers.stock import Optimisation, StockRecipe, TrainingMaterial, train
from trainers.stock.audit.command import audit_command
from trainers.stock.backtest.command import backtest_command
from trainers.stock.command import stock
from trainers.stock.data import History
from trainers.stock.data_warnings import find_recipe_warnings, find_step_warnings
from trainers.stock.ensembles.command import ensemble
from trainers.stock.evaluation.command import evaluate_command
from trainers.stock.model_fit import fit_pipeline
from trainers.stock.tuning.command import tune_stock

RECIPE = StockRecipe(
    config=LSTMConfig(hidden=4, layers=1),
    target=Target(horizons=(1, 3)),
    encoder_length=10,
    optimisation=Optimisation(max_epochs=1, device="cpu"),
)
SPLIT = "IBM 2012-10-04: the price is 0.333 times the close before (a 3:1 split would look like this)"
SILENT = "AAPL: every volume that the model reads is 0"
UNREAD = "the covariate files have columns that the model does not read: rate"
STEPS = "steps of the optimizer"
EARLY = (SILENT, SPLIT)
JUDGED = (SILENT, UNREAD, SPLIT)


@cache
def bars() -> BarPanel:
    """Raw bars of two stocks: one without volume, the other with an unrecorded split."""
    whole = bokeh_panel("AAPL", "IBM").last(400)
    factor = np.ones_like(whole.close)
    factor[1, -100:] = 1 / 3
    prices = {name: getattr(whole, name) * factor for name in ("open", "high", "low", "close")}
    volume = whole.volume.copy()
    volume[0] = 0
    return replace(whole, **prices, volume=volume, adj_close=None, calendar="")


@dataclass(frozen=True)
class DoubtfulFiles:
    """Files with data warnings, and a model trained on them."""

    folder: Path
    told: tuple[str, ...]
    """Warnings, stages and epochs in the order of their reports."""

    @property
    def artifact(self) -> Path:
        return self.folder / "1"

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--bars", str(self.folder / "bars.csv"), "--covariates", str(self.folder / "rates.csv"))


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory: pytest.TempPathFactory) -> DoubtfulFiles:
    folder = tmp_path_factory.mktemp("doubtful")
    bars().write_csv(folder / "bars.csv")
    (folder / "rates.csv").write_text("date,known_from,rate\n2012-01-03,2012-01-03,1\n", encoding="utf-8")
    told: list[str] = []

    def consume(reports: Iterable[Report]) -> Iterator[Report]:
        for report in reports:
            told.append("epochs")
            yield report

    material = TrainingMaterial(bars(), load_default_features())
    train(material, RECIPE, folder / "1", consume=consume, announce=told.append, warn=told.append)
    return DoubtfulFiles(folder=folder, told=tuple(told))


def places(told: Sequence[str], *texts: str) -> list[int]:
    """Index of the only line with each of these texts."""
    found = [[place for place, line in enumerate(told) if text in line] for text in texts]
    assert [len(one) for one in found] == [1] * len(texts), told
    return [one[0] for one in found]


def without_breaks(text: str) -> str:
    """Output without line breaks."""
    return " ".join(text.split())


# --- trainings


def test_a_training_reports_data_warnings_once_before_its_work(doubtful: DoubtfulFiles) -> None:
    before = places(doubtful.told, *EARLY)
    assert max(before) < places(doubtful.told, "computing features")[0]
    assert places(doubtful.told, STEPS)[0] < doubtful.told.index("epochs")


def test_the_card_holds_what_there_was_to_doubt(doubtful: DoubtfulFiles) -> None:
    manifest = json.loads((doubtful.artifact / "manifest.json").read_text(encoding="utf-8"))
    places(manifest["card"]["data"]["notes"], *EARLY, STEPS)


def test_400_bars_are_distinguished_by_windows_and_steps(doubtful: DoubtfulFiles) -> None:
    (line,) = [line for line in doubtful.told if STEPS in line]
    assert line.startswith("split train holds 196 windows, which is 4 steps of the optimizer an epoch")
    assert "give a longer history, more symbols, or smaller batches" in line


def test_a_training_of_steps_enough_says_nothing_of_them() -> None:
    splits = RECIPE.splits(bars().sessions)
    history = History(bars(), fit_pipeline(bars(), load_default_features(), RECIPE, splits))
    small = replace(RECIPE, optimisation=replace(RECIPE.optimisation, batch_size=8))
    assert find_step_warnings(history, splits, small) == ()
    assert (
        len(find_step_warnings(history, splits, replace(small, optimisation=replace(small.optimisation, accumulate=8))))
        == 1
    )


def test_a_model_without_a_network_takes_no_steps_and_reads_no_volume() -> None:
    har = replace(RECIPE, kind="har", config=UnconditionalConfig())
    splits = har.splits(bars().sessions)
    history = History(bars(), fit_pipeline(bars(), load_default_features(), har, splits))
    assert find_step_warnings(history, splits, har) == ()
    (jump,) = find_recipe_warnings(bars(), load_default_features(), CovariateSource(), har)
    assert jump.startswith(SPLIT)


def test_a_covariate_that_no_feature_reads_is_reported_in_training(doubtful: DoubtfulFiles) -> None:
    files = CovariateSource.read([doubtful.folder / "rates.csv"])
    places(find_recipe_warnings(bars(), load_default_features(), files, RECIPE), UNREAD)
    reading = load_default_features().with_covariates(CovariateFields(observed=("rate",)))
    assert not any(UNREAD in line for line in find_recipe_warnings(bars(), reading, files, RECIPE))


def test_bars_with_splits_and_volumes_raise_no_doubt() -> None:
    assert find_recipe_warnings(bokeh_panel("AAPL", "IBM"), load_default_features(), CovariateSource(), RECIPE) == ()


QUICK = ("--epochs", "1", "--hidden", "4", "--layers", "1", "--horizons", "1,3", "--encoder-length", "10")


def test_the_command_tells_programs_of_doubts_before_the_first_stage(
    doubtful: DoubtfulFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(stock, *doubtful.flags[:2], "--out", tmp_path / "1", *QUICK, "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = [line["warning"] if line["kind"] == "warning" else line["kind"] for line in lines]
    assert max(places(told, *EARLY)) < told.index("stage")
    places(told, STEPS)


def test_a_search_reports_data_warnings_before_its_first_trial(
    doubtful: DoubtfulFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_asked: object, **_more: object) -> None:
        raise ConfigurationError("the search begins")

    monkeypatch.setattr("trainers.stock.tuning.command.search", refuse)
    quick = ("--horizons", "1,3", "--encoder-length", "10")
    assert exit_code(tune_stock, *doubtful.flags[:2], "--out", tmp_path / "1", *quick) == 1
    printed = without_breaks(capsys.readouterr().out)
    assert [printed.count(f"warning: {text}") for text in EARLY] == [1, 1]
    assert printed.count(STEPS) == 1


def test_an_ensemble_reports_data_warnings_before_its_work_and_records_them(
    doubtful: DoubtfulFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = replace(RECIPE, optimisation=replace(RECIPE.optimisation, seed=1))
    train(TrainingMaterial(bars(), load_default_features()), other, tmp_path / "2", consume=iter)
    out = tmp_path / "joint"
    assert exit_code(ensemble, doubtful.artifact, tmp_path / "2", *doubtful.flags, "--out", out, "--json") == 0
    printed = capsys.readouterr()
    beside = without_breaks(printed.err)
    assert [beside.count(f"warning: {text}") for text in JUDGED] == [1, 1, 1]
    assert beside.index(SPLIT) < beside.index("computing features")
    places(json.loads(printed.out)["card"]["data"]["notes"], *JUDGED)


# --- judgements


def test_an_evaluation_reports_data_warnings_before_its_work_and_records_them(
    doubtful: DoubtfulFiles, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    flags = ("--seeds", "1", "--device", "cpu", "--json", "--report", page)
    with few_baselines():
        assert exit_code(evaluate_command, doubtful.artifact, *doubtful.flags, *flags) == 0
    printed = capsys.readouterr()
    places(json.loads(printed.out)["warnings"], *JUDGED)
    beside = without_breaks(printed.err)
    assert [beside.count(f"warning: {text}") for text in JUDGED] == [1, 1, 1]
    assert beside.index(SPLIT) < beside.index("computing features")
    assert all(text in page.read_text(encoding="utf-8") for text in JUDGED)


def test_a_backtest_reports_data_warnings_before_its_work_and_records_them(
    doubtful: DoubtfulFiles, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    period = ("--start", "2013-01-02", "--end", "2013-02-15", "--horizon", "1", "--out", tmp_path / "run")
    page = tmp_path / "page.html"
    assert exit_code(backtest_command, doubtful.artifact, *doubtful.flags, *period, "--json", "--report", page) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = [line["warning"] if line["kind"] == "warning" else line["kind"] for line in lines]
    assert max(places(told, *JUDGED)) < told.index("fold")
    places(lines[-1]["warnings"], *JUDGED)
    assert all(text in page.read_text(encoding="utf-8") for text in JUDGED)


def test_an_audit_reports_data_warnings_before_its_work_and_records_them(
    doubtful: DoubtfulFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = ("--sessions", "1", "--permutations", "1", "--epochs", "1", "--horizon", "1", "--device", "cpu")
    assert exit_code(audit_command, doubtful.artifact, *doubtful.flags, *quick) == 0
    printed = without_breaks(capsys.readouterr().out)
    assert [printed.count(f"warning: {text}") for text in JUDGED] == [1, 1, 1]
    assert printed.index(SPLIT) < printed.index("forecasting")
    record = json.loads((doubtful.folder / "1.audit.json").read_text(encoding="utf-8"))
    places(record["warnings"], *JUDGED)


RAW = ("open", "high", "low", "close")
TAKEN_BACK = (
    "IBM 2013-02-15: the close changes from 199.65 to 20098 and back on 2013-02-19, the adjusted close from 172.455 to "
    "173.604: no split does that: a wrong close?"
)
LAST_CLOSE = (
    "IBM 2013-03-01: the close changes from 200.83 to 2.0291, the adjusted close from 173.475 to 175.271: "
    "a split, or a wrong close? Forecast prices start from the last close"
)


def test_every_command_asks_about_wrong_closes_in_the_same_words(tmp_path: Path) -> None:
    split = scaled(bokeh_panel("AAPL", "IBM").last(400), slice(-5), 20, RAW, symbol="AAPL")
    wrong, file = scaled(scaled(split, slice(-10, -9), 100, RAW), slice(-1, None), 0.01, RAW), tmp_path / "bars.csv"
    wrong.write_csv(file)
    model = tmp_path / "1"
    bars_flag, quick = ("--bars", file), ("--horizons", "1,3", "--encoder-length", "10")
    period = ("--start", "2013-01-02", "--end", "2013-02-27", "--horizon", "1")
    commands = {
        "check": ("check", file, "--json"),
        "train": ("train", "stock", *bars_flag, "--model", "har", *quick, "--out", model, "--json"),
        "predict": ("predict", "--artifact", model, *bars_flag, "--json"),
        "evaluate": ("evaluate", model, *bars_flag, "--seeds", "1", "--device", "cpu", "--json"),
        "backtest": ("backtest", model, *bars_flag, *period, "--out", tmp_path / "run", "--json"),
    }
    for name, command in commands.items():
        with few_baselines():
            ran = CliRunner().invoke(app, [*map(str, command)], catch_exceptions=False)
        assert ran.exit_code == 0, (name, ran.output)
        assert {*re.findall(r'"([^"]*a wrong close\?[^"]*)"', ran.stdout)} == {TAKEN_BACK, LAST_CLOSE}, name


def test_a_symbol_without_a_training_window_is_reported_and_counts_as_unseen(tmp_path: Path) -> None:
    panel = bokeh_panel("AAPL", "GOOG", "IBM").last(400)
    names = ("open", "high", "low", "close", "volume", "adj_close")
    columns = {name: getattr(panel, name).copy() for name in names}
    for column in columns.values():
        column[1, :-30] = np.nan
    young = replace(panel, **columns, calendar="")
    har = replace(RECIPE, kind="har", config=UnconditionalConfig())
    told: list[str] = []

    made = train(TrainingMaterial(young, load_default_features()), har, tmp_path / "1", consume=iter, warn=told.append)

    (line,) = [one for one in told if "too few bars for a window of the training part" in one]
    assert line.startswith("GOOG: ")
    data = made.summary.data
    assert data is not None
    assert (data.untaught, line in data.notes) == (("GOOG",), True)
    with Forecaster.load(made.folder) as forecaster:
        warnings = forecaster.predict(young.select(["AAPL", "GOOG"])).warnings
    assert [one[:5] for one in warnings if "not among the symbols" in one] == ["GOOG:"]

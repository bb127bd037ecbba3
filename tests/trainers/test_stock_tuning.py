"""Hyper-parameter search: trials, storage, and the reported best score."""

import itertools
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
import typer
from market import bokeh_panel, learnable_bars
from optuna.trial import FixedTrial
from small_jobs import PickledJobs

from predictor import artifact
from predictor.cli import run
from predictor.errors import ConfigurationError
from predictor.features import FeatureDefinition, FeatureSet
from predictor.jobs import JobOutcome, JobPool, JobRunner, LocalRunner, run_job
from predictor.networks import KINDS, LSTMConfig, Setting, Target, get_kind
from predictor.replacement import claim_output
from trainers.loop import EpochReport, LoopError, Report, StepReport
from trainers.stock.data import History
from trainers.stock.model_fit import fit_pipeline, prepare
from trainers.stock.recipe import Optimisation, StockRecipe
from trainers.stock.splits import SplitPart
from trainers.stock.training_data import TrainingMaterial
from trainers.stock.tuning import Search, SearchResult, StudyStorage, search
from trainers.stock.tuning.command import tune_stock
from trainers.stock.tuning.search import (
    BATCH_SIZES,
    STARTUP_TRIALS,
    WARMUP_EPOCHS,
    TrialJob,
    TrialTraining,
    open_study,
    suggest_recipe,
)

FEATURES = FeatureSet(
    observed=(
        FeatureDefinition("return_1", "Log($close / Ref($close, 1))", "return", "log return"),
        FeatureDefinition("range_1", "Log($high / $low)", "range", "log return"),
    )
)
RECIPE = StockRecipe(
    target=Target(horizons=(1, 3)),
    encoder_length=5,
    calendar="XNYS",
    config=LSTMConfig(hidden=16, layers=1),
    optimisation=Optimisation(max_epochs=2),
)


@pytest.fixture(scope="module")
def material() -> TrainingMaterial:
    return TrainingMaterial(learnable_bars(bokeh_panel("AAPL").last(360)), FEATURES)


@pytest.fixture(scope="module")
def history(material: TrainingMaterial) -> History:
    splits = RECIPE.splits(material.bars.sessions)
    return History(material.bars, fit_pipeline(material.bars, FEATURES, RECIPE, splits))


def search_of(history: History, *, trials: int = 2, recipe: StockRecipe = RECIPE) -> Search:
    splits = recipe.splits(history.bars.sessions)
    return Search(
        history=history, splits=splits, recipe=recipe, settings=dict(recipe.settings()), trials=trials, seeds=2
    )


def stored(folder: Path) -> StudyStorage:
    return StudyStorage(uri=f"sqlite:///{folder / 'study.db'}", name="quantra")


class RecordingConsumer:
    """A consumer that counts reports and records announcements."""

    def __init__(self) -> None:
        self.epochs = 0
        self.windows = 0
        self.said: list[str] = []

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        for report in reports:
            self.epochs += isinstance(report, EpochReport)
            self.windows += isinstance(report, StepReport)
            yield report

    def announce(self, said: str) -> None:
        self.said.append(said)


class LowestTrial(FixedTrial):
    """A trial that suggests the lowest values and records the requests."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked: set[str] = set()

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        assert step is None
        assert low < high
        assert not log or low > 0
        self.asked.add(name)
        return low

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        self.asked.add(name)
        return choices[0]


@pytest.mark.parametrize("kind", sorted(name for name, kind in KINDS.items() if kind.is_trainable))
def test_a_trial_varies_only_what_its_kind_of_network_has(kind: str) -> None:
    recipe = StockRecipe(kind=kind, config=get_kind(kind).config())
    trial = LowestTrial()
    found = suggest_recipe(trial, recipe)
    own = {field.name for field in fields(get_kind(kind).config)}
    assert trial.asked - {"learning_rate", "weight_decay", "batch_size"} <= own
    assert {"hidden", "dropout"} <= trial.asked
    assert found.optimisation.batch_size == BATCH_SIZES[0]
    assert found.target == recipe.target


def test_a_search_tries_so_often_and_fits_the_best_again_from_fresh_seeds(history: History, tmp_path: Path) -> None:
    heard = RecordingConsumer()
    found = search(search_of(history), stored(tmp_path), consume=heard, announce=heard.announce)
    assert found.trials == 2
    assert found.failed == 0
    assert len(found.seed_losses) == 2
    assert len(set(found.seed_losses)) == 2
    assert heard.epochs == (2 + 2) * 2
    assert [said.split(";")[0] for said in heard.said[:2]] == ["trial 1 of 2", "trial 2 of 2"]


def test_a_stopped_search_resumes(history: History, tmp_path: Path) -> None:
    search(search_of(history, trials=1), stored(tmp_path), consume=iter)
    heard = RecordingConsumer()
    found = search(search_of(history, trials=2), stored(tmp_path), consume=heard, announce=heard.announce)
    assert found.trials == 2
    assert heard.said[0].startswith("trial 2 of 2; the best selection loss so far is")
    assert heard.epochs == (1 + 2) * 2


def test_machines_that_begin_together_draw_different_trials(history: History, tmp_path: Path) -> None:
    others: list[SearchResult] = []

    def announce(_: str) -> None:  # the study is open, but has no trial yet
        if not others:
            others.append(search(search_of(history, trials=1), stored(tmp_path), consume=iter))

    search(search_of(history, trials=2), stored(tmp_path), consume=iter, announce=announce)
    with open_study(stored(tmp_path), RECIPE.settings(), 0) as study:
        first, second = (trial.params for trial in study.trials)
    assert first != second


def test_a_study_of_other_settings_is_refused(history: History, tmp_path: Path) -> None:
    search(search_of(history, trials=1), stored(tmp_path), consume=iter)
    other = replace(RECIPE, quantiles=(0.2, 0.5, 0.8))
    with pytest.raises(ConfigurationError, match="searched with other bars, features or settings"):
        search(search_of(history, recipe=other), stored(tmp_path), consume=iter)


def test_the_first_trials_error_is_reported(history: History, tmp_path: Path) -> None:
    def fail(reports: Iterable[Report], /) -> Iterator[Report]:
        del reports
        raise ConfigurationError("the consumer broke")

    with pytest.raises(ConfigurationError, match="the consumer broke"):
        search(search_of(history), stored(tmp_path), consume=fail)


def test_a_search_without_a_finished_trial_is_an_error(history: History, tmp_path: Path) -> None:
    def fail(reports: Iterable[Report], /) -> Iterator[Report]:
        del reports
        raise LoopError("the loss is no number")

    with pytest.raises(ConfigurationError, match=r"^trial 1: the loss is no number$"):
        search(search_of(history, trials=1), stored(tmp_path), consume=fail)
    with pytest.raises(ConfigurationError, match=r"no trial of the 1 in study 'quantra' finished; .* --trials"):
        search(search_of(history, trials=1), stored(tmp_path), consume=iter)


def test_a_trial_that_fails_after_a_finished_one_is_counted(history: History, tmp_path: Path) -> None:
    fits = itertools.count(1)

    def fail_second(reports: Iterable[Report], /) -> Iterator[Report]:
        if next(fits) == 2:
            raise LoopError("the loss is no number")
        return iter(reports)

    heard = RecordingConsumer()
    found = search(search_of(history), stored(tmp_path), consume=fail_second, announce=heard.announce)
    assert (found.trials, found.failed) == (2, 1)
    assert "trial 2: the loss is no number; the search continues" in heard.said


@final
class TwoJobs(JobRunner):
    """Two jobs at a time in this process, of which the one at a place ends first: 0 the older, -1 the newer."""

    slots = 2

    def __init__(self, place: int) -> None:
        super().__init__()
        self._place = place

    @contextmanager
    def _open(self, prepare: Callable[[], Callable[[Any], Any]], count: int) -> Generator[JobPool]:
        del count
        self._work, self._running = prepare(), list[tuple[int, Any]]()
        yield self

    def start(self, number: int, job: Any) -> bool:
        self._running.append((number, job))
        return True

    def wait(self, seconds: float | None) -> Iterator[tuple[int, JobOutcome]]:
        del seconds
        number, job = self._running.pop(self._place if len(self._running) > 1 else 0)
        yield number, run_job(self._work, job)

    def stop(self, number: int) -> None:
        raise AssertionError(number)


@pytest.mark.slow
def test_the_trials_of_two_processes_do_not_depend_on_which_ends_first(history: History, tmp_path: Path) -> None:
    def run(name: str, runner: JobRunner) -> tuple[SearchResult, list[Any]]:
        storage = StudyStorage(uri=f"sqlite:///{tmp_path / name}", name="quantra")
        recipe = replace(RECIPE, optimisation=Optimisation(max_epochs=1))
        result = search(search_of(history, trials=7, recipe=recipe), storage, consume=iter, runner=runner)
        with open_study(storage, recipe.settings(), 0) as study:
            return result, [(trial.params, trial.value, trial.intermediate_values) for trial in study.trials]

    older, newer = run("older.db", TwoJobs(0)), run("newer.db", TwoJobs(-1))
    assert older == newer
    assert older != run("one.db", LocalRunner())  # whose seventh trial knows one result more


@pytest.mark.slow
def test_a_trial_is_pruned_by_the_losses_of_those_that_were_finished(history: History) -> None:
    recipe = replace(RECIPE, optimisation=Optimisation(max_epochs=4))
    training = TrialTraining(history=history, splits=recipe.splits(history.bars.sessions), consume=iter)
    worse, better = (
        TrialJob(name="trial", recipe=recipe, finished=STARTUP_TRIALS * (dict.fromkeys(range(4), loss),))
        for loss in (-9.0, 9.0)
    )
    (_, pruned), (_, whole) = PickledJobs().run(training.worker, [worse, better])
    assert training.worker()(better) == whole
    assert pruned.best is None
    assert list(pruned.epochs) == list(range(WARMUP_EPOCHS + 1))
    assert whole.best is not None
    assert list(whole.epochs) == list(range(4))


def test_a_second_search_for_the_same_artifact_is_rejected(
    material: TrainingMaterial, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    material.bars.write_csv(tmp_path / "bars.csv")
    app = typer.Typer(add_completion=False)
    app.command()(tune_stock)
    with claim_output(tmp_path / "1.tune.db"), pytest.raises(SystemExit) as ended:
        run(app, [f"--bars={tmp_path / 'bars.csv'}", f"--out={tmp_path / '1'}", "--features=prices"])
    assert ended.value.code == 1
    assert "1.tune.db is in use by process" in capsys.readouterr().err


def test_a_horizon_that_no_training_window_knows_is_refused_before_anything_is_fitted(
    material: TrainingMaterial,
) -> None:
    splits = RECIPE.splits(material.bars.sessions)
    blind = History(material.bars, fit_pipeline(material.bars, FEATURES, RECIPE, splits))
    blind.labels[..., 1] = np.nan
    with pytest.raises(ConfigurationError, match="split train has no known outcome 3 sessions ahead; give more bars"):
        prepare(blind, splits, RECIPE, None)


@pytest.mark.parametrize("uri", ["postgresql://me:hidden@host/db", "postgresql://host/db?user=me&password=hidden"])
def test_a_password_in_the_storages_address_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="holds a password") as refused:
        StudyStorage(uri=uri, name="quantra")
    assert "hidden" not in str(refused.value)


def test_a_database_without_a_driver_cannot_be_opened() -> None:
    with (
        pytest.raises(ConfigurationError, match="storage of study 'quantra' cannot be opened: "),
        open_study(StudyStorage(uri="oracle://host/db", name="quantra"), {}, seed=0),
    ):
        raise AssertionError


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are listed under Linux alone")
def test_a_studys_database_is_closed_at_the_end(tmp_path: Path) -> None:
    database = tmp_path / "tune.db"

    def is_open() -> bool:
        return any(one.is_symlink() and one.readlink() == database for one in Path("/proc/self/fd").iterdir())

    with open_study(StudyStorage(uri=f"sqlite:///{database}", name="quantra"), {}, seed=0) as study:
        assert study.trials == []
        assert is_open()
    assert not is_open()
    with (
        pytest.raises(ConfigurationError, match="other bars, features or settings"),
        open_study(StudyStorage(uri=f"sqlite:///{database}", name="quantra"), {"bars": 1}, seed=0),
    ):
        raise AssertionError
    assert not is_open()


def test_the_figures_of_a_search_are_the_fresh_seeds() -> None:
    result = SearchResult(
        recipe=RECIPE,
        selection=SplitPart("selection", 20090102, 20090331),
        trials=9,
        pruned=1,
        failed=1,
        best_trial_loss=0.2,
        seed_losses=(0.3, 0.5),
    )
    assert result.mean == pytest.approx(0.4)
    assert result.deviation == pytest.approx(0.1 * 2**0.5)
    assert result.card()["trials"] == 9
    assert result.card()["selection"] == {"first": 20090102, "last": 20090331}


def test_the_card_of_what_was_found_tells_of_the_search(
    material: TrainingMaterial, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    material.bars.write_csv(tmp_path / "bars.csv")
    features = {
        "operator_set": 1,
        "observed": [
            {"name": f.name, "expression": f.expression, "meaning": f.meaning, "unit": f.unit}
            for f in FEATURES.observed
        ],
        "known": [],
    }
    (tmp_path / "features.json").write_text(json.dumps(features))
    out = tmp_path / "models" / "1"
    flags: dict[str, Setting | Path] = {
        "bars": tmp_path / "bars.csv",
        "out": out,
        "features": tmp_path / "features.json",
        "horizons": "1,3",
        "encoder-length": 5,
        "epochs": 1,
        "trials": 1,
        "seeds": 2,
        "feature-cache": tmp_path / "cache",
    }
    app = typer.Typer(add_completion=False)
    app.command()(tune_stock)
    with pytest.raises(SystemExit) as ended:
        run(app, [*(f"--{name}={value}" for name, value in flags.items()), "--json"])
    assert ended.value.code == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["kind"] == "tuned"
    assert artifact.load(out).artifact.manifest.card["tuning"] == last["tuning"]
    assert last["tuning"]["trials"] == 1
    assert (out.parent / "1.tune.db").is_file()
    assert len(list(tmp_path.glob("cache/*/observed.npy"))) == 1  # for the trials and the last training


def test_without_optuna_the_extra_is_named_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(_name: str) -> None:
        """Raises as for a missing package."""

    monkeypatch.setattr(import_module("trainers.stock.tuning.search"), "find_spec", missing)
    app = typer.Typer(add_completion=False)
    app.command()(tune_stock)
    with pytest.raises(SystemExit) as ended:
        run(app, [f"--bars={tmp_path / 'none.csv'}", f"--out={tmp_path / '1'}"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "a search for settings needs the package optuna: pip install 'quantra[tune]'\n"

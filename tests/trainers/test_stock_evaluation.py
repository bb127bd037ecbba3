"""Evaluation on unseen days against the baselines, and refusals."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch
from baseline_cases import few_baselines
from command_exits import exit_code
from market import bokeh_panel
from numpy.typing import NDArray
from small_jobs import PickledJobs
from small_recipes import SMALL_RECIPE

from predictor.artifact import Conformal, EnsembleManifest, load
from predictor.bars import BarPanel
from predictor.canonical import Record
from predictor.errors import ArtifactError, ConfigurationError, InSampleError
from predictor.features import load_default_features
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import Instance
from predictor.jobs import JobRunner
from predictor.model import Ensemble, Model, ModelIdentity, build_output_map
from predictor.networks import Target, TargetKind
from predictor.registry import Runtime, load_single
from trainers.loop import Report
from trainers.stock import StockRecipe, TrainingResult, train
from trainers.stock.data import History
from trainers.stock.evaluation.baselines import SCALED, BaselineModel, BaselinePlan, FitScope, FittedBaseline
from trainers.stock.evaluation.baselines.baseline import BaselineSample
from trainers.stock.evaluation.bound_model import bind_model
from trainers.stock.evaluation.calibration import ForecastWindows, forecast_adaptively
from trainers.stock.evaluation.command import evaluate_command
from trainers.stock.evaluation.comparison import SeedRefits
from trainers.stock.evaluation.evaluation import EvaluationSettings, ModelEvaluation, evaluate
from trainers.stock.evaluation.evaluation_set import EvaluationSet, forecasts_of
from trainers.stock.evaluation.scores import MODEL_NAME, ScoreRole, score
from trainers.stock.model_fit import assemble_model
from trainers.stock.splits import SplitPart, read_splits, select_unseen_part
from trainers.stock.training_data import TrainingMaterial

FloatArray = NDArray[np.float64]

COLUMNS = ("open", "high", "low", "close", "volume", "adj_close")
ALONE = EvaluationSettings(seeds=1)
FITTED = (
    "unconditional quantiles",
    "volatility-scaled quantiles",
    "HAR (1, 5, 22 days)",
    "relative HAR (1, 5, 22, 60 days)",
    "GARCH(1,1)-t",
    "ridge",
    "LightGBM quantiles",
)
LAST_SEEN = 20120827
FIRST_ALLOWED = 20120828


@cache
def bars() -> BarPanel:
    return bokeh_panel("AAPL", "GOOG").last(900)


def no_progress(reports: Iterable[Report]) -> Iterator[Report]:
    return iter(reports)


def ignore_reports(_stage: str) -> None:
    """A consumer that ignores all reports."""


def trained_into(folder: Path, recipe: StockRecipe = SMALL_RECIPE) -> TrainingResult:
    return train(TrainingMaterial(bars(), load_default_features()), recipe, folder / "1", consume=no_progress)


@pytest.fixture(scope="module")
def trained_model(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    return trained_into(tmp_path_factory.mktemp("trained"))


def loaded(made: TrainingResult) -> Model:
    return load_single(made.folder, ("tiny", 1), Runtime(device=torch.device("cpu"), max_rows=256))


def evaluated(
    made: TrainingResult,
    panel: BarPanel | None = None,
    wanted: EvaluationSettings = ALONE,
    runner: JobRunner | None = None,
) -> ModelEvaluation:
    return evaluate(loaded(made), panel or bars(), wanted, consume=no_progress, announce=ignore_reports, runner=runner)


@pytest.fixture(scope="module")
def evaluation(trained_model: TrainingResult) -> ModelEvaluation:
    return evaluated(trained_model, wanted=replace(ALONE, adaptive=True))


@pytest.fixture
def with_few_baselines() -> Iterator[None]:
    with few_baselines():
        yield


def changed_bars(panel: BarPanel, symbol: int, days: slice, value: float) -> BarPanel:
    """The bars with every price of some days set to this value; NaN removes the bar."""
    columns = {name: np.array(getattr(panel, name)) for name in COLUMNS}
    for name, column in columns.items():
        if name != "volume" or np.isnan(value):
            column[symbol, days] = value
    return replace(panel, **columns)


def session_index(session: int) -> int:
    return int(np.searchsorted(bars().sessions, session))


# --- results


def test_the_model_and_all_baselines_stand_in_one_table_best_first(evaluation: ModelEvaluation) -> None:
    assert {row.name for row in evaluation.rows} == {
        MODEL_NAME,
        "zero return",
        "60-day empirical quantiles",
        "60-day empirical quantiles, calibrated",
        *(f"{name}, {fit}" for name in FITTED for fit in ("calibrated", "refitted")),
    }
    assert {row.fit for row in evaluation.rows if row.role is ScoreRole.BASELINE} == set(FitScope)
    means = [row.mean.value for row in evaluation.rows]
    assert means == sorted(means)
    assert evaluation.skill.baseline == evaluation.comparison.baseline
    assert evaluation.skill.improvement == evaluation.comparison.improvement
    assert evaluation.confidence_set is not None
    assert set(evaluation.confidence_set.p_values) == {*evaluation.skill.rivals, MODEL_NAME}
    assert evaluation.rows[0].name in evaluation.confidence_set.members
    assert (evaluation.skill.first_day, evaluation.skill.last_day) == (evaluation.period.first, evaluation.period.last)
    assert f"that of the best of 17 baselines, {evaluation.skill.baseline}; improvement" in evaluation.skill.sentence


def test_the_first_day_that_is_judged_is_the_one_after_the_last_label_that_was_seen(
    evaluation: ModelEvaluation,
) -> None:
    assert evaluation.period.seen_until == LAST_SEEN
    assert evaluation.period.first == FIRST_ALLOWED
    assert evaluation.period.last == int(bars().sessions[-1 - SMALL_RECIPE.target.reach])
    assert evaluation.period.windows == 2 * evaluation.period.days


def test_every_number_is_json(evaluation: ModelEvaluation) -> None:
    told = json.loads(json.dumps(evaluation.to_json(), allow_nan=False))
    assert told["sentence"] == evaluation.skill.sentence
    assert told["target"] == {"kind": "log-return", "lag": 0, "horizons": [1, 3]}
    row = next(row for row in told["rows"] if row["name"] == MODEL_NAME)
    assert set(row["horizons"][0]) >= {
        "pinball",
        "pinball_by_level",
        "crps",
        "risk",
        "below",
        "band",
        "winkler",
        "mae",
        "qlike",
        "correlation",
    }


def test_forecasts_are_those_that_are_served_on_each_day(trained_model: TrainingResult) -> None:
    model = loaded(trained_model)
    history = History(bars(), model.pipeline)
    windows = history.windows(SplitPart("test", 20120904, 20121130))
    ours = forecasts_of(model.engine, build_output_map(model.manifest), history, windows)
    for row in (0, 31):
        day, symbol = int(bars().sessions[windows.positions[row]]), int(windows.symbols[row])
        served = model.forecast([model.prepare(Instance(input=bars().until(day)), AFTER_ALL_SESSIONS)])[0]
        np.testing.assert_allclose(ours.calibrated[row], served.values[symbol], rtol=1e-5, atol=1e-8)
    assert (ours.raw != ours.calibrated).any()


def test_no_forecast_moves_when_later_bars_change(trained_model: TrainingResult) -> None:
    model = loaded(trained_model)
    day = session_index(20121001)
    columns = {name: np.array(getattr(bars(), name)) for name in COLUMNS}
    for column in columns.values():
        column[:, day + 1 :] = 100.0
    later = replace(bars(), **columns)
    before, after = (_forecasts(model, panel, int(bars().sessions[day])) for panel in (bars(), later))
    np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-9)


def _forecasts(model: Model, panel: BarPanel, until: int) -> FloatArray:
    history = History(panel, model.pipeline)
    windows = history.windows(SplitPart("test", FIRST_ALLOWED, int(panel.sessions[-1])))
    chosen = panel.sessions[windows.positions] <= until
    return forecasts_of(model.engine, build_output_map(model.manifest), history, windows).calibrated[chosen]


def test_offsets_and_adaptive_offsets_are_compared_with_none_and_show_their_effective_blocks(
    evaluation: ModelEvaluation,
) -> None:
    made, days = evaluation.calibration, 126
    assert made.adaptive is not None
    assert made.adaptive_gain is not None
    assert made.after == replace(
        next(row for row in evaluation.rows if row.name == MODEL_NAME), name=made.after.name, role=made.after.role
    )
    assert made.before != made.after != made.adaptive
    assert made.effective_blocks[0] / 3 == pytest.approx(made.effective_blocks[1])
    assert made.effective_blocks[0] <= days
    for moved, gains in ((made.after, made.gain), (made.adaptive, made.adaptive_gain)):
        for before, after, gain in zip(made.before.horizons, moved.horizons, gains, strict=True):
            assert gain.value == pytest.approx(1 - after.winkler.value / before.winkler.value)


def test_adaptive_offsets_walk_on_from_the_calibration_part(
    trained_model: TrainingResult, evaluation: ModelEvaluation
) -> None:
    model = loaded(trained_model)
    reading = bind_model(model, bars())
    test = SplitPart("test", int(bars().sessions[session_index(FIRST_ALLOWED) + 1]), int(bars().sessions[-1]))
    seen, asked = (
        ForecastWindows(windows=windows, forecasts=reading.forecasts(windows))
        for windows in map(reading.windows, (read_splits(trained_model.card).calibration, test))
    )
    moved = forecast_adaptively(reading.history, seen, asked, model.manifest.quantiles)
    judged = EvaluationSet.of(reading.history, asked.windows, model.manifest.quantiles)
    assert evaluation.calibration.adaptive == score(judged, moved, name="adaptive", role=ScoreRole.VARIANT)


def test_skill_is_that_of_the_forecasts_as_they_are_served_over_the_best_baseline(evaluation: ModelEvaluation) -> None:
    means = {row.name: row.mean.value for row in evaluation.rows}
    assert evaluation.skill.baseline == min(means.keys() - {MODEL_NAME}, key=lambda name: means[name])
    assert evaluation.skill.improvement.value == pytest.approx(1 - means[MODEL_NAME] / means[evaluation.skill.baseline])


def test_the_card_of_a_training_tells_winkler_scores_before_and_after_its_offsets(
    trained_model: TrainingResult,
) -> None:
    told = Record(trained_model.card, "card").record("conformal")
    before, after = told.numbers("winkler_before"), told.numbers("winkler_after")
    assert len(before) == len(after) == len(told.numbers("effective_samples")) == 2
    assert before != after
    assert all(0 < share < 1 for share in (*told.numbers("band_coverage_before"), *told.numbers("band_coverage_after")))


def test_each_symbol_is_judged_on_its_own_windows(evaluation: ModelEvaluation) -> None:
    assert [row.symbol for row in evaluation.by_symbol] == ["AAPL", "GOOG"]
    ours = next(row for row in evaluation.rows if row.name == MODEL_NAME)
    assert np.mean([row.mean.value for row in evaluation.by_symbol]) == pytest.approx(ours.mean.value)


def test_volatility_has_qlike_and_its_own_baselines(tmp_path: Path) -> None:
    target = Target(kind=TargetKind.LOG_VOLATILITY, horizons=(1, 3))
    found = evaluated(trained_into(tmp_path, replace(SMALL_RECIPE, target=target, normaliser=None)))
    assert {row.name for row in found.rows} >= {
        "last value",
        "HAR (1, 5, 22 days), refitted",
        "GARCH(1,1)-t, calibrated",
        "LightGBM quantiles, refitted",
    }
    assert all(h.qlike is not None and h.qlike.value > 0 for row in found.rows for h in row.horizons)


@pytest.mark.slow
@pytest.mark.usefixtures("with_few_baselines")
def test_other_seeds_are_the_same_recipe_on_the_same_splits(trained_model: TrainingResult, tmp_path: Path) -> None:
    found = evaluated(trained_model, wanted=EvaluationSettings(seeds=2), runner=PickledJobs())
    other = replace(SMALL_RECIPE, optimisation=replace(SMALL_RECIPE.optimisation, seed=1))
    alone = evaluated(trained_into(tmp_path, other))
    pair = [next(row for row in each.rows if row.name == MODEL_NAME) for each in (found, alone)]
    assert found.seeds is not None
    assert found.seeds.seeds == (0, 1)
    means = [row.mean.value for row in pair]
    assert found.seeds.mean.mean == pytest.approx(np.mean(means))
    assert found.seeds.mean.sd == pytest.approx(np.std(means, ddof=1))
    assert found.seeds.winkler[1].mean == pytest.approx(np.mean([row.horizons[1].winkler.value for row in pair]))
    assert found.seeds.comparison.baseline == found.skill.baseline


def ensemble_of(*members: Model) -> Ensemble:
    """An ensemble with its own offsets and its first member's splits in the card."""
    first = members[0].manifest
    manifest = EnsembleManifest(
        members={f"m{k}": "" for k in range(len(members))},
        target=first.target,
        quantiles=first.quantiles,
        calendar=members[0].pipeline.calendar.name,
        conformal=Conformal(offsets=((-0.1, 0.0, 0.1),) * 2, effective_samples=(120.0, 40.0)),
        card={"splits": first.card["splits"]},
    )
    named = {f"m{k}": member for k, member in enumerate(members)}
    return Ensemble(ModelIdentity(name="joint", version=1, weights_hash=""), manifest, named)


@pytest.mark.usefixtures("with_few_baselines")
def test_an_ensemble_is_judged_by_the_mean_of_its_members_and_has_no_other_seeds(
    trained_model: TrainingResult, tmp_path: Path
) -> None:
    longer = trained_into(tmp_path, replace(SMALL_RECIPE, encoder_length=12))
    joint = ensemble_of(loaded(trained_model), loaded(longer))
    found = evaluate(
        joint, bars(), EvaluationSettings(seeds=3, adaptive=True), consume=no_progress, announce=ignore_reports
    )
    assert found.seeds is None
    assert found.notes[-1] == "an ensemble has no recipe, so it is not trained from other seeds"
    assert found.calibration.effective_blocks == (120.0, 40.0)
    reading = bind_model(joint, bars())
    windows = reading.windows(SplitPart("test", 20120904, 20121130))
    said = reading.forecasts(windows)
    day, symbol = int(bars().sessions[windows.positions[9]]), int(windows.symbols[9])
    served = joint.forecast([joint.prepare(Instance(input=bars().until(day)), AFTER_ALL_SESSIONS)])[0]
    np.testing.assert_allclose(said.calibrated[9], served.values[symbol], rtol=1e-5, atol=1e-8)
    assert (said.raw[..., 0] > said.calibrated[..., 0]).all()


def calibrated_until(made: TrainingResult, session: int) -> Model:
    """The model with its calibration part ending at this session."""
    stored = load(made.folder).artifact
    splits = Record(stored.manifest.card, "card").json("splits")
    assert isinstance(splits, dict)
    assert isinstance(splits["calibration"], dict)
    assert isinstance(splits["test"], dict)
    later = {
        **splits,
        "calibration": {**splits["calibration"], "last": session},
        "test": {**splits["test"], "first": session + 100},
    }
    manifest = replace(stored.manifest, card={**stored.manifest.card, "splits": later})
    return assemble_model(replace(stored, manifest=manifest))


def test_an_ensemble_has_seen_what_any_of_its_members_was_calibrated_on(trained_model: TrainingResult) -> None:
    """Its own calibration part is the common one, which ends before that of the later member."""
    joint = ensemble_of(loaded(trained_model), calibrated_until(trained_model, 20121031))
    with pytest.raises(InSampleError, match=r"seen labels up to 2012-10-31.*first allowed decision day is 2012-11-01"):
        evaluate(joint, bars(), replace(ALONE, start=FIRST_ALLOWED), consume=no_progress, announce=ignore_reports)


class RecordingBaseline:
    """A baseline that records the parts on which it is fitted."""

    def __init__(self) -> None:
        self.fitted_on: list[tuple[int, int]] = []

    def estimate(self, sample: BaselineSample) -> FittedBaseline:
        self.fitted_on.append((sample.part.first, sample.part.last))
        return SCALED.estimator(sample)

    def plan(self, *_args: object) -> BaselinePlan:
        return BaselinePlan(baselines=(BaselineModel(name="watched", estimator=self.estimate),), notes=())


@pytest.fixture
def recording_baseline(monkeypatch: pytest.MonkeyPatch) -> RecordingBaseline:
    found = RecordingBaseline()
    monkeypatch.setattr("trainers.stock.evaluation.evaluation.all_baselines", found.plan)
    monkeypatch.setattr("trainers.stock.training.quick_baselines", found.plan)
    return found


def test_baselines_are_fitted_on_the_artifacts_training_part_and_on_all_that_it_has_seen(
    trained_model: TrainingResult, recording_baseline: RecordingBaseline
) -> None:
    splits = read_splits(trained_model.card)
    evaluated(trained_model)
    assert recording_baseline.fitted_on == [(splits.train.first, splits.train.last), (splits.train.first, LAST_SEEN)]


def test_a_training_fits_its_baselines_on_the_same_parts(recording_baseline: RecordingBaseline, tmp_path: Path) -> None:
    splits = read_splits(trained_into(tmp_path).card)
    assert recording_baseline.fitted_on == [(splits.train.first, splits.train.last), (splits.train.first, LAST_SEEN)]


def test_compared_with_an_ensemble_they_know_what_any_of_its_members_has_seen(
    trained_model: TrainingResult, recording_baseline: RecordingBaseline
) -> None:
    joint = ensemble_of(loaded(trained_model), calibrated_until(trained_model, 20121031))
    evaluate(joint, bars(), replace(ALONE, start=20121101), consume=no_progress, announce=ignore_reports)
    assert [last for _, last in recording_baseline.fitted_on] == [read_splits(trained_model.card).train.last, 20121031]


# --- refusals and messages


@pytest.mark.parametrize(
    ("start", "end", "error", "message"),
    [
        (LAST_SEEN, None, InSampleError, r"2012-08-27.*seen labels up to 2012-08-27.*is 2012-08-28"),
        (None, LAST_SEEN, InSampleError, r"days end on 2012-08-27.*is 2012-08-28"),
        (20121001, 20120928, ConfigurationError, "last decision day, 2012-09-28, is before the first, 2012-10-01"),
    ],
)
def test_invalid_decision_days_are_refused(
    trained_model: TrainingResult, start: int | None, end: int | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        evaluated(trained_model, wanted=replace(ALONE, start=start, end=end))


@pytest.mark.usefixtures("with_few_baselines")
@pytest.mark.parametrize(
    ("first", "last", "value", "note"),
    [
        (20120401, None, 50.0, "GOOG never moves on the evaluated days"),
        (20121112, 20121119, np.nan, "GOOG lacks 5 bars on the evaluated days: outcomes that need them are left out"),
        (20120801, None, np.nan, "GOOG has no window on the evaluated days"),
    ],
)
def test_a_symbol_with_incomplete_bars_is_noted(
    trained_model: TrainingResult, first: int, last: int | None, value: float, note: str
) -> None:
    found = evaluated(
        trained_model,
        changed_bars(bars(), 1, slice(session_index(first), None if last is None else session_index(last)), value),
    )
    assert note in found.notes
    json.dumps(found.to_json(), allow_nan=False)


def test_bars_of_the_training_alone_are_refused_with_the_first_day_that_is_allowed(
    trained_model: TrainingResult,
) -> None:
    with pytest.raises(InSampleError, match=r"bars end on 2012-08-27.*first allowed decision day is 2012-08-28"):
        evaluated(trained_model, bars().until(LAST_SEEN))


@pytest.mark.usefixtures("with_few_baselines")
def test_a_start_and_an_end_bound_the_decision_days(trained_model: TrainingResult) -> None:
    found = evaluated(trained_model, wanted=replace(ALONE, start=20120915, end=20121015))
    assert (found.period.first, found.period.last) == (20120917, 20121015)


@pytest.mark.parametrize(
    ("sessions", "message"), [(1, "have no outcome of a decision"), (3, "has no room for a target")]
)
def test_a_horizon_longer_than_what_is_left_is_refused(
    trained_model: TrainingResult, sessions: int, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        evaluated(trained_model, bars().until(int(bars().sessions[session_index(FIRST_ALLOWED) + sessions - 1])))


@pytest.mark.usefixtures("with_few_baselines")
def test_a_horizon_as_long_as_what_is_left_is_judged_on_one_day(trained_model: TrainingResult) -> None:
    found = evaluated(trained_model, bars().until(int(bars().sessions[session_index(FIRST_ALLOWED) + 3])))
    assert found.period.days == 1
    assert found.skill.sentence.startswith("No skill shown: the test split is 99 days too short")


def test_prices_that_never_move_are_refused(trained_model: TrainingResult) -> None:
    flat = changed_bars(
        changed_bars(bars(), 0, slice(session_index(20120401), None), 100.0),
        1,
        slice(session_index(20120401), None),
        50.0,
    )
    with pytest.raises(ConfigurationError, match="every outcome 1 sessions ahead is 0 on the evaluated days"):
        evaluated(trained_model, flat)


@pytest.mark.usefixtures("with_few_baselines")
def test_a_delisted_stock_is_judged_up_to_its_last_outcomes(trained_model: TrainingResult) -> None:
    last = session_index(20121130)
    found = evaluated(trained_model, changed_bars(bars(), 1, slice(last + 1, None), np.nan))
    apple, google = found.by_symbol
    assert apple.windows - google.windows == session_index(found.period.last) - (last - 1)
    assert any(note.startswith("GOOG has no bar after 2012-11-30") for note in found.notes)


def test_bars_without_the_training_part_are_refused(trained_model: TrainingResult) -> None:
    with pytest.raises(
        ConfigurationError, match=r"begin on 2012-01-03, after the training part.*give bars that include it"
    ):
        evaluated(trained_model, bars().between(20120101, 20130301))


@pytest.mark.usefixtures("with_few_baselines")
def test_bars_from_before_the_models_calendar_change_none_of_its_scores(trained_model: TrainingResult) -> None:
    longer, own = evaluated(trained_model, bokeh_panel("AAPL", "GOOG").last(1400)), evaluated(trained_model)
    assert longer.period == own.period
    assert longer.calibration == own.calibration


def test_a_bar_on_no_session_of_the_calendar_is_refused(trained_model: TrainingResult) -> None:
    sessions = bars().sessions.copy()
    sessions[session_index(20121224)] = 20121225
    with pytest.raises(ConfigurationError, match=r"XNYS held no session on 2012-12-25"):
        evaluated(trained_model, replace(bars(), sessions=sessions))


def test_a_card_without_splits_is_refused() -> None:
    with pytest.raises(ArtifactError, match="splits is missing"):
        read_splits({})


@pytest.mark.parametrize("lag", [0, 1])
def test_the_part_that_is_judged_holds_the_targets_of_the_first_allowed_decision(
    trained_model: TrainingResult, lag: int
) -> None:
    target = Target(horizons=(1, 3), lag=lag)
    part = select_unseen_part(bars().sessions, LAST_SEEN, target, loaded(trained_model).pipeline.calendar)
    assert part.first == int(bars().sessions[session_index(FIRST_ALLOWED) + lag + 1])


def test_a_training_imports_no_package_of_a_baseline_before_it_scores() -> None:
    packages = {"arch", "lightgbm", "rich", "sklearn", "statsmodels"}
    code = f"import sys, trainers.stock; print(*({packages} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert shown.stdout == "\n"


# --- the command


@pytest.fixture(scope="module")
def bars_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bars") / "bars.csv"
    bars().write_csv(path)
    return path


call = partial(exit_code, evaluate_command)


def test_the_command_shows_every_table(
    trained_model: TrainingResult,
    bars_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    flags = ("--seeds", "2", "--aci", "--all", "--feature-cache", tmp_path / "features")
    work, sent = SeedRefits.worker, list[BarPanel]()

    def send(refitting: SeedRefits) -> Callable[[int], FloatArray]:
        sent.append(refitting.bars)
        return work(refitting)

    monkeypatch.setattr(SeedRefits, "worker", send)
    assert call(trained_model.folder, "--bars", bars_file, *flags) == 0
    assert any(tmp_path.glob("features/*/observed.npy"))
    assert [isinstance(panel.close, np.memmap) for panel in sent] == [True]
    shown, told = capsys.readouterr()
    for word in (
        "LightGBM quantiles",
        "2 seeds",
        "blocks",
        "adaptive",
        "PIT",
        "P90 risk",
        "GOOG",
        "bootstrap",
    ):
        assert word in shown
    assert "epoch" not in shown
    assert "training with seed 1, 1 of 1" in told


@pytest.mark.usefixtures("with_few_baselines")
def test_the_command_prints_three_sentences_and_one_table(
    trained_model: TrainingResult, bars_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert call(trained_model.folder, "--bars", bars_file, "--seeds", "1") == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= 40
    assert "of the outcomes fell between the quantiles" in " ".join(shown.split())
    assert shown.count("pinball loss of log return") == 1
    assert "--all prints all tables" in shown


@pytest.mark.usefixtures("with_few_baselines")
def test_the_command_writes_a_report_too(trained_model: TrainingResult, bars_file: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    assert call(trained_model.folder, "--bars", bars_file, "--seeds", "1", "--report", report) == 0
    assert f"Evaluation of {trained_model.folder.parent.name}/{trained_model.folder.name}" in report.read_text("utf-8")


def test_a_report_that_could_not_be_written_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(tmp_path / "none", "--bars", "none.csv", "--report", tmp_path / "missing" / "report.html") == 1
    assert "create it first" in capsys.readouterr().err


@pytest.mark.usefixtures("with_few_baselines")
def test_the_command_writes_json_alone_to_standard_output(
    trained_model: TrainingResult, bars_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(trained_model.folder, "--bars", bars_file, "--seeds", "1", "--json") == 0
    told: Mapping[str, object] = json.loads(capsys.readouterr().out)
    assert told["seeds"] is None


@pytest.mark.parametrize(
    ("start", "message"), [("2012-01-03", "2012-08-28"), ("June", "--start is 'June', but must be a date")]
)
def test_the_command_refuses_seen_days_and_malformed_dates(
    trained_model: TrainingResult, bars_file: Path, capsys: pytest.CaptureFixture[str], start: str, message: str
) -> None:
    assert call(trained_model.folder, "--bars", bars_file, "--start", start) == 2
    assert message in capsys.readouterr().err

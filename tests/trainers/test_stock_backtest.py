"""Walk-forward backtest: training data of each fold, resuming, and refusals, on real bars."""

import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from command_exits import exit_code
from market import bokeh_panel, scaled
from small_recipes import SMALL_RECIPE

from predictor import canonical
from predictor.bars import BarPanel
from predictor.canonical import Json, Record
from predictor.errors import ArtifactError, ConfigurationError, InSampleError, format_date
from predictor.features import CovariateFields, FeatureDefinition, FeatureSet
from predictor.flags import ParsedFlags
from predictor.jobs import LocalRunner, ProcessRunner
from predictor.networks import GraphConfig, Target, TargetKind
from trainers.progress import ConsumerChain
from trainers.stock import DataSplits, Optimisation, SplitShares, StockRecipe, train
from trainers.stock.backtest import (
    Backtest,
    BacktestFolder,
    ModelSource,
    Strategy,
    StrategySettings,
    TradingTerms,
    WalkForwardPlan,
    artifact_source,
    backtest,
    command,
    recipe_source,
)
from trainers.stock.backtest.backtest import collect_settings, complete_plan, trade_forecasts
from trainers.stock.backtest.book import run_book
from trainers.stock.backtest.forecasts import DailyForecasts, forecast_daily
from trainers.stock.backtest.refits import (
    Fold,
    ForecastStore,
    RefitMaterial,
    make_tradable,
    refit_splits,
    split_sessions,
)
from trainers.stock.backtest.strategies import compute_benchmark_weights, decide_weights
from trainers.stock.feature_cache import FeatureCache
from trainers.stock.recipe import read_recipe
from trainers.stock.splits import list_decisions
from trainers.stock.training_data import TrainingMaterial

FEATURES = FeatureSet(
    observed=(
        FeatureDefinition("r1", "Log($close / Ref($close, 1))", "return", "log return"),
        FeatureDefinition("range", "Log($high / $low)", "range of the day", "log ratio"),
    )
)
TERMS = TradingTerms(horizon=3)
PARTS = DataSplits.by_dates([(20050103, 20061231), (20070101, 20071231), (20080101, 20081231), (20090101, 20101231)])
"""Two years of training, one of selection, one of calibration."""


@cache
def bars() -> BarPanel:
    return bokeh_panel("AAPL", "GOOG", "IBM").last(420)


def session(position: int) -> int:
    return int(bars().sessions[position])


PLAN = WalkForwardPlan(start=20130102, end=20130301, refit=30)
"""Two folds, of 30 sessions and of 11."""


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.json"
    path.write_bytes(canonical.to_bytes(SMALL_RECIPE.settings()))
    return path


@pytest.fixture
def source(recipe_file: Path) -> ModelSource:
    return recipe_source(recipe_file, FEATURES)


@pytest.fixture(scope="module")
def trained_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact trained on the bars before its test part."""
    folder = tmp_path_factory.mktemp("trained") / "1"
    train(TrainingMaterial(bars(), FEATURES), SMALL_RECIPE, folder, consume=ConsumerChain())
    return folder


def walked(
    source: ModelSource, folder: Path, plan: WalkForwardPlan = PLAN, *, resume: bool = False, workers: int = 1
) -> Backtest:
    return backtest(
        source,
        bars(),
        plan,
        terms=TERMS,
        strategy_settings=StrategySettings(),
        folder=BacktestFolder(path=folder, resume=resume),
        runner=LocalRunner() if workers == 1 else ProcessRunner(workers),
    )


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# --- folds


def test_folds_follow_one_another_and_end_with_the_period() -> None:
    folds = split_sessions(bars().sessions, WalkForwardPlan(start=session(300), end=session(349), refit=20))
    assert [(f.number, f.first, f.last) for f in folds] == [
        (1, session(300), session(319)),
        (2, session(320), session(339)),
        (3, session(340), session(349)),
    ]
    assert [f.learn_last for f in folds] == [session(299), session(319), session(339)]
    assert {f.learn_first for f in folds} == {session(0)}


def test_a_rolling_window_and_an_embargo_move_what_is_learnt_from() -> None:
    plan = WalkForwardPlan(start=session(300), end=session(349), refit=25, rolling=100, embargo=7)
    assert [(f.learn_first, f.learn_last) for f in split_sessions(bars().sessions, plan)] == [
        (session(193), session(292)),
        (session(218), session(317)),
    ]


@pytest.mark.parametrize("recipe", [SMALL_RECIPE, replace(SMALL_RECIPE, target=Target(horizons=(1, 20), lag=1))])
def test_no_label_that_a_fold_learns_from_reaches_its_first_decision(recipe: StockRecipe) -> None:
    for fold in split_sessions(bars().sessions, replace(PLAN, embargo=2)):
        target = make_tradable(recipe).target
        splits = refit_splits(bars().between(fold.learn_first, fold.learn_last), make_tradable(recipe))
        for part in (splits.train, splits.selection, splits.calibration):
            last = list_decisions(part, bars().sessions, target)[-1] + target.reach
            assert bars().sessions[last] <= fold.learn_last < fold.first


def test_a_refit_cuts_its_bars_in_the_proportions_of_splits_by_dates() -> None:
    splits = refit_splits(bars(), replace(SMALL_RECIPE, parts=PARTS))
    assert (splits.train.last, splits.selection.last) == (session(209), session(314))
    assert (splits.calibration.first, splits.calibration.last) == (session(315), session(419))


def test_bars_that_begin_with_the_first_decision_leave_nothing_to_learn_from() -> None:
    with pytest.raises(ConfigurationError, match="no session before 2011-"):
        split_sessions(bars().sessions, WalkForwardPlan(start=20000101, end=20130101, refit=10))


def test_a_period_outside_the_bars_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="do not have two sessions from 2014-01-01 to 2014-02-01"):
        split_sessions(bars().sessions, WalkForwardPlan(start=20140101, end=20140201))


def test_a_fold_with_too_little_to_learn_from_is_named(source: ModelSource, tmp_path: Path) -> None:
    plan = WalkForwardPlan(start=session(30), end=session(60), refit=20)
    with pytest.raises(ConfigurationError, match=r"fold 1, trained on 2011-.* needs at least 25 there"):
        walked(source, tmp_path / "run", plan)


# --- forecasts


def test_a_folds_forecasts_do_not_change_with_the_bars_after_them() -> None:
    fold = split_sessions(bars().sessions, PLAN)[0]
    refits = RefitMaterial(bars=bars(), features=FEATURES, recipe=make_tradable(SMALL_RECIPE))
    first = int(np.searchsorted(bars().sessions, fold.first))
    columns = {name: np.array(getattr(bars(), name)) for name in ("open", "high", "low", "close", "adj_close")}
    factors = np.random.default_rng(0).choice([0.5, 2.0], (3, len(bars().sessions) - first - 1))
    for column in columns.values():
        column[:, first + 1 :] *= factors
    found, changed = (one.forecast(fold) for one in (refits, replace(refits, bars=replace(bars(), **columns))))
    assert found.values[0].tobytes() == changed.values[0].tobytes()
    assert not np.array_equal(found.values[1:], changed.values[1:])
    assert np.isfinite(found.values).all()


def delisted(last: int) -> BarPanel:
    """The bars without the last ones of the first stock."""
    columns = {
        name: np.array(getattr(bars(), name)) for name in ("open", "high", "low", "close", "volume", "adj_close")
    }
    for column in columns.values():
        column[0, -last:] = np.nan
    return replace(bars(), **columns)


def test_a_stock_that_is_delisted_is_held_for_twenty_sessions_and_then_closed_in_every_book(
    source: ModelSource, tmp_path: Path
) -> None:
    found = backtest(
        source,
        delisted(25),
        replace(PLAN, refit=None),
        terms=TradingTerms(horizon=1, delisting_return=-0.5),
        strategy_settings=StrategySettings(strategy=Strategy.SIGN),
        folder=BacktestFolder(path=tmp_path / "run"),
    )
    for track in found.tracks[:2]:
        held = track.book.weights[:, 0]
        assert held[-26:-6].all()
        assert not held[-6:].any()
        assert np.flatnonzero(track.book.closed).tolist() == [len(held) - 6]
        assert track.figures.closed == 1
    equal, closes = found.benchmarks[0].book, bars().adjusted().close[1:]
    others = float(equal.weights[-7, 1:] @ (closes[:, -6] / closes[:, -7] - 1))
    assert equal.gross[-6] == pytest.approx(others - 0.5 * equal.weights[-7, 0])
    assert any("equal weight closed as delisted: 1; their return of -50 %" in note for note in found.notes)
    assert any("if the recipe's settings were chosen on these days" in note for note in found.notes)


def test_a_stock_without_bars_has_no_forecast(source: ModelSource, tmp_path: Path) -> None:
    plan, bare = replace(PLAN, refit=None), delisted(10)
    terms, folder = TradingTerms(horizon=1), BacktestFolder(path=tmp_path / "run")
    backtest(source, bare, plan, terms=terms, strategy_settings=StrategySettings(), folder=folder)
    store = ForecastStore(folder.path, collect_settings(source, bare, plan))
    known = np.isfinite(store.read(split_sessions(bare.sessions, plan)[0]).median[..., 0])
    assert known[:-10].all()
    assert known[-10:].tolist() == [[False, True, True]] * 10


def test_a_single_stock_has_no_forecast_until_it_has_enough_values_after_a_halt(trained_artifact: Path) -> None:
    model = artifact_source(trained_artifact, "cpu").require_trained_model().model
    halted = bars().select(("IBM",)).without_cells(np.arange(len(bars().sessions))[None] == 380)
    found = forecast_daily(model, halted, halted.sessions[375:410])
    assert np.flatnonzero(np.isfinite(found.median).all(axis=(1, 2))).tolist() == [*range(5), *range(26, 35)]


def test_books_are_traded_on_their_own_horizon_share_and_sessions(source: ModelSource) -> None:
    panel, places = bokeh_panel("AAPL", "GOOG", "IBM", "MSFT").last(420), slice(300, 380)
    told = DailyForecasts(
        sessions=panel.sessions[places],
        kind=TargetKind.LOG_RETURN,
        horizons=(1, 3),
        levels=(0.1, 0.5, 0.9),
        values=np.sort(np.random.default_rng(0).standard_normal((80, 4, 2, 3)), axis=-1),
    )
    strategy_settings, terms = StrategySettings(share=0.5), TradingTerms(horizon=3, cost_bps=30)
    found = trade_forecasts(source, panel, told, (), terms=terms, strategy_settings=strategy_settings, digest="")
    closes = panel.adjusted().close.T
    wanted = (decide_weights(told, 3, strategy_settings), *compute_benchmark_weights(closes[:380], 300, 0.5).values())
    for track, weights in zip(found.tracks, wanted, strict=True):
        book = run_book(weights, closes[places], terms).since(1)
        assert track.book.net.tobytes() == book.net.tobytes()
        assert track.book.weights.tobytes() == book.weights.tobytes()
        assert track.sessions.tolist() == told.sessions[1:].tolist()


# --- the run folder


class CountingSource:
    """Counts the folds that are forecast, and stops like a killed process after some."""

    def __init__(self, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.numbers: list[int] = []
        self.materials: list[RefitMaterial] = []
        forecast = RefitMaterial.forecast

        def count(material: RefitMaterial, fold: Fold) -> DailyForecasts:
            self.materials.append(material)
            if len(self.numbers) == most:
                raise KeyboardInterrupt
            self.numbers.append(fold.number)
            return forecast(material, fold)

        monkeypatch.setattr(RefitMaterial, "forecast", count)


def test_a_stopped_backtest_resumes_to_the_same_bytes(
    source: ModelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = walked(source, tmp_path / "whole")
    with monkeypatch.context() as patched:
        first = CountingSource(1, patched)
        with pytest.raises(KeyboardInterrupt):
            walked(source, tmp_path / "stopped")
    second = CountingSource(9, monkeypatch)
    resumed = walked(source, tmp_path / "stopped", resume=True)
    assert SMALL_RECIPE.target.lag == 0
    assert {one.recipe.target for one in second.materials} == {Target(horizons=(1, 3), lag=1)}
    assert (first.numbers, second.numbers) == ([1], [2])
    assert files_of(tmp_path / "whole") == files_of(tmp_path / "stopped")
    assert canonical.to_bytes(whole.to_json()) == canonical.to_bytes(resumed.to_json())


@pytest.mark.slow
def test_parallel_processes_give_the_same_bytes(source: ModelSource, tmp_path: Path) -> None:
    walked(source, tmp_path / "one")
    walked(replace(source, cache=FeatureCache(folder=tmp_path / "cache", tell=print)), tmp_path / "two", workers=2)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


def test_a_folder_of_other_settings_is_refused_with_their_names(source: ModelSource, tmp_path: Path) -> None:
    plan = replace(PLAN, refit=None)
    walked(source, tmp_path / "run", plan)
    with pytest.raises(ConfigurationError, match="run already has a backtest; continue it"):
        walked(source, tmp_path / "run", plan)
    with pytest.raises(ConfigurationError, match="run has a backtest with other settings: plan; choose another"):
        walked(source, tmp_path / "run", replace(plan, end=20130201), resume=True)
    (tmp_path / "run" / "forecasts" / "0001.safetensors").write_bytes(b"12345678")
    with pytest.raises(ArtifactError, match=r"0001\.safetensors: its header claims"):
        walked(source, tmp_path / "run", plan, resume=True)


def test_a_covariate_that_becomes_known_ahead_makes_another_backtest(recipe_file: Path, tmp_path: Path) -> None:
    """The expression is unchanged."""
    observed, known = CovariateFields(observed=("rate",)), CovariateFields(known=("rate",))
    now, later = (recipe_source(recipe_file, FEATURES.with_covariates(fields)) for fields in (observed, known))
    assert now.digest != later.digest
    with ForecastStore(tmp_path / "run", collect_settings(now, bars(), PLAN)).claim(resume=False):
        pass
    store = ForecastStore(tmp_path / "run", collect_settings(later, bars(), PLAN))
    with pytest.raises(ConfigurationError, match="other settings: features, source"), store.claim(resume=True):
        pass


def test_two_backtests_cannot_begin_in_one_folder(tmp_path: Path) -> None:
    one, other = (ForecastStore(tmp_path / "run", {"seed": seed}) for seed in (1, 2))
    with one.claim(resume=False):
        settings = (tmp_path / "run" / "settings.json").read_bytes()
        with pytest.raises(ConfigurationError, match="already has a backtest"), other.claim(resume=False):
            pass
        with pytest.raises(ConfigurationError, match="run is in use by process"), one.claim(resume=True):
            pass
    assert (tmp_path / "run" / "settings.json").read_bytes() == settings


def test_a_backtest_that_ended_before_its_settings_were_written_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".settings.json.x7.draft").write_bytes(b"{")
    with ForecastStore(tmp_path / "run", {}).claim(resume=True):
        assert (tmp_path / "run" / "settings.json").is_file()


def test_a_folder_of_something_else_is_refused(source: ModelSource, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "letter.txt").write_text("Dear all")
    with pytest.raises(ConfigurationError, match="contains something other than a backtest"):
        walked(source, tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["letter.txt"]


# --- artifacts


def test_an_artifact_as_it_stands_is_asked_as_serving_asks_it(trained_artifact: Path, tmp_path: Path) -> None:
    source = artifact_source(trained_artifact, "cpu")
    found = walked(source, tmp_path / "run", WalkForwardPlan(start=20130102, end=20130301))
    assert source.recipe == read_recipe(SMALL_RECIPE.settings())
    assert source.trained_model is not None
    assert [(fold.learn_first, fold.learn_last) for fold in found.folds] == [
        (session(0), source.trained_model.last_seen)
    ]
    assert found.strategy.sessions[0] == 20130103
    assert found.strategy.book.exposure[0] == pytest.approx(1 / 3)


def test_a_suspect_bar_is_neither_forecast_from_nor_traded_on(trained_artifact: Path, tmp_path: Path) -> None:
    day, source = len(bars().sessions) - 30, artifact_source(trained_artifact, "cpu")
    gone = np.zeros(bars().close.shape, np.bool_)
    gone[2, day] = True
    results = [
        backtest(
            source,
            panel,
            WalkForwardPlan(start=20130102, end=20130301),
            terms=TERMS,
            strategy_settings=StrategySettings(),
            folder=BacktestFolder(path=tmp_path / name),
        )
        for name, panel in (
            ("bad", scaled(bars(), slice(day, day + 1), 100, ("high", "close", "adj_close"))),
            ("gone", bars().without_cells(gone)),
        )
    ]
    books = [[result.strategy, *result.benchmarks] for result in results]
    for bad, without in zip(*books, strict=True):
        np.testing.assert_allclose(bad.book.net, without.book.net, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("refit", [None, 20])
def test_days_that_an_artifact_has_seen_are_refused_naming_the_first_allowed(
    trained_artifact: Path, tmp_path: Path, refit: int | None
) -> None:
    source = artifact_source(trained_artifact, "cpu")
    assert source.trained_model is not None
    last = int(np.searchsorted(bars().sessions, source.trained_model.last_seen))
    day = f"{session(last + 1)}"
    shown = f"{day[:4]}-{day[4:6]}-{day[6:]}"
    with pytest.raises(InSampleError, match=f"first allowed decision day is {shown}"):
        walked(source, tmp_path / "run", WalkForwardPlan(start=session(last), end=20130301, refit=refit))
    with pytest.raises(InSampleError, match="is in sample"):
        walked(source, tmp_path / "run", WalkForwardPlan(start=session(last + 3), end=20130301, refit=refit, embargo=3))
    walked(source, tmp_path / "run", WalkForwardPlan(start=session(last + 1), end=20130301))


def test_a_plan_without_days_covers_all_that_the_artifact_has_not_seen(trained_artifact: Path) -> None:
    source, said = artifact_source(trained_artifact, "cpu"), list[str]()
    assert source.trained_model is not None
    last = int(np.searchsorted(bars().sessions, source.trained_model.last_seen))
    given = ParsedFlags[WalkForwardPlan]({"embargo": 2})
    plan = complete_plan(source, bars(), given, said.append)
    assert plan == WalkForwardPlan(start=session(last + 3), end=session(-1), embargo=2)
    assert said == [f"decisions start on {format_date(session(last + 3))}, the first day that the model has not seen"]


def test_given_days_are_kept(trained_artifact: Path) -> None:
    given = ParsedFlags[WalkForwardPlan]({"start": session(400), "end": session(410)})
    plan = complete_plan(artifact_source(trained_artifact, "cpu"), bars(), given, pytest.fail)
    assert plan == WalkForwardPlan(start=session(400), end=session(410))


def test_an_artifact_that_has_seen_all_bars_leaves_no_day(trained_artifact: Path) -> None:
    source = artifact_source(trained_artifact, "cpu")
    assert source.trained_model is not None
    with pytest.raises(InSampleError, match="first allowed decision day is after the last bar"):
        complete_plan(source, bars().until(source.trained_model.last_seen), ParsedFlags(), pytest.fail)


def test_a_recipe_decides_from_the_first_day_that_it_can_be_trained_before(source: ModelSource) -> None:
    given = ParsedFlags[WalkForwardPlan]({"end": session(60)})
    plan = complete_plan(source, bars(), given, list[str]().append)
    for position, is_enough in (
        (plan.start, True),
        (session(int(np.searchsorted(bars().sessions, plan.start)) - 1), False),
    ):
        (fold,) = split_sessions(bars().sessions, WalkForwardPlan(start=position, end=session(60)))
        refits = RefitMaterial(bars=bars(), features=FEATURES, recipe=make_tradable(SMALL_RECIPE))
        with nullcontext() if is_enough else pytest.raises(ConfigurationError, match="needs at least 25 there"):
            refits.forecast(fold)


def test_too_few_bars_for_a_recipe_are_refused_with_their_number(source: ModelSource) -> None:
    with pytest.raises(ConfigurationError, match=r"have 36 sessions, but .* need 37; give more bars"):
        complete_plan(source, bars().last(36), ParsedFlags(), pytest.fail)


def test_a_horizon_that_is_not_forecast_is_refused_before_anything_is_trained(
    source: ModelSource, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=r"horizon 5 is not forecast; the model has \[1, 3\]"):
        backtest(
            source,
            bars(),
            PLAN,
            terms=TradingTerms(horizon=5),
            strategy_settings=StrategySettings(),
            folder=BacktestFolder(path=tmp_path / "run"),
        )
    assert not (tmp_path / "run").exists()


# --- recipes from their settings


@pytest.mark.parametrize(
    "recipe",
    [
        SMALL_RECIPE,
        StockRecipe(),
        StockRecipe(kind="graph", config=GraphConfig()),
        StockRecipe(shares=SplitShares(train=0.5, selection=0.2, calibration=0.2, test=0.1)),
        StockRecipe(
            parts=DataSplits.by_dates(
                [(20000103, 20071231), (20080102, 20090630), (20090701, 20101231), (20110103, 20121231)]
            )
        ),
        StockRecipe(optimisation=Optimisation(clip=float("inf"), ema=0.99, oom="fail", compiled=True)),
    ],
)
def test_a_recipe_reads_back_from_its_settings(recipe: StockRecipe) -> None:
    read = read_recipe(json.loads(canonical.to_bytes(recipe.settings())))
    assert read.settings() == recipe.settings()
    assert replace(read, normaliser=None) == replace(recipe, normaliser=None)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"seed": None}, "recipe: seed is null, expected an integer"),
        ({"oom": "hope"}, r"oom is 'hope', but must be one of \['split', 'fail'\]"),
        ({"kind": "oracle"}, "unknown network kind 'oracle'"),
        ({"target": "price"}, "target is 'price'"),
        ({"network_hidden": 0}, "hidden is 0"),
        ({"network_wings": 2}, "has no setting 'wings'"),
        ({"wings": 2}, "wings is an unknown key"),
        ({"batch_size": 2.5}, "batch_size is 2.5, expected an integer"),
    ],
)
def test_a_setting_that_is_wrong_is_named(change: Mapping[str, Json], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read_recipe({**SMALL_RECIPE.settings(), **change})


def test_a_setting_that_is_missing_is_named() -> None:
    settings = {name: value for name, value in SMALL_RECIPE.settings().items() if name != "learning_rate"}
    with pytest.raises(ConfigurationError, match="recipe: learning_rate is missing"):
        read_recipe(settings)


# --- the command


call = partial(exit_code, command.backtest_command)


@pytest.fixture
def bars_file(tmp_path: Path) -> Path:
    path = tmp_path / "bars.csv"
    bars().write_csv(path)
    return path


def json_lines(text: str) -> Iterator[Record]:
    return (Record.from_bytes(line.encode(), "stdout") for line in text.splitlines())


def test_the_command_tells_programs_folds_and_figures(
    trained_artifact: Path, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    period = ("--start", "2013-01-02", "--end", "2013-03-01")
    assert (
        call(trained_artifact, "--bars", bars_file, *period, "--out", tmp_path / "run", "--horizon", "3", "--json") == 0
    )
    fold, told = json_lines(capsys.readouterr().out)
    assert (fold.text("kind"), fold.integer("done"), fold.integer("folds")) == ("fold", 1, 1)
    rows = told.records("table")
    assert [row.text("name") for row in rows] == ["model, rank", "equal weight", "momentum 12-1", "reversal 5"]
    stored = Record.from_bytes((tmp_path / "run" / "backtest.json").read_bytes(), "backtest.json")
    tracks = stored.records("tracks")
    assert tracks[0].numbers("net")[-1] == pytest.approx(
        tracks[0].numbers("net_equity")[-1] / tracks[0].numbers("net_equity")[-2] - 1
    )
    assert told.text("digest") == stored.text("digest")


def test_the_delisting_return_is_a_flag_and_stands_in_what_is_told(
    trained_artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    delisted(10).write_csv(tmp_path / "bars.csv")
    period = ("--start", "2013-01-02", "--end", "2013-03-01", "--horizon", "3", "--out", tmp_path / "run")
    assert (
        call(trained_artifact, "--bars", tmp_path / "bars.csv", *period, "--delisting-return", "-0.75", "--json") == 0
    )
    told = list(json_lines(capsys.readouterr().out))[-1]
    assert told.record("terms").number("delisting_return") == -0.75
    assert told.record("terms").integer("longest_halt") == 20
    assert told.records("table")[1].integer("closed_as_delisted") == 1
    assert any("equal weight closed as delisted: 1; their return of -75 %" in n for n in told.texts("notes"))


def test_the_command_writes_a_report_too(trained_artifact: Path, bars_file: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    period = ("--start", "2013-01-02", "--end", "2013-03-01")
    assert call(trained_artifact, "--bars", bars_file, *period, "--out", tmp_path / "run", "--report", report) == 0
    assert f"Backtest of {trained_artifact.parent.name}/{trained_artifact.name}" in report.read_text("utf-8")


def test_the_command_shows_people_a_table(
    trained_artifact: Path, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    period = ("--start", "2013-01-02", "--end", "2013-03-01")
    assert call(trained_artifact, "--bars", bars_file, *period, "--out", tmp_path / "run", "--strategy", "sign") == 0
    shown = capsys.readouterr().out
    assert "fold 1/1  decides 2013-01-02 to 2013-03-01" in shown
    assert "model, sign" in shown
    assert "10 bp are charged on every unit traded" in " ".join(shown.split())


def test_the_command_names_the_day_that_it_starts_on(
    trained_artifact: Path, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(trained_artifact, "--bars", bars_file, "--out", tmp_path / "run") == 0
    told = capsys.readouterr()
    assert "decisions start on 2012-12-05, the first day that the model has not seen" in told.err
    assert "fold 1/1  decides 2012-12-05 to 2013-03-01" in told.out


def test_a_single_stock_is_traded_by_the_sign_of_its_forecast(
    trained_artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bars().select("IBM").write_csv(tmp_path / "bars.csv")
    assert call(trained_artifact, "--bars", tmp_path / "bars.csv", "--out", tmp_path / "run") == 0
    assert "model, sign" in capsys.readouterr().out


def test_ctrl_c_keeps_what_is_forecast_and_says_how_to_go_on(
    recipe_file: Path,
    bars_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopping = CountingSource(0, monkeypatch)
    period = ("--start", "2013-01-02", "--end", "2013-03-01", "--horizon", "3", "--feature-cache", tmp_path / "cache")
    assert call("--recipe", recipe_file, "--bars", bars_file, *period, "--out", tmp_path / "run") == 130
    assert [isinstance(one.bars.close, np.memmap) for one in stopping.materials] == [True]
    assert "continue with the same command and --resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--start", "2011-08-01", "--end", "2013-03-01"), "in sample"),
        (
            ("--start", "2013-01-02", "--end", "2013-03-01", "--delisting-return", "-1.1"),
            "Invalid value for '--delisting-return'",
        ),
        (("--start", "tomorrow", "--end", "2013-03-01"), "--start is 'tomorrow'"),
        (("--start", "", "--end", "2013-03-01"), "--start is ''"),
        (("--start", "2013-01-02", "--end", ""), "--end is ''"),
        (("--start", "2013-01-02", "--end", "2013-03-01", "--refit", "often"), "--refit is 'often'"),
        (("--start", "2013-01-02", "--end", "2013-03-01", "--window", "rolling"), "--window is 'rolling'"),
        (("--start", "2013-01-02", "--end", "2013-03-01", "--recipe", "r.json"), "either an ARTIFACT or --recipe"),
        (("--start", "2013-01-02", "--end", "2013-03-01", "--features", "alpha158"), "an artifact has its own"),
        (("--start", "2013-01-02", "--end", "2013-03-01", "--feature-cache", "c"), "keeps the features of refits"),
    ],
)
def test_bad_usage_ends_with_2(
    trained_artifact: Path, bars_file: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], problem: str
) -> None:
    assert call(trained_artifact, "--bars", bars_file, *flags) == 2
    assert problem in " ".join(capsys.readouterr().err.replace("│", " ").split())

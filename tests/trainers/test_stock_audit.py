"""The audit finds planted faults: look-ahead, leaked outcomes, and an untradable lag."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
import typer
from audits import audit_record
from market import bokeh_panel, scaled
from numpy.typing import NDArray
from small_jobs import PickledJobs
from small_recipes import SMALL_RECIPE

from predictor.artifact import load
from predictor.audit_record import AuditRecord, AuditVerdict, locate_audit, read_audit, write_audit
from predictor.bars import BarPanel
from predictor.cli import run
from predictor.covariates import CovariateSource
from predictor.errors import ArtifactError, ConfigurationError
from predictor.features import FeatureDefinition, FeatureSet
from predictor.jobs import JobRunner, LocalRunner
from predictor.model import Model
from predictor.networks import Target, TargetKind
from trainers.progress import ConsumerChain
from trainers.stock import DataSplits, StockRecipe, train
from trainers.stock.audit import AuditBudget, audit, command
from trainers.stock.audit.audit import ShuffledTraining
from trainers.stock.audit.checks import (
    YARDSTICK,
    YARDSTICK_FIT,
    YARDSTICK_NAME,
    AuditedForecasts,
    ReturnMoments,
    ShuffledHistory,
    TrialCount,
    check_costs,
    check_lags,
    check_permutations,
    check_trials,
    count_trials,
    estimate,
    expected_best,
    forecast_yardstick,
    measure_daily_losses,
    measure_outcomes,
    measure_relative_gain,
    probabilistic_sharpe,
    rank_ic,
)
from trainers.stock.audit.leak_check import (
    FORECAST,
    FittedNumbers,
    ModelStages,
    Stages,
    adjust_panel,
    check_future,
    with_noise,
)
from trainers.stock.backtest import Strategy, StrategySettings, TradingTerms, artifact_source
from trainers.stock.backtest.book import run_book
from trainers.stock.backtest.forecasts import DailyForecasts
from trainers.stock.backtest.result import find_break_even_cost, sharpe
from trainers.stock.data import History
from trainers.stock.evaluation.baselines import InformationSet, MeasuredWindows
from trainers.stock.model_fit import assemble_model
from trainers.stock.splits import list_decisions
from trainers.stock.training_data import TrainingMaterial

FloatArray = NDArray[np.float64]
FEATURES = FeatureSet(
    observed=(
        FeatureDefinition("r1", "Log($close / Ref($close, 1))", "return", "log return"),
        FeatureDefinition("range", "Log($high / $low)", "range of the day", "log ratio"),
    )
)
NONE = CovariateSource()
NOTHING_FITTED = FittedNumbers(fit=lambda _bars: b"", last=200)


@cache
def bars() -> BarPanel:
    return bokeh_panel("AAPL", "GOOG", "IBM").last(400)


@pytest.fixture(scope="module")
def trained_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "1"
    train(TrainingMaterial(bars(), FEATURES), SMALL_RECIPE, folder, consume=ConsumerChain())
    return folder


@pytest.fixture(scope="module")
def model(trained_artifact: Path) -> Model:
    return assemble_model(load(trained_artifact).artifact)


# --- the future


class LookaheadForecaster:
    """A forecaster that reads the close `ahead` sessions after its forecast date."""

    def __init__(self, bars: BarPanel, *, ahead: int) -> None:
        self._bars, self._ahead = bars, ahead

    def __call__(self, position: int) -> Stages:
        return {"observed": self._bars.volume[:, position], FORECAST: self._bars.close[:, position + self._ahead]}


class FutureScaledForecaster:
    """A forecaster with a feature scaled by the highest close of all history."""

    def __init__(self, bars: BarPanel) -> None:
        self._closes = bars.close / np.nanmax(bars.close)

    def __call__(self, position: int) -> Stages:
        return {FORECAST: self._closes[:, position]}


def test_a_model_that_knows_no_future_passes(model: Model) -> None:
    found = check_future(bars(), partial(ModelStages, model, NONE), [340, 360, 380], NOTHING_FITTED)
    assert found.verdict is AuditVerdict.PASS
    assert found.changed == ()
    assert found.deletion_gap is not None
    assert found.deletion_gap < 1e-6
    assert set(found.stages) > {"observed", "mask", "location", "scale", "forecast", "fitted numbers"}


def test_a_forecaster_that_reads_the_past_alone_passes() -> None:
    assert (
        check_future(bars(), partial(LookaheadForecaster, ahead=0), [300, 350], NOTHING_FITTED).verdict
        is AuditVerdict.PASS
    )


def shifted(bars: BarPanel) -> BarPanel:
    """Each session's bars replaced by the next session's: a planted leak."""
    columns = {name: np.roll(getattr(bars, name), -1, axis=1) for name in ("open", "high", "low", "close", "volume")}
    return replace(bars, **columns)


def test_a_pipeline_that_looks_one_session_ahead_is_found_in_every_stage(model: Model) -> None:
    def leaking(panel: BarPanel) -> ModelStages:
        return ModelStages(model, NONE, shifted(panel))

    found = check_future(bars(), leaking, [340, 360], NOTHING_FITTED)
    assert found.verdict is AuditVerdict.FAIL
    assert set(found.changed) >= {"observed", "scale", "forecast"}
    assert found.first_changed == bars().sessions[340]
    assert "a leak: " in found.sentence


def test_a_whole_sample_maximum_is_found() -> None:
    found = check_future(bars(), FutureScaledForecaster, [340, 360], NOTHING_FITTED)
    assert found.verdict is AuditVerdict.FAIL
    assert found.changed == ("forecast",)


def test_numbers_that_are_fitted_on_more_than_the_training_part_are_found() -> None:
    def fit(panel: BarPanel) -> bytes:
        return np.nanmean(panel.close[:, :251]).tobytes()

    for last, verdict in ((250, AuditVerdict.PASS), (249, AuditVerdict.FAIL)):
        found = check_future(bars(), partial(LookaheadForecaster, ahead=0), [300], FittedNumbers(fit=fit, last=last))
        assert found.verdict is verdict
    assert found.changed == ("fitted numbers",)


def test_noise_leaves_the_past_as_it_was_and_nothing_of_the_future() -> None:
    plain = adjust_panel(bars())
    noised = with_noise(plain, 300)
    for name in ("open", "high", "low", "close", "volume"):
        before, after = getattr(plain, name), getattr(noised, name)
        assert before[:, :301].tobytes() == after[:, :301].tobytes()
        assert not (before[:, 301:] == after[:, 301:]).any()
    assert np.isnan(noised.close[:, 301:]).any()
    np.testing.assert_array_equal(plain.adjusted().close, bars().adjusted().close)


# --- skill, lags, permuted labels


def judged_of(
    told: FloatArray, *, sessions: int = 400, stocks: int = 6, seed: int = 0
) -> tuple[AuditedForecasts, FloatArray]:
    """Independent daily returns [sessions, stocks], and forecasts `told` of the next session with a band of 1 %."""
    random = np.random.default_rng(seed)
    returns = 0.02 * random.standard_normal((sessions, stocks))
    closes = np.exp(np.cumsum(returns, axis=0))
    band = np.array([-0.0256, 0, 0.0256])
    came = tuple(np.roll(returns, -1 - lag, axis=0)[..., None] for lag in (0, 1, 2))
    days = slice(0, sessions - 5)
    forecasts = DailyForecasts(
        sessions=np.arange(sessions - 5, dtype=np.int32),
        kind=TargetKind.LOG_RETURN,
        horizons=(1,),
        levels=(0.1, 0.5, 0.9),
        values=(told[..., None, None] + band)[days],
    )
    judged = AuditedForecasts(
        forecasts=forecasts,
        plain=np.broadcast_to(band, forecasts.values.shape),
        outcomes=(came[0][days], came[1][days], came[2][days]),
        closes=closes[days],
        spread=np.ones(1),
        terms=TradingTerms(horizon=1),
        strategy_settings=StrategySettings(share=0.34),
    )
    return judged, returns


def informed_forecast(returns: FloatArray, ahead: int) -> FloatArray:
    """A forecast that contains half of the return `ahead` sessions later."""
    return 0.5 * np.roll(returns, -ahead, axis=0)


def test_skill_that_only_the_decisions_own_close_can_trade_fails() -> None:
    _, returns = judged_of(np.zeros((400, 6)))
    judged, _ = judged_of(informed_forecast(returns, 1))
    found = check_lags(judged)
    assert found.verdict is AuditVerdict.FAIL
    now, later, _ = found.rows
    assert now.skill > 10 * now.skill_error
    assert later.skill < 0
    assert now.ic is not None
    assert now.ic > 0.9
    assert now.sharpe is not None
    assert later.sharpe is not None
    assert now.sharpe > 10
    assert later.sharpe < 2


def test_a_day_whose_outcome_is_unknown_at_one_lag_only_is_left_out_of_the_difference() -> None:
    _, returns = judged_of(np.zeros((400, 6)))
    judged, _ = judged_of(informed_forecast(returns, 1))
    now, later, last = judged.outcomes
    halted = later.copy()
    halted[100] = np.nan
    assert check_lags(replace(judged, outcomes=(now, halted, last))).verdict is AuditVerdict.FAIL


def test_skill_at_the_next_close_passes() -> None:
    _, returns = judged_of(np.zeros((400, 6)))
    judged, _ = judged_of(informed_forecast(returns, 2))
    assert check_lags(judged).verdict is AuditVerdict.PASS


def test_no_skill_at_any_lag_decides_nothing() -> None:
    judged, _ = judged_of(0.005 * np.random.default_rng(9).standard_normal((400, 6)))
    assert check_lags(judged).verdict is AuditVerdict.UNDECIDED


def overlapping_sums(seed: int) -> FloatArray:
    """[120] sums of 20 independent days each, a day apart, around zero."""
    return np.convolve(np.random.default_rng(seed).standard_normal(139), np.ones(20), mode="valid")


def test_the_sharpe_ratio_of_a_lag_is_that_of_the_book_from_its_first_trade_on_before_costs() -> None:
    judged, returns = judged_of(np.ones((400, 6)))
    long = replace(judged, strategy_settings=StrategySettings(strategy=Strategy.SIGN))
    held = np.expm1(returns).mean(axis=1)
    for row in check_lags(long).rows:
        expected = sharpe(np.concatenate([[0.0], held[row.lag + 1 : 395]]))
        assert (row.sharpe, row.sharpe_error) == pytest.approx(expected)


def test_skill_is_the_loss_that_is_saved_of_the_mean_loss_without_a_model() -> None:
    plain, ours = np.array([1.0, 3.0, np.nan, 2.0]), np.array([0.5, 2.5, 1.0, np.nan])
    assert measure_relative_gain(ours, plain) == pytest.approx([0.25, 0.25, np.nan, np.nan], nan_ok=True)


def test_a_days_loss_is_the_mean_of_its_stocks_and_horizons_each_over_its_spread() -> None:
    told = DailyForecasts(
        sessions=np.array([20200102, 20200103], np.int32),
        kind=TargetKind.LOG_RETURN,
        horizons=(1, 4),
        levels=(0.25, 0.5),
        values=np.array([[[[-1.0, 0], [-2, 0]], [[np.nan] * 2] * 2]] * 2),
    )
    outcome = np.array([[[1.0, -6], [1, 1]], [[np.nan, np.nan], [1, 1]]])
    found = measure_daily_losses(told, told.values, outcome, np.array([1.0, 2.0]))
    # One stock is forecast: (0.25 x 2 + 0.5 x 1) / 2 at the first horizon, (0.75 x 4 + 0.5 x 6) / 2 / 2 at the second.
    assert found[0] == pytest.approx((0.5 + 1.5) / 2)
    assert np.isnan(found[1])


def test_ranks_are_correlated_on_days_of_three_stocks_or_more_that_differ() -> None:
    scores = np.array([[1.0, 2, 3, 4], [1, 2, 9, np.nan], [1, 2, np.nan, np.nan], [5, 5, 5, 5]])
    outcome = np.array([[10.0, 20, 90, 30], [3, 2, 1, np.nan], [1, 2, 3, 4], [1, 2, 3, 4]])
    assert rank_ic(scores, outcome) == pytest.approx([0.8, -1.0])


def test_the_error_of_skill_is_newey_and_wests_over_twice_the_horizon_stretched() -> None:
    # The deviations -2, 0, -1, 3 have the autocovariances 3.5, -0.75, 0.5; the lag is half of the days, of which Kiefer
    # and Vogelsang's critical value is 2.7736 where the normal distribution's is 1.6449.
    variance = 3.5 + 2 * (2 / 3 * -0.75 + 1 / 3 * 0.5)
    found = estimate(np.array([2.0, 4.0, 3.0, 7.0]), 1)
    assert found.value == 4.0
    assert found.error == pytest.approx((variance / 4) ** 0.5 * 2.7736 / 1.6449, rel=1e-4)


def test_skill_of_few_overlapping_outcomes_is_seldom_found_where_there_is_none() -> None:
    assert np.mean([estimate(overlapping_sums(seed), 20).is_positive for seed in range(300)]) < 0.08


def test_outcomes_of_a_lag_begin_so_many_closes_later() -> None:
    adjusted = bars().adjusted()
    found = measure_outcomes(Target(horizons=(1, 3)), adjusted, 2)
    np.testing.assert_allclose(found[10, :, 1], np.log(adjusted.close[:, 15] / adjusted.close[:, 12]), rtol=1e-12)
    one = Target(horizons=(1, 3), lag=1).labels(adjusted).transpose(1, 0, 2)
    np.testing.assert_array_equal(measure_outcomes(Target(horizons=(1, 3)), adjusted, 1), one)


def test_a_forecast_that_true_outcomes_reach_whatever_the_labels_is_caught() -> None:
    _, returns = judged_of(np.zeros((400, 6)))
    judged, _ = judged_of(informed_forecast(returns, 1))
    found = check_permutations(judged, 2 * [judged.forecasts], epochs=1, lag=0)
    assert found.verdict is AuditVerdict.FAIL
    assert found.permuted == (found.skill, found.skill)
    assert found.p_value == 1


def test_skill_that_vanishes_with_the_labels_passes() -> None:
    _, returns = judged_of(np.zeros((400, 6)))
    judged, _ = judged_of(informed_forecast(returns, 1))

    def retrain(seed: int) -> DailyForecasts:
        noise = 0.002 * np.random.default_rng(seed).standard_normal((*judged.plain.shape[:3], 1))
        return replace(judged.forecasts, values=judged.plain + noise)

    found = check_permutations(judged, map(retrain, range(3)), epochs=1, lag=0)
    assert found.verdict is AuditVerdict.PASS
    assert abs(found.mean) < 0.02 < found.skill
    assert found.p_value == pytest.approx(1 / 4)


def test_so_few_days_that_a_leak_would_not_show_decide_nothing() -> None:
    judged, _ = judged_of(np.zeros((400, 6)))
    wild = replace(
        judged.forecasts, values=judged.plain + 0.02 * np.random.default_rng(2).standard_normal((395, 6, 1, 1))
    )
    short = replace(
        judged,
        forecasts=replace(judged.forecasts, values=judged.forecasts.values[:20]),
        plain=judged.plain[:20],
        outcomes=(judged.outcomes[0][:20], judged.outcomes[1][:20], judged.outcomes[2][:20]),
    )
    few = replace(wild, values=wild.values[:20])
    found = check_permutations(short, [few], epochs=1, lag=0)
    assert 2 * found.error > 0.05
    assert found.verdict is AuditVerdict.UNDECIDED


def test_shuffled_labels_are_those_of_other_days_of_the_same_part(model: Model) -> None:
    splits = StockRecipe().splits(bars().sessions)
    true = History(bars(), model.pipeline)
    shuffled = ShuffledHistory(bars(), model.pipeline, NONE, None, splits=splits, seed=0)

    def days(history: History, name: str) -> FloatArray:
        """[D, S x H] labels in units of each window's volatility."""
        places = list_decisions(getattr(splits, name), bars().sessions, model.pipeline.target)
        places = places[places >= model.pipeline.bars_needed]
        unit = history.location_and_scale_of_days(places)[1].numpy() * model.pipeline.target.spread
        return np.moveaxis(history.labels[:, places] / unit, 1, 0).reshape(len(places), -1)

    for name in ("selection", "calibration"):
        mine, theirs = days(true, name), days(shuffled, name)
        np.testing.assert_allclose(np.sort(mine, axis=0), np.sort(theirs, axis=0), atol=1e-12)
        assert (np.abs(mine - theirs).max(axis=1) > 1e-6).mean() > 0.9
    np.testing.assert_array_equal(days(true, "test"), days(shuffled, "test"))


# --- costs and trials


def test_at_the_cost_of_breaking_even_the_mean_return_is_zero() -> None:
    random = np.random.default_rng(0)
    wanted = random.uniform(-0.25, 0.25, (200, 4))
    followed = np.vstack([np.zeros(4), wanted[:-1]])
    closes = np.exp(np.cumsum(0.02 * random.standard_normal((200, 4)) + 0.1 * followed, axis=0))
    terms = TradingTerms(horizon=2, delay=0, cost_bps=3)
    found = find_break_even_cost(run_book(wanted, closes, terms), terms)
    assert found is not None
    again = replace(terms, cost_bps=found)
    assert run_book(wanted, closes, again).net.mean() == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    ("errors", "verdict"),
    [
        (2.05, AuditVerdict.PASS),
        (1.85, AuditVerdict.UNDECIDED),
        (-1.85, AuditVerdict.UNDECIDED),
        (-2.05, AuditVerdict.FAIL),
    ],
)
def test_costs_decide_from_two_standard_errors_on(errors: float, verdict: AuditVerdict) -> None:
    noise = np.random.default_rng(0).standard_normal(400)
    noise -= noise.mean()
    _, error = sharpe(noise)
    terms, daily = TradingTerms(horizon=1), noise + errors * error / 252**0.5 * noise.std()
    book = replace(run_book(np.zeros((400, 1)), np.ones((400, 1)), terms), net=daily)
    found = check_costs(book, terms, "rank")
    assert found.sharpe is not None
    assert found.sharpe_error is not None
    assert found.sharpe / found.sharpe_error == pytest.approx(errors, abs=0.06)
    assert found.verdict is verdict


def test_a_strategy_that_never_trades_decides_nothing() -> None:
    terms = TradingTerms(horizon=1)
    found = check_costs(run_book(np.zeros((30, 1)), np.ones((30, 1)), terms), terms, "rank")
    assert (found.verdict, found.break_even_bps, found.sharpe) == (AuditVerdict.UNDECIDED, None, None)
    assert check_trials(np.zeros(30), TrialCount(count=1, counted_by="me")).verdict is AuditVerdict.UNDECIDED


def test_the_deflated_sharpe_ratio_is_that_of_the_papers_example() -> None:
    # Bailey & Lopez de Prado 2014: 100 trials, yearly ratios of variance 1/2; 2.5 a year over 5 years of 250 days.
    found = ReturnMoments(ratio=2.5 / 250**0.5, skewness=-3, kurtosis=10, sessions=1250)
    best = expected_best(100, 501)  # an error of sqrt(1/500) a session is sqrt(1/2) a year of 250
    assert best == pytest.approx(0.1132, abs=1e-4)
    assert probabilistic_sharpe(found, best) == pytest.approx(0.9004, abs=1e-4)


def test_the_probability_of_a_sharpe_ratio_counts_one_session_less() -> None:
    found = ReturnMoments(ratio=0.1, skewness=-0.5, kurtosis=5.0, sessions=101)
    expected = NormalDist().cdf((0.1 - 0.02) * (100 / (1 + 0.5 * 0.1 + 1 * 0.01)) ** 0.5)
    assert probabilistic_sharpe(found, 0.02) == pytest.approx(expected, rel=1e-12)


def test_more_trials_deflate_the_same_returns_further() -> None:
    noise = np.random.default_rng(3).standard_normal(750)
    returns = 0.0009 + 0.01 * (noise - noise.mean()) / noise.std()
    one, many = (check_trials(returns, TrialCount(count=count, counted_by="me")) for count in (1, 500))
    assert one.deflated == one.probabilistic
    assert many.deflated is not None
    assert many.deflated < 0.5
    assert (one.verdict, many.verdict) == (AuditVerdict.PASS, AuditVerdict.UNDECIDED)
    assert check_trials(-returns, TrialCount(count=500, counted_by="me")).verdict is AuditVerdict.FAIL


def test_nothing_passes_without_a_number_of_trials() -> None:
    returns = 0.003 + 0.01 * np.random.default_rng(3).standard_normal(750)
    counted, uncounted = (check_trials(returns, count_trials(said, {})) for said in (1, None))
    assert counted.deflated == uncounted.deflated
    assert (counted.verdict, uncounted.verdict) == (AuditVerdict.PASS, AuditVerdict.UNDECIDED)
    assert "give --trials" in uncounted.sentence


def test_trials_are_those_that_are_said_else_those_of_the_card() -> None:
    assert count_trials(7, {"tuning": {"trials": 40}}).count == 7
    assert count_trials(None, {"tuning": {"trials": 40}}).count == 40
    assert count_trials(None, {}).count == 1
    with pytest.raises(ConfigurationError, match="trials is 0"):
        count_trials(0, {})


# --- the whole audit, its record and the command


@pytest.fixture(scope="module")
def record(trained_artifact: Path) -> AuditRecord:
    return audited(trained_artifact, LocalRunner())


def audited(trained_artifact: Path, runner: JobRunner) -> AuditRecord:
    return audit(
        artifact_source(trained_artifact, "cpu"),
        bars(),
        terms=TradingTerms(horizon=3),
        strategy_settings=StrategySettings(),
        depth=AuditBudget(sessions=2, permutations=1, epochs=1, trials=20),
        announce=lambda _stage: None,
        runner=runner,
    )


def test_parallel_jobs_give_the_same_record(trained_artifact: Path, record: AuditRecord) -> None:
    assert audited(trained_artifact, PickledJobs()) == record


def test_an_honest_artifact_has_no_leak(record: AuditRecord) -> None:
    assert not record.has_leak
    assert (record.future.verdict, record.permutation.verdict) == (AuditVerdict.PASS, AuditVerdict.PASS)
    assert record.trials.trials == 20
    assert [row.lag for row in record.lags.rows] == [0, 1, 2]
    assert all(check.sentence for check in record.checks)
    assert "p-value of shuffled labels is at least 0.5 with --permutations 1" in record.notes[1]


def test_the_yardstick_is_what_the_models_own_scale_forecasts_alone(model: Model) -> None:
    history = History(bars(), model.pipeline)
    splits = StockRecipe().splits(bars().sessions)
    windows = history.windows(splits.require_test())
    case = InformationSet.of(history, splits, splits.calibration.last, model.manifest.quantiles)
    fitted = case.fitted(YARDSTICK, YARDSTICK_FIT)
    days = np.unique(windows.positions)
    found = forecast_yardstick(history, splits, model.manifest.quantiles, days)
    cells = found[np.searchsorted(days, windows.positions), windows.symbols]
    np.testing.assert_array_equal(cells, fitted.forecasts(MeasuredWindows.of(history, windows)))
    assert YARDSTICK.named(YARDSTICK_FIT) == YARDSTICK_NAME


def test_the_record_is_next_to_the_folder_and_reads_back(record: AuditRecord, trained_artifact: Path) -> None:
    before = sorted(path.name for path in trained_artifact.rglob("*"))
    write_audit(trained_artifact, record)
    assert locate_audit(trained_artifact).name == "1.audit.json"
    assert read_audit(trained_artifact) == record
    assert sorted(path.name for path in trained_artifact.rglob("*")) == before
    load(trained_artifact)


def test_an_artifact_without_an_audit_has_none(tmp_path: Path) -> None:
    assert read_audit(tmp_path / "1") is None


def test_the_audit_of_another_artifact_is_refused(record: AuditRecord, tmp_path: Path) -> None:
    folder = tmp_path / "1"
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    write_audit(folder, record)
    with pytest.raises(ArtifactError, match=r"1\.audit\.json: belongs to another artifact"):
        read_audit(folder)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": "diary"}, "format is 'diary' version 1"),
        ({"future": {}}, "future.verdict is missing"),
        ({"stars": 5}, "stars is an unknown key"),
    ],
)
def test_a_record_that_is_damaged_is_refused(record: AuditRecord, change: dict[str, object], problem: str) -> None:
    told = json.loads(record.to_bytes()) | change
    with pytest.raises(ArtifactError, match=problem):
        AuditRecord.from_bytes(json.dumps(told).encode(), "1.audit.json")


@pytest.mark.parametrize("check", ["future", "permutation", "lags", "costs", "trials"])
def test_a_key_that_a_check_lacks_is_refused(check: str) -> None:
    told = json.loads(audit_record().to_bytes())
    told[check]["stars"] = 5
    with pytest.raises(ArtifactError, match=rf"1\.audit\.json: {check}\.stars is an unknown key"):
        AuditRecord.from_bytes(json.dumps(told).encode(), "1.audit.json")


def test_a_record_without_any_training_on_shuffled_labels_is_refused() -> None:
    told = json.loads(audit_record().to_bytes())
    told["permutation"]["permuted"] = []
    with pytest.raises(ArtifactError, match=r"permutation\.permuted is \[\], but must hold the skill of at least one"):
        AuditRecord.from_bytes(json.dumps(told).encode(), "1.audit.json")


def test_any_check_that_fails_fails_the_audit(record: AuditRecord) -> None:
    passed = [replace(check, verdict=AuditVerdict.PASS) for check in (record.lags, record.costs, record.trials)]
    fine = replace(record, lags=passed[0], costs=passed[1], trials=passed[2])
    assert fine.verdict is AuditVerdict.PASS
    assert replace(fine, lags=replace(fine.lags, verdict=AuditVerdict.FAIL)).verdict is AuditVerdict.FAIL
    assert replace(fine, lags=replace(fine.lags, verdict=AuditVerdict.UNDECIDED)).verdict is AuditVerdict.UNDECIDED


def test_a_suspect_bar_is_left_out_of_an_audit(trained_artifact: Path) -> None:
    gone = np.zeros(bars().close.shape, np.bool_)
    gone[2, -30] = True
    bad = scaled(bars(), slice(-30, -29), 100, ("high", "close", "adj_close"))
    records = [
        audit(
            artifact_source(trained_artifact, "cpu"),
            panel,
            terms=TradingTerms(horizon=3),
            strategy_settings=StrategySettings(),
            depth=AuditBudget(sessions=1, permutations=1, epochs=1),
            announce=lambda _stage: None,
        )
        for panel in (bad, bars().without_cells(gone))
    ]
    skills = [[row.skill for row in record.lags.rows] for record in records]
    np.testing.assert_allclose(*skills, rtol=1e-9)


def test_bars_that_end_with_the_training_leave_nothing_to_audit(trained_artifact: Path) -> None:
    source = artifact_source(trained_artifact, "cpu")
    assert source.trained_model is not None
    seen = bars().until(source.trained_model.last_seen)
    with pytest.raises(ConfigurationError, match="have 0 decision days"):
        audit(
            source,
            seen,
            terms=TradingTerms(horizon=3),
            strategy_settings=StrategySettings(),
            depth=AuditBudget(),
            announce=lambda _stage: None,
        )


def test_bars_that_lack_the_training_cannot_be_audited(trained_artifact: Path) -> None:
    source = artifact_source(trained_artifact, "cpu")
    with pytest.raises(ConfigurationError, match="give the bars of the training"):
        audit(
            source,
            bars().last(300),
            terms=TradingTerms(horizon=3),
            strategy_settings=StrategySettings(),
            depth=AuditBudget(),
            announce=print,
        )


def with_closes(panel: BarPanel, first: int, value: float) -> BarPanel:
    """Every price from a position on is this value; NaN: there is no bar."""
    columns = {name: np.array(getattr(panel, name)) for name in ("open", "high", "low", "close", "volume", "adj_close")}
    for column in columns.values():
        column[:, first:] = value
    return replace(panel, **columns)


@pytest.mark.parametrize(
    ("value", "problem"),
    [(100.0, "prices are constant on the evaluated days"), (np.nan, "0 decision days have a forecast and a known")],
)
def test_days_that_can_tell_nothing_are_refused_before_anything_is_tried(
    trained_artifact: Path, value: float, problem: str
) -> None:
    source = artifact_source(trained_artifact, "cpu")
    with pytest.raises(ConfigurationError, match=problem):
        audit(
            source,
            with_closes(bars(), 320, value),
            terms=TradingTerms(horizon=3),
            strategy_settings=StrategySettings(),
            depth=AuditBudget(),
            announce=lambda _stage: None,
        )


def audit_by_command(folder: Path, panel: BarPanel, *flags: str | Path) -> AuditRecord:
    """Run the audit command on the tiny recipe with the smallest budget."""
    (folder / "recipe.json").write_text(json.dumps(SMALL_RECIPE.settings()))
    features = {"operator_set": 1, "known": [], "observed": [entry(one) for one in FEATURES.observed]}
    (folder / "features.json").write_text(json.dumps(features))
    panel.write_csv(folder / "bars.csv")
    files = ["--bars", folder / "bars.csv", "--features", folder / "features.json"]
    quick = ["--sessions", "1", "--permutations", "1", "--epochs", "1", "--json"]
    app = typer.Typer(add_completion=False)
    app.command()(command.audit_command)
    with pytest.raises(SystemExit) as ended:
        run(app, [str(part) for part in ["--recipe", folder / "recipe.json", *files, *quick, *flags]])
    assert ended.value.code == 0
    return AuditRecord.from_bytes((folder / "recipe.json.audit.json").read_bytes(), "audit")


def test_the_command_audits_a_recipe_and_writes_next_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, work, sent = tmp_path / "features", ShuffledTraining.worker, list[BarPanel]()

    def send(training: ShuffledTraining) -> Callable[[int], DailyForecasts]:
        sent.append(training.bars)
        return work(training)

    monkeypatch.setattr(ShuffledTraining, "worker", send)
    written = audit_by_command(tmp_path, bars(), "--report", tmp_path / "report.html", "--feature-cache", cache)
    assert any(cache.glob("*/observed.npy"))
    assert [isinstance(panel.close, np.memmap) for panel in sent] == [True]
    told = json.loads(list(lines(capsys.readouterr().out))[-1])
    assert told["kind"] == "audit"
    assert written.verdict == told["verdict"]
    assert not written.has_leak
    assert "Audit of " in (tmp_path / "report.html").read_text("utf-8")


def test_the_delisting_return_is_a_flag_and_a_note_tells_what_it_was_taken_for(tmp_path: Path) -> None:
    columns = {
        name: np.array(getattr(bars(), name)) for name in ("open", "high", "low", "close", "volume", "adj_close")
    }
    for column in columns.values():
        column[1, -30:] = np.nan
    flags = ("--strategy", "sign", "--delisting-return", "-0.5")
    found = audit_by_command(tmp_path, replace(bars(), **columns), *flags)
    assert "strategy sign closed as delisted: 1; their return of -50 %" in found.notes[-1]
    assert "closed as delisted" not in found.notes[-2]


def entry(one: FeatureDefinition) -> dict[str, str]:
    return {"name": one.name, "expression": one.expression, "meaning": one.meaning, "unit": one.unit}


def lines(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line)


def test_splits_of_the_recipe_are_those_that_are_audited(trained_artifact: Path) -> None:
    source = artifact_source(trained_artifact, "cpu")
    assert source.trained_model is not None
    assert source.trained_model.splits == DataSplits.by_shares(bars().sessions, SMALL_RECIPE.shares)

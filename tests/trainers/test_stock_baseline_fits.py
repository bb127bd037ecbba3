"""Baselines get the calibration that models get, or are fitted on the same history."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from arch import arch_model
from baseline_cases import (
    COLUMNS,
    HORIZONS,
    LEVELS,
    SPLITS,
    TEST,
    TRAIN,
    asked_of,
    bars,
    baseline_named,
    case_of,
    fit_baseline,
    history,
    history_of,
    log_closes,
    riskmetrics,
)
from market import bokeh_panel
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.errors import ConfigurationError
from predictor.features import load_default_features
from predictor.networks import Target, TargetKind
from trainers.stock.data import History, TrainingWindows
from trainers.stock.evaluation.baselines import (
    BaselineModel,
    BaselinePlan,
    FitScope,
    FittedBaseline,
    MeasuredWindows,
    NoForecastError,
    all_baselines,
)
from trainers.stock.evaluation.baselines.baseline import BaselineSample
from trainers.stock.evaluation.baselines.garch import GARCH
from trainers.stock.evaluation.baselines.quantiles import OWN_SCALE, RELATIVE_HAR, UNCONDITIONAL, ZERO_RETURN
from trainers.stock.evaluation.baselines.regression import HAR
from trainers.stock.evaluation.evaluation_set import EvaluationSet, ModelForecasts
from trainers.stock.evaluation.scores import BenchmarkResult, benchmark
from trainers.stock.model_fit import fit_pipeline
from trainers.stock.recipe import StockRecipe
from trainers.stock.splits import SplitPart

FloatArray = NDArray[np.float64]

UNION = SplitPart("union", TRAIN.first, SPLITS.calibration.last)
ALONE = {"zero return", "last value"}
NEVER_FITTED = "60-day empirical quantiles"
Rows = dict[str, FittedBaseline]


def rows_of(found: History) -> Rows:
    """All fitted baselines of an evaluation."""
    plan = all_baselines(found.pipeline.target.kind)
    return {baseline.named(fit): case_of(found).fitted(baseline, fit) for baseline, fit in plan.rows}


def judged_by(
    found: History, plan: BaselinePlan, on_losses: Callable[[str, FloatArray], None] | None = None
) -> BenchmarkResult:
    """Evaluation against a model without forecasts."""
    judged = EvaluationSet.of(found, found.windows(TEST), LEVELS)
    blank = np.zeros((*judged.outcomes.shape, len(LEVELS)))
    ours = ModelForecasts(raw=blank, calibrated=blank, scores=None)
    return benchmark(
        judged, "this model", ours, case_of(found), plan, on_losses=on_losses or (lambda _name, _losses: None)
    )


# --- baselines


@pytest.mark.parametrize("kind", TargetKind)
def test_what_is_fitted_stands_twice_and_a_point_forecast_once(kind: TargetKind) -> None:
    rows = list(all_baselines(kind).rows)
    names = {baseline.name for baseline, _ in rows}
    twice = {(FitScope.CALIBRATED, FitScope.REFITTED)}
    assert len(rows) == 17
    assert len({baseline.named(fit) for baseline, fit in rows}) == 17
    assert {baseline.fits for baseline, _ in rows if baseline.name in names & ALONE} == {(FitScope.UNCALIBRATED,)}
    assert {baseline.fits for baseline, _ in rows if baseline.name not in {*ALONE, NEVER_FITTED}} == twice


def test_what_has_no_fit_stands_as_it_is_and_calibrated() -> None:
    empirical = baseline_named(history(), NEVER_FITTED)
    assert [empirical.named(fit) for fit in empirical.fits] == [NEVER_FITTED, f"{NEVER_FITTED}, calibrated"]


# --- calibrated


def told_in_units(units: Callable[[TrainingWindows], FloatArray]) -> BaselineModel:
    """Quantiles [n, Q] in units of the window's volatility at each horizon."""

    def quantiles(asked: MeasuredWindows) -> FloatArray:
        _, scale = (part.numpy() for part in history().location_and_scale(asked.windows))
        return (scale * np.sqrt(HORIZONS))[..., None] * units(asked.windows)[:, None]

    return BaselineModel(name="biased", estimator=lambda _sample: FittedBaseline(quantiles=quantiles))


def calibration_outcomes(h: int) -> FloatArray:
    """Sorted outcomes of the calibration part, by hand, in units of each window's volatility."""
    found = history().windows(SPLITS.calibration)
    pairs = zip(found.symbols.tolist(), found.positions.tolist(), strict=True)
    days = HORIZONS[h]
    moves = [
        (log_closes(bars(), s)[t + days] - log_closes(bars(), s)[t]) / (np.sqrt(days) * riskmetrics(s, t))
        for s, t in pairs
    ]
    return np.sort(moves)


@pytest.mark.parametrize("bias", [-1.5, 0.0, 0.7])
def test_quantiles_that_are_off_by_a_constant_are_put_right_as_a_models_are(bias: float) -> None:
    """Moved by an order statistic of their residuals, they equal that order statistic of the outcomes."""
    biased = told_in_units(lambda asked: np.tile([-2.0 + bias, 0.0, 2.0 + bias], (len(asked), 1)))
    asked = asked_of(history())
    moved = case_of(history()).fitted(biased, FitScope.CALIBRATED).forecasts(asked)
    for h, days in enumerate(HORIZONS):
        outcomes = calibration_outcomes(h)
        count = len(outcomes)
        low, high = outcomes[int(np.floor(0.1 * (count + 1))) - 1], outcomes[int(np.ceil(0.9 * (count + 1))) - 1]
        for n in (0, 99):
            unit = np.sqrt(days) * riskmetrics(int(asked.windows.symbols[n]), int(asked.windows.positions[n]))
            np.testing.assert_allclose(moved[n, h], unit * np.array([low, 0.0, high]), rtol=1e-9)


def test_a_quantile_that_is_moved_past_the_median_is_put_level_with_it() -> None:
    """It is far too low on most days, but barely below the median on some."""

    def units(asked: TrainingWindows) -> FloatArray:
        few = asked.positions % 50 == 0
        return np.stack([np.where(few, -0.1, -5.0), np.zeros(len(asked)), np.ones(len(asked))], axis=1)

    asked = asked_of(history())
    moved = case_of(history()).fitted(told_in_units(units), FitScope.CALIBRATED).forecasts(asked)
    few = asked.windows.positions % 50 == 0
    np.testing.assert_array_equal(moved[few, :, 0], np.zeros((int(few.sum()), 2)))
    assert (moved[~few, :, 0] < 0).all()
    assert (moved[..., 2] > 0).all()


@pytest.mark.parametrize("kind", TargetKind)
def test_the_median_of_a_calibrated_row_is_that_of_the_fit_on_the_training_part(kind: TargetKind) -> None:
    found = history(kind)
    asked = asked_of(found)
    for baseline in all_baselines(kind).baselines:
        if FitScope.CALIBRATED in baseline.fits:
            plain = fit_baseline(found, baseline.name).forecasts(asked)
            moved = fit_baseline(found, baseline.name, FitScope.CALIBRATED).forecasts(asked)
            np.testing.assert_allclose(moved[..., 1], plain[..., 1], rtol=1e-9, atol=1e-12, err_msg=baseline.name)
            assert (moved[..., [0, 2]] != plain[..., [0, 2]]).any(), baseline.name


# --- refitted


def test_refitted_quantiles_are_those_of_all_outcomes_up_to_the_last_calibration_session() -> None:
    asked = asked_of(history())
    refitted = fit_baseline(history(), "unconditional quantiles", FitScope.REFITTED).forecasts(asked)
    closes, sessions = log_closes(bars(), 1), bars().sessions
    last = int(np.searchsorted(sessions, SPLITS.calibration.last, side="right")) - 1
    first = history().windows(TRAIN).positions[0]
    days = np.arange(first, last - HORIZONS[-1] + 1)  # including those whose targets straddle two parts
    for h, horizon in enumerate(HORIZONS):
        expected = np.quantile(closes[days + horizon] - closes[days], LEVELS)
        np.testing.assert_allclose(refitted[asked.windows.symbols == 1][0, h], expected, rtol=1e-9)


def test_refitted_garch_is_fitted_on_all_returns_up_to_the_last_calibration_session() -> None:
    asked = asked_of(history())
    found = fit_baseline(history(), GARCH.name, FitScope.REFITTED).forecasts(asked)
    count = int((bars().sessions <= SPLITS.calibration.last).sum()) - 1
    model = arch_model(100 * np.diff(log_closes(bars())), dist="t", rescale=False)
    fit = model.fit(last_obs=count, disp="off")
    row = int(np.flatnonzero(asked.windows.symbols == 0)[-1])
    variance = fit.forecast(horizon=5, start=int(asked.windows.positions[row]) - 1, reindex=False).variance.to_numpy()[
        0
    ]
    units = model.distribution.ppf(np.array(LEVELS), np.array([fit.params["nu"]]))
    for h, horizon in enumerate(HORIZONS):
        expected = horizon * fit.params["mu"] + np.sqrt(variance[:horizon].sum()) * units
        np.testing.assert_allclose(found[row, h], expected / 100, rtol=1e-4)  # the optimiser's own precision


@pytest.mark.parametrize("kind", TargetKind)
def test_refitted_is_the_fit_on_the_union_of_the_three_parts(kind: TargetKind) -> None:
    found = history(kind)
    asked = asked_of(found)
    union = replace(case_of(found), train=UNION)
    for baseline in all_baselines(kind).baselines:
        if FitScope.REFITTED in baseline.fits:
            expected = union.fitted(baseline, FitScope.UNCALIBRATED).forecasts(asked)
            refitted = fit_baseline(found, baseline.name, FitScope.REFITTED).forecasts(asked)
            np.testing.assert_array_equal(refitted, expected, err_msg=baseline.name)
            assert (refitted != fit_baseline(found, baseline.name).forecasts(asked)).any(), baseline.name


# --- nothing of the test part, everything before it


def replaced(panel: BarPanel, change: Callable[[str, FloatArray], None]) -> BarPanel:
    """The panel with its columns changed by a function."""
    columns = {name: np.array(getattr(panel, name)) for name in COLUMNS}
    for name, column in columns.items():
        change(name, column)
    return replace(panel, **columns)


def listed_late(panel: BarPanel) -> BarPanel:
    """Bars in which GOOG is listed in the training part, more than a year before its end."""
    first = int(np.searchsorted(panel.sessions, 20070801))

    def unlist(_name: str, column: FloatArray) -> None:
        column[1, :first] = np.nan

    return replaced(panel, unlist)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TargetKind)
def test_no_bar_of_the_test_part_moves_a_fitted_number(kind: TargetKind) -> None:
    """Checked on earlier windows, whose forecasts depend on nothing else."""
    before = listed_late(bars())
    first = int(np.searchsorted(before.sessions, TEST.first))
    noise = np.exp(np.random.default_rng(0).normal(0, 0.05, (2, len(before.sessions) - first)))

    def shake(name: str, column: FloatArray) -> None:
        if name != "volume":
            column[:, first:] *= noise * (1.5 if name == "high" else 1.0)

    found, other = (
        history_of(panel, Target(kind=kind, horizons=HORIZONS)) for panel in (before, replaced(before, shake))
    )
    asked, asked_again = (asked_of(each, SPLITS.calibration) for each in (found, other))
    shaken = rows_of(other)
    for name, row in rows_of(found).items():
        after, before = shaken[name].forecasts(asked_again), row.forecasts(asked)
        np.testing.assert_allclose(after, before, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("kind", TargetKind)
def test_the_last_calibration_label_moves_what_is_refitted(kind: TargetKind) -> None:
    last = int(np.searchsorted(bars().sessions, SPLITS.calibration.last, side="right")) - 1

    def crash(name: str, column: FloatArray) -> None:
        if name != "volume":
            column[:, last] *= 2.0 if name == "high" else 0.5

    found, crashed = history(kind), history_of(replaced(bars(), crash), history(kind).pipeline.target)
    asked = {each: asked_of(each, TRAIN) for each in (found, crashed)}
    for baseline in all_baselines(kind).baselines:
        for fit, moves in ((FitScope.UNCALIBRATED, False), (FitScope.REFITTED, True)):
            if fit is FitScope.UNCALIBRATED or fit in baseline.fits:
                pair = (fit_baseline(each, baseline.name, fit).forecasts(own) for each, own in asked.items())
                assert (not np.allclose(*pair, rtol=1e-9, atol=1e-12)) == moves, (baseline.name, fit)


LATE = SplitPart("late", 20081001, 20081231)


def thinned_late(kept: Callable[[NDArray[np.int64]], NDArray[np.bool_]], horizons: tuple[int, ...]) -> BaselineSample:
    """Bars with gaps in the last months of the training part."""
    places = np.arange(len(bars().sessions))
    gone = (bars().sessions >= LATE.first) & ~kept(places)

    def thin(_name: str, column: FloatArray) -> None:
        column[:, gone] = np.nan

    return BaselineSample(
        history=history_of(replaced(bars(), thin), Target(horizons=horizons)), part=LATE, levels=LEVELS
    )


def test_a_part_that_knows_no_outcome_of_a_horizon_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no outcome 1 sessions ahead is known from 20081001 to 20081231"):
        thinned_late(lambda places: places % 3 == 0, (1, 3))


def test_har_cannot_be_fitted_where_no_horizon_has_all_its_bars() -> None:
    """With every third bar missing, returns over three sessions are known, but not ranges."""
    sample = thinned_late(lambda places: places % 3 != 1, (3,))
    with pytest.raises(NoForecastError, match="has ranges on all sessions of a horizon"):
        HAR.estimator(sample)


def test_a_symbol_without_ranges_on_half_of_its_days_leaves_hars_forecasts_of_the_others_where_they_were() -> None:
    panel = bars()
    still = np.random.default_rng(3).random(len(panel.sessions)) < 0.5

    def spoil(name: str, column: FloatArray) -> None:
        if name in {"open", "high", "low"}:
            column[1, still] = panel.close[1, still]

    medians: list[FloatArray] = []
    for each in (panel, replaced(panel, spoil)):
        found = history_of(each, Target(kind=TargetKind.LOG_VOLATILITY, horizons=(1,)))
        windows = found.windows(TEST)
        own = windows.symbols == 0
        asked = MeasuredWindows.of(
            found, TrainingWindows(symbols=windows.symbols[own], positions=windows.positions[own])
        )
        medians.append(
            HAR.estimator(BaselineSample(history=found, part=TRAIN, levels=LEVELS)).quantiles(asked)[:, 0, 1]
        )
    np.testing.assert_allclose(medians[0], medians[1], atol=0.3)  # residuals are pooled, so the median moves a little


# --- all rows on the same windows


def uneven() -> BarPanel:
    """Bars: AAPL complete; GOOG listed in the last test months; IBM with halts; MSFT flat."""
    panel = bokeh_panel("AAPL", "GOOG", "IBM", "MSFT").between(20070103, 20091231)
    listed = int(np.searchsorted(panel.sessions, 20091001))
    halted = np.arange(len(panel.sessions)) % 90 < 25
    halted &= panel.sessions > 20080601

    def spoil(name: str, column: FloatArray) -> None:
        column[1, :listed] = np.nan
        column[2, halted] = np.nan
        if name != "volume":
            column[3] = 100.0

    return replaced(panel, spoil)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", TargetKind)
def test_every_row_is_scored_on_the_same_windows_of_short_halted_and_flat_symbols(kind: TargetKind) -> None:
    found = history_of(uneven(), Target(kind=kind, horizons=HORIZONS))
    asked = found.windows(TEST)
    assert set(asked.symbols.tolist()) == {0, 1, 2, 3}
    heard: dict[str, FloatArray] = {}
    made = judged_by(found, all_baselines(kind), heard.__setitem__)
    known = np.isfinite(found.outcomes(asked))
    assert not known.all()
    assert len(heard) == 17
    for name, losses in heard.items():
        np.testing.assert_array_equal(np.isfinite(losses), known, err_msg=name)
    assert {tuple(h.windows for h in row.horizons) for row in made.rows} == {tuple(known.sum(axis=0).tolist())}
    why = [note.removesuffix(")") for note in made.notes]
    assert [note.split(" uses the unconditional quantiles for GOOG")[0] for note in why] == [
        f"{GARCH.name}, calibrated",
        f"{GARCH.name}, refitted",
    ]


def test_a_baseline_that_leaves_windows_out_is_left_out_itself_and_a_note_says_of_how_many() -> None:
    found = history()

    def quantiles(asked: MeasuredWindows) -> FloatArray:
        return np.where(asked.windows.symbols[:, None, None] == 1, np.nan, np.zeros((len(asked), 2, 3)))

    blind = BaselineModel(
        name="blind", estimator=lambda _sample: FittedBaseline(quantiles=quantiles), fits=(FitScope.UNCALIBRATED,)
    )
    made = judged_by(found, BaselinePlan(baselines=(ZERO_RETURN, blind), notes=()))
    asked = found.windows(TEST)
    assert [row.name for row in made.rows] == ["this model", "zero return"]
    count = int((asked.symbols == 1).sum())
    assert made.notes == (f"blind is left out: it has no forecast for {count} of {len(asked)} windows",)
    assert made.skill.rivals == ("zero return",)


@pytest.mark.parametrize("kind", TargetKind)
def test_relative_har_is_what_a_model_of_that_scale_starts_from(kind: TargetKind) -> None:
    target = Target(kind=kind, horizons=HORIZONS)
    recipe = StockRecipe(calendar="XNYS", target=target, scale="har")
    found = History(bars(), fit_pipeline(bars(), load_default_features(), recipe, SPLITS))
    sample, asked = BaselineSample(history=found, part=TRAIN, levels=LEVELS), asked_of(found)
    start, rival = (baseline.estimator(sample).forecasts(asked) for baseline in (OWN_SCALE, RELATIVE_HAR))
    np.testing.assert_allclose(rival, start, rtol=1e-6)


def test_bars_without_a_price_that_moves_have_no_relative_har_and_a_note_says_why() -> None:
    still = replace(bars(), **{name: np.full_like(bars().close, 10.0) for name in COLUMNS if name != "volume"})
    plan = BaselinePlan(baselines=(UNCONDITIONAL, RELATIVE_HAR), notes=())
    made = judged_by(History(still, history().pipeline), plan)
    why = "prices never move in the training part, so no volatility can be fitted"
    wanted = [f"{RELATIVE_HAR.name}, {fit} is left out: {why}" for fit in (FitScope.CALIBRATED, FitScope.REFITTED)]
    assert [note for note in made.notes if note.startswith(RELATIVE_HAR.name)] == wanted


def test_a_baseline_that_cannot_be_fitted_is_left_out_with_the_reason() -> None:
    def refuse(_sample: BaselineSample) -> FittedBaseline:
        raise NoForecastError("it needs more")

    plan = BaselinePlan(baselines=(ZERO_RETURN, BaselineModel(name="greedy", estimator=refuse)), notes=())
    made = judged_by(history(), plan)
    assert [row.name for row in made.rows] == ["this model", "zero return"]
    assert made.notes == tuple(f"greedy, {fit} is left out: it needs more" for fit in ("calibrated", "refitted"))


def test_symbols_with_another_baselines_forecasts_are_named_in_one_note_a_row_up_to_a_number() -> None:
    names = tuple(f"S{k}" for k in range(8))
    columns = {name: np.repeat(np.array(getattr(bars(), name))[:1], 8, axis=0) for name in COLUMNS}
    for column in columns.values():
        column[1:, : int(np.searchsorted(bars().sessions, 20080401))] = np.nan
    found = history_of(replace(bars(), symbols=names, **columns), Target(horizons=HORIZONS))
    made = judged_by(found, BaselinePlan(baselines=(ZERO_RETURN, GARCH), notes=()))
    few = "it has 191 daily returns to fit, but needs 250"
    told = ", ".join(f"S{k} ({few})" for k in range(1, 6))
    assert made.notes == (f"{GARCH.name}, calibrated uses the unconditional quantiles for {told} and 2 more",)


def test_a_sample_holds_no_window_but_those_of_its_part() -> None:
    sample = BaselineSample(history=history(), part=UNION, levels=LEVELS)
    assert int(sample.mask.sum()) == len(sample.windows) == len(history().windows(UNION))
    ends = sample.windows.positions + HORIZONS[-1]
    assert bars().sessions[ends].max() <= SPLITS.calibration.last

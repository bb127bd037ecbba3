"""Baselines against values computed by hand and against the package arch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from arch import arch_model
from baseline_cases import (
    HORIZONS,
    LEVELS,
    TEST,
    TRAIN,
    asked_of,
    bars,
    case_of,
    fit_baseline,
    history,
    history_of,
    log_closes,
    riskmetrics,
)
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.networks import Target, TargetKind
from trainers.stock.data import History
from trainers.stock.evaluation import baselines
from trainers.stock.evaluation.baselines import (
    FitScope,
    MeasuredWindows,
    all_baselines,
    garch,
    quick_baselines,
    regression,
)
from trainers.stock.evaluation.baselines.regression import regressors

FloatArray = NDArray[np.float64]

GARCH = "GARCH(1,1)-t"
HAR = "HAR (1, 5, 22 days)"
LIGHTGBM = "LightGBM quantiles"


@dataclass(frozen=True)
class FittedBaselines:
    """All baselines, fitted on the training part without calibration."""

    forecasts: Mapping[str, FloatArray]
    replaced: Mapping[int, str]


def baselines_of(found: History) -> FittedBaselines:
    asked = asked_of(found)
    names = [one.name for one in all_baselines(found.pipeline.target.kind).baselines]
    made = {name: fit_baseline(found, name) for name in names}
    replaced = made[GARCH].replaced
    return FittedBaselines(
        {name: one.forecasts(asked) for name, one in made.items()}, {} if replaced is None else replaced.why
    )


@cache
def returns_baselines(lag: int = 0) -> FittedBaselines:
    return baselines_of(history(lag=lag))


def rows_of(found: History, symbol: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    windows = found.windows(TEST)
    chosen = windows.symbols == symbol
    return chosen, windows.positions[chosen]


def test_zero_return_forecasts_no_change_at_every_level() -> None:
    windows = history().windows(TEST)
    np.testing.assert_array_equal(returns_baselines().forecasts["zero return"], np.zeros((len(windows), 2, 3)))


def test_unconditional_quantiles_are_those_of_the_symbols_own_training_outcomes() -> None:
    rows, _ = rows_of(history(), 1)
    closes = log_closes(bars(), 1)
    learnt = history().windows(TRAIN).positions[history().windows(TRAIN).symbols == 1]
    for h, horizon in enumerate(HORIZONS):
        expected = np.quantile(closes[learnt + horizon] - closes[learnt], LEVELS)
        found = returns_baselines().forecasts["unconditional quantiles"][rows, h]
        np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=1e-9)


def test_empirical_quantiles_are_those_of_the_last_60_returns_times_the_root_of_the_horizon() -> None:
    rows, positions = rows_of(history(), 0)
    returns = np.diff(log_closes(bars()), prepend=np.nan)
    found = returns_baselines().forecasts["60-day empirical quantiles"][rows]
    for n in (0, 17, len(positions) - 1):
        last = returns[positions[n] - 59 : positions[n] + 1]
        expected = np.quantile(last, LEVELS)
        np.testing.assert_allclose(found[n], np.sqrt(HORIZONS)[:, None] * expected, rtol=1e-9)


def test_scaled_quantiles_are_training_outcomes_in_units_of_riskmetrics_volatility() -> None:
    learnt, asked = history().windows(TRAIN), history().windows(TEST)
    pairs = list(zip(learnt.symbols.tolist(), learnt.positions.tolist(), strict=True))
    units = [(log_closes(bars(), s)[t + 5] - log_closes(bars(), s)[t]) / riskmetrics(s, t) for s, t in pairs]
    found = returns_baselines().forecasts["volatility-scaled quantiles"]
    for n in (0, 33):
        expected = np.quantile(units, LEVELS) * riskmetrics(int(asked.symbols[n]), int(asked.positions[n]))
        np.testing.assert_allclose(found[n, 1], expected, rtol=1e-5)


@pytest.mark.parametrize("lag", [0, 1])
def test_garch_is_what_arch_forecasts_from_parameters_of_the_training_part(lag: int) -> None:
    rows, positions = rows_of(history(lag=lag), 0)
    closes = log_closes(bars())
    learnt = int((bars().sessions <= TRAIN.last).sum()) - 1
    model = arch_model(100 * np.diff(closes), dist="t", rescale=False)
    fit = model.fit(last_obs=learnt, disp="off")
    for n in (0, len(positions) - 1):
        ahead = fit.forecast(horizon=6, start=int(positions[n]) - 1, reindex=False).variance.to_numpy()[0]
        units = model.distribution.ppf(np.array(LEVELS), np.array([fit.params["nu"]]))
        for h, horizon in enumerate(HORIZONS):
            expected = horizon * fit.params["mu"] + np.sqrt(ahead[lag : lag + horizon].sum()) * units
            found = returns_baselines(lag).forecasts[GARCH][rows][n, h]
            np.testing.assert_allclose(found, expected / 100, rtol=1e-4)  # the optimiser's own precision


@pytest.mark.parametrize("kind", TargetKind)
def test_no_baseline_forecast_moves_when_later_test_bars_change(kind: TargetKind) -> None:
    day = int(np.searchsorted(bars().sessions, 20091001))
    columns = {name: np.array(getattr(bars(), name)) for name in ("open", "high", "low", "close", "adj_close")}
    random = np.random.default_rng(0)
    factor = np.exp(random.normal(0, 0.05, len(bars().sessions) - day - 1))
    for column in columns.values():
        column[:, day + 1 :] *= factor
    columns["high"][:, day + 1 :] *= np.exp(random.exponential(0.05, factor.shape))
    changed = baselines_of(history_of(replace(bars(), **columns), history(kind).pipeline.target))
    early = history(kind).windows(TEST).positions <= day
    before = returns_baselines() if kind is TargetKind.LOG_RETURN else volatility_baselines()
    assert len(before.forecasts) == 9
    for name, forecast in before.forecasts.items():
        np.testing.assert_allclose(changed.forecasts[name][early], forecast[early], rtol=1e-9, err_msg=name)
    for name in before.forecasts.keys() - {"zero return", "unconditional quantiles"}:
        assert np.abs(changed.forecasts[name][~early] - before.forecasts[name][~early]).max() > 1e-4, name


def young_bars() -> BarPanel:
    """Bars with GOOG listed in April 2008: less than a year of returns in the training part."""
    first = int(np.searchsorted(bars().sessions, 20080401))
    columns = {n: np.array(getattr(bars(), n)) for n in ("open", "high", "low", "close", "volume", "adj_close")}
    for column in columns.values():
        column[1, :first] = np.nan
    return replace(bars(), **columns)


def test_a_young_symbol_has_the_unconditional_forecast_and_it_is_said_why() -> None:
    found = history_of(young_bars(), Target(horizons=HORIZONS))
    made = baselines_of(found)
    rows, _ = rows_of(found, 1)
    np.testing.assert_array_equal(made.forecasts[GARCH][rows], made.forecasts["unconditional quantiles"][rows])
    others, _ = rows_of(found, 0)
    assert (made.forecasts[GARCH][others] != made.forecasts["unconditional quantiles"][others]).all()
    assert made.replaced == {1: "it has 191 daily returns to fit, but needs 250"}


def test_symbols_that_are_old_enough_are_fitted() -> None:
    assert returns_baselines().replaced == {}


def test_a_symbol_without_training_windows_has_all_symbols_quantiles() -> None:
    panel = young_bars()
    columns = {n: np.array(getattr(panel, n)) for n in ("open", "high", "low", "close", "volume", "adj_close")}
    for column in columns.values():
        column[1, : int(np.searchsorted(panel.sessions, 20090105))] = np.nan
    found = history_of(replace(panel, **columns), Target(horizons=HORIZONS))
    forecast = baselines_of(found).forecasts["unconditional quantiles"]
    np.testing.assert_array_equal(forecast[rows_of(found, 1)[0]][0], forecast[rows_of(found, 0)[0]][0])


def test_every_baseline_is_finite_for_a_symbol_listed_a_few_days_ago() -> None:
    panel = young_bars()
    columns = {n: np.array(getattr(panel, n)) for n in ("open", "high", "low", "close", "volume", "adj_close")}
    for column in columns.values():
        column[1, : int(np.searchsorted(panel.sessions, 20090706))] = np.nan
    found = history_of(replace(panel, **columns), Target(horizons=HORIZONS))
    for name, forecast in baselines_of(found).forecasts.items():
        assert np.isfinite(forecast).all(), name


@pytest.mark.parametrize(("package", "name"), [("arch", GARCH), ("sklearn", "ridge"), ("lightgbm", LIGHTGBM)])
def test_what_is_not_installed_is_left_out_and_a_note_says_what_to_install(
    package: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(asked: str) -> object:
        return None if asked == package else object()

    monkeypatch.setattr(baselines, "find_spec", found)
    plan = all_baselines(TargetKind.LOG_RETURN)
    left_out = plan.notes
    assert len(left_out) == 1
    assert left_out[0].startswith(f"{name} is left out, because the package ")
    assert left_out[0].endswith("pip install 'quantra[baselines]'")
    assert len(plan.baselines) == 8
    assert name not in {baseline.name for baseline in plan.baselines}


def test_a_training_skips_slow_parts_and_reports_it() -> None:
    few, many = (quick_baselines(TargetKind.LOG_RETURN, count) for count in (4, 1000))
    assert [note.split(" is ")[0] for note in few.notes] == [LIGHTGBM]
    assert [note.split(" is ")[0] for note in many.notes] == [GARCH, LIGHTGBM]
    assert "quantra evaluate includes it" in few.notes[0]
    assert len(few.baselines) == len(many.baselines) + 1 == 8


def test_a_fit_that_does_not_converge_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_args: object) -> None:
        return None

    monkeypatch.setattr(garch, "_fit", failed)
    made = case_of(history()).fitted(garch.GARCH, FitScope.UNCALIBRATED)
    expected = returns_baselines().forecasts["unconditional quantiles"]
    np.testing.assert_array_equal(made.forecasts(asked_of(history())), expected)
    assert made.replaced is not None
    assert made.replaced.by == "unconditional quantiles"
    assert set(made.replaced.why) == {0, 1}
    assert set(made.replaced.why.values()) == {"its fit did not converge"}


def flat_bars() -> BarPanel:
    """Bars with every price of GOOG at 100."""
    columns = {n: np.array(getattr(bars(), n)) for n in ("open", "high", "low", "close", "adj_close")}
    for column in columns.values():
        column[1] = 100.0
    return replace(bars(), **columns)


@pytest.mark.parametrize("kind", TargetKind)
def test_a_symbol_that_never_moves_is_forecast_by_every_baseline(kind: TargetKind) -> None:
    found = history_of(flat_bars(), Target(kind=kind, horizons=HORIZONS))
    made = baselines_of(found)
    for name, forecast in made.forecasts.items():
        assert np.isfinite(forecast).all(), name
    assert made.replaced == {1: "its price never moves where it is fitted"}


@pytest.mark.parametrize("kind", TargetKind)
def test_no_baselines_quantiles_cross(kind: TargetKind) -> None:
    made = returns_baselines() if kind is TargetKind.LOG_RETURN else volatility_baselines()
    for name, forecast in made.forecasts.items():
        assert (np.diff(forecast, axis=-1) >= 0).all(), name


def test_boosted_quantiles_that_lie_close_are_put_in_order() -> None:
    close = tuple(0.46 + 0.01 * k for k in range(9))
    made = fit_baseline(history(), LIGHTGBM, levels=close).forecasts(asked_of(history()))
    assert (np.diff(made, axis=-1) >= 0).all()


def test_boosted_trees_give_the_same_bits_again() -> None:
    again = case_of(history()).fitted(regression.BOOSTED, FitScope.UNCALIBRATED).forecasts(asked_of(history()))
    np.testing.assert_array_equal(again, returns_baselines().forecasts[LIGHTGBM])


def test_har_of_returns_scales_training_outcomes_by_the_volatility_it_forecasts() -> None:
    found = history()
    learnt, asked = found.windows(TRAIN), found.windows(TEST)
    pairs = list(zip(learnt.symbols.tolist(), learnt.positions.tolist(), strict=True))
    x, y = np.array([averages(*p) for p in pairs]), np.array([mean_log_volatility(*p) for p in pairs])
    weights = np.linalg.solve(x.T @ x, x.T @ y)
    units = np.array([log_closes(bars(), s)[t + 5] - log_closes(bars(), s)[t] for s, t in pairs]) / np.exp(x @ weights)
    n = 11
    now = np.array(averages(int(asked.symbols[n]), int(asked.positions[n]))) @ weights
    expected = np.exp(now) * np.quantile(units, LEVELS)
    np.testing.assert_allclose(returns_baselines().forecasts[HAR][n, 1], expected, rtol=1e-6)


@pytest.mark.parametrize("kind", TargetKind)
def test_ridge_solves_the_normal_equations_of_its_standardised_regressors(kind: TargetKind) -> None:
    found = history(kind)
    made = returns_baselines() if kind is TargetKind.LOG_RETURN else volatility_baselines()
    learnt, asked = found.windows(TRAIN), found.windows(TEST)
    x, z = regressors(found, MeasuredWindows.of(found, learnt)), regressors(found, MeasuredWindows.of(found, asked))
    spread = x.std(axis=0)
    spread[spread == 0] = 1.0
    x, z = (x - x.mean(axis=0)) / spread, (z - x.mean(axis=0)) / spread
    location, scale = (part.numpy()[:, 1] for part in found.location_and_scale(learnt))
    y = (found.outcomes(learnt)[:, 1] - location) / (scale * np.sqrt(5) if kind is TargetKind.LOG_RETURN else 1.0)
    weights = np.linalg.solve(x.T @ x + 10 * np.eye(x.shape[1]), x.T @ (y - y.mean()))
    residuals = np.quantile(y - y.mean() - x @ weights, LEVELS)
    location, scale = (part.numpy()[:, 1] for part in found.location_and_scale(asked))
    unit = scale * np.sqrt(5) if kind is TargetKind.LOG_RETURN else np.ones_like(scale)
    expected = location[:, None] + unit[:, None] * ((z @ weights + y.mean())[:, None] + residuals)
    np.testing.assert_allclose(made.forecasts["ridge"][:, 1], expected, rtol=1e-6, atol=1e-9)


def test_empirical_quantiles_of_volatility_are_those_of_the_last_60_days() -> None:
    rows, positions = rows_of(history(TargetKind.LOG_VOLATILITY), 0)
    found = volatility_baselines().forecasts["60-day empirical quantiles"][rows]
    expected = np.quantile(log_volatility(0)[positions[3] - 59 : positions[3] + 1], LEVELS)
    np.testing.assert_allclose(found[3], np.broadcast_to(expected, (2, 3)), rtol=1e-9)


@cache
def volatility_baselines() -> FittedBaselines:
    return baselines_of(history(TargetKind.LOG_VOLATILITY))


def log_volatility(symbol: int) -> FloatArray:
    return np.log(np.abs(np.log(bars().high[symbol] / bars().low[symbol])) / np.sqrt(4 * np.log(2)))


def test_the_last_value_of_volatility_is_parkinsons_of_the_day() -> None:
    rows, positions = rows_of(history(TargetKind.LOG_VOLATILITY), 0)
    expected = np.broadcast_to(log_volatility(0)[positions][:, None, None], (len(positions), 2, 3))
    np.testing.assert_allclose(volatility_baselines().forecasts["last value"][rows], expected, rtol=1e-9)


def averages(symbol: int, t: int) -> list[float]:
    daily = log_volatility(symbol)
    return [1.0, daily[t], daily[t - 4 : t + 1].mean(), daily[t - 21 : t + 1].mean()]


def mean_log_volatility(symbol: int, t: int) -> float:
    return float(np.log(np.exp(2 * log_volatility(symbol)[t + 1 : t + 6]).mean()) / 2)


def test_har_is_least_squares_on_three_averages_with_the_quantiles_of_its_residuals() -> None:
    found = history(TargetKind.LOG_VOLATILITY)
    learnt, asked = found.windows(TRAIN), found.windows(TEST)
    pairs = list(zip(learnt.symbols.tolist(), learnt.positions.tolist(), strict=True))
    x, y = np.array([averages(*p) for p in pairs]), np.array([mean_log_volatility(*p) for p in pairs])
    weights = np.linalg.solve(x.T @ x, x.T @ y)
    n = 40
    centre = np.array(averages(int(asked.symbols[n]), int(asked.positions[n]))) @ weights
    expected = centre + np.quantile(y - x @ weights, LEVELS)
    np.testing.assert_allclose(volatility_baselines().forecasts[HAR][n, 1], expected, rtol=1e-6)

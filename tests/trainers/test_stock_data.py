"""Training windows equal those of serving; targets invert to returns; no look-ahead."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from artifacts import small_artifact, small_model
from market import bokeh_panel
from numpy.typing import NDArray

from predictor import golden
from predictor.bars import BarPanel
from predictor.errors import ConfigurationError
from predictor.features import FeatureDefinition, FeatureSet, load_default_features
from predictor.instance import Instance
from predictor.networks import Inputs, Target, TargetKind, restore
from predictor.windows import BarRequirements, Pipeline
from trainers.stock.data import History, TrainingWindows
from trainers.stock.model_fit import fit_pipeline
from trainers.stock.objectives import QuantileTask
from trainers.stock.recipe import StockRecipe
from trainers.stock.scale import sample_of
from trainers.stock.splits import DataSplits, SplitPart

FloatArray = NDArray[np.float64]

SYMBOLS = ("AAPL", "GOOG")
LAST_TRAINING_SESSION = 20090630


@cache
def bars() -> BarPanel:
    return bokeh_panel(*SYMBOLS).between(20080102, 20101231)


def splits() -> DataSplits:
    return DataSplits(
        train=SplitPart("train", 20080102, LAST_TRAINING_SESSION),
        selection=SplitPart("selection", 20090701, 20091231),
        calibration=SplitPart("calibration", 20100104, 20100630),
        test=SplitPart("test", 20100701, 20101231),
    )


def pipeline_for(panel: BarPanel, recipe: StockRecipe | None = None) -> Pipeline:
    return fit_pipeline(panel, load_default_features(), recipe or StockRecipe(calendar="XNYS"), splits())


@cache
def history() -> History:
    return History(bars(), pipeline_for(bars()))


def without(panel: BarPanel, symbol: int, rows: slice | int) -> BarPanel:
    """The panel without some bars of a symbol."""
    changed: dict[str, FloatArray] = {}
    for name in ("open", "high", "low", "close", "volume", "adj_close"):
        column = np.array(getattr(panel, name))
        column[symbol, rows] = np.nan
        changed[name] = column
    return replace(panel, **changed)


def with_another_future(panel: BarPanel, after: int, *, seed: int = 1, rebased: bool = True) -> BarPanel:
    """The panel with all bars after a session (yyyymmdd) shuffled, and a halved adjustment, as by a dividend."""
    first = int(np.searchsorted(panel.sessions, after, side="right"))
    order = np.arange(len(panel.sessions))
    order[first:] = np.random.default_rng(seed).permutation(order[first:])
    columns = {name: getattr(panel, name)[:, order] for name in ("open", "high", "low", "close", "volume", "adj_close")}
    if rebased:
        columns["adj_close"][:, first:] *= 0.37
    return replace(panel, **columns)


def inputs_at(panel: BarPanel, pipeline: Pipeline, session: int) -> Inputs:
    return pipeline.latest_window(pipeline.encode_latest(panel.until(session)))


def assert_gathered_is_served(found: History, sessions: list[int]) -> None:
    for session in sessions:
        position = int(np.searchsorted(found.bars.sessions, session))
        windows = TrainingWindows(symbols=np.array([0, 1]), positions=np.array([position, position]))
        served = inputs_at(found.bars, found.pipeline, session)
        for name, mine, theirs in zip(Inputs._fields, found.gather(windows).inputs, served, strict=True):
            assert mine.dtype == theirs.dtype
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-6, msg=f"{name} at {session}")


def test_what_is_computed_of_a_few_symbols_at_a_time_is_what_all_give_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("predictor.bars.panel.SYMBOLS_AT_ONCE", 2)
    panel = bokeh_panel("AAPL", "GOOG", "IBM", "MSFT", "FB").between(20080102, 20130301)
    parted, adjusted = History(panel, history().pipeline), panel.adjusted()

    target = parted.pipeline.target
    assert np.array_equal(parted.labels, target.labels(adjusted), equal_nan=True)
    assert np.array_equal(parted.daily, target.daily(adjusted), equal_nan=True)


def test_gathered_windows_are_what_serving_computes_for_the_same_day() -> None:
    assert_gathered_is_served(history(), [20090715, 20091224, 20100517, 20101231])


def test_they_are_so_across_holidays_that_the_calendar_of_an_unknown_exchange_does_not_know() -> None:
    panel = replace(bars(), calendar="")
    assert_gathered_is_served(History(panel, pipeline_for(panel, StockRecipe())), [20090702, 20091224, 20100104])


def test_they_are_so_next_to_a_missing_bar() -> None:
    panel = without(bars(), 0, int(np.searchsorted(bars().sessions, 20090710)))
    assert_gathered_is_served(History(panel, history().pipeline), [20090713, 20090715])


@pytest.mark.parametrize("lag", [0, 1])
def test_targets_times_scale_are_the_raw_log_returns(lag: int) -> None:
    target = Target(lag=lag)
    found = History(bars(), pipeline_for(bars(), StockRecipe(calendar="XNYS", target=target)))
    windows = found.windows(splits().require_test())
    batch = found.gather(windows)
    spread = torch.from_numpy(np.sqrt(np.array(target.horizons, np.float64)))
    back = restore(batch.target.double()[..., None], batch.inputs.location, batch.inputs.scale, spread)[..., 0].numpy()
    assert bars().adj_close is not None
    close = np.log(np.array(bars().adj_close))
    for h, horizon in enumerate(target.horizons):
        start, end = windows.positions + lag, windows.positions + lag + horizon
        np.testing.assert_allclose(
            back[:, h], close[windows.symbols, end] - close[windows.symbols, start], rtol=1e-5, atol=1e-7
        )


def test_targets_are_of_the_size_of_one() -> None:
    targets = history().targets(history().windows(splits().require_test())).numpy()
    assert 0.5 < targets.std() < 2


def test_windows_come_by_date_then_symbol() -> None:
    windows = history().windows(splits().selection)
    order = np.lexsort((windows.symbols, windows.positions))
    np.testing.assert_array_equal(order, np.arange(len(windows)))
    assert windows.symbols[:4].tolist() == [0, 1, 0, 1]


def test_a_window_whose_last_bar_is_missing_is_left_out() -> None:
    day = int(np.searchsorted(bars().sessions, 20090715))
    windows = History(without(bars(), 0, day), history().pipeline).windows(splits().selection)
    assert windows.symbols[windows.positions == day].tolist() == [1]


def test_it_is_left_out_even_where_features_and_targets_do_not_read_that_bar() -> None:
    expression = "Log(Ref($close, 1) / Ref($close, 2))"
    lagged = FeatureSet(observed=(FeatureDefinition(name="r", expression=expression, meaning="return", unit="1"),))
    day = int(np.searchsorted(bars().sessions, 20090715))
    panel = without(bars(), 0, day)
    recipe = StockRecipe(calendar="XNYS", target=Target(lag=1))
    found = History(panel, fit_pipeline(panel, lagged, recipe, splits()))
    assert found.encoded.mask[0, day].all()
    assert np.isfinite(found.labels[0, day]).all()
    windows = found.windows(splits().selection)
    assert windows.symbols[windows.positions == day].tolist() == [1]


@pytest.mark.parametrize(
    ("minimum", "bars_before"), [(BarRequirements(), 30), (BarRequirements(encoder_share=0.1, values=20), 21)]
)
def test_a_window_begins_to_count_with_the_least_bars_and_returns(minimum: BarRequirements, bars_before: int) -> None:
    begins = int(np.searchsorted(bars().sessions, 20090715))
    young = without(bars(), 0, slice(0, begins))
    windows = History(young, replace(history().pipeline, minimum=minimum)).windows(splits().selection)
    assert windows.positions[windows.symbols == 0].min() == begins + bars_before - 1


def test_the_scale_is_fitted_on_the_same_windows_that_are_trained_on() -> None:
    halted = without(bars(), 0, slice(200, 350))
    pipeline = pipeline_for(halted)
    learnt = sample_of(halted.until(LAST_TRAINING_SESSION), pipeline, splits().train, StockRecipe().quantiles)
    found = History(halted, pipeline)
    windows, known = found.windows(splits().train), np.isfinite(learnt.outcomes).any(axis=1)
    np.testing.assert_allclose(learnt.outcomes[known], found.outcomes(windows), rtol=1e-9)
    for mine, theirs in zip(
        pipeline.normaliser.compute_levels(learnt.windows), found.location_and_scale(windows), strict=True
    ):
        np.testing.assert_allclose(mine[known], theirs, rtol=1e-9)


def test_a_window_without_any_known_outcome_is_left_out() -> None:
    day = int(np.searchsorted(bars().sessions, 20090715))
    ahead = day + np.array(Target().horizons)
    gone = bars()
    for position in ahead:
        gone = without(gone, 0, int(position))
    windows = History(gone, history().pipeline).windows(splits().selection)
    assert windows.symbols[windows.positions == day].tolist() == [1]


def test_a_window_with_one_known_outcome_is_kept_and_the_loss_counts_one() -> None:
    day = int(np.searchsorted(bars().sessions, 20090715))
    gone = bars()
    for horizon in (5, 10, 20):
        gone = without(gone, 0, day + horizon)
    found = History(gone, history().pipeline)
    batch = found.gather(TrainingWindows(symbols=np.array([0]), positions=np.array([day])))
    assert torch.isfinite(batch.target).tolist() == [[True, False, False, False]]
    made = small_artifact()
    loss = QuantileTask(made.network().eval(), made.manifest.quantiles).loss(batch)
    assert loss.count == 1
    assert torch.isfinite(loss.mean)


def test_the_loss_is_the_mean_over_known_targets_alone_and_so_is_its_gradient() -> None:
    made = small_artifact()
    network = made.network().eval().requires_grad_()
    batch = history().gather(history().windows(splits().require_test()))
    target = torch.where(torch.rand(batch.target.shape, generator=torch.Generator().manual_seed(0)) < 0.4, torch.nan, 1)
    target *= batch.target
    loss = QuantileTask(network, made.manifest.quantiles).loss(batch._replace(target=target))
    loss.mean.backward()
    levels = np.array(made.manifest.quantiles)
    error = target.numpy()[..., None] - network(batch.inputs).detach().numpy()
    expected = np.nanmean(np.maximum(levels * error, (levels - 1) * error))
    assert loss.mean.item() == pytest.approx(expected, rel=1e-5)
    assert loss.count == int(torch.isfinite(target).sum())
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in network.parameters())


def test_batches_are_the_same_windows_in_pieces() -> None:
    windows = history().windows(splits().train)
    pieces = TrainingWindows(symbols=np.tile(windows.symbols, 4), positions=np.tile(windows.positions, 4))
    whole = history().gather(pieces)
    parts = list(history().batches(pieces))
    assert len(parts) > 1
    for k, group in enumerate(whole.inputs):
        assert torch.equal(torch.cat([part.inputs[k] for part in parts]), group)
    assert torch.equal(torch.cat([part.target for part in parts]), whole.target)


def test_a_part_without_a_window_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigurationError, match=r"split early, .* holds no window: each needs 140 bars before it"):
        history().windows(SplitPart("early", 20080102, 20080401))


# --- nothing later moves anything earlier


MIX = StockRecipe(calendar="XNYS", scale="mix")
"""Features, HAR, GARCH and their share: all numbers fitted before the network."""


def same_features(a: Pipeline, b: Pipeline) -> bool:
    return a.features.to_json() == b.features.to_json()


def test_fitted_numbers_do_not_move_when_later_bars_and_their_adjustment_change() -> None:
    mine, other = (pipeline_for(panel, MIX) for panel in (bars(), with_another_future(bars(), LAST_TRAINING_SESSION)))
    assert same_features(mine, other)
    assert mine.normaliser == other.normaliser


def test_fitted_numbers_do_not_move_when_later_bars_are_not_there() -> None:
    mine, other = (pipeline_for(panel, MIX) for panel in (bars(), bars().until(20100705)))
    assert same_features(mine, other)
    assert mine.normaliser == other.normaliser


def test_fitted_numbers_do_move_with_the_training_bars() -> None:
    mine, other = (pipeline_for(panel, MIX) for panel in (bars(), with_another_future(bars(), 20090601)))
    assert not same_features(mine, other)
    assert mine.normaliser != other.normaliser


@pytest.mark.parametrize("rebased", [False, True])
def test_another_future_changes_no_training_input_and_no_training_target(rebased: bool) -> None:  # noqa: FBT001
    changed = History(with_another_future(bars(), LAST_TRAINING_SESSION, rebased=rebased), history().pipeline)
    windows, others = history().windows(splits().train), changed.windows(splits().train)
    np.testing.assert_array_equal(windows.positions, others.positions)
    before, after = history().gather(windows), changed.gather(others)
    for mine, theirs in zip((*before.inputs, before.target), (*after.inputs, after.target), strict=True):
        # Another base of the adjustment moves the last bit of a float64 price, and so of some float32 inputs.
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("session", [20090715, 20100330])
def test_no_forecast_knows_what_comes_after_its_day(session: int) -> None:
    model = small_model(small_artifact())

    def forecast(panel: BarPanel) -> FloatArray:
        found = History(panel, model.pipeline)
        position = int(np.searchsorted(panel.sessions, session))
        windows = TrainingWindows(symbols=np.array([0, 1]), positions=np.array([position, position]))
        return model.engine.compute_quantiles(found.gather(windows).inputs).numpy()

    np.testing.assert_allclose(forecast(with_another_future(bars(), session)), forecast(bars()), rtol=0, atol=1e-8)
    served = model.prepare(Instance(input=bars().until(session)), golden.AFTER_ALL_SESSIONS)
    np.testing.assert_allclose(model.forecast([served])[0].values, forecast(bars()), rtol=0, atol=1e-8)


def test_log_volatility_targets_come_back_as_parkinsons_estimate() -> None:
    target = Target(kind=TargetKind.LOG_VOLATILITY, horizons=(1, 5))
    found = History(bars(), pipeline_for(bars(), StockRecipe(calendar="XNYS", target=target)))
    windows = found.windows(splits().require_test())
    batch = found.gather(windows)
    one = torch.ones(2, dtype=torch.float64)
    back = restore(batch.target.double()[..., None], batch.inputs.location, batch.inputs.scale, one)[..., 0].numpy()
    variance = np.log(bars().high / bars().low) ** 2 / (4 * np.log(2))
    week = [variance[s, t + 1 : t + 6].mean() for s, t in zip(windows.symbols, windows.positions, strict=True)]
    np.testing.assert_allclose(back[:, 1], np.log(np.sqrt(week)), rtol=1e-5)

"""Alpha158 against Qlib's values, written by `benchmarks/peers/alpha158_with_qlib.py`."""

import dataclasses
import hashlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from market import bokeh_panel
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.features import FittedFeatures, load_alpha158_features, load_default_features
from trainers.demo.market import SYMBOLS

FloatArray = NDArray[np.float64]

FEATURES = load_alpha158_features()
QLIB = Path(__file__).parents[1] / "fixtures" / "alpha158.npz"
COLUMNS = ("open", "high", "low", "close", "volume")
PRICES = COLUMNS[:4]


@cache
def qlib(part: str) -> NDArray[np.generic]:
    with np.load(QLIB) as file:
        return file[part]


@cache
def values() -> FloatArray:
    """All features of the whole history, [S, T, 158]."""
    return FEATURES.evaluate(bokeh_panel(*SYMBOLS).adjusted())


def feature_index(name: str) -> int:
    return FEATURES.names.index(name)


def raw_panel(sessions: int = 400) -> BarPanel:
    """Real bars without recorded adjustments (IBM's last 400 sessions have no split)."""
    return dataclasses.replace(bokeh_panel("IBM"), adj_close=None).last(sessions)


def scaled_panel(panel: BarPanel, prices: FloatArray | float, volume: FloatArray | float) -> BarPanel:
    """The panel's prices and volumes, multiplied."""
    columns = {name: getattr(panel, name) * prices for name in PRICES}
    return dataclasses.replace(panel, **columns, volume=panel.volume * volume)


def test_names_and_order_are_qlibs() -> None:
    assert FEATURES.names == tuple(qlib("names").tolist())
    assert len(FEATURES.names) == 158
    assert FEATURES.lookback == 61


def test_qlib_read_the_same_series_to_the_last_bit() -> None:
    bars = bokeh_panel(*SYMBOLS).adjusted()
    digest = hashlib.sha256(b"".join(getattr(bars, name).tobytes() for name in COLUMNS)).hexdigest()
    assert digest == str(qlib("digest"))
    assert tuple(qlib("symbols").tolist()) == SYMBOLS


@pytest.mark.parametrize("name", FEATURES.names)
def test_a_feature_is_qlibs_wherever_its_window_is_full(name: str) -> None:
    kept = np.isin(bokeh_panel(*SYMBOLS).sessions, qlib("sessions"))
    ours = values()[:, kept, feature_index(name)]
    theirs = np.asarray(qlib("values"), np.float64)[feature_index(name)]
    full = np.isfinite(ours)
    cut_off = full & np.isnan(theirs)
    compared = full & ~cut_off
    assert compared.sum() > 900
    assert cut_off.sum() < 0.01 * full.sum()
    off = np.abs(ours - theirs)[compared]
    assert (off <= 1e-6 * np.maximum(1.0, np.abs(theirs[compared]))).all()


def test_every_full_window_of_real_bars_gives_a_value() -> None:
    for row in range(len(SYMBOLS)):
        first = int(np.argmax(bokeh_panel(*SYMBOLS).present[row]))
        for feature, lookback in enumerate(FEATURES.lookbacks.values()):
            assert np.isnan(values()[row, : first + lookback - 1, feature]).all()
            assert np.isfinite(values()[row, first + lookback - 1 :, feature]).all()


def test_the_calendar_is_that_of_the_default_features() -> None:
    assert FEATURES.known == load_default_features().known


def test_every_feature_has_a_meaning_and_a_unit() -> None:
    for definition in FEATURES.observed:
        assert definition.meaning, definition.name
        assert definition.unit, definition.name
        assert "{" not in definition.meaning, definition.name


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_every_feature_varies_enough_on_every_stock_to_be_scaled(symbol: str) -> None:
    row = SYMBOLS.index(symbol)
    fitted = FittedFeatures.fit(FEATURES, np.moveaxis(values()[row : row + 1, :1800], -1, 0))
    assert FittedFeatures.from_json(fitted.to_json()).features == FEATURES


@pytest.mark.parametrize("at", [1, 200, 399])
def test_a_split_at_any_date_changes_no_feature(at: int) -> None:
    panel = raw_panel()
    days = np.arange(panel.sessions.size)
    after = np.where(days >= at, 3.0, 1.0)
    split = dataclasses.replace(
        scaled_panel(panel, 1 / after, after), split_ratio=np.where(days == at, 3.0, np.nan)[None]
    )
    plain, ours = FEATURES.evaluate(panel.adjusted()), FEATURES.evaluate(split.adjusted())
    np.testing.assert_allclose(ours, plain, rtol=0, atol=1e-6)


def test_prices_in_another_currency_change_no_feature() -> None:
    panel = raw_panel()
    plain, ours = (FEATURES.evaluate(bars.adjusted()) for bars in (panel, scaled_panel(panel, 7.0, 1.0)))
    np.testing.assert_allclose(ours, plain, rtol=0, atol=1e-6)


@pytest.mark.parametrize("known", [61, 200, 399])
def test_later_bars_change_no_bit_of_earlier_values(known: int) -> None:
    panel = raw_panel()
    noise = np.random.default_rng(0).lognormal(size=panel.close.shape)
    noise[:, :known] = 1.0
    plain, ours = (FEATURES.evaluate(bars.adjusted())[:, :known] for bars in (panel, scaled_panel(panel, noise, noise)))
    assert np.array_equal(ours, plain, equal_nan=True)


def test_the_last_61_bars_give_what_the_whole_history_gives() -> None:
    recent = FEATURES.evaluate(bokeh_panel(*SYMBOLS).last(61).adjusted())[:, -1]
    np.testing.assert_allclose(recent, values()[:, -1], rtol=1e-9, atol=1e-9)


def test_flat_prices_give_the_middle_of_no_range_and_no_trend() -> None:
    panel = raw_panel()
    columns = {name: getattr(panel, name).copy() for name in PRICES}
    for prices in columns.values():
        prices[:, 200:300] = 50.1
    last = FEATURES.evaluate(dataclasses.replace(panel, **columns).adjusted())[0, 299]
    assert np.isfinite(last).all()
    still = ("KMID2", "KSFT2", "RSV20", "BETA60", "RSQR60", "RESI60", "CORR60", "CORD60", "CNTD60", "SUMD60", "WVMA30")
    assert np.abs(last[[feature_index(name) for name in still]]).max() < 1e-6


def test_days_without_volume_hide_what_compares_volumes_and_nothing_else() -> None:
    panel = raw_panel()
    volume = panel.volume.copy()
    volume[:, 250:252] = 0
    last = FEATURES.evaluate(dataclasses.replace(panel, volume=volume).adjusted())[0, 253]
    hidden = {name for name, value in zip(FEATURES.names, last, strict=True) if not np.isfinite(value)}
    assert hidden == {f"CORD{n}" for n in (5, 10, 20, 30, 60)}

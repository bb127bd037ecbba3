"""Networks and their parts: inputs, target, normaliser, quantile head, output map, and kinds."""

from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from market import bokeh_panel
from numpy.typing import NDArray
from window_levels import measure_levels

from predictor.bars import BarPanel
from predictor.errors import ConfigurationError
from predictor.networks import (
    Inputs,
    InputSizes,
    LSTMConfig,
    LSTMForecaster,
    OutputMap,
    QuantileHead,
    Target,
    TargetKind,
    WindowNormaliser,
    build_network,
    compute_pinball_loss,
    get_kind,
    list_config_settings,
    normalise,
    read_config,
    remove_crossings,
    restore,
)
from predictor.networks.inputs import compute_row_width, make_session_rows
from predictor.networks.layers import HorizonContext

THREE = (0.1, 0.5, 0.9)
SEVEN = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
SIZES = InputSizes(encoder_length=12, future_length=6, observed=4, known=2, static=0)
TARGET = Target(lag=1, horizons=(1, 5))
SETTINGS = {"hidden": 8, "layers": 2, "dropout": 0.1}

seeds = st.integers(0, 2**32 - 1)
levels_of_heads = st.sampled_from([THREE, SEVEN, (0.9,), (0.05, 0.3)])


# --- quantiles never cross


@settings(max_examples=40, deadline=None)
@given(seed=seeds, levels=levels_of_heads, size=st.sampled_from([0.1, 10.0, 1e4]))
def test_quantiles_of_a_head_never_cross(seed: int, levels: tuple[float, ...], size: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    head = QuantileHead(5, horizons=3, levels=levels)
    with torch.no_grad():
        head.weight.normal_(0, size, generator=generator)
        head.bias.normal_(0, size, generator=generator)
        quantiles = head(torch.randn(16, 3, 5, generator=generator) * size)
    assert quantiles.shape == (16, 3, len(levels))
    assert bool((torch.diff(quantiles, dim=-1) >= 0).all())


@pytest.mark.parametrize("levels", [THREE, SEVEN])
def test_a_head_that_starts_at_quantiles_gives_them_for_a_context_of_zero(levels: tuple[float, ...]) -> None:
    wanted = torch.cumsum(torch.rand(2, len(levels), generator=torch.Generator().manual_seed(1)) + 0.01, dim=-1) - 1.5
    head = QuantileHead(4, horizons=2, levels=levels)
    head.start_at(wanted)
    torch.testing.assert_close(head(torch.zeros(1, 2, 4))[0], wanted, atol=1e-6, rtol=1e-6)


def test_a_head_starts_at_quantiles_far_apart() -> None:
    wanted = torch.tensor([[-200.0, 0.0, 300.0]])
    head = QuantileHead(4, horizons=1, levels=THREE)
    head.start_at(wanted)
    torch.testing.assert_close(head(torch.zeros(1, 1, 4))[0], wanted)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, levels=levels_of_heads)
def test_offsets_of_any_size_neither_cross_quantiles_nor_move_the_anchor(seed: int, levels: tuple[float, ...]) -> None:
    generator = torch.Generator().manual_seed(seed)
    anchor = min(range(len(levels)), key=lambda q: abs(levels[q] - 0.5))
    offsets = torch.randn(2, len(levels), generator=generator, dtype=torch.float64) * 3
    offsets[:, anchor] = 0
    units = torch.randn(9, 2, len(levels), generator=generator).sort(-1).values
    location = torch.randn(9, 2, generator=generator, dtype=torch.float64)
    scale = torch.rand(9, 2, generator=generator, dtype=torch.float64) + 1e-4
    spread = torch.tensor([1.0, sqrt(5)], dtype=torch.float64)
    output = OutputMap(spread=spread, offsets=offsets, levels=levels)
    values = output.map_tensors(units, location, scale)
    assert values.dtype == torch.float64
    assert bool((torch.diff(values, dim=-1) >= 0).all())
    untouched = location + scale * spread * units[..., anchor].double()
    torch.testing.assert_close(values[..., anchor], untouched, rtol=0, atol=1e-15)
    served = output.map_arrays(units.numpy(), location.numpy(), scale.numpy())
    assert served.tobytes() == values.numpy().tobytes()


def test_a_quantile_that_passed_its_neighbour_stands_level_with_it() -> None:
    crossed = torch.tensor([[[0.2, 0.4, 0.1, 0.5, 0.3]]])
    expected = torch.tensor([[[0.1, 0.1, 0.1, 0.5, 0.5]]])
    assert torch.equal(remove_crossings(crossed, 2), expected)


def test_offsets_given_for_one_call_replace_those_of_the_model() -> None:
    output = OutputMap(
        spread=torch.ones(1, dtype=torch.float64),
        offsets=torch.tensor([[-9.0, 0.0, 9.0]], dtype=torch.float64),
        levels=THREE,
    )
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    values = output.map_tensors(torch.tensor([[[-1.0, 0.0, 1.0]]]), zero, one, torch.zeros(1, 3, dtype=torch.float64))
    assert values.tolist() == [[[-1.0, 0.0, 1.0]]]


@pytest.mark.parametrize("levels", [(), (0.5, 0.1), (0.0, 0.5), (0.5, 0.5), (0.5, 1.0)])
def test_quantile_levels_must_rise_between_0_and_1(levels: tuple[float, ...]) -> None:
    with pytest.raises(ConfigurationError, match="ascending levels between 0 and 1"):
        QuantileHead(4, horizons=1, levels=levels)


def test_pinball_loss_weighs_misses_by_the_level() -> None:
    loss = compute_pinball_loss(torch.zeros(2, 1, 2), torch.tensor([[1.0], [-1.0]]), torch.tensor([0.1, 0.9]))
    torch.testing.assert_close(loss, torch.tensor([[[0.1, 0.9]], [[0.9, 0.1]]]))


# --- normalisation and its inverse


@pytest.mark.parametrize("kind", TargetKind)
def test_labels_come_back_exactly_from_units_of_volatility(kind: TargetKind) -> None:
    """Scaling a target twice, or inverting it twice, shows here."""
    target = Target(kind=kind)
    bars = bokeh_panel("AAPL", "IBM").last(400).adjusted()
    centred = kind is TargetKind.LOG_VOLATILITY
    location, scale = measure_levels(WindowNormaliser(centred=centred), target.daily(bars), 400)
    whole = np.s_[:, 100:300]
    labels = torch.from_numpy(target.labels(bars)[whole].reshape(-1, 4))
    level, size = (torch.from_numpy(part[whole].reshape(-1, 1)) for part in (location, scale))
    spread = torch.from_numpy(target.spread)
    units = normalise(labels, level, size, spread)
    back = restore(units[..., None], level, size, spread)[..., 0]
    torch.testing.assert_close(back, labels, rtol=0, atol=1e-12)
    assert 0.3 < float(units.std()) < 3


# --- the target


def test_log_returns_count_from_the_last_close() -> None:
    labels = Target(horizons=(1, 3)).labels(_rising_bars().adjusted())
    assert labels[0, 2, 0] == pytest.approx(log(13 / 12), abs=1e-15)
    assert labels[0, 2, 1] == pytest.approx(log(15 / 12), abs=1e-15)


def test_log_returns_of_lag_1_count_from_the_next_close() -> None:
    labels = Target(lag=1, horizons=(1, 3)).labels(_rising_bars().adjusted())
    assert labels[0, 2, 0] == pytest.approx(log(14 / 13), abs=1e-15)
    assert labels[0, 2, 1] == pytest.approx(log(16 / 13), abs=1e-15)


@pytest.mark.parametrize("kind", TargetKind)
@pytest.mark.parametrize("lag", [0, 1])
def test_labels_without_a_whole_future_are_unknown(kind: TargetKind, lag: int) -> None:
    labels = Target(kind=kind, lag=lag, horizons=(1, 3)).labels(_rising_bars().adjusted())
    for place, horizon in enumerate((1, 3)):
        known = ~np.isnan(labels[0, :, place])
        assert known.tolist() == [t + lag + horizon < 8 for t in range(8)]


@pytest.mark.parametrize("kind", TargetKind)
def test_labels_of_a_history_shorter_than_the_horizon_are_unknown(kind: TargetKind) -> None:
    labels = Target(kind=kind, horizons=(8, 13, 40)).labels(_rising_bars().adjusted())
    assert labels.shape == (1, 8, 3)
    assert np.isnan(labels).all()


def test_log_volatility_is_parkinsons_over_the_sessions_ahead() -> None:
    bars = _rising_bars()
    ranges = np.log(bars.high[0] / bars.low[0])
    labels = Target(kind=TargetKind.LOG_VOLATILITY, lag=1, horizons=(2,)).labels(bars.adjusted())
    by_hand = log(sqrt((ranges[4] ** 2 + ranges[5] ** 2) / 2 / (4 * log(2))))
    assert labels[0, 2, 0] == pytest.approx(by_hand, abs=1e-14)


def test_a_session_without_a_range_has_the_smallest_volatility() -> None:
    bars = _rising_bars()
    flat = replace(bars, open=bars.close, high=bars.close, low=bars.close)
    labels = Target(kind=TargetKind.LOG_VOLATILITY, horizons=(1,)).labels(flat.adjusted())
    assert labels[0, 0, 0] == pytest.approx(log(1e-5), abs=1e-12)


def test_a_missing_bar_makes_the_labels_that_need_it_unknown() -> None:
    labels = Target(horizons=(1,)).labels(_with_missing(_rising_bars(), 4).adjusted())
    assert np.isnan(labels[0, :, 0]).tolist() == [t in (3, 4, 7) for t in range(8)]


@pytest.mark.parametrize(
    ("lag", "horizons", "named"),
    [(2, (1,), "lag is 2"), (0, (), "horizons"), (0, (5, 1), "horizons"), (0, (0, 1), "horizons"), (0, (251,), "251")],
)
def test_a_target_that_cannot_be_is_refused_by_name(lag: int, horizons: tuple[int, ...], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        Target(lag=lag, horizons=horizons)


# --- the normaliser


@pytest.mark.parametrize("symbols", [1, 3])
@pytest.mark.parametrize("centred", [False, True])
def test_measuring_the_last_session_gives_the_bits_of_measuring_all(*, centred: bool, symbols: int) -> None:
    """Also with one symbol and one session, where NumPy's sum would pair its terms."""
    daily = _daily()[:symbols]
    normaliser = WindowNormaliser(centred=centred)
    location, scale = measure_levels(normaliser, daily, daily.shape[1])
    for sessions in (1, 7, 300):
        last_location, last_scale = measure_levels(normaliser, daily, sessions)
        assert np.array_equal(last_location, location[:, -sessions:], equal_nan=True)
        assert np.array_equal(last_scale, scale[:, -sessions:], equal_nan=True)


def test_each_of_many_symbols_is_measured_as_it_is_alone() -> None:
    daily = np.random.default_rng(2).normal(size=(35, 600))
    together = measure_levels(WindowNormaliser(centred=True), daily, 600)
    alone = [measure_levels(WindowNormaliser(centred=True), daily[s : s + 1], 600) for s in range(35)]
    for whole, parts in zip(together, zip(*alone, strict=True), strict=True):
        assert np.array_equal(whole, np.concatenate(parts), equal_nan=True)


def test_the_window_is_all_that_a_scale_depends_on() -> None:
    daily = _daily()
    normaliser = WindowNormaliser(window=60)
    assert measure_levels(normaliser, daily[:, -60:], 1)[1].tolist() == measure_levels(normaliser, daily, 1)[1].tolist()
    nearer = measure_levels(normaliser, daily[:, -59:], 1)[1]
    assert nearer.tolist() != measure_levels(normaliser, daily, 1)[1].tolist()


def test_a_flat_window_has_the_floor_for_a_scale() -> None:
    location, scale = measure_levels(WindowNormaliser(window=5, centred=True, floor=1e-3), np.full((1, 9), 0.25), 1)
    assert location[0, 0] == pytest.approx(0.25, abs=1e-15)
    assert scale.tolist() == [[1e-3]]


def test_weights_fall_by_the_decay_and_missing_sessions_are_left_out() -> None:
    daily = np.array([[0.3, np.nan, -0.1, 0.2]])
    _, scale = measure_levels(WindowNormaliser(window=3, decay=0.5), daily, 1)
    assert scale[0, 0] == pytest.approx(sqrt((1.0 * 0.2**2 + 0.5 * 0.1**2) / 1.5), abs=1e-15)


def test_a_centred_normaliser_measures_mean_and_deviation() -> None:
    location, scale = measure_levels(
        WindowNormaliser(window=3, decay=1.0, centred=True), np.array([[1.0, 2.0, 3.0]]), 1
    )
    assert location[0, 0] == pytest.approx(2, abs=1e-15)
    assert scale[0, 0] == pytest.approx(sqrt(2 / 3), abs=1e-15)


def test_a_window_without_any_value_has_neither_location_nor_scale() -> None:
    location, scale = measure_levels(WindowNormaliser(window=3), np.array([[1.0, np.nan, np.nan, np.nan]]), 1)
    assert np.isnan([location[0, 0], scale[0, 0]]).all()


def test_sessions_before_the_first_count_as_unknown() -> None:
    _, scale = measure_levels(WindowNormaliser(window=60, decay=1.0), np.array([[3.0, 4.0]]), 2)
    assert scale[0] == pytest.approx([3.0, sqrt(12.5)], abs=1e-15)


@pytest.mark.parametrize(
    ("window", "decay", "floor", "named"), [(1, 0.9, 0.1, "window"), (2, 0, 0.1, "decay"), (2, 0.9, 0, "floor")]
)
def test_a_normaliser_that_cannot_be_is_refused_by_name(window: int, decay: float, floor: float, named: str) -> None:
    with pytest.raises(ConfigurationError, match=f"normaliser {named}"):
        WindowNormaliser(window=window, decay=decay, floor=floor)


# --- recurrent networks


def test_a_session_s_row_ends_with_the_share_of_its_cells_that_are_known() -> None:
    inputs = _inputs(2)
    mask = inputs.mask.clone()
    mask[0, 3, 1:] = False
    rows = make_session_rows(inputs._replace(mask=mask))
    assert rows.shape == (2, 12, compute_row_width(SIZES))
    assert float(rows[0, 3, -1]) == 0.25
    assert rows[1, :, -1].tolist() == [1.0] * 12


def test_a_context_mixes_the_state_with_static_and_known_features_of_the_session_that_a_horizon_ends_on() -> None:
    inputs, state = _inputs(3)._replace(static=torch.randn(3, 2)), torch.randn(3, 8)
    sizes = replace(SIZES, static=2)
    context = HorizonContext(8, sizes=sizes, target=TARGET, dropout=0.0)
    found = context(state, inputs)
    for place, horizon in enumerate(TARGET.horizons):
        known = inputs.known[:, SIZES.encoder_length - 1 + TARGET.lag + horizon]
        mixed = context.mix(torch.cat([state, inputs.static, known], dim=-1))
        torch.testing.assert_close(found[:, place], context.norm(torch.nn.functional.elu(mixed)), rtol=0, atol=1e-6)


# --- the LSTM and the kinds


def test_an_lstm_gives_one_row_of_quantiles_a_horizon() -> None:
    assert _lstm()(_inputs(5)).shape == (5, 2, 3)


def test_a_row_does_not_depend_on_the_other_rows() -> None:
    network, inputs = _lstm(), _inputs(7)
    together = network(inputs)
    others_changed = inputs._replace(observed=torch.cat([inputs.observed[:3], inputs.observed[3:] * 5]))
    torch.testing.assert_close(network(inputs.rows(2, 3)), together[2:3], rtol=0, atol=1e-6)
    torch.testing.assert_close(network(others_changed)[:3], together[:3], rtol=0, atol=1e-6)


def test_a_horizon_sees_the_known_features_of_the_session_it_ends_on() -> None:
    network, inputs = _lstm(), _inputs(1)
    known = inputs.known.clone()
    known[:, 12 - 1 + 1 + 5] += 3.0
    moved = (network(inputs._replace(known=known)) - network(inputs)).abs().amax(dim=(0, 2))
    assert float(moved[0]) == 0
    assert float(moved[1]) > 1e-4


def test_whether_a_cell_is_known_reaches_the_network() -> None:
    network, inputs = _lstm(), _inputs(1)
    assert not torch.equal(network(inputs), network(inputs._replace(mask=~inputs.mask)))


def test_a_config_is_written_and_read_back() -> None:
    config = LSTMConfig(hidden=8, layers=3, dropout=0.25)
    assert read_config(get_kind("lstm"), list_config_settings(config)) == config


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"depth": 3}, "has no setting 'depth'"),
        ({"hidden": 8.0}, "hidden is 8.0, but must be of type int"),
        ({"hidden": True}, "hidden is True"),
        ({"dropout": "0.1"}, "dropout is '0.1'"),
        ({"dropout": False}, "dropout is False"),
        ({"dropout": 1.0}, "dropout is 1"),
        ({"layers": 0}, "layers is 0"),
        ({"hidden": 10**9}, "hidden is 1000000000"),
    ],
)
def test_a_config_with_a_wrong_setting_is_refused_by_name(change: dict[str, float | str | bool], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        read_config(get_kind("lstm"), SETTINGS | change)


def test_a_config_that_lacks_a_setting_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="lacks the setting 'layers'"):
        read_config(get_kind("lstm"), {"hidden": 8, "dropout": 0.1})


def test_a_whole_number_may_stand_for_a_fraction() -> None:
    assert read_config(get_kind("lstm"), SETTINGS | {"dropout": 0}) == LSTMConfig(hidden=8, layers=2, dropout=0.0)


def test_an_unknown_kind_lists_the_known_ones() -> None:
    with pytest.raises(
        ConfigurationError, match=r"unknown network kind 'prophet'; choose one of \['garch', 'graph', 'gru', 'har'"
    ):
        get_kind("prophet")


def test_an_lstm_by_its_kind_is_the_lstm() -> None:
    network = build_network(get_kind("lstm"), LSTMConfig(), sizes=SIZES, target=TARGET, levels=THREE)
    assert isinstance(network, LSTMForecaster)


def _lstm() -> LSTMForecaster:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        network = LSTMForecaster(LSTMConfig(hidden=8), sizes=SIZES, target=TARGET, levels=THREE)
    with torch.no_grad():
        network.head.weight.mul_(20)
    return network.eval().requires_grad_(requires_grad=False)


def _inputs(rows: int) -> Inputs:
    generator = torch.Generator().manual_seed(4)
    return Inputs(
        observed=torch.randn(rows, 12, 4, generator=generator),
        known=torch.randn(rows, 18, 2, generator=generator),
        static=torch.zeros(rows, 0),
        mask=torch.ones(rows, 12, 4, dtype=torch.bool),
        location=torch.zeros(rows, len(TARGET.horizons), dtype=torch.float64),
        scale=torch.ones(rows, len(TARGET.horizons), dtype=torch.float64),
    )


def _daily() -> NDArray[np.float64]:
    daily = np.random.default_rng(5).normal(0, 0.02, (3, 700))
    daily[1, 650:660] = np.nan
    return daily


def _rising_bars() -> BarPanel:
    """Closes 10 to 17, with a range that grows."""
    close = np.arange(10.0, 18.0)
    return BarPanel.single(
        "UP",
        sessions=np.array([20240102, 20240103, 20240104, 20240105, 20240108, 20240109, 20240110, 20240111]),
        open=close,
        high=close * (1 + 0.01 * np.arange(1, 9)),
        low=close * 0.99,
        close=close,
        volume=np.full(8, 1e6),
    )


def _with_missing(bars: BarPanel, session: int) -> BarPanel:
    columns = {name: getattr(bars, name).copy() for name in ("open", "high", "low", "close", "volume")}
    for column in columns.values():
        column[0, session] = np.nan
    return replace(bars, **columns)

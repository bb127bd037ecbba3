"""Default features on real bars, fitted statistics, and feature files."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from market import bokeh_panel
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.errors import ArtifactError, ConfigurationError, ExpressionError
from predictor.features import FeatureDefinition, FeatureSet, FittedFeatures, Scaling, load_default_features

FloatArray = NDArray[np.float64]

FEATURES = load_default_features()
PRICES = ("open", "high", "low", "close")


def raw_panel(symbol: str = "IBM", sessions: int = 400) -> BarPanel:
    """Real bars without recorded adjustments (IBM and its last 400 sessions have no split)."""
    return dataclasses.replace(bokeh_panel(symbol), adj_close=None).last(sessions)


def scaled_panel(panel: BarPanel, **columns: FloatArray) -> BarPanel:
    return dataclasses.replace(panel, **columns)  # pyright: ignore[reportArgumentType] (columns alone)


def priced(panel: BarPanel, factor: FloatArray | float) -> dict[str, FloatArray]:
    """The panel's four price columns, multiplied."""
    return {name: getattr(panel, name) * factor for name in PRICES}


def values_of(panel: BarPanel) -> FloatArray:
    return FEATURES.evaluate(panel.adjusted())


def largest_difference(one: FloatArray, two: FloatArray) -> float:
    """The largest difference; missing values must match."""
    assert np.array_equal(np.isnan(one), np.isnan(two))
    return float(np.nanmax(np.abs(one - two)))


def test_the_whole_set_looks_back_81_bars() -> None:
    assert FEATURES.lookback == 81
    assert len(FEATURES.observed) == 23
    assert FEATURES.lookbacks["rsi_14"] == 81
    assert FEATURES.lookbacks["intraday"] == 1


def test_every_feature_has_a_meaning_and_a_unit() -> None:
    for definition in (*FEATURES.observed, *FEATURES.known):
        assert definition.meaning, definition.name
        assert definition.unit, definition.name


def test_every_feature_is_finite_on_real_bars_after_its_look_back() -> None:
    values = values_of(bokeh_panel("AAPL", "IBM", "MSFT"))
    for place, lookback in enumerate(FEATURES.lookbacks.values()):
        assert np.isnan(values[:, : lookback - 1, place]).all()
        assert np.isfinite(values[:, lookback - 1 :, place]).all()


@pytest.mark.parametrize("session", [20010102, 20050228, 20080915, 20120601])
def test_the_last_l_bars_give_what_the_whole_history_gives(session: int) -> None:
    panel = bokeh_panel("AAPL", "MSFT").until(session)
    whole = values_of(panel)[:, -1]
    recent = values_of(panel.last(FEATURES.lookback))[:, -1]
    assert np.isfinite(recent).all()
    assert largest_difference(whole, recent) < 1e-9


def test_each_feature_needs_exactly_the_bars_that_it_says() -> None:
    panel = raw_panel()
    whole = values_of(panel)[0, -1]
    for place, lookback in enumerate(FEATURES.lookbacks.values()):
        assert values_of(panel.last(lookback))[0, -1, place] == whole[place]
        if lookback > 1:
            assert np.isnan(values_of(panel.last(lookback - 1))[0, -1, place])


@pytest.mark.parametrize("known", [81, 200, 399])
def test_later_bars_change_no_bit_of_earlier_values(known: int) -> None:
    panel = raw_panel()
    whole = values_of(panel)[:, :known]
    noise = np.random.default_rng(0).lognormal(size=panel.close.shape)
    noise[:, :known] = 1.0
    other = scaled_panel(panel, **priced(panel, noise), volume=panel.volume * noise)
    cut = panel.until(int(panel.sessions[known - 1]))
    assert np.array_equal(values_of(other)[:, :known], whole, equal_nan=True)
    assert np.array_equal(values_of(cut), whole, equal_nan=True)


@pytest.mark.parametrize("session", [20030602, 20100601])
def test_later_adjustments_change_no_earlier_value(session: int) -> None:
    panel = bokeh_panel("AAPL", "MSFT")
    cut = panel.until(session)
    whole = values_of(panel)[:, : cut.sessions.size]
    assert largest_difference(values_of(cut), whole) < 1e-9


def test_all_prices_times_seven_change_nothing() -> None:
    panel = raw_panel("AAPL", 3270)
    assert largest_difference(values_of(panel), values_of(scaled_panel(panel, **priced(panel, 7.0)))) < 1e-9


def flat_panel() -> BarPanel:
    """Real bars with 100 days at one price, without volume on 70 of them."""
    panel = raw_panel()
    columns = {name: getattr(panel, name).copy() for name in (*PRICES, "volume")}
    for name in PRICES:
        columns[name][:, 150:250] = 50.1
    columns["volume"][:, 170:240] = 0
    return scaled_panel(panel, **columns)


def test_flat_prices_and_zero_volume_give_finite_values() -> None:
    values = values_of(flat_panel())[:, 81:]
    assert np.isfinite(values).all()
    flat = dict(zip(FEATURES.names, values_of(flat_panel())[0, 245], strict=True))
    for name in ("return_20", "close_in_day", "macd_histogram", "bollinger_20", "slope_20", "return_money_20"):
        assert abs(flat[name]) < 1e-5, name


def test_all_prices_times_seven_change_nothing_at_flat_prices() -> None:
    panel = flat_panel()
    assert largest_difference(values_of(panel), values_of(scaled_panel(panel, **priced(panel, 7.0)))) < 1e-6


@pytest.mark.parametrize("at", [1, 130, 200, 399])
def test_a_split_at_any_date_changes_no_feature(at: int) -> None:
    panel = raw_panel()
    after = np.arange(panel.sessions.size) >= at
    divisor = np.where(after, 3.0, 1.0)
    ratio = np.where(np.arange(panel.sessions.size) == at, 3.0, np.nan)[None]
    split = scaled_panel(panel, **priced(panel, 1 / divisor), volume=panel.volume * divisor)
    plain = values_of(panel)
    assert largest_difference(values_of(scaled_panel(split, split_ratio=ratio)), plain) < 1e-9
    assert largest_difference(values_of(scaled_panel(split, adj_close=panel.close)), plain) < 1e-9
    assert largest_difference(values_of(split), plain) > 0.1


def test_a_missing_bar_masks_the_windows_that_hold_it_and_no_others() -> None:
    panel = raw_panel()
    columns = {name: getattr(panel, name).copy() for name in (*PRICES, "volume")}
    for column in columns.values():
        column[:, 150] = np.nan
    values = values_of(scaled_panel(panel, **columns))
    for place, lookback in enumerate(FEATURES.lookbacks.values()):
        missing = np.flatnonzero(np.isnan(values[0, 100:, place])) + 100
        assert missing[0] == 150 or lookback == 81
        assert missing[-1] == 150 + lookback - 1


def test_a_symbol_does_not_depend_on_its_neighbours() -> None:
    panel = bokeh_panel("AAPL", "IBM", "MSFT")
    together = values_of(panel)
    for row, symbol in enumerate(panel.symbols):
        assert np.array_equal(values_of(panel.select([symbol]))[0], together[row], equal_nan=True)


def test_many_symbols_give_the_same_bits_as_few() -> None:
    panel = raw_panel(sessions=100)
    copies = 130
    many = BarPanel(
        symbols=tuple(f"S{place}" for place in range(copies)),
        sessions=panel.sessions,
        open=panel.open.repeat(copies, axis=0),
        high=panel.high.repeat(copies, axis=0),
        low=panel.low.repeat(copies, axis=0),
        close=panel.close.repeat(copies, axis=0),
        volume=panel.volume.repeat(copies, axis=0),
    )
    assert np.array_equal(values_of(many), np.repeat(values_of(panel), copies, axis=0), equal_nan=True)


def test_features_are_locked() -> None:
    with pytest.raises(ValueError, match="read-only"):
        values_of(raw_panel(sessions=90))[0, 0, 0] = 1


CALENDAR = {
    "weekday": np.array([0.0, 4.0]),
    "sessions_to_month_end": np.array([0.0, 20.0]),
    "sessions_from_month_start": np.array([19.0, 5.0]),
    "days_to_holiday": np.array([1.0, 30.0]),
    "days_from_holiday": np.array([30.0, 2.0]),
}


def test_known_features_lie_around_zero() -> None:
    assert FEATURES.known_names == ("weekday", "to_month_end", "from_month_start", "to_holiday", "from_holiday")
    expected = [[-0.5, -0.5, 0.5, -0.4, 0.5], [0.5, 0.5, 0.0, 0.5, -0.3]]
    assert np.allclose(FEATURES.evaluate_known(CALENDAR), [expected], atol=1e-15)


def test_a_missing_calendar_field_is_named() -> None:
    with pytest.raises(ConfigurationError, match="calendar fields are missing: weekday"):
        FEATURES.evaluate_known({name: values for name, values in CALENDAR.items() if name != "weekday"})


def define(name: str, expression: str) -> FeatureDefinition:
    return FeatureDefinition(name, expression, "meaning", "1")


def test_expressions_are_kept_as_their_canonical_text() -> None:
    features = FeatureSet(observed=(define("a", "( $close )/Ref($close,1)"),))
    assert features.observed[0].expression == "$close / Ref($close, 1)"
    assert features == FeatureSet(observed=(define("a", "$close / Ref($close, 1)"),))


def test_a_wrong_expression_is_named_by_its_feature() -> None:
    with pytest.raises(ExpressionError, match="feature b: unknown field") as caught:
        FeatureSet(observed=(define("a", "$close"), define("b", "$clse")))
    assert caught.value.metadata["feature"] == "b"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"observed": ()}, "at least one observed"),
        ({"observed": (define("a", "$close"), define("a", "$open"))}, "appear twice: a"),
        ({"known": (define("a", "$weekday"),)}, "appear twice: a"),
        ({"known": (define("b", "Ref($weekday, 1)"),)}, "known feature b looks back"),
        ({"operator_set": 2}, "operator set 2 is unknown"),
    ],
)
def test_a_contradictory_set_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        dataclasses.replace(FeatureSet(observed=(define("a", "$close"),)), **changes)


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a b", "\u00e4", "a" * 65])
def test_a_feature_has_a_plain_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match="feature name"):
        define(name, "$close")


def by_feature(values: FloatArray) -> FloatArray:
    """[F, S, T]"""
    return np.moveaxis(values, -1, 0)


def test_features_come_one_after_the_other_as_they_come_together() -> None:
    panel = bokeh_panel("IBM", "MSFT").last(400)
    columns = list(FEATURES.columns(panel.adjusted()))
    assert len(columns) == len(FEATURES.observed)
    assert np.array_equal(np.stack(columns, axis=-1), values_of(panel), equal_nan=True)


def fit_features() -> FittedFeatures:
    panel = bokeh_panel("IBM", "MSFT")
    return FittedFeatures.fit(FEATURES, by_feature(values_of(panel)[:, :2000]), present=panel.present[:, :2000])


def test_fitted_numbers_do_not_see_later_rows() -> None:
    panel = raw_panel("IBM", 3000)
    noise = np.random.default_rng(3).lognormal(size=panel.close.shape)
    noise[:, :1000] = 1.0
    other = scaled_panel(panel, **priced(panel, noise), volume=panel.volume * noise)
    one, two = (FittedFeatures.fit(FEATURES, by_feature(values_of(each)[:, :1000])) for each in (panel, other))
    assert one.to_json() == two.to_json()
    assert one.schema_hash == two.schema_hash


def test_scaled_values_have_median_zero_and_the_quartiles_of_a_normal() -> None:
    values = np.random.default_rng(0).normal(5.0, 3.0, (1, 20000, 2))
    scaling = Scaling.fit(by_feature(values), names=("a", "b"))
    assert np.allclose(scaling.scale, 3.0, rtol=0.03)
    scaled, _ = scaling.apply(values)
    assert np.allclose(np.median(scaled, axis=(0, 1)), 0, atol=1e-3)


def test_bars_that_do_not_count_are_left_out_of_the_fit() -> None:
    values = np.random.default_rng(0).normal(size=(2, 100, 1))
    values[1] = 1e6
    present = np.array([[True], [False]]).repeat(100, axis=1)
    fit = Scaling.fit(by_feature(values), names=("a",), present=present)
    assert fit.center.tolist() == Scaling.fit(by_feature(values[:1]), names=("a",)).center.tolist()


@pytest.mark.parametrize(
    ("column", "problem"), [(np.full(100, 3.0), "hardly varies"), (np.full(100, np.nan), "is known on 0 bars")]
)
def test_a_feature_that_cannot_be_fitted_is_named(column: FloatArray, problem: str) -> None:
    values = np.stack([np.arange(100.0), column], axis=-1)[None]
    with pytest.raises(ConfigurationError, match=f"feature dull {problem}"):
        Scaling.fit(by_feature(values), names=("lively", "dull"))


def test_scaling_is_float64_until_one_rounding() -> None:
    values = np.random.default_rng(0).uniform(0, 2, (1000, 1))
    scaled, _ = Scaling(center=np.array([1.1]), scale=np.array([0.3])).apply(values)
    assert np.array_equal(scaled, ((values - 1.1) / 0.3).astype(np.float32))
    assert scaled.dtype == np.float32


def test_values_that_are_not_finite_become_zero_and_masked() -> None:
    scaling = Scaling(center=np.zeros(1), scale=np.ones(1), clip=8)
    scaled, mask = scaling.apply(np.array([[np.nan], [np.inf], [-np.inf], [100.0], [-100.0], [2.5]]))
    assert scaled[:, 0].tolist() == [0, 0, 0, 8, -8, 2.5]
    assert mask[:, 0].tolist() == [False, False, False, True, True, True]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"center": np.array([np.nan])}, "center must be finite"),
        ({"scale": np.array([0.0])}, "positive"),
        ({"scale": np.array([1.0, 2.0])}, "shape"),
        ({"clip": 0.0}, "clip"),
    ],
)
def test_impossible_fitted_numbers_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        dataclasses.replace(Scaling(center=np.zeros(1), scale=np.ones(1)), **changes)


def test_inputs_of_a_panel_are_the_scaled_features() -> None:
    panel = bokeh_panel("AAPL", "FB").last(300)
    model = fit_features()
    observed, mask = model.observed(panel.adjusted())
    scaled, known = model.scaling.apply(values_of(panel))
    assert np.array_equal(observed, scaled)
    assert np.array_equal(mask, known)
    assert observed.shape == (2, 300, 23)
    assert np.abs(observed).max() <= model.scaling.clip
    assert model.known(CALENDAR).dtype == np.float32


def test_a_known_feature_that_is_not_finite_is_named() -> None:
    features = FeatureSet(observed=(define("a", "$close"),), known=(define("odd", "1 / $days_to_holiday"),))
    model = FittedFeatures(features=features, scaling=Scaling(center=np.zeros(1), scale=np.ones(1)))
    with pytest.raises(ConfigurationError, match="known feature odd is inf in row 1"):
        model.known({**CALENDAR, "days_to_holiday": np.array([1.0, 0.0])})


def test_a_scaling_of_another_set_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="fitted for 1 features, but the set has 23"):
        FittedFeatures(features=FEATURES, scaling=Scaling(center=np.zeros(1), scale=np.ones(1)))


def test_features_json_reads_back_to_the_same_bits() -> None:
    model = fit_features()
    again = FittedFeatures.from_json(model.to_json())
    assert again.to_json() == model.to_json()
    assert again.features == model.features
    assert again.scaling.center.tobytes() == model.scaling.center.tobytes()
    assert again.scaling.scale.tobytes() == model.scaling.scale.tobytes()
    assert len(model.schema_hash) == 64


def edited_file(path: list[str | int], value: object) -> bytes:
    """features.json with one value replaced."""
    root = json.loads(fit_features().to_json())
    place = root
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(root).encode()


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (["operator_set"], 2, "operator set 2 is unknown"),
        (["operator_set"], True, "operator_set is true, expected an integer"),
        (["extra"], 1, "extra is an unknown key"),
        (["lookback"], 80, "lookback is 80, but these expressions look back 81"),
        (["fields", "observed", "money"], "adjusted", "fields differ from those of this version"),
        (["fields", "adjustment", "factor with neither"], "2", "fields differ from those of this version"),
        (["fields", "known", "weekday"], "0 = Sunday", "fields differ from those of this version"),
        (["observed"], {}, "observed is {}, expected a list"),
        (["observed", 3], "gap", r"observed\[3\] is .*, expected an object"),
        (["observed", 3, "nmae"], "gap", r"observed\[3\].nmae is an unknown key"),
        (["observed", 3, "name"], 5, r"observed\[3\].name is 5, expected a string"),
        (["observed", 3, "name"], "return_1", "appear twice: return_1"),
        (
            ["observed", 3, "name"],
            "1st",
            r"^features.json: observed\[3\].name is invalid: feature name '1st' must have",
        ),
        (["observed", 3, "expression"], "$open/$close", "must be written as "),
        (["observed", 3, "expression"], "Ref($close, -1)", "feature gap: Ref with a negative n"),
        (["scaling", "clip"], "8", "clip is .*, expected a number"),
        (["scaling", "clip"], -1, "clip must be finite and positive"),
        (["scaling", "center", 2], True, r"center\[2\] is true, expected a number"),
        (["scaling", "center"], [0.0], "must both have shape"),
        (["scaling", "scale", 0], float("nan"), "NaN is not a JSON number"),
        (["scaling", "scale", 0], float("inf"), "Infinity is not a JSON number"),
    ],
)
def test_a_wrong_features_json_is_named_at_its_place(path: list[str | int], value: object, problem: str) -> None:
    with pytest.raises(ArtifactError, match=problem):
        FittedFeatures.from_json(edited_file(path, value))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is not strict JSON"),
        (b"[]", "expected an object"),
        (b"{}", "operator_set is missing"),
        (b'{"operator_set": 1, "operator_set": 1}', "'operator_set' appears twice"),
        (b"\xef\xbb\xbf{}", "is not strict JSON"),
        (b"\xff", "is not strict JSON"),
        (b"[" * 100_000, "is not strict JSON"),
    ],
)
def test_what_is_no_features_json_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(ArtifactError, match=problem):
        FittedFeatures.from_json(data)


def test_a_number_too_large_for_a_double_is_refused() -> None:
    text = fit_features().to_json().replace(b'"clip": 8.0', b'"clip": 1e999')
    with pytest.raises(ArtifactError, match="1e999 is beyond the range of a double"):
        FittedFeatures.from_json(text)


def test_a_users_feature_file_is_read(tmp_path: Path) -> None:
    entry = {"name": "momentum", "expression": "$close/Ref($close,20)-1", "meaning": "return of 20 days", "unit": "1"}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"operator_set": 1, "observed": [entry], "known": []}), encoding="utf-8")
    features = FeatureSet.read(path)
    assert features.lookback == 21
    assert features.observed[0].expression == "$close / Ref($close, 20) - 1"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"operator_set": 1, "observed": []}', "mine.json: known is missing"),
        ('{"operator_set": 2, "observed": [], "known": []}', "mine.json: operator set 2 is unknown"),
        ('{"operator_set": 1, "observed": [], "known": []}', "mine.json: a feature set needs at least one observed"),
        ("nothing", "mine.json: is not strict JSON"),
    ],
)
def test_a_wrong_feature_file_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=problem):
        FeatureSet.read(path)


def test_a_feature_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.json cannot be read"):
        FeatureSet.read(tmp_path / "nowhere.json")


# --- last sessions only


@pytest.mark.parametrize("last", [1, 2, 60, 300, 400])
@pytest.mark.parametrize("symbols", [("IBM",), ("AAPL", "GOOG", "IBM", "MSFT")], ids=len)
def test_the_last_sessions_alone_have_the_same_bits(symbols: tuple[str, ...], last: int) -> None:
    """Also when more sessions are requested than have a full look-back."""
    bars = bokeh_panel(*symbols).last(400).adjusted()
    for (rows, whole), (same, part) in zip(FEATURES.blocks(bars), FEATURES.blocks(bars, last=last), strict=True):
        assert rows == same
        assert part.tobytes() == whole[:, -last:].tobytes()


def test_numbers_within_expressions_are_the_same_of_the_last_sessions_alone() -> None:
    texts = ("$close / (2 * 3)", "Log(2) + Mean($close, 5)", "Ref($close, 3) - Mean(Ref($close, 3) * Log(4), 7)")
    observed = tuple(FeatureDefinition(f"f{k}", text, "", "1") for k, text in enumerate(texts))
    chosen, bars = FeatureSet(observed=observed), bokeh_panel("IBM").last(40).adjusted()
    ((_, whole),), ((_, part),) = chosen.blocks(bars), chosen.blocks(bars, last=11)
    assert np.array_equal(part, whole[:, -11:])
    assert np.isfinite(part).all()

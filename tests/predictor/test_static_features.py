"""Static covariates as columns, with an indicator for unknown values."""

import json
from dataclasses import replace

import numpy as np
import pytest
from artifacts import small_pipeline

from predictor.errors import ArtifactError, ConfigurationError, CovariateMissingError
from predictor.features import CovariateFields, FittedFeatures, StaticCategory, StaticFeatures, StaticNumber
from predictor.networks import Target

NAN = float("nan")
STATICS = StaticFeatures.fit({"cap": np.array([1.0, 3.0, NAN])}, {"sector": ("Tech", "", "Energy")})


def encoded(cap: float, sector: str) -> list[float]:
    return STATICS.encode(1, {"cap": np.array([cap])}, {"sector": (sector,)})[0].tolist()


def test_categories_are_those_of_the_training_symbols_sorted() -> None:
    assert STATICS.categories == (StaticCategory(name="sector", categories=("Energy", "Tech")),)
    assert STATICS.widths == (2, 3)


@pytest.mark.parametrize(
    ("number", "category", "expected"),
    [(4.0, "Tech", [2, 0, 0, 1, 0]), (2.0, "Banks", [0, 0, 0, 0, 1]), (1e9, "Tech", [8, 0, 0, 1, 0])],
    ids=["scaled with the training symbols", "category unknown to training", "clipped"],
)
def test_a_number_is_one_column_and_a_category_one_column_each(
    number: float, category: str, expected: list[float]
) -> None:
    assert encoded(number, category) == expected


def test_what_is_unknown_has_columns_of_its_own() -> None:
    assert encoded(NAN, "") == STATICS.unknown.tolist() == [0, 1, 0, 0, 1]


def test_warnings_name_symbol_covariate_and_text() -> None:
    told = STATICS.warnings(["A", "B", "C"], {"cap": np.array([1, NAN, 2])}, {"sector": ("Tech", "Banks", "")})
    assert list(told) == [
        "B: cap is unknown, and the forecast is made without it",
        "B: sector is 'Banks', which no training symbol had; it counts as unknown",
        "C: sector is unknown, and the forecast is made without it",
    ]


def test_a_variable_that_is_not_given_is_named() -> None:
    with pytest.raises(CovariateMissingError, match="static covariate sector is missing"):
        STATICS.encode(1, {"cap": np.zeros(1)}, {})
    with pytest.raises(CovariateMissingError, match="static covariate cap must be numbers"):
        STATICS.encode(1, {}, {"cap": ("1",), "sector": ("Tech",)})


def test_a_number_that_does_not_vary_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"cap does not vary between the training symbols \(2 of 3 have one\)"):
        StaticFeatures.fit({"cap": np.array([2.0, 2.0, NAN])}, {})


def test_a_text_without_recording_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="sector must have distinct"):
        StaticFeatures.fit({}, {"sector": ("", "")})


def fit_features() -> FittedFeatures:
    """No feature reads `short_interest`, but it must be sent."""
    there = small_pipeline(Target()).features
    beside = CovariateFields(observed=("short_interest",))
    return replace(there, features=replace(there.features, covariates=beside), statics=STATICS)


def test_statics_travel_in_features_json_and_are_part_of_the_schema() -> None:
    there = fit_features()
    back = FittedFeatures.from_json(there.to_json())
    assert back.statics.variables == STATICS.variables
    assert back.to_json() == there.to_json()
    other = StaticFeatures(categories=(StaticCategory(name="sector", categories=("Energy",)),))
    assert replace(there, statics=other).schema_hash != there.schema_hash


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (("categories", 0, "categories"), ["Tech", "Energy"], "distinct, sorted categories"),
        (("numbers", 0, "scale"), 0.0, "has center 2 and scale 0"),
        (("numbers", 0, "name"), "return_1", "appear twice: return_1"),
        (("numbers", 0, "name"), "short_interest", "names of covariates appear twice: short_interest"),
        (("numbers", 0, "name"), "cap\x1b[2J", "must have 1 to 64 lower-case letters, digits and underscores"),
        (("clip",), 9.0, "static.clip must be 8"),
    ],
)
def test_damaged_statics_are_refused(place: tuple[str | int, ...], value: object, problem: str) -> None:
    root = json.loads(fit_features().to_json())
    at = root["static"]
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    with pytest.raises(ArtifactError, match=problem):
        FittedFeatures.from_json(json.dumps(root).encode())


def test_two_variables_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="appear twice: cap"):
        StaticFeatures(numbers=(StaticNumber(name="cap", center=0, scale=1),) * 2)


def test_more_variables_than_can_be_learnt_are_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="there are 60000 static covariates, but at most 200"):
        StaticFeatures(numbers=tuple(StaticNumber(name=f"n{k}", center=0, scale=1) for k in range(60_000)))


def test_more_covariates_than_are_read_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="there are 501 covariates, but at most 500 are allowed"):
        CovariateFields(observed=tuple(f"n{k}" for k in range(501)))


def test_unknown_categories_of_many_symbols_are_one_short_warning() -> None:
    symbols = tuple(f"S{k:04d}" for k in range(5000))
    (warning,) = StaticFeatures(categories=(StaticCategory(name="sector", categories=("Tech",)),)).warnings(
        symbols, {}, {"sector": symbols}
    )
    assert warning.startswith("S0000, S0001, S0002, S0003, S0004 and 4995 more: sector is 'S0000', 'S0001', ")
    assert "'S0004' and 4995 more, which no training symbol had" in warning

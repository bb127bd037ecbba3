"""Ten thousand names are looked up in one pass: comparisons are counted, not timed."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from predictor.bars.checks import check_symbols
from predictor.bars.columns import find_duplicates
from predictor.catalog import CovariateGroup, CovariateInfo
from predictor.covariates import Covariates, CovariateSource, StaticTable, check_covariates
from predictor.errors import QuantraError
from predictor.features import FeatureDefinition, FeatureSet
from predictor.model.prepared_instance import find_indices

MANY = 10_000


class ComparedName(str):
    """A string that counts comparisons."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        ComparedName.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def fresh_names(count: int = MANY) -> tuple[ComparedName, ...]:
    """Fresh objects, so that identity checks cannot match."""
    return tuple(ComparedName(f"s{k}") for k in range(count))


def with_duplicate() -> tuple[ComparedName, ...]:
    """Names with the last one repeated."""
    return (*fresh_names(), ComparedName(f"s{MANY - 1}"))


def of_numbers(names: Sequence[str]) -> Covariates:
    return Covariates(numbers={name: np.zeros(1) for name in names})


def needed(names: Sequence[str]) -> list[CovariateInfo]:
    return [CovariateInfo(name=name, group=CovariateGroup.STATIC) for name in names]


def table(names: Sequence[str]) -> StaticTable:
    return StaticTable(symbols=("A",), numbers={}, texts=dict.fromkeys(names, ("",)))


def features(names: Sequence[str]) -> FeatureSet:
    return FeatureSet(observed=tuple(FeatureDefinition(name, "$close", "", "1") for name in names))


REFUSED: dict[str, Callable[[], object]] = {
    "s9999 appears twice": lambda: check_symbols(with_duplicate()),
    "are in two groups": lambda: Covariates(
        observed={name: np.zeros((1, 1)) for name in fresh_names()}, numbers={ComparedName("s7"): np.zeros(1)}
    ),
    "the model does not read covariate stranger": lambda: check_covariates(
        needed(fresh_names()), of_numbers((*fresh_names(), "stranger"))
    ),
    "names appear twice: s998": lambda: features((*fresh_names(999), ComparedName("s998"))),
}
FOUND: dict[str, Callable[[], object]] = {
    "a column of a table that stands twice": lambda: find_duplicates(with_duplicate()),
    "columns that nobody reads": lambda: list(
        CovariateSource(statics=table(fresh_names())).find_warnings(needed(fresh_names(10)))
    ),
    "indices of symbols that are explained": lambda: find_indices(fresh_names(), fresh_names()),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_what_is_refused_is_found_with_a_few_comparisons_a_name(problem: str) -> None:
    ComparedName.compared = 0
    with pytest.raises(QuantraError, match=problem):
        REFUSED[problem]()
    assert ComparedName.compared < 5 * MANY


@pytest.mark.parametrize("what", FOUND)
def test_what_is_looked_for_is_found_with_a_few_comparisons_a_name(what: str) -> None:
    ComparedName.compared = 0
    assert FOUND[what]()
    assert ComparedName.compared < 5 * MANY

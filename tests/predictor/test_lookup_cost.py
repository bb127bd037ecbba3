"""Ten thousand names are looked up in one pass: comparisons are counted, not timed."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from predictor.bars.checks import check_symbols
from predictor.bars.columns import find_duplicates
from predictor.catalog import CovariateGroup, CovariateInfo
from predictor.covariates import Covariates, CovariateSource, StaticTable, check_sent
from predictor.errors import QuantraError
from predictor.features import FeatureDefinition, FeatureSet
from predictor.model.prepared_instance import find_indices

MANY = 10_000


class Counted(str):
    """A string that counts comparisons."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def named(count: int = MANY) -> tuple[Counted, ...]:
    """Fresh objects, so that identity checks cannot match."""
    return tuple(Counted(f"s{k}") for k in range(count))


def twice() -> tuple[Counted, ...]:
    """Names with the last one repeated."""
    return (*named(), Counted(f"s{MANY - 1}"))


def of_numbers(names: Sequence[str]) -> Covariates:
    return Covariates(numbers={name: np.zeros(1) for name in names})


def needed(names: Sequence[str]) -> list[CovariateInfo]:
    return [CovariateInfo(name=name, group=CovariateGroup.STATIC) for name in names]


def table(names: Sequence[str]) -> StaticTable:
    return StaticTable(symbols=("A",), numbers={}, texts=dict.fromkeys(names, ("",)))


def features(names: Sequence[str]) -> FeatureSet:
    return FeatureSet(observed=tuple(FeatureDefinition(name, "$close", "", "1") for name in names))


REFUSED: dict[str, Callable[[], object]] = {
    "s9999 appears twice": lambda: check_symbols(twice()),
    "are in two groups": lambda: Covariates(
        observed={name: np.zeros((1, 1)) for name in named()}, numbers={Counted("s7"): np.zeros(1)}
    ),
    "the model does not read covariate stranger": lambda: check_sent(
        needed(named()), of_numbers((*named(), "stranger"))
    ),
    "names appear twice: s998": lambda: features((*named(999), Counted("s998"))),
}
FOUND: dict[str, Callable[[], object]] = {
    "a column of a table that stands twice": lambda: find_duplicates(twice()),
    "columns that nobody reads": lambda: list(CovariateSource(statics=table(named())).doubts(needed(named(10)))),
    "indices of symbols that are explained": lambda: find_indices(named(), named()),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_what_is_refused_is_found_with_a_few_comparisons_a_name(problem: str) -> None:
    Counted.compared = 0
    with pytest.raises(QuantraError, match=problem):
        REFUSED[problem]()
    assert Counted.compared < 5 * MANY


@pytest.mark.parametrize("what", FOUND)
def test_what_is_looked_for_is_found_with_a_few_comparisons_a_name(what: str) -> None:
    Counted.compared = 0
    assert FOUND[what]()
    assert Counted.compared < 5 * MANY

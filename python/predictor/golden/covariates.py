"""The covariates of the golden instance, made up: symbol ODD lacks some values and all static ones."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.canonical import Json, Record
from predictor.catalog import CovariateGroup, CovariateInfo
from predictor.covariates import Covariates

FloatArray = NDArray[np.float64]
Arrays = Mapping[str, NDArray[np.generic]]

FUTURE = "covariates.future_sessions"
GROUPS = ("observed", "known", "numbers")
"""Those that hold arrays."""


def made_up_covariates(needs: Sequence[CovariateInfo], bars: BarPanel, future: NDArray[np.int32]) -> Covariates:
    """What the model reads beside these bars, of the sessions that follow them too."""
    symbols, sessions = bars.close.shape
    random = np.random.default_rng(21)
    statics = [need for need in needs if need.group is CovariateGroup.STATIC]
    known = [need.name for need in needs if need.group is CovariateGroup.KNOWN]
    return Covariates(
        observed={
            need.name: _odd(random, (symbols, sessions)) for need in needs if need.group is CovariateGroup.OBSERVED
        },
        known={name: _odd(random, (symbols, sessions + len(future))) for name in known},
        future_sessions=future if known else future[:0],
        numbers={need.name: _but_first(random.normal(size=symbols)) for need in statics if not need.categories},
        categories={need.name: ("", *(need.categories[0],) * (symbols - 1)) for need in statics if need.categories},
    )


def arrays_of(covariates: Covariates) -> dict[str, NDArray[np.generic]]:
    """The arrays that `stored_covariates` makes the same of; none where there are no covariates."""
    if not covariates.names:
        return {}
    groups: dict[str, Mapping[str, FloatArray]] = {name: getattr(covariates, name) for name in GROUPS}
    arrays = {f"covariates.{group}.{name}": values for group, named in groups.items() for name, values in named.items()}
    return {FUTURE: covariates.future_sessions, **arrays}


def categories_of(covariates: Covariates) -> dict[str, Json]:
    """The texts, as JSON."""
    return {name: list(texts) for name, texts in covariates.categories.items()}


def stored_covariates(categories: Record, arrays: Arrays) -> Covariates:
    """The golden instance's covariates from its arrays and texts."""
    texts = {name: categories.texts(name) for name in categories.keys()}  # noqa: SIM118 - a Record is no dict
    categories.end()
    if FUTURE not in arrays:
        return Covariates(categories=texts)
    observed, known, numbers = (_group(group, arrays) for group in GROUPS)
    return Covariates(
        observed=observed,
        known=known,
        future_sessions=arrays[FUTURE].astype(np.int32),
        numbers=numbers,
        categories=texts,
    )


def _group(group: str, arrays: Arrays) -> dict[str, FloatArray]:
    start = f"covariates.{group}."
    return {
        name.removeprefix(start): values.astype(np.float64) for name, values in arrays.items() if name.startswith(start)
    }


def _but_first(values: FloatArray) -> FloatArray:
    """The first symbol's value is unknown."""
    values[0] = np.nan
    return values


def _odd(random: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
    """[S, length] positive values, of which the first symbol lacks a stretch."""
    values, length = np.exp(random.normal(0, 0.5, shape)), shape[1]
    values[0, length // 2 : length // 2 + 3] = np.nan
    return values

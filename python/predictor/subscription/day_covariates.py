"""The covariates of a subscription: merging of pushed values, and moving them from day to day."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray, IndexArray
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.covariates.covariates import find_positions, take_columns
from predictor.errors import CovariateMissingError, CovariatesError, UnknownCovariateError, format_names


def check_pushed(covariates: Covariates, pushed: Covariates, symbols: Sequence[str], rows: IndexArray) -> None:
    """Check that a push has the covariates of the subscription.

    Args:
        covariates: covariates of the subscription's S symbols, including static values.
        pushed: covariates of the P pushed symbols.
        symbols: names of the P symbols.
        rows: [P] their indices among the S symbols.

    Raises:
        CovariateMissingError: a covariate of the subscription was not pushed.
        UnknownCovariateError: the subscription does not have a pushed covariate.
        CovariatesError: a static value differs from the subscription's.
    """
    have = {"observed": (covariates.observed, pushed.observed), "known": (covariates.known, pushed.known)}
    for group, (subscribed, pushed_values) in have.items():
        if lacking := [name for name in subscribed if name not in pushed_values]:
            raise CovariateMissingError(
                f"{group} covariate {lacking[0]} was not pushed; push a value of the day, or NaN, with each bar",
                metadata={"covariate": lacking[0], "group": group},
            )
        if unknown := [name for name in pushed_values if name not in subscribed]:
            raise UnknownCovariateError(
                f"{group} covariate {unknown[0]} is not in the subscription, which has {format_names([*subscribed])}",
                metadata={"covariate": unknown[0]},
            )
    for name, values in pushed.numbers.items():
        if name not in covariates.numbers or not np.array_equal(values, covariates.numbers[name][rows], equal_nan=True):
            raise _make_not_static_error(name, symbols)
    for name, texts in pushed.categories.items():
        if name not in covariates.categories or texts != tuple(covariates.categories[name][row] for row in rows):
            raise _make_not_static_error(name, symbols)


def _make_not_static_error(name: str, symbols: Sequence[str]) -> CovariatesError:
    return CovariatesError(
        f"static covariate {name} of {format_names(symbols)} differs from the subscription's; leave it out, or open "
        "another session",
        metadata={"covariate": name},
    )


def move_to_day(before: Covariates, have: NDArray[np.int32], session: int, future: NDArray[np.int32]) -> Covariates:
    """Move a day's covariates to another day and other future sessions, with the values that are known already.

    Args:
        before: covariates of a day, observed [S, 1] and known [S, 1 + D].
        have: int32 [1 + D], the day and its future sessions.
        session: the new day, yyyymmdd.
        future: int32 [E], the future sessions of the new day.
    """
    if not before.names:
        return NO_COVARIATES
    want = np.concatenate([np.array([session], np.int32), future])
    places = find_positions(have, want)
    observed = before.observed
    if session != int(have[0]):
        observed = {name: np.full_like(values, np.nan) for name, values in before.observed.items()}
    return Covariates(
        observed=observed,
        known={name: take_columns(values, places) for name, values in before.known.items()},
        future_sessions=future,
    )


def replace_rows(day: Covariates, pushed: Covariates, rows: IndexArray) -> Covariates:
    """Replace the covariates of P rows [P] by the pushed ones, on the same sessions."""
    if not day.names:
        return NO_COVARIATES
    return replace(
        day,
        observed={name: _place(values, pushed.observed[name], rows) for name, values in day.observed.items()},
        known={name: _place(values, pushed.known[name], rows) for name, values in day.known.items()},
    )


def append_day(history: Covariates, day: Covariates) -> Covariates:
    """Append the covariates of a day [S, 1] and its future sessions to those of a history [S, T]."""
    if not history.names:
        return NO_COVARIATES
    return Covariates(
        observed=_concatenate(history.observed, day.observed),
        known=_concatenate(history.known, day.known),
        future_sessions=day.future_sessions,
        numbers=history.numbers,
        categories=history.categories,
    )


def append_past(history: Covariates, day: Covariates) -> Covariates:
    """Append the covariates of a day [S, 1], without its future sessions, to those of a history [S, T]."""
    if not history.names:
        return NO_COVARIATES
    past = {name: values[:, :1] for name, values in day.known.items()}
    return append_day(history, Covariates(observed=day.observed, known=past))


def split_last_day(covariates: Covariates, sessions: int) -> tuple[Covariates, Covariates]:
    """Split covariates on `sessions` sessions before the last one, as copies.

    The first part has the static values, the second one the future sessions.
    """
    if not covariates.names:
        return NO_COVARIATES, NO_COVARIATES
    past, last = slice(None, sessions - 1), slice(sessions - 1, None)
    history = replace(
        covariates,
        observed=_cut(covariates.observed, past),
        known=_cut(covariates.known, past),
        future_sessions=np.zeros(0, np.int32),
        numbers={name: values.copy() for name, values in covariates.numbers.items()},
    )
    day = Covariates(
        observed=_cut(covariates.observed, last),
        known=_cut(covariates.known, last),
        future_sessions=covariates.future_sessions,
    )
    return history, day


def count_bytes(covariates: Covariates) -> int:
    """Approximate size in bytes."""
    groups = (covariates.observed, covariates.known, covariates.numbers)
    texts = sum(len(text) for column in covariates.categories.values() for text in column)
    return sum(values.nbytes for group in groups for values in group.values()) + texts


def _concatenate(first: Mapping[str, FloatArray], second: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    return {name: np.concatenate([values, second[name]], axis=1) for name, values in first.items()}


def _cut(group: Mapping[str, FloatArray], columns: slice) -> dict[str, FloatArray]:
    return {name: values[:, columns].copy() for name, values in group.items()}


def _place(values: FloatArray, pushed: FloatArray, rows: IndexArray) -> FloatArray:
    placed = values.copy()
    placed[rows] = pushed
    return placed

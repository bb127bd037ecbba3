"""The covariates of a subscription's last day, as far as they have come, beside those of the days before."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray, IndexArray
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.errors import CovariateMissingError, CovariatesError, UnknownCovariateError, listed


def check_pushed(own: Covariates, pushed: Covariates, symbols: Sequence[str], rows: IndexArray) -> None:
    """Refuse covariates that are not those of the subscription.

    Args:
        own: of the subscription's S symbols; of its static ones, the values.
        pushed: beside bars of P of these symbols.
        symbols: the names of these P.
        rows: [P] their places among the S.

    Raises:
        CovariateMissingError: one that the subscription has was not pushed.
        UnknownCovariateError: one was pushed that it does not have.
        CovariatesError: a static one is another than at the subscription.
    """
    have = {"observed": (own.observed, pushed.observed), "known": (own.known, pushed.known)}
    for group, (subscribed, sent) in have.items():
        if lacking := [name for name in subscribed if name not in sent]:
            raise CovariateMissingError(
                f"{group} covariate {lacking[0]} was not pushed; push a value of the day, or NaN, with each bar",
                metadata={"covariate": lacking[0], "group": group},
            )
        if strange := [name for name in sent if name not in subscribed]:
            raise UnknownCovariateError(
                f"{group} covariate {strange[0]} is not among those of the subscription: {listed([*subscribed])}",
                metadata={"covariate": strange[0]},
            )
    for name, values in pushed.numbers.items():
        if name not in own.numbers or not np.array_equal(values, own.numbers[name][rows], equal_nan=True):
            raise _not_static(name, symbols)
    for name, texts in pushed.categories.items():
        if name not in own.categories or texts != tuple(own.categories[name][row] for row in rows):
            raise _not_static(name, symbols)


def _not_static(name: str, symbols: Sequence[str]) -> CovariatesError:
    return CovariatesError(
        f"static covariate {name} of {listed(symbols)} is another than at the subscription, whose values stay; leave "
        "it out, or open another session",
        metadata={"covariate": name},
    )


def moved(before: Covariates, have: NDArray[np.int32], session: int, future: NDArray[np.int32]) -> Covariates:
    """The covariates [S, 1] of a day and of the sessions after it, as far as they were sent before.

    Args:
        before: those of a day, [S, 1] and [S, 1 + D].
        have: int32 [1 + D], its session and the future ones.
        session: the day to have instead, yyyymmdd.
        future: int32 [E], the sessions after it.
    """
    if not before.names:
        return NO_COVARIATES
    want = np.concatenate([np.array([session], np.int32), future])
    places = np.searchsorted(have, want)
    places = np.where(have.take(places, mode="clip") == want, places, -1)
    is_same = session == int(have[0])
    return Covariates(
        observed=before.observed if is_same else {name: _unknown(values) for name, values in before.observed.items()},
        known={name: _taken(values, places) for name, values in before.known.items()},
        future_sessions=future,
    )


def with_rows(day: Covariates, pushed: Covariates, rows: IndexArray) -> Covariates:
    """The day's covariates with those that were pushed in their P rows [P]; on the same sessions."""
    if not day.names:
        return NO_COVARIATES
    return replace(
        day,
        observed={name: _placed(values, pushed.observed[name], rows) for name, values in day.observed.items()},
        known={name: _placed(values, pushed.known[name], rows) for name, values in day.known.items()},
    )


def joined(history: Covariates, day: Covariates) -> Covariates:
    """The covariates of a history [S, T], followed by those of a day [S, 1] and of the sessions after it."""
    if not history.names:
        return NO_COVARIATES
    return Covariates(
        observed=_beside(history.observed, day.observed),
        known=_beside(history.known, day.known),
        future_sessions=day.future_sessions,
        numbers=history.numbers,
        categories=history.categories,
    )


def joined_past(history: Covariates, day: Covariates) -> Covariates:
    """The covariates of a history [S, T], followed by those of a day [S, 1]; of no later session."""
    if not history.names:
        return NO_COVARIATES
    past = {name: values[:, :1] for name, values in day.known.items()}
    return joined(history, Covariates(observed=day.observed, known=past))


def split(covariates: Covariates, sessions: int) -> tuple[Covariates, Covariates]:
    """Those of the sessions but the last of so many, with the static ones; and those of the last one and the future.

    Both hold copies, whatever the values were part of.
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


def size_of(covariates: Covariates) -> int:
    """Bytes of the values."""
    groups = (covariates.observed, covariates.known, covariates.numbers)
    texts = sum(len(text) for column in covariates.categories.values() for text in column)
    return sum(values.nbytes for group in groups for values in group.values()) + texts


def _beside(first: Mapping[str, FloatArray], second: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    return {name: np.concatenate([values, second[name]], axis=1) for name, values in first.items()}


def _cut(group: Mapping[str, FloatArray], columns: slice) -> dict[str, FloatArray]:
    return {name: values[:, columns].copy() for name, values in group.items()}


def _unknown(values: FloatArray) -> FloatArray:
    return np.full_like(values, np.nan)


def _taken(values: FloatArray, places: IndexArray) -> FloatArray:
    taken = values[:, places]
    taken[:, places < 0] = np.nan
    return taken


def _placed(values: FloatArray, pushed: FloatArray, rows: IndexArray) -> FloatArray:
    placed = values.copy()
    placed[rows] = pushed
    return placed

"""Covariates aligned with a panel of bars, and the check against a model's requirements."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.catalog import CovariateGroup, CovariateInfo
from predictor.dates import is_valid_date
from predictor.errors import CovariateMissingError, CovariatesError, UnknownCovariateError, format_date, format_names

FLOAT64: Final = np.dtype(np.float64)


def _make_no_sessions() -> NDArray[np.int32]:
    return np.zeros(0, np.int32)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Covariates:
    """Values by name, aligned with a panel of S symbols and T sessions. Writeable arrays are copied and made read-only.

    Attributes:
        observed: float64 [S, T] each, as known at the close of that session; NaN = unknown.
        known: float64 [S, T + D] each, on the panel's sessions and then `future_sessions`; NaN = unknown.
        future_sessions: int32 [D], yyyymmdd after the last bar, ascending. Days that are not sessions are ignored.
        numbers: Static numbers, float64 [S] each; NaN = unknown.
        categories: Static strings, one per symbol; empty = unknown.

    Raises:
        CovariatesError: A name is in two groups, or an array has the wrong dtype or rank or contains infinity.
    """

    observed: Mapping[str, FloatArray] = field(default_factory=dict[str, FloatArray])
    known: Mapping[str, FloatArray] = field(default_factory=dict[str, FloatArray])
    future_sessions: NDArray[np.int32] = field(default_factory=_make_no_sessions)
    numbers: Mapping[str, FloatArray] = field(default_factory=dict[str, FloatArray])
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def __post_init__(self) -> None:
        twice = sorted(name for name, count in Counter(self.names).items() if count > 1)
        if twice:
            raise CovariatesError(f"covariates {twice} are in two groups; put each into one")
        for group, rank in (("observed", 2), ("known", 2), ("numbers", 1)):
            values: Mapping[str, FloatArray] = getattr(self, group)
            object.__setattr__(
                self, group, {name: _copy_read_only(name, array, rank) for name, array in values.items()}
            )
        object.__setattr__(self, "future_sessions", _check_ascending(self.future_sessions))

    @property
    def names(self) -> tuple[str, ...]:
        """All names, group by group."""
        return (*self.observed, *self.known, *self.numbers, *self.categories)

    @property
    def is_empty(self) -> bool:
        """Whether values and future sessions are both empty."""
        values = self.observed or self.known or self.numbers or self.categories
        return not values and not self.future_sessions.size

    def check(self, symbols: int, sessions: NDArray[np.int32]) -> None:
        """Check that the covariates match a panel.

        Args:
            symbols: Number of symbols S.
            sessions: int32 [T], the panel's sessions, yyyymmdd.

        Raises:
            CovariatesError: A covariate has the wrong shape, or a future session is not after the last bar.
        """
        if self.future_sessions.size and self.future_sessions[0] <= sessions[-1]:
            first, last = format_date(int(self.future_sessions[0])), format_date(int(sessions[-1]))
            raise CovariatesError(f"future_sessions begin {first}, but must come after the last bar, {last}")
        length = len(sessions)
        _check_shapes(self.observed, (symbols, length))
        _check_shapes(self.known, (symbols, length + len(self.future_sessions)))
        _check_shapes(self.numbers, (symbols,))
        for name, texts in self.categories.items():
            if len(texts) != symbols:
                raise CovariatesError(f"covariate {name} has {len(texts)} texts, need {symbols}, one per symbol")

    def on_sessions(self, have: NDArray[np.int32], want: NDArray[np.int32], future: NDArray[np.int32]) -> "Covariates":
        """Move the values to other sessions; values on new sessions are NaN.

        Args:
            have: int32 [T], the current sessions.
            want: int32 [W], the new sessions.
            future: int32 [D], the sessions after `want` that known covariates must cover.

        Raises:
            CovariateMissingError: a known covariate does not cover a session of `future`.
        """
        if self.known:
            _check_future(next(iter(self.known)), np.concatenate([have, self.future_sessions]), future)
        past = find_positions(have, want)
        ahead = find_positions(np.concatenate([have, self.future_sessions]), np.concatenate([want, future]))
        return replace(
            self,
            observed={name: take_columns(values, past) for name, values in self.observed.items()},
            known={name: take_columns(values, ahead) for name, values in self.known.items()},
            future_sessions=future if self.known else _make_no_sessions(),
        )

    def last(self, count: int) -> "Covariates":
        """Select the last `count` sessions of the bars, and all future sessions."""
        ahead = count + len(self.future_sessions)
        return replace(
            self,
            observed={name: values[:, -count:] for name, values in self.observed.items()},
            known={name: values[:, -ahead:] for name, values in self.known.items()},
        )

    def rows(self, rows: Sequence[int] | slice) -> "Covariates":
        """Select symbols by index."""
        places = rows if isinstance(rows, slice) else [*rows]
        return replace(
            self,
            observed={name: values[places] for name, values in self.observed.items()},
            known={name: values[places] for name, values in self.known.items()},
            numbers={name: values[places] for name, values in self.numbers.items()},
            categories={
                name: texts[places] if isinstance(places, slice) else tuple(texts[row] for row in places)
                for name, texts in self.categories.items()
            },
        )

    def warnings(self, symbols: Sequence[str]) -> Iterator[str]:
        """Warnings about observed and known covariates that are unknown on all sessions."""
        for name, values in (*self.observed.items(), *self.known.items()):
            absent = [symbol for symbol, row in zip(symbols, np.isnan(values), strict=True) if row.all()]
            if absent:
                yield f"{format_names(absent)}: {name} is unknown on all sessions, and the forecast is made without it"

    def only(self, names: Collection[str]) -> Self:
        """Select covariates by name."""
        return replace(
            self,
            observed={name: values for name, values in self.observed.items() if name in names},
            known={name: values for name, values in self.known.items() if name in names},
            numbers={name: values for name, values in self.numbers.items() if name in names},
            categories={name: texts for name, texts in self.categories.items() if name in names},
        )


def _copy_read_only(name: str, values: NDArray[np.floating | np.integer], rank: int) -> FloatArray:
    if values.ndim != rank or values.dtype.kind not in "iuf" or (values.dtype.kind == "f" and values.dtype != FLOAT64):
        have = f"{values.dtype} with {values.ndim} axes"
        raise CovariatesError(f"covariate {name} is {have}, but must be float64 with {rank} axes")
    if np.isinf(values).any():
        raise CovariatesError(f"covariate {name} holds infinity; send NaN for an unknown value")
    copy = values.astype(np.float64, copy=bool(values.flags.writeable))
    copy.setflags(write=False)
    return copy


def _check_ascending(sessions: NDArray[np.integer]) -> NDArray[np.int32]:
    if sessions.ndim != 1 or sessions.dtype.kind not in "iu":
        raise CovariatesError(f"future_sessions must be integers yyyymmdd of shape [D], but are {sessions.dtype}")
    if (sessions[1:] <= sessions[:-1]).any():
        raise CovariatesError("future_sessions must be in strictly ascending order")
    for session in sessions.tolist():
        if not is_valid_date(session):
            raise CovariatesError(f"future_sessions holds {session}, which is no date yyyymmdd")
    copy = sessions.astype(np.int32)
    copy.setflags(write=False)
    return copy


def _check_shapes(group: Mapping[str, FloatArray], shape: tuple[int, ...]) -> None:
    for name, values in group.items():
        if values.shape != shape:
            raise CovariatesError(
                f"covariate {name} has shape {list(values.shape)}, need {list(shape)}: the bars' symbols and their "
                "sessions, followed by future_sessions for a known covariate",
                metadata={"covariate": name},
            )


def _check_future(name: str, have: NDArray[np.int32], need: NDArray[np.int32]) -> None:
    absent = need[~np.isin(need, have)]
    if absent.size:
        day = format_date(int(absent[0]))
        raise CovariateMissingError(
            f"known covariate {name} has no value for session {day}; send future_sessions up to "
            f"{format_date(int(need[-1]))} and a value, or NaN, for each",
            metadata={"covariate": name, "date": day},
        )


def find_positions(have: NDArray[np.int32], want: NDArray[np.int32]) -> NDArray[np.intp]:
    """The index of each wanted session; -1 if it is missing."""
    places = np.searchsorted(have, want)
    is_there = have.take(places, mode="clip") == want
    return np.where(is_there, places, -1)


def take_columns(values: FloatArray, places: NDArray[np.intp]) -> FloatArray:
    """Select columns of [S, T] by index; -1 gives NaN."""
    selected = values[:, places]
    selected[:, places < 0] = np.nan
    return selected


NO_COVARIATES: Final = Covariates()
"""No covariates."""


def check_covariates(needs: Sequence[CovariateInfo], covariates: Covariates) -> None:
    """Check that a request has exactly the covariates that a model reads.

    Raises:
        CovariateMissingError: a covariate is missing or in the wrong group.
        UnknownCovariateError: the model does not read a covariate.
    """
    groups = {
        **dict.fromkeys(covariates.observed, "observed"),
        **dict.fromkeys(covariates.known, "known"),
        **dict.fromkeys(covariates.numbers, "a static number"),
        **dict.fromkeys(covariates.categories, "a static text"),
    }
    for need in needs:
        group = get_request_group(need)
        if groups.get(need.name) != group:
            how = f"sent as {groups[need.name]}" if need.name in groups else "not sent"
            raise CovariateMissingError(
                f"covariate {need.name} is {how}, but the model reads it as {group}; send it with the bars",
                metadata={"covariate": need.name, "group": need.group},
            )
    read_names = dict.fromkeys(need.name for need in needs)
    for name in groups:
        if name not in read_names:
            raise UnknownCovariateError(
                f"the model does not read covariate {name}; it reads {', '.join(read_names) or 'none'}",
                metadata={"covariate": name},
            )


def get_request_group(need: CovariateInfo) -> str:
    """The group in which a request must contain a covariate, for messages."""
    if need.group is not CovariateGroup.STATIC:
        return need.group.value
    return "a static text" if need.categories else "a static number"

"""Folds of a walk forward: the training sessions and the decision days of each refit."""

import re
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from predictor.errors import ConfigurationError, format_date
from predictor.flags import Flag
from trainers.stock.splits import parse_day_flag

_WINDOW = re.compile(r"rolling:([1-9]\d*)")


def _parse_refit(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"--refit is {text!r}, but must be never or a number of sessions")
    return int(text)


def _parse_rolling(text: str) -> int:
    match = _WINDOW.fullmatch(text)
    if match is None:
        raise ValueError(f"--window is {text!r}, but must be expanding or rolling:N, such as rolling:1260")
    return int(match[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkForwardPlan:
    """Plan of a walk forward; sessions are yyyymmdd."""

    start: Annotated[
        int,
        Flag(
            "First decision day, such as 2011-01-03.",
            metavar="DATE",
            parse=partial(parse_day_flag, "--start"),
            shown_default="the first possible",
        ),
    ]
    """Decisions are made after the close; moves to the next session if the exchange is closed on this day."""
    end: Annotated[
        int,
        Flag(
            "Last session of the book.",
            metavar="DATE",
            parse=partial(parse_day_flag, "--end"),
            shown_default="the last bar",
        ),
    ]
    refit: Annotated[
        int | None,
        Flag(
            "Sessions between refits; never: keep the model unchanged.",
            metavar="never|N",
            parse=_parse_refit,
            none_text="never",
        ),
    ] = None
    """None for never."""
    rolling: Annotated[
        int | None,
        Flag(
            "Refit on all earlier bars, or on the last N sessions, including warm-up.",
            name="window",
            metavar="expanding|rolling:N",
            parse=_parse_rolling,
            none_text="expanding",
        ),
    ] = None
    """None for all sessions since the first bar."""
    embargo: Annotated[
        int, Flag("Sessions left out between a refit's training data and its first decision.", minimum=0)
    ] = 0

    def __post_init__(self) -> None:
        if self.start > self.end:
            raise ConfigurationError(
                f"the backtest ends on {format_date(self.end)}, before it starts on {format_date(self.start)}"
            )
        for name, least in (("refit", 1), ("rolling", 1), ("embargo", 0)):
            value: int | None = getattr(self, name)
            if value is not None and value < least:
                raise ConfigurationError(f"{name} is {value} sessions, but must be at least {least}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Consecutive decisions by one model; sessions are yyyymmdd, inclusive."""

    number: int
    """From 1."""
    first: int
    last: int
    learn_first: int
    """First session that the model may be trained on."""
    learn_last: int
    """Last session that the model may be trained on, before `first`; no label of the training is later."""


def describe_fold(fold: Fold) -> str:
    """The fold as text."""
    first, last, begun, ended = map(format_date, (fold.first, fold.last, fold.learn_first, fold.learn_last))
    return f"decides {first} to {last}, trained on {begun} to {ended}"


def find_decision_span(sessions: NDArray[np.int32], plan: WalkForwardPlan) -> tuple[int, int]:
    """Positions of the first and last session of a backtest in the bars' sessions [T].

    Raises:
        ConfigurationError: The bars have fewer than two sessions of it.
    """
    first = int(np.searchsorted(sessions, plan.start))
    last = int(np.searchsorted(sessions, plan.end, side="right")) - 1
    if last <= first:
        raise ConfigurationError(
            f"the bars, {format_date(int(sessions[0]))} to {format_date(int(sessions[-1]))}, do not have two sessions "
            f"from {format_date(plan.start)} to {format_date(plan.end)}; choose --start and --end within them"
        )
    return first, last


def split_sessions(sessions: NDArray[np.int32], plan: WalkForwardPlan) -> tuple[Fold, ...]:
    """The folds of a walk forward over the bars' sessions [T], oldest first.

    A refit sees no session later than `embargo` sessions before its first decision. All its labels end before that
    decision: decisions of the last lag + longest horizon sessions are purged, because their outcomes are unknown.

    Raises:
        ConfigurationError: The bars have too few sessions.
    """
    first, last = find_decision_span(sessions, plan)
    step = last - first + 1 if plan.refit is None else plan.refit
    starts = enumerate(range(first, last + 1, step), start=1)
    folds: list[Fold] = []
    for number, start in starts:
        known = start - 1 - plan.embargo
        if known < 0:
            raise ConfigurationError(
                f"no session before {format_date(int(sessions[start]))} to train on; start later, or give more bars"
            )
        oldest = 0 if plan.rolling is None else max(0, known + 1 - plan.rolling)
        folds.append(
            Fold(
                number=number,
                first=int(sessions[start]),
                last=int(sessions[min(start + step - 1, last)]),
                learn_first=int(sessions[oldest]),
                learn_last=int(sessions[known]),
            )
        )
    return tuple(folds)

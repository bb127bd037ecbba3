"""A network's internals: the weights that it gave to its inputs and sessions, for people."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from predictor.arrays import FloatArray

INTERNALS_NOTE: Final = "what the network attended to, not what moved the forecast"
"""Shown wherever internals are."""
_SHOWN_SHARES: Final = 5
TYPICAL: Final = "train_mean"
"""The name of the baseline that a training gives every model: inputs at the mean of their training part."""


def session_in_words(offset: int) -> str:
    """A session by its distance from the last bar's, such as `26 sessions before the last` for -26."""
    if offset == 0:
        return "last session"
    count = f"{abs(offset)} session{'' if abs(offset) == 1 else 's'}"
    return f"{count} {'before' if offset < 0 else 'after'} the last"


def baseline_in_words(name: str) -> str:
    """What contributions count from, for people: `train_mean` is the typical input; another name is its own word."""
    return "the typical input" if name == TYPICAL else name


class InternalAxis(StrEnum):
    """What an internal's shares are shares of."""

    INPUTS = "inputs"
    """Labels are names of variables."""
    SESSIONS = "sessions"
    """Labels count sessions from the last bar's, such as `-59`, `0` and `+5`."""


class InternalShare(NamedTuple):
    """One entry of an internal, and its share of the whole."""

    label: str
    """A variable, or a session in words, such as `26 sessions before the last`."""
    share: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Internal:
    """A network's own weights, such as attention: what it attended to on the way to one target, for S symbols.

    They are not contributions, and do not say what moved the forecast. Measured on fitted networks, the order of
    selection weights agreed with that of the true weights by anything from 0.1 to 1.0 (rank correlation), and
    attention found the true lags in 0 to 0.6 of the cases: by the time that it looks, the layers before it have moved
    information between variables and sessions, and a linear map beside the network passes all of it by.
    """

    name: str
    """Such as `attention`; for an ensemble's member, with the member's name in front."""
    axis: InternalAxis
    labels: tuple[str, ...]
    """[L] variables, or sessions by their distance from the last bar's; `table` puts these into words."""
    values: FloatArray
    """[S, L] shares that add up to 1; NaN for a symbol that could not be forecast."""

    def table(self, s: int = 0) -> list[InternalShare]:
        """The shares of the symbol in row `s`, largest first."""
        order = np.argsort(-self.values[s], kind="stable")
        return [InternalShare(self._in_words(self.labels[k]), float(self.values[s, k])) for k in order]

    def _in_words(self, label: str) -> str:
        return session_in_words(int(label)) if self.axis is InternalAxis.SESSIONS else label


def largest_shares(internal: Internal, s: int) -> str:
    """The largest shares of one symbol as text, such as `last session: 41 %, 1 session before the last: 12 %`.

    Empty if the symbol could not be forecast.
    """
    shown = [one for one in internal.table(s)[:_SHOWN_SHARES] if one.share > 0]
    return ", ".join(f"{one.label}: {100 * one.share:.0f} %" for one in shown)

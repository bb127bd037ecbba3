"""Internals of a network: the weights that it gave to its inputs and sessions."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from predictor.arrays import FloatArray
from predictor.errors import format_count

INTERNALS_NOTE: Final = "what the network attended to, not what moved the forecast"
"""Shown with all internals."""
_SHOWN_SHARES: Final = 5
TYPICAL: Final = "train_mean"
"""The baseline of networks: the mean inputs of the training split."""
TRAINING_WINDOWS: Final = "train_windows"
"""The baseline of trees: the mean of their forecasts of the training windows."""

LAST_CLOSE: Final = "last_close"
"""The baseline of adopted models: the forecast if only the last bar is known."""


def describe_session(offset: int) -> str:
    """Describe a session by its offset from the last bar's, such as `26 sessions before the last` for -26."""
    if offset == 0:
        return "last session"
    return f"{format_count(abs(offset), 'session')} {'before' if offset < 0 else 'after'} the last"


def describe_baseline(name: str, *, is_additive: bool) -> str:
    """Describe the baseline of contributions; unknown names stay unchanged."""
    described = {
        TYPICAL: "the typical input",
        TRAINING_WINDOWS: "the mean training window",
        LAST_CLOSE: "the last close alone",
    }.get(name, name)
    return described if is_additive else f"{described} (not additive)"


class InternalAxis(StrEnum):
    """The axis that an internal's shares are on."""

    INPUTS = "inputs"
    """Labels are variable names."""
    SESSIONS = "sessions"
    """Labels are offsets from the last bar's session, such as `-59`, `0` and `+5`."""


class InternalShare(NamedTuple):
    """One entry of an internal and its share."""

    label: str
    """A variable, or a session in words, such as `26 sessions before the last`."""
    share: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Internal:
    """The weights of one layer of a network, such as attention, for S symbols.

    They are not contributions and do not say what moved the forecast. On fitted networks, the rank correlation of
    selection weights with the true weights ranged from 0.1 to 1.0, and attention found the true lags in 0 to 0.6 of
    the cases: the layers before it move information between variables and sessions, and a linear map parallel to the
    network bypasses it.
    """

    name: str
    """Such as `attention`; for a member of an ensemble, prefixed with the member's name."""
    axis: InternalAxis
    labels: tuple[str, ...]
    """[L] variables, or offsets of sessions from the last bar's."""
    values: FloatArray
    """[S, L] shares that add up to 1; NaN for a symbol without a forecast."""

    def table(self, s: int = 0) -> list[InternalShare]:
        """The shares of the symbol in row `s`, largest first, with sessions in words."""
        order = np.argsort(-self.values[s], kind="stable")
        labels = self.labels
        if self.axis is InternalAxis.SESSIONS:
            labels = [describe_session(int(offset)) for offset in labels]
        return [InternalShare(labels[k], float(self.values[s, k])) for k in order]


def format_largest_shares(internal: Internal, s: int) -> str:
    """Format the largest shares of one symbol, such as `last session: 41 %, 1 session before the last: 12 %`.

    Empty for a symbol without a forecast.
    """
    rows = [row for row in internal.table(s)[:_SHOWN_SHARES] if row.share > 0]
    return ", ".join(f"{row.label}: {100 * row.share:.0f} %" for row in rows)

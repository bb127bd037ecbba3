"""From bars to a network's inputs: the one path that training and serving share.

A pipeline holds everything that this path needs (features with their fitted numbers, target, normaliser, calendar,
lengths) and travels inside the artifact, so that a served forecast reads exactly what the network was trained on.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.bars import AdjustedBars, BarPanel
from predictor.errors import ConfigurationError, TooFewBarsError
from predictor.features import FittedFeatures
from predictor.networks import Inputs, InputSizes, Normaliser, Target
from predictor.sessions import SessionCalendar

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Encoded:
    """A panel's inputs over its last sessions. Legend: S symbols, T sessions, D future sessions."""

    observed: NDArray[np.float32]
    """[S, T, F]"""
    mask: NDArray[np.bool_]
    """[S, T, F]"""
    known: NDArray[np.float32]
    """[T + D, K]"""
    location: FloatArray
    """[S, T]"""
    scale: FloatArray
    """[S, T]"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pipeline:
    """Bars to inputs, the same for every door and for training."""

    features: FittedFeatures
    target: Target
    normaliser: Normaliser
    calendar: SessionCalendar
    encoder_length: int = 60
    """Sessions that the network reads."""

    def __post_init__(self) -> None:
        if self.encoder_length < 1:
            raise ConfigurationError(f"encoder length is {self.encoder_length} sessions, but must be at least 1")

    @property
    def sizes(self) -> InputSizes:
        """How large each group of the network's inputs is."""
        features = self.features.features
        return InputSizes(
            encoder_length=self.encoder_length,
            future_length=self.target.reach,
            observed=len(features.observed),
            known=len(features.known),
            static=0,
        )

    @property
    def lookback(self) -> int:
        """Bars that one row of inputs depends on, the row's own bar included."""
        return max(self.features.features.lookback, self.normaliser.window + 1 - (self.encoder_length - 1))

    @property
    def bars_needed(self) -> int:
        """Bars that one forecast depends on."""
        return self.encoder_length + self.lookback - 1

    def check_length(self, bars: BarPanel) -> None:
        """Raise TooFewBarsError, naming have and need, if the panel is shorter than one forecast needs."""
        have = len(bars.sessions)
        if have < self.bars_needed:
            raise TooFewBarsError.of(
                ", ".join(bars.symbols[:3]),
                have=have,
                need=self.bars_needed,
                encoder_length=self.encoder_length,
                lookback=self.lookback,
            )

    def encode(self, bars: BarPanel) -> Encoded:
        """The inputs of every session of a whole history, for training."""
        return self._encode(bars, bars.adjusted(), len(bars.sessions))

    def encode_latest(self, bars: BarPanel) -> Encoded:
        """The inputs of the last encoder, from the bars that it depends on and no others.

        Raises:
            TooFewBarsError: the panel is shorter than that.
        """
        self.check_length(bars)
        recent = bars.last(self.bars_needed)
        return self._encode(recent, recent.adjusted(), self.encoder_length)

    def _encode(self, bars: BarPanel, adjusted: AdjustedBars, sessions: int) -> Encoded:
        observed, mask = self.features.observed(adjusted)
        location, scale = self.normaliser.measure(self.target.daily(adjusted), sessions)
        return Encoded(
            observed=observed[:, -sessions:],
            mask=mask[:, -sessions:],
            known=self._known(bars.sessions[-sessions:]),
            location=location,
            scale=scale,
        )

    def _known(self, sessions: NDArray[np.int32]) -> NDArray[np.float32]:
        """[T + D, K] known features of these sessions and of those that the horizons reach."""
        future = self.calendar.following(int(sessions[-1]), self.target.reach)
        return self.features.known(self.calendar.fields(np.concatenate([sessions, future])))

    def target_sessions(self, as_of: int) -> NDArray[np.int32]:
        """[H] session that each horizon ends on."""
        future = self.calendar.following(as_of, self.target.reach)
        return future[[self.target.lag + h - 1 for h in self.target.horizons]]


def latest_window(encoded: Encoded, encoder_length: int) -> Inputs:
    """The S rows of the last encoder of an encoded panel."""
    symbols, sessions, _ = encoded.observed.shape
    return Inputs(
        observed=torch.from_numpy(np.ascontiguousarray(encoded.observed[:, -encoder_length:])),
        known=torch.from_numpy(encoded.known[sessions - encoder_length :]).expand(symbols, -1, -1),
        static=torch.zeros(symbols, 0),
        mask=torch.from_numpy(np.ascontiguousarray(encoded.mask[:, -encoder_length:])),
        location=torch.from_numpy(np.ascontiguousarray(encoded.location[:, -1])),
        scale=torch.from_numpy(np.ascontiguousarray(encoded.scale[:, -1])),
    )

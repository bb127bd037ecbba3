"""From bars to a network's inputs: the one path that training and serving share.

A pipeline holds everything that this path needs (features with their fitted numbers, target, normaliser, calendar,
lengths) and travels inside the artifact, so that a served forecast reads exactly what the network was trained on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.bars import AdjustedBars, BarPanel
from predictor.catalog import CovariateGroup, CovariateInfo
from predictor.covariates import Covariates
from predictor.errors import ConfigurationError, TooFewBarsError
from predictor.features import FittedFeatures
from predictor.networks import Inputs, InputSizes, Normaliser, Target
from predictor.sessions import SessionCalendar

FloatArray = NDArray[np.float64]

NO_COVARIATES: Final = Covariates()

LONGEST_ENCODER: Final = 2500
"""Sessions, ten years: a bound for what an artifact may ask to be built."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Encoded:
    """A panel's inputs over its last sessions. Legend: S symbols, T sessions, D future sessions."""

    observed: NDArray[np.float32]
    """[S, T, F]"""
    mask: NDArray[np.bool_]
    """[S, T, F]"""
    known: NDArray[np.float32]
    """[S, T + D, K], or [1, T + D, K] if it is the same for all symbols."""
    static: NDArray[np.float32]
    """[S, C]"""
    location: FloatArray
    """[S, T]"""
    scale: FloatArray
    """[S, T]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What decides a network's inputs: pipelines that agree in it make the same of the same bars."""

    schema_hash: str
    target: Target
    normaliser: Normaliser
    calendar: SessionCalendar
    encoder_length: int


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
        if not 1 <= self.encoder_length <= LONGEST_ENCODER:
            raise ConfigurationError(
                f"encoder length is {self.encoder_length} sessions, but must be 1 to {LONGEST_ENCODER}"
            )

    @property
    def reading(self) -> Reading:
        """What decides its inputs."""
        return Reading(
            schema_hash=self.features.schema_hash,
            target=self.target,
            normaliser=self.normaliser,
            calendar=self.calendar,
            encoder_length=self.encoder_length,
        )

    @property
    def sizes(self) -> InputSizes:
        """How large each group of the network's inputs is."""
        features = self.features.features
        return InputSizes(
            encoder_length=self.encoder_length,
            future_length=self.target.reach,
            observed=len(features.observed),
            known=len(self.features.known_columns),
            static=sum(self.features.statics.widths),
            static_widths=self.features.statics.widths,
        )

    @property
    def covariates(self) -> tuple[CovariateInfo, ...]:
        """What a caller has to send beside the bars."""
        beside, statics = self.features.features.covariates, self.features.statics
        return (
            *(CovariateInfo(name=name, group=CovariateGroup.OBSERVED) for name in beside.observed),
            *(CovariateInfo(name=name, group=CovariateGroup.KNOWN) for name in beside.known),
            *(CovariateInfo(name=one.name, group=CovariateGroup.STATIC) for one in statics.numbers),
            *(
                CovariateInfo(name=one.name, group=CovariateGroup.STATIC, categories=one.categories)
                for one in statics.categories
            ),
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

    def encode(self, bars: BarPanel, covariates: Covariates = NO_COVARIATES) -> Encoded:
        """The inputs of every session of a whole history, for training.

        Args:
            bars: the history.
            covariates: beside it; the known ones also of the sessions that follow it, as many as the target reaches.

        Raises:
            CovariateMissingError: one that the features read is not there.
        """
        return self._encode(bars, bars.adjusted(), covariates, len(bars.sessions))

    def encode_latest(self, bars: BarPanel, covariates: Covariates = NO_COVARIATES) -> Encoded:
        """The inputs of the last encoder, from the bars that it depends on and no others.

        Raises:
            TooFewBarsError: the panel is shorter than that.
            CovariateMissingError: as `encode`.
        """
        self.check_length(bars)
        recent, beside = bars.last(self.bars_needed), covariates.last(self.bars_needed)
        return self._encode(recent, recent.adjusted(), beside, self.encoder_length)

    def _encode(self, bars: BarPanel, adjusted: AdjustedBars, covariates: Covariates, sessions: int) -> Encoded:
        location, scale = self.normaliser.measure(self.target.daily(adjusted), sessions)
        observed, mask = self.features.observed(adjusted, covariates.observed)
        last = bars.sessions[-sessions:]
        length = sessions + self.target.reach
        return Encoded(
            observed=observed[:, -sessions:],
            mask=mask[:, -sessions:],
            known=self.known(
                np.concatenate([last, self.following(int(last[-1]))]),
                {name: values[:, -length:] for name, values in covariates.known.items()},
            ),
            static=self.features.statics.encode(len(bars.symbols), covariates.numbers, covariates.categories),
            location=location,
            scale=scale,
        )

    def following(self, session: int) -> NDArray[np.int32]:
        """[D] sessions that the target reaches from this one."""
        return self.calendar.following(session, self.target.reach)

    def known(self, sessions: NDArray[np.int32], covariates: Mapping[str, FloatArray]) -> NDArray[np.float32]:
        """[S or 1, A, K] known features of A sessions, from the calendar and from known covariates [S or 1, A]."""
        return self.features.known(self.calendar.fields(sessions), covariates)

    def target_sessions(self, as_of: int) -> NDArray[np.int32]:
        """[H] session that each horizon ends on."""
        future = self.following(as_of)
        return future[[self.target.lag + h - 1 for h in self.target.horizons]]


def latest_window(encoded: Encoded, encoder_length: int) -> Inputs:
    """The S rows of the last encoder of an encoded panel."""
    symbols, sessions, _ = encoded.observed.shape
    return Inputs(
        observed=torch.from_numpy(np.ascontiguousarray(encoded.observed[:, -encoder_length:])),
        known=torch.from_numpy(encoded.known[:, sessions - encoder_length :]).expand(symbols, -1, -1),
        static=torch.from_numpy(encoded.static),
        mask=torch.from_numpy(np.ascontiguousarray(encoded.mask[:, -encoder_length:])),
        location=torch.from_numpy(np.ascontiguousarray(encoded.location[:, -1])),
        scale=torch.from_numpy(np.ascontiguousarray(encoded.scale[:, -1])),
    )

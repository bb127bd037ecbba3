"""From bars to a network's inputs: the one path that training and serving share.

A pipeline holds everything that this path needs (features with their fitted numbers, target, normaliser, calendar,
lengths) and travels inside the artifact, so that a served forecast reads exactly what the network was trained on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.arrays import FloatArray, PositionArray
from predictor.bars import AdjustedBars, BarPanel
from predictor.catalog import CovariateGroup, CovariateInfo
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.errors import CalendarEndedError, ConfigurationError, TooFewBarsError
from predictor.features import FittedFeatures
from predictor.networks import DailySeries, Inputs, InputSizes, Normaliser, Target, WindowLevels
from predictor.sessions import SessionCalendar

LONGEST_ENCODER: Final = 2500
"""Sessions, ten years: a bound for what an artifact may ask to be built."""
LARGEST_TABLE: Final = 1 << 20
"""Cells, 4 MiB: known features of a longer calendar are computed for each forecast."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedPanel:
    """A panel's inputs over its last sessions. Legend: S symbols, T sessions, D future sessions."""

    observed: NDArray[np.float32]
    """[S, T, F]"""
    mask: NDArray[np.bool_]
    """[S, T, F]"""
    known: NDArray[np.float32]
    """[S, T + D, K], or [1, T + D, K] if it is the same for all symbols."""
    static: NDArray[np.float32]
    """[S, C]"""
    series: DailySeries
    """[S, B] each: the series that levels are measured by, on all B sessions of the bars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarRequirements:
    """What a symbol must have to be forecast."""

    encoder_share: float = 0.5
    """Share of the encoder's sessions, in (0, 1], on which it must have a bar."""
    values: int = 20
    """Known values, such as returns, among those that its level and volatility are measured by."""

    def __post_init__(self) -> None:
        if not (0 < self.encoder_share <= 1 and self.values >= 1):
            raise ConfigurationError(
                f"a symbol must have bars on a share of {self.encoder_share:g} of the encoder's sessions and "
                f"{self.values} values, but the first must be above 0 and at most 1, the second at least 1"
            )


class SymbolHistory(NamedTuple):
    """How much is known about each symbol up to each session."""

    bars: NDArray[np.int32]
    """[S, T] bars among the encoder's sessions."""
    values: NDArray[np.int32]
    """[S, T] known values among those that levels are measured by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRecipe:
    """What decides a network's inputs: pipelines that agree in it make the same inputs from the same bars."""

    schema_hash: str
    target: Target
    normaliser: Normaliser
    calendar: SessionCalendar
    encoder_length: int
    minimum: BarRequirements


def lookback_of(features_lookback: int, levels_window: int, encoder_length: int) -> int:
    """Bars that one row of inputs depends on, the row's own bar included.

    Args:
        features_lookback: bars that the features of one session depend on.
        levels_window: sessions that a window's location and scale are measured by.
        encoder_length: sessions that the network reads.
    """
    return max(features_lookback, levels_window + 1 - (encoder_length - 1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pipeline:
    """Bars to inputs, the same for every door and for training."""

    features: FittedFeatures
    target: Target
    normaliser: Normaliser
    calendar: SessionCalendar
    encoder_length: int = 60
    """Sessions that the network reads."""
    minimum: BarRequirements = field(default_factory=BarRequirements)
    covariates: tuple[CovariateInfo, ...] = field(init=False, repr=False)
    """What a caller has to send beside the bars."""
    sizes: InputSizes = field(init=False, repr=False)
    """How large each group of the network's inputs is."""
    _known_table: NDArray[np.float32] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.encoder_length <= LONGEST_ENCODER:
            raise ConfigurationError(
                f"encoder length is {self.encoder_length} sessions, but must be 1 to {LONGEST_ENCODER}"
            )
        object.__setattr__(self, "covariates", _covariates(self.features))
        object.__setattr__(self, "sizes", _sizes(self.features, self.encoder_length, self.target))
        object.__setattr__(self, "_known_table", _known_table(self.features, self.calendar))

    @property
    def reading(self) -> InputRecipe:
        """What decides its inputs."""
        return InputRecipe(
            schema_hash=self.features.schema_hash,
            target=self.target,
            normaliser=self.normaliser,
            calendar=self.calendar,
            encoder_length=self.encoder_length,
            minimum=self.minimum,
        )

    @property
    def lookback(self) -> int:
        """Bars that one row of inputs depends on, the row's own bar included."""
        return lookback_of(self.features.features.lookback, self.normaliser.window, self.encoder_length)

    @property
    def bars_needed(self) -> int:
        """Bars that one forecast depends on."""
        return self.encoder_length + self.lookback - 1

    @property
    def least_bars(self) -> int:
        """Bars that a symbol must have among the encoder's sessions."""
        return ceil(round(self.minimum.encoder_share * self.encoder_length, 9))  # 0.1 * 30 is a little more than 3

    @property
    def least_values(self) -> int:
        """Known values that a symbol must have among those that its levels are measured by."""
        return min(self.minimum.values, self.normaliser.window)

    def counts(self, present: NDArray[np.bool_], series: DailySeries) -> SymbolHistory:
        """How much is known about each symbol, from its bars [S, T] and the series [S, T] that measure its levels."""
        known = np.isfinite(series[0])
        return SymbolHistory(
            bars=_trailing_count(present, self.encoder_length), values=_trailing_count(known, self.normaliser.window)
        )

    def latest_counts(self, present: NDArray[np.bool_], series: DailySeries) -> SymbolHistory:
        """The same at the last session alone, [S] each."""
        known = np.isfinite(series[0][:, -self.normaliser.window :])
        return SymbolHistory(
            bars=np.add.reduce(present[:, -self.encoder_length :], axis=1, dtype=np.int32),
            values=np.add.reduce(known, axis=1, dtype=np.int32),
        )

    def suffices(self, counts: SymbolHistory) -> NDArray[np.bool_]:
        """[S, T] where a symbol has the minimum of bars and values."""
        return (counts.bars >= self.least_bars) & (counts.values >= self.least_values)

    def levels(self, series: DailySeries, symbols: PositionArray, positions: PositionArray) -> WindowLevels:
        """Location and scale of N windows, float64 [N, H] each; NaN where nothing is known.

        Args:
            series: [S, T] each, as `EncodedPanel.series`.
            symbols: [N] rows.
            positions: [N] last session of each window.
        """
        return self._levels(tuple(back_from(one, symbols, positions, self.normaliser.window) for one in series))

    def latest_levels(self, series: DailySeries) -> WindowLevels:
        """The same of the windows that end on the last session, [S, H] each."""
        return self._levels(tuple(_last_of(one, self.normaliser.window) for one in series))

    def _levels(self, windows: DailySeries) -> WindowLevels:
        levels = self.normaliser.levels(windows)
        shape = (len(windows[0]), len(self.target.horizons))
        return WindowLevels(*(_for_all(part, shape) for part in levels))

    def recent(self, bars: BarPanel) -> BarPanel:
        """The sessions that one forecast depends on; where the panel begins later, those before have no bar.

        Raises:
            TooFewBarsError: the panel is shorter, and the calendar does not know the sessions before it.
        """
        if len(bars.sessions) >= self.bars_needed:
            return bars.last(self.bars_needed)
        return bars.on_sessions(self.recent_sessions(bars.sessions, bars.symbols))

    def recent_sessions(self, sessions: NDArray[np.int32], symbols: Sequence[str]) -> NDArray[np.int32]:
        """[bars_needed] the sessions that one forecast depends on: the last of those given, or more before them.

        Raises:
            TooFewBarsError: as `recent`, naming the symbols.
        """
        lacking = self.bars_needed - len(sessions)
        if lacking <= 0:
            return sessions[-self.bars_needed :]
        try:
            before = self.calendar.preceding(int(sessions[0]), lacking)
        except CalendarEndedError as error:
            names = ", ".join(symbols[:3])
            raise TooFewBarsError.of(
                names, have=len(sessions), need=self.bars_needed, what="sessions", best=self.bars_needed
            ) from error
        return np.concatenate([before, sessions])

    def encode(self, bars: BarPanel, covariates: Covariates = NO_COVARIATES) -> EncodedPanel:
        """The inputs of every session of a whole history, for training.

        Args:
            bars: the history.
            covariates: those beside it; the known ones also for as many following sessions as the target reaches.

        Raises:
            CovariateMissingError: one that the features read is not there.
        """
        axis = np.concatenate([bars.sessions, self.following(int(bars.sessions[-1]))])
        known = self.known(axis, _last_values(covariates.known, len(axis)))
        return self._encoded(bars.adjusted(), covariates, known, len(bars.sessions))

    def encode_latest(self, bars: BarPanel, covariates: Covariates = NO_COVARIATES) -> EncodedPanel:
        """The inputs of the last encoder, from the bars that it depends on and no others.

        Raises:
            TooFewBarsError: as `recent`.
            CovariateMissingError: as `encode`.
        """
        recent = self.recent(bars)
        future = self.following(int(bars.sessions[-1]))
        beside = covariates.on_sessions(bars.sessions, recent.sessions, future)
        known = self.latest_known(recent.sessions, future, beside)
        return self.encode_recent(recent.adjusted(), beside, known)

    def encode_recent(self, adjusted: AdjustedBars, covariates: Covariates, known: NDArray[np.float32]) -> EncodedPanel:
        """The same from the adjusted bars of the sessions that `recent` gives, and what is beside them.

        Args:
            adjusted: S symbols.
            covariates: those beside them.
            known: [S or 1, T + D, K] as `latest_known`.
        """
        return self._encoded(adjusted, covariates, known, self.encoder_length)

    def latest_known(
        self, recent: NDArray[np.int32], future: NDArray[np.int32], covariates: Covariates
    ) -> NDArray[np.float32]:
        """[S or 1, T + D, K] known features of the last encoder's sessions and of those that follow."""
        axis = np.concatenate([recent[-self.encoder_length :], future])
        return self.known(axis, _last_values(covariates.known, len(axis)))

    def _encoded(
        self, adjusted: AdjustedBars, covariates: Covariates, known: NDArray[np.float32], sessions: int
    ) -> EncodedPanel:
        observed, mask = self.features.observed(adjusted, covariates.observed, last=sessions)
        return EncodedPanel(
            observed=observed,
            mask=mask,
            known=known,
            static=self.features.statics.encode(len(observed), covariates.numbers, covariates.categories),
            series=self.normaliser.series(self.target, adjusted),
        )

    def latest_window(self, encoded: EncodedPanel) -> Inputs:
        """The S rows of the last encoder of an encoded panel."""
        symbols, sessions, _ = encoded.observed.shape
        length = self.encoder_length
        location, scale = self.latest_levels(encoded.series)
        return Inputs(
            observed=torch.from_numpy(np.ascontiguousarray(encoded.observed[:, -length:])),
            known=torch.from_numpy(encoded.known[:, sessions - length :]).expand(symbols, -1, -1),
            static=torch.from_numpy(encoded.static),
            mask=torch.from_numpy(np.ascontiguousarray(encoded.mask[:, -length:])),
            location=torch.from_numpy(location),
            scale=torch.from_numpy(scale),
        )

    def following(self, session: int) -> NDArray[np.int32]:
        """[D] sessions that the target reaches from this one."""
        return self.calendar.following(session, self.target.reach)

    def known(self, sessions: NDArray[np.int32], covariates: Mapping[str, FloatArray]) -> NDArray[np.float32]:
        """[S or 1, A, K] known features of A sessions, from the calendar and from known covariates [S or 1, A]."""
        if self._known_table is not None:
            return self._known_table[:, self.calendar.places(sessions)]
        return self.features.known(self.calendar.fields(sessions), covariates)

    def target_sessions(self, as_of: int) -> NDArray[np.int32]:
        """[H] session that each horizon ends on."""
        future = self.following(as_of)
        return future[[self.target.lag + h - 1 for h in self.target.horizons]]

    def base_session(self, as_of: int) -> int:
        """Session that horizons count from: `as_of` itself, or the lag's th session after it."""
        return int(self.following(as_of)[self.target.lag - 1]) if self.target.lag else as_of


def _sizes(features: FittedFeatures, encoder_length: int, target: Target) -> InputSizes:
    return InputSizes(
        encoder_length=encoder_length,
        future_length=target.reach,
        observed=len(features.features.observed),
        known=len(features.known_columns),
        static=sum(features.statics.widths),
        static_widths=features.statics.widths,
    )


def back_from(series: FloatArray, symbols: PositionArray, positions: PositionArray, sessions: int) -> FloatArray:
    """[N, sessions] a daily series [S, T] up to each of N positions; NaN before the first session."""
    places = positions[:, None] + np.arange(1 - sessions, 1)
    rows = series[symbols[:, None], np.maximum(places, 0)]
    rows[places < 0] = np.nan
    return rows


def _last_of(series: FloatArray, sessions: int) -> FloatArray:
    """[S, sessions] the end of a daily series [S, T]; NaN before its first session."""
    lacking = sessions - series.shape[1]
    if lacking <= 0:
        return np.ascontiguousarray(series[:, -sessions:])
    return np.pad(series, ((0, 0), (lacking, 0)), constant_values=np.nan)


def _for_all(levels: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """[N, H] of levels [N, H or 1]."""
    if levels.shape == shape:
        return levels
    spread = np.empty(shape)
    spread[:] = levels
    return spread


def _last_values(covariates: Mapping[str, FloatArray], sessions: int) -> Mapping[str, FloatArray]:
    """The values [S or 1, A] of the last sessions."""
    return {name: values[:, -sessions:] for name, values in covariates.items()}


def _covariates(features: FittedFeatures) -> tuple[CovariateInfo, ...]:
    """As `Pipeline.covariates`."""
    beside, statics = features.features.covariates, features.statics
    return (
        *(CovariateInfo(name=name, group=CovariateGroup.OBSERVED) for name in beside.observed),
        *(CovariateInfo(name=name, group=CovariateGroup.KNOWN) for name in beside.known),
        *(CovariateInfo(name=one.name, group=CovariateGroup.STATIC) for one in statics.numbers),
        *(
            CovariateInfo(name=one.name, group=CovariateGroup.STATIC, categories=one.categories)
            for one in statics.categories
        ),
    )


def _known_table(features: FittedFeatures, calendar: SessionCalendar) -> NDArray[np.float32] | None:
    """[1, A, K] known features of all A sessions of the calendar; None where it alone does not tell them.

    A session's features depend on its date alone, so they need not be computed for each forecast. A calendar on which
    one of them is not finite has no table: whoever asks for such a session is told which it is.
    """
    sessions = calendar.sessions(calendar.first, calendar.last)
    if features.features.covariates.known or len(sessions) * len(features.known_columns) > LARGEST_TABLE:
        return None
    try:
        return features.known(calendar.fields(sessions))
    except ConfigurationError:
        return None


def _trailing_count(known: NDArray[np.bool_], sessions: int) -> NDArray[np.int32]:
    """[S, T] how many of the last so many sessions are known."""
    total = np.cumsum(known, axis=1, dtype=np.int32)
    total[:, sessions:] -= total[:, :-sessions].copy()
    return total

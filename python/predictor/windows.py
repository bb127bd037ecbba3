"""The pipeline from bars to a network's inputs, shared by training and serving.

A pipeline holds the features with their fitted numbers, the target, the normaliser, the calendar and the lengths. It is
part of the artifact, so that a network is served with the same inputs as in training.
"""

from collections.abc import Iterator, Mapping, Sequence
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

MAX_ENCODER: Final = 2500
"""Sessions (ten years); bounds the size of the network that an artifact can demand."""
MAX_TABLE: Final = 1 << 20
"""Cells (4 MiB); for a larger table, known features are computed for each forecast."""


ObservedArrays = tuple[NDArray[np.float32], NDArray[np.bool_]]
"""Scaled observed features and their mask, [S, T, F] each."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedPanel:
    """The network's inputs for a panel: S symbols, T sessions, D future sessions."""

    observed: NDArray[np.float32]
    """[S, T, F]"""
    mask: NDArray[np.bool_]
    """[S, T, F]"""
    known: NDArray[np.float32]
    """[S, T + D, K], or [1, T + D, K] if it is the same for all symbols."""
    static: NDArray[np.float32]
    """[S, C]"""
    series: DailySeries
    """[S, B] each: the series that the levels are computed from, on all B sessions of the bars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarRequirements:
    """The minimum of bars that a symbol needs for a forecast."""

    encoder_share: float = 0.5
    """Share of the encoder's sessions, in (0, 1], on which the symbol must have a bar."""
    values: int = 20
    """Known values, such as returns, that its level and volatility must be computed from."""

    def __post_init__(self) -> None:
        if not (0 < self.encoder_share <= 1 and self.values >= 1):
            raise ConfigurationError(
                f"encoder_share is {self.encoder_share:g} and values is {self.values}, but encoder_share must be above "
                "0 and at most 1, and values at least 1"
            )


class SymbolHistory(NamedTuple):
    """Counts of bars and values of each symbol up to each session."""

    bars: NDArray[np.int32]
    """[S, T] bars in the encoder's sessions."""
    values: NDArray[np.int32]
    """[S, T] known values in the window of the levels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRecipe:
    """The settings that determine a network's inputs: pipelines with equal recipes compute equal inputs."""

    schema_hash: str
    target: Target
    normaliser: Normaliser
    calendar: SessionCalendar
    encoder_length: int
    minimum: BarRequirements


def compute_lookback(features_lookback: int, levels_window: int, encoder_length: int) -> int:
    """Bars that one row of inputs depends on, the row's own bar included.

    Args:
        features_lookback: bars that the features of one session depend on.
        levels_window: sessions that a window's location and scale are computed from.
        encoder_length: sessions that the network reads.
    """
    return max(features_lookback, levels_window + 1 - (encoder_length - 1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pipeline:
    """Computes a network's inputs from bars."""

    features: FittedFeatures
    target: Target
    normaliser: Normaliser
    calendar: SessionCalendar
    encoder_length: int = 60
    """Sessions that the network reads."""
    minimum: BarRequirements = field(default_factory=BarRequirements)
    covariates: tuple[CovariateInfo, ...] = field(init=False, repr=False)
    """Covariates that a request must contain."""
    sizes: InputSizes = field(init=False, repr=False)
    """Size of each group of inputs."""
    _known_table: NDArray[np.float32] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.encoder_length <= MAX_ENCODER:
            raise ConfigurationError(
                f"encoder length is {self.encoder_length} sessions, but must be 1 to {MAX_ENCODER}"
            )
        object.__setattr__(self, "covariates", _list_covariates(self.features))
        sizes = InputSizes(
            encoder_length=self.encoder_length,
            future_length=self.target.reach,
            observed=len(self.features.features.observed),
            known=len(self.features.known_columns),
            static=sum(self.features.statics.widths),
            static_widths=self.features.statics.widths,
        )
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "_known_table", _compute_known_table(self.features, self.calendar))

    @property
    def recipe(self) -> InputRecipe:
        """The settings that determine its inputs."""
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
        return compute_lookback(self.features.features.lookback, self.normaliser.window, self.encoder_length)

    @property
    def bars_needed(self) -> int:
        """Bars that one forecast depends on."""
        return self.encoder_length + self.lookback - 1

    @property
    def least_bars(self) -> int:
        """Bars that a symbol needs in the encoder's sessions."""
        return ceil(round(self.minimum.encoder_share * self.encoder_length, 9))  # 0.1 * 30 is slightly more than 3

    @property
    def least_values(self) -> int:
        """Known values that a symbol needs in the window of the levels."""
        return min(self.minimum.values, self.normaliser.window)

    def counts(self, present: NDArray[np.bool_], series: DailySeries) -> SymbolHistory:
        """Count bars and known values from a mask of bars [S, T] and the series [S, T] that the levels come from."""
        known = np.isfinite(series[0])
        return SymbolHistory(
            bars=_count_trailing(present, self.encoder_length), values=_count_trailing(known, self.normaliser.window)
        )

    def latest_counts(self, present: NDArray[np.bool_], series: DailySeries) -> SymbolHistory:
        """As `counts`, for the last session only, [S] each."""
        known = np.isfinite(series[0][:, -self.normaliser.window :])
        return SymbolHistory(
            bars=np.add.reduce(present[:, -self.encoder_length :], axis=1, dtype=np.int32),
            values=np.add.reduce(known, axis=1, dtype=np.int32),
        )

    def has_enough(self, counts: SymbolHistory) -> NDArray[np.bool_]:
        """Where a symbol has the required bars and values, [S, T]."""
        return (counts.bars >= self.least_bars) & (counts.values >= self.least_values)

    def compute_levels(self, series: DailySeries, symbols: PositionArray, positions: PositionArray) -> WindowLevels:
        """Compute location and scale of N windows, float64 [N, H] each; NaN without known values.

        Args:
            series: [S, T] each, as `EncodedPanel.series`.
            symbols: [N] row of each window's symbol.
            positions: [N] last session of each window.
        """
        length = self.normaliser.window
        return self._spread_levels(
            tuple(extract_trailing_windows(values, symbols, positions, length) for values in series)
        )

    def compute_latest_levels(self, series: DailySeries) -> WindowLevels:
        """As `compute_levels`, for the windows that end on the last session, [S, H] each."""
        return self._spread_levels(tuple(_take_last(values, self.normaliser.window) for values in series))

    def _spread_levels(self, windows: DailySeries) -> WindowLevels:
        """Compute the levels of windows [N, W], and repeat those that all horizons share."""
        shape = (len(windows[0]), len(self.target.horizons))
        return WindowLevels(*(_spread(part, shape) for part in self.normaliser.compute_levels(windows)))

    def recent(self, bars: BarPanel) -> BarPanel:
        """Restrict or extend a panel to the sessions that one forecast depends on; added sessions have no bars.

        Raises:
            TooFewBarsError: the panel is too short, and the calendar does not reach back far enough.
        """
        if len(bars.sessions) >= self.bars_needed:
            return bars.last(self.bars_needed)
        return bars.on_sessions(self.recent_sessions(bars.sessions, bars.symbols))

    def recent_sessions(self, sessions: NDArray[np.int32], symbols: Sequence[str]) -> NDArray[np.int32]:
        """The sessions [bars_needed] that one forecast depends on: the last of `sessions`, preceded by earlier ones.

        Raises:
            TooFewBarsError: as `recent`; the message names the symbols.
        """
        lacking = self.bars_needed - len(sessions)
        if lacking <= 0:
            return sessions[-self.bars_needed :]
        try:
            before = self.calendar.preceding(int(sessions[0]), lacking)
        except CalendarEndedError as error:
            names = ", ".join(symbols[:3])
            raise TooFewBarsError.of(
                names, have=len(sessions), need=self.bars_needed, unit="sessions", best=self.bars_needed
            ) from error
        return np.concatenate([before, sessions])

    def encode(
        self,
        bars: BarPanel,
        covariates: Covariates = NO_COVARIATES,
        *,
        observed: ObservedArrays | None = None,
        series: DailySeries | None = None,
    ) -> EncodedPanel:
        """Compute the inputs of every session of a history, for training.

        Args:
            bars: the history.
            covariates: its covariates; known ones also cover the following sessions that the target reaches.
            observed: the arrays of `observed_blocks` if they are known; None computes them.
            series: the normaliser's series if they are known; None computes them.

        Raises:
            CovariateMissingError: a covariate that the features read is missing.
        """
        axis = np.concatenate([bars.sessions, self.following(int(bars.sessions[-1]))])
        if series is None:
            blocks = [self.normaliser.series(self.target, part) for _, part in bars.adjusted_blocks()]
            series = tuple(map(np.concatenate, zip(*blocks, strict=True)))
        if observed is None:
            shape = (*bars.close.shape, len(self.features.features.observed))
            observed = np.empty(shape, np.float32), np.empty(shape, np.bool_)
            first = 0
            for values, mask in self.observed_blocks(bars, covariates):
                rows = slice(first, first + len(values))
                observed[0][rows], observed[1][rows] = values, mask
                first = rows.stop
        return EncodedPanel(
            observed=observed[0],
            mask=observed[1],
            known=self.known(axis, _take_last_values(covariates.known, len(axis))),
            static=self.features.statics.encode(len(bars.symbols), covariates.numbers, covariates.categories),
            series=series,
        )

    def observed_blocks(self, bars: BarPanel, covariates: Covariates = NO_COVARIATES) -> Iterator[ObservedArrays]:
        """Compute the observed features of every session of a history, a few symbols at a time.

        Raises:
            CovariateMissingError: a covariate that the features read is missing.
        """
        for rows, part in bars.adjusted_blocks():
            yield self.features.observed(part, {name: values[rows] for name, values in covariates.observed.items()})

    def encode_latest(self, bars: BarPanel, covariates: Covariates = NO_COVARIATES) -> EncodedPanel:
        """Compute the inputs of the last encoder, from only the bars that it depends on.

        Raises:
            TooFewBarsError: as `recent`.
            CovariateMissingError: as `encode`.
        """
        recent = self.recent(bars)
        future = self.following(int(bars.sessions[-1]))
        aligned = covariates.on_sessions(bars.sessions, recent.sessions, future)
        known = self.latest_known(recent.sessions, future, aligned)
        return self.encode_recent(recent.adjusted(), aligned, known)

    def encode_recent(self, adjusted: AdjustedBars, covariates: Covariates, known: NDArray[np.float32]) -> EncodedPanel:
        """As `encode_latest`, from bars that are already adjusted.

        Args:
            adjusted: the bars of S symbols on the sessions of `recent`.
            covariates: covariates on the same sessions.
            known: [S or 1, T + D, K] from `latest_known`.
        """
        return self._encode(adjusted, covariates, known, self.encoder_length)

    def latest_known(
        self, recent: NDArray[np.int32], future: NDArray[np.int32], covariates: Covariates
    ) -> NDArray[np.float32]:
        """Compute the known features [S or 1, T + D, K] of the last encoder's sessions and the future ones."""
        axis = np.concatenate([recent[-self.encoder_length :], future])
        return self.known(axis, _take_last_values(covariates.known, len(axis)))

    def _encode(
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
        """Convert the last encoder's sessions of an encoded panel to a batch of S rows."""
        symbols, sessions, _ = encoded.observed.shape
        length = self.encoder_length
        location, scale = self.compute_latest_levels(encoded.series)
        return Inputs(
            observed=torch.from_numpy(np.ascontiguousarray(encoded.observed[:, -length:])),
            known=torch.from_numpy(encoded.known[:, sessions - length :]).expand(symbols, -1, -1),
            static=torch.from_numpy(encoded.static),
            mask=torch.from_numpy(np.ascontiguousarray(encoded.mask[:, -length:])),
            location=torch.from_numpy(location),
            scale=torch.from_numpy(scale),
        )

    def following(self, session: int) -> NDArray[np.int32]:
        """The D sessions after `session` that the target reaches."""
        return self.calendar.following(session, self.target.reach)

    def known(self, sessions: NDArray[np.int32], covariates: Mapping[str, FloatArray]) -> NDArray[np.float32]:
        """Compute known features [S or 1, A, K] of A sessions, from the calendar and known covariates [S or 1, A]."""
        if self._known_table is not None:
            return self._known_table[:, self.calendar.places(sessions)]
        return self.features.known(self.calendar.fields(sessions), covariates)

    def target_sessions(self, as_of: int) -> NDArray[np.int32]:
        """The session that each of H horizons ends on."""
        future = self.following(as_of)
        return future[[self.target.lag + h - 1 for h in self.target.horizons]]

    def base_session(self, as_of: int) -> int:
        """The session that horizons count from: `as_of`, or the session `lag` sessions after it."""
        return int(self.following(as_of)[self.target.lag - 1]) if self.target.lag else as_of


def extract_trailing_windows(
    series: FloatArray, symbols: PositionArray, positions: PositionArray, sessions: int
) -> FloatArray:
    """The last `sessions` values [N, sessions] of a series [S, T] up to N positions; NaN before its first session."""
    places = positions[:, None] + np.arange(1 - sessions, 1)
    rows = series[symbols[:, None], np.maximum(places, 0)]
    rows[places < 0] = np.nan
    return rows


def _take_last(series: FloatArray, sessions: int) -> FloatArray:
    """The last `sessions` values [S, sessions] of a series [S, T]; NaN before its first session."""
    lacking = sessions - series.shape[1]
    if lacking <= 0:
        return np.ascontiguousarray(series[:, -sessions:])
    return np.pad(series, ((0, 0), (lacking, 0)), constant_values=np.nan)


def _spread(levels: FloatArray, shape: tuple[int, int]) -> FloatArray:
    if levels.shape == shape:
        return levels
    spread = np.empty(shape)
    spread[:] = levels
    return spread


def _take_last_values(covariates: Mapping[str, FloatArray], sessions: int) -> Mapping[str, FloatArray]:
    return {name: values[:, -sessions:] for name, values in covariates.items()}


def _list_covariates(features: FittedFeatures) -> tuple[CovariateInfo, ...]:
    series, statics = features.features.covariates, features.statics
    return (
        *(CovariateInfo(name=name, group=CovariateGroup.OBSERVED) for name in series.observed),
        *(CovariateInfo(name=name, group=CovariateGroup.KNOWN) for name in series.known),
        *(CovariateInfo(name=number.name, group=CovariateGroup.STATIC) for number in statics.numbers),
        *(
            CovariateInfo(name=category.name, group=CovariateGroup.STATIC, categories=category.categories)
            for category in statics.categories
        ),
    )


def _compute_known_table(features: FittedFeatures, calendar: SessionCalendar) -> NDArray[np.float32] | None:
    """Precompute the known features [1, A, K] of all A sessions of the calendar.

    None if they also depend on known covariates, if the table would be too large, or if one value is not finite. In
    the last case a forecast that needs such a session raises an error that names it.
    """
    sessions = calendar.sessions(calendar.first, calendar.last)
    if features.features.covariates.known or len(sessions) * len(features.known_columns) > MAX_TABLE:
        return None
    try:
        return features.known(calendar.fields(sessions))
    except ConfigurationError:
        return None


def _count_trailing(known: NDArray[np.bool_], sessions: int) -> NDArray[np.int32]:
    """Count the known values in the last `sessions` sessions up to each, [S, T]."""
    total = np.cumsum(known, axis=1, dtype=np.int32)
    total[:, sessions:] -= total[:, :-sessions].copy()
    return total

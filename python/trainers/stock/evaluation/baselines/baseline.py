"""Baselines: estimators that are fitted on a part of the history and forecast any windows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Self

import numpy as np
import torch

from predictor.arrays import BoolArray, FloatArray
from predictor.errors import ConfigurationError
from predictor.networks import Target, TargetKind, find_anchor_index, remove_crossings
from predictor.windows import extract_trailing_windows
from trainers.stock.data import WINDOWS_PER_BATCH, History, TrainingWindows
from trainers.stock.evaluation.evaluation_set import ForecastUnits, units_of
from trainers.stock.network_forecasts import calibrate, join_parts
from trainers.stock.splits import DataSplits, SplitPart


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredWindows:
    """N windows with their units, which are computed once because that is slow."""

    windows: TrainingWindows
    units: ForecastUnits

    @classmethod
    def of(cls, history: History, windows: TrainingWindows) -> Self:
        """Compute the units of windows of a history."""
        return cls(windows=windows, units=units_of(history, windows))

    def __len__(self) -> int:
        return len(self.windows)

    def in_blocks(self, compute: "Callable[[MeasuredWindows], FloatArray]") -> FloatArray:
        """[N, …] result of a function of windows, computed in blocks."""
        parts = (
            compute(MeasuredWindows(windows=block, units=self.units.rows(rows)))
            for rows, block in self.windows.blocks(WINDOWS_PER_BATCH)
        )
        return join_parts(map(torch.from_numpy, parts), len(self)).numpy()


def in_blocks(windows: TrainingWindows, compute: Callable[[TrainingWindows], FloatArray]) -> FloatArray:
    """[N, …] result of a function of windows without units, computed in blocks."""
    return join_parts(
        (torch.from_numpy(compute(block)) for _, block in windows.blocks(WINDOWS_PER_BATCH)), len(windows)
    ).numpy()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BaselineSample:
    """The windows of one part of the history, on which a baseline is fitted.

    Raises:
        ConfigurationError: The part has no window, or no known outcome of a horizon.
    """

    history: History
    """Inputs and labels."""
    part: SplitPart
    levels: tuple[float, ...]
    """[Q] quantiles that are forecast."""
    windows: TrainingWindows = field(init=False)
    """Windows whose targets are inside the part."""
    mask: BoolArray = field(init=False)
    """[S, T] mask of these windows."""

    def __post_init__(self) -> None:
        windows = self.history.windows(self.part)
        mask = np.zeros(self.history.labels.shape[:2], np.bool_)
        mask[windows.symbols, windows.positions] = True
        object.__setattr__(self, "windows", windows)
        object.__setattr__(self, "mask", mask)
        for h, horizon in enumerate(self.target.horizons):
            if not np.isfinite(self.history.labels[mask, h]).any():
                raise ConfigurationError(
                    f"no outcome {horizon} sessions ahead is known from {self.part.first} to {self.part.last}, where "
                    "the baselines are fitted; give more bars"
                )

    @property
    def target(self) -> Target:
        """The forecast quantity."""
        return self.history.pipeline.target

    def at_most(self, count: int) -> TrainingWindows:
        """At most `count` evenly spaced windows, which bounds time and memory of a fit."""
        return self.windows.subsample(count)


def recent(history: History, windows: TrainingWindows, sessions: int) -> FloatArray:
    """[N, sessions] the target's daily series up to each window's day; NaN where unknown or before the first bar."""
    return extract_trailing_windows(history.daily, windows.symbols, windows.positions, sessions)


class NoForecastError(Exception):
    """A baseline cannot be fitted or lacks forecasts of some windows; it is left out with a note."""


class FitScope(StrEnum):
    """How a baseline is fitted."""

    UNCALIBRATED = "uncalibrated"
    """Not calibrated; for baselines without a fit."""
    CALIBRATED = "calibrated"
    """Fitted on the training split, with conformal offsets of the calibration split, like the model."""
    REFITTED = "refitted"
    """Fitted on training, selection and calibration split, without offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedSymbols:
    """Symbols on which a baseline could not be fitted."""

    by: str
    """Name of the baseline whose forecasts they use."""
    why: Mapping[int, str]
    """The reason, by row of the panel."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedBaseline:
    """A fitted baseline."""

    quantiles: Callable[[MeasuredWindows], FloatArray]
    """Quantiles [n, H, Q] in the target's unit for n windows, from data known on the day of each."""
    replaced: ReplacedSymbols | None = None

    def forecasts(self, measured_windows: MeasuredWindows) -> FloatArray:
        """[N, H, Q] quantiles, computed in blocks of windows.

        Raises:
            NoForecastError: Some windows have no forecast, so scores would not be comparable.
        """
        quantiles = measured_windows.in_blocks(self.quantiles)
        lost = int((~np.isfinite(quantiles).all(axis=(1, 2))).sum())
        if lost:
            raise NoForecastError(f"it has no forecast for {lost} of {len(measured_windows)} windows")
        return quantiles


Estimator = Callable[[BaselineSample], FittedBaseline]
"""Fits a baseline.

Raises:
    NoForecastError: It cannot be fitted on this sample.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineModel:
    """A forecast without a network."""

    name: str
    estimator: Estimator
    fits: tuple[FitScope, ...] = (FitScope.CALIBRATED, FitScope.REFITTED)
    """How it is fitted for comparisons with a model."""
    kinds: tuple[TargetKind, ...] = tuple(TargetKind)
    """Targets that it can forecast."""
    package: str = ""
    """Package of the extra `baselines` that it requires, by its name on PyPI."""
    module: str = ""
    """Module of the package, if it has another name."""
    max_quick_symbols: float = inf
    """With more symbols, the fit takes too long for the scores at the end of a training run."""

    def named(self, fit: FitScope) -> str:
        """Name of its row of scores."""
        return self.name if fit is FitScope.UNCALIBRATED else f"{self.name}, {fit}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InformationSet:
    """The data that a model has seen, and its baselines may use."""

    history: History
    """Inputs and labels."""
    train: SplitPart
    calibration: MeasuredWindows
    """The windows of the calibration split."""
    seen_part: SplitPart
    """Training, selection and calibration split as one, with the windows whose targets straddle two of them."""
    levels: tuple[float, ...]
    """[Q] quantiles that are forecast."""

    @classmethod
    def of(cls, history: History, splits: DataSplits, seen_until: int, levels: tuple[float, ...]) -> Self:
        """The information of a model with these splits.

        `seen_until` is the last session, yyyymmdd, of any label that the model or a member has seen.
        """
        return cls(
            history=history,
            train=splits.train,
            calibration=MeasuredWindows.of(history, history.windows(splits.calibration)),
            seen_part=SplitPart("seen", splits.train.first, seen_until),
            levels=levels,
        )

    def fitted(self, baseline: BaselineModel, fit: FitScope) -> FittedBaseline:
        """Fit a baseline.

        Raises:
            NoForecastError: It cannot be fitted.
            ConfigurationError: A part has no window, or no known outcome of a horizon.
        """
        part = self.seen_part if fit is FitScope.REFITTED else self.train
        fitted = baseline.estimator(BaselineSample(history=self.history, part=part, levels=self.levels))
        return self._calibrate(fitted) if fit is FitScope.CALIBRATED else fitted

    def _calibrate(self, plain: FittedBaseline) -> FittedBaseline:
        """Add conformal offsets [H, Q] in units of the window."""
        windows, units = self.calibration.windows, self.calibration.units
        conformal = calibrate(
            units.normalise(plain.forecasts(self.calibration)),
            units.normalise(self.history.outcomes(windows)[..., None])[..., 0],
            self.levels,
            sessions=len(np.unique(windows.positions)),
            horizons=self.history.pipeline.target.horizons,
        )
        offsets, anchor = np.array(conformal.offsets), find_anchor_index(self.levels)

        def quantiles(measured_windows: MeasuredWindows) -> FloatArray:
            calibrated = torch.from_numpy(measured_windows.units.normalise(plain.quantiles(measured_windows)) + offsets)
            return measured_windows.units.restore(remove_crossings(calibrated, anchor).numpy())

        return FittedBaseline(quantiles=quantiles, replaced=plain.replaced)

"""What a baseline is: it is fitted on a sample of what a model has seen, and then asked about any windows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Self, assert_never

import numpy as np
import torch

from predictor.arrays import BoolArray, FloatArray
from predictor.errors import ConfigurationError
from predictor.networks import Target, TargetKind, anchor_index, uncrossed
from predictor.windows import back_from
from trainers.stock.conformal import calibrate
from trainers.stock.data import ROWS, History, Windows
from trainers.stock.evaluation.forecasts import Units, units_of
from trainers.stock.forecasting import joined
from trainers.stock.splits import Part, Splits


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredWindows:
    """N windows with their units, which are measured once for all who need them: that takes longer than most else."""

    windows: Windows
    units: Units

    @classmethod
    def of(cls, history: History, windows: Windows) -> Self:
        """These windows of a history."""
        return cls(windows=windows, units=units_of(history, windows))

    def __len__(self) -> int:
        return len(self.windows)

    def in_blocks(self, compute: "Callable[[MeasuredWindows], FloatArray]") -> FloatArray:
        """[N, …] what is computed of so many windows, a bounded number of them at a time."""
        parts = (
            compute(MeasuredWindows(windows=few, units=self.units.rows(rows)))
            for rows, few in self.windows.blocks(ROWS)
        )
        return joined(map(torch.from_numpy, parts), len(self)).numpy()


def in_blocks(windows: Windows, compute: Callable[[Windows], FloatArray]) -> FloatArray:
    """[N, …] the same of windows whose units nobody needs."""
    return joined((torch.from_numpy(compute(few)) for _, few in windows.blocks(ROWS)), len(windows)).numpy()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """The windows of one part of history: no fitted number may come from elsewhere.

    Raises:
        ConfigurationError: the part holds no window, or knows no outcome of a horizon.
    """

    history: History
    """Inputs and labels."""
    part: Part
    levels: tuple[float, ...]
    """[Q] quantiles that are forecast."""
    windows: Windows = field(init=False)
    """Those whose targets lie inside the part."""
    learnt: BoolArray = field(init=False)
    """[S, T] where these windows are."""

    def __post_init__(self) -> None:
        windows = self.history.windows(self.part)
        learnt = np.zeros(self.history.labels.shape[:2], np.bool_)
        learnt[windows.symbols, windows.positions] = True
        object.__setattr__(self, "windows", windows)
        object.__setattr__(self, "learnt", learnt)
        for h, horizon in enumerate(self.target.horizons):
            if not np.isfinite(self.history.labels[learnt, h]).any():
                raise ConfigurationError(
                    f"no outcome {horizon} sessions ahead is known from {self.part.first} to {self.part.last}, where "
                    "the baselines are fitted; give more bars"
                )

    @property
    def target(self) -> Target:
        """What is forecast."""
        return self.history.pipeline.target

    def at_most(self, count: int) -> Windows:
        """The windows, or evenly spaced ones where there are more; bounds the time and memory of a fit."""
        return self.windows.thinned(count)


def recent(history: History, windows: Windows, sessions: int) -> FloatArray:
    """[N, sessions] the target's daily series up to each window's day; NaN where unknown or before the first bar."""
    return back_from(history.daily, windows.symbols, windows.positions, sessions)


class NoForecastError(Exception):
    """A baseline that cannot be fitted or leaves windows out, and why; it is left out, and a note says so."""


class Fit(StrEnum):
    """What of a model's information a baseline was given."""

    AS_IS = "as it is"
    """It is not moved; for what needs no fit."""
    CALIBRATED = "calibrated"
    """Fitted on the training part, then moved on the calibration part, as the model's quantiles are."""
    REFITTED = "refitted"
    """Fitted on all that the model has seen: training, selection and calibration part. Not moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Symbols that a baseline could not be fitted on."""

    by: str
    """Name of the baseline whose forecasts they have instead."""
    why: Mapping[int, str]
    """Of each, by its row of the panel."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedBaseline:
    """A fitted baseline."""

    quantiles: Callable[[MeasuredWindows], FloatArray]
    """[n, H, Q] in the target's unit for a block of n windows, from what was known on the day of each."""
    replaced: Replaced | None = None

    def forecasts(self, asked: MeasuredWindows) -> FloatArray:
        """[N, H, Q] a bounded number of windows at a time.

        Raises:
            NoForecastError: some windows have none; scores on the others would not compare.
        """
        quantiles = asked.in_blocks(self.quantiles)
        lost = int((~np.isfinite(quantiles).all(axis=(1, 2))).sum())
        if lost:
            raise NoForecastError(f"it has no forecast for {lost} of {len(asked)} windows")
        return quantiles


Estimator = Callable[[Sample], FittedBaseline]
"""Fits a baseline.

Raises:
    NoForecastError: it cannot be fitted on this sample.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package of the extra `baselines`."""

    name: str
    """As it is installed."""
    module: str
    """As it is imported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineModel:
    """A forecast that needs no network."""

    name: str
    estimator: Estimator
    fits: tuple[Fit, ...] = (Fit.CALIBRATED, Fit.REFITTED)
    """In which ways it is compared with a model."""
    kinds: tuple[TargetKind, ...] = tuple(TargetKind)
    """What it can forecast."""
    package: Package | None = None
    """What it needs."""
    most_quick_symbols: float = inf
    """With more symbols its fit takes longer than a few seconds, and a training is not scored against it."""

    def named(self, fit: Fit) -> str:
        """What its row of scores is called."""
        return self.name if fit is Fit.AS_IS else f"{self.name}, {fit}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InformationSet:
    """What a model has seen of a history, which its baselines may therefore see too."""

    history: History
    """Inputs and labels."""
    train: Part
    calibration: MeasuredWindows
    """The windows of the calibration part."""
    seen: Part
    """Training, selection and calibration part as one, with the windows whose targets straddle two of them."""
    levels: tuple[float, ...]
    """[Q] quantiles that are forecast."""

    @classmethod
    def of(cls, history: History, splits: Splits, seen_until: int, levels: tuple[float, ...]) -> Self:
        """The information of a model that was made from these parts.

        Args:
            history: inputs and labels.
            splits: of a model, or those that an ensemble's members share.
            seen_until: the last session, yyyymmdd, that a label touched which the model or any member has seen.
            levels: [Q]
        """
        return cls(
            history=history,
            train=splits.train,
            calibration=MeasuredWindows.of(history, history.windows(splits.calibration)),
            seen=Part("seen", splits.train.first, seen_until),
            levels=levels,
        )

    def fitted(self, baseline: BaselineModel, fit: Fit) -> FittedBaseline:
        """A baseline, fitted in one of the ways in which it is compared with the model.

        Raises:
            NoForecastError: it cannot be fitted.
            ConfigurationError: a part holds no window, or knows no outcome of a horizon.
        """
        match fit:
            case Fit.AS_IS:
                return baseline.estimator(self._sample(self.train))
            case Fit.CALIBRATED:
                return self._moved(baseline.estimator(self._sample(self.train)))
            case Fit.REFITTED:
                return baseline.estimator(self._sample(self.seen))
            case _:
                assert_never(fit)

    def _sample(self, part: Part) -> Sample:
        return Sample(history=self.history, part=part, levels=self.levels)

    def _moved(self, plain: FittedBaseline) -> FittedBaseline:
        """The same quantiles, each moved as a model's are: by one offset per horizon, in units of the window."""
        offsets = self._offsets(plain)
        anchor = anchor_index(self.levels)

        def quantiles(asked: MeasuredWindows) -> FloatArray:
            moved = torch.from_numpy(asked.units.normalise(plain.quantiles(asked)) + offsets)
            return asked.units.restore(uncrossed(moved, anchor).numpy())

        return FittedBaseline(quantiles=quantiles, replaced=plain.replaced)

    def _offsets(self, plain: FittedBaseline) -> FloatArray:
        """[H, Q] in units of the window."""
        windows, units = self.calibration.windows, self.calibration.units
        conformal = calibrate(
            units.normalise(plain.forecasts(self.calibration)),
            units.normalise(self.history.outcomes(windows)[..., None])[..., 0],
            self.levels,
            sessions=len(np.unique(windows.positions)),
            horizons=self.history.pipeline.target.horizons,
        )
        return np.array(conformal.offsets)

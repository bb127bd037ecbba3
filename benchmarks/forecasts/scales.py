"""Units of our forecasts: those of each window, or those of HAR if daily ranges are known.

HAR is as in `--scale har`: fitted on the training part, and computed from the window's long-run level over 139 steps.
"""

from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecasts.task import LEVELS, Task, Windows
from predictor.networks import TargetKind, WindowLevels, WindowNormaliser
from predictor.networks.econometric import TAPS
from predictor.windows import extract_trailing_windows
from trainers.stock.scale import ScaleSample, fit_normaliser

Array = NDArray[np.float64]

RETURNS: Final = "ret"
"""The task whose target is a daily return."""
SERIES_AT_ONCE: Final = 16
"""Series whose windows are in memory at the same time."""
SMALLEST: Final = 0.1
"""Smallest scale of a window, as a share of the median over the training part."""


def window_levels(task: Task) -> tuple[Array, Array]:
    """Location and scale [S, T] of the window that ends at each step.

    Returns have the location 0 and a volatility that weights recent sessions most, as shipped. No scale is below a
    tenth of the median, so that nearly constant windows do not outweigh all others.
    """
    values = task.target.astype(np.float64)
    returns = WindowNormaliser(window=task.encoder)
    normaliser = returns if task.name == RETURNS else replace(returns, decay=1.0, centred=True)
    _, scale = daily_levels(normaliser, values)
    usual = float(np.median(scale[:, : task.learnt]))
    return daily_levels(replace(normaliser, floor=max(normaliser.floor, SMALLEST * usual)), values)


def daily_levels(normaliser: WindowNormaliser, daily: Array) -> tuple[Array, Array]:
    """Location and scale [S, T] of the window that ends at each step of daily values [S, T]."""
    parts = [
        _levels(normaliser, daily[first : first + SERIES_AT_ONCE]) for first in range(0, len(daily), SERIES_AT_ONCE)
    ]
    locations, scales = zip(*parts, strict=True)
    return np.concatenate(locations), np.concatenate(scales)


def _levels(normaliser: WindowNormaliser, daily: Array) -> tuple[Array, Array]:
    series, steps = (index.ravel() for index in np.indices(daily.shape))
    location, scale = normaliser.compute_levels((extract_trailing_windows(daily, series, steps, normaliser.window),))
    return location.reshape(daily.shape), scale.reshape(daily.shape)


def forecast_levels(task: Task, asked: Windows) -> WindowLevels:
    """Location and scale [N, H] of the units of these windows' forecasts, in the task's standardised unit."""
    if task.ranges.shape[1]:
        return har_levels(task, task.windows("train"), asked)
    location, scale = (level[asked.series, asked.decisions, None] for level in window_levels(task))
    return WindowLevels(*(np.repeat(level, task.horizon, axis=1) for level in (location, scale)))


def har_levels(task: Task, learnt: Windows, asked: Windows) -> WindowLevels:
    """Location and scale [N, H] of windows by HAR fitted on other windows, in the task's standardised unit."""
    return _Raw.of(task).compute_levels(learnt, asked)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Raw:
    """A task before standardisation."""

    task: Task
    target: Array
    """[S, T] daily log returns, or the log of the daily range volatility."""

    @classmethod
    def of(cls, task: Task) -> "_Raw":
        target = task.target.astype(np.float64) * task.unit[:, None] + task.center[:, None]
        return cls(task=task, target=target)

    def compute_levels(self, learnt: Windows, asked: Windows) -> WindowLevels:
        """Levels of `asked` by a normaliser fitted on `learnt`."""
        task = self.task
        location, scale = fit_normaliser(self._learnt(learnt), "har").compute_levels(self._series(asked))
        unit, center = task.unit[asked.series, None], task.center[asked.series, None]
        return WindowLevels(location=(location - center) / unit, scale=np.broadcast_to(scale, location.shape) / unit)

    def _series(self, windows: Windows) -> tuple[Array, ...]:
        """[N, W] each: returns and ranges, or ranges only."""
        series = (self.target, self.task.ranges) if self.task.name == RETURNS else (self.task.ranges,)
        return tuple(extract_trailing_windows(one, windows.series, windows.decisions, TAPS) for one in series)

    def _learnt(self, windows: Windows) -> ScaleSample:
        """The windows with their outcomes; each step of the horizon is a separate target."""
        task = self.task
        steps = windows.decisions[:, None] + np.arange(1, task.horizon + 1)
        outcomes = self.target[windows.series[:, None], steps]
        return ScaleSample(
            kind=TargetKind.LOG_RETURN if task.name == RETURNS else TargetKind.LOG_VOLATILITY,
            windows=self._series(windows),
            outcomes=outcomes,
            volatility=np.log(task.ranges[windows.series[:, None], steps]),
            following=outcomes[:, 0],
            steps=tuple((step, step) for step in range(1, task.horizon + 1)),
            spread=np.ones(task.horizon),
            levels=LEVELS,
        )

"""What a baseline is fitted on."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from predictor.errors import ConfigurationError
from predictor.networks import Target
from predictor.windows import back_from
from trainers.stock.data import History, Windows
from trainers.stock.splits import Part

FloatArray = NDArray[np.float64]


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
    learnt: NDArray[np.bool_] = field(init=False)
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

"""The unit that the quantiles of windows are moved in: the one place that knows how a value is told in it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainers.stock.data import History, Windows

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Units:
    """Where N windows are told from, and in what: that of the network's output and of its conformal offsets."""

    location: FloatArray
    """[N, H, 1] each window's level at each horizon."""
    scale: FloatArray
    """[N, H, 1] its volatility over each horizon."""

    def rows(self, chosen: slice) -> "Units":
        """Those of some of the windows."""
        return Units(location=self.location[chosen], scale=self.scale[chosen])

    def told(self, values: FloatArray) -> FloatArray:
        """Values [N, H, Q] of the target in these units."""
        return (values - self.location) / self.scale

    def values(self, told: FloatArray) -> FloatArray:
        """The way back, [N, H, Q]."""
        return self.location + self.scale * told


def units_of(history: History, windows: Windows) -> Units:
    """The units of these windows."""
    location, scale = (level.numpy() for level in history.level(windows))
    return Units(location=location[..., None], scale=(scale * history.pipeline.target.spread)[..., None])

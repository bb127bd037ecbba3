"""The numbers that bring features to a common size, fitted on training rows and carried by the artifact."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.errors import ConfigurationError

NORMAL_QUARTILE_RANGE: Final = 1.3489795003921634
"""Distance between the quartiles of a standard normal distribution: with it the scale of normal data is their std."""

DEFAULT_CLIP: Final = 8.0
FEWEST_ROWS: Final = 20


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scaling:
    """Fitted numbers: a scaled value is (x - center) / scale, clipped to [-clip, clip].

    Attributes:
        center: float64 [F], finite.
        scale: float64 [F], finite and positive.
        clip: Positive; how many scales a value may lie from its center.
    """

    center: FloatArray
    scale: FloatArray
    clip: float = DEFAULT_CLIP

    def __post_init__(self) -> None:
        """Copy, lock and check."""
        for name in ("center", "scale"):
            values = np.array(getattr(self, name), dtype=np.float64)
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        if self.center.ndim != 1 or self.center.shape != self.scale.shape:
            shapes = f"{list(self.center.shape)} and {list(self.scale.shape)}"
            raise ConfigurationError(f"center and scale must both have shape [F], but have {shapes}")
        if not np.isfinite(self.center).all():
            raise ConfigurationError(f"every center must be finite, but they are {self.center.tolist()}")
        if not (np.isfinite(self.scale) & (self.scale > 0)).all():
            raise ConfigurationError(f"every scale must be finite and positive, but they are {self.scale.tolist()}")
        if not 0 < self.clip < np.inf:
            raise ConfigurationError(f"clip must be finite and positive, but is {self.clip}")

    @classmethod
    def fit(
        cls,
        columns: Iterable[FloatArray],
        *,
        names: Sequence[str],
        present: NDArray[np.bool_] | None = None,
        clip: float = DEFAULT_CLIP,
        sparse: Collection[str] = (),
    ) -> Self:
        """Median as center and the distance of the quartiles as scale: crashes and data errors do not move them.

        Quartiles are interpolated linearly between the two nearest values.

        Args:
            columns: For each feature, float64 [S, T] of the training rows only; non-finite values are left out. They
                may come one by one, so that a long history need not be held with all its features.
            names: F feature names, for messages.
            present: Bars that count, [S, T]; all of them if None.
            clip: How many scales a value may lie from its center.
            sparse: Names of features that may be one value most of the time, such as an indicator of rare days: where
                the quartiles of one are equal, its scale is the standard deviation.

        Raises:
            ConfigurationError: Naming a feature with fewer than 20 finite values, or that hardly varies: its quartiles
                are equal, or all of its values where it may be sparse.
        """
        fitted = [
            _fit_one(name, column if present is None else column[present], sparse=name in sparse)
            for name, column in zip(names, columns, strict=True)
        ]
        numbers = np.array(fitted).reshape(-1, 2)
        return cls(center=numbers[:, 0], scale=numbers[:, 1], clip=clip)

    def apply(self, values: FloatArray) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Scale in float64, then round once.

        This is the one place where a value that is not finite becomes 0 and masked.

        Args:
            values: float64 [N, F], or with more dimensions before the last.

        Returns:
            The scaled values as float32 and the mask, True where the value is known; both in the shape of `values`.
        """
        mask = np.isfinite(values)
        with np.errstate(all="ignore"):
            scaled = values - self.center
            scaled /= self.scale
            np.maximum(scaled, -self.clip, out=scaled)
            np.minimum(scaled, self.clip, out=scaled)
        np.copyto(scaled, 0.0, where=~mask)
        return scaled.astype(np.float32), mask


def _fit_one(name: str, column: FloatArray, *, sparse: bool) -> tuple[float, float]:
    finite = column[np.isfinite(column)]
    if finite.size < FEWEST_ROWS:
        raise ConfigurationError(
            f"feature {name} has {finite.size} finite values in the training rows, but needs {FEWEST_ROWS}; "
            "give more bars or leave the feature out"
        )
    low, middle, high = np.quantile(finite, (0.25, 0.5, 0.75))
    scale = float(high - low) / NORMAL_QUARTILE_RANGE
    if scale == 0 and sparse:
        scale = float(np.std(finite))
    if not 0 < scale < np.inf:
        raise ConfigurationError(
            f"feature {name} hardly varies in the training rows: its quartiles are {low:g} and {high:g}; leave it out "
            "of the features (--features FILE)"
        )
    return float(middle), scale

"""How far each stage may be off from what was recorded, and the comparison."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictor.artifact.manifest import GOLDEN_ARRAYS
from predictor.errors import ArtifactError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a value may be off: |found - expected| <= absolute + relative * size.

    The size is the largest |expected| of the stage, for features the value's own or the feature's fitted scale.
    """

    absolute: float
    relative: float


TOLERANCES: Final[Mapping[str, Tolerance]] = {
    "adjusted": Tolerance(0, 1e-12),
    "features": Tolerance(0, 1e-12),
    "observed": Tolerance(1e-6, 0),
    "known": Tolerance(1e-6, 0),
    "static": Tolerance(1e-6, 0),
    "mask": Tolerance(0, 0),
    "har_terms": Tolerance(1e-12, 1e-12),
    "har_level": Tolerance(0, 1e-12),
    "har": Tolerance(1e-12, 1e-12),
    "garch_level": Tolerance(0, 1e-12),
    "garch_next": Tolerance(0, 1e-12),
    "garch": Tolerance(1e-12, 1e-12),
    "location": Tolerance(1e-15, 1e-12),
    "scale": Tolerance(0, 1e-12),
    "units": Tolerance(1e-6, 0),
    "values": Tolerance(1e-6, 0),
    "scores": Tolerance(1e-6, 0),
    "as_of_session": Tolerance(0, 0),
    "target_sessions": Tolerance(0, 0),
    "prices": Tolerance(0, 1e-6),
    "anchor_price": Tolerance(0, 0),
    "attribution_positions": Tolerance(1e-14, 0),
    "attribution_weights": Tolerance(1e-14, 0),
    "attribution_observed": Tolerance(1e-7, 1e-4),
    "attribution_known": Tolerance(1e-7, 1e-4),
    "attribution_static": Tolerance(1e-7, 1e-4),
    "attribution_alone": Tolerance(1e-7, 1e-4),
    "attribution_ends": Tolerance(1e-6, 0),
    "attribution_sum": Tolerance(1e-6, 1e-4),
}
"""Bits differ between processors in log (one unit in the last place) and in float32 sums; hardly elsewhere."""

AFTER_THE_NETWORK: Final = frozenset(
    {
        "units",
        "values",
        "scores",
        "prices",
        "attribution_observed",
        "attribution_known",
        "attribution_static",
        "attribution_alone",
        "attribution_ends",
        "attribution_sum",
    }
)
"""Stages that float32 arithmetic of the network reaches."""

MOST_FLOAT32_ERROR: Final = 1e-4
"""Bounds how far a recorded float32 error may loosen the check of the network's own stages."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """What stages are compared by, apart from their tolerances.

    Attributes:
        slack: relative error of the network's arithmetic that is forgiven in the stages after it.
        scale: float64 [F] fitted scale of each feature.
    """

    slack: float
    scale: FloatArray

    def check(self, name: str, found: NDArray[np.generic], expected: NDArray[np.generic]) -> None:
        """Raise ArtifactError, naming the stage, if it is off by more than its tolerance."""
        if found.shape != expected.shape:
            raise off(f"stage {name} has shape {found.shape}, recorded was {expected.shape}")
        if found.dtype != expected.dtype:
            raise off(f"stage {name} is {found.dtype}, recorded was {expected.dtype}")
        a, b = found.astype(np.float64), expected.astype(np.float64)
        known = np.isfinite(b)
        if not np.array_equal(np.isfinite(a), known) or not np.array_equal(a[~known], b[~known], equal_nan=True):
            raise off(f"stage {name} is finite in other places than recorded")
        difference = np.abs(np.subtract(a, b, where=known, out=np.zeros_like(b)))
        allowed = self._allowed(name, b)
        worst = int(np.argmax(difference - allowed)) if b.size else 0
        if b.size and difference.flat[worst] > allowed.flat[worst]:
            raise off(
                f"stage {name} is off by {difference.flat[worst]:.3g}, allowed is {allowed.flat[worst]:.3g}; the "
                "artifact's parts do not belong together, or this machine's libraries compute differently: train the "
                "model again here"
            )

    def _allowed(self, name: str, expected: FloatArray) -> FloatArray:
        """How far each value of a stage may be off, in the shape of the stage."""
        tolerance, size = TOLERANCES[name], np.where(np.isfinite(expected), np.abs(expected), 0.0)
        largest = size.max(initial=0.0)
        unit = np.maximum(size, self.scale) if name == "features" else np.full_like(size, largest)
        allowed = tolerance.absolute + tolerance.relative * unit
        return np.maximum(allowed, self.slack * largest) if name in AFTER_THE_NETWORK else allowed


def off(problem: str) -> ArtifactError:
    """The error for arrays of the golden instance that are not what this program computes."""
    return ArtifactError.of(GOLDEN_ARRAYS, f"golden instance: {problem}")

"""Array types shared by all packages."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int32]
"""Dates (yyyymmdd), ranks and counts."""
IndexArray = NDArray[np.intp]
"""Row indices, as returned by NumPy's searches."""
PositionArray = NDArray[np.int64]
"""Positions on an axis of sessions, symbols or windows."""

"""The array types that everything here passes on."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int32]
"""Of dates (yyyymmdd), ranks and counts."""
IndexArray = NDArray[np.intp]
"""Of rows, as NumPy's own searches give them."""
PositionArray = NDArray[np.int64]
"""Of places on an axis of sessions, symbols or windows."""

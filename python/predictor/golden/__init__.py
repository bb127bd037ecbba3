"""The golden instance: bars with special cases, and the expected result of each stage of a forecast.

Training records it, and every load of the artifact checks it. It detects libraries that compute differently, broken
hardware, and weights that do not match the features, before any forecast.
"""

from predictor.golden.instance import check, check_ensemble, record, record_ensemble
from predictor.golden.stages import AFTER_ALL_SESSIONS, TOLERANCES, prepare_golden_inputs

__all__ = [
    "AFTER_ALL_SESSIONS",
    "TOLERANCES",
    "check",
    "check_ensemble",
    "prepare_golden_inputs",
    "record",
    "record_ensemble",
]

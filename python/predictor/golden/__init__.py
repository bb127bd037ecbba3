"""The golden instance: bars with every oddity, and what each stage of a forecast must make of them.

It is recorded when a model is trained and run whenever the artifact is loaded. A library that computes differently, a
broken machine, or weights and features that do not belong together show up here, stage by stage, before any forecast.
"""

from predictor.golden.instance import check, check_ensemble, record, record_ensemble
from predictor.golden.stages import LONG_AFTER, TOLERANCES, golden_inputs

__all__ = ["LONG_AFTER", "TOLERANCES", "check", "check_ensemble", "golden_inputs", "record", "record_ensemble"]

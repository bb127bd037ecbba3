"""Features as expressions: a closed language, its evaluation over bars, and the numbers that scale it. No torch."""

from predictor.features.defaults import default_features
from predictor.features.feature_set import FeatureDefinition, FeatureSet
from predictor.features.fields import KNOWN, OBSERVED, FieldSet
from predictor.features.fitted import FittedFeatures
from predictor.features.operators import OPERATOR_SET, OPERATORS
from predictor.features.parser import parse
from predictor.features.scaling import Scaling

__all__ = [
    "KNOWN",
    "OBSERVED",
    "OPERATORS",
    "OPERATOR_SET",
    "FeatureDefinition",
    "FeatureSet",
    "FieldSet",
    "FittedFeatures",
    "Scaling",
    "default_features",
    "parse",
]

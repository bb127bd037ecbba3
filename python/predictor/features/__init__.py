"""Features: the expression language, its evaluation over bars, and fitted scaling. Does not load torch."""

from predictor.features.alpha158 import load_alpha158_features
from predictor.features.defaults import load_default_features, load_every_day_features
from predictor.features.expression import KNOWN, OBSERVED, CovariateFields
from predictor.features.feature_set import FeatureDefinition, FeatureSet
from predictor.features.fitted_features import FittedFeatures, Scaling
from predictor.features.operators import OPERATOR_SET, OPERATORS
from predictor.features.parser import parse
from predictor.features.statics import StaticCategory, StaticFeatures, StaticNumber

__all__ = [
    "KNOWN",
    "OBSERVED",
    "OPERATORS",
    "OPERATOR_SET",
    "CovariateFields",
    "FeatureDefinition",
    "FeatureSet",
    "FittedFeatures",
    "Scaling",
    "StaticCategory",
    "StaticFeatures",
    "StaticNumber",
    "load_alpha158_features",
    "load_default_features",
    "load_every_day_features",
    "parse",
]

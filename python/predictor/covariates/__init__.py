"""Covariates, the inputs of a forecast other than bars: dated series and static values per symbol.

A model reads an observed covariate up to the last bar, and a known covariate also for the future sessions. Each value
of a known covariate must therefore be known before the model first reads it.
"""

from predictor.covariates.covariates import NO_COVARIATES, Covariates, check_covariates, get_request_group
from predictor.covariates.source import CovariateSource
from predictor.covariates.tables import Series, StaticTable, check_name

__all__ = [
    "NO_COVARIATES",
    "CovariateSource",
    "Covariates",
    "Series",
    "StaticTable",
    "check_covariates",
    "check_name",
    "get_request_group",
]

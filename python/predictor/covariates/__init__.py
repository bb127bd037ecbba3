"""What a forecast may read besides bars: series with the date each value became known, and facts that stay the same.

    aligned.py    Covariates: the values beside one panel of bars, and whether a model reads them
    tables.py     one column of a file, as known at the close of each session; facts of each symbol, such as its sector
    files.py      reading both from CSV and Parquet
    source.py     all files together, and the values that one panel needs

An observed covariate is read up to the last bar. A known one is read of the sessions ahead too, so each of its values
must be known before the model first looks at it.
"""

from predictor.covariates.covariates import NO_COVARIATES, Covariates, check_sent, sent_as
from predictor.covariates.source import CovariateSource
from predictor.covariates.tables import Series, StaticTable, check_name

__all__ = [
    "NO_COVARIATES",
    "CovariateSource",
    "Covariates",
    "Series",
    "StaticTable",
    "check_name",
    "check_sent",
    "sent_as",
]

"""What callers in Python hand over, in the forms in which they have it: bars, covariates, days."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from predictor.bars import BarPanel, Frame, read_bars
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, shown_date
from trainers.stock.splits import day_of

Bars = BarPanel | Frame | str | Path
"""A panel, a DataFrame or a file of bars."""
CovariateFiles = CovariateSource | Sequence[str | Path]
"""Covariates that were read already, or their files."""
Day = date | str | int
"""A date, its ISO text such as 2011-01-03, or yyyymmdd."""


def bars_of(source: Bars) -> BarPanel:
    """The bars of whatever holds them.

    Raises:
        QuantraError: see `BarPanel.of` and `read_bars`.
    """
    if isinstance(source, BarPanel):
        return source
    return read_bars(source) if isinstance(source, str | Path) else BarPanel.of(source)


def covariates_of(files: CovariateFiles) -> CovariateSource:
    """What covariate files say.

    Raises:
        CovariatesError: a file is malformed.
    """
    if isinstance(files, str | Path):
        raise ConfigurationError(f"covariates is {files}, but must be a list of files, such as [{str(files)!r}]")
    return files if isinstance(files, CovariateSource) else CovariateSource.read(files)


def day_number(name: str, day: Day) -> int:
    """The day as yyyymmdd.

    Raises:
        ConfigurationError: there is no such day; the message begins with the name.
    """
    text = day.strftime("%Y-%m-%d") if isinstance(day, date) else shown_date(day) if isinstance(day, int) else day
    try:
        return day_of(name, text)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error

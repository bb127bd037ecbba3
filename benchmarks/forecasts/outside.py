"""The task of any file: one hourly or daily series with covariates, from a CSV or Parquet file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars import selectors

from benchmarks.forecasts.task import SPLITS, Task, standardised

DATE_NAMES: Final = ("date", "ds", "timestamp", "time", "datetime")
TRAIN_SHARE: Final = 0.6
VALIDATION_SHARE: Final = 0.2
MICROSECONDS_A_DAY: Final = 86_400e6
SEASON_DAYS: Final = 730


class BadSeriesError(Exception):
    """A file that no task can be made of; the message says what to do."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The task of a file, and what was done to its values."""

    task: Task
    notes: tuple[str, ...]


def outside_task(path: Path, target: str, *, encoder: int, horizon: int) -> Outside:
    """The task `series`: 60 % of the rows to train, 20 % to validate, 20 % to test, in order of time.

    All other columns of numbers are observed covariates; hour, weekday and day of year are known as far as they fit.
    Missing values are carried forward, and columns that are constant in the training part are left out; notes say so.

    Raises:
        BadSeriesError: There is no date column, no such target, or it is constant or never known, or the
            file is too short.
    """
    table = _sorted(_read(path), path)
    dates, frame = table.to_series(0), table.drop(table.columns[0])
    if target not in frame.columns:
        raise BadSeriesError(f"{path} has no column of numbers {target!r}; it has {frame.columns}")
    learnt = int(TRAIN_SHARE * len(frame))
    starts = (0, learnt, int((TRAIN_SHARE + VALIDATION_SHARE) * len(frame)))
    filled, notes = _filled(frame, target)
    constant = [name for name in filled.columns if filled[name][:learnt].n_unique() == 1]
    if target in constant:
        raise BadSeriesError(f"{target!r} of {path} is constant in its training part: there is nothing to forecast")
    if constant:
        notes += (f"left out, as they are constant in the training part: {', '.join(constant)}",)
    covariates = [
        standardised(filled[name].to_numpy(), learnt) for name in filled.columns if name not in [target, *constant]
    ]
    observed = np.stack(covariates, axis=-1) if covariates else np.zeros((len(filled), 0))
    task = Task(
        name="series",
        target=standardised(filled[target].to_numpy(), learnt)[None].astype(np.float32),
        observed=observed[None].astype(np.float32),
        known=_calendar(dates, learnt)[None].astype(np.float32),
        static=np.zeros((1, 0), np.float32),
        center=np.zeros(1),
        unit=np.ones(1),
        ranges=np.zeros((1, 0)),
        starts=starts,
        encoder=encoder,
        horizon=horizon,
    )
    _check_length(task, path)
    return Outside(task=task, notes=notes)


def _check_length(task: Task, path: Path) -> None:
    """Raise BadSeriesError if a split is too short for a window."""
    for split in SPLITS:
        try:
            task.windows(split)
        except ValueError as error:
            raise BadSeriesError(f"{path}: {error}") from error


def _read(path: Path) -> pl.DataFrame:
    """The file's table.

    Raises:
        BadSeriesError: It cannot be read.
    """
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(path)
        return pl.read_csv(path, try_parse_dates=True, infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise BadSeriesError(f"{path} cannot be read as CSV or Parquet: {error}") from error


def _sorted(table: pl.DataFrame, path: Path) -> pl.DataFrame:
    """The date column first, then the columns of numbers as float64, by date; what is not finite is missing.

    Raises:
        BadSeriesError: No column holds dates, or a date comes twice.
    """
    named = [name for name in table.columns if name.strip().lower() in DATE_NAMES]
    date = named[0] if named else table.columns[0]
    if table[date].dtype == pl.String:
        table = table.with_columns(pl.col(date).str.to_datetime(strict=False))
    if not table[date].dtype.is_temporal() or table[date].null_count():
        raise BadSeriesError(
            f"column {date!r} of {path} holds something that is no date; name the column of dates one of {DATE_NAMES}, "
            "and write them as 2020-01-31 or 2020-01-31 18:00:00"
        )
    if table[date].n_unique() != len(table):
        raise BadSeriesError(f"column {date!r} of {path} holds a date twice; give a file of one series")
    numbers = selectors.numeric() - selectors.by_name(date)
    values = numbers.cast(pl.Float64)
    return table.sort(date).select(pl.col(date), pl.when(values.is_finite()).then(values))


def _filled(frame: pl.DataFrame, target: str) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Every missing value replaced by the last one before it, at the start by the first one after it."""
    empty = [name for name in frame.columns if frame[name].null_count() == len(frame)]
    if target in empty:
        raise BadSeriesError(f"column {target!r} holds no number")
    frame = frame.drop(empty)
    missing = {name: frame[name].null_count() for name in frame.columns if frame[name].null_count()}
    notes = [f"left out, as they hold no number: {', '.join(empty)}"] if empty else []
    if missing:
        notes.append(
            f"missing values carried forward: {', '.join(f'{count} of {name}' for name, count in missing.items())}"
        )
    return frame.fill_null(strategy="forward").fill_null(strategy="backward"), tuple(notes)


def _calendar(dates: pl.Series, learnt: int) -> NDArray[np.float64]:
    """[T, K] the weekday, the hour where steps are shorter than a day, and the day of the year.

    The last is left out unless the training part holds every season twice: else it would only tell how late it is.
    """
    times = dates.cast(pl.Datetime("us"))
    columns = [(times.dt.weekday() - 1).to_numpy() / 6]
    days = times.cast(pl.Int64).to_numpy() / MICROSECONDS_A_DAY
    if np.median(np.diff(days)) < 1:
        columns.append((times.dt.hour() + times.dt.minute() / 60).to_numpy() / 24)
    if days[learnt - 1] - days[0] >= SEASON_DAYS:
        columns.append(times.dt.ordinal_day().to_numpy() / 366)
    return np.stack(columns, axis=-1) - 0.5

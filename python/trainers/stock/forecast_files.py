"""`quantra forecast`: forecasts of many days, as Parquet files by day."""

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, final

import numpy as np
import typer
from rich.console import Console

from predictor import canonical
from predictor.arrays import FloatArray
from predictor.artifact import MANIFEST
from predictor.bars import BarPanel
from predictor.canonical import Json, Record
from predictor.card import Card
from predictor.catalog import ModelInfo
from predictor.cli.flags import with_flags
from predictor.cli.options import AsJson, BarsFlags, CovariateFlags, Device, WorkerFlags
from predictor.cli.output import write_json
from predictor.covariates import CovariateSource
from predictor.dates import parse_date_number, to_date
from predictor.errors import (
    BarIncompleteError,
    BarSuspectError,
    CalendarEndedError,
    ConfigurationError,
    InvalidInputError,
    MissingPackageError,
    QuantraError,
    SessionGapError,
    format_count,
    format_date,
    format_names,
    get_error_status,
)
from predictor.forecast import Forecast
from predictor.forecaster import Forecaster
from predictor.instance import GapPolicy, Instance
from predictor.jobs import JobRunner
from predictor.replacement import check_folder, claim_output, replace_file
from trainers.progress import show_finished
from trainers.stock.feature_cache import hash_bars, map_bars, open_cache
from trainers.stock.flags import CacheFolder
from trainers.stock.progress_output import describe_jobs, warn_on_stderr

if TYPE_CHECKING:
    import polars as pl

SETTINGS: Final = "settings.json"
FORECASTS: Final = "forecasts.parquet"
SESSIONS_AT_ONCE: Final = 16
"""Sessions of one job; a stopped run repeats at most those of its running jobs."""

_ABOUT_BARS = (InvalidInputError, BarIncompleteError, BarSuspectError, SessionGapError, CalendarEndedError)
"""Errors of a session's bars, which become its rows. Others end the run."""


class SessionFile(NamedTuple):
    """The forecasts of one session."""

    session: int
    content: bytes
    """A Parquet file; see `forecast_frame`."""
    forecasts: int
    """Symbols with a forecast."""
    reasons: tuple[str, ...]
    """Why each other symbol has none, such as `TOO_FEW_BARS`."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForecastMaterial:
    """A model and its inputs on all sessions."""

    artifact: Path
    bars: BarPanel
    covariates: CovariateSource
    device: str = "auto"
    gaps: GapPolicy = GapPolicy.REFUSE
    accept_suspect_bars: bool = False

    def settings(self) -> dict[str, Json]:
        """All that determines the forecasts."""
        return {
            "artifact": hashlib.sha256((self.artifact / MANIFEST).read_bytes()).hexdigest(),
            "bars": hash_bars(self.bars),
            "covariates": self.covariates.digest(),
            "gaps": self.gaps.value,
            "accept_suspect_bars": self.accept_suspect_bars,
        }

    def worker(self) -> Callable[[Sequence[int]], list[SessionFile]]:
        """Load the model, and return what forecasts some sessions."""
        return _SessionForecaster(self, Forecaster.load(self.artifact, self.device))


@final
@dataclass(frozen=True, slots=True, eq=False)
class _SessionForecaster:
    """Gives the forecasts of `quantra predict --as-of`."""

    material: ForecastMaterial
    forecaster: Forecaster

    def __call__(self, sessions: Sequence[int]) -> list[SessionFile]:
        info = self.forecaster.model()
        return [self._forecast(session, info) for session in sessions]

    def _forecast(self, session: int, info: ModelInfo) -> SessionFile:
        bars, forecast = self.material.bars.until(session), None
        refusals: Mapping[str, QuantraError]
        try:
            instance = Instance(
                input=bars,
                covariates=self.material.covariates.for_model(info, bars),
                gap_policy=self.material.gaps,
                accept_suspect_bars=self.material.accept_suspect_bars,
            )
            forecast = self.forecaster.predict(instance)
            symbols, refusals = forecast.symbols, forecast.refusals
        except _ABOUT_BARS as error:
            symbols, refusals = bars.symbols, dict.fromkeys(bars.symbols, error)
        content = BytesIO()
        forecast_frame(session, info, symbols, forecast, refusals).write_parquet(content)
        reasons = tuple(get_error_status(error).reason for error in refusals.values())
        return SessionFile(session, content.getvalue(), len(symbols) - len(refusals), reasons)


def forecast_frame(
    session: int,
    info: ModelInfo,
    symbols: tuple[str, ...],
    forecast: Forecast | None,
    refusals: Mapping[str, QuantraError],
) -> "pl.DataFrame":
    """One row per symbol and horizon: the quantiles in the target's unit, or the reason why there are none.

    `forecast` is None if no symbol has a forecast; `refusals` has the error of each symbol without one.

    Raises:
        MissingPackageError: polars is missing.
    """
    try:
        import polars as pl
    except ImportError as error:
        raise MissingPackageError.of("polars", "data", "a Parquet file of forecasts") from error
    per_symbol, horizons = len(info.horizons), len(symbols) * list(info.horizons)
    names = [symbol for symbol in symbols for _ in range(per_symbol)]
    targets = [None] * len(names) if forecast is None else len(symbols) * list(forecast.target_sessions)

    def spread(values: FloatArray | None) -> "pl.Series":
        """A number per symbol, or per symbol and horizon, as a column in which unknown ones are null."""
        if values is None:
            return pl.Series([None] * len(names), dtype=pl.Float64)
        column = np.repeat(values, per_symbol) if values.ndim == 1 else values.ravel()
        return pl.Series(np.asarray(column, np.float64)).fill_nan(None)

    columns: dict[str, object] = {
        "symbol": names,
        "horizon": pl.Series(horizons, dtype=pl.Int32),
        "session": pl.Series(targets, dtype=pl.Date),
        "close": spread(None if forecast is None else forecast.anchor_price),
    }
    for k, quantile in enumerate(info.quantiles):
        columns[f"q{quantile:g}"] = spread(None if forecast is None else forecast.values[:, :, k])
    columns["score"] = spread(None if forecast is None else forecast.scores)
    errors = [refusals.get(name) for name in names]
    columns |= {
        "target": [info.target_kind] * len(names),
        "model": [info.name] * len(names),
        "version": pl.Series([info.version] * len(names), dtype=pl.Int32),
        "forecast_id": [None if forecast is None else forecast.forecast_id] * len(names),
        "is_seen": pl.Series([was_seen(session, info)] * len(names), dtype=pl.Boolean),
        "warnings": ["" if forecast is None else "\n".join(forecast.warnings)] * len(names),
        "reason": pl.Series(
            [None if error is None else get_error_status(error).reason for error in errors], dtype=pl.String
        ),
        "message": pl.Series([None if error is None else error.message for error in errors], dtype=pl.String),
    }
    return pl.DataFrame(columns)


def was_seen(session: int, info: ModelInfo) -> bool | None:
    """Whether the training used bars after a session; None if the model's card does not say so."""
    seen_to = Card.from_json(info.card_json).seen_to
    return session < seen_to if seen_to else None


@final
class ForecastFolder:
    """A folder with the forecasts of a model from some bars: `as_of=2013-01-04/forecasts.parquet` and so on.

    Raises:
        ConfigurationError: It cannot be written, or holds something else.
    """

    def __init__(self, path: Path, settings: Mapping[str, Json]) -> None:
        self.path = path
        settings_file = path / SETTINGS
        if settings_file.is_file():
            _check_same(settings_file, settings)
        elif path.exists() and any(path.iterdir()):
            raise ConfigurationError(f"{path} contains something other than forecasts; choose another --out")
        path.mkdir(parents=True, exist_ok=True)
        replace_file(settings_file, canonical.to_bytes(settings))

    def has_session(self, session: int) -> bool:
        """Whether the session's forecasts are stored."""
        return self._path(session).is_file()

    def keep(self, file: SessionFile) -> None:
        """Store a session's forecasts, completely or not at all."""
        path = self._path(file.session)
        path.parent.mkdir(exist_ok=True)
        replace_file(path, file.content)

    def _path(self, session: int) -> Path:
        return self.path / f"as_of={to_date(session).isoformat()}" / FORECASTS


def _check_same(path: Path, settings: Mapping[str, Json]) -> None:
    record = Record.from_bytes(path.read_bytes(), SETTINGS)
    different = [name for name, value in settings.items() if not record.has(name) or record.json(name) != value]
    if different:
        raise ConfigurationError(
            f"{path.parent} has forecasts with other settings: {', '.join(different)}; choose another --out"
        )


def write_forecasts(
    material: ForecastMaterial, sessions: Sequence[int], folder: ForecastFolder, runner: JobRunner
) -> Iterator[SessionFile]:
    """Forecast sessions, and yield each after it is stored.

    Raises:
        ArtifactError: The artifact is damaged.
        ConfigurationError: Another process writes into the folder.
        QuantraError: The model failed for a reason other than the bars, after all other sessions are stored.
    """

    def name_block(block: Sequence[int]) -> str:
        return f"the forecasts of {format_date(block[0])} to {format_date(block[-1])}"

    blocks = [tuple(sessions[k : k + SESSIONS_AT_ONCE]) for k in range(0, len(sessions), SESSIONS_AT_ONCE)]
    with claim_output(folder.path):
        for _, session_files in runner.run(material.worker, blocks, name=name_block):
            for file in session_files:
                folder.keep(file)
                yield file


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodFlags:
    """The days to forecast from."""

    start: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="First day; by default the first with all bars that are read."),
    ] = None
    end: Annotated[str | None, typer.Option(metavar="DATE", help="Last day; by default that of the last bar.")] = None

    def choose(self, bars: BarPanel, info: ModelInfo) -> list[int]:
        """The sessions of the period.

        Raises:
            typer.BadParameter: There is none.
        """
        first = min(info.bars_needed, len(bars.sessions)) - 1
        begin = int(bars.sessions[first]) if self.start is None else parse_date_number(self.start)
        end = int(bars.sessions[-1]) if self.end is None else parse_date_number(self.end)
        sessions = bars.sessions[(bars.sessions >= begin) & (bars.sessions <= end)]
        if not len(sessions):
            have = f"{format_date(int(bars.sessions[0]))} to {format_date(int(bars.sessions[-1]))}"
            period = f"{format_date(begin)} to {format_date(end)}"
            raise typer.BadParameter(f"the bars, {have}, have no session from {period}; change --start or --end")
        return [int(session) for session in sessions]


@with_flags
def forecast_command(  # noqa: PLR0913 - the flags of a command
    *,
    artifact: Annotated[Path, typer.Argument(metavar="ARTIFACT", help="Artifact folder, such as models/demo/1.")],
    bars: BarsFlags,
    files: CovariateFlags,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the Parquet files; continued if it exists.")],
    period: PeriodFlags,
    gaps: Annotated[GapPolicy, typer.Option(help="What to do about sessions without any bar.")] = GapPolicy.REFUSE,
    accept_suspect_bars: Annotated[
        bool, typer.Option("--accept-suspect-bars", help="Use bars that contradict their history.")
    ] = False,
    machines: WorkerFlags,
    feature_cache: CacheFolder = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Forecast all symbols as of each of many days, as Parquet files by day."""
    check_folder(out)
    panel = map_bars(bars.read(), open_cache(feature_cache, warn_on_stderr))
    material = ForecastMaterial(
        artifact=artifact,
        bars=panel,
        covariates=files.read(),
        device=device,
        gaps=gaps,
        accept_suspect_bars=accept_suspect_bars,
    )
    with Forecaster.load(artifact, device) as forecaster:
        info = forecaster.model()
    sessions = period.choose(panel, info)
    folder = ForecastFolder(out, material.settings())
    missing = [session for session in sessions if not folder.has_session(session)]
    runner = machines.runner()
    steps = write_forecasts(material, missing, folder, runner)
    if not as_json:

        def tell(file: SessionFile) -> str:
            refused = f", {len(file.reasons)} without" if file.reasons else ""
            return f"{format_date(file.session)}  {format_count(file.forecasts, 'forecast')}{refused}{runner.remark}"

        steps = show_finished(steps, total=len(missing), tell=tell, title="day", stream=sys.stdout)
    try:
        session_files = list(steps)
    except KeyboardInterrupt:
        sys.stderr.write("the forecasts so far are saved; continue with the same command\n")
        raise
    if not any(file.forecasts for file in session_files) and len(session_files) == len(sessions):
        raise QuantraError(
            f"no symbol could be forecast on any of {format_count(len(session_files), 'day')}: "
            f"{_describe_reasons(session_files)}"
        )
    if as_json:
        result: dict[str, Json] = {
            "kind": "forecasts",
            "folder": str(out),
            "days": len(sessions),
            "new_days": len(session_files),
            "forecasts": sum(file.forecasts for file in session_files),
            "reasons": dict(Counter(reason for file in session_files for reason in file.reasons)),
        }
        write_json(result | describe_jobs(runner))
    else:
        _print_result(out, info, len(sessions), session_files)


def _describe_reasons(session_files: Sequence[SessionFile]) -> str:
    reasons = Counter(reason for file in session_files for reason in file.reasons)
    return format_names([f"{reason} {count} times" for reason, count in reasons.most_common()])


def _print_result(folder: Path, info: ModelInfo, sessions: int, session_files: Sequence[SessionFile]) -> None:
    refused = sum(len(file.reasons) for file in session_files)
    forecasts = sum(file.forecasts for file in session_files)
    earlier_days = sessions - len(session_files)
    remark = f"; {format_count(earlier_days, 'day')} were there before" if earlier_days else ""
    _print_line(
        f"{format_count(forecasts, 'forecast')} of {format_count(len(session_files), 'day')} in {folder}{remark}"
    )
    if refused:
        _print_line(f"without a forecast: {_describe_reasons(session_files)}; the column `message` says more")
    if seen_days := sum(was_seen(file.session, info) is not False for file in session_files):
        _print_line(
            f"{format_count(seen_days, 'day')} may have been seen in training (`is_seen`): their forecasts may look "
            "better than new ones",
            style="yellow",
        )
    _print_line(f"read them with polars.read_parquet({str(folder / '**' / '*.parquet')!r}, hive_partitioning=True)")


def _print_line(text: str, style: str = "") -> None:
    Console(highlight=False).print(text, style=style, soft_wrap=True, markup=False)

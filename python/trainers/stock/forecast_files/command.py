"""The command `quantra forecast`."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.catalog import ModelInfo
from predictor.cli.flags import with_flags
from predictor.cli.options import AsJson, BarsFlags, CovariateFlags, Device, WorkerFlags
from predictor.cli.output import write_json
from predictor.dates import day_number
from predictor.errors import QuantraError, counted, listed, shown_date
from predictor.forecaster import Forecaster
from predictor.instance import GapPolicy
from predictor.replacement import check_folder
from trainers.stock.backtest.command import describe_jobs, watch_steps
from trainers.stock.feature_cache import map_bars, open_cache
from trainers.stock.flags import CacheFolder
from trainers.stock.forecast_files.files import ForecastFolder, ForecastMaterial, SessionFile, was_seen, write_forecasts
from trainers.stock.progress_output import warn_on_stderr


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
        begin = int(bars.sessions[first]) if self.start is None else day_number(self.start)
        until = int(bars.sessions[-1]) if self.end is None else day_number(self.end)
        chosen = bars.sessions[(bars.sessions >= begin) & (bars.sessions <= until)]
        if not len(chosen):
            have = f"{shown_date(int(bars.sessions[0]))} to {shown_date(int(bars.sessions[-1]))}"
            wanted = f"{shown_date(begin)} to {shown_date(until)}"
            raise typer.BadParameter(f"the bars, {have}, have no session from {wanted}; change --start or --end")
        return [int(session) for session in chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class UseFlags:
    """What to do about incomplete and suspect bars."""

    gaps: Annotated[GapPolicy, typer.Option(help="What to do about sessions without any bar.")] = GapPolicy.REFUSE
    accept_suspect_bars: Annotated[
        bool, typer.Option("--accept-suspect-bars", help="Use bars that contradict their history.")
    ] = False


@with_flags
def forecast_command(
    *,
    artifact: Annotated[Path, typer.Argument(metavar="ARTIFACT", help="Artifact folder, such as models/demo/1.")],
    bars: BarsFlags,
    files: CovariateFlags,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the Parquet files; continued if it exists.")],
    period: PeriodFlags,
    use: UseFlags,
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
        gaps=use.gaps,
        accept_suspect_bars=use.accept_suspect_bars,
    )
    with Forecaster.load(artifact, device) as forecaster:
        info = forecaster.model()
    sessions = period.choose(panel, info)
    folder = ForecastFolder(out, material.settings())
    missing = [session for session in sessions if not folder.holds(session)]
    runner = machines.runner()
    steps = write_forecasts(material, missing, folder, runner)
    if not as_json:

        def tell(made: SessionFile) -> str:
            return _describe(made) + runner.remark

        steps = watch_steps(steps, total=len(missing), tell=tell, title="day", stream=sys.stdout)
    try:
        made = list(steps)
    except KeyboardInterrupt:
        sys.stderr.write("the forecasts so far are saved; continue with the same command\n")
        raise
    if not any(one.forecasts for one in made) and len(made) == len(sessions):
        raise QuantraError(
            f"no symbol could be forecast on any of {counted(len(made), 'day')}: {_describe_reasons(made)}"
        )
    if as_json:
        write_json(_describe_result(out, len(sessions), made) | describe_jobs(runner))
    else:
        _print_result(out, info, len(sessions), made)


def _describe(made: SessionFile) -> str:
    refused = f", {len(made.reasons)} without" if made.reasons else ""
    return f"{shown_date(made.session)}  {counted(made.forecasts, 'forecast')}{refused}"


def _describe_reasons(made: Sequence[SessionFile]) -> str:
    reasons = Counter(reason for one in made for reason in one.reasons)
    return listed([f"{reason} {count} times" for reason, count in reasons.most_common()])


def _describe_result(folder: Path, sessions: int, made: Sequence[SessionFile]) -> dict[str, Json]:
    """The result for programs."""
    return {
        "kind": "forecasts",
        "folder": str(folder),
        "days": sessions,
        "new_days": len(made),
        "forecasts": sum(one.forecasts for one in made),
        "reasons": dict(Counter(reason for one in made for reason in one.reasons)),
    }


def _print_result(folder: Path, info: ModelInfo, sessions: int, made: Sequence[SessionFile]) -> None:
    refused = sum(len(one.reasons) for one in made)
    forecasts = sum(one.forecasts for one in made)
    kept = sessions - len(made)
    known = f"; {counted(kept, 'day')} were there before" if kept else ""
    _say(f"{counted(forecasts, 'forecast')} of {counted(len(made), 'day')} in {folder}{known}")
    if refused:
        _say(f"without a forecast: {_describe_reasons(made)}; the column `message` says more")
    if seen := sum(was_seen(one.session, info) is not False for one in made):
        _say(
            f"{counted(seen, 'day')} may have been seen in training (`is_seen`): their forecasts may look better than "
            "new ones",
            style="yellow",
        )
    _say(f"read them with polars.read_parquet({str(folder / '**' / '*.parquet')!r}, hive_partitioning=True)")


def _say(text: str, style: str = "") -> None:
    Console(highlight=False).print(text, style=style, soft_wrap=True, markup=False)

"""Flags that several commands share."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from predictor.bars import BarPanel, ReadingOptions, read_source
from predictor.bars.checks import check_past
from predictor.bars.layouts import BY_NAME, DateOrder, DecimalSign
from predictor.cli.program import say
from predictor.cluster import choose_runner
from predictor.covariates import CovariateSource
from predictor.dates import parse_date_number
from predictor.instance import GapPolicy
from predictor.jobs import JobRunner


def _check_writable(path: Path | None) -> Path | None:
    """Refuse a report that cannot be written, before the work begins."""
    if path is not None:
        from predictor.report import check_report  # slow to import, and --help does not need it

        check_report(path)
    return path


def _check_chart(path: Path | None) -> Path | None:
    """Refuse a chart of another type or that cannot be written, before the work begins."""
    if path is None or path.suffix.lower() == ".html":
        return _check_writable(path)
    from predictor.report import PICTURE_SUFFIXES, check_picture  # slow to import, and --help does not need it

    if path.suffix.lower() not in PICTURE_SUFFIXES:
        raise typer.BadParameter(f"--plot writes a page or a picture, so {path.name} must end in .html, .png or .svg")
    check_picture(path)
    return path


def split_symbols(texts: list[str] | None) -> list[str]:
    """The names of repeated flags and comma-separated lists.

    Raises:
        typer.BadParameter: a name is empty or repeated.
    """
    names = [name.strip() for text in texts or () for name in text.split(",")]
    if "" in names:
        raise typer.BadParameter("--symbol holds an empty name; write --symbol AAPL --symbol MSFT, or AAPL,MSFT")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise typer.BadParameter(f"--symbol {twice} appears twice; name it once")
    return names


AsJson = Annotated[bool, typer.Option("--json", help="Write JSON for programs to standard output.")]
ArtifactArgument = Annotated[
    Path, typer.Argument(metavar="ARTIFACT", help="Artifact folder, such as models/demo/1.", show_default=False)
]
Device = Annotated[str, typer.Option(help="Device to compute on: auto, cpu, cuda or cuda:N.")]
Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.html|png|svg",
        callback=_check_chart,
        help="Also write a chart of each symbol, all in one page or picture.",
    ),
]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE.html", callback=_check_writable, help="Also write a report, one HTML file."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingFlags:
    """Flags that resolve ambiguities of a file of bars."""

    layout: Annotated[
        str, typer.Option(metavar="NAME", help=f"The program that wrote the file: {', '.join(sorted(BY_NAME))}.")
    ] = ""
    date_order: Annotated[
        DateOrder | None, typer.Option(help="Order of day, month and year in dates such as 03/04/2020.")
    ] = None
    time_zone: Annotated[
        str,
        typer.Option(
            metavar="ZONE", help="Time zone of the exchange, for bars with times in UTC, such as America/New_York."
        ),
    ] = ""
    decimal: Annotated[DecimalSign | None, typer.Option(help="The decimal sign, if the numbers do not show it.")] = None
    volume_unit: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Shares per unit of volume; 0: one, and doubtful volumes are refused."),
    ] = 0

    @property
    def options(self) -> ReadingOptions:
        """The flags as reading options."""
        return ReadingOptions(
            layout=self.layout,
            date_order=self.date_order,
            time_zone=self.time_zone,
            decimal=self.decimal,
            volume_unit=self.volume_unit,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BarsFlags(ReadingFlags):
    """Flags of the source of bars."""

    bars: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE…|URI",
            help="Daily bars: files (CSV, Excel, Parquet; `quantra check` shows their content), a folder of files, or "
            "with --query a database, such as sqlite:///bars.db.",
        ),
    ] = None
    query: Annotated[str, typer.Option(metavar="SQL", help="Database query that returns one bar per row.")] = ""
    bars_env: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Environment variable with the database's address, instead of --bars; it may hold a password.",
        ),
    ] = ""

    def read(self, *, tells: bool = True) -> BarPanel:
        """Read the bars.

        Args:
            tells: whether to print how the source was read to standard error.

        Raises:
            BadParameter: not exactly one source of bars is given.
            QuantraError: see `read_source`.
        """
        sources = list(filter(None, self.bars or ()))
        if bool(sources) == bool(self.bars_env):
            raise typer.BadParameter("give either --bars or --bars-env")
        reading = read_source(sources, query=self.query, variable=self.bars_env, options=self.options)
        if tells:
            say(str(reading), style="yellow" if reading.warnings else "dim")
        return reading.panel


@dataclass(frozen=True, slots=True, kw_only=True)
class CovariateFlags:
    """Files of covariates."""

    covariates: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Covariates: columns date, known_from and values, and symbol where symbols differ. Repeatable.",
        ),
    ] = None
    static: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Static covariates: columns symbol and values.")
    ] = None

    def read(self) -> CovariateSource:
        """Read all files.

        Raises:
            CovariatesError: a file is malformed.
        """
        return CovariateSource.read(self.covariates or (), self.static)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFlags:
    """Where independent jobs run."""

    workers: Annotated[int, typer.Option(min=1, help="Processes that work at the same time.")] = 1
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="local|auto|ray://HOST:PORT",
            help="Work on the machines of a Ray cluster: a new one on this machine, the one that it belongs to, or one "
            "elsewhere.",
        ),
    ] = None
    job_timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1, help="End a job that takes longer, and go on without it.")
    ] = None
    job_memory: Annotated[
        float | None,
        typer.Option(
            metavar="GB",
            min=0,
            help="Memory that --cluster reserves for a job; by default, that of this process.",
        ),
    ] = None

    def runner(self, *, can_resume: bool = False) -> JobRunner:
        """What runs the jobs of a command; `can_resume` says whether it has the flag `--resume`.

        Raises:
            typer.BadParameter: Both flags are given, or memory without a cluster.
        """
        if self.cluster is not None and self.workers != 1:
            raise typer.BadParameter("give either --workers or --cluster; a cluster runs a job on each of its CPUs")
        if self.cluster is None and self.job_memory is not None:
            raise typer.BadParameter("--job-memory needs --cluster; processes of this machine share its memory")
        return choose_runner(
            self.workers,
            self.cluster,
            timeout=self.job_timeout,
            memory=self.job_memory,
            can_resume=can_resume,
            tell=partial(say, style="dim"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFlags:
    """Which bars to use, and what to do about incomplete ones."""

    last: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Use only the last N sessions of the bars; by default, as many as the model needs.",
        ),
    ] = None
    as_of: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="Use only the bars until this day: the forecast that it would have given."),
    ] = None
    gaps: Annotated[GapPolicy, typer.Option(help="What to do about sessions without any bar.")] = GapPolicy.REFUSE
    allow_incomplete_last_bar: Annotated[
        bool,
        typer.Option("--allow-incomplete-last-bar", help="Use the last bar even if its session has not closed."),
    ] = False
    accept_suspect_bars: Annotated[
        bool,
        typer.Option("--accept-suspect-bars", help="Use bars that contradict their history, with a warning."),
    ] = False
    max_age: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Refuse bars if more than N sessions have closed after the last one."),
    ] = None

    def read_of(self, bars: BarPanel) -> BarPanel:
        """The bars that `--as-of` and `--last` select.

        Raises:
            BarsError: no bar is that old, the text is not a date, or the date is in the future.
        """
        if self.as_of is not None:
            day = np.array([parse_date_number(self.as_of)], np.int32)
            check_past(("--as-of",), day, np.ones((1, 1)), datetime.now(UTC).date())
            bars = bars.until(self.as_of)
        return bars if self.last is None else bars.last(self.last)

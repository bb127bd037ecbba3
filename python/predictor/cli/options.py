"""Flags that several commands have."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from predictor.bars import BarPanel, read_bars
from predictor.covariates import CovariateSource
from predictor.instance import GapPolicy


def _checked(path: Path | None) -> Path | None:
    """Refuse a report that could not be written, before the work begins."""
    if path is not None:
        from predictor.report import check_report  # which --help need not wait for

        check_report(path)
    return path


def _drawn(path: Path | None) -> Path | None:
    """Refuse a chart that is not HTML or could not be written, before the work begins."""
    if path is not None and path.suffix.lower() != ".html":
        raise typer.BadParameter(f"--plot writes HTML, so {path.name} must end in .html")
    return _checked(path)


def named_symbols(given: list[str] | None) -> list[str]:
    """The names of repeated flags and comma-separated lists.

    Raises:
        typer.BadParameter: a name is empty or repeated.
    """
    names = [name.strip() for text in given or () for name in text.split(",")]
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
    typer.Option(metavar="FILE.html", callback=_drawn, help="Also write a chart of each symbol, all in one HTML file."),
]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE.html", callback=_checked, help="Also write a report, one HTML file."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BarsFlags:
    """Where bars come from."""

    bars: Annotated[
        str,
        typer.Option(
            metavar="FILE|URI",
            help="Daily bars: a .csv or .parquet file, oldest first, or with --query a database, such as "
            "sqlite:///bars.db.",
        ),
    ] = ""
    query: Annotated[str, typer.Option(metavar="SQL", help="Database query that returns one bar per row.")] = ""
    bars_env: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Environment variable with the database's address, instead of --bars; it may hold a password.",
        ),
    ] = ""

    def read(self) -> BarPanel:
        """The bars.

        Raises:
            BadParameter: no source of bars is given, or more than one.
            QuantraError: see `read_bars`.
        """
        if bool(self.bars) == bool(self.bars_env):
            raise typer.BadParameter("give either --bars or --bars-env")
        return read_bars(self.bars, query=self.query, variable=self.bars_env)


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
        """All of them.

        Raises:
            CovariatesError: a file is malformed.
        """
        return CovariateSource.read(self.covariates or (), self.static)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFlags:
    """Which of the bars are read, and what to do about incomplete ones."""

    last: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Read only the last N sessions of the bars; if left out, as many as the model needs.",
        ),
    ] = None
    gaps: Annotated[GapPolicy, typer.Option(help="What to do about sessions that all of the bars miss.")] = (
        GapPolicy.REFUSE
    )
    allow_incomplete_last_bar: Annotated[
        bool,
        typer.Option("--allow-incomplete-last-bar", help="Use the last bar even if its session has not closed."),
    ] = False
    max_age: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Refuse bars after whose last one more than N sessions have closed."),
    ] = None

    def read_of(self, bars: BarPanel) -> BarPanel:
        """The sessions of the bars that are read at most."""
        return bars if self.last is None else bars.last(self.last)

"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from predictor.instance import GapPolicy


def _checked(path: Path | None) -> Path | None:
    """Refuse a report that could not be written, before the work that it would tell of."""
    if path is not None:
        from predictor.report import check_report  # which --help need not wait for

        check_report(path)
    return path


def _drawn(path: Path | None) -> Path | None:
    """Refuse a chart of another kind, or one that could not be written, before the work that it would show."""
    if path is not None and path.suffix.lower() != ".html":
        raise typer.BadParameter(f"--plot writes HTML, so {path.name} must end in .html")
    return _checked(path)


def named_symbols(given: list[str] | None) -> list[str]:
    """The names of repeated flags and of lists with commas.

    Raises:
        typer.BadParameter: a name is empty, or stands twice.
    """
    names = [name.strip() for text in given or () for name in text.split(",")]
    if "" in names:
        raise typer.BadParameter("--symbol holds an empty name; write --symbol AAPL --symbol MSFT, or AAPL,MSFT")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise typer.BadParameter(f"--symbol {twice} stands twice; name it once")
    return names


AsJson = Annotated[bool, typer.Option("--json", help="Write JSON for programs to standard output.")]
Device = Annotated[str, typer.Option(help="What computes: auto, cpu, cuda or cuda:N.")]
Artifact = Annotated[Path | None, typer.Option(metavar="DIR", help="Artifact folder, such as models/demo/1.")]
Server = Annotated[str, typer.Option(metavar="HOST:PORT", help="Ask this server instead of an artifact.")]
ModelReference = Annotated[
    str, typer.Option(metavar="NAME[@VERSION]", help="The server's model; may be left out where it has only one.")
]
CovariateFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--covariates",
        metavar="FILE",
        help="What the model reads beside the bars: date, known_from, columns; symbol where they differ. Repeatable.",
    ),
]
StaticFile = Annotated[
    Path | None, typer.Option("--static", metavar="FILE", help="Facts of each symbol: symbol, columns.")
]
Symbols = Annotated[
    list[str] | None,
    typer.Option(
        "--symbol",
        metavar="NAME,…",
        callback=named_symbols,
        help="Symbols of the file, with commas or repeated; all of them if left out.",
    ),
]
Gaps = Annotated[GapPolicy, typer.Option(help="What to do about sessions that all of the bars lack.")]
AllowIncomplete = Annotated[
    bool, typer.Option("--allow-incomplete-last-bar", help="Take the last bar although its session has not closed.")
]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE.html", callback=_drawn, help="Also write a chart of each symbol, all in one HTML file."),
]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE.html", callback=_checked, help="Also write a report, one HTML file."),
]

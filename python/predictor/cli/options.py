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


AsJson = Annotated[bool, typer.Option("--json", help="Write JSON for programs to standard output.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
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
Symbol = Annotated[str, typer.Option(help="One symbol of the file; all of them if left out.")]
Gaps = Annotated[GapPolicy, typer.Option(help="What to do about missing sessions.")]
AllowIncomplete = Annotated[
    bool, typer.Option("--allow-incomplete-last-bar", help="Take the last bar although its session has not closed.")
]
Plot = Annotated[Path | None, typer.Option(metavar="FILE.html", help="Also write a chart, one HTML file.")]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE.html", callback=_checked, help="Also write a report, one HTML file."),
]

"""`quantra report`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from predictor.audit_record import read_audit
from predictor.cli.bars import Bars, BarsEnv, BarsQuery, chosen_bars
from predictor.cli.machine import write_json
from predictor.cli.options import AllowIncomplete, AsJson, CovariateFiles, Device, Gaps, StaticFile, named_symbols
from predictor.cli.source import bars_to_send, beside_bars, open_source
from predictor.forecast import Detail, TargetPoint
from predictor.instance import GapPolicy, Instance, Query
from predictor.report import ReportContent, check_report, write_report

EXAMPLE: Final = "Example: quantra report models/demo/1 --bars bars.csv --symbol AAPL --output report.html"
SUFFIX: Final = ".report.html"


def report(  # noqa: PLR0913 - one argument a flag
    *,
    artifact: Annotated[Path, typer.Argument(metavar="ARTIFACT", help="Artifact folder, such as models/demo/1.")],
    bars: Bars = "",
    query: BarsQuery = "",
    bars_env: BarsEnv = "",
    covariates: CovariateFiles = None,
    static: StaticFile = None,
    symbols: Annotated[
        list[str] | None,
        typer.Option(
            "--symbol",
            metavar="NAME,…",
            callback=named_symbols,
            help="Whose forecasts are shown, with commas or repeated; the first of the bars if left out.",
        ),
    ] = None,
    gaps: Gaps = GapPolicy.REFUSE,
    allow_incomplete_last_bar: AllowIncomplete = False,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="The page; left out: beside the artifact, NAME.report.html."),
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Write a page of a forecast, its reasons, and the model behind it with its scores and its newest audit.

    An artifact holds no bars of the market: the page shows the forecast of those that are given.
    """
    whole = artifact.resolve()
    page = output or whole.with_name(whole.name + SUFFIX)
    check_report(page)
    audit = read_audit(whole)
    with open_source(artifact, "", "", device) as source:
        given = chosen_bars(bars, query, bars_env)
        shown = tuple(symbols or given.symbols[:1])
        panel = bars_to_send(source, given, shown)
        beside = beside_bars(source, panel, covariates, static)
        asked = Instance(
            input=panel,
            covariates=beside.covariates,
            gap_policy=gaps,
            allow_incomplete_last_bar=allow_incomplete_last_bar,
        )
        info = source.model()
        targets = tuple(TargetPoint(h, q) for h in info.horizons for q in info.quantiles)
        forecast = source.predict(asked)
        explanation = source.explain(Query(instance=asked, targets=targets, detail=Detail.CELLS, symbols=shown))
    content = ReportContent(
        info=info,
        bars=panel,
        forecast=replace(forecast, warnings=(*beside.doubts, *forecast.warnings)),
        attributions=explanation.attributions,
        symbols=shown,
        audit=audit,
    )
    write_report(page, content)
    if as_json:
        write_json({"report": str(page), "symbol": shown[0], "symbols": shown, "audited": audit is not None})
    else:
        typer.echo(f"Wrote {page}" + ("" if audit else f"; not audited: quantra audit {artifact} --bars BARS"))

"""The command `quantra report`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from predictor.audit_record import AuditRecord, read_audit
from predictor.card import Card
from predictor.cli.flags import with_flags
from predictor.cli.options import (
    ArtifactArgument,
    AsJson,
    BarsFlags,
    CovariateFlags,
    Device,
    InputFlags,
    split_symbols,
)
from predictor.cli.output import list_given_flags, print_next_commands, quantra, write_json
from predictor.cli.predict import SourceFlags, make_model_input
from predictor.forecast import Detail, TargetPoint
from predictor.instance import INTEGRATED_GRADIENTS, ExplanationQuery
from predictor.report import ReportContent, check_report, write_report

SUFFIX: Final = ".report.html"


@with_flags
def report(
    *,
    artifact: ArtifactArgument,
    bars: BarsFlags,
    files: CovariateFlags,
    symbols: Annotated[
        list[str] | None,
        typer.Option(
            "--symbol",
            metavar="NAME,…",
            callback=split_symbols,
            help="Symbols to show, comma-separated or repeated; by default the first of the bars.",
        ),
    ] = None,
    inputs: InputFlags,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="The page; by default NAME.report.html next to the artifact."),
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Write a page with a forecast, its explanation, and the model's scores and newest audit.

    An artifact holds no market data: the page shows the forecast for the given bars.
    """
    folder = artifact.resolve()
    page = output or folder.with_name(folder.name + SUFFIX)
    check_report(page)
    audit = read_audit(folder)
    source = SourceFlags(artifact=artifact, device=device)
    content = _make_content(source, bars, symbols or (), files, inputs, audit)
    write_report(page, content)
    shown = content.symbols
    if as_json:
        write_json({"report": str(page), "symbol": shown[0], "symbols": shown, "audited": audit is not None})
    else:
        can_audit = audit is None and Card.from_json(content.info.card_json).adopted is None
        typer.echo(f"Wrote {page}" + ("; the model is not audited yet" if can_audit else ""))
        if can_audit:
            print_next_commands(quantra("audit", artifact, *list_given_flags(bars, files)))


def _make_content(
    source: SourceFlags,
    bars: BarsFlags,
    symbols: Sequence[str],
    files: CovariateFlags,
    inputs: InputFlags,
    audit: AuditRecord | None,
) -> ReportContent:
    """The forecast of these symbols, by default the first of the bars, with its explanation."""
    with source.open() as model:
        panel = bars.read()
        shown = tuple(symbols or panel.symbols[:1])
        request = make_model_input(model, panel, shown, files, inputs)
        info = model.model()
        targets = tuple(TargetPoint(h, q) for h in info.horizons for q in info.quantiles)
        forecast = model.predict(request.instance)
        detail = Detail.CELLS if INTEGRATED_GRADIENTS in info.explain_methods else Detail.FEATURES
        query = ExplanationQuery(instance=request.instance, targets=targets, detail=detail, symbols=shown)
        explanation = model.explain(query)
    return ReportContent(
        info=info,
        bars=request.panel,
        forecast=replace(forecast, warnings=(*request.warnings, *forecast.warnings)),
        attributions=explanation.attributions,
        symbols=shown,
        audit=audit,
    )

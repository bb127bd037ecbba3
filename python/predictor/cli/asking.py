"""`quantra predict` and `quantra explain`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from predictor.cli.bars import Bars, BarsEnv, BarsQuery, chosen_bars
from predictor.cli.machine import explanation_json, forecast_json, write_json
from predictor.cli.options import (
    AllowIncomplete,
    Artifact,
    AsJson,
    CovariateFiles,
    Device,
    Gaps,
    ModelReference,
    Plot,
    Server,
    StaticFile,
    Symbol,
)
from predictor.cli.source import bars_to_send, beside_bars, doubted, open_source
from predictor.cli.tables import contributions_table, forecast_table, internals_table
from predictor.forecast import Attribution, Forecast, TargetPoint
from predictor.instance import GapPolicy, Instance, Query
from predictor.report import forecast_chart

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

PREDICT_EXAMPLE: Final = "Example: quantra predict --artifact models/demo/1 --bars bars.csv --symbol AAPL"
EXPLAIN_EXAMPLE: Final = "Example: quantra explain --server 127.0.0.1:50051 --model demo --bars bars.csv --horizon 20"


def predict(  # noqa: PLR0913 - one argument a flag
    *,
    bars: Bars = "",
    query: BarsQuery = "",
    bars_env: BarsEnv = "",
    artifact: Artifact = None,
    server: Server = "",
    model: ModelReference = "",
    covariates: CovariateFiles = None,
    static: StaticFile = None,
    symbol: Symbol = "",
    horizon: Annotated[int | None, typer.Option(help="Show this horizon alone, in sessions.")] = None,
    quantile: Annotated[float | None, typer.Option(help="Show this quantile alone.")] = None,
    gaps: Gaps = GapPolicy.REFUSE,
    allow_incomplete_last_bar: AllowIncomplete = False,
    plot: Plot = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Forecast the symbols of daily bars."""
    _check_plot(plot)
    with open_source(artifact, server, model, device) as source:
        panel = bars_to_send(source, chosen_bars(bars, query, bars_env), symbol)
        beside = beside_bars(source, panel, covariates, static)
        asked = Instance(
            input=panel,
            covariates=beside.covariates,
            gap_policy=gaps,
            allow_incomplete_last_bar=allow_incomplete_last_bar,
        )
        forecast = _narrowed(source.predict(asked), symbol, horizon, quantile)
    forecast = replace(forecast, warnings=(*beside.doubts, *forecast.warnings))
    if plot is not None:
        _write_chart(forecast_chart(panel, forecast, forecast.symbols[0]), plot)
    if as_json:
        write_json(forecast_json(forecast))
        return
    console = Console(highlight=False)
    for name in forecast.symbols:
        console.print(forecast_table(forecast, name, panel.currency))
    _warn(console, forecast.warnings)


def explain(  # noqa: PLR0913 - one argument a flag
    *,
    bars: Bars = "",
    query: BarsQuery = "",
    bars_env: BarsEnv = "",
    artifact: Artifact = None,
    server: Server = "",
    model: ModelReference = "",
    covariates: CovariateFiles = None,
    static: StaticFile = None,
    symbol: Symbol = "",
    horizon: Annotated[int, typer.Option(help="Explain this horizon, in sessions.")] = 5,
    quantile: Annotated[float, typer.Option(help="Explain this quantile.")] = 0.5,
    gaps: Gaps = GapPolicy.REFUSE,
    allow_incomplete_last_bar: AllowIncomplete = False,
    plot: Plot = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Show how much each input moved the forecast of one horizon and quantile."""
    _check_plot(plot)
    with open_source(artifact, server, model, device) as source:
        panel = bars_to_send(source, chosen_bars(bars, query, bars_env), symbol)
        beside = beside_bars(source, panel, covariates, static)
        asked = Instance(
            input=panel,
            covariates=beside.covariates,
            gap_policy=gaps,
            allow_incomplete_last_bar=allow_incomplete_last_bar,
        )
        wanted = (symbol,) if symbol else ()
        explanation = source.explain(Query(instance=asked, targets=(TargetPoint(horizon, quantile),), symbols=wanted))
    explanation = doubted(explanation, beside.doubts)
    found = explanation.attributions[0]
    shown = (symbol,) if symbol else found.symbols
    if plot is not None:
        _write_chart(found.plot(shown[0]), plot)
    if as_json:
        write_json(explanation_json(explanation))
        return
    console = Console(highlight=False)
    for name in shown:
        console.print(contributions_table(found, name))
        if found.internals:
            console.print(internals_table(found, name))
        _warn_of_gap(console, found, name)
    _warn(console, found.warnings)


def _narrowed(forecast: Forecast, symbol: str, horizon: int | None, quantile: float | None) -> Forecast:
    """The part of a forecast that was asked for.

    Raises:
        UnknownHorizonError, UnknownQuantileError: the model does not forecast it; the message lists what it does.
    """
    point = TargetPoint(
        forecast.horizons[0] if horizon is None else horizon, forecast.quantiles[0] if quantile is None else quantile
    )
    h, q = point.index_in(forecast.horizons, forecast.quantiles)
    s = forecast.symbols.index(symbol) if symbol else 0
    rows = slice(s, s + 1) if symbol else slice(None)
    days = slice(None) if horizon is None else slice(h, h + 1)
    levels = slice(None) if quantile is None else slice(q, q + 1)
    cut = (rows, days, levels)
    return replace(
        forecast,
        symbols=forecast.symbols[rows],
        target_sessions=forecast.target_sessions[days],
        horizons=forecast.horizons[days],
        quantiles=forecast.quantiles[levels],
        values=forecast.values[cut],
        returns=None if forecast.returns is None else forecast.returns[cut],
        prices=None if forecast.prices is None else forecast.prices[cut],
        anchor_price=None if forecast.anchor_price is None else forecast.anchor_price[rows],
        scores=None if forecast.scores is None else forecast.scores[cut[:2]],
        ranks=None if forecast.ranks is None else forecast.ranks[cut[:2]],
    )


def _warn_of_gap(console: Console, found: Attribution, symbol: str) -> None:
    s = found.symbols.index(symbol)
    if not found.converged[s]:
        gap = 100 * float(found.relative_gap[s])
        _warn(console, [f"the contributions miss the difference by {gap:.2f} %"])


def _warn(console: Console, warnings: Sequence[str]) -> None:
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)


def _check_plot(path: Path | None) -> None:
    """Refuse another kind of file before any work is done."""
    if path is not None and path.suffix.lower() != ".html":
        raise typer.BadParameter(f"--plot writes HTML, so {path.name} must end in .html")


def _write_chart(figure: "Figure", path: Path) -> None:
    figure.write_html(path, include_plotlyjs=True)

"""`quantra predict` and `quantra explain`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final

import numpy as np
import typer
from rich.console import Console

from predictor.cli.bars import Bars, BarsEnv, BarsQuery, chosen_bars
from predictor.cli.charts import write_charts
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
    Symbols,
)
from predictor.cli.source import bars_to_send, beside_bars, doubted, open_source
from predictor.cli.tables import contributions_table, forecast_table, internals_table
from predictor.forecast import Attribution, Forecast, TargetPoint
from predictor.instance import GapPolicy, Instance, Query
from predictor.internals import session_in_words
from predictor.report import forecast_chart
from predictor.skill import line_of

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
    symbols: Symbols = None,
    horizon: Annotated[int | None, typer.Option(help="Show this horizon alone, in sessions.")] = None,
    quantile: Annotated[float | None, typer.Option(help="Show this quantile alone.")] = None,
    gaps: Gaps = GapPolicy.REFUSE,
    allow_incomplete_last_bar: AllowIncomplete = False,
    plot: Plot = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Forecast the symbols of daily bars."""
    with open_source(artifact, server, model, device) as source:
        panel = bars_to_send(source, chosen_bars(bars, query, bars_env), symbols or ())
        beside = beside_bars(source, panel, covariates, static)
        asked = Instance(
            input=panel,
            covariates=beside.covariates,
            gap_policy=gaps,
            allow_incomplete_last_bar=allow_incomplete_last_bar,
        )
        forecast = _narrowed(source.predict(asked), symbols or (), horizon, quantile)
    forecast = replace(forecast, warnings=(*beside.doubts, *forecast.warnings))
    shown = [name for name in forecast.symbols if name not in forecast.refusals]  # of the others the warnings tell why
    if as_json:
        write_json(forecast_json(forecast))
    else:
        _tell(forecast, shown, panel.currency)
    if plot is not None and shown:
        write_charts(plot, [forecast_chart(panel, forecast, name) for name in shown])


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
    symbols: Symbols = None,
    horizon: Annotated[int, typer.Option(help="Explain this horizon, in sessions.")] = 5,
    quantile: Annotated[float, typer.Option(help="Explain this quantile.")] = 0.5,
    gaps: Gaps = GapPolicy.REFUSE,
    allow_incomplete_last_bar: AllowIncomplete = False,
    plot: Plot = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Show how much each input moved the forecast of one horizon and quantile."""
    with open_source(artifact, server, model, device) as source:
        panel = bars_to_send(source, chosen_bars(bars, query, bars_env), symbols or ())
        beside = beside_bars(source, panel, covariates, static)
        asked = Instance(
            input=panel,
            covariates=beside.covariates,
            gap_policy=gaps,
            allow_incomplete_last_bar=allow_incomplete_last_bar,
        )
        point = TargetPoint(horizon, quantile)
        explanation = source.explain(Query(instance=asked, targets=(point,), symbols=tuple(symbols or ())))
        lag = source.model().lag
    explanation = doubted(explanation, beside.doubts)
    found = explanation.attributions[0]
    known = np.isfinite(found.prediction)  # of the others the warnings tell why
    shown = [name for name, told in zip(found.symbols, known, strict=True) if told]
    if as_json:
        write_json(explanation_json(explanation))
    else:
        _tell_reasons(found, shown, lag)
    if plot is not None and shown:
        write_charts(plot, [found.plot(name) for name in shown])


def _tell(forecast: Forecast, shown: Sequence[str], currency: str) -> None:
    console = Console(highlight=False)
    for name in shown:
        console.print(forecast_table(forecast, name, currency))
    _warn(console, forecast.warnings)
    for note in forecast.notes:
        console.print(note, markup=False)


def _tell_reasons(found: Attribution, shown: Sequence[str], lag: int) -> None:
    console = Console(highlight=False)
    for name in shown:
        console.print(contributions_table(found, name))
        if found.internals:
            console.print(internals_table(found, name))
        _warn_of_gap(console, found, name)
    _warn(console, found.warnings)
    if lag:
        console.print(f"Horizons count from {session_in_words(lag)} bar.")
    console.print(line_of(found.skill), markup=False)


def _narrowed(forecast: Forecast, symbols: Sequence[str], horizon: int | None, quantile: float | None) -> Forecast:
    """The part of a forecast that was asked for.

    Raises:
        UnknownHorizonError, UnknownQuantileError: the model does not forecast it; the message lists what it does.
    """
    point = TargetPoint(
        forecast.horizons[0] if horizon is None else horizon, forecast.quantiles[0] if quantile is None else quantile
    )
    h, q = point.index_in(forecast.horizons, forecast.quantiles)
    rows = [forecast.symbols.index(symbol) for symbol in symbols or forecast.symbols]
    days = slice(None) if horizon is None else slice(h, h + 1)
    levels = slice(None) if quantile is None else slice(q, q + 1)
    cut = (rows, days, levels)
    return replace(
        forecast,
        symbols=tuple(forecast.symbols[s] for s in rows),
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


def _warn(console: Console, warnings: Sequence[str]) -> None:
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)


def _warn_of_gap(console: Console, found: Attribution, symbol: str) -> None:
    s = found.symbols.index(symbol)
    if not found.converged[s]:
        gap = 100 * float(found.relative_gap[s])
        _warn(console, (f"the contributions of {symbol} miss the difference by {gap:.2f} %",))

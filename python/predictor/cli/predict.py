"""The commands `quantra predict` and `quantra explain`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import numpy as np
import typer
from rich.console import Console

from predictor.bars import BarPanel
from predictor.card import Card
from predictor.cli.flags import with_flags
from predictor.cli.options import AsJson, BarsFlags, CovariateFlags, Device, InputFlags, Plot, split_symbols
from predictor.cli.output import (
    encode_explanation_json,
    encode_forecast_json,
    list_given_flags,
    make_contributions_table,
    make_forecast_table,
    make_internals_table,
    print_next_commands,
    quantra,
    write_json,
)
from predictor.client import ClientCredentials, QuantraClient
from predictor.covariates import Covariates
from predictor.dates import to_date_number
from predictor.errors import format_date
from predictor.forecast import Attribution, Explanation, Forecast, TargetPoint
from predictor.instance import EXPLAIN_METHODS, OCCLUSION, ExplanationQuery, Instance
from predictor.internals import describe_session
from predictor.interruption import exit_on_interrupt
from predictor.report import (
    NO_PAST,
    PICTURE_SUFFIXES,
    PastForecasts,
    select_past_forecasts,
    write_forecast_chart,
    write_forecast_picture,
    write_reason_chart,
    write_reason_picture,
)
from predictor.skill import format_skill

if TYPE_CHECKING:
    from predictor.forecaster import Forecaster

MEDIAN: Final = 0.5
"""The default quantile to explain."""
SESSIONS_AGO: Final = (60, 40, 20)
"""Last bars of the past forecasts on a chart."""
MAX_PAST_SYMBOLS: Final = 20
"""Most symbols of a chart with past forecasts, each of which costs as much as the forecast itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFlags:
    """The target of a request: an artifact in this process, or a server."""

    artifact: Annotated[Path | None, typer.Option(metavar="DIR", help="Artifact folder, such as models/demo/1.")] = None
    server: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Send the request to this server; also unix:PATH.")
    ] = ""
    model: Annotated[
        str,
        typer.Option(metavar="NAME[@VERSION]", help="The server's model; optional if it has only one."),
    ] = ""
    tls_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Use TLS: certificate authorities of the server, PEM.")
    ] = None
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate to show the server, PEM.")] = None
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key, PEM.")] = None
    device: Device = "auto"

    def open(self) -> "Forecaster | QuantraClient":
        """Load the artifact, or connect to the server.

        Raises:
            typer.BadParameter: not exactly one of artifact and server is given, or a model without a server.
            ArtifactError: the artifact is damaged.
        """
        if (self.artifact is None) == (not self.server):
            raise typer.BadParameter("give either --artifact DIR or --server HOST:PORT")
        if self.artifact is None:
            credentials = ClientCredentials(ca=self.tls_ca, cert=self.tls_cert, key=self.tls_key)
            return QuantraClient(self.server, self.model, credentials=credentials)
        if self.tls_ca or self.tls_cert or self.tls_key:
            raise typer.BadParameter("--tls-ca, --tls-cert and --tls-key need --server")
        if self.model:
            raise typer.BadParameter("--model needs --server, since an artifact is a single model")
        with exit_on_interrupt():
            from predictor.forecaster import Forecaster  # imports torch, which a server's client does not need

        return Forecaster.load(self.artifact, self.device)


class ModelInput(NamedTuple):
    """A request's bars, instance and warnings."""

    panel: BarPanel
    instance: Instance
    warnings: tuple[str, ...]
    """Warnings about the files."""


def make_model_input(
    source: "Forecaster | QuantraClient",
    bars: BarPanel,
    symbols: Sequence[str],
    files: CovariateFlags,
    inputs: InputFlags,
) -> ModelInput:
    """The bars of these symbols, by default of all, and the covariates that the model reads.

    Raises:
        BarsError: a symbol does not exist.
    """
    panel = select_bars_to_send(source, inputs.read_of(bars), symbols)
    covariates, warnings = Covariates(), tuple[str, ...]()
    if files.covariates or files.static is not None:
        read, model = files.read(), source.model()
        covariates, warnings = read.for_model(model, panel), tuple(read.find_warnings(model.covariates))
    return ModelInput(
        panel,
        Instance(
            input=panel,
            covariates=covariates,
            gap_policy=inputs.gaps,
            allow_incomplete_last_bar=inputs.allow_incomplete_last_bar,
            accept_suspect_bars=inputs.accept_suspect_bars,
            max_age_sessions=inputs.max_age,
        ),
        warnings,
    )


def select_bars_to_send(source: "Forecaster | QuantraClient", bars: BarPanel, symbols: Sequence[str]) -> BarPanel:
    """The bars of these symbols; all bars for a panel model or without symbols.

    Raises:
        BarsError: a symbol does not exist.
    """
    if not symbols:
        return bars
    selected = bars.select(symbols)
    return bars if source.model().is_panel_model else selected


Symbols = Annotated[
    list[str] | None,
    typer.Option(
        "--symbol",
        metavar="NAME,…",
        callback=split_symbols,
        help="Symbols of the file, comma-separated or repeated; by default all.",
    ),
]


@with_flags
def predict(
    *,
    bars: BarsFlags,
    source: SourceFlags,
    files: CovariateFlags,
    symbols: Symbols = None,
    horizon: Annotated[int | None, typer.Option(help="Show only this horizon, in sessions.")] = None,
    quantile: Annotated[float | None, typer.Option(help="Show only this quantile.")] = None,
    inputs: InputFlags,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Forecast symbols from their daily bars."""
    with source.open() as model:
        panel = bars.read()
        request = make_model_input(model, panel, symbols or (), files, inputs)
        forecast = _select(model.predict(request.instance), symbols or (), horizon, quantile)
        card = None if plot is None and inputs.as_of is None else Card.from_json(model.model().card_json)
        past = NO_PAST
        if plot is not None and not isinstance(model, QuantraClient) and forecast.prices is not None:
            past = _repeat_forecasts(model, forecast, (horizon, quantile), panel, files, inputs)
    panel = request.panel
    warnings = request.warnings
    as_of = forecast.as_of_session if inputs.as_of is not None else None
    if card is not None and as_of is not None and to_date_number(as_of) < card.seen_to:
        warnings = (_describe_seen_day(as_of, card), *warnings)
    forecast = replace(forecast, warnings=(*warnings, *forecast.warnings))
    shown = [name for name in forecast.symbols if name not in forecast.refusals]  # the warnings say why
    if as_json:
        write_json(encode_forecast_json(forecast))
    else:
        _print_forecast(forecast, shown, panel.currency)
    if plot is not None and card is not None and shown:
        if plot.suffix.lower() in PICTURE_SUFFIXES:
            write_forecast_picture(plot, panel, forecast, shown, past)
        else:
            write_forecast_chart(plot, panel, forecast, shown, card, past)
    if shown and not as_json:
        flags = (*list_given_flags(source, bars, files, inputs), "--symbol", shown[0], *_suggest_point(forecast))
        print_next_commands(quantra("explain", *flags))


@with_flags
def explain(
    *,
    bars: BarsFlags,
    source: SourceFlags,
    files: CovariateFlags,
    symbols: Symbols = None,
    horizon: Annotated[int, typer.Option(help="Explain this horizon, in sessions.")] = 5,
    quantile: Annotated[float, typer.Option(help="Explain this quantile.")] = MEDIAN,
    method: Annotated[
        str,
        typer.Option(
            help=f"How: {', '.join(EXPLAIN_METHODS)}; a model has some of them.",
            show_default=False,
        ),
    ] = "",
    inputs: InputFlags,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Show how much each input moved the forecast of one horizon and quantile."""
    with source.open() as model:
        request = make_model_input(model, bars.read(), symbols or (), files, inputs)
        targets = (TargetPoint(horizon, quantile),)
        query = ExplanationQuery(
            instance=request.instance, targets=targets, symbols=tuple(symbols or ()), method=method
        )
        explanation = model.explain(query)
        info = model.model()
    explanation = prepend_warnings(explanation, request.warnings)
    attribution = explanation.attributions[0]
    known = np.isfinite(attribution.prediction)  # the warnings say why others are missing
    shown = [name for name, is_known in zip(attribution.symbols, known, strict=True) if is_known]
    if as_json:
        write_json(encode_explanation_json(explanation))
    else:
        _print_reasons(attribution, shown, info.lag)
    if plot is not None and shown:
        if plot.suffix.lower() in PICTURE_SUFFIXES:
            write_reason_picture(plot, attribution, shown)
        else:
            write_reason_chart(plot, info, attribution, shown)
    if source.artifact is not None and shown and not as_json:
        print_next_commands(
            quantra("report", source.artifact, *list_given_flags(bars, files, inputs), "--symbol", shown[0])
        )


def _describe_seen_day(as_of: date, card: Card) -> str:
    return (
        f"the training of the model has seen days until {format_date(card.seen_to)}, perhaps also what followed "
        f"{as_of}: this forecast may look better than new ones"
    )


def _repeat_forecasts(
    model: "Forecaster",
    forecast: Forecast,
    point: tuple[int | None, float | None],
    bars: BarPanel,
    files: CovariateFlags,
    inputs: InputFlags,
) -> PastForecasts:
    """Repeat a forecast as of earlier sessions, like `--as-of`; those that are not possible are left out.

    Args:
        model: the model of the forecast.
        forecast: the forecast, of the requested symbols.
        point: the requested horizon and quantile; None for all.
        bars: all bars.
        files: covariates.
        inputs: how the forecast used the bars.
    """
    if len(forecast.symbols) > MAX_PAST_SYMBOLS or forecast.as_of_session is None:
        return PastForecasts(note=f"Past forecasts are only drawn for up to {MAX_PAST_SYMBOLS} symbols.")
    sessions = bars.until(forecast.as_of_session).sessions
    days = [int(sessions[-1 - ago]) for ago in SESSIONS_AGO if ago < len(sessions)]
    then = replace(inputs, as_of=None, max_age=None)
    requests = [make_model_input(model, bars.until(day), forecast.symbols, files, then).instance for day in days]
    past = [outcome for outcome in model.predict_many(requests) if isinstance(outcome, Forecast)]
    shown = [_select(outcome, forecast.symbols, *point) for outcome in past]
    return select_past_forecasts(shown, forecast.as_of_session, Card.from_json(model.model().card_json))


def _suggest_point(forecast: Forecast) -> tuple[str, ...]:
    """Flags to explain the forecast's last horizon, at the median if it has one."""
    middle = forecast.quantiles[len(forecast.quantiles) // 2]
    quantile = () if MEDIAN in forecast.quantiles else ("--quantile", f"{middle:g}")
    return ("--horizon", str(forecast.horizons[-1]), *quantile)


def _print_forecast(forecast: Forecast, shown: Sequence[str], currency: str) -> None:
    console = Console(highlight=False)
    for name in shown:
        console.print(make_forecast_table(forecast, name, currency))
    _warn(console, forecast.warnings)
    for note in forecast.notes:
        console.print(note, markup=False)


def _print_reasons(attribution: Attribution, shown: Sequence[str], lag: int) -> None:
    console = Console(highlight=False)
    for name in shown:
        console.print(make_contributions_table(attribution, name))
        if attribution.internals and attribution.has_moving_inputs(attribution.symbols.index(name)):
            console.print(make_internals_table(attribution, name))
        s = attribution.symbols.index(name)
        if not attribution.converged[s] and attribution.method != OCCLUSION:
            gap = 100 * float(attribution.relative_gap[s])
            _warn(console, (f"the contributions of {name} are approximate: their sum is {gap:.2f} % off",))
    _warn(console, attribution.warnings)
    if lag:
        console.print(f"Horizons count from {describe_session(lag)} bar.")
    console.print(format_skill(attribution.skill), markup=False)


def _select(forecast: Forecast, symbols: Sequence[str], horizon: int | None, quantile: float | None) -> Forecast:
    """The requested part of a forecast.

    Raises:
        UnknownHorizonError, UnknownQuantileError: the model does not forecast it; the message lists the valid ones.
    """
    point = TargetPoint(
        forecast.horizons[0] if horizon is None else horizon, forecast.quantiles[0] if quantile is None else quantile
    )
    h, q = point.index_in(forecast.horizons, forecast.quantiles)
    places = {symbol: row for row, symbol in enumerate(forecast.symbols)}
    rows = [places[symbol] for symbol in symbols or forecast.symbols]
    days = slice(None) if horizon is None else slice(h, h + 1)
    levels = slice(None) if quantile is None else slice(q, q + 1)
    index = (rows, days, levels)
    return replace(
        forecast,
        symbols=tuple(forecast.symbols[s] for s in rows),
        target_sessions=forecast.target_sessions[days],
        horizons=forecast.horizons[days],
        quantiles=forecast.quantiles[levels],
        values=forecast.values[index],
        returns=None if forecast.returns is None else forecast.returns[index],
        prices=None if forecast.prices is None else forecast.prices[index],
        anchor_price=None if forecast.anchor_price is None else forecast.anchor_price[rows],
        scores=None if forecast.scores is None else forecast.scores[index[:2]],
        ranks=None if forecast.ranks is None else forecast.ranks[index[:2]],
    )


def _warn(console: Console, warnings: Sequence[str]) -> None:
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)


def prepend_warnings(explanation: Explanation, warnings: tuple[str, ...]) -> Explanation:
    """The explanation with these warnings before its own."""
    return replace(
        explanation,
        attributions=tuple(
            replace(attribution, warnings=(*warnings, *attribution.warnings))
            for attribution in explanation.attributions
        ),
    )

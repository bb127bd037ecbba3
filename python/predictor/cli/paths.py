"""The command `quantra paths`."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from predictor.canonical import Json
from predictor.cli.flags import with_flags
from predictor.cli.options import AsJson, BarsFlags, CovariateFlags, InputFlags, Report
from predictor.cli.output import write_json
from predictor.cli.predict import SourceFlags, Symbols, make_model_input
from predictor.errors import MissingPackageError, format_count, format_price
from predictor.price_paths import Estimate, PathAnswers, PathQuestions, PricePaths, simulate_paths
from predictor.replacement import check_file, replace_file
from predictor.report import describe_origin, write_paths_page

_PRICE_QUANTILES: Final = (0.05, 0.5, 0.95)
"""Quantiles of prices on screen."""
_DRAWDOWN_QUANTILE: Final = 0.95
"""Quantile of drawdowns on screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathFlags:
    """Flags of the simulation and of its risk figures."""

    count: Annotated[int, typer.Option("--paths", metavar="N", min=1, help="Number of joint paths.")] = 1000
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same paths.")] = 0
    day: Annotated[
        int | None, typer.Option(metavar="D", min=1, help="Sessions ahead; by default the longest horizon.")
    ] = None
    holding: Annotated[
        list[str] | None,
        typer.Option(metavar="SYMBOL=VALUE", help="Value of a position today; negative if short. Repeatable."),
    ] = None
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="SYMBOL=PRICE", help="Show how probable it is to reach a price. Repeatable."),
    ] = None
    level: Annotated[float, typer.Option(help="Level of the value at risk: .99 is exceeded in 1 % of cases.")] = 0.99


@with_flags
def paths(
    *,
    bars: BarsFlags,
    source: SourceFlags,
    files: CovariateFlags,
    symbols: Symbols = None,
    flags: PathFlags,
    inputs: InputFlags,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all paths, as .parquet or .csv.")] = None,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Simulate joint price paths of symbols: value at risk, drawdowns and probabilities of prices.

    At each horizon the paths have the forecast's distribution. Their shape and dependence are those of the past.
    """
    holdings, prices = _parse_pairs("--holding", flags.holding), _parse_pairs("--price", flags.price)
    if out is not None:
        if out.suffix.lower() not in {".parquet", ".csv"}:
            raise typer.BadParameter(f"--out {out} has no ending .parquet or .csv; add one")
        check_file(out)
    with source.open() as model:
        panel = bars.read()
        request = make_model_input(model, panel, symbols or (), files, inputs)
        forecast = model.predict(request.instance)
    past = panel if inputs.as_of is None else panel.until(inputs.as_of)
    simulated = simulate_paths(forecast, past, paths=flags.count, seed=flags.seed)
    questions = PathQuestions(day=flags.day or 0, level=flags.level, holdings=holdings, prices=tuple(prices.items()))
    answers = simulated.answer(questions)
    too_short = [error for symbol, error in simulated.refusals.items() if symbol not in forecast.refusals]
    warnings = (*request.warnings, *forecast.warnings, *(error.message for error in too_short))
    if out is not None:
        _write_paths(simulated, out)
    if report is not None:
        write_paths_page(
            report,
            simulated,
            past,
            forecast,
            holdings=holdings,
            answers=answers,
            level=flags.level,
            warnings=warnings,
        )
    if as_json:
        write_json(_encode_paths(simulated, answers, warnings))
        return
    console = Console(highlight=False)
    console.print(_make_price_table(simulated, answers.day, panel.currency))
    if answers.value_at_risk is not None:
        console.print(_make_risk_table(answers, flags.level))
    if answers.prices:
        console.print(_make_probability_table(answers))
    for line in warnings:
        console.print(f"warning: {line}", style="yellow", markup=False)
    console.print(describe_origin(simulated), markup=False)


def _parse_pairs(flag: str, given: Sequence[str] | None) -> dict[str, float]:
    """Parse SYMBOL=NUMBER.

    Raises:
        typer.BadParameter: it has another form, or a symbol is named twice.
    """
    values_by_symbol: dict[str, float] = {}
    for text in given or ():
        symbol, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if not symbol or not np.isfinite(value):
            raise typer.BadParameter(f"{flag} {text!r} is not SYMBOL=NUMBER, such as AAPL=1000")
        if symbol in values_by_symbol:
            raise typer.BadParameter(f"{flag} names {symbol} twice")
        values_by_symbol[symbol] = value
    return values_by_symbol


def _make_price_table(simulated: PricePaths, day: int, currency: str) -> Table:
    table = Table(
        title=Text(f"closes {format_count(day, 'session')} ahead{f', in {currency}' if currency else ''}"), box=None
    )
    table.add_column("")
    for name in ("last close", *(f"{100 * level:g} %" for level in _PRICE_QUANTILES), "drawdown, 1 in 20"):
        table.add_column(name, justify="right")
    closes = np.quantile(simulated.prices[:, :, day - 1], _PRICE_QUANTILES, axis=0)
    for row, symbol in enumerate(simulated.symbols):
        drawdown = np.quantile(simulated.drawdowns({symbol: 1.0}, day), _DRAWDOWN_QUANTILE)
        cells = (simulated.anchor_price[row], *closes[:, row])
        table.add_row(symbol, *map(format_price, map(float, cells)), f"{100 * drawdown:.1f} %")
    return table


def _make_risk_table(answers: PathAnswers, level: float) -> Table:
    table = Table(title=Text(f"holdings, up to {format_count(answers.day, 'session')} ahead"), box=None)
    table.add_column("")
    for name in ("", "90 % range"):
        table.add_column(name, justify="right")
    for name, estimate in (
        ("value at risk", answers.value_at_risk),
        ("expected shortfall", answers.expected_shortfall),
    ):
        if estimate is not None:
            table.add_row(
                f"{name}, {100 * level:g} %",
                f"{estimate.value:,.2f}",
                f"{estimate.lower:,.2f} to {estimate.upper:,.2f}",
            )
    if answers.drawdown is not None:
        table.add_row("largest drawdown, 1 in 20", *_format_percent(answers.drawdown))
    return table


def _format_percent(estimate: Estimate) -> tuple[str, str]:
    """A share and its range."""
    return f"{100 * estimate.value:.1f} %", f"{100 * estimate.lower:.1f} to {100 * estimate.upper:.1f} %"


def _make_probability_table(answers: PathAnswers) -> Table:
    table = Table(title=Text(f"probability within {format_count(answers.day, 'session')}"), box=None)
    for name in ("", "price", "close above it on the last day", "a close at or beyond it on any day"):
        table.add_column(name, justify="right")
    for price in answers.prices:
        cells = ("{} ({})".format(*_format_percent(estimate)) for estimate in (price.above, price.touched))
        table.add_row(price.symbol, format_price(price.price), *cells)
    return table


def _encode_paths(simulated: PricePaths, answers: PathAnswers, warnings: Sequence[str]) -> dict[str, Json]:
    closes = np.quantile(simulated.prices[:, :, answers.day - 1], _PRICE_QUANTILES, axis=0)
    risk = {
        "value_at_risk": answers.value_at_risk,
        "expected_shortfall": answers.expected_shortfall,
        "drawdown": answers.drawdown,
    }
    return {
        "model": f"{simulated.model}@{simulated.version}",
        "forecast_id": simulated.forecast_id,
        "as_of_session": None if simulated.as_of_session is None else simulated.as_of_session.isoformat(),
        "day": answers.day,
        "paths": len(simulated.returns),
        "past_days": simulated.past_days,
        "seed": simulated.seed,
        "warnings": list(warnings),
        "closes": {
            symbol: {f"{level:g}": float(closes[k, row]) for k, level in enumerate(_PRICE_QUANTILES)}
            for row, symbol in enumerate(simulated.symbols)
        },
        "risk": {name: estimate._asdict() for name, estimate in risk.items() if estimate is not None},
        "prices": {
            price.symbol: {"price": price.price, "above": price.above._asdict(), "touched": price.touched._asdict()}
            for price in answers.prices
        },
        "refusals": {symbol: error.message for symbol, error in simulated.refusals.items()},
    }


def _write_paths(simulated: PricePaths, out: Path) -> None:
    """One row per path, symbol and day."""
    try:
        import polars as pl
    except ImportError as error:
        raise MissingPackageError.of("polars", "data", "a file of paths") from error
    count, symbols, days = simulated.returns.shape
    path, symbol, day = (part.ravel() for part in np.indices((count, symbols, days)))
    frame = pl.DataFrame(
        {
            "path": path,
            "symbol": np.array(simulated.symbols)[symbol],
            "day": day + 1,
            "log_return": simulated.returns.ravel(),
            "price": simulated.prices.ravel(),
        }
    )
    content = BytesIO()
    if out.suffix.lower() == ".csv":
        frame.write_csv(content)
    else:
        frame.write_parquet(content)
    replace_file(out, content.getvalue())

"""The command `quantra paths`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from predictor.arrays import FloatArray
from predictor.canonical import Json
from predictor.cli.flags import with_flags
from predictor.cli.options import AsJson, BarsFlags, CovariateFlags, InputFlags
from predictor.cli.output import write_json
from predictor.cli.predict import SourceFlags, Symbols, model_input
from predictor.errors import MissingPackageError, counted, shown_price
from predictor.price_paths import Estimate, PricePaths, simulate_paths
from predictor.replacement import check_file, replace_file

_SHOWN: Final = (0.05, 0.5, 0.95)
"""Quantiles of prices on screen."""
_BAD: Final = 0.95
"""Quantile of drawdowns on screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathFlags:
    """What to simulate, and what to say about it."""

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
    wanted: PathFlags,
    inputs: InputFlags,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all paths, as .parquet or .csv.")] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate joint price paths of symbols: value at risk, drawdowns and probabilities of prices.

    At each horizon the paths have the forecast's distribution. Their shape and dependence are those of the past.
    """
    holdings, prices = _parse_pairs("--holding", wanted.holding), _parse_pairs("--price", wanted.price)
    if out is not None:
        _check_output(out)
    with source.open() as model:
        panel = bars.read()
        forecast = model.predict(model_input(model, panel, symbols or (), files, inputs).instance)
    past = panel if inputs.as_of is None else panel.until(inputs.as_of)
    simulated = simulate_paths(forecast, past, paths=wanted.count, seed=wanted.seed)
    day = simulated.days if wanted.day is None else wanted.day
    risk = _risk(simulated, holdings, day, wanted.level)
    reached = {
        symbol: (simulated.probability_above(symbol, price, day), simulated.probability_touched(symbol, price, day))
        for symbol, price in prices.items()
    }
    if out is not None:
        _write_paths(simulated, out)
    if as_json:
        write_json(_to_json(simulated, day, risk, prices, reached))
        return
    console = Console(highlight=False)
    console.print(_price_table(simulated, day, panel.currency))
    if risk:
        console.print(_risk_table(risk, day, wanted.level))
    if reached:
        console.print(_reached_table(prices, reached, day))
    for line in (*forecast.warnings, *(error.message for error in simulated.refusals.values())):
        console.print(f"warning: {line}", style="yellow", markup=False)
    console.print(_origin(simulated), markup=False)


def _parse_pairs(flag: str, given: Sequence[str] | None) -> dict[str, float]:
    """Parse SYMBOL=NUMBER.

    Raises:
        typer.BadParameter: it has another form, or a symbol is named twice.
    """
    found: dict[str, float] = {}
    for text in given or ():
        symbol, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if not symbol or not np.isfinite(value):
            raise typer.BadParameter(f"{flag} {text!r} is not SYMBOL=NUMBER, such as AAPL=1000")
        if symbol in found:
            raise typer.BadParameter(f"{flag} names {symbol} twice")
        found[symbol] = value
    return found


def _risk(simulated: PricePaths, holdings: Mapping[str, float], day: int, level: float) -> dict[str, Estimate]:
    if not holdings:
        return {}
    drawdowns = simulated.drawdowns(holdings, day)
    return {
        "value at risk": simulated.value_at_risk(holdings, day, level),
        "expected shortfall": simulated.expected_shortfall(holdings, day, level),
        "largest drawdown": simulated.estimate(drawdowns, _bad_quantile),
    }


def _bad_quantile(values: FloatArray) -> float:
    return float(np.quantile(values, _BAD))


def _price_table(simulated: PricePaths, day: int, currency: str) -> Table:
    table = Table(
        title=Text(f"closes {counted(day, 'session')} ahead{f', in {currency}' if currency else ''}"), box=None
    )
    table.add_column("")
    for name in ("last close", *(f"{100 * level:g} %" for level in _SHOWN), "drawdown, 1 in 20"):
        table.add_column(name, justify="right")
    closes = np.quantile(simulated.prices[:, :, day - 1], _SHOWN, axis=0)
    for row, symbol in enumerate(simulated.symbols):
        drawdown = np.quantile(simulated.drawdowns({symbol: 1.0}, day), _BAD)
        cells = (simulated.anchor_price[row], *closes[:, row])
        table.add_row(symbol, *map(shown_price, map(float, cells)), f"{100 * drawdown:.1f} %")
    return table


def _risk_table(risk: Mapping[str, Estimate], day: int, level: float) -> Table:
    table = Table(title=Text(f"holdings, up to {counted(day, 'session')} ahead"), box=None)
    for name in ("", "", "90 % range"):
        table.add_column(name, justify="right" if name == "" and table.columns else "left")
    for name, found in risk.items():
        is_share = name == "largest drawdown"
        shown = [f"{100 * value:.1f} %" if is_share else f"{value:,.2f}" for value in found]
        what = f"{name}, 1 in 20" if is_share else f"{name}, {100 * level:g} %"
        table.add_row(what, shown[0], f"{shown[1]} to {shown[2]}")
    return table


def _reached_table(prices: Mapping[str, float], reached: Mapping[str, tuple[Estimate, Estimate]], day: int) -> Table:
    table = Table(title=Text(f"probability within {counted(day, 'session')}"), box=None)
    for name in ("", "price", "close above it on the last day", "a close at or beyond it on any day"):
        table.add_column(name, justify="right")
    for symbol, estimates in reached.items():
        cells = (f"{100 * one.value:.1f} % ({100 * one.lower:.1f} to {100 * one.upper:.1f})" for one in estimates)
        table.add_row(symbol, shown_price(prices[symbol]), *cells)
    return table


def _origin(simulated: PricePaths) -> str:
    independent = max(1, simulated.past_days // simulated.days)
    return (
        f"{len(simulated.returns):,} paths from {simulated.past_days:,} past days, about {independent} of them "
        "independent. Ranges are over other draws of these days; they do not include errors of the forecast's "
        "quantiles, and a crisis that the past does not have is missing."
    )


def _to_json(
    simulated: PricePaths,
    day: int,
    risk: Mapping[str, Estimate],
    prices: Mapping[str, float],
    reached: Mapping[str, tuple[Estimate, Estimate]],
) -> dict[str, Json]:
    closes = np.quantile(simulated.prices[:, :, day - 1], _SHOWN, axis=0)
    return {
        "model": f"{simulated.model}@{simulated.version}",
        "forecast_id": simulated.forecast_id,
        "as_of_session": None if simulated.as_of_session is None else simulated.as_of_session.isoformat(),
        "day": day,
        "paths": len(simulated.returns),
        "past_days": simulated.past_days,
        "seed": simulated.seed,
        "closes": {
            symbol: {f"{level:g}": float(closes[k, row]) for k, level in enumerate(_SHOWN)}
            for row, symbol in enumerate(simulated.symbols)
        },
        "risk": {name.replace(" ", "_"): found._asdict() for name, found in risk.items()},
        "prices": {
            symbol: {"price": prices[symbol], "above": above._asdict(), "touched": touched._asdict()}
            for symbol, (above, touched) in reached.items()
        },
        "refusals": {symbol: error.message for symbol, error in simulated.refusals.items()},
    }


def _check_output(out: Path) -> None:
    if out.suffix.lower() not in {".parquet", ".csv"}:
        raise typer.BadParameter(f"--out {out} has no ending .parquet or .csv; add one")
    check_file(out)


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

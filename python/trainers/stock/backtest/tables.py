"""A backtest for a terminal."""

from collections.abc import Iterator
from math import isfinite
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from predictor.errors import shown_date
from predictor.skill import Verdict
from trainers.stock.backtest.result import Backtest, Track
from trainers.stock.backtest.terms import LONGEST_HALT
from trainers.stock.backtest.verdict import leads_of, sentence_of, told, verdict_of

_COLOURS: Final = {Verdict.BETTER: "green", Verdict.UNDECIDED: "yellow", Verdict.WORSE: "red"}
_COLUMNS: Final = ("a year", "vol.", "Sharpe", "gross", "fall", "turnover", "hits", "held")


def backtest_tables(found: Backtest) -> RenderableType:
    """What the strategy came to, beside the benchmarks, then what a reader must know."""
    sentence = Text(sentence_of(found), style=_COLOURS[verdict_of(found)])
    return Group(
        _table(found),
        "",
        sentence,
        Text(leads_of(found)),
        "",
        *(Text(f"note: {note}", style="dim") for note in _lines(found)),
    )


def _table(found: Backtest) -> Table:
    first, last = (shown_date(int(found.strategy.sessions[place])) for place in (0, -1))
    table = Table(
        title=Text(f"\n{first} to {last}, after costs"),
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("")
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for track in found.tracks:
        table.add_row(Text(track.name), *_cells(track), style="blue" if track is found.strategy else "")
    return table


def _cells(track: Track) -> tuple[str, ...]:
    figures = track.figures
    return (
        _percent(figures.net.annual_return),
        _percent(figures.net.annual_volatility),
        told(figures.net),
        f"{figures.gross.sharpe:+.2f}" if isfinite(figures.gross.sharpe) else "-",
        _percent(-figures.net.drawdown.depth),
        _percent(figures.turnover),
        _percent(figures.hit_rate),
        _percent(figures.exposure),
    )


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %" if isfinite(value) else "-"


def _lines(found: Backtest) -> Iterator[str]:
    terms = found.terms
    trained = f"; {len(found.folds)} folds" if len(found.folds) > 1 else ""
    yield f"forecasts of {found.forecasts}{trained}; SHA-256 of settings and bars {found.digest[:12]}"
    yield (
        f"{terms.cost_bps:g} bp are paid on every unit traded, {terms.borrow_bps:g} bp a year on shorts; a decision is "
        f"traded {terms.delay} session after it and held for {terms.tranches * terms.rebalance}, in {terms.tranches} "
        "tranches"
    )
    yield (
        f"a halted stock is held on; after {LONGEST_HALT} sessions without a bar, or at the end, its position is "
        f"closed at a return of {100 * terms.delisting_return:g} % on the last close seen"
    )
    yield (
        "Sharpe: after costs, ± one standard error; gross: before costs; turnover: bought and sold a session; hits: "
        "sessions that earned; held: mean exposure"
    )
    yield _fall(found.strategy)
    yield from found.notes


def _fall(track: Track) -> str:
    """When the largest fall was."""
    fall = track.figures.net.drawdown
    if fall.trough < 0:
        return "the strategy never fell below a peak"
    begun = shown_date(int(track.sessions[max(fall.peak, 0)]))
    return f"the strategy's largest fall was from {begun} to {shown_date(int(track.sessions[fall.trough]))}"

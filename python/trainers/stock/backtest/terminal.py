"""Progress and result of a backtest in the terminal."""

from collections.abc import Callable, Iterable, Iterator
from math import isfinite
from typing import IO, Final, TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from predictor.errors import shown_date
from trainers.stock.backtest.result import Backtest, BookTrack, leads_of, sentence_of, sharpe_text, verdict_of
from trainers.stock.backtest.strategies import LONGEST_HALT
from trainers.stock.evaluation.tables import VERDICT_COLOURS, plain_table

_COLUMNS: Final = ("annual", "vol.", "Sharpe", "gross", "drawdown", "turnover", "hits", "exposure")

StepT = TypeVar("StepT")


def backtest_tables(backtest: Backtest) -> RenderableType:
    """Table of the strategy and the benchmarks, then the notes."""
    sentence = Text(sentence_of(backtest), style=VERDICT_COLOURS[verdict_of(backtest)])
    return Group(
        _table(backtest),
        "",
        sentence,
        Text(leads_of(backtest)),
        "",
        *(Text(f"note: {note}", style="dim") for note in _lines(backtest)),
    )


def _table(backtest: Backtest) -> Table:
    first, last = (shown_date(int(backtest.strategy.sessions[place])) for place in (0, -1))
    table = plain_table(f"{first} to {last}, after costs", *_COLUMNS)
    for track in backtest.tracks:
        table.add_row(Text(track.name), *_cells(track), style="blue" if track is backtest.strategy else "")
    return table


def _cells(track: BookTrack) -> tuple[str, ...]:
    figures = track.figures
    return (
        _percent(figures.net.annual_return),
        _percent(figures.net.annual_volatility),
        sharpe_text(figures.net),
        f"{figures.gross.sharpe:+.2f}" if isfinite(figures.gross.sharpe) else "-",
        _percent(-figures.net.drawdown.depth),
        _percent(figures.turnover),
        _percent(figures.hit_rate),
        _percent(figures.exposure),
    )


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %" if isfinite(value) else "-"


def _lines(backtest: Backtest) -> Iterator[str]:
    terms = backtest.terms
    trained = f"; {len(backtest.folds)} folds" if len(backtest.folds) > 1 else ""
    yield f"forecasts of {backtest.forecasts}{trained}; SHA-256 of settings and bars {backtest.digest[:12]}"
    yield (
        f"{terms.cost_bps:g} bp are charged on every unit traded, {terms.borrow_bps:g} bp a year on shorts; a decision "
        f"is traded {terms.delay} session after it and held for {terms.tranches * terms.rebalance}, in "
        f"{terms.tranches} tranches"
    )
    yield (
        f"a position in a halted stock is kept; after {LONGEST_HALT} sessions without a bar, or at the end, it is "
        f"closed at a return of {100 * terms.delisting_return:g} % on the last close"
    )
    yield (
        "Sharpe: after costs, ± one standard error; gross: before costs; turnover: bought and sold per session; hits: "
        "sessions with a gain; exposure: mean sum of absolute weights"
    )
    yield _fall(backtest.strategy)
    yield from backtest.notes


def _fall(track: BookTrack) -> str:
    """Dates of the largest drawdown, as text."""
    fall = track.figures.net.drawdown
    if fall.trough < 0:
        return "the strategy had no drawdown"
    begun = shown_date(int(track.sessions[max(fall.peak, 0)]))
    return f"the strategy's largest drawdown was from {begun} to {shown_date(int(track.sessions[fall.trough]))}"


def watched(
    steps: Iterable[StepT], *, total: int, tell: Callable[[StepT], str], title: str, stream: IO[str]
) -> Iterator[StepT]:
    """Yield finished steps and show each of them.

    Args:
        steps: Finished steps.
        total: Their number.
        tell: Describes a step.
        title: Name of the steps.
        stream: Where they are shown.
    """
    if stream.isatty():
        return _on_a_bar(steps, total, tell, title, stream)
    return _in_lines(steps, total, tell, title, stream)


def _in_lines(
    steps: Iterable[StepT], total: int, tell: Callable[[StepT], str], title: str, stream: IO[str]
) -> Iterator[StepT]:
    for count, step in enumerate(steps, start=1):
        stream.write(f"{title} {count}/{total}  {tell(step)}\n")
        stream.flush()
        yield step


def _on_a_bar(
    steps: Iterable[StepT], total: int, tell: Callable[[StepT], str], title: str, stream: IO[str]
) -> Iterator[StepT]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    moves = SpinnerColumn(finished_text=" ")  # a fold may take minutes
    columns = (moves, TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[state]}"), console=Console(file=stream)) as bar:
        task = bar.add_task(title, total=total, state="")
        for step in steps:
            bar.update(task, advance=1, state=tell(step))
            yield step

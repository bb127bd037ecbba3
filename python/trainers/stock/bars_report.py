"""The command `quantra check`, and its report on a file of bars."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, final

import numpy as np
import typer
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from predictor.arrays import FloatArray
from predictor.bars import BarPanel, BarReading, PriceJumps, read_files
from predictor.bars.files import get_file_stem
from predictor.bars.suspects import SuspectBars, find_suspects, find_unexplained_splits, find_untraded_cells
from predictor.canonical import Json
from predictor.charts import draw_close_lines
from predictor.cli.flags import with_flags
from predictor.cli.options import AsJson, ReadingFlags
from predictor.cli.output import quantra, write_json
from predictor.errors import ConfigurationError, format_date
from predictor.replacement import check_file, replace_file
from predictor.report import PageBuilder, ReportTable, TableRow, make_number_cell
from predictor.report.templates import format_session
from predictor.sessions import EVERY_DAY, SessionCalendar
from trainers.stock.bar_requirements import (
    check_enough,
    count_bars_of_window,
    describe_mixed_exchanges,
    recognise_calendar,
)
from trainers.stock.feature_selection import load_features
from trainers.stock.recipe import StockRecipe

LARGE_SHARE: Final = 0.05
"""Share of days from which a finding states its share."""

MAX_LISTED_DAYS: Final = 3
"""Days listed per kind of finding; the others are counted."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SymbolFindings:
    """Findings about one symbol's bars.

    Attributes:
        symbol: Its name.
        bars: Number of bars.
        first: Day of the first bar, yyyymmdd; 0 without any.
        last: Day of the last bar.
        gaps: int32, sessions without a bar between the first and the last.
        without_session: int32, days with a bar that are not sessions.
        repeated: int32, days whose prices and volume all equal those of the bar before.
        without_volume: int32, days with a volume of 0.
        unknown_volume: int32, days whose volume is empty.
        jumps: Price changes that look like unrecorded splits.
        suspects: Bars that contradict the symbol's history.
        untraded: int32, days without a trade: prices repeat the close before, and the volume is 0.
    """

    symbol: str
    bars: int
    first: int
    last: int
    gaps: NDArray[np.int32]
    without_session: NDArray[np.int32]
    repeated: NDArray[np.int32]
    without_volume: NDArray[np.int32]
    unknown_volume: NDArray[np.int32]
    jumps: PriceJumps
    suspects: tuple[SuspectBars, ...]
    untraded: NDArray[np.int32]

    def windows(self, needs: "BarRequirement") -> int:
        """Number of windows with a known outcome."""
        return max(0, self.bars - needs.bars + 1 - needs.reach)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BarRequirement:
    """Bars that a model with default settings needs.

    Attributes:
        bars: Bars needed for one forecast.
        reach: Sessions to the farthest target.
        refusal: Why the given bars are too few for a training run, and what to do; empty if they suffice.
    """

    bars: int
    reach: int
    refusal: str


def check_symbols(bars: BarPanel, calendar: SessionCalendar) -> tuple[SymbolFindings, ...]:
    """The findings about each symbol, in the panel's order."""
    is_without_session = np.isin(bars.sessions, calendar.unexpected(bars.sessions))
    suspects = find_suspects(bars)
    findings: list[SymbolFindings] = []
    for row, symbol in enumerate(bars.symbols):
        present, symbol_bars = bars.present[row], bars.rows([row])
        days, volume = bars.sessions[present], bars.volume[row, present]
        columns = [getattr(bars, name)[row, present] for name in ("open", "high", "low", "close")]
        columns.append(np.nan_to_num(volume, nan=-1.0))
        repeats = np.zeros(len(days), dtype=np.bool_)
        repeats[1:] = np.logical_and.reduce([values[1:] == values[:-1] for values in columns])
        findings.append(
            SymbolFindings(
                symbol=symbol,
                bars=len(days),
                first=int(days[0]) if days.size else 0,
                last=int(days[-1]) if days.size else 0,
                gaps=calendar.missing(bars.sessions[present & ~is_without_session]),
                without_session=bars.sessions[present & is_without_session],
                repeated=days[repeats],
                without_volume=days[volume == 0],
                unknown_volume=days[np.isnan(volume)],
                jumps=find_unexplained_splits(symbol_bars),
                suspects=tuple(suspect for suspect in suspects if suspect.symbol == symbol),
                untraded=bars.sessions[find_untraded_cells(symbol_bars)[0]],
            )
        )
    return tuple(findings)


def compute_needs(bars: BarPanel, calendar: str) -> BarRequirement:
    """Bars needed by `quantra train stock` with its defaults and this calendar."""
    recipe, features = StockRecipe(calendar=calendar), load_features("default", calendar)
    try:
        check_enough(bars.sessions, len(bars.symbols), features, recipe, recipe.splits(bars.sessions))
        refusal = ""
    except ConfigurationError as error:
        refusal = error.message
    return BarRequirement(bars=count_bars_of_window(features, recipe), reach=recipe.target.reach, refusal=refusal)


BLOCKS: Final = "▁▂▃▄▅▆▇█"

WIDTH: Final = 16

MAX_LINES: Final = 12
"""Most symbols on the chart."""


def draw_sparkline(values: FloatArray) -> str:
    """A line of blocks, each the mean of a part of the values [T]; a blank if all of them are unknown."""
    parts = np.array_split(values, min(WIDTH, values.size))
    means = np.array([part[np.isfinite(part)].mean() if np.isfinite(part).any() else np.nan for part in parts])
    low, high = (float(edge) for edge in (np.nanmin(means), np.nanmax(means))) if np.isfinite(means).any() else (0, 0)
    step = (high - low) / (len(BLOCKS) - 1) or 1.0
    return "".join(" " if np.isnan(mean) else BLOCKS[round((mean - low) / step)] for mean in means.tolist())


def write_bars_page(
    path: Path, reading: BarReading, findings: Sequence[SymbolFindings], warnings: Sequence[str]
) -> None:
    """Write a page with a chart of closes, suspected splits marked, and the findings.

    Raises:
        MissingPackageError: plotly or jinja2 is not installed.
        OSError: the file cannot be written.
    """
    page = PageBuilder("trainers.stock", "bars_report.html.j2")
    parts = {
        "name": reading.name,
        "read_as": str(reading),
        "closes": draw_closes(reading, findings, page),
        "more": max(0, len(findings) - MAX_LINES),
        "symbols": build_symbol_table(findings),
        "warnings": tuple(warnings),
    }
    replace_file(path, page.render(parts).encode())


def draw_closes(reading: BarReading, findings: Sequence[SymbolFindings], page: PageBuilder) -> str:
    """A chart of the first `MAX_LINES` symbols, each 100 on its first day."""
    bars, suspect_sessions = reading.panel, dict[str, list[int]]()
    for finding in findings:
        suspect = (session for suspects in finding.suspects for session in suspects.sessions)
        suspect_sessions[finding.symbol] = sorted({*suspect, *(jump.session for jump in finding.jumps.shown)})
    names = bars.symbols[:MAX_LINES]
    label = f"Closes of {', '.join(names)}, 100 on each one's first day; suspect bars and splits are marked"
    return page.chart(draw_close_lines(names, bars.sessions, bars.close[: len(names)], suspect_sessions), label)


def build_symbol_table(findings: Sequence[SymbolFindings]) -> ReportTable:
    """One row per symbol: its number of bars and of findings by kind."""
    columns = ("bars", "days missing", "extra days", "repeated", "no volume", "suspect", "possible splits")
    return ReportTable(corner="symbol", columns=columns, lines=tuple(map(_build_row, findings)))


def _build_row(symbol_findings: SymbolFindings) -> TableRow:
    days = f"{format_session(symbol_findings.first)} to {format_session(symbol_findings.last)}"
    no_volume = (*symbol_findings.without_volume, *symbol_findings.unknown_volume)
    findings = (
        *map(
            len,
            (
                symbol_findings.gaps,
                symbol_findings.without_session,
                symbol_findings.repeated,
                no_volume,
                symbol_findings.suspects,
            ),
        ),
        symbol_findings.jumps.count,
    )
    counts = (make_number_cell(count, "{:,.0f}".format) for count in findings)
    return TableRow(
        name=symbol_findings.symbol,
        cells=(make_number_cell(symbol_findings.bars, "{:,.0f}".format, note=days), *counts),
    )


CHANGES: Final = ".changes.txt"

MAX_SYMBOLS: Final = 40
"""Most rows of the table; the JSON has all."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BarsReport:
    """A file of bars, its findings, and the bars that a model needs.

    Attributes:
        reading: The file that was read.
        calendar: Calendar that its days were compared with.
        findings: Of each symbol.
        needs: Bars needed by a model with default settings.
        mixed_exchanges: The exchanges of the symbols if they have no common calendar; else empty.
    """

    reading: BarReading
    calendar: SessionCalendar
    findings: tuple[SymbolFindings, ...]
    needs: BarRequirement
    mixed_exchanges: str


@with_flags
def check(
    *,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="Daily bars: a file, files with one symbol each, or a folder of files.",
            show_default=False,
        ),
    ],
    reading: ReadingFlags,
    calendar: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The exchange's code, such as XNYS, or 24/7: every day of the week; by default, the one that fits.",
        ),
    ] = "",
    fix: Annotated[
        Path | None,
        typer.Option(metavar="OUT.csv", help="Write a clean file, and OUT.csv.changes.txt with the changes."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Also write a page with closes and findings.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a file of bars is read, and warn about doubtful bars."""
    if fix is not None and fix.resolve() in {file.resolve() for file in files}:
        raise typer.BadParameter(f"--fix would overwrite {fix}; name another file")
    bars = read_files(files, reading.options)
    calendar, is_recognised = calendar or recognise_calendar(bars.panel), not calendar
    checked = check_bars(bars, calendar)
    changes = () if fix is None else _write_fixed(checked, fix)
    if plot is not None:
        write_bars_page(plot, bars, checked.findings, tuple(list_warnings(checked)))
    if as_json:
        write_json(encode_report(checked, changes))
        return
    console = Console(highlight=False)
    console.print(Text(str(bars), style="bold"), soft_wrap=True)
    if is_recognised and calendar:
        console.print(f"the dates fit the calendar {calendar}", markup=False, soft_wrap=True)
    console.print(build_table(checked))
    for change in changes:
        console.print(f"changed: {change}", markup=False, soft_wrap=True)
    if fix is not None:
        files, checked = [fix], check_bars(read_files([fix]), calendar)
    console.print(_suggest_next(checked, files, calendar), markup=False, soft_wrap=True)


def check_bars(reading: BarReading, calendar: str) -> BarsReport:
    """Compare bars with an exchange's calendar; an empty name means Monday to Friday."""
    days = reading.panel.sessions
    sessions = SessionCalendar.named(calendar, int(days[0]), int(days[-1]))
    findings = check_symbols(reading.panel, sessions)
    return BarsReport(
        reading=reading,
        calendar=sessions,
        findings=findings,
        needs=compute_needs(reading.panel, calendar),
        mixed_exchanges="" if calendar else describe_mixed_exchanges(reading.panel),
    )


def _write_fixed(checked: BarsReport, out: Path) -> tuple[str, ...]:
    """Write the clean file and the list of changes.

    Days without a session are dropped if all their bars repeat the bar before; prices, gaps and splits stay.
    """
    if out.suffix.lower() != ".csv":
        raise ConfigurationError(f"--fix writes CSV, so {out.name} must end in .csv")
    if out.exists():
        raise ConfigurationError(f"{out} exists already; nothing is overwritten: choose another --fix")
    check_file(out)
    reading, copies = checked.reading, _find_copied_days(checked)
    columns = ",".join(("symbol", "date", *reading.panel.columns))
    changes = (
        f"layout: {reading.layout} ({reading.prices}) to plain CSV in UTF-8, {columns}",
        *reading.remarks,
        *reading.warnings,
        *(f"dropped {format_date(day)}: no session, and its bars repeat those of the day before" for day in copies),
    )
    reading.panel.without_sessions(copies).write_csv(out)
    replace_file(out.with_name(out.name + CHANGES), "".join(f"{change}\n" for change in changes).encode())
    return changes


def _find_copied_days(checked: BarsReport) -> list[int]:
    """Days, yyyymmdd, that are not sessions and on which every bar repeats the bar before."""
    without_session = {int(day) for finding in checked.findings for day in finding.without_session}
    return sorted(
        day
        for day in without_session
        if all(day in finding.repeated for finding in checked.findings if day in finding.without_session)
    )


def _suggest_next(checked: BarsReport, files: Sequence[Path], calendar: str) -> str:
    """The suggested next command."""
    exchange = ("--calendar", calendar) if calendar else ()
    without_session = {int(day) for finding in checked.findings for day in finding.without_session}
    if without_session and without_session == {*_find_copied_days(checked)}:
        clean = files[0].with_name(f"{get_file_stem(files[0])}.clean.csv")
        return f"Next: {quantra('check', *files, *exchange, '--fix', clean)}"
    if without_session:
        return f"Next: {quantra('check', *files, '--calendar', EVERY_DAY if not calendar else 'NAME')}"
    if checked.needs.refusal:
        return f"Too few bars to train on: {checked.needs.refusal}"
    if checked.mixed_exchanges:
        return "Next: check the files of each exchange separately"
    features = () if (checked.reading.panel.volume > 0).any() else ("--features", "prices")
    words = ("train", "stock", "--bars", *files, *exchange, "--model", "lstm", *features, "--out", "models/mine/1")
    return f"Next: {quantra(*words)}"


def build_table(checked: BarsReport) -> RenderableType:
    """A row per symbol, and a line per warning."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("symbol", "first", "last"):
        table.add_column(name, no_wrap=True)
    for name in ("bars", "windows", "gaps"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("close", no_wrap=True)
    for row, symbol_findings in enumerate(checked.findings[:MAX_SYMBOLS]):
        table.add_row(
            Text(symbol_findings.symbol),
            format_date(symbol_findings.first) if symbol_findings.first else "",
            format_date(symbol_findings.last) if symbol_findings.last else "",
            f"{symbol_findings.bars:,}",
            f"{symbol_findings.windows(checked.needs):,}",
            f"{len(symbol_findings.gaps):,}" if len(symbol_findings.gaps) else "",
            draw_sparkline(checked.reading.panel.close[row]),
        )
    return Group(table, *(Text(line) for line in list_warnings(checked)))


def list_warnings(checked: BarsReport) -> Iterator[str]:
    """Warnings, one per line, after the number of bars that a forecast needs."""
    omitted = len(checked.findings) - MAX_SYMBOLS
    if omitted > 0:
        yield f"{omitted} more symbols; --json has them all"
    yield (
        f"A model with the default settings needs {checked.needs.bars} bars per forecast. Windows are "
        f"forecasts whose outcome is known, up to {checked.needs.reach} sessions ahead."
    )
    if checked.mixed_exchanges:
        yield checked.mixed_exchanges
    calendar = checked.calendar.name if checked.calendar.is_exchange else "Monday to Friday"
    for finding in checked.findings[:MAX_SYMBOLS]:
        kinds = (
            (f"no bar, though {calendar} has a session", finding.gaps),
            (f"a bar, though {calendar} has no session", finding.without_session),
            ("the same bar as the day before", finding.repeated),
            ("no trade (prices repeat the close before, volume 0)", finding.untraded),
            (_describe_share(finding, "a volume of 0", finding.without_volume), finding.without_volume),
            (_describe_share(finding, "an empty volume", finding.unknown_volume), finding.unknown_volume),
        )
        for kind, days in kinds:
            if len(days):
                yield f"{finding.symbol}: {kind}: {_format_days(days)}"
        close = checked.reading.panel.close[checked.reading.panel.symbols.index(finding.symbol)]
        if finding.bars > 1 and np.nanmin(close) == np.nanmax(close):
            yield f"{finding.symbol}: the close never changes; a model cannot learn from it"
        yield from map(str, finding.suspects)
        yield from finding.jumps.lines()


def _describe_share(symbol_findings: SymbolFindings, finding: str, days: NDArray[np.int32]) -> str:
    """The finding, with the share of its days if it is large."""
    share = len(days) / max(symbol_findings.bars, 1)
    return finding if share < LARGE_SHARE else f"{finding} on {share:.0%} of days"


def _format_days(days: NDArray[np.int32]) -> str:
    omitted = len(days) - MAX_LISTED_DAYS
    return ", ".join(format_date(int(day)) for day in days[:MAX_LISTED_DAYS]) + (
        f" and {omitted} more" if omitted > 0 else ""
    )


def encode_report(checked: BarsReport, changes: Sequence[str]) -> dict[str, Json]:
    """The whole report as JSON."""
    reading = checked.reading
    return {
        "file": reading.name,
        "layout": reading.layout,
        "prices": reading.prices,
        "first": int(reading.panel.sessions[0]),
        "last": int(reading.panel.sessions[-1]),
        "calendar": checked.calendar.name,
        "bars_needed": checked.needs.bars,
        "remarks": list(reading.remarks),
        "warnings": list(reading.warnings),
        "symbols": [
            {
                "symbol": finding.symbol,
                "bars": finding.bars,
                "first": finding.first,
                "last": finding.last,
                "windows": finding.windows(checked.needs),
                "gaps": finding.gaps.tolist(),
                "without_session": finding.without_session.tolist(),
                "repeated": finding.repeated.tolist(),
                "without_volume": finding.without_volume.tolist(),
                "unknown_volume": finding.unknown_volume.tolist(),
                "untraded": finding.untraded.tolist(),
                "suspect_bars": list(map(str, finding.suspects)),
                "suspected_splits": list(finding.jumps.lines()),
            }
            for finding in checked.findings
        ],
        "changes": list(changes),
    }

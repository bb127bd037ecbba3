"""The commands `quantra ledger verify`, `show` and `export`."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from predictor.bars import BarPanel
from predictor.cli.options import AsJson
from predictor.cli.output import write_json
from predictor.errors import LedgerError, MissingPackageError, format_date
from predictor.evidence import Lamp
from predictor.ledger import SESSION_COLUMNS, TIME_COLUMNS, Ledger, LedgerRow, LedgerTable, Receipt
from predictor.model_health import list_newest_evidence
from predictor.replacement import check_folder, replace_file

if TYPE_CHECKING:
    import polars as pl

LedgerArgument = Annotated[
    str,
    typer.Argument(metavar="LEDGER", help="Its file, or postgresql://user@host/database.", show_default=False),
]

_MODELS: Final = """
select f.model, f.version, f.role, count(distinct f.id) as forecasts, min(f.as_of) as first, max(f.as_of) as last,
    count(s.id) as scored, count(l.id) - count(s.id) as unscorable, avg(s.pinball) as pinball,
    avg(cast(s.is_inside as real)) as inside
from forecast f left join label l on l.forecast = f.id and l.revision = 0
    left join score s on s.forecast = l.forecast and s.horizon = l.horizon and s.revision = 0
group by f.model, f.version, f.role order by f.model, f.version, f.role
"""
_EVIDENCE: Final = ("model", "version", "monitor", "horizon", "session", "lamp")
_EVENTS: Final = """
select batch, kind, model, version, session, reason from
    (select * from event order by id desc limit ?) as newest order by id
"""
_ONLY_IN_JSON: Final = {"version", "first"}
"""Columns that do not fit into a terminal; the model's name includes the version."""
_HEADINGS: Final = {"forecasts": "made", "unscorable": "no score"}
"""Shorter names of columns, so that 80 characters suffice."""
_COLOURS: Final = {Lamp.GREEN: "green", Lamp.AMBER: "yellow", Lamp.RED: "red", Lamp.LEARNING: "dim"}


def verify(
    *,
    ledger: LedgerArgument,
    receipt: Annotated[
        str, typer.Option(metavar="BATCH:HASH", help="An earlier receipt, which shows whether batches were cut off.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Check that no row of a ledger was changed or removed; prints the receipt of its last batch.

    Without a receipt, a ledger whose last batches were cut off, or that was written anew, looks right.
    """
    expected = Receipt.from_text(receipt) if receipt else None
    with Ledger.open(ledger) as opened:
        verification = opened.verify(expected)
        if verification.problem:
            good = f"the last right one is batch {verification.receipt.batch}; restore the ledger from a backup"
            raise LedgerError(f"{ledger}: {verification.problem}; {good}", metadata={"file": ledger})
        if as_json:
            write_json({"ledger": opened.id, "rows": verification.rows, "receipt": str(verification.receipt)})
            return
        typer.echo(f"{ledger}: {verification.rows} rows up to batch {verification.receipt.batch}, none was changed")
        typer.echo(f"receipt: {verification.receipt}")


def show(
    *,
    ledger: LedgerArgument,
    events: Annotated[int, typer.Option(metavar="N", min=0, help="The number of last events.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show the forecasts and scores of each model in a ledger, its lamps, and the last events."""
    with Ledger.open(ledger) as opened:
        span = opened.query("select count(distinct symbol) as symbols, min(first_session) as first from bar")[0]
        models = _convert_rows(opened.query(_MODELS))
        evidence = sorted(
            ({name: getattr(record, name) for name in _EVIDENCE} for record in list_newest_evidence(opened)),
            key=lambda row: (row["model"], row["version"], row["monitor"], row["horizon"]),
        )
        happened = _convert_rows(opened.query(_EVENTS, (events,)))
        summary = {
            "ledger": opened.id,
            "receipt": str(opened.receipt),
            "symbols": span["symbols"],
            "first_session": span["first"] or 0,
            "last_session": (last := opened.last_session),
        }
    if as_json:
        write_json({**summary, "models": models, "evidence": evidence, "events": happened})
        return
    console = Console(highlight=False)
    days = f", {format_date(span['first'])} to {format_date(last)}" if span["first"] else ""
    console.print(Text(f"{ledger}: bars of {span['symbols']} symbols{days}", style="bold"), soft_wrap=True)
    for title, rows in (("forecasts", models), ("evidence", evidence), ("events", happened)):
        if rows:
            console.print(_make_table(title, rows))
        elif title == "forecasts":
            console.print("no forecast is recorded")


def _convert_rows(rows: Sequence[LedgerRow]) -> list[dict[str, Any]]:
    return [dict(row) for row in rows]


def _make_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=Text(f"\n{title}"), title_justify="left", title_style="bold", box=None, pad_edge=False)
    names = [name for name in rows[0] if name not in _ONLY_IN_JSON]
    for name in names:
        is_text = isinstance(rows[0][name], str)
        heading, is_long = _HEADINGS.get(name, name), name in {"model", "monitor", "reason"}
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=not is_long, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_format_cell(name, row), style=_choose_style(name, row[name])) for name in names))
    return table


def _choose_style(name: str, value: object) -> str:
    return _COLOURS[Lamp(str(value))] if name == "lamp" else ""


def _format_cell(name: str, row: Mapping[str, Any]) -> str:
    value = row[name]
    if value is None:
        return "-"
    if name == "model":
        return f"{value}@{row['version']}" if value else "-"
    if name in {"first", "last", "session"}:
        return format_date(value) if value else "-"
    if name == "inside":
        return f"{100 * value:.1f} %"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def export(
    *,
    ledger: LedgerArgument,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the files; made if need be.")],
    as_json: AsJson = False,
) -> None:
    """Write the tables of a ledger as Parquet files: bars, forecasts, scores, evidence, events and requests.

    Needs the extra `data`. Of bars that were revised, the newest version is written.
    """
    check_folder(out)
    with Ledger.open(ledger) as opened:
        tables = {str(table): opened.columns(table) for table in LedgerTable}
        if opened.last_session:
            tables["bars"] = _list_bar_columns(opened.panel())
    rows: dict[str, int] = {}
    for name, columns in tables.items():
        frame = _make_frame(columns)
        content = BytesIO()
        frame.write_parquet(content)
        out.mkdir(parents=True, exist_ok=True)
        replace_file(out / f"{name}.parquet", content.getvalue())
        rows[name] = frame.height
    if as_json:
        write_json({"folder": str(out), "rows": rows})
    else:
        typer.echo(f"Wrote {out}: " + ", ".join(f"{count} {name}" for name, count in rows.items()))


def _list_bar_columns(panel: BarPanel) -> dict[str, list[object]]:
    """One row per bar."""
    rows, places = np.nonzero(panel.present)
    columns: dict[str, list[object]] = {
        "symbol": [panel.symbols[row] for row in rows],
        "session": panel.sessions[places].tolist(),
    }
    return columns | {name: getattr(panel, name)[rows, places].tolist() for name in panel.columns}


def _make_frame(columns: Mapping[str, Sequence[object]]) -> "pl.DataFrame":
    """A DataFrame of polars, in which sessions are days and times are in UTC."""
    try:
        import polars as pl
    except ImportError as error:
        raise MissingPackageError.of("polars", "data", "a Parquet file") from error
    days = [
        pl.col(name).cast(pl.String).str.to_date("%Y%m%d", strict=False) for name in SESSION_COLUMNS & columns.keys()
    ]
    times = [pl.col(name).cast(pl.Datetime("ns", "UTC")) for name in TIME_COLUMNS & columns.keys()]
    return pl.DataFrame(columns, infer_schema_length=None).with_columns([*days, *times])

"""An audit for a terminal."""

from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from predictor.audit_record import AuditRecord, AuditVerdict
from predictor.errors import shown_date

_COLOURS: Final = {AuditVerdict.PASS: "green", AuditVerdict.UNDECIDED: "yellow", AuditVerdict.FAIL: "red"}


def audit_table(record: AuditRecord) -> RenderableType:
    """Every check with its verdict and numbers."""
    span = f"{shown_date(record.first_session)} to {shown_date(record.last_session)}"
    table = Table(title=Text(f"\naudit, {span}"), title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in ("", "check", "found"):
        table.add_column(name)
    for check in record.checks:
        table.add_row(Text(check.verdict.value, style=_COLOURS[check.verdict]), Text(check.name), Text(check.sentence))
    verdict = Text(f"{record.told}: {record.verdict.value}", style=_COLOURS[record.verdict])
    return Group(
        table,
        "",
        verdict,
        Text(f"{record.measured}.", style="dim"),
        *(Text(f"warning: {warning}", style="yellow") for warning in record.warnings),
        *(Text(f"note: {note}", style="dim") for note in record.notes),
    )

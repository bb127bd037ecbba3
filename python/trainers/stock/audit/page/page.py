"""The page: every part put into its place, and written whole."""

from pathlib import Path
from typing import Final

from predictor.audit_record import AuditRecord, AuditVerdict
from predictor.replacement import replace_file
from predictor.report import page_template
from predictor.skill import Verdict
from trainers.stock.audit.page.grids import lag_grid, permutation_grid, trial_grid
from trainers.stock.audit.permutation import leak_that_shows

_LOOKS: Final = {
    AuditVerdict.PASS: Verdict.BETTER,
    AuditVerdict.UNDECIDED: Verdict.UNDECIDED,
    AuditVerdict.FAIL: Verdict.WORSE,
}


def write_audit_page(path: Path, name: str, record: AuditRecord) -> None:
    """Write the page, whole or not at all, in place of an older one.

    Args:
        path: the HTML file.
        name: what was audited, such as `demo/1`.
        record: the audit.

    Raises:
        MissingPackageError: jinja2 is not installed.
        OSError: the file cannot be written.
    """
    replace_file(path, render_audit(name, record).encode())


def render_audit(name: str, record: AuditRecord) -> str:
    """The page as HTML text; the same audit gives the same text."""
    return page_template("trainers.stock.audit.page", "page").render(
        name=name,
        audit=record,
        look=_LOOKS[record.verdict],
        permutations=permutation_grid(record),
        leak_that_shows=leak_that_shows(record.permutation.error),
        lags=lag_grid(record),
        trials=trial_grid(record),
        plotly_js="",
    )

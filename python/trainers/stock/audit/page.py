"""HTML page of an audit, in one self-contained file."""

from pathlib import Path
from typing import Final

from predictor.audit_record import AuditRecord, AuditVerdict
from predictor.replacement import replace_file
from predictor.report import PageBuilder, ReportTable, TableCell, TableRow, number_cell
from predictor.skill import Verdict
from trainers.stock.audit.findings import findings
from trainers.stock.audit.permutation import leak_that_shows

_LOOKS: Final = {
    AuditVerdict.PASS: Verdict.BETTER,
    AuditVerdict.UNDECIDED: Verdict.UNDECIDED,
    AuditVerdict.FAIL: Verdict.WORSE,
}


def write_audit_page(path: Path, name: str, record: AuditRecord) -> None:
    """Write the page atomically.

    Args:
        path: The HTML file.
        name: Name of the model, such as `demo/1`.
        record: The audit.

    Raises:
        MissingPackageError: jinja2 is not installed.
        OSError: The file cannot be written.
    """
    replace_file(path, render_audit(name, record).encode())


def render_audit(name: str, record: AuditRecord) -> str:
    """The page as deterministic HTML."""
    return PageBuilder("trainers.stock.audit").render(
        {
            "name": name,
            "audit": record,
            "findings": findings(record),
            "look": _LOOKS[record.verdict],
            "permutations": permutation_grid(record),
            "leak_that_shows": leak_that_shows(record.permutation.error),
            "lags": lag_grid(record),
            "trials": trial_grid(record),
        }
    )


def permutation_grid(record: AuditRecord) -> ReportTable:
    """Skill of the model and of each model trained on shuffled labels."""
    check = record.permutation
    shuffled = (
        TableRow(name=f"shuffled labels {k}", cells=(_percent(skill),))
        for k, skill in enumerate(check.permuted, start=1)
    )
    mean = TableRow(name="their mean", cells=(_percent(check.mean, check.error),))
    return ReportTable(
        columns=("skill",),
        lines=(TableRow(name="true labels", cells=(_percent(check.skill),), is_model=True), *shuffled, mean),
    )


def lag_grid(record: AuditRecord) -> ReportTable:
    """Skill, rank correlation and Sharpe ratio, one line per lag."""
    return ReportTable(
        columns=("skill", "IC", "Sharpe before costs"),
        lines=tuple(
            TableRow(
                name=f"lag {row.lag}",
                cells=(
                    _percent(row.skill, row.skill_error),
                    _ratio(row.ic, row.ic_error, digits=3),
                    _ratio(row.sharpe, row.sharpe_error),
                ),
            )
            for row in record.lags.rows
        ),
    )


def trial_grid(record: AuditRecord) -> ReportTable:
    """The Sharpe ratio, that of the luckiest trial, and the probabilities to exceed them."""
    check = record.trials
    cells = (
        number_cell(check.trials, "{:,}".format),
        _ratio(check.sharpe),
        _ratio(check.expected_best),
        number_cell(check.probabilistic, "{:.2f}".format),
        number_cell(check.deflated, "{:.2f}".format),
    )
    columns = ("trials", "Sharpe after costs", "luckiest trial's", "above 0", "above the luckiest")
    return ReportTable(columns=columns, lines=(TableRow(name="strategy", cells=cells),))


def _percent(share: float, error: float | None = None) -> TableCell:
    beside = "" if error is None else f"± {100 * error:.2f} %"
    return number_cell(share, lambda share: f"{100 * share:+.2f} %", beside=beside)


def _ratio(value: float | None, error: float | None = None, *, digits: int = 2) -> TableCell:
    beside = "" if error is None else f"± {error:.{digits}f}"
    return number_cell(value, f"{{:+.{digits}f}}".format, beside=beside)

"""HTML page of an audit, in one self-contained file."""

from typing import Final

from predictor.audit_record import AuditRecord, AuditVerdict, LagRow
from predictor.errors import format_count
from predictor.report import PageBuilder, ReportTable, TableCell, TableRow, make_number_cell
from predictor.skill import Verdict
from trainers.stock.audit.checks import detectable_leak


def describe_findings(record: AuditRecord) -> tuple[str, str, str]:
    """Sentences on leaks, on skill at later lags, and on trading."""
    return _describe_leak(record), _describe_use(record), _describe_trading(record)


def _describe_leak(record: AuditRecord) -> str:
    future, permutation = record.future, record.permutation
    left = f"{_format_signed_percent(permutation.mean)} ± {100 * permutation.error:.2f} %"
    if future.verdict is AuditVerdict.FAIL:
        return "Forecasts depend on bars of later sessions: the model sees the future, and its numbers are meaningless."
    if permutation.verdict is AuditVerdict.FAIL:
        return f"Training on shuffled labels left a skill of {left}: there is a leak, and the numbers are meaningless."
    context = (
        f"No forecast changed at {format_count(len(future.sessions), 'session')} where all later bars were replaced by "
        "noise, and training on shuffled labels"
    )
    if permutation.verdict is AuditVerdict.UNDECIDED:
        return f"{context} left a skill of {left}, which is too uncertain to exclude a leak."
    return f"{context} left a skill of {left}, as expected without a leak."


def _describe_use(record: AuditRecord) -> str:
    """Skill at the close of the forecast, and at the next, when one can trade on it."""
    rows = {row.lag: row for row in record.lags.rows}
    first, *others = (rows[lag] for lag in sorted(rows))
    later = others[0] if others else first
    verdicts = {
        AuditVerdict.PASS: "so one can act on it",
        AuditVerdict.FAIL: "so it is gone before one can act",
        AuditVerdict.UNDECIDED: "which does not show that any is left to act on",
    }
    return (
        f"Against {record.lags.yardstick} the skill is {_format_skill(first)}, and {_format_skill(later)} when one "
        f"acts {format_count(later.lag, 'close')} later, {verdicts[record.lags.verdict]}."
    )


def _describe_trading(record: AuditRecord) -> str:
    costs, trials = record.costs, record.trials
    if costs.break_even_bps is None:
        return f"The strategy {costs.strategy} never trades on these forecasts, so its costs are unknown."
    ratio = "no Sharpe ratio" if trials.sharpe is None else f"a Sharpe ratio of {trials.sharpe:+.2f}"
    return (
        f"The strategy {costs.strategy} breaks even at {costs.break_even_bps:.1f} basis points a trade and was charged "
        f"{costs.charged_bps:g}, which left {ratio} a year; the luckiest of {format_count(trials.trials, 'trial')} "
        f"without skill would show {trials.expected_best:+.2f}."
    )


def _format_skill(row: LagRow) -> str:
    return f"{_format_signed_percent(row.skill)} ± {100 * row.skill_error:.2f} %"


def _format_signed_percent(share: float) -> str:
    """In percent with its sign; zero has a plus."""
    return f"{round(100 * share, 2) + 0.0:+.2f} %"


_LOOKS: Final = {
    AuditVerdict.PASS: Verdict.BETTER,
    AuditVerdict.UNDECIDED: Verdict.UNDECIDED,
    AuditVerdict.FAIL: Verdict.WORSE,
}


def render_audit(name: str, record: AuditRecord) -> str:
    """The page as deterministic HTML; raises MissingPackageError without the packages of pages."""
    return PageBuilder("trainers.stock.audit").render(
        {
            "name": name,
            "audit": record,
            "findings": describe_findings(record),
            "look": _LOOKS[record.verdict],
            "permutations": build_permutation_table(record),
            "leak_that_shows": detectable_leak(record.permutation.error),
            "lags": build_lag_table(record),
            "trials": build_trial_table(record),
        }
    )


def build_permutation_table(record: AuditRecord) -> ReportTable:
    """Skill of the model and of each model trained on shuffled labels."""
    check = record.permutation
    shuffled = (
        TableRow(name=f"shuffled labels {k}", cells=(_build_percent_cell(skill),))
        for k, skill in enumerate(check.permuted, start=1)
    )
    mean = TableRow(name="their mean", cells=(_build_percent_cell(check.mean, check.error),))
    return ReportTable(
        columns=("skill",),
        lines=(TableRow(name="true labels", cells=(_build_percent_cell(check.skill),), is_model=True), *shuffled, mean),
    )


def build_lag_table(record: AuditRecord) -> ReportTable:
    """Skill, rank correlation and Sharpe ratio, one line per lag."""
    return ReportTable(
        columns=("skill", "IC", "Sharpe before costs"),
        lines=tuple(
            TableRow(
                name=f"lag {row.lag}",
                cells=(
                    _build_percent_cell(row.skill, row.skill_error),
                    _build_ratio_cell(row.ic, row.ic_error, digits=3),
                    _build_ratio_cell(row.sharpe, row.sharpe_error),
                ),
            )
            for row in record.lags.rows
        ),
    )


def build_trial_table(record: AuditRecord) -> ReportTable:
    """The Sharpe ratio, that of the luckiest trial, and the probabilities to exceed them."""
    check = record.trials
    cells = (
        make_number_cell(check.trials, "{:,}".format),
        _build_ratio_cell(check.sharpe),
        _build_ratio_cell(check.expected_best),
        make_number_cell(check.probabilistic, "{:.2f}".format),
        make_number_cell(check.deflated, "{:.2f}".format),
    )
    columns = ("trials", "Sharpe after costs", "luckiest trial's", "above 0", "above the luckiest")
    return ReportTable(columns=columns, lines=(TableRow(name="strategy", cells=cells),))


def _build_percent_cell(share: float, error: float | None = None) -> TableCell:
    note = "" if error is None else f"± {100 * error:.2f} %"
    return make_number_cell(share, lambda share: f"{100 * share:+.2f} %", note=note)


def _build_ratio_cell(value: float | None, error: float | None = None, *, digits: int = 2) -> TableCell:
    note = "" if error is None else f"± {error:.{digits}f}"
    return make_number_cell(value, f"{{:+.{digits}f}}".format, note=note)

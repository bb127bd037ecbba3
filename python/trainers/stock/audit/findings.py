"""What an audit found, in three plain sentences for whoever reads no further."""

from predictor.audit_record import AuditRecord, AuditVerdict, LagRow


def findings(record: AuditRecord) -> tuple[str, str, str]:
    """Whether the model knows the future, whether its skill can be used, and what trading left; from the checks alone.

    Every sentence is true for any skill, none included.
    """
    return _leak(record), _use(record), _trading(record)


def _leak(record: AuditRecord) -> str:
    future, permutation = record.future, record.permutation
    left = f"{_percent(permutation.mean)} ± {100 * permutation.error:.2f} %"
    if future.verdict is AuditVerdict.FAIL:
        return "Forecasts change with bars of later sessions: the model knows the future, and its numbers mean nothing."
    if permutation.verdict is AuditVerdict.FAIL:
        return f"Training on shuffled labels left a skill of {left}: something leaks, and the numbers mean nothing."
    days = "1 session" if len(future.sessions) == 1 else f"{len(future.sessions)} sessions"
    found = (
        f"No forecast changed at {days} where all later bars were replaced by noise, and training on shuffled labels"
    )
    if permutation.verdict is AuditVerdict.UNDECIDED:
        return f"{found} left a skill of {left}, which is too uncertain to exclude a leak."
    return f"{found} left a skill of {left}, as it must where nothing leaks."


def _use(record: AuditRecord) -> str:
    """Skill at the close that a forecast is made from, and at the next, when somebody can act on it."""
    rows = {row.lag: row for row in record.lags.rows}
    first, *others = (rows[lag] for lag in sorted(rows))
    later = others[0] if others else first
    said = {
        AuditVerdict.PASS: "so it can be acted on",
        AuditVerdict.FAIL: "so it is gone before anybody can act",
        AuditVerdict.UNDECIDED: "so it is not shown that anything is left to act on",
    }
    return (
        f"Against {record.lags.yardstick} the skill is {_skill(first)}, and {_skill(later)} when one acts "
        f"{'1 close' if later.lag == 1 else f'{later.lag} closes'} later, {said[record.lags.verdict]}."
    )


def _trading(record: AuditRecord) -> str:
    costs, trials = record.costs, record.trials
    if costs.break_even_bps is None:
        return f"The strategy {costs.strategy} never trades on these forecasts, so nothing can be said of its costs."
    ratio = "no Sharpe ratio" if trials.sharpe is None else f"a Sharpe ratio of {trials.sharpe:+.2f}"
    tried = "1 trial" if trials.trials == 1 else f"{trials.trials} trials"
    return (
        f"The strategy {costs.strategy} breaks even at {costs.break_even_bps:.1f} basis points a trade and was charged "
        f"{costs.charged_bps:g}, which left {ratio} a year; the luckiest of {tried} without skill would show "
        f"{trials.expected_best:+.2f}."
    )


def _skill(row: LagRow) -> str:
    return f"{_percent(row.skill)} ± {100 * row.skill_error:.2f} %"


def _percent(share: float) -> str:
    """With its sign; what rounds to zero has a plus."""
    return f"{round(100 * share, 2) + 0.0:+.2f} %"

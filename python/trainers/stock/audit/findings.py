"""Summary of an audit in three sentences."""

from predictor.audit_record import AuditRecord, AuditVerdict, LagRow


def findings(record: AuditRecord) -> tuple[str, str, str]:
    """Sentences on leaks, on skill at later lags, and on trading."""
    return _leak(record), _use(record), _trading(record)


def _leak(record: AuditRecord) -> str:
    future, permutation = record.future, record.permutation
    left = f"{_percent(permutation.mean)} ± {100 * permutation.error:.2f} %"
    if future.verdict is AuditVerdict.FAIL:
        return "Forecasts depend on bars of later sessions: the model sees the future, and its numbers are meaningless."
    if permutation.verdict is AuditVerdict.FAIL:
        return f"Training on shuffled labels left a skill of {left}: there is a leak, and the numbers are meaningless."
    days = "1 session" if len(future.sessions) == 1 else f"{len(future.sessions)} sessions"
    found = (
        f"No forecast changed at {days} where all later bars were replaced by noise, and training on shuffled labels"
    )
    if permutation.verdict is AuditVerdict.UNDECIDED:
        return f"{found} left a skill of {left}, which is too uncertain to exclude a leak."
    return f"{found} left a skill of {left}, as expected without a leak."


def _use(record: AuditRecord) -> str:
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
        f"Against {record.lags.yardstick} the skill is {_skill(first)}, and {_skill(later)} when one acts "
        f"{'1 close' if later.lag == 1 else f'{later.lag} closes'} later, {verdicts[record.lags.verdict]}."
    )


def _trading(record: AuditRecord) -> str:
    costs, trials = record.costs, record.trials
    if costs.break_even_bps is None:
        return f"The strategy {costs.strategy} never trades on these forecasts, so its costs are unknown."
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
    """In percent with its sign; zero has a plus."""
    return f"{round(100 * share, 2) + 0.0:+.2f} %"

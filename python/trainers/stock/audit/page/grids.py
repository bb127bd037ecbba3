"""The numbers of an audit's checks, as tables."""

from typing import Final

from predictor.audit_record import AuditRecord
from predictor.report import Cell, Grid, Line

_NOTHING: Final = "–"  # noqa: RUF001 - no minus: there is no number


def permutation_grid(record: AuditRecord) -> Grid:
    """The skill of the model, and of each one that was trained on shuffled labels."""
    check = record.permutation
    shuffled = (
        Line(name=f"shuffled labels {k}", cells=(_percent(skill),)) for k, skill in enumerate(check.permuted, start=1)
    )
    mean = Line(name="their mean", cells=(_percent(check.mean, check.error),))
    return Grid(
        columns=("skill",),
        lines=(Line(name="true labels", cells=(_percent(check.skill),), is_model=True), *shuffled, mean),
    )


def lag_grid(record: AuditRecord) -> Grid:
    """Skill, rank correlation and Sharpe ratio, one line a lag."""
    return Grid(
        columns=("skill", "IC", "Sharpe before costs"),
        lines=tuple(
            Line(
                name=f"lag {row.lag}",
                cells=(
                    _percent(row.skill, row.skill_error),
                    _number(row.ic, row.ic_error, digits=3),
                    _number(row.sharpe, row.sharpe_error),
                ),
            )
            for row in record.lags.rows
        ),
    )


def trial_grid(record: AuditRecord) -> Grid:
    """The Sharpe ratio beside that of the luckiest trial, and the probabilities of being above."""
    check = record.trials
    cells = (
        Cell(value=check.trials, text=f"{check.trials:,}"),
        _number(check.sharpe),
        _number(check.expected_best),
        _probability(check.probabilistic),
        _probability(check.deflated),
    )
    columns = ("trials", "Sharpe after costs", "luckiest trial's", "above 0", "above the luckiest")
    return Grid(columns=columns, lines=(Line(name="strategy", cells=cells),))


def _probability(value: float | None) -> Cell:
    return Cell(value=value, text=_NOTHING if value is None else f"{value:.2f}")


def _percent(share: float, error: float | None = None) -> Cell:
    beside = "" if error is None else f"± {100 * error:.2f} %"
    return Cell(value=share, text=f"{100 * share:+.2f} %", beside=beside)


def _number(value: float | None, error: float | None = None, *, digits: int = 2) -> Cell:
    if value is None:
        return Cell(value=None, text=_NOTHING)
    return Cell(value=value, text=f"{value:+.{digits}f}", beside="" if error is None else f"± {error:.{digits}f}")

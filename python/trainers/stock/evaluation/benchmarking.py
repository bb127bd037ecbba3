"""A model among the baselines, on the same windows and from the same information."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from predictor.arrays import FloatArray
from trainers.progress import Stepwise, unwatched
from trainers.stock.evaluation.baselines import (
    BaselineModel,
    BaselinePlan,
    Fit,
    InformationSet,
    MeasuredWindows,
    NoForecastError,
    Replaced,
)
from trainers.stock.evaluation.comparison import Contest, SkillScore, pinball
from trainers.stock.evaluation.evaluation_set import EvaluationSet
from trainers.stock.evaluation.forecasts import Forecasts
from trainers.stock.evaluation.scores import ModelScores, Role, score

MOST_NAMED: Final = 5
"""Symbols that a note names; of the others it gives the number."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BenchmarkResult:
    """A model's scores and those of the baselines."""

    rows: tuple[ModelScores, ...]
    """The model first, then the baselines as they were made."""
    best: FloatArray
    """[N, H] pinball losses of the best baseline."""
    skill: SkillScore
    notes: tuple[str, ...]
    """The notes on the baselines, those that are left out included."""


def _unheard(_name: str, _losses: FloatArray) -> None:
    """Nobody listens."""


def benchmark(
    test: EvaluationSet,
    name: str,
    ours: Forecasts,
    case: InformationSet,
    plan: BaselinePlan,
    *,
    hear: Callable[[str, FloatArray], None] = _unheard,
    stepwise: Stepwise = unwatched,
) -> BenchmarkResult:
    """Score a model's forecasts and the baselines; only one baseline's forecasts are held at a time.

    Every row is scored on all of the windows: a baseline that cannot forecast one of them is left out, with a note.

    Args:
        test: the windows.
        name: of the model's row.
        ours: its forecasts of them.
        case: what the model was made from.
        plan: the baselines.
        hear: told the name and the losses [N, H] of each baseline's row, which are dropped afterwards.
        stepwise: shows which baseline is being fitted and scored.
    """
    rows = [score(test, ours.calibrated, name=name, role=Role.MODEL, ranking=ours.scores)]
    contest = Contest(test, pinball(test, ours.calibrated), among="baselines")
    asked, notes = MeasuredWindows.of(case.history, test.windows), list[str]()
    for baseline, fit in stepwise(tuple(plan.rows), title="scoring", tell=lambda row: row[0].named(row[1])):
        try:
            row, losses, replaced = _row(test, asked, case, baseline, fit)
        except NoForecastError as error:
            notes.append(f"{baseline.named(fit)} is left out: {error}")
            continue
        rows.append(row)
        contest.add(row.name, losses)
        hear(row.name, losses)
        notes += _replaced_note(row.name, replaced, test, case.history.bars.symbols)
    return BenchmarkResult(rows=tuple(rows), best=contest.best_losses, skill=contest.skill, notes=(*notes, *plan.notes))


def _row(
    test: EvaluationSet, asked: MeasuredWindows, case: InformationSet, baseline: BaselineModel, fit: Fit
) -> tuple[ModelScores, FloatArray, Replaced | None]:
    """Scores and losses [N, H] of a baseline's forecasts, and which symbols have another's instead."""
    fitted = case.fitted(baseline, fit)
    forecasts = fitted.forecasts(asked)
    row = score(test, forecasts, name=baseline.named(fit), role=Role.BASELINE, fit=fit)
    return row, pinball(test, forecasts), fitted.replaced


def _replaced_note(name: str, replaced: Replaced | None, test: EvaluationSet, symbols: tuple[str, ...]) -> list[str]:
    """One note for all of a row's symbols that have another baseline's forecasts; none where no judged one has."""
    if replaced is None:
        return []
    reasons = [f"{symbols[row]} ({replaced.why[row]})" for row in np.unique(test.symbols) if row in replaced.why]
    if not reasons:
        return []
    more = f" and {len(reasons) - MOST_NAMED} more" if len(reasons) > MOST_NAMED else ""
    return [f"{name} is the {replaced.by} instead for {', '.join(reasons[:MOST_NAMED])}{more}"]

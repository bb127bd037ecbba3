"""Scores of a model and of the baselines, on the same windows and with the same information."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from predictor.arrays import FloatArray
from trainers.progress import StepProgress, unwatched
from trainers.stock.evaluation.baselines import (
    BaselineModel,
    BaselinePlan,
    FitScope,
    InformationSet,
    MeasuredWindows,
    NoForecastError,
    ReplacedSymbols,
)
from trainers.stock.evaluation.comparison import ModelComparison, SkillScore, pinball
from trainers.stock.evaluation.evaluation_set import EvaluationSet
from trainers.stock.evaluation.forecasts import ModelForecasts
from trainers.stock.evaluation.scores import ModelScores, ScoreRole, score

MOST_NAMED: Final = 5
"""A note names so many symbols, and counts the others."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BenchmarkResult:
    """A model's scores and those of the baselines."""

    rows: tuple[ModelScores, ...]
    """The model first, then the baselines in the order of the plan."""
    best: FloatArray
    """[N, H] pinball losses of the best baseline."""
    skill: SkillScore
    notes: tuple[str, ...]
    """Why baselines are left out, and which symbols have substitutes."""


def _unheard(_name: str, _losses: FloatArray) -> None:
    """Ignore the losses."""


def benchmark(
    test: EvaluationSet,
    name: str,
    ours: ModelForecasts,
    case: InformationSet,
    plan: BaselinePlan,
    *,
    hear: Callable[[str, FloatArray], None] = _unheard,
    stepwise: StepProgress = unwatched,
) -> BenchmarkResult:
    """Score a model's forecasts and the baselines; only one baseline's forecasts are in memory at a time.

    All rows are scored on the same windows. A baseline that cannot forecast one of them is left out, with a note.

    Args:
        test: The windows.
        name: Name of the model's row.
        ours: The model's forecasts.
        case: The information that the model was made from.
        plan: The baselines.
        hear: Called with the name and the losses [N, H] of each baseline, which are dropped afterwards.
        stepwise: Shows which baseline is being fitted and scored.
    """
    rows = [score(test, ours.calibrated, name=name, role=ScoreRole.MODEL, ranking=ours.scores)]
    contest = ModelComparison(test, pinball(test, ours.calibrated), among="baselines")
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
    test: EvaluationSet, asked: MeasuredWindows, case: InformationSet, baseline: BaselineModel, fit: FitScope
) -> tuple[ModelScores, FloatArray, ReplacedSymbols | None]:
    """Scores and losses [N, H] of a baseline, and the symbols with substitutes."""
    fitted = case.fitted(baseline, fit)
    forecasts = fitted.forecasts(asked)
    row = score(test, forecasts, name=baseline.named(fit), role=ScoreRole.BASELINE, fit=fit)
    return row, pinball(test, forecasts), fitted.replaced


def _replaced_note(
    name: str, replaced: ReplacedSymbols | None, test: EvaluationSet, symbols: tuple[str, ...]
) -> list[str]:
    """At most one note, on the symbols whose forecasts come from another baseline."""
    if replaced is None:
        return []
    reasons = [f"{symbols[row]} ({replaced.why[row]})" for row in np.unique(test.symbols) if row in replaced.why]
    if not reasons:
        return []
    more = f" and {len(reasons) - MOST_NAMED} more" if len(reasons) > MOST_NAMED else ""
    return [f"{name} uses the {replaced.by} for {', '.join(reasons[:MOST_NAMED])}{more}"]

"""A model among the baselines, on the same windows."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainers.stock.evaluation.baselines import Case, Plan
from trainers.stock.evaluation.comparison import Skill, skill
from trainers.stock.evaluation.forecasts import Forecasts
from trainers.stock.evaluation.judged import Judged
from trainers.stock.evaluation.losses import pinball
from trainers.stock.evaluation.scores import ModelScores, Role, score

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """A model's scores and those of the baselines."""

    rows: tuple[ModelScores, ...]
    """The model first, then the baselines as they were made."""
    losses: Mapping[str, FloatArray]
    """[N, H] pinball losses of each row, by its name."""
    skill: Skill
    notes: tuple[str, ...]
    """What a reader must know about the baselines, those that are left out included."""


def standing(judged: Judged, name: str, ours: Forecasts, case: Case, plan: Plan) -> Standing:
    """Score a model's forecasts beside the baselines; only one baseline's forecasts are held at a time."""
    rows = [score(judged, ours.calibrated, name=name, role=Role.MODEL, ranking=ours.scores)]
    losses = {name: pinball(judged, ours.calibrated)}
    notes: list[str] = []
    for make in plan.makers:
        made = make(case)
        rows.append(score(judged, made.forecasts, name=made.name, role=Role.BASELINE))
        losses[made.name] = pinball(judged, made.forecasts)
        notes += made.notes
        del made  # before the next one is made
    others = {row.name: losses[row.name] for row in rows[1:]}
    return Standing(
        rows=tuple(rows),
        losses=losses,
        skill=skill(judged, losses[name], others),
        notes=(*notes, *plan.notes),
    )

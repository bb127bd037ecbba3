"""The result of an evaluation."""

from dataclasses import asdict, dataclass
from enum import Enum
from math import isfinite
from typing import Any

import numpy as np

from predictor.canonical import Json
from predictor.errors import shown_date
from predictor.networks import Target
from trainers.stock.data import History, TrainingWindows
from trainers.stock.evaluation.calibration import CalibrationEffect
from trainers.stock.evaluation.comparison import LossComparison, SkillScore
from trainers.stock.evaluation.scores import ModelScores, PitHistogram, SymbolScores
from trainers.stock.evaluation.seeds import SeedScores


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPeriod:
    """The evaluated forecasts; sessions are yyyymmdd."""

    seen_until: int
    """Last session that training, selection or calibration may have seen."""
    first: int
    """First decision day."""
    last: int
    days: int
    windows: int
    symbols: int

    @classmethod
    def of(cls, history: History, windows: TrainingWindows, seen: int) -> "EvaluationPeriod":
        """The decision days of these windows."""
        positions = np.unique(windows.positions)
        return cls(
            seen_until=seen,
            first=int(history.bars.sessions[positions[0]]),
            last=int(history.bars.sessions[positions[-1]]),
            days=len(positions),
            windows=len(windows),
            symbols=len(np.unique(windows.symbols)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEvaluation:
    """Scores of an artifact on held-out days."""

    unit: str
    """Unit of losses, such as log return."""
    target: Target
    levels: tuple[float, ...]
    days: EvaluationPeriod
    level: float
    """Share of resamples inside each interval."""
    method: str
    """Method of the intervals, as text."""
    correlated: str
    """Whether IC and RankIC compare symbols or days, as text."""
    rows: tuple[ModelScores, ...]
    """The model and the baselines, best first."""
    skill: SkillScore
    comparisons: tuple[LossComparison, ...]
    """The model against each baseline, best baseline first."""
    calibration: CalibrationEffect
    pit: tuple[PitHistogram, ...]
    """[H]"""
    by_symbol: tuple[SymbolScores, ...]
    seeds: SeedScores | None
    """None if no other seed was requested."""
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    """Warnings about the bars or the covariate files."""

    def __repr__(self) -> str:
        first, last = shown_date(self.days.first), shown_date(self.days.last)
        judged = f"{first} to {last}, {self.days.days} days, {self.days.symbols} symbols"
        return f"Evaluation({judged}: {self.skill.sentence})"

    def to_json(self) -> dict[str, Json]:
        """The evaluation as JSON; NaN and infinity become null."""
        return {**_plain(asdict(self)), "sentence": self.skill.sentence}


def _plain(value: Any) -> Any:
    """Convert nested values to JSON."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not isfinite(value):
        return None
    return value

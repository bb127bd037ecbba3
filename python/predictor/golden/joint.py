"""The golden instance of an ensemble: every member's own, and the forecast that they make together."""

import numpy as np

from predictor.artifact import MEMBERS, Golden, StoredEnsemble, inside
from predictor.artifact.manifest import GOLDEN_TEXT
from predictor.canonical import Json, Record
from predictor.errors import ArtifactError, QuantraError
from predictor.golden.bars import columns_of, made_up
from predictor.golden.covariates import arrays_of, categories_of, made_up_covariates, stored_covariates
from predictor.golden.instance import check, slack, stored_array, stored_bars
from predictor.golden.stages import LONG_AFTER, Question, Stages, forecast_stages
from predictor.golden.tolerance import Comparison, off
from predictor.instance import Instance
from predictor.model import Ensemble


def record_ensemble(ensemble: Ensemble) -> Golden:
    """Make the golden instance of an ensemble; its members bring theirs."""
    asked = _question(ensemble)
    arrays: Stages = {"bars.sessions": asked.bars.sessions}
    arrays |= {f"bars.{name}": column for name, column in columns_of(asked.bars).items()}
    arrays |= arrays_of(asked.covariates)
    arrays |= {f"stage.{name}": values for name, values in _stages(ensemble, asked).items()}
    text: dict[str, Json] = {"symbols": list(asked.bars.symbols), "categories": categories_of(asked.covariates)}
    return Golden(text=text, arrays=arrays)


def check_ensemble(ensemble: Ensemble, stored: StoredEnsemble) -> None:
    """Run the golden instance of every member, then the ensemble's own.

    Raises:
        ArtifactError: as `check`; the message names the member, the file and the stage.
    """
    for name, member in ensemble.members.items():
        try:
            check(member, stored.members[name].golden)
        except ArtifactError as error:
            raise inside(f"{MEMBERS}/{name}", error) from error
    members = ((member, stored.members[name].golden) for name, member in ensemble.members.items())
    _check_own(ensemble, stored.golden, max(slack(member, golden) for member, golden in members))


def _check_own(ensemble: Ensemble, golden: Golden, forgiven: float) -> None:
    text = Record(golden.text, GOLDEN_TEXT)
    symbols, covariates = text.texts("symbols"), stored_covariates(text.record("categories"), golden.arrays)
    text.end()
    try:
        found = _stages(ensemble, Question(stored_bars(symbols, golden.arrays), covariates))
    except ArtifactError:
        raise
    except QuantraError as error:
        raise off(f"is refused: {error.message}") from error
    comparison = Comparison(slack=forgiven, scale=np.ones(0))
    for name, values in found.items():
        comparison.check(name, values, stored_array(golden.arrays, f"stage.{name}"))


def _question(ensemble: Ensemble) -> Question:
    """On the last sessions whose horizons every member's calendar still holds."""
    pipelines = [member.pipeline for member in ensemble.members.values()]
    bars = made_up(pipelines)
    future = min(pipelines, key=lambda pipeline: pipeline.calendar.last).following(int(bars.sessions[-1]))
    return Question(bars, made_up_covariates(ensemble.covariates, bars, future))


def _stages(ensemble: Ensemble, asked: Question) -> Stages:
    instance = Instance(input=asked.bars, covariates=asked.covariates, allow_incomplete_last_bar=True)
    return forecast_stages(ensemble.forecast([ensemble.prepare(instance, LONG_AFTER)])[0])

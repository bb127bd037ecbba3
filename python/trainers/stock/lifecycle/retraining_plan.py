"""The plan to train a new version with the champion's recipe on newer bars."""

from dataclasses import dataclass, replace
from pathlib import Path

from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.card import ancestors_of
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, listed, shown_date
from predictor.registry import find_version
from trainers.stock.backtest.source import TrainedModel, artifact_source
from trainers.stock.data import NO_SOURCE
from trainers.stock.evaluation.bound_model import find_calendar, find_trained_symbols
from trainers.stock.recipe import StockRecipe
from trainers.stock.splits import RollingSplits, SplitPart
from trainers.stock.training_data import TrainingMaterial


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RetrainingPlan:
    """The inputs of a training with a champion's recipe, and what is new in its bars."""

    champion: str
    """Such as mine@3."""
    line: Path
    """The folder of the model's versions."""
    material: TrainingMaterial
    recipe: StockRecipe
    """The champion's, with rolling splits."""
    seen_until: int
    """Last session of the labels that the champion has seen, yyyymmdd."""
    new_sessions: int
    """Sessions of the bars after `seen_until`."""

    @property
    def sentence(self) -> str:
        """The plan in words."""
        last = shown_date(int(self.material.bars.sessions[-1]))
        return (
            f"training with the recipe of {self.champion} on bars up to {last}; {self.new_sessions} sessions are new "
            f"since its last label on {shown_date(self.seen_until)}"
        )

    def card(self) -> dict[str, Json]:
        """The card's section on this training."""
        facts = {"recipe_of": self.champion, "seen_until": self.seen_until, "new_sessions": self.new_sessions}
        return {"retraining": facts}


def plan_retraining(
    models: Path, reference: str, bars: BarPanel, covariates: CovariateSource = NO_SOURCE
) -> RetrainingPlan:
    """Plan a training on newer bars with the recipe, features and edges of a version.

    The splits become rolling: selection and calibration keep their lengths and move to the end of the bars.

    Args:
        models: the folder of models.
        reference: a model, which means its champion, or one of its versions.
        bars: up to the newest, with every symbol of the version's training.
        covariates: files of the covariates that it reads.

    Raises:
        ModelNotFoundError, VersionNotFoundError: the model or version does not exist.
        ArtifactError: it is damaged, or its card lacks the training's record.
        ConfigurationError: it is an ensemble or fine-tuned, or the bars hold nothing new or lack a symbol.
    """
    line, version = find_version(models, reference)
    champion = f"{line.name}@{version}"
    source = artifact_source(line / str(version), "cpu", covariates)
    recipe, standing = source.known_recipe(), source.standing
    assert standing is not None  # noqa: S101 - it is an artifact
    if ancestors_of(source.card):
        raise ConfigurationError(
            f"{champion} is fine-tuned from weights that it does not contain, so it cannot be trained again; fine-tune "
            "its parent again (`quantra train stock`, with --from)"
        )
    _check_bars(champion, bars, standing)
    parts = recipe.parts if isinstance(recipe.parts, RollingSplits) else _find_lengths(standing)
    return RetrainingPlan(
        champion=champion,
        line=line,
        material=TrainingMaterial(bars, source.features, covariates, source.user_edges(bars.symbols)),
        recipe=replace(recipe, parts=parts),
        seen_until=standing.last_seen,
        new_sessions=int((bars.sessions > standing.last_seen).sum()),
    )


def _check_bars(champion: str, bars: BarPanel, standing: TrainedModel) -> None:
    if int(bars.sessions[-1]) <= standing.last_seen:
        raise ConfigurationError(
            f"the bars end on {shown_date(int(bars.sessions[-1]))}, and {champion} has seen labels up to "
            f"{shown_date(standing.last_seen)}: there is nothing new to learn; give newer bars"
        )
    missing = sorted(find_trained_symbols(standing.model).difference(bars.symbols))
    if missing:
        raise ConfigurationError(
            f"the bars lack {listed(missing)}, which {champion} learnt from; give the bars of all its symbols, or "
            "train another model on these"
        )


def _find_lengths(standing: TrainedModel) -> RollingSplits:
    """Rolling splits with as many sessions as the selection and calibration of a trained model."""
    calendar = find_calendar(standing.model)

    def count(part: SplitPart) -> int:
        return len(calendar.sessions(part.first, part.last))

    return RollingSplits(selection=count(standing.splits.selection), calibration=count(standing.splits.calibration))

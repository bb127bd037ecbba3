"""Training of a new version with the champion's recipes on newer bars."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from predictor import artifact
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.card import read_adoption, read_ancestors, read_weighting
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, QuantraError, format_date, format_names
from predictor.registry import find_version
from trainers.progress import ReportConsumer, StepProgress, no_progress
from trainers.stock.backtest.source import ModelSource, TrainedModel, artifact_source
from trainers.stock.data import NO_COVARIATE_FILES
from trainers.stock.data_warnings import Warn, discard
from trainers.stock.ensembles import JoinedEnsemble, join
from trainers.stock.ensembles.ensemble import WeightRule, read_weight_rule
from trainers.stock.ensembles.member_training import is_only_scale
from trainers.stock.evaluation.bound_model import find_calendar, find_trained_symbols
from trainers.stock.feature_cache import FeatureCache
from trainers.stock.splits import RollingSplits
from trainers.stock.training import TrainingResult
from trainers.stock.training_data import TrainingMaterial
from trainers.stock.training_jobs import PlannedTraining, TrainingRunner


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RetrainingPlan:
    """The trainings with a champion's recipes, and what is new in their bars."""

    champion: str
    """Such as mine@3."""
    model_folder: Path
    """The folder of the model's versions."""
    bars: BarPanel
    covariates: CovariateSource
    trainings: Mapping[str, PlannedTraining]
    """One per member of an ensemble, by name; otherwise only one, whose name is empty."""
    rule: WeightRule | None
    """How the members of an ensemble are chosen and weighted; None if the champion is not an ensemble."""
    seen_until: int
    """Last session of the labels that the champion has seen, yyyymmdd."""

    @property
    def new_sessions(self) -> int:
        """Sessions of the bars after `seen_until`."""
        return int((self.bars.sessions > self.seen_until).sum())

    @property
    def sentence(self) -> str:
        """The plan in words."""
        last = format_date(int(self.bars.sessions[-1]))
        subject = "recipe" if self.rule is None else f"{len(self.trainings)} recipes"
        return (
            f"training with the {subject} of {self.champion} on bars up to {last}; {self.new_sessions} sessions are "
            f"new since its last label on {format_date(self.seen_until)}"
        )

    def card(self) -> dict[str, Json]:
        """The card's section on this training."""
        return _describe_retraining(self.champion, self.seen_until, self.bars)


def retrain(
    plan: RetrainingPlan,
    out: Path,
    trainer: TrainingRunner | None = None,
    *,
    members: Path | None = None,
    announce: Callable[[str], None] = discard,
    warn: Warn = discard,
    track_steps: StepProgress = no_progress,
) -> TrainingResult | JoinedEnsemble:
    """Train the new version. Nothing is at `out` until it is complete.

    The members of an ensemble are trained and combined by the champion's rule. A rule that chooses among them leaves
    out networks that added nothing to their scale, as `train_best` does.

    Args:
        plan: Of `plan_retraining`.
        out: Folder of the new version, which must not exist.
        trainer: Runs the trainings; by default quietly in this process.
        members: Folder for the artifacts of an ensemble's members; None for a temporary one.
        announce: Receives the name of each stage.
        warn: Receives warnings about the data of the combination.
        track_steps: Shows the progress of the combination.

    Raises:
        ConfigurationError: `out` exists, or a training run or the combination is not possible with these bars.
        LoopError: A training run failed in this process.
    """
    artifact.check_new_folder(out)
    trainer = TrainingRunner() if trainer is None else trainer
    if plan.rule is None:
        return _train_all(plan, trainer, {"": out}, announce)[""]
    with TemporaryDirectory() if members is None else nullcontext(members) as members_folder:
        folders = {name: Path(members_folder) / name for name in plan.trainings}
        trained = _train_all(plan, trainer, folders, announce)
        repeating: dict[str, str] = {}
        if plan.rule != "equal":
            cards = {name: trained[name].summary for name in folders}
            repeating = {name: card.start_note for name, card in cards.items() if is_only_scale(card)}
            if len(repeating) == len(cards):  # the first stays
                del repeating[next(iter(repeating))]
        for name, reason in repeating.items():
            warn(f"{name} is left out: {reason}")
        return join(
            plan.bars,
            {name: folder for name, folder in folders.items() if name not in repeating},
            out,
            rule=plan.rule,
            is_scored=False,
            sections=plan.card(),
            covariates=plan.covariates,
            announce=announce,
            warn=warn,
            track_steps=track_steps,
        )


def _train_all(
    plan: RetrainingPlan, trainer: TrainingRunner, folders: Mapping[str, Path], announce: Callable[[str], None]
) -> dict[str, TrainingResult]:
    """Run all trainings to the end; then raise the errors of those that failed."""
    failed: dict[str, QuantraError] = {}

    def begin(name: str) -> ReportConsumer:
        if name:
            announce(f"training {name}, {list(folders).index(name) + 1} of {len(folders)}{trainer.jobs.remark}")
        return iter

    trained = dict(trainer.run(plan.trainings, folders, begin=begin, on_failure=failed.__setitem__))
    if "" in failed:
        raise failed[""]
    if failed:
        raise ConfigurationError("; ".join(f"member {name}: {error.message}" for name, error in failed.items()))
    return trained


def plan_retraining(
    models: Path,
    reference: str,
    bars: BarPanel,
    covariates: CovariateSource = NO_COVARIATE_FILES,
    cache: FeatureCache | None = None,
) -> RetrainingPlan:
    """Plan a training run on newer bars with the recipes, features and edges of a version.

    The splits become rolling: selection and calibration keep their lengths and move to the end of the bars. The
    reference is a model, which means its champion, or one of its versions.

    Raises:
        ModelNotFoundError, VersionNotFoundError: the model or version does not exist.
        ArtifactError: it is damaged, or its card lacks the training's record.
        ConfigurationError: it or a member is fine-tuned or adopted, or the bars hold nothing new or lack a symbol.
    """
    model_folder, version = find_version(models, reference)
    champion, folder = f"{model_folder.name}@{version}", model_folder / str(version)
    source = artifact_source(folder, "cpu", covariates)
    trained_model, rule = source.require_trained_model(), None
    sources = {"": source}
    if artifact.is_ensemble(folder):
        weighting = read_weighting(source.card)
        rule = "equal" if weighting is None else read_weight_rule(weighting.rule)
        member_folders = sorted((folder / artifact.MEMBERS).iterdir())
        sources = {member.name: artifact_source(member, "cpu", covariates) for member in member_folders}
    trainings: dict[str, PlannedTraining] = {}
    for name, member_source in sources.items():
        reference = f"member {name} of {champion}" if name else champion
        if read_adoption(member_source.card) is not None:
            raise ConfigurationError(
                f"{reference} is an adopted model, which has no recipe, so it cannot be trained again; adopt later "
                "weights (`quantra adopt`)"
            )
        if read_ancestors(member_source.card):
            raise ConfigurationError(
                f"{reference} is fine-tuned from weights that it does not contain, so it cannot be trained again; "
                "fine-tune its parent again (`quantra train stock`, with --from)"
            )
        sections = _describe_retraining(reference, trained_model.last_seen, bars)
        trainings[name] = _plan_training(replace(member_source, cache=cache), bars, sections)
    _check_bars(champion, bars, trained_model)
    return RetrainingPlan(
        champion=champion,
        model_folder=model_folder,
        bars=bars,
        covariates=covariates,
        trainings=trainings,
        rule=rule,
        seen_until=trained_model.last_seen,
    )


def _describe_retraining(champion: str, seen_until: int, bars: BarPanel) -> dict[str, Json]:
    new = int((bars.sessions > seen_until).sum())
    return {"retraining": {"recipe_of": champion, "seen_until": seen_until, "new_sessions": new}}


def _plan_training(source: ModelSource, bars: BarPanel, sections: Mapping[str, Json]) -> PlannedTraining:
    recipe = source.known_recipe()
    parts = recipe.parts
    if not isinstance(parts, RollingSplits):  # as many sessions as the selection and calibration of the trained model
        trained_model = source.require_trained_model()
        calendar, splits = find_calendar(trained_model.model), trained_model.splits
        selection, calibration = (
            len(calendar.sessions(part.first, part.last)) for part in (splits.selection, splits.calibration)
        )
        parts = RollingSplits(selection=selection, calibration=calibration)
    edges = source.user_edges(bars.symbols)
    return PlannedTraining(
        material=TrainingMaterial(bars, source.features, source.covariates, edges, cache=source.cache),
        recipe=replace(recipe, parts=parts),
        sections=sections,
    )


def _check_bars(champion: str, bars: BarPanel, trained_model: TrainedModel) -> None:
    if int(bars.sessions[-1]) <= trained_model.last_seen:
        raise ConfigurationError(
            f"the bars end on {format_date(int(bars.sessions[-1]))}, and {champion} has seen labels up to "
            f"{format_date(trained_model.last_seen)}: there is nothing new to learn; give newer bars"
        )
    missing = sorted(find_trained_symbols(trained_model.model).difference(bars.symbols))
    if missing:
        raise ConfigurationError(
            f"the bars lack {format_names(missing)}, which {champion} learnt from; give the bars of all its "
            "symbols, or train another model on these"
        )

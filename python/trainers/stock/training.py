"""Training a stock model, from bars to a saved artifact."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import NoReturn

from predictor import artifact, canonical, golden
from predictor.artifact import Artifact
from predictor.canonical import Json
from predictor.card import Card
from predictor.errors import ConfigurationError
from predictor.inference import choose_device
from predictor.model import UNITS, Model, ModelIdentity, output_map
from predictor.networks import PanelForecastNetwork
from trainers.loop import Checkpoints, launched_rank
from trainers.progress import ReportConsumer, StepProgress, unwatched
from trainers.stock import card
from trainers.stock.data import History
from trainers.stock.data_warnings import Warn, heard, of_material, of_steps, of_untaught, to_nobody, untaught
from trainers.stock.edges import edges_card
from trainers.stock.evaluation.baselines import InformationSet, quick_baselines
from trainers.stock.evaluation.evaluated_days import origin_notes, seen_until
from trainers.stock.evaluation.evaluation_set import EvaluationSet, forecasts_of
from trainers.stock.evaluation.scores import benchmark
from trainers.stock.feature_selection import covariates_card
from trainers.stock.fitting import (
    FittedNetwork,
    PreparedTraining,
    calibrated,
    check_edges,
    engine_of,
    fit,
    fit_pipeline,
    prepare,
)
from trainers.stock.recipe import StockRecipe
from trainers.stock.splits import DataSplits
from trainers.stock.training_data import TrainingMaterial

OURS = "this model"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingResult:
    """The result of a training."""

    folder: Path
    card: dict[str, Json]
    """As in the manifest."""

    @property
    def summary(self) -> Card:
        """The card in typed parts, for people."""
        return Card.from_json(canonical.to_bytes(self.card).decode())


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Where a training writes checkpoints, so that it can go on after it was stopped."""

    folder: Path
    resume: bool = False
    """Go on from the newest checkpoint, if there is one; else refuse a folder that has any."""
    every_seconds: float = 60.0
    """Within an epoch, infinite for never; they are also written at the ends of epochs."""
    keep: int = 3
    """How many of the newest stay."""


def train(
    material: TrainingMaterial,
    recipe: StockRecipe,
    out: Path,
    *,
    consume: ReportConsumer,
    announce: Callable[[str], None] = to_nobody,
    warn: Warn = to_nobody,
    stepwise: StepProgress = unwatched,
    keeping: CheckpointSettings | None = None,
    tuning: Mapping[str, Json] | None = None,
) -> TrainingResult:
    """Train a model and save it as an artifact.

    Started by `torchrun`, every process trains on its share of the windows, and the first one saves. The same material
    and recipe give the same bytes on the same machine, device, threads and library versions.

    Args:
        material: what the model is made from; where it starts from an artifact's weights, all else is fitted anew.
        recipe: every other setting.
        out: the artifact's folder, which must not exist.
        consume: progress and logs of the epochs.
        announce: told which stage begins before and after them, such as `computing features`.
        warn: told what makes bars and files doubtful, before the epochs; the card's notes on the data hold it too.
        stepwise: shows how far the scoring after the epochs is.
        keeping: checkpoints, which are removed when the artifact is saved; None for none.
        tuning: what the card records of the search that the recipe came from; None for no search.

    Raises:
        CovariateMissingError: the features read a covariate that no file has.
        CovariatesError: a known covariate became known after the target looks at it.
        ConfigurationError: the settings contradict themselves, the bars or the parent's network, `out` exists or cannot
            be written, or there are checkpoints of a training and resuming was not requested.
        InSampleError: the parent has seen days of the selection, calibration or test part.
        StoppedError: a signal ended it, after a checkpoint.
        LoopError: the training failed, or another one writes checkpoints into the folder; see trainers.loop.
    """
    artifact.check_place(out)
    material = _inherited(material, recipe)
    checkpoints = None if keeping is None else _checkpoints(keeping, material, recipe)
    lesson = _lesson(material, recipe, announce, warn)
    # Held until the artifact is saved, so that no other training can begin to resume meanwhile.
    with checkpoints.open() if checkpoints is not None and launched_rank() == 0 else nullcontext():
        made = lesson.learnt(checkpoints, tuning, consume, announce, stepwise)
        announce("recording the golden instance, and saving")
        if launched_rank() == 0:
            _save(out, made, checkpoints)
    return TrainingResult(folder=out, card=dict(made.manifest.card))


def train_in_memory(
    material: TrainingMaterial,
    recipe: StockRecipe,
    *,
    consume: ReportConsumer,
    announce: Callable[[str], None] = to_nobody,
    warn: Warn = to_nobody,
) -> dict[str, bytes]:
    """The files of the artifact that `train` would save, by their names; nothing is written anywhere.

    Arguments and errors are those of `train`. Without checkpoints no signal is caught: Ctrl+C ends it at once.
    """
    lesson = _lesson(_inherited(material, recipe), recipe, announce, warn)
    made = lesson.learnt(None, None, consume, announce, unwatched)
    announce("recording the golden instance")
    return artifact.packed(made, golden.record(_model(made)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TrainingSetup:
    """What a training works on, once its inputs are computed."""

    material: TrainingMaterial
    recipe: StockRecipe
    splits: DataSplits
    history: History
    doubts: tuple[str, ...]
    prepared: PreparedTraining

    def learnt(
        self,
        checkpoints: Checkpoints | None,
        tuning: Mapping[str, Json] | None,
        consume: ReportConsumer,
        announce: Callable[[str], None],
        stepwise: StepProgress,
    ) -> Artifact:
        """The artifact, after all epochs."""
        fitted = fit(self.prepared, self.recipe.optimisation, checkpoints, consume)
        announce(f"{_kept(fitted)}; calibrating and scoring it against the baselines")
        return self._artifact_of(fitted, tuning, stepwise)

    def _artifact_of(
        self, fitted: FittedNetwork, tuning: Mapping[str, Json] | None, stepwise: StepProgress
    ) -> Artifact:
        """The calibrated artifact, with its card."""
        made = calibrated(fitted, self.history, self.splits, self.recipe)
        searched: dict[str, Json] = {} if tuning is None else {"tuning": dict(tuning)}
        before = {} if self.material.parent is None else self.material.parent.card()
        told = (
            before
            | _card(made, fitted, self, origin_notes(before), stepwise)
            | edges_card(fitted.network, self.material.edges)
            | searched
        )
        return replace(made, manifest=replace(made.manifest, card=told))


def _lesson(
    material: TrainingMaterial, recipe: StockRecipe, announce: Callable[[str], None], warn: Warn
) -> _TrainingSetup:
    """Inputs, labels and the network as it starts, after all that must be announced before the epochs."""
    splits, parent = recipe.splits(material.bars.sessions), material.parent
    doubts = heard(of_material(material, recipe), warn)
    announce("computing features")
    history = _history(material, recipe, splits)
    doubts += heard((*of_untaught(history, splits, parent), *of_steps(history, splits, recipe)), warn)
    prepared = prepare(history, splits, recipe, material.edges, None if parent is None else parent.weights)
    if parent is not None and prepared.started is not None:
        anew = ", ".join(prepared.started.new)
        announce(
            f"starting from the weights {parent.weights_hash[:16]}: {len(prepared.started.reused)} reused, "
            f"{anew or 'none'} initialised from scratch"
        )
    if (loop := prepared.loop) is not None:
        announce(f"training on {loop.device.device} ({loop.device.reason}) in {loop.precision.name}")
    return _TrainingSetup(
        material=material, recipe=recipe, splits=splits, history=history, doubts=doubts, prepared=prepared
    )


def _kept(fitted: FittedNetwork) -> str:
    if not fitted.best_epoch:
        return "the network before training is kept: no epoch was better"
    return f"epoch {fitted.best_epoch} of {len(fitted.epochs)} is the best"


def _inherited(material: TrainingMaterial, recipe: StockRecipe) -> TrainingMaterial:
    """The material with the edges that its parent was given, once it is clear that it can start from it."""
    check_edges(material.edges, recipe)
    splits, parent = recipe.splits(material.bars.sessions), material.parent
    if parent is None:
        return material
    parent.check(material.features, recipe)
    parent.check_unseen(splits, material.bars.sessions)
    return replace(material, edges=material.edges or parent.edges(material.bars))


def _history(material: TrainingMaterial, recipe: StockRecipe, splits: DataSplits) -> History:
    """The material's inputs and labels, fitted on the training part."""
    pipeline = fit_pipeline(material.bars, material.features, recipe, splits, material.covariates)
    if material.parent is not None:
        pipeline = material.parent.keeping_columns(pipeline)
    return History(material.bars, pipeline, material.covariates)


def _save(out: Path, made: Artifact, checkpoints: Checkpoints | None) -> None:
    try:
        artifact.save(out, made, golden.record(_model(made)))
    except OSError as error:
        advice = "" if checkpoints is None else "; once it can be, --resume saves it without training again"
        raise ConfigurationError(f"{out} cannot be saved: {error.strerror}{advice}") from error
    if checkpoints is not None:
        checkpoints.clear()


def _checkpoints(keeping: CheckpointSettings, material: TrainingMaterial, recipe: StockRecipe) -> Checkpoints:
    """The training's checkpoints, which know it by everything that decides what comes out."""
    checkpoints = Checkpoints(
        keeping.folder,
        keep=keeping.keep,
        every_seconds=keeping.every_seconds if isfinite(keeping.every_seconds) else None,
        settings={**recipe.settings(), **material.identity()},
    )
    if checkpoints.any and not keeping.resume:
        _refuse(checkpoints)
    return checkpoints


def _refuse(checkpoints: Checkpoints) -> NoReturn:
    """Say whose checkpoints are in the way: those of a training that still runs must not be removed."""
    if launched_rank() == 0:
        with checkpoints.open():
            pass  # a training that runs holds the folder, and then this is an error that names it
    raise ConfigurationError(
        f"{checkpoints.folder} holds checkpoints of a training that was stopped; continue it (--resume), or remove "
        "the folder to start over"
    )


def _model(made: Artifact) -> Model:
    identity = ModelIdentity(name="new", version=0, weights_hash="")
    return Model.assemble(identity, made, device=choose_device("cpu"), max_rows=256)


def _card(
    made: Artifact, fitted: FittedNetwork, lesson: _TrainingSetup, origin: tuple[str, ...], stepwise: StepProgress
) -> dict[str, Json]:
    history, splits, recipe = lesson.history, lesson.splits, lesson.recipe
    windows = history.windows(splits.test)
    judged = EvaluationSet.of(history, windows, recipe.quantiles)
    engine = engine_of(fitted.network, made.manifest)
    ours = forecasts_of(engine, output_map(made.manifest), history, windows, made.manifest.universe)
    plan = quick_baselines(recipe.target.kind, len(history.bars.symbols))
    known = InformationSet.of(history, splits, seen_until(splits), recipe.quantiles)
    result = benchmark(judged, OURS, ours, known, plan, stepwise=stepwise)
    unit = UNITS[recipe.target.kind]
    return {
        "data": card.data_card(history.bars, lesson.doubts, untaught(history, splits)),
        **covariates_card(history.pipeline, history.covariates),
        "splits": card.splits_card(splits, history),
        "recipe": recipe.settings(),
        "training": {
            "device": fitted.device,
            "precision": fitted.precision,
            "parameters": sum(p.numel() for p in fitted.network.parameters()),
            "best_epoch": fitted.best_epoch,
            "best_selection": fitted.best_loss,
            "epochs": card.epochs_card(fitted.epochs),
        },
        "libraries": card.libraries_card(),
        "scores": card.scores_card(judged, result.rows, unit=unit),
        "notes": [*origin, *_gap_notes(history), *_start_notes(fitted), *result.notes],
        "calibration": card.calibration_card(judged, ours),
        "skill": card.skill_card(result.skill),
        "conformal": card.conformal_card(judged, ours, made.manifest.conformal.effective_samples),
    }


def _start_notes(fitted: FittedNetwork) -> list[str]:
    """The note on a ranking model whose initial weights were kept."""
    if fitted.best_epoch or not (isinstance(fitted.network, PanelForecastNetwork) and fitted.network.ranks_nobody):
        return []
    return ["no epoch was better than the start, whose scores have learnt nothing: the model ranks all stocks alike"]


def _gap_notes(history: History) -> list[str]:
    """The note on sessions of the exchange on which no symbol has a bar."""
    calendar = history.pipeline.calendar
    missing = calendar.missing(history.bars.sessions)
    if not calendar.is_exchange or missing.size == 0:
        return []
    gap = f"sessions of {calendar.name} without any bar: {missing.size}, such as {missing[0]}"
    return [f"{gap}; the bars around them were taken as consecutive"]

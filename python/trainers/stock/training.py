"""Training a stock model, from bars to a saved artifact."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

from torch import nn

from predictor import artifact, canonical, golden
from predictor.artifact import Artifact, Golden
from predictor.canonical import Json
from predictor.card import Card, start_note
from predictor.errors import ConfigurationError
from predictor.model import UNITS, build_output_map
from predictor.networks import GraphForecaster, TreesConfig, get_kind
from predictor.registry import claim_first_champion
from trainers.loop import Checkpoints, launched_rank, launched_size
from trainers.progress import ReportConsumer, StepProgress, no_progress
from trainers.stock import card
from trainers.stock.data import History
from trainers.stock.data_warnings import (
    Warn,
    discard,
    emit,
    find_recipe_warnings,
    find_step_warnings,
    find_untrained_symbol_warnings,
    find_untrained_symbols,
)
from trainers.stock.edges import describe_edges
from trainers.stock.evaluation.baselines import InformationSet, quick_baselines
from trainers.stock.evaluation.evaluation_set import EvaluationSet, forecasts_of
from trainers.stock.evaluation.scores import MODEL_NAME, benchmark
from trainers.stock.feature_selection import describe_covariates
from trainers.stock.forests import require_lightgbm
from trainers.stock.model_fit import (
    FittedNetwork,
    PreparedTraining,
    assemble_model,
    build_engine,
    calibrate_network,
    fit,
    fit_pipeline,
    prepare,
)
from trainers.stock.recipe import StockRecipe
from trainers.stock.splits import DataSplits, describe_origin, find_last_seen_session
from trainers.stock.training_data import TrainingMaterial


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingResult:
    """The result of a training run."""

    folder: Path
    card: dict[str, Json]
    """As in the manifest."""

    @property
    def summary(self) -> Card:
        """The card in typed parts, for people."""
        return Card.from_json(canonical.to_bytes(self.card).decode())


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Where and how often a training run writes checkpoints."""

    folder: Path
    resume: bool = False
    """Whether to continue from the newest checkpoint; if False, a folder with checkpoints is refused."""
    every_seconds: float = 60.0
    """Time between checkpoints within an epoch; infinite writes them only after epochs."""
    keep: int = 3
    """Number of newest checkpoints to keep."""


def train(
    material: TrainingMaterial,
    recipe: StockRecipe,
    out: Path,
    *,
    consume: ReportConsumer,
    announce: Callable[[str], None] = discard,
    warn: Warn = discard,
    track_steps: StepProgress = no_progress,
    checkpoint_settings: CheckpointSettings | None = None,
    sections: Mapping[str, Json] | None = None,
) -> TrainingResult:
    """Train a model and save it as an artifact.

    Under `torchrun`, every process trains on its share of the windows, and the first one saves. The same material and
    recipe give the same bytes on the same machine, device, threads and library versions.

    Args:
        material: training data; only weights are taken from its parent, all else is fitted again.
        recipe: every other setting.
        out: the artifact's folder, which must not exist.
        consume: receives the epoch reports.
        announce: receives the name of each stage, such as `computing features`.
        warn: receives warnings about the data before the epochs; the card records them.
        track_steps: shows the progress of the scoring.
        checkpoint_settings: checkpoints, which are removed when the artifact is saved; None writes none.
        sections: further sections of the card, such as `tuning`, on the search that chose the recipe.

    Raises:
        CovariateMissingError: the features read a covariate that no file has.
        CovariatesError: a known covariate became known after the target looks at it.
        ConfigurationError: the settings contradict themselves, the bars or the parent's network, `out` exists or cannot
            be written, or checkpoints exist and `resume` is not set.
        InSampleError: the parent has seen days of the selection, calibration or test split.
        StoppedError: a signal stopped the training, after a checkpoint.
        LoopError: the training failed, or another one uses the checkpoint folder; see trainers.loop.
    """
    artifact.check_new_folder(out)
    material = _inherit_from_parent(material, recipe)
    checkpoints = None if checkpoint_settings is None else _open_checkpoints(checkpoint_settings, material, recipe)
    setup = _prepare(material, recipe, announce, warn, _find_accumulation(recipe, checkpoints))
    # Held until the artifact is saved, so that no other training resumes meanwhile.
    with checkpoints.open() if checkpoints is not None and launched_rank() == 0 else nullcontext():
        new_artifact = setup.run(checkpoints, sections or {}, consume, announce, track_steps)
        announce("recording the golden instance, and saving")
        if launched_rank() == 0:
            save_artifact(out, new_artifact, golden.record(assemble_model(new_artifact)), checkpoints)
    return TrainingResult(folder=out, card=dict(new_artifact.manifest.card))


def train_in_memory(
    material: TrainingMaterial,
    recipe: StockRecipe,
    *,
    consume: ReportConsumer,
    announce: Callable[[str], None] = discard,
    warn: Warn = discard,
    sections: Mapping[str, Json] | None = None,
) -> dict[str, bytes]:
    """Train, and return the artifact's files by name without writing them.

    Arguments and errors are those of `train`. Signals are not caught: Ctrl+C stops the training at once.
    """
    setup = _prepare(_inherit_from_parent(material, recipe), recipe, announce, warn)
    new_artifact = setup.run(None, sections or {}, consume, announce, no_progress)
    announce("recording the golden instance")
    return artifact.pack_artifact(new_artifact, golden.record(assemble_model(new_artifact)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TrainingSetup:
    """A training run that is ready to run."""

    material: TrainingMaterial
    recipe: StockRecipe
    splits: DataSplits
    history: History
    warnings: tuple[str, ...]
    prepared: PreparedTraining

    def run(
        self,
        checkpoints: Checkpoints | None,
        sections: Mapping[str, Json],
        consume: ReportConsumer,
        announce: Callable[[str], None],
        track_steps: StepProgress,
    ) -> Artifact:
        """Run the epochs, then calibrate and score the model."""
        recipe, parent = self.recipe, self.material.parent
        fitted = fit(self.prepared, recipe.optimisation, checkpoints, consume)
        if not get_kind(recipe.kind).is_trainable:
            outcome = f"model {recipe.kind} is fitted"
        elif fitted.best_epoch:
            outcome = f"epoch {fitted.best_epoch} of {len(fitted.epochs)} is the best"
        else:
            has_map = recipe.settings().get("network_highway") is True
            outcome = start_note(recipe.scale, has_map=has_map, has_parent=parent is not None)
        scoring = "" if self.splits.test is None else " and scoring it against the baselines"
        announce(f"{outcome}; calibrating{scoring}")
        new_artifact = calibrate_network(fitted, self.history, self.splits, recipe)
        ancestors = {} if parent is None else parent.card()
        content = (
            ancestors
            | _build_card(new_artifact, fitted, self, describe_origin(ancestors), track_steps)
            | describe_edges(fitted.network, self.material.edges)
            | dict(sections)
        )
        return replace(new_artifact, manifest=replace(new_artifact.manifest, card=content))


def _find_accumulation(recipe: StockRecipe, checkpoints: Checkpoints | None) -> int:
    """Batches per process in a step: those of the recipe, or such that a step stays that of the training to resume.

    Raises:
        ConfigurationError: This number of processes cannot share the batches of a step.
    """
    batches = None if checkpoints is None else checkpoints.batches_per_step()
    if batches is None:
        return recipe.optimisation.accumulate
    if batches % launched_size():
        raise ConfigurationError(
            f"the training to resume has {batches} batches per step, which {launched_size()} processes cannot share; "
            f"start as many processes as divide {batches}"
        )
    return batches // launched_size()


def _prepare(
    material: TrainingMaterial,
    recipe: StockRecipe,
    announce: Callable[[str], None],
    warn: Warn,
    accumulate: int | None = None,
) -> _TrainingSetup:
    """Compute inputs and labels, build the network, and warn about the data.

    `accumulate` is the number of batches per process in a step; None takes that of the recipe.
    """
    if isinstance(recipe.config, TreesConfig):
        require_lightgbm()
    splits, parent = recipe.splits(material.bars.sessions), material.parent
    settings = recipe.optimisation
    shared = replace(recipe, optimisation=replace(settings, accumulate=accumulate or settings.accumulate))
    is_adjusted = parent is not None and parent.is_adjusted
    warnings = emit(
        find_recipe_warnings(material.bars, material.features, material.covariates, recipe, is_adjusted=is_adjusted),
        warn,
    )
    announce("computing features")
    pipeline = fit_pipeline(material.bars, material.features, recipe, splits, material.covariates, material.cache)
    if parent is not None:
        pipeline = parent.with_parent_columns(pipeline)
    history = History(material.bars, pipeline, material.covariates, material.cache)
    warnings += emit(
        (*find_untrained_symbol_warnings(history, splits, parent), *find_step_warnings(history, splits, shared)), warn
    )
    prepared = prepare(history, splits, shared, material.edges, None if parent is None else parent.weights)
    if parent is not None and prepared.started is not None:
        new = ", ".join(prepared.started.new)
        announce(
            f"starting from the weights {parent.weights_hash[:16]}: {len(prepared.started.reused)} reused, "
            f"{new or 'none'} initialised from scratch"
        )
    if (loop := prepared.loop) is not None:
        announce(f"training on {loop.device.device} ({loop.device.reason}) in {loop.precision.name}")
    return _TrainingSetup(
        material=material, recipe=recipe, splits=splits, history=history, warnings=warnings, prepared=prepared
    )


def _inherit_from_parent(material: TrainingMaterial, recipe: StockRecipe) -> TrainingMaterial:
    """Check the material against its parent, and add the parent's edges."""
    if material.edges is not None:
        recipe.require_graph()
    splits, parent = recipe.splits(material.bars.sessions), material.parent
    if parent is None:
        return material
    parent.check(material.features, recipe)
    parent.check_unseen(splits, material.bars.sessions)
    return replace(material, edges=material.edges or parent.edges(material.bars))


def save_artifact(out: Path, new_artifact: Artifact, recorded: Golden, checkpoints: Checkpoints | None = None) -> None:
    """Write the artifact with its golden instance, then remove the checkpoints of its training.

    Raises:
        ConfigurationError: `out` cannot be written.
    """
    try:
        artifact.save(out, new_artifact, recorded)
    except OSError as error:
        advice = "" if checkpoints is None else "; repair this, then --resume saves it without training again"
        raise ConfigurationError(f"{out} cannot be saved: {error.strerror}{advice}") from error
    claim_first_champion(out)
    if checkpoints is not None:
        checkpoints.clear()


def _open_checkpoints(
    checkpoint_settings: CheckpointSettings, material: TrainingMaterial, recipe: StockRecipe
) -> Checkpoints:
    """The training's checkpoints, identified by every setting and input that affects the result."""
    checkpoints = Checkpoints(
        checkpoint_settings.folder,
        keep=checkpoint_settings.keep,
        every_seconds=checkpoint_settings.every_seconds if isfinite(checkpoint_settings.every_seconds) else None,
        settings={**recipe.settings(), **material.identity()},
    )
    if not checkpoints.is_empty and not checkpoint_settings.resume:
        if launched_rank() == 0:
            with checkpoints.open():
                pass  # raises another error if a running training holds the folder
        raise ConfigurationError(
            f"{checkpoints.folder} holds checkpoints of a training run that was stopped; continue it (--resume), or "
            "remove the folder to start over"
        )
    return checkpoints


def _build_card(
    new_artifact: Artifact,
    fitted: FittedNetwork,
    setup: _TrainingSetup,
    origin: tuple[str, ...],
    track_steps: StepProgress,
) -> dict[str, Json]:
    history, splits = setup.history, setup.splits
    scores, notes = score_on_test(new_artifact, fitted.network, history, splits, track_steps)
    calendar = history.pipeline.calendar
    missing = calendar.missing(history.bars.sessions)
    gaps, unchanged = list[str](), list[str]()
    if calendar.is_exchange and missing.size:
        gap = f"sessions of {calendar.name} without any bar: {missing.size}, such as {missing[0]}"
        gaps.append(f"{gap}; the bars around them were taken as consecutive")
    if not fitted.best_epoch and isinstance(fitted.network, GraphForecaster) and fitted.network.has_equal_scores:
        unchanged.append(
            "no epoch was better than the start, whose scores have learnt nothing: the model ranks all stocks alike"
        )
    return {
        "data": card.encode_data(history.bars, setup.warnings, find_untrained_symbols(history, splits)),
        **describe_covariates(history.pipeline, history.covariates),
        "splits": card.encode_splits(splits, history),
        "recipe": setup.recipe.settings(),
        "training": {
            "device": fitted.device,
            "precision": fitted.precision,
            "parameters": sum(p.numel() for p in fitted.network.parameters()),
            "best_epoch": fitted.best_epoch,
            "best_selection": fitted.best_loss,
            "epochs": card.encode_epochs(fitted.epochs),
        },
        "libraries": card.list_libraries(),
        **scores,
        "notes": [*origin, *gaps, *unchanged, *notes],
    }


def score_on_test(
    new_artifact: Artifact, network: nn.Module, history: History, splits: DataSplits, track_steps: StepProgress
) -> tuple[dict[str, Json], tuple[str, ...]]:
    """The card's sections on the test split, and notes on them; without such a split, a note that says so."""
    if splits.test is None:
        return {}, (card.NO_TEST,)
    windows, levels = history.windows(splits.test), new_artifact.manifest.quantiles
    test = EvaluationSet.of(history, windows, levels)
    engine = build_engine(network, new_artifact.manifest)
    forecasts = forecasts_of(
        engine, build_output_map(new_artifact.manifest), history, windows, new_artifact.manifest.universe
    )
    plan = quick_baselines(new_artifact.manifest.target.kind, len(history.bars.symbols))
    information = InformationSet.of(history, splits, find_last_seen_session(splits), levels)
    result = benchmark(test, MODEL_NAME, forecasts, information, plan, track_steps=track_steps)
    scores: dict[str, Json] = {
        "scores": card.encode_scores(test, result.rows, unit=UNITS[new_artifact.manifest.target.kind]),
        "calibration": card.encode_calibration(test, forecasts),
        "skill": card.encode_skill(result.skill),
        "conformal": card.encode_conformal(test, forecasts, new_artifact.manifest.conformal.effective_samples),
    }
    return scores, result.notes

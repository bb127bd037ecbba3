"""Training a stock model, from bars to a saved artifact."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from predictor import artifact, canonical, golden
from predictor.artifact import Artifact, BaselineSpec, Conformal, Manifest
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.card import Card
from predictor.errors import ConfigurationError
from predictor.features import FeatureSet, FittedFeatures
from predictor.inference import Engine, choose_device, freeze
from predictor.model import UNITS, Identity, Model, output_map
from predictor.networks import Edges, GraphForecaster, QuantileHead, build_network, kind_named
from predictor.sessions import SessionCalendar, dates_of, days_of
from predictor.windows import Pipeline
from trainers.loop import (
    Checkpoints,
    EpochReport,
    Loop,
    Phase,
    Validation,
    adamw,
    launched_rank,
    seed_everything,
)
from trainers.progress import Consumer
from trainers.stock import card
from trainers.stock.asking import ask
from trainers.stock.conformal import calibrate
from trainers.stock.data import ROWS, History, Windows
from trainers.stock.edges import training_edges
from trainers.stock.evaluation.baselines import Case, quick_baselines
from trainers.stock.evaluation.forecasts import forecasts_of
from trainers.stock.evaluation.judged import Judged
from trainers.stock.evaluation.standing import standing
from trainers.stock.lessons import Lesson, lesson_of
from trainers.stock.recipe import Optimisation, Recipe
from trainers.stock.splits import Splits

FloatArray = NDArray[np.float64]

CALENDAR_YEARS = 5
"""How far beyond the last training bar the artifact's calendar reaches."""

OURS = "this model"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """What a training came to."""

    folder: Path
    card: dict[str, Json]
    """As it stands in the manifest."""

    @property
    def told(self) -> Card:
        """The card in typed parts, for people."""
        return Card.from_json(canonical.to_bytes(self.card).decode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Where a training writes checkpoints, so that it can go on after it was stopped."""

    folder: Path
    resume: bool = False
    """Go on from the newest checkpoint, if there is one; else refuse a folder that has any."""
    every_seconds: float = 60.0
    """Within an epoch, infinite for never; they are also written at the ends of epochs."""
    keep: int = 3
    """How many of the newest stay."""


def _to_nobody(_stage: str) -> None:
    """Announce to nobody."""


def train(
    bars: BarPanel,
    features: FeatureSet,
    recipe: Recipe,
    out: Path,
    *,
    consume: Consumer,
    announce: Callable[[str], None] = _to_nobody,
    keeping: Keeping | None = None,
    edges: Edges | None = None,
) -> Trained:
    """Train a model and save it as an artifact.

    Started by `torchrun`, every process trains on its share of the windows, and the first one saves.

    The same bars, features and recipe give the same bytes on the same machine, device, threads and library versions.

    Args:
        bars: a long history.
        features: what the network reads.
        recipe: every other setting.
        out: the artifact's folder, which must not exist.
        consume: progress and logs of the epochs.
        announce: told what begins before and after them, such as `computing features`.
        keeping: checkpoints, which are removed when the artifact is saved; None for none.
        edges: of a graph of the bars' symbols, in their order; None takes them from the training part's returns.

    Raises:
        ConfigurationError: the settings contradict themselves or the bars, `out` exists or cannot be written, or there
            are checkpoints of a training that nobody asked to resume.
        StoppedError: a signal ended it, after a checkpoint.
        LoopError: the training failed, or another one writes checkpoints into the folder; see trainers.loop.
    """
    if out.exists():
        raise ConfigurationError(f"{out} exists already; an artifact is never overwritten: choose another --out")
    splits = recipe.splits(bars.sessions)
    _check_edges(edges, recipe)
    checkpoints = None if keeping is None else _checkpoints(keeping, bars, features, recipe, edges)
    announce("computing features")
    pipeline = fit_pipeline(bars, features, recipe, splits)
    history = History(bars, pipeline)
    prepared = _prepare(history, splits, recipe, edges)
    loop, first = prepared.loop, launched_rank() == 0
    announce(f"training on {loop.device.device} ({loop.device.reason}) in {loop.precision.name}")
    # Held until the artifact stands, so that no other training can begin to resume meanwhile.
    with checkpoints.open() if checkpoints is not None and first else nullcontext():
        fitted = _fit(prepared, recipe.optimisation, checkpoints, consume)
        kept = f"epoch {fitted.best_epoch} of {len(fitted.epochs)} is the best"
        announce(f"{kept}; calibrating it, and scoring it beside the baselines")
        made = _calibrated(fitted, history, splits, recipe)
        made = replace(made, manifest=replace(made.manifest, card=_card(made, fitted, history, splits, recipe)))
        announce("recording the golden instance, and saving")
        if first:
            _save(out, made, checkpoints)
            if checkpoints is not None:
                checkpoints.clear()
    return Trained(folder=out, card=dict(made.manifest.card))


def _save(out: Path, made: Artifact, checkpoints: Checkpoints | None) -> None:
    try:
        artifact.save(out, made, golden.record(_model(made)))
    except OSError as error:
        advice = "" if checkpoints is None else "; once it can be, --resume saves it without training again"
        raise ConfigurationError(f"{out} cannot be saved: {error.strerror}{advice}") from error


def fit_pipeline(bars: BarPanel, features: FeatureSet, recipe: Recipe, splits: Splits) -> Pipeline:
    """Everything between bars and network; fitted numbers come from the training part alone.

    The features are fitted on bars cut at the end of that part, so that nothing later can move a number, not even
    by rebasing an adjustment factor.
    """
    learnt = bars.until(splits.train.last)
    scaled = FittedFeatures.fit(features, features.evaluate(learnt.adjusted()), present=learnt.present)
    return Pipeline(
        features=scaled,
        target=recipe.target,
        normaliser=recipe.window_normaliser,
        calendar=_calendar(bars, recipe.calendar),
        encoder_length=recipe.encoder_length,
    )


def _calendar(bars: BarPanel, name: str) -> SessionCalendar:
    """The exchange's sessions from the first bar to five years after the last; the bars must lie on them."""
    first, last = int(bars.sessions[0]), int(bars.sessions[-1])
    end = int(dates_of(days_of(np.array([last], np.int32)) + np.timedelta64(366 * CALENDAR_YEARS, "D"))[0])
    calendar = SessionCalendar.from_exchange(name, first, end) if name else SessionCalendar.weekdays(first, end)
    if bars.calendar and bars.calendar != calendar.name:
        raise ConfigurationError(
            f"the bars are of calendar {bars.calendar}, but the recipe's calendar is {calendar.name}; a model would "
            "refuse such bars later: let both name the same exchange"
        )
    strangers = calendar.unexpected(bars.sessions)
    if len(strangers):
        raise ConfigurationError(
            f"{calendar.name} held no session on {strangers[:5].tolist()}; remove these bars or name another calendar"
        )
    return calendar


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fitted:
    """A network with its best weights, and how it got there."""

    network: nn.Module
    device: str
    precision: str
    epochs: tuple[tuple[float, float], ...]
    best_epoch: int


def _check_edges(edges: Edges | None, recipe: Recipe) -> None:
    if edges is not None and not kind_named(recipe.kind).is_panel_model:
        raise ConfigurationError(f"edges are given, but a network of kind {recipe.kind!r} has no graph; use graph")


def _checkpoints(
    keeping: Keeping, bars: BarPanel, features: FeatureSet, recipe: Recipe, edges: Edges | None
) -> Checkpoints:
    """The training's checkpoints, which know it by everything that decides what comes out."""
    checkpoints = Checkpoints(
        keeping.folder,
        keep=keeping.keep,
        every_seconds=keeping.every_seconds if isfinite(keeping.every_seconds) else None,
        settings={
            **recipe.settings(),
            "bars": card.bars_hash(bars),
            "features": {feature.name: feature.expression for feature in (*features.observed, *features.known)},
            "edges": "training returns" if edges is None else edges.digest,
        },
    )
    if checkpoints.any and not keeping.resume:
        _refuse(checkpoints)
    return checkpoints


def _refuse(checkpoints: Checkpoints) -> NoReturn:
    """Say whose checkpoints are in the way: nobody shall remove those of a training that still runs."""
    if launched_rank() == 0:
        with checkpoints.open():
            pass  # a training that runs holds the folder, and then this is an error that names it
    raise ConfigurationError(
        f"{checkpoints.folder} holds checkpoints of a training that was stopped; go on with it (--resume), or remove "
        "the folder to begin anew"
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Prepared:
    """All that a fit needs; nothing is written before it stands."""

    network: nn.Module
    lesson: Lesson[Any]
    loop: Loop[Any]


def _prepare(history: History, splits: Splits, recipe: Recipe, edges: Edges | None) -> _Prepared:
    seed_everything(recipe.optimisation.seed)
    train, selection = history.windows(splits.train), history.windows(splits.selection)
    network = _network(history, train, recipe)
    if isinstance(network, GraphForecaster):
        network.connect(edges or training_edges(history.bars, splits.train.last, neighbours=network.most_neighbours))
    lesson = lesson_of(network, history, train, selection, recipe)
    return _Prepared(network=network, lesson=lesson, loop=_loop(network, lesson, recipe.optimisation))


def _fit(prepared: _Prepared, settings: Optimisation, checkpoints: Checkpoints | None, consume: Consumer) -> _Fitted:
    loop, lesson = prepared.loop, prepared.lesson
    held = Validation(lesson.loss, lesson.selection)
    with loop.running(checkpoints) as run:
        for report in consume(run.epochs(lesson.train, max_epochs=settings.max_epochs, validation=held)):
            if isinstance(report, EpochReport) and run.stalled(report.monitored, patience=settings.patience):
                break
        run.restore_best()
        epochs = tuple((report.loss, report.monitored) for report in run.history)
    return _Fitted(
        network=freeze(prepared.network.cpu()),
        device=loop.device.device.type,
        precision=loop.precision.name,
        epochs=epochs,
        best_epoch=len(epochs) - run.best.stale,
    )


def _loop(network: nn.Module, lesson: Lesson[Any], settings: Optimisation) -> Loop[Any]:
    """The training loop of the one network."""
    optimizer = adamw(network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    return Loop(
        [Phase("network", lesson.loss, network.parameters(), optimizer, clip=settings.clip)],
        modules={"network": network},
        device=settings.device,
        precision=settings.precision,
        accumulate=settings.accumulate,
        cutting=lesson.cutting,
        oom=settings.oom,
        nonfinite=settings.nonfinite,
        ema=settings.ema,
        compile=settings.compiled,
        deterministic=settings.deterministic,
    )


def _network(history: History, train: Windows, recipe: Recipe) -> nn.Module:
    """A fresh network whose head starts at the quantiles of the training targets."""
    network = build_network(
        kind_named(recipe.kind),
        recipe.config,
        sizes=replace(history.pipeline.sizes, nodes=len(_universe(history, recipe))),
        target=recipe.target,
        levels=recipe.quantiles,
    )
    targets = history.targets(train).numpy()
    quantiles = np.nanquantile(targets, recipe.quantiles, axis=0).T.astype(np.float32)
    for module in network.modules():
        if isinstance(module, QuantileHead):
            module.start_at(torch.from_numpy(quantiles))
    return network


def _universe(history: History, recipe: Recipe) -> tuple[str, ...]:
    """The symbols that the network knows by name."""
    return history.bars.symbols if kind_named(recipe.kind).is_panel_model else ()


def _calibrated(fitted: _Fitted, history: History, splits: Splits, recipe: Recipe) -> Artifact:
    """The artifact's parts, with conformal offsets from the calibration part; its card is still empty."""
    levels, target = recipe.quantiles, recipe.target
    blank = Conformal(
        offsets=((0.0,) * len(levels),) * len(target.horizons), effective_samples=(0.0,) * len(target.horizons)
    )
    manifest = Manifest(
        kind=kind_named(recipe.kind),
        config=recipe.config,
        target=target,
        quantiles=levels,
        normaliser=history.pipeline.normaliser,
        encoder_length=recipe.encoder_length,
        conformal=blank,
        baseline=_baseline(history, splits),
        universe=_universe(history, recipe),
        card={},
    )
    windows = history.windows(splits.calibration)
    engine = _engine(fitted.network, manifest)
    units = ask(engine, history, windows, manifest.universe).units
    conformal = calibrate(
        units.double().numpy(),
        history.targets(windows).double().numpy(),
        levels,
        sessions=len(np.unique(windows.positions)),
        horizons=target.horizons,
    )
    weights = {name: tensor.clone() for name, tensor in fitted.network.state_dict().items()}
    return Artifact(manifest=replace(manifest, conformal=conformal), pipeline=history.pipeline, weights=weights)


def _baseline(history: History, splits: Splits) -> BaselineSpec:
    """The average training window."""
    train = history.windows(splits.train)
    known = torch.stack([batch.inputs.known.double().mean(dim=1).sum(dim=0) for batch in history.batches(train)])
    location, scale = history.level(train)
    return BaselineSpec(
        name="train_mean",
        known=tuple(float(value) for value in known.sum(dim=0) / len(train)),
        location=float(location.mean()),
        scale=float(scale.median()),
    )


def _engine(network: nn.Module, manifest: Manifest) -> Engine:
    return Engine(network, output_map(manifest), device=torch.device("cpu"), max_rows=ROWS)


def _model(made: Artifact) -> Model:
    identity = Identity(name="new", version=0, weights_hash="")
    return Model.assemble(identity, made, device=choose_device("cpu"), max_rows=256)


def _card(made: Artifact, fitted: _Fitted, history: History, splits: Splits, recipe: Recipe) -> dict[str, Json]:
    windows = history.windows(splits.test)
    judged = Judged.of(history, windows, recipe.quantiles)
    engine = _engine(fitted.network, made.manifest)
    ours = forecasts_of(engine, output_map(made.manifest), history, windows)
    case = Case(history=history, train=splits.train, windows=windows, levels=recipe.quantiles)
    found = standing(judged, OURS, ours.calibrated, case, quick_baselines(len(history.bars.symbols)))
    unit = UNITS[recipe.target.kind]
    return {
        "data": card.data_card(history.bars),
        "splits": card.splits_card(splits, history),
        "recipe": recipe.settings(),
        "training": {
            "device": fitted.device,
            "precision": fitted.precision,
            "parameters": sum(p.numel() for p in fitted.network.parameters()),
            "best_epoch": fitted.best_epoch,
            "epochs": card.epochs_card(fitted.epochs),
        },
        "libraries": card.libraries_card(),
        "scores": card.scores_card(judged, found.rows, unit=unit),
        "notes": [*_gap_notes(history), *found.notes],
        "calibration": card.calibration_card(judged, ours),
        "skill": card.skill_card(found.skill),
        "conformal": card.conformal_card(judged, ours, made.manifest.conformal.effective_samples),
    }


def _gap_notes(history: History) -> list[str]:
    """What a reader must know about sessions of the exchange on which no symbol has a bar."""
    calendar = history.pipeline.calendar
    missing = calendar.missing(history.bars.sessions)
    if not calendar.is_exchange or missing.size == 0:
        return []
    found = f"sessions of {calendar.name} without any bar: {missing.size}, such as {missing[0]}"
    return [f"{found}; the bars around them were taken as consecutive"]

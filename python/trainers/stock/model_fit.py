"""Fits of a stock model's pipeline, network and calibration."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from predictor.artifact import Artifact, BaselineSpec, Conformal, Manifest
from predictor.bars import BarPanel
from predictor.bars.suspects import select_usable_bars
from predictor.covariates import CovariateSource
from predictor.dates import to_date_numbers, to_days
from predictor.errors import ConfigurationError
from predictor.features import FeatureSet
from predictor.inference import Engine, freeze
from predictor.model import Model, ModelIdentity, build_output_map
from predictor.networks import (
    TAPS,
    Edges,
    GraphForecaster,
    Target,
    TreesForecaster,
    WindowNormaliser,
    build_network,
    get_kind,
)
from predictor.sessions import SessionCalendar
from predictor.windows import Pipeline
from trainers.loop import (
    Checkpoints,
    EpochReport,
    Hardware,
    InitialWeights,
    Loop,
    Phase,
    Validation,
    adamw,
    choose_device,
    cosine,
    launched_size,
    local_rank,
    seed_everything,
)
from trainers.progress import ReportConsumer
from trainers.stock.bar_requirements import check_enough, check_sessions
from trainers.stock.data import (
    NO_COVARIATE_FILES,
    WINDOWS_PER_BATCH,
    History,
    TrainingWindows,
    locate_windows,
    place_history,
)
from trainers.stock.edges import fit_training_edges
from trainers.stock.feature_cache import FeatureCache, map_bars
from trainers.stock.feature_selection import fit_features
from trainers.stock.forests import fit_forests
from trainers.stock.initialization import initialize, initialize_from
from trainers.stock.network_forecasts import calibrate, forecast_with_network
from trainers.stock.objectives import StockObjective, choose_objective
from trainers.stock.recipe import WARMUP, Optimisation, StockRecipe
from trainers.stock.scale import fit_normaliser, sample_of
from trainers.stock.splits import DataSplits, SplitPart

STARTED_FROM = 20_000
"""Most training windows, evenly spaced, that initial weights are computed from."""

CALENDAR_YEARS = 5
"""Years of the artifact's calendar after the last bar."""


def fit_pipeline(
    bars: BarPanel,
    features: FeatureSet,
    recipe: StockRecipe,
    splits: DataSplits,
    covariates: CovariateSource = NO_COVARIATE_FILES,
    cache: FeatureCache | None = None,
) -> Pipeline:
    """Fit everything between bars and network on the training split.

    Bars are cut at the end of that part first, so that later bars have no effect, not even by rebasing an adjustment
    factor.

    Raises:
        ConfigurationError: the bars are too few, or do not match the calendar or the features.
    """
    calendar = fit_calendar(bars, recipe.calendar)
    check_enough(bars.sessions, len(bars.symbols), features, recipe, splits)
    train_bars = map_bars(select_usable_bars(bars.until(splits.train.last)), cache)
    draft = Pipeline(
        features=fit_features(train_bars, features, calendar, covariates, cache),
        target=recipe.target,
        normaliser=recipe.window_normaliser if recipe.scale == "window" else WindowNormaliser(window=TAPS),
        calendar=calendar,
        encoder_length=recipe.encoder_length,
        minimum=recipe.minimum,
    )
    if recipe.scale == "window":
        return draft
    fitted = fit_normaliser(sample_of(train_bars, draft, splits.train, recipe.quantiles), recipe.scale)
    return replace(draft, normaliser=fitted)


def fit_calendar(bars: BarPanel, name: str) -> SessionCalendar:
    """The calendar from the first bar to five years after the last, checked against the bars."""
    first, last = int(bars.sessions[0]), int(bars.sessions[-1])
    end = int(to_date_numbers(to_days(np.array([last], np.int32)) + np.timedelta64(366 * CALENDAR_YEARS, "D"))[0])
    calendar = SessionCalendar.named(name, first, end)
    if bars.calendar and bars.calendar != calendar.name:
        raise ConfigurationError(
            f"the bars are of calendar {bars.calendar}, but the recipe's calendar is {calendar.name}; the model would "
            "refuse such bars later: use the same exchange for both"
        )
    check_sessions(bars, calendar)
    return calendar


def fit_artifact(
    history: History, splits: DataSplits, recipe: StockRecipe, *, consume: ReportConsumer, edges: Edges | None = None
) -> Artifact:
    """Fit and calibrate without checkpoints; the card stays empty.

    Only training, selection and calibration are used. Without edges, a graph computes them from training returns.

    Raises:
        ConfigurationError: settings contradict each other or the bars.
        LoopError: the training failed.
    """
    fitted = fit(prepare(history, splits, recipe, edges), recipe.optimisation, None, consume)
    return calibrate_network(fitted, history, splits, recipe)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedNetwork:
    """A network with its best weights, and its training history."""

    network: nn.Module
    device: str
    precision: str
    epochs: tuple[tuple[float, float], ...]
    """Training and selection loss per epoch."""
    best_epoch: int
    """Counted from 1; 0 if no epoch was better than the initial weights."""
    best_loss: float
    """Selection loss of the best weights."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedTraining:
    """A network, its objective and its loop, ready for `fit`."""

    network: nn.Module
    started: InitialWeights | None
    """The parent's weights that it starts from; None without a parent."""
    objective: StockObjective[Any]
    loop: Loop[Any] | None
    """None if the network is not trained in epochs."""


def prepare(
    history: History,
    splits: DataSplits,
    recipe: StockRecipe,
    edges: Edges | None,
    weights: Mapping[str, Tensor] | None = None,
) -> PreparedTraining:
    """Build a network with initial weights, its objective and its loop.

    Only training and selection are used. Initial `weights` are those of a network of the same kind and shapes.

    Raises:
        ConfigurationError: a part holds no window, or settings contradict each other.
        LoopError: the loop does not support the settings, or the weights do not fit.
    """
    seed_everything(recipe.optimisation.seed)
    train, selection = history.windows(splits.train), history.windows(splits.selection)
    network, started = _build_network(history, train, recipe, weights)
    if isinstance(network, GraphForecaster):
        if edges is None:
            edges = fit_training_edges(history.bars, splits.train.last, neighbours=network.neighbours.shape[1])
        network.connect(edges)
    if isinstance(network, TreesForecaster):
        fit_forests(network, history, train, selection, recipe.quantiles, recipe.optimisation.seed)
    if not get_kind(recipe.kind).is_trainable:
        objective = choose_objective(network, history, train, selection, recipe)
        return PreparedTraining(network=network, started=started, objective=objective, loop=None)
    device = choose_device(recipe.optimisation.device, Hardware.detect(), local_rank()).device
    objective = choose_objective(network, place_history(history, device), train, selection, recipe)
    loop = _build_loop(network, objective, recipe.optimisation)
    return PreparedTraining(network=network, started=started, objective=objective, loop=loop)


def fit(
    prepared: PreparedTraining, settings: Optimisation, checkpoints: Checkpoints | None, consume: ReportConsumer
) -> FittedNetwork:
    """Run the epochs, and keep the weights with the best selection loss.

    Raises:
        StoppedError: a signal stopped the training, after a checkpoint.
        LoopError: the training failed.
    """
    loop, objective = prepared.loop, prepared.objective
    if loop is None:
        return _keep_initial_weights(prepared)
    validation = Validation(objective.selection_loss, objective.selection)
    with loop.running(checkpoints) as run:
        if not run.best.has_value:  # False after a resume
            run.stalled(run.validate(validation.score, validation.source).mean, patience=settings.patience)
        for report in consume(run.epochs(objective.train, max_epochs=settings.max_epochs, validation=validation)):
            if isinstance(report, EpochReport) and run.stalled(report.monitored, patience=settings.patience):
                break
        run.restore_best()
        epochs = tuple((report.loss, report.monitored) for report in run.history)
        best_epoch, best_loss = len(epochs) - run.best.stale, run.best.value
    assert best_loss is not None  # noqa: S101 - or restore_best would have failed
    if best_epoch == 0 and prepared.started is None and isinstance(prepared.network, GraphForecaster):
        prepared.network.equalize_scores()
    return FittedNetwork(
        network=freeze(prepared.network.cpu()),
        device=loop.device.device.type,
        precision=loop.precision.name,
        epochs=epochs,
        best_epoch=best_epoch,
        best_loss=best_loss,
    )


@torch.inference_mode()
def _keep_initial_weights(prepared: PreparedTraining) -> FittedNetwork:
    """The result for a network that keeps its initial weights."""
    network, objective = freeze(prepared.network), prepared.objective
    losses = [objective.selection_loss(batch) for batch in objective.selection.batches(0)]
    total = sum(float(loss.mean) * loss.count for loss in losses) / sum(loss.count for loss in losses)
    precision = "fp64" if isinstance(network, TreesForecaster) else "fp32"
    return FittedNetwork(network=network, device="cpu", precision=precision, epochs=(), best_epoch=0, best_loss=total)


def _build_loop(network: nn.Module, objective: StockObjective[Any], settings: Optimisation) -> Loop[Any]:
    learning = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = adamw(
        learning,
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        spared=list_undecayed_parameters(network),
    )
    scheduler = None
    if settings.schedule == "cosine":
        steps = settings.max_epochs * ceil(objective.train.length / (settings.accumulate * launched_size()))
        scheduler = cosine(optimizer, warmup_steps=int(WARMUP * steps), total_steps=steps)
    return Loop(
        [Phase("network", objective.loss, learning, optimizer, scheduler=scheduler, clip=settings.clip)],
        modules={"network": network},
        device=settings.device,
        precision=settings.precision,
        accumulate=settings.accumulate,
        splitter=objective.splitter,
        oom=settings.oom,
        nonfinite=settings.nonfinite,
        ema=settings.ema,
        compile=settings.compiled,
        deterministic=settings.deterministic,
    )


def list_undecayed_parameters(network: nn.Module) -> Iterator[nn.Parameter]:
    """Parameters without weight decay: biases, such as the head's quantiles, and norms that are vectors.

    Norms that are stacked in one tensor, as in the TFT's variable selection, decay like other weights.
    """
    for name, parameter in network.named_parameters():
        if parameter.requires_grad and (parameter.ndim <= 1 or "bias" in name.rpartition(".")[2]):
            yield parameter


def _build_network(
    history: History, train: TrainingWindows, recipe: StockRecipe, weights: Mapping[str, Tensor] | None
) -> tuple[nn.Module, InitialWeights | None]:
    """A network, initialised from training windows and from `weights` if given."""
    network = build_network(
        get_kind(recipe.kind),
        recipe.config,
        sizes=replace(history.pipeline.sizes, nodes=len(_list_universe(history, recipe))),
        target=recipe.target,
        levels=recipe.quantiles,
    )
    for h, horizon in enumerate(recipe.target.horizons):
        if not np.isfinite(history.labels[train.symbols, train.positions, h]).any():
            raise ConfigurationError(
                f"split train has no known outcome {horizon} sessions ahead; give more bars or leave the horizon out"
            )
    some = train.subsample(STARTED_FROM)
    if weights is not None:
        return network, initialize_from(network, weights, lambda: history.batches(some))
    initialize(network, lambda: history.batches(some), recipe.quantiles)
    return network, None


def _list_universe(history: History, recipe: StockRecipe) -> tuple[str, ...]:
    """Symbols in node order for a panel network, else none."""
    return history.bars.symbols if get_kind(recipe.kind).is_panel_model else ()


def calibrate_network(fitted: FittedNetwork, history: History, splits: DataSplits, recipe: StockRecipe) -> Artifact:
    """The artifact with conformal offsets from the calibration split; its card stays empty."""
    manifest = Manifest(
        kind=get_kind(recipe.kind),
        config=recipe.config,
        target=recipe.target,
        quantiles=recipe.quantiles,
        normaliser=history.pipeline.normaliser,
        encoder_length=recipe.encoder_length,
        minimum=history.pipeline.minimum,
        conformal=without_offsets(recipe.target, recipe.quantiles),
        baseline=_average_windows(history, splits),
        universe=_list_universe(history, recipe),
        card={},
    )
    weights = {name: tensor.clone() for name, tensor in fitted.network.state_dict().items()}
    return Artifact(
        manifest=calibrate_manifest(manifest, fitted.network, history, splits.calibration),
        pipeline=history.pipeline,
        weights=weights,
    )


def without_offsets(target: Target, levels: tuple[float, ...]) -> Conformal:
    """The calibration of a model that is not calibrated."""
    horizons = len(target.horizons)
    return Conformal(offsets=((0.0,) * len(levels),) * horizons, effective_samples=(0.0,) * horizons)


def calibrate_manifest(manifest: Manifest, network: nn.Module, history: History, part: SplitPart) -> Manifest:
    """The manifest with conformal offsets from a part; without offsets before."""
    windows = history.windows(part)
    units = forecast_with_network(build_engine(network, manifest), history, windows, manifest.universe).units
    conformal = calibrate(
        units.double().numpy(),
        history.targets(windows).double().numpy(),
        manifest.quantiles,
        sessions=len(np.unique(windows.positions)),
        horizons=manifest.target.horizons,
    )
    return replace(manifest, conformal=conformal)


def _average_windows(history: History, splits: DataSplits) -> BaselineSpec:
    """The mean training window, as the baseline of explanations."""
    train, sizes = history.windows(splits.train), history.pipeline.sizes
    horizons = len(history.pipeline.target.horizons)
    known, static, location = (
        torch.zeros(width, dtype=torch.float64) for width in (sizes.known, sizes.static, horizons)
    )
    scale = torch.empty((horizons, len(train)), dtype=torch.float64)
    for rows, block in train.blocks(WINDOWS_PER_BATCH):
        symbols, positions = locate_windows(block)
        known += history.stored.gather_known(symbols, positions).double().mean(dim=1).sum(dim=0)
        static += history.stored.static[symbols].double().sum(dim=0)
        centers, scales = history.location_and_scale(block)
        location += centers.sum(dim=0)
        scale[:, rows] = scales.T
    return BaselineSpec(
        name="train_mean",
        known=tuple((known / len(train)).tolist()),
        static=tuple((static / len(train)).tolist()),
        location=tuple((location / len(train)).tolist()),
        scale=tuple(float(values.median()) for values in scale),
    )


def build_engine(network: nn.Module, manifest: Manifest) -> Engine:
    """An engine that runs a frozen network on the CPU."""
    return Engine(network, build_output_map(manifest), device=torch.device("cpu"), max_rows=WINDOWS_PER_BATCH)


def assemble_model(artifact: Artifact) -> Model:
    """The model of a new artifact, on the CPU."""
    identity = ModelIdentity(name="new", version=0, weights_hash="")
    return Model.assemble(identity, artifact, device=torch.device("cpu"), max_rows=256)

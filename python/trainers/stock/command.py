"""`quantra train stock …` and `python -m trainers.stock …`: a thin map from flags to a recipe."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from predictor import artifact
from predictor.bars import BarPanel
from predictor.card import Ancestor, ancestors_of
from predictor.cli.bars import Bars, BarsEnv, BarsQuery, chosen_bars
from predictor.cli.options import CovariateFiles, StaticFile
from predictor.cli.scores import judgement
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, InSampleError, shown_date
from predictor.networks import (
    Edges,
    GraphConfig,
    NetworkConfig,
    Setting,
    Target,
    configured,
    kind_named,
)
from trainers.loop import LoopError, StoppedError, launched_rank
from trainers.options import (
    AccumulateOption,
    CheckpointSecondsOption,
    ClipOption,
    CompileOption,
    DeterministicOption,
    DeviceOption,
    EmaOption,
    JsonOption,
    KeepOption,
    LoopOptions,
    NonfiniteOption,
    OomOption,
    PrecisionOption,
    ProfileOption,
    ResumeOption,
    SeedOption,
    TensorBoardOption,
    ThreadsOption,
    consumer,
)
from trainers.stock.announcing import announcer, warner
from trainers.stock.edges import read_edges
from trainers.stock.flags import (
    HORIZONS,
    OWN,
    QUANTILES,
    CalendarOption,
    EncoderLengthOption,
    EpochsOption,
    FeaturesOption,
    HorizonsOption,
    KnownOption,
    LagOption,
    ModelOption,
    PatienceOption,
    QuantilesOption,
    ScaleOption,
    SplitsOption,
    TargetOption,
    covariate_fields,
    features_named,
    integers,
    lag_of,
    numbers,
    refuse_learning,
    scale_of,
    splits_of,
    target_kind,
)
from trainers.stock.parent import Parent
from trainers.stock.parent_flags import StartOption, chosen_parent, described_by
from trainers.stock.recipe import Recipe, Schedule, optimisation_of
from trainers.stock.training import Keeping, Trained, train
from trainers.stock.training_data import Material

DEFAULTS = Recipe()
LOOP = LoopOptions()
EXAMPLE = "Example: quantra train stock --bars bars.csv --model lstm --calendar XNYS --out models/demo/1"


def _config(model: str, settings: Mapping[str, Setting | None]) -> NetworkConfig:
    """The kind's own settings, but for those that were given."""
    given = {name: value for name, value in settings.items() if value is not None}
    return configured(kind_named(model), given)


def _edges(path: Path, bars: BarPanel, recipe: Recipe) -> Edges:
    if not isinstance(recipe.config, GraphConfig):
        raise ConfigurationError(f"--edges is given, but a network of kind {recipe.kind!r} has no graph; use graph")
    return read_edges(path, bars.symbols, neighbours=recipe.config.neighbours)


def stock(  # noqa: PLR0913 - one argument a flag
    context: typer.Context,
    *,
    bars: Bars = "",
    query: BarsQuery = "",
    bars_env: BarsEnv = "",
    out: Annotated[Path, typer.Option(help="Folder of the artifact, such as models/NAME/1; it must not exist.")],
    model: ModelOption = DEFAULTS.kind,
    features: FeaturesOption = "default",
    covariates: CovariateFiles = None,
    known: KnownOption = "",
    static: StaticFile = None,
    calendar: CalendarOption = DEFAULTS.calendar,
    target: TargetOption = DEFAULTS.target.kind.value,
    horizons: HorizonsOption = HORIZONS,
    quantiles: QuantilesOption = QUANTILES,
    lag: LagOption = None,
    splits: SplitsOption = "",
    scale: ScaleOption = None,
    encoder_length: EncoderLengthOption = DEFAULTS.encoder_length,
    hidden: Annotated[int | None, typer.Option(help="Width of the network.", show_default=OWN)] = None,
    layers: Annotated[int | None, typer.Option(help="Recurrent layers.", show_default=OWN)] = None,
    blocks: Annotated[int | None, typer.Option(help="Transformer layers of the hybrid.", show_default=OWN)] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads.", show_default=OWN)] = None,
    neighbours: Annotated[int | None, typer.Option(help="Edges a stock of the graph.", show_default=OWN)] = None,
    start: StartOption = None,
    edges: Annotated[
        Path | None,
        typer.Option(help="CSV with symbol, neighbour, weight; without: correlations of training returns."),
    ] = None,
    dropout: Annotated[float | None, typer.Option(help="Share dropped in training.", show_default=OWN)] = None,
    epochs: EpochsOption = None,
    patience: PatienceOption = DEFAULTS.optimisation.patience,
    batch_size: Annotated[int, typer.Option(min=1, help="Windows a micro-batch.")] = DEFAULTS.optimisation.batch_size,
    accumulate: AccumulateOption = LOOP.accumulate,
    learning_rate: Annotated[float | None, typer.Option(help="Of AdamW.", show_default=OWN)] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Of AdamW.", show_default=OWN)] = None,
    schedule: Annotated[
        Schedule | None, typer.Option(help="Of the learning rate: constant, or cosine to 0.", show_default=OWN)
    ] = None,
    ranking_weight: Annotated[
        float, typer.Option(help="Of the ranking loss of a model that ranks stocks.")
    ] = DEFAULTS.optimisation.ranking_weight,
    clip: ClipOption = DEFAULTS.optimisation.clip,
    ema: EmaOption = None,
    precision: PrecisionOption = LOOP.precision,
    device: DeviceOption = LOOP.device,
    oom: OomOption = LOOP.oom,
    nonfinite: NonfiniteOption = LOOP.nonfinite,
    compiled: CompileOption = LOOP.compiled,
    deterministic: DeterministicOption = LOOP.deterministic,
    seed: SeedOption = LOOP.seed,
    threads: ThreadsOption = LOOP.threads,
    resume: ResumeOption = LOOP.resume,
    checkpoint_seconds: CheckpointSecondsOption = LOOP.checkpoint_seconds,
    keep: KeepOption = LOOP.keep,
    profile: ProfileOption = LOOP.profile,
    tensorboard: TensorBoardOption = LOOP.tensorboard,
    as_json: JsonOption = LOOP.as_json,
) -> None:
    """Train a stock model on daily bars and save it as an artifact."""
    parent = None if start is None else chosen_parent(context, start, covariates or (), static)
    if parent is None:
        refuse_learning(context, model)
        sizes = {"hidden": hidden, "layers": layers, "blocks": blocks, "heads": heads}
        described = Recipe(
            kind=model,
            config=_config(model, {**sizes, "neighbours": neighbours, "dropout": dropout}),
            target=Target(kind=target_kind(target), lag=lag_of(model, lag), horizons=integers("horizons", horizons)),
            quantiles=numbers("quantiles", quantiles),
            encoder_length=encoder_length,
            scale=scale_of(model, scale),
        )
    else:
        described = described_by(parent, dropout)
    own = optimisation_of(described.kind)
    recipe = replace(
        described,
        parts=splits_of(splits),
        shares=DEFAULTS.shares,
        calendar=calendar or described.calendar,
        optimisation=replace(
            own,
            max_epochs=own.max_epochs if epochs is None else epochs,
            patience=patience,
            batch_size=batch_size,
            accumulate=accumulate,
            learning_rate=own.learning_rate if learning_rate is None else learning_rate,
            weight_decay=own.weight_decay if weight_decay is None else weight_decay,
            schedule=own.schedule if schedule is None else schedule,
            ranking_weight=ranking_weight,
            clip=clip,
            ema=own.ema if ema is None else ema,
            precision=precision,
            device=device,
            seed=seed,
            oom=oom,
            nonfinite=nonfinite,
            compiled=compiled,
            deterministic=deterministic,
        ),
    )
    options = LoopOptions(
        checkpoint_seconds=checkpoint_seconds,
        keep=keep,
        resume=resume,
        profile=profile,
        tensorboard=tensorboard,
        as_json=as_json,
    )
    rank = launched_rank()
    if resume and (out / "manifest.json").is_file():
        _check_same(out, recipe, parent)
        if rank == 0:
            _tell_finished(out, as_json=as_json)
        return
    artifact.check_place(out)
    torch.set_num_threads(threads)
    beside = CovariateSource.read(covariates or (), static)
    chosen = features_named(features, covariate_fields(beside, known)) if parent is None else parent.features
    panel = chosen_bars(bars, query, bars_env)
    given = None if edges is None else _edges(edges, panel, recipe)
    trained = _trained(Material(panel, chosen, beside, given, parent), recipe, out, options, rank)
    if rank == 0:
        _tell(trained, as_json=as_json)


def _trained(material: Material, recipe: Recipe, out: Path, options: LoopOptions, rank: int) -> Trained:
    """Train, with log and checkpoints in a folder beside the artifact's."""
    folder = out.parent / f"{out.name}.run"
    try:
        return train(
            material,
            recipe,
            out,
            consume=consumer(options, folder, sys.stdout, rank=rank),
            announce=announcer(as_json=options.as_json) if rank == 0 else _unheard,
            warn=warner(as_json=options.as_json) if rank == 0 else _unheard,
            keeping=Keeping(
                folder=folder / "checkpoints",
                resume=options.resume,
                every_seconds=options.checkpoint_seconds,
                keep=options.keep,
            ),
        )
    except InSampleError as error:
        raise typer.BadParameter(error.message) from error
    except StoppedError as error:
        if options.as_json:
            sys.stdout.write(json.dumps({"kind": "stopped", "message": error.message, "signal": error.signal}) + "\n")
        sys.stderr.write(f"{error.message}; go on with the same command and --resume\n")
        raise typer.Exit(128 + error.signal) from error
    except LoopError as error:
        raise ConfigurationError(str(error)) from error


def _tell(trained: Trained, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({"kind": "trained", "artifact": str(trained.folder), "card": trained.card}) + "\n")
        return
    console = Console()
    console.print(judgement(trained.told))
    # One line, and plain: a path may hold brackets, and the command is there to be copied.
    console.print(f"Saved {trained.folder}. Next: quantra inspect {trained.folder}", soft_wrap=True, markup=False)


def _check_same(out: Path, recipe: Recipe, parent: Parent | None) -> None:
    """A finished artifact must be what the flags ask for; the bars are not looked at."""
    card = artifact.load(out).artifact.manifest.card
    made, before, now = card["recipe"], ancestors_of(card), () if parent is None else parent.lineage
    found = made if isinstance(made, dict) else {}
    different = [
        f"{name} was {found.get(name)} and is now {value}"
        for name, value in recipe.settings().items()
        if found.get(name) != value
    ]
    if before != now:
        different.append(f"the weights that it started from were {_lineage(before)} and are now {_lineage(now)}")
    if not different:
        return
    raise ConfigurationError(
        f"{out} is finished, and was made with other settings: {'; '.join(different)}; choose another --out to train "
        "with these"
    )


def _lineage(ancestors: Sequence[Ancestor]) -> str:
    told = (f"{one.weights_hash[:16]} (labels up to {shown_date(one.seen_until)})" for one in ancestors)
    return ", of ".join(told) or "none"


def _tell_finished(out: Path, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({"kind": "finished", "artifact": str(out)}) + "\n")
    else:
        sys.stdout.write(f"{out} is finished; there is nothing to resume. Next: quantra inspect {out}\n")


def _unheard(_stage: str) -> None:
    """The first process of a group announces for all."""

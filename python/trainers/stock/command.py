"""`quantra train stock …` and `python -m trainers.stock …`: a thin map from flags to a recipe."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from predictor import artifact
from predictor.bars import BarPanel
from predictor.cli.scores import judgement
from predictor.errors import ConfigurationError
from predictor.features import FeatureSet, default_features
from predictor.networks import (
    KINDS,
    Edges,
    GraphConfig,
    NetworkConfig,
    Setting,
    Target,
    TargetKind,
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
from trainers.stock.edges import read_edges
from trainers.stock.recipe import Optimisation, Recipe
from trainers.stock.splits import Splits
from trainers.stock.training import Keeping, Trained, train

DEFAULTS = Recipe()
LOOP = LoopOptions()
OWN = "the kind's own"
EXAMPLE = "Example: quantra train stock --bars bars.csv --model lstm --calendar XNYS --out models/demo/1"


def _config(model: str, settings: Mapping[str, Setting | None]) -> NetworkConfig:
    """The kind's own settings, but for those that were given."""
    given = {name: value for name, value in settings.items() if value is not None}
    return configured(kind_named(model), given)


def _edges(path: Path, bars: BarPanel, recipe: Recipe) -> Edges:
    if not isinstance(recipe.config, GraphConfig):
        raise ConfigurationError(f"--edges is given, but a network of kind {recipe.kind!r} has no graph; use graph")
    return read_edges(path, bars.symbols, neighbours=recipe.config.neighbours)


def _lag(model: str, given: int | None) -> int:
    """Nobody trades at the close that made a ranking, so a model that ranks stocks begins one session later."""
    if given is not None:
        return given
    return 1 if kind_named(model).is_panel_model else DEFAULTS.target.lag


def _listed(values: Iterable[float]) -> str:
    """Numbers as a flag writes them, such as 1,5,20."""
    return ",".join(f"{value:g}" for value in values)


def stock(  # noqa: PLR0913 - one argument a flag
    *,
    bars: Annotated[Path, typer.Option(help="CSV or Parquet file of daily bars.")],
    out: Annotated[Path, typer.Option(help="Folder of the artifact, such as models/NAME/1; it must not exist.")],
    model: Annotated[str, typer.Option(help=f"Network kind: {', '.join(KINDS)}.")] = DEFAULTS.kind,
    features: Annotated[str, typer.Option(help="A file of feature expressions, or `default`.")] = "default",
    calendar: Annotated[
        str, typer.Option(help="Exchange code, such as XNYS; empty: Monday to Friday.")
    ] = DEFAULTS.calendar,
    target: Annotated[str, typer.Option(help="log-return or log-volatility.")] = DEFAULTS.target.kind.value,
    horizons: Annotated[str, typer.Option(help="Trading days.")] = _listed(DEFAULTS.target.horizons),
    quantiles: Annotated[str, typer.Option(help="Levels between 0 and 1.")] = _listed(DEFAULTS.quantiles),
    lag: Annotated[
        int | None,
        typer.Option(help="0: returns from the last close; 1: from the next.", show_default="0; graph: 1"),
    ] = None,
    splits: Annotated[
        str,
        typer.Option(
            metavar="FIRST/LAST,…",
            help="Sessions of train, selection, calibration and test: 2000-01-03/2007-12-31,…; empty: by shares.",
        ),
    ] = "",
    encoder_length: Annotated[int, typer.Option(help="Sessions that the network reads.")] = DEFAULTS.encoder_length,
    hidden: Annotated[int | None, typer.Option(help="Width of the network.", show_default=OWN)] = None,
    layers: Annotated[int | None, typer.Option(help="Recurrent layers.", show_default=OWN)] = None,
    blocks: Annotated[int | None, typer.Option(help="Transformer layers of the hybrid.", show_default=OWN)] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads.", show_default=OWN)] = None,
    neighbours: Annotated[int | None, typer.Option(help="Edges a stock of the graph.", show_default=OWN)] = None,
    edges: Annotated[
        Path | None,
        typer.Option(help="CSV with symbol, neighbour, weight; without: correlations of training returns."),
    ] = None,
    dropout: Annotated[float | None, typer.Option(help="Share dropped in training.", show_default=OWN)] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs at most.")] = DEFAULTS.optimisation.max_epochs,
    patience: Annotated[
        int, typer.Option(min=1, help="Epochs without improvement before it ends.")
    ] = DEFAULTS.optimisation.patience,
    batch_size: Annotated[int, typer.Option(min=1, help="Windows a micro-batch.")] = DEFAULTS.optimisation.batch_size,
    accumulate: AccumulateOption = LOOP.accumulate,
    learning_rate: Annotated[float, typer.Option(help="Of AdamW.")] = DEFAULTS.optimisation.learning_rate,
    weight_decay: Annotated[float, typer.Option(help="Of AdamW.")] = DEFAULTS.optimisation.weight_decay,
    clip: ClipOption = DEFAULTS.optimisation.clip,
    ema: EmaOption = DEFAULTS.optimisation.ema,
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
    recipe = Recipe(
        kind=model,
        config=_config(
            model,
            {
                "hidden": hidden,
                "layers": layers,
                "blocks": blocks,
                "heads": heads,
                "neighbours": neighbours,
                "dropout": dropout,
            },
        ),
        target=Target(kind=_target_kind(target), lag=_lag(model, lag), horizons=_integers("horizons", horizons)),
        quantiles=_numbers("quantiles", quantiles),
        encoder_length=encoder_length,
        parts=_splits(splits) if splits else None,
        calendar=calendar,
        optimisation=Optimisation(
            max_epochs=epochs,
            patience=patience,
            batch_size=batch_size,
            accumulate=accumulate,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            clip=clip,
            ema=ema,
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
        _check_same(out, recipe)
        if rank == 0:
            _tell_finished(out, as_json=as_json)
        return
    torch.set_num_threads(threads)
    chosen = default_features() if features == "default" else FeatureSet.read(features)
    panel = BarPanel.read(bars)
    given = None if edges is None else _edges(edges, panel, recipe)
    trained = _trained(panel, chosen, recipe, out, options, rank, given)
    if rank == 0:
        _tell(trained, as_json=as_json)


def _trained(
    bars: BarPanel,
    features: FeatureSet,
    recipe: Recipe,
    out: Path,
    options: LoopOptions,
    rank: int,
    edges: Edges | None,
) -> Trained:
    """Train, with log and checkpoints in a folder beside the artifact's."""
    folder = out.parent / f"{out.name}.run"
    try:
        return train(
            bars,
            features,
            recipe,
            out,
            consume=consumer(options, folder, sys.stdout, rank=rank),
            announce=_announcer(as_json=options.as_json) if rank == 0 else _unheard,
            keeping=Keeping(
                folder=folder / "checkpoints",
                resume=options.resume,
                every_seconds=options.checkpoint_seconds,
                keep=options.keep,
            ),
            edges=edges,
        )
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


def _check_same(out: Path, recipe: Recipe) -> None:
    """A finished artifact must be what the flags ask for; the bars are not looked at."""
    made = artifact.load(out).artifact.manifest.card["recipe"]
    if made == recipe.settings():
        return
    found = made if isinstance(made, dict) else {}
    different = [
        f"{name} was {found.get(name)} and is now {value}"
        for name, value in recipe.settings().items()
        if found.get(name) != value
    ]
    raise ConfigurationError(
        f"{out} is finished, and was made with other settings: {'; '.join(different)}; choose another --out to train "
        "with these"
    )


def _tell_finished(out: Path, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({"kind": "finished", "artifact": str(out)}) + "\n")
    else:
        sys.stdout.write(f"{out} is finished; there is nothing to resume. Next: quantra inspect {out}\n")


def _unheard(_stage: str) -> None:
    """The first process of a group announces for all."""


def _announcer(*, as_json: bool) -> Callable[[str], None]:
    """What tells a person or a program which stage begins."""

    def announce(stage: str) -> None:
        if as_json:
            sys.stdout.write(json.dumps({"kind": "stage", "stage": stage}) + "\n")
            sys.stdout.flush()
        else:
            Console().print(f"{stage} …", style="dim")

    return announce


def _target_kind(text: str) -> TargetKind:
    try:
        return TargetKind(text)
    except ValueError as error:
        raise ConfigurationError(f"target is {text!r}, but must be one of {[k.value for k in TargetKind]}") from error


def _splits(text: str) -> Splits:
    try:
        ranges = [(_session(first), _session(last)) for first, last in (part.split("/") for part in text.split(","))]
    except ValueError as error:
        raise ConfigurationError(
            f"splits is {text!r}, but must be four ranges of dates with commas, such as 2000-01-03/2007-12-31,…"
        ) from error
    return Splits.by_dates(ranges)


def _session(text: str) -> int:
    """Yyyymmdd of an ISO date."""
    return int(date.fromisoformat(text.strip()).strftime("%Y%m%d"))


def _integers(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigurationError(
            f"{name} is {text!r}, but must be whole numbers with commas, such as 1,5,20"
        ) from error


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigurationError(f"{name} is {text!r}, but must be numbers with commas, such as 0.1,0.5,0.9") from error

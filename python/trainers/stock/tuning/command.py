"""`quantra tune stock …`: a thin map from flags to a search, and the artifact of what it found."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from predictor import artifact
from predictor.cli.bars import Bars, BarsEnv, BarsQuery, chosen_bars
from predictor.cli.options import CovariateFiles, StaticFile
from predictor.cli.scores import judgement
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, shown_date
from predictor.networks import Target, kind_named
from trainers.loop import LoopError
from trainers.options import DeviceOption, JsonOption, LoopOptions, PrecisionOption, SeedOption, ThreadsOption
from trainers.progress import Consumer, JsonLines, progress_for
from trainers.stock.announcing import announcer, warner
from trainers.stock.data import History
from trainers.stock.doubts import heard, of_recipe, of_steps
from trainers.stock.fitting import fit_pipeline
from trainers.stock.flags import (
    HORIZONS,
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
    scale_of,
    splits_of,
    target_kind,
)
from trainers.stock.recipe import Recipe, optimisation_of
from trainers.stock.training import Trained, train
from trainers.stock.training_data import Material
from trainers.stock.tuning.search import Found, Search, search
from trainers.stock.tuning.storage import Storage, require_optuna

DEFAULTS = Recipe()
LOOP = LoopOptions()
EXAMPLE = "Example: quantra tune stock --bars bars.csv --model tft --calendar XNYS --trials 30 --out models/tuned/1"


def tune_stock(  # noqa: PLR0913 - one argument a flag
    *,
    bars: Bars = "",
    query: BarsQuery = "",
    bars_env: BarsEnv = "",
    out: Annotated[Path, typer.Option(help="Folder of the best one's artifact; it must not exist.")],
    model: ModelOption = DEFAULTS.kind,
    trials: Annotated[int, typer.Option(min=1, help="Trials in all, those of earlier runs included.")] = 30,
    seeds: Annotated[int, typer.Option(min=2, help="Seeds that the best one is fitted from again.")] = 5,
    storage: Annotated[
        str,
        typer.Option(help="Database of the trials; empty: SQLite beside the artifact, in OUT.tune.db."),
    ] = "",
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
    epochs: EpochsOption = None,
    patience: PatienceOption = DEFAULTS.optimisation.patience,
    precision: PrecisionOption = LOOP.precision,
    device: DeviceOption = LOOP.device,
    seed: SeedOption = LOOP.seed,
    threads: ThreadsOption = LOOP.threads,
    as_json: JsonOption = LOOP.as_json,
) -> None:
    """Search for the settings of a stock model, refit the best from fresh seeds, and save it as an artifact.

    Trials are judged by the selection part. The same command goes on where a search was stopped; with a database
    server as --storage, several machines search together.
    """
    require_optuna()
    if not kind_named(model).learns:
        raise ConfigurationError(
            f"model {model!r} has nothing to search for; quantra train stock --model {model} fits it"
        )
    artifact.check_place(out)
    torch.set_num_threads(threads)
    own = optimisation_of(model)
    recipe = Recipe(
        kind=model,
        config=kind_named(model).config(),
        target=Target(kind=target_kind(target), lag=lag_of(model, lag), horizons=integers("horizons", horizons)),
        quantiles=numbers("quantiles", quantiles),
        encoder_length=encoder_length,
        scale=scale_of(model, scale),
        parts=splits_of(splits),
        calendar=calendar,
        optimisation=replace(
            own,
            max_epochs=own.max_epochs if epochs is None else epochs,
            patience=patience,
            precision=precision,
            device=device,
            seed=seed,
        ),
    )
    beside = CovariateSource.read(covariates or (), static)
    panel = chosen_bars(bars, query, bars_env)
    material = Material(panel, features_named(features, covariate_fields(beside, known)), beside)
    out.parent.mkdir(parents=True, exist_ok=True)
    kept = Storage(uri=storage or f"sqlite:///{out.parent / f'{out.name}.tune.db'}", name=f"quantra-{model}")
    announce, warn, consume = announcer(as_json=as_json), warner(as_json=as_json), _consumer(as_json=as_json)
    heard(of_recipe(panel, material.features, beside, recipe), warn)
    asked = _search_of(material, recipe, trials=trials, seeds=seeds)
    heard(of_steps(asked.history, asked.splits, recipe), warn)
    try:
        found = search(asked, kept, consume=consume, announce=announce)
        announce("training the best one for its artifact")
        trained = train(material, found.recipe, out, consume=consume, tuning=found.card())
    except LoopError as error:
        raise ConfigurationError(str(error)) from error
    _tell(found, trained, as_json=as_json)


def _search_of(material: Material, recipe: Recipe, *, trials: int, seeds: int) -> Search:
    """What is searched; everything but the trials' own settings is fitted once."""
    bars, beside = material.bars, material.covariates
    parts = recipe.splits(bars.sessions)
    return Search(
        history=History(bars, fit_pipeline(bars, material.features, recipe, parts, beside), beside),
        splits=parts,
        recipe=recipe,
        settings={**recipe.settings(), **material.identity()},
        trials=trials,
        seeds=seeds,
    )


def _consumer(*, as_json: bool) -> Consumer:
    return JsonLines(sys.stdout) if as_json else progress_for(sys.stdout)


def _tell(found: Found, trained: Trained, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({"kind": "tuned", "artifact": str(trained.folder), "tuning": found.card()}) + "\n")
        return
    console = Console()
    days = f"{shown_date(found.selection.first)} to {shown_date(found.selection.last)}"
    console.print(
        f"{found.trials} trials, of which {found.pruned} fell behind and {found.failed} failed. Selection loss "
        f"(pinball in units of each window's volatility, outcomes of {days}, beside no baseline) of the best trial "
        f"{found.best_trial_loss:.5f}; of the same settings from {len(found.seed_losses)} fresh seeds {found.mean:.5f} "
        f"± {found.deviation:.5f}: without the luck of a seed, still on the days they were chosen by."
    )
    console.print(judgement(trained.told))
    console.print(f"Saved {trained.folder}. Next: quantra inspect {trained.folder}", soft_wrap=True, markup=False)

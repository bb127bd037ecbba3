"""The command `quantra tune stock`."""

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
from rich.console import Console

from predictor import artifact
from predictor.cli.flags import with_flags
from predictor.cli.options import BarsFlags, CovariateFlags, WorkerFlags
from predictor.cli.output import make_judgement, write_json
from predictor.cli.program import say
from predictor.errors import ConfigurationError, format_date
from predictor.flags import Flag, FlagSubset, ParsedFlags
from predictor.networks import Target, get_kind
from predictor.replacement import claim_output
from trainers.loop import LoopError
from trainers.options import RunOptions
from trainers.progress import JsonLines, ReportConsumer, no_progress, progress_for, progress_on
from trainers.stock.data import History
from trainers.stock.data_warnings import emit, find_recipe_warnings, find_step_warnings
from trainers.stock.feature_cache import map_bars, open_cache
from trainers.stock.feature_selection import FeatureSelection
from trainers.stock.flags import CacheFolder, OutFolder, choose_version_folder, print_artifact_commands
from trainers.stock.model_fit import fit_pipeline
from trainers.stock.progress_output import make_announcer, make_warner, warn_on_stderr
from trainers.stock.recipe import Optimisation, RecipeChanges, StockRecipe, recipe_of
from trainers.stock.training import TrainingResult, train
from trainers.stock.training_data import TrainingMaterial
from trainers.stock.training_plan import set_calendar
from trainers.stock.tuning.search import Search, SearchResult, StudyStorage, require_optuna, search


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBudget:
    """Number of trials, and the database that stores them."""

    trials: Annotated[int, Flag("Trials in total, earlier runs included.", minimum=1)] = 30
    seeds: Annotated[int, Flag("Seeds to refit the best trial's settings from.", minimum=2)] = 5
    storage: Annotated[str, Flag("Database of the trials; empty: SQLite, in OUT.tune.db next to the artifact.")] = ""

    def study(self, out: Path, kind: str) -> StudyStorage:
        """The study in the database."""
        return StudyStorage(uri=self.storage or f"sqlite:///{self.database(out)}", name=f"quantra-{kind}")

    def database(self, out: Path) -> Path:
        """The SQLite file without --storage."""
        return out.with_name(f"{out.name}.tune.db")


@with_flags
def tune_stock(  # noqa: PLR0913 - one argument per group of flags
    *,
    bars: BarsFlags,
    out: OutFolder,
    recipe: ParsedFlags[StockRecipe],
    effort: SearchBudget,
    machines: WorkerFlags,
    target: ParsedFlags[Target],
    reads: FeatureSelection,
    files: CovariateFlags,
    optimisation: Annotated[
        ParsedFlags[Optimisation], FlagSubset("max_epochs", "patience", "precision", "device", "seed")
    ],
    feature_cache: CacheFolder = None,
    run: Annotated[RunOptions, FlagSubset("threads", "as_json")],
) -> None:
    """Tune the settings of a stock model, refit the best from fresh seeds, and save it as an artifact.

    Trials are compared by their loss on the selection split. The same command continues a stopped search. With a
    database server as --storage, several machines search together.
    """
    require_optuna()
    changes = RecipeChanges(recipe=recipe, target=target, optimisation=optimisation)
    if not get_kind(changes.kind).is_trainable:
        raise ConfigurationError(
            f"model {changes.kind!r} is not trained in epochs, so there is nothing to tune; quantra train stock "
            f"--model {changes.kind} fits it"
        )
    out = choose_version_folder(out)
    artifact.check_new_folder(out)
    torch.set_num_threads(run.threads)
    cache = open_cache(feature_cache, warn_on_stderr)
    covariates, panel = files.read(), map_bars(bars.read(), cache)
    final = set_calendar(changes.over(recipe_of(changes.kind)), panel, partial(say, style="dim"))
    features = reads.load(covariates, final.calendar)
    material = TrainingMaterial(panel, features, covariates, cache=cache)
    out.parent.mkdir(parents=True, exist_ok=True)
    result, trained = _search(material, final, effort, out, machines, as_json=run.as_json)
    _print_result(result, trained, as_json=run.as_json)
    if not run.as_json:
        print_artifact_commands(out, bars, files)


def _search(
    material: TrainingMaterial,
    recipe: StockRecipe,
    effort: SearchBudget,
    out: Path,
    machines: WorkerFlags,
    *,
    as_json: bool,
) -> tuple[SearchResult, TrainingResult]:
    """Run the search, and train the best recipe."""
    announce, warn = make_announcer(as_json=as_json), make_warner(as_json=as_json)
    consume: ReportConsumer = JsonLines(sys.stdout) if as_json else progress_for(sys.stdout)
    bars, covariates, cache = material.bars, material.covariates, material.cache
    emit(find_recipe_warnings(bars, material.features, covariates, recipe), warn)
    splits = recipe.splits(bars.sessions)
    pipeline = fit_pipeline(bars, material.features, recipe, splits, covariates, cache)  # once for all trials
    settings = Search(
        history=History(bars, pipeline, covariates, cache),
        splits=splits,
        recipe=recipe,
        settings={**recipe.settings(), **material.identity()},
        trials=effort.trials,
        seeds=effort.seeds,
    )
    emit(find_step_warnings(settings.history, splits, recipe), warn)
    try:
        with nullcontext() if effort.storage else claim_output(effort.database(out)):
            study = effort.study(out, recipe.kind)
            result = search(settings, study, consume=consume, announce=announce, runner=machines.runner())
        announce("training the best recipe for its artifact")
        track_steps = no_progress if as_json else progress_on(sys.stdout)
        sections = {"tuning": dict(result.card())}
        return result, train(material, result.recipe, out, consume=consume, track_steps=track_steps, sections=sections)
    except LoopError as error:
        raise ConfigurationError(str(error)) from error


def _print_result(result: SearchResult, trained: TrainingResult, *, as_json: bool) -> None:
    if as_json:
        write_json({"kind": "tuned", "artifact": str(trained.folder), "tuning": result.card()})
        return
    console = Console()
    days = f"{format_date(result.selection.first)} to {format_date(result.selection.last)}"
    console.print(
        f"{result.trials} trials, of which {result.pruned} were pruned and {result.failed} failed. Selection loss "
        f"(pinball in units of each window's volatility, outcomes of {days}, no baseline) of the best trial "
        f"{result.best_trial_loss:.5f}; of the same settings from {len(result.seed_losses)} fresh seeds "
        f"{result.mean:.5f} ± {result.deviation:.5f}: without the luck of one seed, but still on the days they were "
        "chosen on."
    )
    console.print(make_judgement(trained.summary))
    console.print(f"Saved {trained.folder}.", soft_wrap=True, markup=False)

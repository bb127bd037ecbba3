"""The command `quantra train stock`, also `python -m trainers.stock`."""

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from predictor import artifact
from predictor.canonical import Json
from predictor.card import ParentModel, read_ancestors, read_data_facts
from predictor.cli.flags import with_flags
from predictor.cli.options import BarsFlags, CovariateFlags, WorkerFlags
from predictor.cli.output import make_judgement, write_json
from predictor.cli.program import say
from predictor.errors import ConfigurationError, InSampleError, format_date
from predictor.flags import Flag, FlagsOf, ParsedFlags
from predictor.networks import KINDS, NetworkConfig, Target
from predictor.parent import exit_with_parent
from predictor.replacement import check_folder, claim_output
from trainers.loop import LoopError, StoppedError, launched_rank, launched_size
from trainers.options import RunOptions, consumer
from trainers.progress import ConsumerChain, ReportConsumer, no_progress, progress_on
from trainers.stock.card import hash_bars
from trainers.stock.data_warnings import Warn, discard, without_repeats
from trainers.stock.ensembles.command import describe_ensemble, print_ensemble
from trainers.stock.ensembles.member_training import BEST, USUAL_BUDGET, BestPlan, parse_budget, train_best
from trainers.stock.feature_cache import map_bars, open_cache
from trainers.stock.feature_selection import FeatureSelection
from trainers.stock.flags import (
    RUN,
    CacheFolder,
    OutFolder,
    choose_version_folder,
    print_artifact_commands,
)
from trainers.stock.progress_output import make_announcer, make_warner
from trainers.stock.recipe import Optimisation, RecipeChanges, StockRecipe, recipe_of
from trainers.stock.training import CheckpointSettings, TrainingResult, train
from trainers.stock.training_data import ParentArtifact, TrainingMaterial
from trainers.stock.training_jobs import PlannedTraining, TrainingRunner
from trainers.stock.training_plan import (
    describe_unused_flags,
    find_contradictions,
    find_other_features,
    inherit_recipe,
    load_edges,
    set_calendar,
)


def _parse_budget(text: str) -> float:
    try:
        return parse_budget(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


@with_flags
def stock(  # noqa: PLR0913 - one argument per group of flags
    *,
    bars: BarsFlags,
    out: OutFolder,
    recipe: ParsedFlags[StockRecipe],
    target: ParsedFlags[Target],
    reads: ParsedFlags[FeatureSelection],
    files: CovariateFlags,
    network: Annotated[ParsedFlags[NetworkConfig], FlagsOf(*(kind.config for kind in KINDS.values()))],
    start: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="ARTIFACT",
            help="Start from its weights; network, features, horizons, quantiles and scale are the artifact's.",
        ),
    ] = None,
    edges: Annotated[
        Path | None, Flag("CSV with symbol, neighbour, weight; if left out, correlations of training returns.")
    ] = None,
    optimisation: ParsedFlags[Optimisation],
    feature_cache: CacheFolder = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="TIME",
            parser=_parse_budget,
            help=f"Time for all trainings of --model {BEST}, such as 90s or 2h; 10m if left out.",
            show_default=False,
        ),
    ] = None,
    machines: WorkerFlags,
    run: RunOptions,
) -> None:
    """Train a stock model on daily bars and save it as an artifact.

    `--model best` trains the kinds that suit daily bars, and combines them into one ensemble. With --workers or
    --cluster, it trains several at the same time.
    """
    changes = RecipeChanges(recipe=recipe, target=target, network=network, optimisation=optimisation)
    if changes.kind == BEST:
        if start is not None or edges is not None:
            flag = "--edges" if start is None else "--from"
            raise ConfigurationError(f"{flag} is for one model; leave it out of --model {BEST}")
        plan = BestPlan(changes=changes, reads=reads, budget=USUAL_BUDGET if budget is None else budget)
        _train_best(plan, bars, files, out, feature_cache, machines, run)
        return
    if budget is not None:
        raise ConfigurationError(f"--budget is the time of --model {BEST}; leave it out for model {changes.kind}")
    refuse_machines(machines, f"model {changes.kind}")
    parent = None if start is None else _load_parent(start, changes, reads, files)
    if parent is None and (needless := describe_unused_flags(changes)):
        raise typer.BadParameter(needless)
    final = changes.over(recipe_of(changes.kind) if parent is None else inherit_recipe(parent))
    rank = launched_rank()
    out = choose_version_folder(out, resume=run.resume, tells=rank == 0)
    if run.resume and (out / "manifest.json").is_file():
        _check_same(out, final, parent)
        if rank == 0:
            print_finished(out, as_json=run.as_json)
        return
    artifact.check_new_folder(out)
    torch.set_num_threads(run.threads)
    if run.parent_watch:
        exit_with_parent()
    cache = open_cache(feature_cache, make_warner(as_json=run.as_json) if rank == 0 else discard)
    covariates, panel = files.read(), map_bars(bars.read(tells=rank == 0), cache)
    if parent is None:
        final = set_calendar(final, panel, partial(say, style="dim") if rank == 0 else discard)
    features = reads.over(FeatureSelection()).load(covariates, final.calendar) if parent is None else parent.features
    material = TrainingMaterial(panel, features, covariates, load_edges(edges, panel, final), parent, cache)
    trained = run_training(material, final, out, run, rank)
    if rank == 0:
        print_result(trained, as_json=run.as_json)
        if not run.as_json:
            print_artifact_commands(out, bars, files)


def _load_parent(
    folder: Path, changes: RecipeChanges, reads: ParsedFlags[FeatureSelection], files: CovariateFlags
) -> ParentArtifact:
    """Load the artifact to start from.

    Raises:
        typer.BadParameter: flags contradict the artifact; the message names all of them.
    """
    parent = ParentArtifact.load(folder)
    wrong = [*find_contradictions(parent, changes), *find_other_features(parent, reads, files.read)]
    if wrong:
        raise typer.BadParameter(
            f"{'; '.join(wrong)}: with --from these come with the weights; leave the flags out, or train from scratch"
        )
    return parent


def _train_best(
    plan: BestPlan,
    bars: BarsFlags,
    files: CovariateFlags,
    out: Path,
    cached: Path | None,
    machines: WorkerFlags,
    run: RunOptions,
) -> None:
    """Train several kinds, and combine them into an ensemble."""
    if launched_size() > 1:
        raise ConfigurationError(f"--model {BEST} runs without torchrun; use --workers or --cluster instead")
    out = choose_version_folder(out, resume=run.resume)
    if run.resume and (out / "manifest.json").is_file():
        print_finished(out, as_json=run.as_json)
        return
    artifact.check_new_folder(out)
    folder = choose_members_folder(out, resume=run.resume)
    torch.set_num_threads(run.threads)
    if run.parent_watch:
        exit_with_parent()
    cache = open_cache(cached, make_warner(as_json=run.as_json))
    covariates, panel = files.read(), map_bars(bars.read(), cache)
    trainer = member_trainer(run, machines)
    with claim_members(folder):
        joined_ensemble, left_out = train_best(
            plan,
            panel,
            out,
            trainer,
            folder,
            covariates=covariates,
            cache=cache,
            set_calendar=lambda recipe: set_calendar(recipe, panel, partial(say, style="dim")),
            announce=make_announcer(as_json=run.as_json),
            warn=make_warner(as_json=run.as_json),
            track_steps=no_progress if run.as_json else progress_on(sys.stdout),
        )
    if run.as_json:
        reasons = [{"name": name, "reason": reason} for name, reason in left_out.items()]
        write_json({**describe_ensemble(joined_ensemble), "left_out": reasons})
        return
    print_ensemble(joined_ensemble)
    print_artifact_commands(out, bars, files)


def choose_members_folder(out: Path, *, resume: bool) -> Path:
    """The folder of the members of an ensemble that will be saved at `out`.

    Raises:
        ConfigurationError: it exists, and its training is not to be resumed.
    """
    folder = out.with_name(out.name + RUN) / artifact.MEMBERS
    if folder.exists() and not resume:
        raise ConfigurationError(
            f"{folder} holds members of a training run that was stopped; continue it (--resume), or remove the folder "
            "to start over"
        )
    return folder


@contextmanager
def claim_members(folder: Path) -> Generator[None]:
    """Let only one command train members into the folder, and say after Ctrl+C how to continue.

    Raises:
        ConfigurationError: another command does.
    """
    check_folder(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with claim_output(folder.parent):
            yield
    except KeyboardInterrupt:
        sys.stderr.write("the members so far are saved; continue with the same command and --resume\n")
        raise


def member_trainer(options: RunOptions, machines: WorkerFlags) -> TrainingRunner:
    """What trains the members of an ensemble for a command.

    Raises:
        ConfigurationError: several threads are asked for each of several processes.
    """
    jobs = machines.runner(can_resume=True)
    if jobs.is_parallel and options.threads > 1:
        raise ConfigurationError(
            f"--threads {options.threads} is for one process; leave it out of --workers and --cluster, whose processes "
            "have one thread each"
        )

    warn = without_repeats(make_warner(as_json=options.as_json))

    def train_member(planned: PlannedTraining, folder: Path, limit: ReportConsumer) -> TrainingResult:
        return run_training(planned.material, planned.recipe, folder, options, 0, planned.sections, limit, warn)

    return TrainingRunner(
        train=train_member, find=find_member, jobs=jobs, announce=make_announcer(as_json=options.as_json)
    )


def find_member(planned: PlannedTraining, folder: Path) -> TrainingResult | None:
    """A member that was finished before its command was stopped.

    Raises:
        ConfigurationError: it was made with other settings or bars.
    """
    if not artifact.is_artifact(folder):
        return None
    _check_same(folder, planned.recipe, None)
    card = artifact.load(folder).artifact.manifest.card
    data = read_data_facts(card)
    if data is None or data.sha256 != hash_bars(planned.material.bars):
        raise ConfigurationError(
            f"{folder} was trained on other bars; give the same, or remove the folder to start over"
        )
    return TrainingResult(folder=folder, card=dict(card))


def refuse_machines(machines: WorkerFlags, subject: str) -> None:
    """Refuse flags of several processes for the training of one model.

    Raises:
        typer.BadParameter: such a flag is given.
    """
    if machines != WorkerFlags():
        raise typer.BadParameter(
            f"--workers, --cluster and their limits are for the members of an ensemble, but {subject} is one model; "
            "leave them out"
        )


def run_training(
    material: TrainingMaterial,
    recipe: StockRecipe,
    out: Path,
    options: RunOptions,
    rank: int,
    sections: Mapping[str, Json] | None = None,
    limit: ReportConsumer | None = None,
    warn: Warn | None = None,
) -> TrainingResult:
    """Train for a command, with the log and checkpoints in a folder next to the artifact; see `train`.

    `limit` may stop the training by an exception; it receives the reports last. `warn` receives the warnings, which are
    printed by default.

    Raises:
        typer.Exit: a signal stopped the training after it wrote a checkpoint.
    """
    folder = out.with_name(out.name + RUN)
    report_consumer = consumer(options, folder, sys.stdout, rank=rank)
    try:
        return train(
            material,
            recipe,
            out,
            consume=report_consumer if limit is None else ConsumerChain([report_consumer, limit]),
            # Only the first process of a group reports.
            announce=make_announcer(as_json=options.as_json) if rank == 0 else discard,
            warn=(warn or make_warner(as_json=options.as_json)) if rank == 0 else discard,
            track_steps=no_progress if options.as_json or rank else progress_on(sys.stdout),
            checkpoint_settings=CheckpointSettings(
                folder=folder / "checkpoints",
                resume=options.resume,
                every_seconds=options.checkpoint_seconds,
                keep=options.keep,
            ),
            sections=sections,
        )
    except InSampleError as error:
        raise typer.BadParameter(error.message) from error
    except StoppedError as error:
        if options.as_json:
            write_json({"kind": "stopped", "message": error.message, "signal": error.signal})
        sys.stderr.write(f"{error.message}; continue with the same command and --resume\n")
        raise typer.Exit(128 + error.signal) from error
    except LoopError as error:
        raise ConfigurationError(str(error)) from error


def print_result(trained: TrainingResult, *, as_json: bool) -> None:
    """Print the scores, the skill and the folder of a new artifact."""
    if as_json:
        write_json({"kind": "trained", "artifact": str(trained.folder), "card": trained.card})
        return
    console = Console()
    console.print(make_judgement(trained.summary))
    console.print(f"Saved {trained.folder}.", soft_wrap=True, markup=False)  # plain: a path may hold brackets


def _check_same(out: Path, recipe: StockRecipe, parent: ParentArtifact | None) -> None:
    """Refuse to resume a finished artifact of other settings.

    Bars are not compared, nor is a calendar that was left out, because it would be recognised from the bars.
    """
    card = artifact.load(out).artifact.manifest.card
    recorded, before, now = card["recipe"], read_ancestors(card), () if parent is None else parent.lineage
    settings = recorded if isinstance(recorded, dict) else {}
    different = [
        f"{name} was {settings.get(name)} and is now {value}"
        for name, value in recipe.settings().items()
        if settings.get(name) != value and (name, value) != ("calendar", "")
    ]
    if before != now:
        different.append(
            f"the weights that it started from were {_describe_lineage(before)} and are now {_describe_lineage(now)}"
        )
    if not different:
        return
    raise ConfigurationError(
        f"{out} is finished, and was made with other settings: {'; '.join(different)}; choose another --out to train "
        "with these"
    )


def _describe_lineage(ancestors: Sequence[ParentModel]) -> str:
    texts = (
        f"{ancestor.weights_hash[:16]} (labels up to {format_date(ancestor.seen_until)})" for ancestor in ancestors
    )
    return ", of ".join(texts) or "none"


def print_finished(out: Path, *, as_json: bool) -> None:
    """Print that the training to resume is already finished."""
    if as_json:
        write_json({"kind": "finished", "artifact": str(out)})
    else:
        sys.stdout.write(f"{out} is finished; there is nothing to resume. Next: quantra inspect {out}\n")

"""`quantra retrain`, `quantra compare`, `quantra promote` and `quantra rollback`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from predictor.bars import BarPanel
from predictor.cli.flags import with_flags
from predictor.cli.options import AsJson, BarsFlags, CovariateFlags, WorkerFlags
from predictor.cli.output import list_given_flags, print_next_commands, quantra, write_json
from predictor.cli.program import say
from predictor.errors import ConfigurationError, InSampleError, format_date
from predictor.flags import FlagSubset
from predictor.ledger import Ledger
from predictor.lifecycle import PromotionResult
from predictor.parent import exit_with_parent
from predictor.registry import find_model_folder
from trainers.loop import launched_rank, launched_size
from trainers.options import RunOptions
from trainers.progress import ReportConsumer, no_progress, progress_on
from trainers.stock.command import (
    choose_members_folder,
    claim_members,
    member_trainer,
    print_finished,
    print_result,
    refuse_machines,
    run_training,
)
from trainers.stock.data_warnings import drop_before_calendar, emit, find_model_warnings, list_networks
from trainers.stock.ensembles import JoinedEnsemble
from trainers.stock.ensembles.command import describe_ensemble, print_ensemble
from trainers.stock.evaluation.bound_model import find_calendar
from trainers.stock.evaluation.evaluation import EvaluationSettings
from trainers.stock.feature_cache import map_bars, open_cache
from trainers.stock.flags import CacheFolder, choose_version_folder
from trainers.stock.lifecycle.promotion import list_failed, promote_if_passed, roll_back_champion
from trainers.stock.lifecycle.retraining_plan import RetrainingPlan, plan_retraining, retrain
from trainers.stock.lifecycle.version_comparison import (
    ComparedVersion,
    VersionComparison,
    compare_recipes,
    compare_versions,
    load_champion,
    load_version,
)
from trainers.stock.progress_output import make_announcer, make_warner, warn_on_stderr
from trainers.stock.training import TrainingResult
from trainers.stock.training_jobs import PlannedTraining, TrainingRunner

PERSON_NEEDED = 3
"""The exit code if a person has to decide or look."""
_RESULT_STYLES = {"passed": "green", "overridden": "yellow", "failed": "red"}

ModelsFolder = Annotated[Path, typer.Option(metavar="DIR", help="Folder of NAME/VERSION artifacts.")]
OptionalLedger = Annotated[
    str, typer.Option(metavar="LEDGER", help="Ledger with the versions' forecasts; moves become its events.")
]
Refit = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Compare recipes: train both again every N sessions, walking forward."),
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the history.", show_default=False)]


@with_flags
def retrain_command(
    *,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The model, or NAME@VERSION to use that version's recipe.")
    ],
    models: ModelsFolder = Path("models"),
    bars: BarsFlags,
    files: CovariateFlags,
    feature_cache: CacheFolder = None,
    machines: WorkerFlags,
    run: RunOptions,
) -> None:
    """Train the next version of a model with its champion's recipe, on all bars. No alias changes.

    The members of an ensemble are trained one by one, or several at the same time with --workers or --cluster, and
    combined by the same rule. The last sessions are for calibration and selection, without a test split (--splits
    rolling).
    """
    torch.set_num_threads(run.threads)
    if run.parent_watch:
        exit_with_parent()
    rank = launched_rank()
    model_folder = find_model_folder(models, name.partition("@")[0])
    out = choose_version_folder(model_folder, resume=run.resume, tells=rank == 0)
    if run.resume and out.exists():
        if rank == 0:
            print_finished(out, as_json=run.as_json)
        return
    cache = open_cache(feature_cache, warn_on_stderr)
    panel = map_bars(bars.read(tells=rank == 0), cache)
    plan = plan_retraining(models, name, panel, files.read(), cache)
    if rank == 0:
        say(plan.sentence, style="dim")
    trained = _retrain(plan, out, run, machines, rank)
    if rank == 0:
        if isinstance(trained, TrainingResult):
            print_result(trained, as_json=run.as_json)
        elif run.as_json:
            write_json(describe_ensemble(trained))
        else:
            print_ensemble(trained)
        if not run.as_json:
            print_next_commands(
                quantra("inspect", out),
                quantra(
                    "compare",
                    plan.champion,
                    f"{model_folder.name}@{out.name}",
                    "--models",
                    models,
                    "--bars",
                    "LATER_BARS",
                ),
            )


def _retrain(
    plan: RetrainingPlan, out: Path, run: RunOptions, machines: WorkerFlags, rank: int
) -> TrainingResult | JoinedEnsemble:
    """Train with the log and checkpoints next to the new version."""
    if plan.rule is None:
        refuse_machines(machines, plan.champion)

        def train_one(planned: PlannedTraining, folder: Path, _limit: ReportConsumer) -> TrainingResult:
            return run_training(planned.material, planned.recipe, folder, run, rank, planned.sections)

        return retrain(plan, out, TrainingRunner(train=train_one))
    if launched_size() > 1:
        raise ConfigurationError(
            f"{plan.champion} is an ensemble, which is trained without torchrun; use --workers or --cluster instead"
        )
    folder, trainer = choose_members_folder(out, resume=run.resume), member_trainer(run, machines)
    with claim_members(folder):
        return retrain(
            plan,
            out,
            trainer,
            members=folder,
            announce=make_announcer(as_json=run.as_json),
            warn=make_warner(as_json=run.as_json),
            track_steps=no_progress if run.as_json else progress_on(sys.stdout),
        )


@with_flags
def compare_command(
    *,
    champion: Annotated[str, typer.Argument(metavar="A", help="The version to replace, such as mine@champion.")],
    challenger: Annotated[str, typer.Argument(metavar="B", help="The version to replace it, such as mine@4.")],
    models: ModelsFolder = Path("models"),
    bars: BarsFlags,
    files: CovariateFlags,
    days: Annotated[EvaluationSettings, FlagSubset("start")],
    refit: Refit = None,
    as_json: AsJson = False,
) -> None:
    """Compare two versions on the same symbols, on days that neither has seen in training.

    Intervals are paired by day. The bounds hold no matter how often you look.
    """
    torch.set_num_threads(1)
    covariates, panel = files.read(), bars.read()
    old, new = (load_version(models, reference, covariates) for reference in (champion, challenger))
    try:
        comparison = _compare(old, new, panel, days.start, refit)
    except InSampleError as error:
        raise typer.BadParameter(error.message) from error
    if as_json:
        write_json(comparison.to_json())
        return
    console = Console(highlight=False)
    for part in _show_comparison(comparison):
        console.print(part)
    if old.model_folder == new.model_folder and refit is None and comparison.decision is True:
        words = ("--models", models, *list_given_flags(bars, files), "--reason", "REASON")
        print_next_commands(quantra("promote", new.reference, *words))


def _compare(
    champion: ComparedVersion, challenger: ComparedVersion, bars: BarPanel, start: int | None, refit: int | None
) -> VersionComparison:
    """Compare the versions, or with `refit` their recipes, after warnings about the bars."""
    models = [model for version in (champion, challenger) for model in list_networks(version.trained_model.model)]
    calendar_bars = drop_before_calendar(bars, find_calendar(champion.trained_model.model))
    emit(find_model_warnings(models, calendar_bars, champion.source.covariates), warn_on_stderr)
    if refit is None:
        return compare_versions(champion, challenger, bars, start=start)
    if start is None:
        raise typer.BadParameter("--refit needs --start DATE, the first decision day of the walk forward")
    return compare_recipes(champion, challenger, bars, start=start, refit=refit)


def _show_comparison(comparison: VersionComparison) -> Iterator[RenderableType]:
    """Which days were compared, a row per horizon, and the decision."""
    span = f"{format_date(comparison.first_day)} to {format_date(comparison.last_day)}"
    versions = f"{comparison.challenger} against {comparison.champion}, {comparison.by}"
    yield Text(f"{versions}: {comparison.days} days of {comparison.shown_symbols}, {span}", style="bold")
    if comparison.seen_until:
        yield Text(
            f"days up to {format_date(comparison.seen_until)} are left out: {comparison.seen_by} has seen their labels"
        )
    table = Table(box=None, pad_edge=False)
    for name in ("sessions ahead", "smaller loss", "90 % interval of one look"):
        table.add_column(name, justify="right")
    rows = [
        *zip(map(str, comparison.horizons), comparison.losses.by_horizon, strict=True),
        ("all", comparison.losses.improvement),
    ]
    for name, gain in rows:
        table.add_row(name, f"{100 * gain.value:+.2f} %", f"{100 * gain.lower:+.2f} to {100 * gain.upper:+.2f} %")
    yield table
    names = (comparison.champion, comparison.challenger)
    inside = ", ".join(f"{name} {100 * share:.1f} %" for name, share in zip(names, comparison.coverage, strict=True))
    yield Text(f"outcomes in the band: {inside}; promised {100 * comparison.promised:g} %")
    yield Text(f"{comparison.need}? {comparison.sentence}")


@with_flags
def promote_command(
    *,
    version: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="The version to make the champion.")],
    reason: Reason,
    models: ModelsFolder = Path("models"),
    bars: BarsFlags,
    files: CovariateFlags,
    days: Annotated[EvaluationSettings, FlagSubset("start")],
    refit: Refit = None,
    ledger: OptionalLedger = "",
    override: Annotated[
        list[str] | None,
        typer.Option(metavar="GATE", help="Promote although this gate fails. Repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a version the champion if it passes the gates: losses, symbols, audit, shadow and replay.

    If a gate fails, the exit code is 3 and no alias changes. Without --bars, losses are not compared.
    """
    torch.set_num_threads(1)
    if not reason.strip():
        raise typer.BadParameter("--reason is empty; say why, for the history")
    if "@" not in version:
        raise typer.BadParameter(f"{version} names no version; give one, such as {version}@2")
    covariates = files.read()
    challenger = load_version(models, version, covariates)
    champion = load_champion(challenger.model_folder, covariates)
    compare: Callable[[], VersionComparison] | None = None
    if champion is not None and champion.version != challenger.version and (bars.bars or bars.bars_env):
        compare = partial(_compare, champion, challenger, bars.read(), days.start, refit)

    with Ledger.open(ledger) if ledger else nullcontext(None) as book:
        result = promote_if_passed(
            challenger, champion, compare=compare, reason=reason, ledger=book, overridden=tuple(override or ())
        )
    _print_promotion(challenger, result, as_json=as_json)
    if not result.promoted:
        raise typer.Exit(PERSON_NEEDED)
    if result.gates and not as_json:
        print_next_commands(
            quantra("models", "--history", "--models", models),
            quantra("rollback", challenger.model_folder.name, "--models", models, "--reason", "REASON"),
        )


def _print_promotion(challenger: ComparedVersion, result: PromotionResult, *, as_json: bool) -> None:
    failed = list_failed(result.gates)
    if as_json:
        gates = [asdict(gate) for gate in result.gates]
        write_json({"version": challenger.reference, "promoted": result.promoted, "gates": gates})
        return
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False)
    for name in ("", "gate", "needed", "found"):
        table.add_column(name)
    for gate in result.gates:
        table.add_row(Text(gate.result, style=_RESULT_STYLES[gate.result]), gate.name, Text(gate.need), Text(gate.have))
    if result.gates:
        console.print(table)
    if failed:
        words = " ".join(f"--override {name}" for name in failed)
        console.print(f"{challenger.reference} is not promoted. To do so all the same, add {words}.", markup=False)
    else:
        name = challenger.model_folder.name
        state = f"is now the champion of {name}" if result.gates else f"is the champion of {name} already"
        console.print(f"{challenger.reference} {state}.", markup=False)


def rollback_command(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The model.")],
    reason: Reason = "",
    models: ModelsFolder = Path("models"),
    ledger: OptionalLedger = "",
    as_json: AsJson = False,
) -> None:
    """Make the previous champion the champion again."""
    model_folder = find_model_folder(models, name)
    with Ledger.open(ledger) if ledger else nullcontext(None) as book:
        move = roll_back_champion(model_folder, reason=reason or "rolled back", ledger=book)
    if as_json:
        write_json({"model": name, **asdict(move)})
        return
    typer.echo(f"{name}@{move.version} is the champion again, in place of {name}@{move.previous}.")
    print_next_commands(quantra("models", "--history", "--models", models))

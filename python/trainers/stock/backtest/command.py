"""`quantra backtest`."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import torch
import typer
from rich.console import Console

from predictor import canonical
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.cli.flags import with_flags
from predictor.cli.options import BarsFlags, CovariateFlags, Report
from predictor.cli.output import given, quantra, tell_next
from predictor.covariates import CovariateSource
from predictor.errors import InSampleError
from predictor.flags import Flag, FlagSubset, ParsedFlags
from predictor.replacement import check_folder, replace_file
from predictor.report.templates import artifact_name
from trainers.options import AnsweringDevice, RunOptions
from trainers.progress import unwatched, watched_on
from trainers.stock.announcing import warner
from trainers.stock.backtest.folds import Fold, WalkForwardPlan, decision_span, told_fold
from trainers.stock.backtest.page import write_backtest
from trainers.stock.backtest.result import Backtest, backtest_json, summary_json
from trainers.stock.backtest.run import BacktestFolder, Watch, backtest, chosen_terms
from trainers.stock.backtest.source import ModelSource, artifact_source, recipe_source, refuse_in_sample
from trainers.stock.backtest.strategies import StrategySettings, TradingTerms
from trainers.stock.backtest.terminal import backtest_tables, watched
from trainers.stock.doubts import heard
from trainers.stock.reads import FeatureSelection, Known
from trainers.stock.recipes import read_recipe_file

RESULT: Final = "backtest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestSubject:
    """The artifact or the recipe to backtest."""

    artifact: Annotated[
        Path | None,
        typer.Argument(metavar="ARTIFACT", help="Artifact folder, such as models/demo/1; or give --recipe."),
    ] = None
    recipe: Annotated[
        Path | None,
        Flag("JSON file of a recipe's settings, as in an artifact's card, instead of an artifact.", metavar="FILE"),
    ] = None
    features: Annotated[
        str, Flag("With --recipe: a feature file, `default` or `alpha158`; an artifact has its own.")
    ] = "default"
    known: Known = ""
    device: AnsweringDevice = "auto"

    def source(self, covariates: CovariateSource) -> ModelSource:
        """The source of forecasts.

        Raises:
            typer.BadParameter: Neither or both of artifact and recipe are given, or an artifact with flags of a recipe.
        """
        reads = FeatureSelection(features=self.features, known=self.known)
        if self.artifact is not None and self.recipe is None:
            if reads != FeatureSelection():
                raise typer.BadParameter("--features and --known need --recipe; an artifact has its own")
            return artifact_source(self.artifact, self.device, covariates)
        if self.recipe is None or self.artifact is not None:
            raise typer.BadParameter("give either an ARTIFACT or --recipe FILE")
        features = reads.beside(covariates, read_recipe_file(self.recipe).calendar)
        return recipe_source(self.recipe, features, covariates)

    @property
    def path(self) -> Path | None:
        """Path of the artifact or the recipe."""
        return self.artifact or self.recipe

    def beside(self, suffix: str) -> Path:
        """A path next to the artifact or the recipe.

        Raises:
            typer.BadParameter: Neither is given.
        """
        if self.path is None:
            raise typer.BadParameter("give either an ARTIFACT or --recipe FILE")
        whole = self.path.resolve()
        return whole.with_name(whole.name + suffix)


@with_flags
def backtest_command(
    *,
    subject: BacktestSubject,
    bars: BarsFlags,
    files: CovariateFlags,
    plan: WalkForwardPlan,
    terms: ParsedFlags[TradingTerms],
    tactic: StrategySettings,
    workers: Annotated[int, Flag("Processes that refit folds in parallel.", minimum=1)] = 1,
    out: Annotated[Path | None, Flag("Run folder; if left out, NAME.backtest next to the artifact or recipe.")] = None,
    run: Annotated[RunOptions, FlagSubset("resume", "as_json")],
    report: Report = None,
) -> None:
    """Walk forward over past days: forecast with the data known then, trade at the next close, charge costs."""
    torch.set_num_threads(1)
    folder = BacktestFolder(path=out or subject.beside(".backtest"), resume=run.resume)
    check_folder(folder.path)
    source = subject.source(files.read())
    panel = bars.read()
    check_allowed(source, panel, plan)
    whole = chosen_terms(terms, source)
    heard(source.doubts(panel), warner(as_json=run.as_json))
    watch = _watch(as_json=run.as_json)
    try:
        result = backtest(
            source,
            panel,
            plan,
            terms=whole,
            tactic=tactic,
            folder=folder,
            workers=workers,
            watch=watch,
            stepwise=unwatched if run.as_json else watched_on(sys.stdout),
        )
    except KeyboardInterrupt:
        sys.stderr.write("the forecasts so far are saved; continue with the same command and --resume\n")
        raise
    replace_file(folder.path / RESULT, canonical.to_bytes(backtest_json(result)))
    if report is not None:
        write_backtest(report, artifact_name(subject.path or folder.path), result)
    _tell(result, folder.path, as_json=run.as_json)
    if subject.artifact is not None and not run.as_json:
        tell_next(quantra("audit", subject.artifact, *given(bars, files)))


def check_allowed(source: ModelSource, bars: BarPanel, plan: WalkForwardPlan) -> None:
    """Check that no decision is on a day that the artifact has seen.

    Raises:
        typer.BadParameter: One is; the message has the first allowed session.
    """
    if source.standing is None:
        return
    first = int(bars.sessions[decision_span(bars.sessions, plan)[0]])
    try:
        refuse_in_sample(source.standing, bars.sessions, first, plan.embargo)
    except InSampleError as error:
        raise typer.BadParameter(error.message) from error


def _watch(*, as_json: bool) -> Watch:
    """How folds are shown: a bar or lines, or JSON lines for programs."""
    if as_json:
        return _json_lines
    return lambda folds, total: watched(folds, total=total, tell=told_fold, title="fold", stream=sys.stdout)


def _json_lines(folds: Iterator[Fold], total: int) -> Iterator[Fold]:
    for count, fold in enumerate(folds, start=1):
        _write({"kind": "fold", "done": count, "folds": total, "number": fold.number})
        yield fold


def _tell(result: Backtest, folder: Path, *, as_json: bool) -> None:
    path = folder / RESULT
    if as_json:
        _write({"kind": "backtest", "file": str(path), **summary_json(result)})
        return
    console = Console(highlight=False)
    console.print(backtest_tables(result))
    console.print(f"Every session is in {path}", soft_wrap=True, markup=False)


def _write(value: Json) -> None:
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")
    sys.stdout.flush()

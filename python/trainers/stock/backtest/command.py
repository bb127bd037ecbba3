"""`quantra backtest`."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import torch
import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from predictor import canonical
from predictor.card import read_adoption
from predictor.cli.flags import with_flags
from predictor.cli.options import BarsFlags, CovariateFlags, Report, WorkerFlags
from predictor.cli.output import VERDICT_COLOURS, list_given_flags, print_next_commands, quantra, write_json
from predictor.cli.program import say
from predictor.covariates import CovariateSource
from predictor.errors import InSampleError, format_count, format_date
from predictor.flags import Flag, FlagSubset, ParsedFlags
from predictor.jobs import JobRunner
from predictor.replacement import check_folder, replace_file
from predictor.report.templates import name_artifact
from trainers.options import ForecastDevice, RunOptions
from trainers.progress import no_progress, progress_on, show_finished
from trainers.stock.backtest.backtest import BacktestFolder, FoldProgress, backtest, choose_terms, complete_plan
from trainers.stock.backtest.page import build_figure_table, find_largest_fall, render_backtest
from trainers.stock.backtest.refits import Fold, WalkForwardPlan, describe_fold
from trainers.stock.backtest.result import Backtest, describe_sharpe, judge, summary_json
from trainers.stock.backtest.source import ModelSource, artifact_source, recipe_source
from trainers.stock.backtest.strategies import MAX_HALT, StrategySettings, TradingTerms
from trainers.stock.data_warnings import emit
from trainers.stock.evaluation.command import convert_table
from trainers.stock.feature_cache import map_bars, open_cache
from trainers.stock.feature_selection import FeatureSelection, Known
from trainers.stock.flags import CacheFolder
from trainers.stock.progress_output import describe_jobs, make_warner, warn_on_stderr
from trainers.stock.recipe import read_recipe_file

RESULT: Final = "backtest.json"


def backtest_tables(backtest: Backtest) -> RenderableType:
    """Figures of the strategy and the benchmarks, then the notes."""
    first, last = (format_date(int(backtest.strategy.sessions[k])) for k in (0, -1))
    ratios = ("Sharpe", "lead", "before costs")
    return Group(
        *convert_table(f"{first} to {last}, after costs", build_figure_table(backtest), noted=ratios),
        "",
        Text(describe_sharpe(backtest), style=VERDICT_COLOURS[judge(backtest)]),
        "",
        *(Text(f"note: {note}", style="dim") for note in _describe_notes(backtest)),
    )


def _describe_notes(backtest: Backtest) -> Iterator[str]:
    terms = backtest.terms
    trained = f"; {len(backtest.folds)} folds" if len(backtest.folds) > 1 else ""
    yield f"forecasts of {backtest.forecasts}{trained}; SHA-256 of settings and bars {backtest.digest[:12]}"
    yield (
        f"{terms.cost_bps:g} bp are charged on every unit traded, {terms.borrow_bps:g} bp a year on shorts; each "
        f"decision is traded {format_count(terms.delay, 'session')} later and held for "
        f"{terms.tranches * terms.rebalance}, in {format_count(terms.tranches, 'tranche')}"
    )
    yield (
        f"a position in a halted stock is kept; after {MAX_HALT} sessions without a bar, or at the end, it is "
        f"closed at a return of {100 * terms.delisting_return:g} % on the last close"
    )
    yield (
        "Sharpe: after costs, ± one standard error; lead: of the strategy's over it, paired by day; before costs: the "
        "Sharpe ratio then; turnover: bought and sold per session; hit rate: sessions with a gain; exposure: mean sum "
        "of absolute weights"
    )
    if (fall := find_largest_fall(backtest)) is None:
        yield "the strategy had no drawdown"
    else:
        yield f"the strategy's largest drawdown was from {format_date(fall[0])} to {format_date(fall[1])}"
    yield from backtest.notes


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
        str, Flag("With --recipe: `default`, `prices`, `alpha158` or a feature file; an artifact has its own.")
    ] = "default"
    known: Known = ""
    device: ForecastDevice = "auto"
    feature_cache: CacheFolder = None

    def source(self, covariates: CovariateSource) -> ModelSource:
        """The source of forecasts, whose trainings read features from the cache.

        Raises:
            typer.BadParameter: Neither or both of artifact and recipe are given, or an artifact with flags of a recipe.
        """
        return replace(self._source(covariates), cache=open_cache(self.feature_cache, warn_on_stderr))

    def _source(self, covariates: CovariateSource) -> ModelSource:
        reads = FeatureSelection(features=self.features, known=self.known)
        if self.artifact is not None and self.recipe is None:
            if reads != FeatureSelection():
                raise typer.BadParameter("--features and --known need --recipe; an artifact has its own")
            return artifact_source(self.artifact, self.device, covariates)
        if self.recipe is None or self.artifact is not None:
            raise typer.BadParameter("give either an ARTIFACT or --recipe FILE")
        features = reads.load(covariates, read_recipe_file(self.recipe).calendar)
        return recipe_source(self.recipe, features, covariates)

    @property
    def path(self) -> Path | None:
        """Path of the artifact or the recipe."""
        return self.artifact or self.recipe

    def sibling(self, suffix: str) -> Path:
        """A path next to the artifact or the recipe.

        Raises:
            typer.BadParameter: Neither is given.
        """
        if self.path is None:
            raise typer.BadParameter("give either an ARTIFACT or --recipe FILE")
        path = self.path.resolve()
        return path.with_name(path.name + suffix)


@with_flags
def backtest_command(
    *,
    subject: BacktestSubject,
    bars: BarsFlags,
    files: CovariateFlags,
    plan: ParsedFlags[WalkForwardPlan],
    terms: ParsedFlags[TradingTerms],
    strategy_settings: ParsedFlags[StrategySettings],
    machines: WorkerFlags,
    out: Annotated[Path | None, Flag("Run folder; if left out, NAME.backtest next to the artifact or recipe.")] = None,
    run: Annotated[RunOptions, FlagSubset("resume", "as_json")],
    report: Report = None,
) -> None:
    """Walk forward over past days: forecast with the data known then, trade at the next close, charge costs."""
    torch.set_num_threads(1)
    folder = BacktestFolder(path=out or subject.sibling(".backtest"), resume=run.resume)
    check_folder(folder.path)
    source = subject.source(files.read())
    panel = map_bars(bars.read(), source.cache)
    trading_terms = choose_terms(terms, source)
    runner = machines.runner(can_resume=True)
    try:
        walk = complete_plan(source, panel, plan, partial(say, style="dim"))
        if walk.refit is None and source.trained_model is not None and source.cache is not None:
            raise typer.BadParameter("--feature-cache keeps the features of refits; give --refit N, or leave it out")
        emit(source.find_warnings(panel), make_warner(as_json=run.as_json))
        result = backtest(
            source,
            panel,
            walk,
            terms=trading_terms,
            strategy_settings=strategy_settings.over(StrategySettings.default(len(panel.symbols))),
            folder=folder,
            runner=runner,
            watch=_watch(runner, as_json=run.as_json),
            track_steps=no_progress if run.as_json else progress_on(sys.stdout),
        )
    except InSampleError as error:
        raise typer.BadParameter(error.message) from error
    except KeyboardInterrupt:
        sys.stderr.write("the forecasts so far are saved; continue with the same command and --resume\n")
        raise
    path = folder.path / RESULT
    replace_file(path, canonical.to_bytes(result.to_json()))
    if report is not None:
        replace_file(report, render_backtest(name_artifact(subject.path or folder.path), result).encode())
    if run.as_json:
        write_json({"kind": "backtest", "file": str(path), **summary_json(result)})
        return
    console = Console(highlight=False)
    console.print(backtest_tables(result))
    console.print(f"Every session is in {path}", soft_wrap=True, markup=False)
    if subject.artifact is not None and read_adoption(source.card) is None:
        print_next_commands(quantra("audit", subject.artifact, *list_given_flags(bars, files)))


def _watch(runner: JobRunner, *, as_json: bool) -> FoldProgress:
    """How folds are shown: a bar or lines, or JSON lines for programs."""

    def print_json(folds: Iterator[Fold], total: int) -> Iterator[Fold]:
        for count, fold in enumerate(folds, start=1):
            progress = describe_jobs(runner)
            write_json({"kind": "fold", "done": count, "folds": total, "number": fold.number, **progress})
            yield fold

    def show(folds: Iterator[Fold], total: int) -> Iterator[Fold]:
        def tell(fold: Fold) -> str:
            return describe_fold(fold) + runner.remark

        return show_finished(folds, total=total, tell=tell, title="fold", stream=sys.stdout)

    return print_json if as_json else show

"""`quantra backtest`: a thin map from flags to a walk forward."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import torch
import typer
from rich.console import Console

from predictor import canonical
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.cli.bars import Bars, BarsEnv, BarsQuery, chosen_bars
from predictor.cli.options import CovariateFiles, Report, StaticFile
from predictor.covariates import CovariateSource
from predictor.errors import InSampleError, shown_date
from predictor.replacement import check_folder, replace_file
from predictor.report.templates import artifact_name
from trainers.options import AnsweringDeviceOption, JsonOption, ResumeOption
from trainers.stock.announcing import warner
from trainers.stock.backtest.folds import Fold, WalkForwardPlan, decision_span
from trainers.stock.backtest.page import write_backtest
from trainers.stock.backtest.result import Backtest, backtest_json, summary_json
from trainers.stock.backtest.run import Folder, Watch, backtest, chosen_horizon
from trainers.stock.backtest.source import ModelSource, artifact_source, recipe_source, refuse_in_sample
from trainers.stock.backtest.strategies import Strategy, Tactic
from trainers.stock.backtest.terminal import backtest_tables, watched
from trainers.stock.backtest.terms import LONGEST_HALT, Terms
from trainers.stock.doubts import heard
from trainers.stock.flags import KnownOption, covariate_fields, features_named, session_of

EXAMPLE: Final = (
    "Example: quantra backtest models/demo/1 --bars bars.csv --start 2011-03-01 --end 2013-03-01 --refit 63"
)
RESULT: Final = "backtest.json"
TERMS = Terms(horizon=5)
TACTIC = Tactic()
_WINDOW = re.compile(r"expanding|rolling:([1-9]\d*)")

ArtifactArgument = Annotated[
    Path | None, typer.Argument(metavar="ARTIFACT", help="Artifact folder, such as models/demo/1; or give --recipe.")
]
RecipeOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="JSON of a recipe's settings, as an artifact's card has them, in its place."),
]
FeaturesOption = Annotated[
    str, typer.Option(help="With --recipe: a feature file, `default` or `alpha158`; an artifact brings its own.")
]
HorizonOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Sessions that a position is held for; left out: 5 where the model has it, else its first."
    ),
]
StrategyOption = Annotated[
    Strategy,
    typer.Option(help="rank: long the best, short the worst; sign: by the median's sign; vol-target: long, scaled."),
]
ShareOption = Annotated[float, typer.Option(help="rank: of the stocks on each side, at least one.")]
ThresholdOption = Annotated[
    float, typer.Option(help="sign: medians within so many basis points of log return of 0 are flat.")
]
VolatilityOption = Annotated[float, typer.Option(help="vol-target: a year's standard deviation aimed at.")]
RebalanceOption = Annotated[int, typer.Option(min=1, help="Sessions between decisions that are traded.")]
CostOption = Annotated[float, typer.Option(help="Basis points on every unit bought or sold.")]
BorrowOption = Annotated[float, typer.Option(help="Basis points a year on every unit sold short.")]
DelistingOption = Annotated[
    float,
    typer.Option(
        min=-1,
        help=f"Simple return, on the last close seen, of a position without a bar for {LONGEST_HALT} sessions or at "
        "the end; -1 loses everything.",
    ),
]


def backtest_command(  # noqa: PLR0913 - one argument a flag
    *,
    artifact: ArtifactArgument = None,
    recipe: RecipeOption = None,
    features: FeaturesOption = "default",
    bars: Bars = "",
    query: BarsQuery = "",
    bars_env: BarsEnv = "",
    covariates: CovariateFiles = None,
    known: KnownOption = "",
    static: StaticFile = None,
    start: Annotated[str, typer.Option(metavar="DATE", help="First session that is decided on, such as 2011-01-03.")],
    end: Annotated[str, typer.Option(metavar="DATE", help="Last session of the book.")],
    refit: Annotated[
        str, typer.Option(metavar="never|N", help="Sessions between refits; never: the model stays as it is.")
    ] = "never",
    window: Annotated[
        str,
        typer.Option(
            metavar="expanding|rolling:N", help="Refit on all bars before, or on the last N sessions of them."
        ),
    ] = "expanding",
    embargo: Annotated[
        int, typer.Option(min=0, help="Sessions left out between what a refit learns from and its first decision.")
    ] = 0,
    horizon: HorizonOption = None,
    strategy: StrategyOption = TACTIC.strategy,
    share: ShareOption = TACTIC.share,
    threshold_bps: ThresholdOption = TACTIC.threshold_bps,
    volatility: VolatilityOption = TACTIC.volatility,
    rebalance: RebalanceOption = TERMS.rebalance,
    cost_bps: CostOption = TERMS.cost_bps,
    borrow_bps: BorrowOption = TERMS.borrow_bps,
    delisting_return: DelistingOption = TERMS.delisting_return,
    workers: Annotated[int, typer.Option(min=1, help="Processes that refit folds beside each other.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; left out: beside the artifact or recipe, NAME.backtest.")
    ] = None,
    resume: ResumeOption = False,
    device: AnsweringDeviceOption = "auto",
    report: Report = None,
    as_json: JsonOption = False,
) -> None:
    """Walk forward over past days: forecast with what was known then, trade at the next close, and pay for it."""
    torch.set_num_threads(1)
    folder = Folder(path=out or beside(artifact or recipe, ".backtest"), resume=resume)
    check_folder(folder.path)
    beside_bars = CovariateSource.read(covariates or (), static)
    source = chosen_source(artifact, recipe, (features, known), beside_bars, device)
    panel = chosen_bars(bars, query, bars_env)
    plan = WalkForwardPlan(
        start=session_of("--start", start),
        end=session_of("--end", end),
        refit=_refit(refit),
        rolling=_rolling(window),
        embargo=embargo,
    )
    check_allowed(source, panel, plan)
    tactic = Tactic(strategy=strategy, share=share, threshold_bps=threshold_bps, volatility=volatility)
    terms = Terms(
        horizon=chosen_horizon(source.horizons, horizon),
        rebalance=rebalance,
        cost_bps=cost_bps,
        borrow_bps=borrow_bps,
        delisting_return=delisting_return,
    )
    heard(source.doubts(panel), warner(as_json=as_json))
    try:
        found = backtest(
            source,
            panel,
            plan,
            terms=terms,
            tactic=tactic,
            folder=folder,
            workers=workers,
            watch=_watch(as_json=as_json),
        )
    except KeyboardInterrupt:
        sys.stderr.write("what is forecast so far is kept; go on with the same command and --resume\n")
        raise
    replace_file(folder.path / RESULT, canonical.to_bytes(backtest_json(found)))
    if report is not None:
        write_backtest(report, artifact_name(artifact or recipe or folder.path), found)
    _tell(found, folder.path, as_json=as_json)


def chosen_source(
    artifact: Path | None, recipe: Path | None, reads: tuple[str, str], covariates: CovariateSource, device: str
) -> ModelSource:
    """What the flags name; `reads` are those of features and of known covariates, which a recipe does not tell.

    Raises:
        typer.BadParameter: neither or both of artifact and recipe, or an artifact with what only a recipe needs.
    """
    if artifact is not None and recipe is None:
        if reads != ("default", ""):
            raise typer.BadParameter("--features and --known go with --recipe; an artifact brings its own")
        return artifact_source(artifact, device, covariates)
    if recipe is None or artifact is not None:
        raise typer.BadParameter("give either an ARTIFACT or --recipe FILE")
    features, known = reads
    return recipe_source(recipe, features_named(features, covariate_fields(covariates, known)), covariates)


def check_allowed(source: ModelSource, bars: BarPanel, plan: WalkForwardPlan) -> None:
    """Refuse decisions on days that the artifact has seen, as bad usage.

    Raises:
        typer.BadParameter: naming the first session that is allowed.
    """
    if source.standing is None:
        return
    first = int(bars.sessions[decision_span(bars.sessions, plan)[0]])
    try:
        refuse_in_sample(source.standing, bars.sessions, first, plan.embargo)
    except InSampleError as error:
        raise typer.BadParameter(error.message) from error


def beside(path: Path | None, suffix: str) -> Path:
    """A name beside an artifact or a recipe."""
    if path is None:
        raise typer.BadParameter("give either an ARTIFACT or --recipe FILE")
    whole = path.resolve()
    return whole.with_name(whole.name + suffix)


def _refit(text: str) -> int | None:
    if text == "never":
        return None
    if not text.isdecimal() or int(text) == 0:
        raise typer.BadParameter(f"--refit is {text!r}, but must be never or a number of sessions")
    return int(text)


def _rolling(text: str) -> int | None:
    match = _WINDOW.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"--window is {text!r}, but must be expanding or rolling:N, such as rolling:1260")
    return None if match[1] is None else int(match[1])


def _watch(*, as_json: bool) -> Watch:
    """What shows the folds: a bar or lines for people, JSON lines for programs."""
    if as_json:
        return _json_lines
    return lambda folds, total: watched(folds, total=total, tell=_tell_fold, title="fold", stream=sys.stdout)


def _json_lines(folds: Iterator[Fold], total: int) -> Iterator[Fold]:
    for count, fold in enumerate(folds, start=1):
        _write({"kind": "fold", "done": count, "folds": total, "number": fold.number})
        yield fold


def _tell_fold(fold: Fold) -> str:
    first, last, begun, ended = map(shown_date, (fold.first, fold.last, fold.learn_first, fold.learn_last))
    return f"decides {first} to {last}, learnt {begun} to {ended}"


def _tell(found: Backtest, folder: Path, *, as_json: bool) -> None:
    path = folder / RESULT
    if as_json:
        _write({"kind": "backtest", "file": str(path), **summary_json(found)})
        return
    console = Console(highlight=False)
    console.print(backtest_tables(found))
    console.print(f"Every session stands in {path}", soft_wrap=True, markup=False)


def _write(value: Json) -> None:
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")
    sys.stdout.flush()

"""`quantra audit`: a thin map from flags to an audit."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import torch
import typer
from rich.console import Console

from predictor.audit_record import AuditRecord, audit_path, write_audit
from predictor.cli.audits import audit_table
from predictor.cli.bars import Bars, BarsEnv, BarsQuery, chosen_bars
from predictor.cli.options import CovariateFiles, Report, StaticFile
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError
from predictor.replacement import check_file
from predictor.report.templates import artifact_name
from trainers.loop import LoopError
from trainers.options import AnsweringDeviceOption, JsonOption
from trainers.stock.announcing import announcer, warner
from trainers.stock.audit.page import write_audit_page
from trainers.stock.audit.run import Depth, audit
from trainers.stock.backtest.command import (
    TACTIC,
    TERMS,
    ArtifactArgument,
    BorrowOption,
    CostOption,
    DelistingOption,
    FeaturesOption,
    HorizonOption,
    RecipeOption,
    ShareOption,
    StrategyOption,
    ThresholdOption,
    VolatilityOption,
    chosen_source,
)
from trainers.stock.backtest.run import chosen_horizon
from trainers.stock.backtest.strategies import Tactic
from trainers.stock.backtest.terms import Terms
from trainers.stock.flags import KnownOption

EXAMPLE: Final = "Example: quantra audit models/demo/1 --bars bars.csv --trials 40"
DEPTH = Depth()


def audit_command(  # noqa: PLR0913 - one argument a flag
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
    horizon: HorizonOption = None,
    strategy: StrategyOption = TACTIC.strategy,
    share: ShareOption = TACTIC.share,
    threshold_bps: ThresholdOption = TACTIC.threshold_bps,
    volatility: VolatilityOption = TACTIC.volatility,
    cost_bps: CostOption = TERMS.cost_bps,
    borrow_bps: BorrowOption = TERMS.borrow_bps,
    delisting_return: DelistingOption = TERMS.delisting_return,
    sessions: Annotated[
        int, typer.Option(min=1, help="Sessions at which later bars are replaced by noise.")
    ] = DEPTH.sessions,
    permutations: Annotated[int, typer.Option(min=1, help="Trainings on shuffled labels.")] = DEPTH.permutations,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of each of them at most.")] = DEPTH.epochs,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Configurations tried before this one; left out: as the card tells.")
    ] = None,
    device: AnsweringDeviceOption = "auto",
    report: Report = None,
    as_json: JsonOption = False,
) -> None:
    """Try to refute a model's skill: as a leak, a lag, a cost or luck; the record stands beside the artifact."""
    torch.set_num_threads(1)
    path = (artifact or recipe or Path()).resolve()
    check_file(audit_path(path))
    beside_bars = CovariateSource.read(covariates or (), static)
    source = chosen_source(artifact, recipe, (features, known), beside_bars, device)
    tactic = Tactic(strategy=strategy, share=share, threshold_bps=threshold_bps, volatility=volatility)
    terms = Terms(
        horizon=chosen_horizon(source.horizons, horizon),
        cost_bps=cost_bps,
        borrow_bps=borrow_bps,
        delisting_return=delisting_return,
    )
    depth = Depth(sessions=sessions, permutations=permutations, epochs=epochs, trials=trials)
    announce, warn = announcer(as_json=as_json), warner(as_json=as_json)
    try:
        panel = chosen_bars(bars, query, bars_env)
        record = audit(source, panel, terms=terms, tactic=tactic, depth=depth, announce=announce, warn=warn)
    except LoopError as error:
        raise ConfigurationError(str(error)) from error
    write_audit(path, record)
    if report is not None:
        write_audit_page(report, artifact_name(path), record)
    _tell(record, audit_path(path), as_json=as_json)


def _tell(record: AuditRecord, path: Path, *, as_json: bool) -> None:
    if as_json:
        told = {
            "kind": "audit",
            "file": str(path),
            "verdict": record.verdict.value,
            "audit": json.loads(record.to_bytes()),
        }
        sys.stdout.write(json.dumps(told, allow_nan=False) + "\n")
        return
    console = Console(highlight=False)
    console.print(audit_table(replace(record, warnings=())))  # they were told before the work
    console.print(f"Written to {path}", soft_wrap=True, markup=False)

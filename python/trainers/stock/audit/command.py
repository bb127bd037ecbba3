"""`quantra audit`."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
from rich.console import Console

from predictor import canonical
from predictor.audit_record import locate_audit, write_audit
from predictor.bars.suspects import find_suspects
from predictor.cli.flags import with_flags
from predictor.cli.options import BarsFlags, CovariateFlags, Report, WorkerFlags
from predictor.cli.output import list_given_flags, make_audit_table, print_next_commands, quantra, write_json
from predictor.errors import ConfigurationError
from predictor.flags import FlagSubset, ParsedFlags
from predictor.replacement import check_file, replace_file
from predictor.report.templates import name_artifact
from trainers.loop import LoopError
from trainers.options import RunOptions
from trainers.progress import no_progress, progress_for, progress_on
from trainers.stock.audit.audit import AuditBudget, audit
from trainers.stock.audit.page import render_audit
from trainers.stock.backtest.backtest import choose_terms
from trainers.stock.backtest.command import BacktestSubject
from trainers.stock.backtest.strategies import StrategySettings, TradingTerms
from trainers.stock.feature_cache import map_bars
from trainers.stock.progress_output import make_announcer, make_warner


@with_flags
def audit_command(
    *,
    subject: BacktestSubject,
    bars: BarsFlags,
    files: CovariateFlags,
    terms: Annotated[ParsedFlags[TradingTerms], FlagSubset("horizon", "cost_bps", "borrow_bps", "delisting_return")],
    strategy_settings: ParsedFlags[StrategySettings],
    depth: AuditBudget,
    machines: WorkerFlags,
    report: Report = None,
    run: Annotated[RunOptions, FlagSubset("as_json")],
) -> None:
    """Check whether a leak, the lag, costs or luck explain a model's skill; writes a record next to the artifact."""
    torch.set_num_threads(1)
    path = (subject.path or Path()).resolve()
    check_file(locate_audit(path))
    source = subject.source(files.read())
    trading_terms = choose_terms(terms, source)
    announce, warn = make_announcer(as_json=run.as_json), make_warner(as_json=run.as_json)
    panel = map_bars(bars.read(), source.cache)
    try:
        record = audit(
            source,
            panel,
            terms=trading_terms,
            strategy_settings=strategy_settings.over(StrategySettings.default(len(panel.symbols))),
            depth=depth,
            announce=announce,
            warn=warn,
            track_steps=no_progress if run.as_json else progress_on(sys.stdout),
            consume=None if run.as_json else progress_for(sys.stdout),
            runner=machines.runner(),
        )
    except LoopError as error:
        raise ConfigurationError(str(error)) from error
    write_audit(path, record)
    if report is not None:
        replace_file(report, render_audit(name_artifact(path), record).encode())
    if run.as_json:
        content = canonical.from_bytes(record.to_bytes(), "audit")
        write_json(
            {"kind": "audit", "file": str(locate_audit(path)), "verdict": record.verdict.value, "audit": content}
        )
        return
    console = Console(highlight=False)
    console.print(make_audit_table(replace(record, warnings=())))  # shown before the work
    console.print(f"Written to {locate_audit(path)}", soft_wrap=True, markup=False)
    if subject.artifact is not None:
        refused = {suspect.symbol for suspect in find_suspects(panel) if suspect.is_refused}
        usable = [symbol for symbol in panel.symbols if symbol not in refused]
        symbol = ("--symbol", usable[0]) if refused and usable else ()
        print_next_commands(quantra("report", subject.artifact, *list_given_flags(bars, files), *symbol))

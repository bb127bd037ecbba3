"""`quantra daily`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.text import Text

from predictor.cli.flags import with_flags
from predictor.cli.options import AsJson, BarsFlags, CovariateFlags
from predictor.cli.output import print_next_commands, quantra, write_json
from predictor.errors import listed, shown_date
from predictor.evidence import Lamp
from predictor.ledger import Ledger
from predictor.registry import find_line
from predictor.registry.layout import names_in
from trainers.stock.daily.evenings import DailySettings, DailySummary, run_evenings
from trainers.stock.daily.run_lock import claim_run
from trainers.stock.lifecycle.command import PERSON_NEEDED, ModelsFolder

_COLOURS = {Lamp.GREEN: "green", Lamp.AMBER: "yellow", Lamp.RED: "red", Lamp.LEARNING: "dim"}

LedgerPath = Annotated[Path, typer.Option(metavar="FILE", help="The ledger; a new one is made if it is missing.")]
AcceptSuspectBars = Annotated[
    bool, typer.Option("--accept-suspect-bars", help="Use bars that contradict their history, with a warning.")
]
ModelName = Annotated[str, typer.Option(metavar="NAME", help="The model; by default the only one of the folder.")]


@with_flags
def daily_command(
    *,
    bars: BarsFlags,
    files: CovariateFlags,
    ledger: LedgerPath,
    models: ModelsFolder = Path("models"),
    name: ModelName = "",
    accept_suspect_bars: AcceptSuspectBars = False,
    as_json: AsJson = False,
) -> None:
    """Do the evenings that are due: record bars, score and make forecasts, and look at the evidence.

    A missed week is caught up, and a second run writes nothing. The exit code is 3 if a person should look.
    """
    torch.set_num_threads(1)
    with claim_run(ledger) as holder:
        if holder:
            _print_skipped(ledger, holder, as_json=as_json)
            return
        panel = bars.read()
        with Ledger.open(ledger, create=True) as opened:
            settings = DailySettings(
                ledger=opened,
                line=choose_line(models, name),
                covariates=files.read(),
                accept_suspect_bars=accept_suspect_bars,
            )
            summary = run_evenings(settings, panel, datetime.now(UTC))
    print_summary(summary, as_json=as_json)
    if not as_json:
        print_next_commands(quantra("ledger", "show", ledger))
    if summary.findings:
        raise typer.Exit(PERSON_NEEDED)


def choose_line(models: Path, name: str) -> Path:
    """The folder of the named model, or of the only one.

    Raises:
        BadParameter: no name is given, and there is not exactly one model.
    """
    if not name:
        names = sorted(names_in(models))
        if len(names) != 1:
            raise typer.BadParameter(f"{models} holds {len(names)} models; choose one with --name: {listed(names)}")
        (name,) = names
    return find_line(models, name)


def _print_skipped(ledger: Path, holder: str, *, as_json: bool) -> None:
    if as_json:
        write_json({"skipped": f"{ledger} is in use by {holder}"})
    else:
        typer.echo(f"{ledger} is in use by {holder}, so nothing was done.")


def print_summary(summary: DailySummary, *, as_json: bool) -> None:
    """Print what was done, the lamp, and what a person should look at."""
    if as_json:
        write_json(summary.to_json())
        return
    console = Console(highlight=False)
    reference = f"{summary.model}@{summary.champion}"
    if not summary.session:
        console.print("No session of these bars has closed yet; nothing was done.")
        return
    done = f"{summary.evenings} evening{'' if summary.evenings == 1 else 's'}"
    written = f"{summary.rows} rows and {summary.bars} bars written"
    console.print(f"{reference}, {shown_date(summary.session)}: {done}, {written}.", markup=False)
    console.print(Text.assemble("Lamp: ", (summary.lamp.value, _COLOURS[summary.lamp])))
    for symbol, reason in list(summary.refused.items())[:_MOST_SHOWN]:
        console.print(f"no forecast of {symbol}: {reason}", style="yellow", markup=False)
    if len(summary.refused) > _MOST_SHOWN:
        console.print(f"and {len(summary.refused) - _MOST_SHOWN} more symbols (--json lists all)", style="yellow")
    for finding in summary.findings:
        console.print(f"look: {finding}", style="red", markup=False)


_MOST_SHOWN = 5

"""The trainers' commands beside the predictor's."""

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from predictor.cli import app
from trainers.demo import DemoResult, Settings, walk
from trainers.stock.audit.command import EXAMPLE as AUDIT_EXAMPLE
from trainers.stock.audit.command import audit_command
from trainers.stock.backtest.command import EXAMPLE as BACKTEST_EXAMPLE
from trainers.stock.backtest.command import backtest_command
from trainers.stock.command import EXAMPLE, stock
from trainers.stock.ensembles.command import EXAMPLE as ENSEMBLE_EXAMPLE
from trainers.stock.ensembles.command import ensemble
from trainers.stock.evaluation.command import EXAMPLE as EVALUATE_EXAMPLE
from trainers.stock.evaluation.command import evaluate_command
from trainers.stock.tuning.command import EXAMPLE as TUNE_EXAMPLE
from trainers.stock.tuning.command import tune_stock

__all__ = ["app"]

training = typer.Typer(no_args_is_help=True, help="Train a model: stock.")
training.command(epilog=EXAMPLE)(stock)
app.add_typer(training, name="train")
tuning = typer.Typer(no_args_is_help=True, help="Search for the settings of a model: stock.")
tuning.command(name="stock", epilog=TUNE_EXAMPLE)(tune_stock)
app.add_typer(tuning, name="tune")
app.command(epilog=ENSEMBLE_EXAMPLE)(ensemble)
app.command("evaluate", epilog=EVALUATE_EXAMPLE)(evaluate_command)
app.command("backtest", epilog=BACKTEST_EXAMPLE)(backtest_command)
app.command("audit", epilog=AUDIT_EXAMPLE)(audit_command)


@app.command(epilog="Example: quantra demo --out demo --keep-serving")
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("demo"),
    keep_serving: Annotated[bool, typer.Option("--keep-serving", help="Leave the server running.")] = False,  # noqa: FBT002
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open the report.")] = False,  # noqa: FBT002
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON on standard output.")] = False,  # noqa: FBT002
) -> None:
    """Train on real bars, serve, ask from Python and C#, and write report.html; about a minute."""
    torch.set_num_threads(1)  # the default network is too small to be faster on more
    console = Console(file=sys.stderr if as_json else sys.stdout)
    walked = walk(Settings(out=out, keep_serving=keep_serving, open_browser=not no_browser), console)
    if as_json:
        sys.stdout.write(json.dumps(_facts(walked)) + "\n")
    else:
        _tell(walked, console)
    if walked.failure is not None:
        raise walked.failure


def _facts(walked: DemoResult) -> dict[str, str | int | None]:
    """What programs want to know of the demo."""
    question = walked.question
    return {
        "report": str(walked.report),
        "port": question.port,
        "pid": walked.pid,
        "serve": question.serve,
        "python": question.python,
        "csharp": question.csharp,
    }


def _tell(walked: DemoResult, console: Console) -> None:
    """How to ask again, and where the report is."""
    question = walked.question
    if activation := _activation():
        _show(console, "once in this shell, which has no quantra yet", activation, "bash")
    if walked.pid is None:
        _show(console, "start the server again", question.serve, "bash")
    else:
        console.print(f"The server goes on as process {walked.pid}; stop it with: kill {walked.pid}")
    _show(console, "ask from Python", question.python, "python")
    run = "" if walked.csharp is None else f": dotnet run --project {walked.csharp}"
    _show(console, f"ask from C#{run}", question.csharp, "csharp")
    console.print(f"Report: {walked.report}", style="bold", soft_wrap=True, markup=False)


def _activation() -> str:
    """What brings `quantra` and its Python onto the PATH; empty where they are there."""
    script = Path(sys.executable).parent / "activate"
    return "" if shutil.which("quantra") or not script.is_file() else f"source {script}"


def _show(console: Console, title: str, code: str, language: str) -> None:
    """Code without a frame and without folded lines, so that it can be copied."""
    console.rule(Text(title), align="left")
    syntax = Syntax(code, language, background_color="default")
    console.print(syntax.highlight(code), soft_wrap=True)

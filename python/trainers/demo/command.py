"""The command `quantra demo`."""

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

from trainers.demo.steps import DemoResult, DemoSettings, run_demo


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("demo"),
    keep_serving: Annotated[bool, typer.Option("--keep-serving", help="Leave the server running.")] = False,  # noqa: FBT002
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open the report.")] = False,  # noqa: FBT002
    as_json: Annotated[bool, typer.Option("--json", help="Write the result as JSON to standard output.")] = False,  # noqa: FBT002
) -> None:
    """Train on real bars, serve, query from Python and C#, and write report.html; less than a minute."""
    torch.set_num_threads(1)  # the default network is too small to be faster with more
    console = Console(file=sys.stderr if as_json else sys.stdout)
    result = run_demo(DemoSettings(out=out, keep_serving=keep_serving, open_browser=not no_browser), console)
    if as_json:
        programs = result.programs
        fields = {
            "report": str(result.report),
            "port": programs.port,
            "pid": result.pid,
            "serve": programs.serve,
            "python": programs.python,
            "csharp": programs.csharp,
        }
        sys.stdout.write(json.dumps(fields) + "\n")
    else:
        _print(result, console)
    if result.failure is not None:
        raise result.failure


def _print(result: DemoResult, console: Console) -> None:
    """Print how to query again, and the path of the report."""
    programs = result.programs
    if activation := _write_activation():
        _show(console, "once in this shell, to find quantra", activation, "bash")
    if result.pid is None:
        _show(console, "start the server again", programs.serve, "bash")
    else:
        console.print(f"The server still runs as process {result.pid}; stop it with: kill {result.pid}")
    _show(console, "query from Python", programs.python, "python")
    run = "" if result.csharp is None else f": dotnet run --project {result.csharp}"
    _show(console, f"query from C#{run}", programs.csharp, "csharp")
    console.print(f"Report: {result.report}", style="bold", soft_wrap=True, markup=False)


def _write_activation() -> str:
    """The shell command that puts `quantra` on the PATH; empty if it is there."""
    script = Path(sys.executable).parent / "activate"
    return "" if shutil.which("quantra") or not script.is_file() else f"source {script}"


def _show(console: Console, title: str, code: str, language: str) -> None:
    """Print code without a frame and without wrapped lines, so that it can be copied."""
    console.rule(Text(title), align="left")
    syntax = Syntax(code, language, background_color="default")
    console.print(syntax.highlight(code), soft_wrap=True)

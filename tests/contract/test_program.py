"""`quantra` imports a command only when it is used; `--help` imports none."""

import subprocess
import sys
from typing import Any

import pytest
import typer

from predictor.cli.commands import COMMANDS, LEDGER
from predictor.cli.program import Command
from trainers.cli.commands import OURS, THEIRS, TRAIN, TUNE, VITS, app

ALL = (*COMMANDS, *(one for one in THEIRS if one not in COMMANDS), *LEDGER, *OURS, *TRAIN, *TUNE, *VITS)
LOADED_BY_HELP = [
    "predictor",
    "predictor.cli",
    "predictor.cli.commands",
    "predictor.cli.program",
    "predictor.errors",
    "predictor.interruption",
    "trainers",
    "trainers.cli",
    "trainers.cli.commands",
]
HEAVY = {"torch", "numpy", "pandas", "polars", "grpc", "plotly", "google.protobuf"}
SHOW = """
import sys
from trainers.cli import main
sys.argv = ["quantra", *sys.argv[1:]]
try:
    main()
finally:
    print("\\n".join(sys.modules), file=sys.stderr)
"""


def modules_of(*words: str) -> set[str]:
    """Modules that the program imports."""
    command = [sys.executable, "-c", SHOW, *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Usage: quantra" in ended.stdout
    return set(ended.stderr.splitlines())


@pytest.mark.parametrize("words", ["--help", "train --help", "tune --help"])
def test_help_that_lists_commands_loads_none_of_them(words: str) -> None:
    found = modules_of(*words.split())
    assert sorted(name for name in found if name.split(".")[0] in {"predictor", "trainers"}) == LOADED_BY_HELP
    assert not found & HEAVY


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.function)
def test_a_line_of_the_help_is_what_the_command_says_of_itself(command: Command) -> None:
    loaded = command.load()
    assert command.help == loaded.help.split("\n\n")[0].replace("\n", " ")
    assert loaded.name == command.name
    assert loaded.epilog.startswith("Example: quantra ")


def test_the_command_that_is_named_is_the_one_that_runs() -> None:
    group: Any = typer.main.get_command(app)
    _, train, rest = group.resolve_command(typer.Context(group), ["train", "stock", "--epochs", "3"])
    name, stock, rest = train.resolve_command(typer.Context(train), rest)
    assert (name, rest) == ("stock", ["--epochs", "3"])
    assert "epochs" in [parameter.name for parameter in stock.params]

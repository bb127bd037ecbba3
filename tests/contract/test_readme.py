"""The README's code blocks, run in order in the demo's folder."""

import re
import shlex
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_exits import program_exit_code
from free_ports import free_port
from shown_commands import ROOT, run_csharp, run_python, running

from trainers.cli.commands import app

if TYPE_CHECKING:
    from contract.conftest import Demo

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(bash|python|csharp)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
PORT = "50051"
SHORTER = {"quantra train": "--epochs 1 --hidden 4 --layers 1", "quantra evaluate": "--seeds 1"}
"""The demo has trained to the end with the defaults, and test_stock_evaluation trains from other seeds."""


def test_the_readme_shows_commands_python_and_csharp() -> None:
    assert {language for language, _ in BLOCKS} == {"bash", "python", "csharp"}


@pytest.mark.slow
def test_the_readmes_blocks_run_in_order(demo: "Demo", monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the make targets and their plain equivalents, which are unnamed blocks."""
    monkeypatch.chdir(demo.folder)
    port = str(free_port())
    with ExitStack() as servers:
        for number, (language, text) in enumerate(BLOCKS):
            code = text.replace(PORT, port)
            match language:
                case "bash":
                    _run_lines(code, demo.folder, servers)
                case "python":
                    assert run_python(code, demo.folder).strip()
                case _ if shutil.which("dotnet"):
                    assert "AAPL" in run_csharp(code, demo.folder, demo.folder / f"block{number}")
                case _:
                    pass


def _run_lines(code: str, folder: Path, servers: ExitStack) -> None:
    for line in code.strip().splitlines():
        if line.startswith("quantra serve"):
            assert '"ready": true' in servers.enter_context(running(line, folder))
        else:
            more = next((flags for command, flags in SHORTER.items() if line.startswith(command)), "")
            assert program_exit_code(app, *shlex.split(f"{line} {more}")[1:]) == 0, line

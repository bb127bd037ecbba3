"""What docs/paths.md shows runs as shown."""

import re
import shlex
from pathlib import Path

import pytest
from artifacts import save_small_artifact
from command_exits import program_exit_code
from market import bokeh_panel
from shown_commands import ROOT

from predictor.cli.commands import app

PAGE = (ROOT / "docs" / "paths.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    bokeh_panel("AAPL", "IBM").last(800).write_csv("bars.csv")
    save_small_artifact(tmp_path / "models" / "demo" / "1")
    return tmp_path


def blocks_of(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.usefixtures("folder")
def test_the_shown_command_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = blocks_of("bash")
    assert program_exit_code(app, *shlex.split(command)[1:]) == 0
    assert "value at risk, 99 %" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_the_shown_code_runs() -> None:
    (code,) = blocks_of("python")
    exec(compile(code, "paths.md", "exec"), {})  # noqa: S102 - our own page

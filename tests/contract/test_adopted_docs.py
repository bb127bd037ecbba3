"""What docs/adopted-models.md shows runs as shown."""

import re
import shlex
from pathlib import Path

import pytest
from command_exits import program_exit_code
from market import bokeh_panel
from published_models import write_published_folder
from shown_commands import ROOT

from trainers.cli.commands import app

PAGE = (ROOT / "docs" / "adopted-models.md").read_text(encoding="utf-8")


def test_the_shown_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bokeh_panel("AAPL", "IBM").write_csv("bars.csv")
    write_published_folder(tmp_path / "chronos-bolt-small")
    (commands,) = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)

    for command in commands.splitlines():
        assert program_exit_code(app, *shlex.split(command)[1:]) == 0, capsys.readouterr().err

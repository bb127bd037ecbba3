"""What docs/adopted-models.md shows runs as shown."""

import re
import shlex
from pathlib import Path

import pytest
from command_exits import program_exit_code
from market import bokeh_panel
from published_models import write_kronos_folders, write_published_folder
from shown_commands import ROOT

from trainers.cli.commands import app

PAGE = (ROOT / "docs" / "adopted-models.md").read_text(encoding="utf-8")


CHRONOS, KRONOS = (block.splitlines() for block in re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL))


@pytest.mark.slow
def test_the_shown_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bokeh_panel("AAPL", "IBM").write_csv("bars.csv")
    write_published_folder(tmp_path / "chronos-bolt-small")

    for command in CHRONOS:
        assert program_exit_code(app, *shlex.split(command)[1:]) == 0, capsys.readouterr().err


def test_the_shown_command_for_kronos_runs_with_earlier_bars_and_few_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bokeh_panel("AAPL").last(260).write_csv("bars.csv")
    folders = write_kronos_folders(tmp_path)
    (folders / "model").rename("Kronos-small")
    (folders / "tokenizer").rename("Kronos-Tokenizer-base")

    (command,) = KRONOS
    earlier = command.replace("2024-06-30", "2012-08-29")
    few = ("--paths", "5", "--encoder-length", "10", "--horizons", "1,2")
    assert program_exit_code(app, *shlex.split(earlier)[1:], *few) == 0, capsys.readouterr().err

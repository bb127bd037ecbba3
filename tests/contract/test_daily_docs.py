"""The commands that docs/daily.md shows run as shown, on the bars of the demo."""

import re
import shlex
from pathlib import Path

import pytest
from command_exits import program_exit_code
from market import bokeh_panel
from shown_commands import ROOT

from trainers.cli.commands import app

PAGE = (ROOT / "docs" / "daily.md").read_text(encoding="utf-8")


def shown_commands() -> list[list[str]]:
    """Words of each command after the program's name."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]


@pytest.mark.slow
def test_the_shown_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bokeh_panel("AAPL", "IBM").write_csv("bars.csv")
    daily, schedule, train, simulate, replay = shown_commands()
    for words in (train, simulate, replay, schedule, daily):
        assert program_exit_code(app, *words) == 0, words
    assert "100 of 100 forecasts are equal to the last bit" in capsys.readouterr().out
    assert Path("simulated/page.html").stat().st_size < 2_000_000
    assert Path("page.html").exists()

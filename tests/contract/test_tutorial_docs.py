"""The tutorial and the pages for beginners run as shown, one after the other in the folder of the tutorial."""

import re
import shlex
from pathlib import Path

import pytest
from command_exits import program_exit_code
from market import bokeh_panel
from shown_commands import ROOT

from predictor.bars import BarPanel
from trainers.cli.commands import app

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tutorial")]
SESSIONS, LATER = 1_300, 5
"""Sessions of the file, and those that the tutorial adds."""


def blocks_of(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run_shown(page: str) -> None:
    for line in "".join(blocks_of(page, "bash")).splitlines():
        assert program_exit_code(app, *shlex.split(line)[1:]) == 0, line


def run_code(page: str) -> None:
    for code in blocks_of(page, "python"):
        exec(compile(code, page, "exec"), {})  # noqa: S102 - our own page


@pytest.fixture(scope="module")
def bars() -> BarPanel:
    return bokeh_panel("AAPL", "IBM", "MSFT").last(SESSIONS)


@pytest.fixture(scope="module")
def made(bars: BarPanel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `prices.csv`, and the model of the tutorial."""
    folder = tmp_path_factory.mktemp("tutorial")
    bars.until(int(bars.sessions[-1 - LATER])).write_csv(folder / "prices.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_shown("tutorial.md")
    return folder


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def test_the_evening_of_the_tutorial_catches_up_with_added_bars(
    folder: Path, bars: BarPanel, capsys: pytest.CaptureFixture[str]
) -> None:
    bars.write_csv(folder / "prices.csv")
    (evening,) = (line for line in "".join(blocks_of("tutorial.md", "bash")).splitlines() if "quantra daily" in line)
    assert program_exit_code(app, *shlex.split(evening)[1:]) == 0
    shown = capsys.readouterr().out
    assert f"{LATER} evenings" in shown
    assert "Lamp: learning" in shown
    assert (folder / "page.html").exists()
    assert (folder / "chart.html").exists()


@pytest.mark.usefixtures("folder")
def test_the_numbers_of_a_fan_are_as_shown(capsys: pytest.CaptureFixture[str]) -> None:
    run_code("reading-a-fan.md")
    assert "skill: not shown" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_the_second_opinion_on_a_skill_scores_17_baselines(capsys: pytest.CaptureFixture[str]) -> None:
    run_shown("skill.md")
    assert "scoring 17/17" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_past_forecasts_are_counted_as_shown(capsys: pytest.CaptureFixture[str]) -> None:
    run_code("skill.md")
    assert "% inside" in capsys.readouterr().out


def test_a_folder_of_many_symbols_is_forecast_and_ranked(folder: Path, bars: BarPanel) -> None:
    (folder / "prices").mkdir()
    for symbol in bars.symbols:
        bars.select([symbol]).write_csv(folder / "prices" / f"{symbol}.csv")
    run_shown("universe.md")
    run_code("universe.md")

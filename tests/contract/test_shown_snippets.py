"""The commands and programs of the docs pages run as shown, shortened where they train, on one small model."""

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import covariate_files
import polars as pl
import pytest
from command_exits import program_exit_code
from market import bokeh_panel
from recordings import write_recordings
from shown_commands import ROOT

from predictor.bars import BarPanel
from predictor.forecaster import Forecaster
from predictor.ledger import Ledger
from predictor.registry import claim_first_champion
from quantra import StockTrainer
from trainers.cli.commands import app

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("shown snippets")]

SMALL: Final = "--epochs 1 --hidden 4 --layers 1 --encoder-length 10 --horizons 1,5"
LONGER_REFITS: Final = "--refit 300 --workers 1"
SHORTER: Final[Mapping[str, str]] = {
    "quantra train stock --bars demo/bars.csv --out models/daily/1": SMALL,
    "quantra train stock --from": "--epochs 1",
    "quantra evaluate": "--seeds 1",
    "quantra backtest models/mine/1 --bars demo/bars.csv --start 2011-06-01 --end 2013-01-31 --refit": LONGER_REFITS,
    "quantra forecast": "--workers 1",
    "quantra audit": "--epochs 1 --sessions 2 --permutations 1",
    "quantra promote": "--override losses --override symbols --override audit --override shadow --override replay",
}
"""Flags that shorten a command, of which the last one counts, or let a random model pass."""
NOT_RUN: Final[Mapping[str, str]] = {
    "quantra train stock --bars demo/bars.csv --model best": "trains for ten minutes; test_stock_best.py",
    "quantra tune stock": "trains 30 networks; test_stock_tuning.py",
    "quantra export": "loads PyTorch's exporter for seconds; test_export.py",
    "quantra train vits train": "trains for hours; test_training_runs.py and test_vits_command.py use a small voice",
    "quantra train vits synth": "needs the voice",
    "quantra train vits evaluate": "needs the voice",
    "quantra train vits feedback": "needs the voice",
    "quantra serve": "serves until it is stopped; test_ledger_service.py",
    "pip install": "downloads",
    "createdb": "needs PostgreSQL; test_postgres_ledger.py",
    "export PGPASSWORD": "needs PostgreSQL; test_postgres_ledger.py",
    "quantra daily --bars bars.csv --models models --ledger postgresql": "needs PostgreSQL; test_postgres_ledger.py",
    "quantra ledger verify postgresql": "needs PostgreSQL; test_postgres_ledger.py",
    'trainer = StockTrainer(model="tft"': "needs a GPU and trains nine networks; test_stock_trainer.py",
}
"""Commands and programs that no test runs as shown, by a part of their text, with the reason."""
SPLITS: Final = "2005-01-03/2010-03-31,2010-04-01/2010-09-30,2010-10-01/2011-02-28,2011-03-01/2011-05-31"


RUN_HERE: Final = (
    "bars.md",
    "covariates.md",
    "evaluation.md",
    "forecasters.md",
    "ledger.md",
    "lifecycle.md",
    "speech.md",
)
RUN_BY: Final[Mapping[str, str]] = {
    "adopted-models.md": "contract/test_adopted_docs.py",
    "client.md": "contract/test_serving_page.py",
    "daily.md": "contract/test_daily_docs.py",
    "http.md": "contract/test_serving_page.py",
    "monitoring.md": "contract/test_serving_page.py",
    "kserve.md": "predictor/test_kserve_tritonclient.py",
    "paths.md": "contract/test_paths_docs.py",
    "reading-a-fan.md": "contract/test_tutorial_docs.py",
    "serving.md": "contract/test_serving_page.py",
    "skill.md": "contract/test_tutorial_docs.py",
    "training-loop.md": "contract/test_recipes.py",
    "tutorial.md": "contract/test_tutorial_docs.py",
    "universe.md": "contract/test_tutorial_docs.py",
}
"""Pages that another test runs."""
RUN_BY_NO_TEST: Final[Mapping[str, str]] = {
    "images.md": "trains for hours; tests/trainers/dit run the same commands on tiny images",
    "page.md": "serves until it is stopped; test_page.py asks such a server",
    "scale.md": "needs Ray, or many bars; tests/cluster runs a backtest and a forecast on a cluster",
}


def blocks_of(page: str) -> Iterator[tuple[str, str]]:
    """Language and text of the blocks, with continued lines joined."""
    text = (ROOT / "docs" / page).read_text("utf-8").replace("\\\n", "")
    yield from re.findall(r"^```(bash|python)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def is_run(text: str) -> bool:
    return not any(part in text for part in NOT_RUN)


def run_shown(page: str, **names: Any) -> None:
    """Run all blocks of a page in order; the names are those that its programs assume."""
    for language, text in blocks_of(page):
        if language == "bash":
            for line in filter(is_run, text.splitlines()):
                run_line(line)
        elif is_run(text):
            run_program(text, **names)


def run_line(line: str) -> None:
    more = next((flags for command, flags in SHORTER.items() if line.startswith(command)), "")
    assert program_exit_code(app, *shlex.split(f"{line} {more}")[1:]) == 0, line


def run_program(text: str, **names: Any) -> None:
    exec(compile(text, "a docs page", "exec"), names)  # noqa: S102 - our own page


@pytest.fixture(scope="module")
def bars() -> BarPanel:
    return bokeh_panel("AAPL", "IBM").between(20041201, 20130301)


@pytest.fixture(scope="module")
def made(bars: BarPanel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the demo's bars and two small models, at the paths of the pages."""
    folder = tmp_path_factory.mktemp("shown")
    (folder / "demo").mkdir()
    for name in ("bars.csv", "demo/bars.csv"):
        bars.write_csv(folder / name)
    for place, seed in (("mine/1", 0), ("tft/1", 1)):
        trainer = StockTrainer(
            epochs=1,
            hidden=4,
            layers=1,
            encoder_length=10,
            horizons=[1, 5],
            seed=seed,
            splits=SPLITS,
            calendar="XNYS",
            quiet=True,
        )
        trainer.fit(bars).close()
        trainer.save(folder / "models" / place)
    trainer.save(folder / "demo" / "models" / "demo" / "1")
    return folder


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", ["bars.md", "evaluation.md", "forecasters.md", "ledger.md"])
def test_the_page_runs_as_shown(page: str) -> None:
    run_shown(page)


def test_the_page_on_covariates_runs_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = covariate_files.save_artifact_with(tmp_path / "1", covariate_files.source(tmp_path))
    daily = [pl.read_csv(name) for name in ("market.csv", "rebalance.csv")]
    pl.concat(daily, how="diagonal").write_csv("calendar.csv")
    Path("static.csv").rename("sectors.csv")
    with Forecaster.load(model) as forecaster:
        run_shown("covariates.md", forecaster=forecaster, bars=covariate_files.bars())


def test_the_page_on_the_lifecycle_runs_as_shown(
    made: Path, bars: BarPanel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version is compared on bars that came after its training."""
    monkeypatch.chdir(tmp_path)
    claim_first_champion(shutil.copytree(made / "models" / "mine" / "1", Path("models/mine/1")))
    earlier = bars.until(20120629)
    earlier.write_csv("bars.csv")
    lines = [line for language, text in blocks_of("lifecycle.md") if language == "bash" for line in text.splitlines()]
    run_line(lines[0])
    bars.write_csv("bars.csv")
    with Ledger.open("ledger.db", create=True) as ledger:
        ledger.add_bars(bars)
    for line in lines[1:]:
        run_line(line)
    (program,) = (text for language, text in blocks_of("lifecycle.md") if language == "python")
    claim_first_champion(shutil.copytree(made / "models" / "mine" / "1", Path("others/mine/1")))
    with Ledger.open("ledger.db") as ledger:
        run_program(program, models=Path("others"), bars=earlier, later_bars=bars, ledger=ledger)


def test_the_page_on_speech_runs_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_recordings(tmp_path / "recordings")
    run_shown("speech.md")


def test_every_page_with_commands_or_programs_is_run_or_has_a_reason_not_to_be() -> None:
    shown = {path.name for path in (ROOT / "docs").glob("*.md") if any(blocks_of(path.name))}
    assert shown == {*RUN_HERE, *RUN_BY, *RUN_BY_NO_TEST}
    assert [page for page, test in RUN_BY.items() if page not in (ROOT / "tests" / test).read_text("utf-8")] == []


def test_every_exception_is_still_shown() -> None:
    shown = "".join(path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md"))
    assert [part for part in (*NOT_RUN, *SHORTER) if part not in shown] == []

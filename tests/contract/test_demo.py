"""The demo: its output files, and the programs that it prints, run exactly as printed."""

import io
import json
import os
import re
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console
from shown_commands import run_command, run_python, running

from predictor import BarPanel, Forecaster
from predictor.errors import UnavailableError
from predictor.instance import ExplanationQuery, Instance
from trainers.demo import command
from trainers.demo.dotnet import PROGRAM, DotnetProgram, find_reason_to_skip
from trainers.demo.steps import DemoPrograms, run_csharp_client

if TYPE_CHECKING:
    from contract.conftest import Demo

pytestmark = pytest.mark.slow


def test_the_demo_leaves_models_bars_and_a_report(demo: "Demo") -> None:
    out = demo.folder / "demo"
    assert (out / "models" / "demo" / "1" / "manifest.json").is_file()
    assert json.loads((out / "models" / "demo" / "aliases.json").read_text()) == {"champion": 1}
    assert BarPanel.read(out / "bars.csv").symbols == ("AAPL", "GOOG", "IBM", "MSFT")
    assert "GARCH" in (out / "report.html").read_text(encoding="utf-8")


def test_the_demo_shows_scores_of_model_and_baselines_and_a_sentence_on_skill(demo: "Demo") -> None:
    for name in ("this model", "zero return", "unconditional quantiles", "60-day empirical quantiles", "GARCH(1,1)-t"):
        assert name in demo.shown
    assert re.search(r"(Skill|No skill|No skill shown): on held-out days", " ".join(demo.shown.split()))


def test_the_printed_programs_have_three_and_five_lines(demo: "Demo") -> None:
    assert len(demo.said["python"].strip().splitlines()) == 3
    assert len(demo.said["csharp"].strip().splitlines()) == 5


def test_the_printed_python_program_asks_the_printed_server(demo: "Demo") -> None:
    with running(demo.said["serve"], demo.folder) as ready:
        assert json.loads(ready)["ready"] is True
        answer = run_python(demo.said["python"], demo.folder)
    assert answer.count("ForecastRow(symbol='AAPL'") == 12
    assert _prices(answer, r"price=([\d.]+)") == pytest.approx(_in_process(demo.folder), abs=0.01)


@pytest.mark.skipif(shutil.which("dotnet") is None, reason="there is no dotnet on the PATH")
def test_the_printed_csharp_program_asks_the_printed_server(demo: "Demo") -> None:
    program = demo.folder / "demo" / "csharp"
    assert (program / "Program.cs").read_text(encoding="utf-8") == demo.said["csharp"]
    with running(demo.said["serve"], demo.folder):
        answer = run_command(f"dotnet {program / PROGRAM}", demo.folder)
    for price in _in_process(demo.folder):
        assert f"{price:.4f}" in answer


def test_almost_all_explanations_of_the_last_year_converge(demo: "Demo") -> None:
    bars = BarPanel.read(demo.folder / "demo" / "bars.csv").select(["AAPL"])
    with Forecaster.load(demo.folder / "demo" / "models" / "demo" / "1") as forecaster:
        converged = [
            attribution.converged.all()
            for day in bars.sessions[-250::25]
            for attribution in forecaster.explain(
                ExplanationQuery(instance=Instance(input=bars.until(int(day))))
            ).attributions
        ]
    assert np.mean(converged) >= 0.99


def test_the_programs_name_model_port_file_and_symbol() -> None:
    question = DemoPrograms(port=123, model="m", bars=Path("b.csv"), symbol="S", models=Path("models"))
    for program in (question.python, question.csharp):
        assert all(part in program for part in ('"m"', ":123", "b.csv", '"S"'))
    assert question.serve == "quantra serve --models models --listen 127.0.0.1:123"


def test_the_command_to_serve_again_quotes_its_folder() -> None:
    question = DemoPrograms(port=1, model="m", bars=Path("b.csv"), symbol="S", models=Path("my models"))
    assert shlex.split(question.serve)[3] == "my models"


@pytest.mark.parametrize(
    ("version", "reason"),
    [("8.0.404", "the .NET SDK on the PATH is 8.0.404, and 10 or newer is needed"), ("10.0.100", "")],
)
def test_csharp_is_asked_only_with_a_sdk_that_can_build_it(
    version: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _put_on_the_path(tmp_path, "dotnet", f"echo {version}", monkeypatch)
    assert find_reason_to_skip() == reason


def test_a_csharp_program_that_fails_fails_the_demo_and_shows_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _put_on_the_path(tmp_path, "dotnet", "echo error CS1002; exit 3", monkeypatch)
    question = DemoPrograms(port=1, model="m", bars=Path("b.csv"), symbol="S", models=Path("models"))
    program, shown = DotnetProgram(tmp_path / "csharp"), io.StringIO()
    with program.building(question.csharp) as build, pytest.raises(UnavailableError, match="exit code 3"):
        run_csharp_client(question, program, build, Console(file=shown))
    assert "error CS1002" in shown.getvalue()


def test_a_build_that_is_not_waited_for_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _put_on_the_path(tmp_path, "dotnet", "exec /bin/sleep 600", monkeypatch)
    with DotnetProgram(tmp_path / "csharp").building("") as build:
        assert build is not None
        assert build.poll() is None
    assert build.returncode == -signal.SIGKILL


def test_the_way_into_the_environment_is_shown_only_where_quantra_is_not_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "activate").touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "")
    assert command._write_activation() == f"source {tmp_path / 'activate'}"
    _put_on_the_path(tmp_path, "quantra", "", monkeypatch)
    assert command._write_activation() == ""


def test_without_dotnet_the_demo_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_reason_to_skip() == "dotnet is not on the PATH"


def _put_on_the_path(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program on an otherwise empty PATH."""
    if os.name != "posix":
        pytest.skip("the program is a shell script")
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def _in_process(folder: Path) -> list[float]:
    bars = BarPanel.read(folder / "demo" / "bars.csv").select(["AAPL"])
    with Forecaster.load(folder / "demo" / "models" / "demo" / "1") as forecaster:
        return [row.price for row in forecaster.predict(bars).table()]


def _prices(text: str, pattern: str) -> list[float]:
    return [float(price) for price in re.findall(pattern, text)]

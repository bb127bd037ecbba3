"""C# terminal sample, and starting and stopping Python in a .NET process."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from artifacts import recent_bars, small_models
from csharp import DOTNET, assembly, build_program, built_solution, run_program
from serving import server_process

from predictor.bars import BarPanel
from predictor.forecaster import Forecaster

if sys.platform != "win32":
    import termios

ENDING = """
using Quantra.Client;
using Quantra.Client.Embedded;

// Ends while Python works: while it opens a predictor, or calls it.
var opening = EmbeddedPredictor.OpenAsync(new EmbeddedPredictorOptions { Models = args[1], Device = "cpu" });
if (args[0] == "opening")
{
    while (!File.Exists(Path.Combine(args[1], "began")))
        await Task.Yield();
    return;
}

var predictor = await opening;
var one = new PredictionRequest("small", BarPanel.ReadCsv(Path.Combine(args[1], "bars.csv")));
PredictionRequest[] many = [.. Enumerable.Repeat(one, 100)];
var calls = Enumerable.Range(0, 4).Select(_ => predictor.PredictManyAsync(many)).ToArray();
await calls[0];
"""
ENDING_PROJECT = """<Project Sdk="Microsoft.NET.Sdk">
  <PropertyGroup>
    <OutputType>Exe</OutputType>
    <TargetFramework>net10.0</TargetFramework>
    <ImplicitUsings>enable</ImplicitUsings>
  </PropertyGroup>
  <ItemGroup>
    <ProjectReference Include="{dotnet}/Quantra.Client.Embedded/Quantra.Client.Embedded.csproj" />
  </ItemGroup>
</Project>
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def terminal() -> tuple[str, str]:
    """The command that runs the terminal sample."""
    return built_solution(), str(assembly("samples/Quantra.Terminal"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = small_models(tmp_path_factory.mktemp("models"))
    recent_bars("AAPL", "IBM").write_csv(folder / "bars.csv")
    return folder


@pytest.fixture(params=["server", "embedded", "managed"])
def model_options(request: pytest.FixtureRequest, models: Path) -> Iterator[tuple[str, ...]]:
    """Command line options for the models."""
    if request.param != "server":
        yield (*(["--embedded"] if request.param == "embedded" else []), "--models", str(models))
        return
    with (models / "server.log").open("w") as log, server_process(models, log) as process:
        yield "--server", process.target


def test_the_terminal_draws_forecast_and_reasons(
    terminal: tuple[str, str], models: Path, model_options: tuple[str, ...]
) -> None:
    done = run_program(*terminal, *model_options, "--bars", str(models / "bars.csv"), "--symbol", "IBM")
    assert (done.returncode, done.stderr) == (0, "")
    reasons = ("why q0.5 in 5 days", "baseline train_mean")
    for drawn in ("IBM", "small@1", "as of 2013-03-01", "median", "10% to 90%", *reasons):
        assert drawn in done.stdout


LIVE = ("--symbol", "IBM", "--live", "20", "--pace")


def test_the_terminal_prints_the_last_days_beside_what_had_been_forecast_for_them(
    terminal: tuple[str, str], models: Path, model_options: tuple[str, ...]
) -> None:
    done = run_program(*terminal, *model_options, "--bars", str(models / "bars.csv"), *LIVE, "0.05")
    assert (done.returncode, done.stderr) == (0, "")
    *days, summary = done.stdout.splitlines()
    bars = BarPanel.read(models / "bars.csv", calendar="XNYS").select(["IBM"])
    closes = bars.close[0, -20:]
    assert re.findall(r"close ([\d.]+)", "\n".join(days)) == [f"{close:.2f}" for close in closes]
    with Forecaster.load(models / "small" / "1") as forecaster:
        prices = forecaster.predict(bars.until(bars.sessions[-2])).prices
    assert prices is not None
    low, median, high = prices[0, 0]
    assert days[-1].endswith(f"forecast {median:.2f} ({low:.2f} to {high:.2f}) outside")
    inside = sum(day.endswith("inside") for day in days)
    assert summary == f"{inside} of 20 days ended inside 10% to 90%; a calibrated model has 80% there"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals of this kind")
def test_the_live_view_continues_when_its_server_is_killed(terminal: tuple[str, str], models: Path) -> None:
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    # slow enough that days remain when the server is killed after the first picture
    command = (*terminal, "--own-server", "--models", str(models), "--bars", str(models / "bars.csv"), *LIVE, "0.3")
    variables = os.environ | {"QUANTRA_VENV": sys.prefix, "TERM": "xterm-256color", "PYTHONPATH": ""}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables) as process:
        os.close(theirs)
        screen, killed = "", False
        for part in terminal_output(ours):
            screen += part
            if not killed and (server := re.search(r"process (\d+)", screen)):
                os.kill(int(server[1]), signal.SIGKILL)
                killed = True
    assert process.returncode == 0, screen
    for shown in (
        "last 60 closes",
        "as of 2013-03-01",
        "restarts: 1",
        "session reopened once",
        "of 20 days ended inside",
    ):
        assert shown in screen


def terminal_output(terminal: int) -> Iterator[str]:
    """Output of a program on a terminal, until it ends."""
    # On Linux, reading fails once no process holds the terminal.
    with open(terminal, "rb", buffering=0) as screen, contextlib.suppress(OSError):
        while part := screen.read(65536):
            yield part.decode("utf-8", "replace")


def environment_error(terminal: tuple[str, str], models: Path, environment: Path) -> str:
    """The one-line error of the sample in an unusable environment."""
    embedded = ("--embedded", "--models", str(models), "--bars", str(models / "bars.csv"), "--symbol", "AAPL")
    done = run_program(*terminal, *embedded, environment=environment)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    return line


def test_an_environment_without_a_python_library_is_reported(
    terminal: tuple[str, str], models: Path, tmp_path: Path
) -> None:
    (tmp_path / "pyvenv.cfg").write_text(f"home = {tmp_path / 'nowhere'}\nversion = 3.11.0\n")
    line = environment_error(terminal, models, tmp_path)
    assert line.startswith(f"CONFIGURATION_INVALID: the Python of {tmp_path} does not start: ")
    assert "shared library" in line


def test_an_environment_without_quantra_is_reported(terminal: tuple[str, str], models: Path, tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=False)
    line = environment_error(terminal, models, tmp_path)
    assert line.startswith(f"PACKAGE_MISSING: the Python of {tmp_path} cannot import quantra: ")
    assert "pip install 'quantra[dotnet]'" in line


@pytest.fixture(scope="module")
def ending_command(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The command for a program that exits while Python works."""
    project = ENDING_PROJECT.format(dotnet=DOTNET)
    built = build_program(tmp_path_factory.mktemp("ending"), project, {"Program.cs": ENDING})
    return built_solution(), str(built)


def test_a_program_may_end_while_python_forecasts(ending_command: tuple[str, str], models: Path) -> None:
    done = run_program(*ending_command, "calling", str(models))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_may_end_while_a_predictor_opens(ending_command: tuple[str, str], tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=False)
    package = next(tmp_path.rglob("site-packages")) / "predictor"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "embed.py").write_text(f"open({str(tmp_path / 'began')!r}, 'w').close()\nwhile True:\n    pass\n")
    done = run_program(*ending_command, "opening", str(tmp_path), environment=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_exception_of_pythons_own_is_internal_and_shows_no_trace(
    terminal: tuple[str, str], models: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path, with_pip=False)
    package = next(tmp_path.rglob("site-packages")) / "predictor"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "embed.py").write_text("def open_door(*_):\n    raise ZeroDivisionError('a secret')\n")
    line = environment_error(terminal, models, tmp_path)
    assert line == "INTERNAL: the predictor failed on this call, which is a bug in Quantra; see the inner exception"

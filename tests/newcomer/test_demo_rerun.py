"""Running the demo again: unchanged steps are skipped, judged by content and not by time."""

import io
import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from market import bokeh_panel
from rich.console import Console

from predictor.networks import LSTMConfig, Target
from trainers.demo import steps
from trainers.demo.dotnet import BUILT, DotnetProgram
from trainers.demo.steps import DemoTraining, free_port
from trainers.stock import Optimisation, StockRecipe

QUICK = StockRecipe(
    config=LSTMConfig(hidden=4, layers=1),
    target=Target(horizons=(1,)),
    scale="window",
    encoder_length=10,
    calendar="XNYS",
    optimisation=Optimisation(max_epochs=1),
)
PROGRAM = 'new Uri("http://127.0.0.1:50123")'


def training(out: Path) -> DemoTraining:
    return DemoTraining(bars=bokeh_panel("AAPL").last(400), recipe=QUICK, out=out)


def demo_output(what: DemoTraining) -> str:
    """Console output while the demo obtains its model."""
    shown = io.StringIO()
    what.train_or_reuse(Console(file=shown, width=200))
    return shown.getvalue()


@pytest.fixture(scope="module")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo")
    assert "training demo@1" in demo_output(training(out))
    return out


@pytest.fixture
def copy(demo_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(demo_folder, tmp_path / "demo")


def test_what_has_not_changed_is_not_trained_again(copy: Path) -> None:
    for file in copy.rglob("*"):
        os.utime(file, (0, 0))
    again = demo_output(training(copy))
    assert "reusing demo@1: recipe, bars and versions have not changed" in again
    assert "epoch" not in again
    assert [path.name for path in (copy / "models" / "demo").glob("[0-9]*")] == ["1"]


def test_the_model_that_is_there_is_the_champion_again(copy: Path) -> None:
    (copy / "models" / "demo" / "aliases.json").unlink()
    demo_output(training(copy))
    assert '"champion": 1' in (copy / "models" / "demo" / "aliases.json").read_text()


def another_seed(what: DemoTraining) -> DemoTraining:
    return replace(what, recipe=replace(QUICK, optimisation=Optimisation(max_epochs=1, seed=7)))


def another_bar(what: DemoTraining) -> DemoTraining:
    return replace(what, bars=bokeh_panel("AAPL").last(401))


@pytest.mark.parametrize("change", [another_seed, another_bar])
def test_another_recipe_and_other_bars_are_trained_on(
    change: Callable[[DemoTraining], DemoTraining], copy: Path
) -> None:
    assert "training demo@2" in demo_output(change(training(copy)))
    assert '"champion": 2' in (copy / "models" / "demo" / "aliases.json").read_text()


@pytest.mark.parametrize("changed", ["version", "list_libraries", "hash_program", "python_version", "choose_device"])
def test_other_versions_of_packages_python_or_this_program_train_again(
    changed: str, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another(*_: object) -> str:
        return "another"

    assert training(copy).is_reusable(1)
    monkeypatch.setattr(steps, changed, another)
    assert not training(copy).is_reusable(1)


def test_a_model_that_is_damaged_is_trained_again(copy: Path) -> None:
    weights = copy / "models" / "demo" / "1" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "training demo@2" in demo_output(training(copy))


def test_every_module_of_the_program_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [tmp_path / "predictor" / "a.py", tmp_path / "trainers" / "deep" / "b.py"]
    for module in modules:
        module.parent.mkdir(parents=True)
        module.write_text("1")
    monkeypatch.setattr(steps, "_PACKAGES", tmp_path)
    seen = {steps.hash_program()}
    for module in modules:
        module.write_text("2")
        seen.add(steps.hash_program())
    assert len(seen) == 3


# --- C#


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Calls of a fake SDK, one per line."""
    if os.name != "posix":
        pytest.skip("the program is a shell script")
    log, sdk = tmp_path / "calls", tmp_path / "dotnet"
    sdk.write_text(f"#!/bin/sh\necho $1 >> {log}\n")
    sdk.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return log


def build_program(program: DotnetProgram, source: str) -> None:
    with program.building(source) as build:
        assert program.answer(source, build).returncode == 0


def test_a_csharp_program_is_built_once_and_again_only_where_a_source_has_changed(calls: Path, tmp_path: Path) -> None:
    program = DotnetProgram(tmp_path / "csharp")
    build_program(program, PROGRAM)
    build_program(program, PROGRAM)
    build_program(program, "// another")
    built = [line for line in calls.read_text().splitlines() if line == "build"]
    assert len(calls.read_text().splitlines()) == 5
    assert len(built) == 2


def test_a_build_that_was_stopped_counts_as_none(calls: Path, tmp_path: Path) -> None:
    program = DotnetProgram(tmp_path / "csharp")
    with program.building(PROGRAM):
        pass
    assert not (program.folder / BUILT).exists()
    build_program(program, PROGRAM)
    assert (program.folder / BUILT).exists()
    assert calls.exists()


def test_the_port_of_the_program_is_served_on_again_unless_another_listens_there(tmp_path: Path, calls: Path) -> None:
    program = DotnetProgram(tmp_path / "csharp")
    assert program.port == 0
    build_program(program, PROGRAM)
    assert program.port == 50123
    assert calls.exists()
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        taken = busy.getsockname()[1]
        assert free_port(taken) not in {0, taken}
    assert free_port(taken) == taken

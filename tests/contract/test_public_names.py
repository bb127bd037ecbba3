"""Every Python name that the README, docs and examples show is still there, with the parameters that callers name."""

import inspect
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ROOT / "tests" / "fixtures" / "public_names.txt"
LINES = [line for line in NAMES.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
SHOWN = [line for line in LINES if ":" in line]
COMMANDS = [line for line in LINES if ":" not in line]


def missing(line: str) -> list[str]:
    """What is gone of `module:name(parameters)`: the name, or some of the parameters."""
    path, _, rest = line.partition("(")
    module, _, name = path.partition(":")
    try:
        found = attrgetter(name)(import_module(module))
    except (ModuleNotFoundError, AttributeError):
        return [path]
    wanted = [parameter for parameter in rest.rstrip(")").split(", ") if parameter]
    have = parameters(found) if wanted else ()
    return [f"{path}: {parameter}" for parameter in wanted if parameter not in have]


def parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def is_program(module: str) -> bool:
    """Whether `python -m` finds something to run."""
    paths = [folder / module.replace(".", "/") for folder in (ROOT, ROOT / "python")]
    return any(path.with_suffix(".py").is_file() or (path / "__main__.py").is_file() for path in paths)


@pytest.mark.parametrize("module", sorted({line.partition(":")[0] for line in SHOWN}))
def test_the_names_that_a_module_shows_are_still_there(module: str) -> None:
    assert [gone for line in SHOWN if line.startswith(f"{module}:") for gone in missing(line)] == []


def test_commands_are_still_there() -> None:
    assert [command for command in COMMANDS if not is_program(command)] == []


def test_what_is_gone_is_named() -> None:
    assert missing("predictor:Forecaster.load(path, device)") == []
    assert missing("predictor:Forecaster.load(path, colour)") == ["predictor:Forecaster.load: colour"]
    assert missing("predictor:Oracle") == ["predictor:Oracle"]
    assert missing("predictor.oracle:Oracle()") == ["predictor.oracle:Oracle"]
    assert not is_program("predictor")
    assert not is_program("predictor.oracle")

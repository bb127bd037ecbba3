"""Commands, flags, extras, modules and targets named in messages, pages and docs exist.

They are collected from the sources, so a wrong one fails without being listed here. test_readme.py runs the README's
commands, test_demo.py those of the demo.
"""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from artifacts import recent_bars
from numpy.typing import NDArray
from torch.distributed.run import get_args_parser

from predictor.bars import BarPanel
from predictor.cli import doctor
from predictor.errors import ConfigurationError
from predictor.sessions import SessionCalendar
from trainers.cli.commands import app
from trainers.stock import model_fit

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("dotnet/*/*.md")]
)
SOURCES = sorted(ROOT.glob("python/**/*.py"))
OTHERS = sorted(
    path
    for ending in ("cs", "csproj", "j2")
    for path in (*ROOT.glob(f"dotnet/**/*.{ending}"), *ROOT.glob(f"python/**/*.{ending}"))
    if not {"bin", "obj"} & set(path.parts)
)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
COMMAND = re.compile(r"\bquantra (?=[a-z])([^`;\n…<]*)")
COMPLETE = (": ", "\n")
"""Text before a complete command; the start of a text counts too."""
QUOTED = ("`", "(")
"""Before one that may lack what it must have. Elsewhere a sentence may go on behind a command's name."""
OF_OTHERS = {
    *("--check", "--force-reinstall"),  # sha256sum, pip
    *("--logdir", "--project", "--verbosity"),  # tensorboard, dotnet
    *("--now", "--user"),  # systemctl
    *("--log-level", "--version"),  # the server's own program
}
"""Flags of other programs, which also occur in literals."""
NO_COMMANDS = {"quantra yet", "quantra is ", "quantra in ", "quantra import "}
BEYOND_THE_DEMO = {
    "quantra tune": "tune",
    "quantra export": "onnx",
    "quantra certs": "tls",
    "--tensorboard": "tensorboard",
    "chart.png": "plot",
}
"""Commands that need an extra not installed by `make demo`, and the extra."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text shown to a user."""

    where: str
    text: str


@cache
def syntax(path: Path) -> list[ast.AST]:
    """Every node of a module."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def literals(path: Path) -> Iterator[Text]:
    """Every string of a module, docstrings included; an interpolated value becomes X."""
    inner: set[ast.AST] = set()
    for node in syntax(path):
        if isinstance(node, ast.JoinedStr):
            inner.update(node.values)
            parts = [one.value if isinstance(one, ast.Constant) else "X" for one in node.values]
            yield Text(f"{path.relative_to(ROOT)}:{node.lineno}", "".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inner:
            yield Text(f"{path.relative_to(ROOT)}:{node.lineno}", node.value)


def page(path: Path) -> Text:
    """The text of a page, with continued command lines joined."""
    return Text(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8").replace("\\\n  ", ""))


@cache
def all_literals() -> list[Text]:
    return [text for path in SOURCES for text in literals(path)]


@cache
def all_texts() -> list[Text]:
    return [*all_literals(), *map(page, PAGES), *map(page, OTHERS)]


# --- commands


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command at the start of these words, and the remaining words."""
    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "commands"):
        if words[0] not in command.commands:
            raise ConfigurationError(f"there is no command {words[0]!r}; there are {sorted(command.commands)}")
        _, command, words = command.resolve_command(typer.Context(command), words)
    return command, words


def flags_of(command: Any) -> set[str]:
    """Flags of a command and its subcommands."""
    own = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    below = (command.resolve_command(typer.Context(command), [name])[1] for name in getattr(command, "commands", {}))
    return own.union({"--help"}, *map(flags_of, below))


def check_command(before: str, line: str) -> None:
    """Parse the words after the program's name; raises what the program would."""
    words = shlex.split(re.split(r"[)#&]| {2,}", line)[0].rstrip(" .,:"))
    command, rest = command_of(words)
    wrong = set(FLAG.findall(" ".join(words))) - flags_of(command)
    assert not wrong, f"{words} has no {wrong}"
    if not before or before.endswith((*COMPLETE, *QUOTED)):
        command.make_context(words[0], rest, resilient_parsing=before.endswith(QUOTED))


def commands_in(text: str) -> Iterator[tuple[str, str]]:
    """The text before each command, and the words after the program's name."""
    for found in COMMAND.finditer(text):
        if not found[0].startswith(tuple(NO_COMMANDS)):
            yield text[max(0, found.start() - 9) : found.start()], found[1]


def test_commands_are_collected_from_messages_pages_and_examples() -> None:
    """Otherwise the following tests would pass on an empty list."""
    where = {text.where.split(":")[0] for text in all_texts() for _ in commands_in(text.text)}
    assert {
        "README.md",
        "docs/evaluation.md",
        "python/predictor/client/calls.py",
        "python/predictor/report/page.py",
    } <= where
    assert "dotnet/Quantra.Client/README.md" in where
    assert len([text for text in all_literals() if text.text.startswith("Example: quantra ")]) >= 13


@pytest.mark.slow
def test_every_command_that_is_named_can_be_given() -> None:
    for text in all_texts():
        for before, line in commands_in(text.text):
            try:
                check_command(before, line)
            except Exception as error:
                error.add_note(f"in {text.where}: quantra {line}")
                raise


@pytest.mark.parametrize(
    ("before", "line"),
    [
        ("", "evaluat models/1"),
        ("Example: ", "evaluate models/1 --bar x.csv"),
        ("Example: ", "inspect"),
        ("see ", "tune --bars x.csv --no-such-flag"),
        ("\n", "predict --horizon five"),
        ("`", "train stocks --bars x"),
    ],
)
def test_a_command_that_cannot_be_given_is_seen(before: str, line: str) -> None:
    with pytest.raises(Exception, match=r"(?i)no |missing|valid"):
        check_command(before, line)


def test_every_flag_in_a_message_is_one_of_a_command() -> None:
    known = flags_of(typer.main.get_command(app)) | OF_OTHERS
    wrong = {(text.where, flag) for text in all_literals() for flag in FLAG.findall(text.text) if flag not in known}
    assert not wrong


# --- installed packages


def extras_in(text: str) -> set[str]:
    """Extras in install commands."""
    return {
        extra for names in re.findall(r"(?:quantra|\")?(?:\.|quantra)\[([a-z,]+)\]", text) for extra in names.split(",")
    }


def closure(extra: str) -> set[str]:
    """Names of the distributions that an extra installs."""
    found: set[str] = set()
    for need in EXTRAS[extra]:
        if need.startswith("quantra["):
            found |= set().union(*(closure(one) for one in extras_in(need)))
        else:
            found.add(re.split(r"[\[<>=~;! ]", need)[0].lower().replace("_", "-"))
    return found


def test_every_extra_that_is_named_exists() -> None:
    named = {(text.where, extra) for text in all_texts() for extra in extras_in(text.text)}
    assert len(named) > 5
    assert {one for one in named if one[1] not in EXTRAS} == set()


def missing_packages() -> Iterator[tuple[str, str]]:
    """Package and extra of every error that names both in its source."""
    for path in SOURCES:
        for node in syntax(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "MissingPackageError.of":
                package, extra = node.args[:2]
                if isinstance(package, ast.Constant) and isinstance(extra, ast.Constant):
                    yield str(package.value), str(extra.value)


def test_the_extra_of_a_missing_package_brings_it() -> None:
    named = {*missing_packages(), *doctor.OPTIONAL.items()}
    assert len(named) > 10
    assert {one for one in named if one[0].lower().replace("_", "-") not in closure(one[1])} == set()


def test_the_doctor_knows_every_extra_of_users() -> None:
    """All but `all`, those of developers, the command line's own, a rare database, speech and images."""
    assert set(doctor.OPTIONAL.values()) == set(EXTRAS) - {"all", "dev", "docs", "cli", "sqlserver", "tts", "dit"}


def test_what_the_demo_does_not_bring_is_known() -> None:
    extras = {*BEYOND_THE_DEMO.values(), "fast", "excel"}  # no command needs these
    assert closure("all") - closure("demo") == set().union(*map(closure, extras)) - closure("demo")


def test_a_page_names_the_extras_of_the_commands_that_it_shows() -> None:
    """Benchmark results and the changelog are not instructions."""
    for path in PAGES:
        text = page(path).text
        if path.parent.name == "benchmarks" or path.name == "CHANGELOG.md" or "```" not in text:
            continue
        needed = {
            extra
            for command, extra in BEYOND_THE_DEMO.items()
            if re.search(rf"^{command} |`{command}\b", text, re.MULTILINE)
        }
        assert needed <= extras_in(text), path


# --- other programs


def test_every_module_that_is_run_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    named = {
        (text.where, name)
        for text in all_texts()
        for name in re.findall(r"python3? -m ([a-z_]+(?:\.[a-z_]+)*)", text.text)
    }
    assert ("CHANGELOG.md", "quantra") in named
    assert {one for one in named if find_spec(one[1]) is None} == set()


def test_every_target_of_make_is_there() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        name
        for text in map(page, PAGES)
        for name in re.findall(r"(?:^|[`# ])make ([a-z0-9-]+)(?:`|$|  )", text.text, re.MULTILINE)
    }
    assert {"demo", "test", "check"} <= named <= targets


def test_every_dotnet_project_and_solution_is_there() -> None:
    named = {name for text in map(page, PAGES) for name in re.findall(r"\bdotnet/[\w./]+", text.text)}
    assert "dotnet/Quantra.Client.Managed.Tests" in named
    assert {name for name in named if not (ROOT / name.rstrip(".")).exists()} == set()


def test_torchrun_takes_what_it_is_given() -> None:
    lines = {line for text in map(page, PAGES) for line in re.findall(r"\btorchrun ([^`\n]+)", text.text)}
    assert lines
    for line in lines:
        assert get_args_parser().parse_args(shlex.split(line.replace("…", ""))).nproc_per_node


# --- values


def _daily(sessions: NDArray[np.int32]) -> BarPanel:
    """A coin with a constant price, with a bar on each of these days."""
    prices = np.ones((1, len(sessions)))
    return BarPanel(
        symbols=("BTC",), sessions=sessions, open=prices, high=prices, low=prices, close=prices, volume=prices
    )


@pytest.mark.parametrize("name", ["NYSE2", "no exchange"])
def test_the_calendars_that_an_unknown_exchange_is_answered_with_are_taken(name: str) -> None:
    bars = replace(recent_bars("AAPL"), calendar="")
    first, last = int(bars.sessions[0]), int(bars.sessions[-1])
    coin = _daily(SessionCalendar.every_day(first, last).sessions(first, last))
    with pytest.raises(ConfigurationError) as refused:
        SessionCalendar.from_exchange(name, first, last)
    advised = re.findall(r"'([^']+)'", refused.value.message.partition("Pass")[2])
    assert advised == ["XNYS", "weekdays", "24/7"]
    for calendar, given in zip(advised, (bars, bars, coin), strict=True):
        assert model_fit.fit_calendar(given, calendar).name == calendar

"""Forbidden constructs in the sources, found in their syntax trees."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("python", "protos", "benchmarks", "examples")
PEERS = ROOT / "benchmarks" / "peers"
"""Other libraries, used as their own documentation shows, on files that they have just written."""
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if not path.is_relative_to(PEERS))
FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"}
HARMLESS = {"UnpicklingError"}
"""The exception of torch for a refused file; catching it unpickles nothing."""
DEVICE_WORDS = {"cuda", "empty_cache", "autocast"}


def test_nothing_is_pickled_or_evaluated_as_code() -> None:
    assert len(SOURCES) > 100
    offences = {path: list(_offences(ast.parse(path.read_text(encoding="utf-8")))) for path in SOURCES}
    assert {path: found for path, found in offences.items() if found} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "from pickle import UnpicklingError, loads",
        "import torch; torch.load('x')",
        "import torch; torch.load('x', weights_only=False)",
        "from torch import load; load('x')",
        "eval('1')",
        "exec('1')",
        "import builtins; builtins.eval('1')",
        "import numpy; numpy.load('x', allow_pickle=True)",
    ],
)
def test_the_walk_finds_what_it_looks_for(code: str) -> None:
    assert list(_offences(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["import torch; torch.load('x', weights_only=True)", "from pickle import UnpicklingError"]
)
def test_the_walk_lets_pass_what_is_harmless(code: str) -> None:
    assert not list(_offences(ast.parse(code)))


def test_device_and_precision_are_chosen_in_one_place_for_training() -> None:
    strangers = [
        path
        for path in (ROOT / "python" / "trainers").rglob("*.py")
        if "loop" not in path.parts and any(name in DEVICE_WORDS for name in _attributes(path))
    ]
    assert strangers == []


def _attributes(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            yield node.attr


def _offences(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (a.name for a in names if a.name.split(".")[0] in FORBIDDEN_MODULES)
            case ast.ImportFrom(module=str(module), names=names):
                if module.split(".")[0] in FORBIDDEN_MODULES and {a.name for a in names} != HARMLESS:
                    yield module
                if module == "torch":
                    yield from (a.name for a in names if a.name == "load")
            case ast.Call():
                yield from _bad_call(node)
            case _:
                pass


def _bad_call(call: ast.Call) -> Iterator[str]:
    name = ast.unparse(call.func)
    if name in {"eval", "exec", "compile", "builtins.eval", "builtins.exec", "__import__"}:
        yield name
    if name == "torch.load" and not _says(call, "weights_only", value=True):
        yield name
    if _says(call, "allow_pickle", value=True):
        yield f"{name}(allow_pickle=True)"


def _says(call: ast.Call, keyword: str, *, value: bool) -> bool:
    return any(k.arg == keyword and isinstance(k.value, ast.Constant) and k.value.value is value for k in call.keywords)

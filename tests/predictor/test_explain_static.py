"""Source checks: the package never changes the state of a network that is being served."""

import ast
from pathlib import Path
from typing import TypeGuard

import pytest

import predictor

SOURCES = sorted(Path(predictor.__file__).parent.rglob("*.py"))


def switches(source: str) -> list[str]:
    """Uses of the process-wide cuDNN flags, imports that could hide one, and calls of `.train()`."""
    return [f"line {node.lineno}: {ast.unparse(node)}" for node in ast.walk(ast.parse(source)) if is_switch(node)]


def is_switch(node: ast.AST) -> TypeGuard[ast.stmt | ast.expr]:
    if isinstance(node, ast.Attribute):
        return isinstance(node.ctx, ast.Store) and "cudnn." in ast.unparse(node)
    if isinstance(node, ast.Import | ast.ImportFrom):
        return "cudnn" in ast.unparse(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "train" or ast.unparse(node.func).endswith(("cudnn.flags", "cudnn.set_flags"))
    return False


def test_the_package_switches_neither_cudnn_nor_whole_networks() -> None:
    assert {source.name: found for source in SOURCES if (found := switches(source.read_text(encoding="utf-8")))} == {}


def test_no_gradient_of_a_gradient_is_ever_asked_for() -> None:
    """cuDNN's recurrent layers have no second derivative."""
    calls = [node for source in SOURCES for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))]
    assert not [k for call in calls if isinstance(call, ast.Call) for k in call.keywords if k.arg == "create_graph"]


@pytest.mark.parametrize(
    "source",
    [
        "model.train()",
        "self.network.train(True)",
        "torch.backends.cudnn.enabled = False",
        "with torch.backends.cudnn.flags(enabled=False): pass",
        "from torch.backends import cudnn",
    ],
)
def test_such_a_switch_would_be_found(source: str) -> None:
    assert switches(source)


def test_reading_the_version_of_cudnn_is_no_switch() -> None:
    assert switches("torch.backends.cudnn.version()") == []

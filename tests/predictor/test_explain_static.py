"""What the source of the deployed package must never do to a network that is being served."""

import ast
from pathlib import Path

import pytest

import predictor

SOURCES = sorted(Path(predictor.__file__).parent.rglob("*.py"))


def switches(source: str) -> list[str]:
    """Mentions of the process-wide cuDNN switches, and calls of `.train()`."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr == "cudnn":
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
        if isinstance(node, ast.ImportFrom | ast.Import) and "cudnn" in ast.unparse(node):
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "train":
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def test_the_package_switches_neither_cudnn_nor_whole_networks() -> None:
    assert {source.name: found for source in SOURCES if (found := switches(source.read_text(encoding="utf-8")))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "model.train()",
        "self.network.train(True)",
        "torch.backends.cudnn.enabled = False",
        "from torch.backends import cudnn",
    ],
)
def test_such_a_switch_would_be_found(source: str) -> None:
    assert switches(source)

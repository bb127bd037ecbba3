"""Public docstrings and annotations, as ruff judges them, and whether a docstring tells the shape of an array.

Ruff is asked without the project's settings and exceptions. A function is counted here if it and the classes that it
stands in are public or have names such as `__call__`, if it is no property, and if an annotation of it names `NDArray`,
`Tensor` or a type made of them, such as `FloatArray`. Its docstring names a shape if it holds dimensions in brackets,
such as `[N, T]` or `[count]`, or one of the words shape, scalar, and their plurals.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.structure.checkout import GENERATED, PACKAGES, Checkout
from benchmarks.structure.sources import Function, array_types
from benchmarks.structure.table import Line, at_most, shown

UNWANTED: Final = ("D105", "D107", "D203", "D205", "D212")
"""Off in the project, and those that contradict others."""
SHAPE: Final = re.compile(r"\[[A-Za-z0-9_*][^\]\"']*\]|\b(shapes?|scalars?)\b")
PROPERTIES: Final = frozenset({"property", "cached_property"})


def rows(before: Checkout, now: Checkout) -> list[Line]:
    """Both of ruff's, and the shapes of either package."""
    missing = (_findings(before, "D", UNWANTED), _findings(now, "D", UNWANTED))
    untyped = [len(_findings(checkout, "ANN", ("ANN401",))) for checkout in (before, now)]
    return [
        at_most("faults of public docstrings (ruff D)", (len(missing[0]), len(missing[1])), 0, ", ".join(missing[1])),
        at_most("parameters and results without a type (ruff ANN)", (untyped[0], untyped[1]), 0, _places(now)),
        *(_shapes(package, before, now) for package in PACKAGES),
    ]


def array_functions(texts: Mapping[str, str], package: str) -> dict[str, str]:
    """The docstrings of a package's public functions that take or give arrays, by module and name.

    Args:
        texts: All modules, as a type that one package defines may be used in the other.
        package: The package whose functions are wanted.
    """
    named = {"NDArray", "Tensor", *(alias for alias, _ in array_types(texts))}
    return {
        f"{name}:{node.lineno} {node.name}": docstring
        for name, text in texts.items()
        if name.startswith(f"{package}/")
        for node, docstring in _functions(ast.parse(text), "")
        if any(part in named for part in _annotated(node))
    }


def without_shape(texts: Mapping[str, str], package: str) -> list[str]:
    """Those of them whose docstring names no shape."""
    return [place for place, docstring in array_functions(texts, package).items() if not SHAPE.search(docstring)]


def _shapes(package: str, before: Checkout, now: Checkout) -> Line:
    lacking = [without_shape(each.texts, package) for each in (before, now)]
    of = len(array_functions(now.texts, package))
    detail = f"of {of} now: {', '.join(lacking[1])}" if lacking[1] else f"of {of} now"
    return shown(f"{package}: functions of arrays that name no shape", (len(lacking[0]), len(lacking[1])), detail)


def _functions(node: ast.AST, around: str) -> Iterator[tuple[Function, str]]:
    """Public functions of a module and of its classes, each with its docstring; `__init__` has its class's too.

    Args:
        node: The module or the class.
        around: The docstring of the class.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from _functions(child, ast.get_docstring(child) or "")
        elif isinstance(child, Function) and _is_public(child.name) and not _decorators(child) & PROPERTIES:
            own = ast.get_docstring(child) or ""
            yield child, f"{around}\n{own}" if child.name == "__init__" else own


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name.startswith("__")


def _decorators(node: Function) -> set[str]:
    return {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}


def _annotated(node: Function) -> Iterator[str]:
    """Every name in the annotations, also in those that are written as text."""
    annotations = [part.annotation for part in ast.walk(node.args) if isinstance(part, ast.arg)]
    for annotation in [*annotations, node.returns]:
        if annotation is not None:
            yield from re.findall(r"\w+", ast.unparse(annotation))


def _places(checkout: Checkout) -> str:
    places = 0
    for text in checkout.texts.values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, Function):
                places += 1 + sum(isinstance(part, ast.arg) for part in ast.walk(node.args))
    return f"of {places} parameters and results, self and cls among them"


def _findings(checkout: Checkout, rules: str, unwanted: tuple[str, ...]) -> list[str]:
    """Where ruff finds something, as `module:line rule`."""
    command = [str(Path(sys.executable).with_name("ruff")), "check", "--isolated", "--no-cache", "--ignore-noqa"]
    command += ["--select", rules, "--ignore", ",".join(unwanted), "--exclude", GENERATED]
    command += ["--config", 'lint.pydocstyle.convention="google"', "--output-format", "json", str(checkout.python)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return [
        f"{Path(one['filename']).relative_to(checkout.python.resolve()).as_posix()}:{one['location']['row']}"
        f" {one['code']}"
        for one in found
    ]

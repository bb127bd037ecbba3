"""What the syntax trees of a checkout say: modules, lines, long functions, class names, definitions of one type."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TypeAlias

from benchmarks.structure.checkout import Checkout
from benchmarks.structure.table import Line, at_most, at_most_share, shown

SMALL, LONG = 40, 50
UNCOUNTED = ("__init__", "__main__")
"""Modules that may be short."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def rows(before: Checkout, now: Checkout) -> list[Line]:
    """Everything that is counted in the texts alone."""
    old, new = before.texts, now.texts
    small = small_modules(old), small_modules(new)
    long = long_functions(old), long_functions(new)
    twice = classes_defined_twice(old), classes_defined_twice(new)
    lines = lengths(old), lengths(new)
    arrays = array_types(old), array_types(new)
    return [
        at_most_share("Python modules", (len(old), len(new)), 0.70),
        at_most(f"modules of at most {SMALL} lines", (len(small[0]), len(small[1])), 15, ", ".join(small[1])),
        at_most_share("lines of Python", (sum(lines[0].values()), sum(lines[1].values())), 0.93),
        at_most(
            "largest file, lines",
            (max(lines[0].values()), max(lines[1].values())),
            400,
            max(lines[1], key=lines[1].__getitem__),
        ),
        at_most(f"functions of more than {LONG} lines", (len(long[0]), len(long[1])), 2, ", ".join(long[1])),
        at_most("public class names defined twice or more", (len(twice[0]), len(twice[1])), 5, _homes(twice[1])),
        shown(
            "definitions of types made of arrays, as FloatArray", (len(arrays[0]), len(arrays[1])), _named(arrays[1])
        ),
    ]


def lengths(texts: Mapping[str, str]) -> dict[str, int]:
    """Lines of each module."""
    return {name: len(text.splitlines()) for name, text in texts.items()}


def small_modules(texts: Mapping[str, str]) -> list[str]:
    """Modules of at most 40 lines."""
    return [
        name for name, lines in lengths(texts).items() if lines <= SMALL and PurePosixPath(name).stem not in UNCOUNTED
    ]


def long_functions(texts: Mapping[str, str]) -> list[str]:
    """Functions of more than 50 lines from `def` to the last one, whatever they hold; decorators do not count."""
    return [
        f"{name}:{node.name} ({_lines(node)})"
        for name, text in texts.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, Function) and _lines(node) > LONG
    ]


def classes_defined_twice(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Public classes of a module's top level whose name stands in several modules of either package, and where."""
    homes: dict[str, list[str]] = defaultdict(list)
    for name, text in texts.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    return {name: where for name, where in sorted(homes.items()) if len(where) > 1}


def array_types(texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names that modules give to types made of NumPy arrays or tensors, such as `FloatArray`, each with its module."""
    return [(alias, name) for name, text in texts.items() for alias in _aliases(ast.parse(text).body)]


def _aliases(body: Sequence[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() as value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias"), value=value):
                pass
            case _:
                continue
        if value and any(isinstance(part, ast.Name) and part.id in {"NDArray", "Tensor"} for part in ast.walk(value)):
            yield name


def _lines(node: Function) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def _named(types: Sequence[tuple[str, str]]) -> str:
    """Each name with how often it is defined."""
    return ", ".join(f"{name} {count}" for name, count in Counter(name for name, _ in types).most_common())


def _homes(twice: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{name}: {', '.join(where)}" for name, where in twice.items())

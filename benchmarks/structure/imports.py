"""Import edges between the modules of both packages, and circles, as `grimp` finds them."""

import json
import sys
import tempfile
from pathlib import Path

import grimp

from benchmarks.structure.checkout import GENERATED, PACKAGES, Checkout
from benchmarks.structure.table import Line, at_most, at_most_share

Edges = dict[str, list[str]]


def rows(before: Checkout, now: Checkout) -> list[Line]:
    """Edges and circles."""
    graphs = (_edges(before), _edges(now))
    knots = [circles(graph) for graph in graphs]
    return [
        at_most_share("import edges", (_count(graphs[0]), _count(graphs[1])), 0.77),
        at_most("import circles", (len(knots[0]), len(knots[1])), 0, "; ".join(", ".join(knot) for knot in knots[1])),
    ]


def circles(edges: Edges) -> list[list[str]]:
    """Groups of modules that all reach one another."""
    reached = {module: _reachable(module, edges) for module in edges}
    groups = {
        tuple(sorted({module, *(other for other in reached[module] if module in reached.get(other, set()))}))
        for module in edges
        if module in reached[module]
    }
    return [list(group) for group in sorted(groups)]


def _count(edges: Edges) -> int:
    return sum(map(len, edges.values()))


def _reachable(start: str, edges: Edges) -> set[str]:
    """Modules that a module imports, directly or not; itself only if it stands in a circle."""
    seen: set[str] = set()
    left = list(edges[start])
    while left:
        module = left.pop()
        if module not in seen:
            seen.add(module)
            left += edges.get(module, [])
    return seen


def _edges(checkout: Checkout) -> Edges:
    """In a process of its own, as `grimp` looks for packages where Python does."""
    with tempfile.TemporaryDirectory() as folder:
        return json.loads(checkout.run(["-m", "benchmarks.structure.imports"], Path(folder)))


def print_edges() -> None:
    """What each module imports, as JSON; imports for type checkers alone count too."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    modules = [module for module in sorted(graph.modules) if GENERATED not in module.split(".")]
    edges = {
        module: sorted(
            other
            for other in graph.find_modules_directly_imported_by(module) - {module}
            if GENERATED not in other.split(".")
        )
        for module in modules
    }
    json.dump(edges, sys.stdout)


if __name__ == "__main__":
    print_edges()

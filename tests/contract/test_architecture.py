"""ARCHITECTURE.md's tables name each module that there is; what pages name by its dots exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "python"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
TABLES = {
    "module": "predictor",
    "part of `stock`": "trainers/stock",
    "part of `vits`": "trainers/vits",
    "part of `dit`": "trainers/dit",
    "part of `media`, for `vits` and `dit`": "trainers/media",
    "part of `loop`": "trainers/loop",
}
"""The folder of which each table tells, by the head of its first column."""
PAGES = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("**/*.md")), ROOT / "CONTRIBUTING.md"]


def named(head: str) -> list[str]:
    """The modules in the first column of the table that begins so."""
    rows = PAGE.partition(f"| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def modules(folder: Path) -> set[str]:
    """Those right in a folder, of which no name begins with an underscore."""
    found = {path.stem for path in folder.glob("[!_]*.py")}
    return found | {path.parent.name for path in folder.glob("[!_]*/__init__.py")}


@pytest.mark.parametrize("head", TABLES)
def test_a_table_names_each_module_of_its_folder_once(head: str) -> None:
    assert sorted(named(head)) == sorted(modules(PYTHON / TABLES[head]))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_what_a_page_names_of_ours_by_its_dots_exists(path: Path) -> None:
    dotted = re.findall(r"`((?:predictor|trainers)(?:\.[a-z_]+)+)`", path.read_text(encoding="utf-8"))
    places = {name: PYTHON / name.replace(".", "/") for name in dotted}
    assert [name for name, place in places.items() if not (place.is_dir() or place.with_suffix(".py").is_file())] == []

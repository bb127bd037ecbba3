"""ARCHITECTURE.md: every package is listed, and its diagrams and dotted names exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "python"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PAGES = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("**/*.md")), ROOT / "CONTRIBUTING.md"]


def test_paths_in_diagrams_exist() -> None:
    diagrams = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    paths = [path for diagram in diagrams for path in re.findall(r"(?:predictor|trainers)/[\w./]+", diagram)]
    assert len(diagrams) == 2
    assert [path for path in paths if not (PYTHON / path).exists()] == []


def test_the_table_of_folders_names_every_package() -> None:
    table = PAGE.partition("| folder |")[2].partition("\n\n")[0]
    packages = [path.parent.relative_to(ROOT).as_posix() for path in PYTHON.glob("*/[!_]*/__init__.py")]
    assert [package for package in packages if f"`{package}`" not in table] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_what_a_page_names_of_ours_by_its_dots_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    dotted = re.findall(r"(?:`|^)((?:predictor|trainers)(?:\.[a-z_]+)+)(?:`|: )", text, re.MULTILINE)
    places = {name: PYTHON / name.replace(".", "/") for name in dotted}
    assert [name for name, place in places.items() if not (place.is_dir() or place.with_suffix(".py").is_file())] == []

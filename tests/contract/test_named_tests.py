"""The tests that pages name as proof are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md"))]
TESTS = {
    name
    for path in (ROOT / "tests").glob("**/test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
}


def named(path: Path) -> set[str]:
    """Names of tests, not of their files."""
    return set(re.findall(r"`(test_\w+)`", path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_test_that_a_page_names_is_there(path: Path) -> None:
    assert named(path) - TESTS == set()


@pytest.mark.parametrize(("page", "faults"), [("speech.md", 5), ("images.md", 4)])
def test_a_page_names_a_test_for_each_of_the_faults_that_it_tells_of(page: str, faults: int) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    rows = text.partition("| fault |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(rows) == faults
    assert all(re.search(r"`test_\w+`", row.rsplit("|", 2)[1]) for row in rows)

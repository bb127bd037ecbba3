"""Links, paths and anchors in the docs resolve."""

import re
from pathlib import Path

import pytest
from shown_commands import ROOT

PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("dotnet/**/README.md")]
)
TOP = ("python", "tests", "dotnet", "docs", "protos", "deploy", "benchmarks", "examples")


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    prose = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target, _, anchor in re.findall(r"\]\((?!\w+:)([^)#]*)(#([^)]+))?\)", page.read_text("utf-8")):
        path = page.parent / target if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_lead_to_files(page: Path) -> None:
    paths = re.findall(rf"`((?:{'|'.join(TOP)})/[\w./-]+)`", page.read_text("utf-8"))
    assert [path for path in paths if "NAME" not in path and not (ROOT / path).exists()] == []

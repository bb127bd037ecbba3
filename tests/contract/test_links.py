"""Links, paths and anchors in the docs resolve."""

import re
from pathlib import Path

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


def test_links_lead_to_files_and_headings() -> None:
    for page in PAGES:
        for target, _, anchor in re.findall(r"\]\((?!\w+:)([^)#]*)(#([^)]+))?\)", page.read_text("utf-8")):
            path = page.parent / target if target else page
            assert path.exists(), f"{page}: {target}"
            assert not anchor or anchor in anchors(path), f"{page}: {target}#{anchor}"


def test_paths_lead_to_files() -> None:
    paths = {
        (page.name, path)
        for page in PAGES
        for path in re.findall(rf"`((?:{'|'.join(TOP)})/[\w./-]+)`", page.read_text("utf-8"))
    }
    assert len(paths) > 20
    assert [one for one in paths if "NAME" not in one[1] and not (ROOT / one[1]).exists()] == []

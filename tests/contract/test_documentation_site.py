"""The documentation site builds without warnings, and works from its files alone."""

import re
import subprocess
import sys
from collections.abc import Generator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import browser
import pytest
from browser import Browser
from shown_commands import ENVIRONMENT, ROOT

LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href"}
"""Elements that a browser fetches while it shows a page."""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("documentation site")]


class Page(HTMLParser):
    """Addresses and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        address = values.get(LOADED.get(tag, "href"))
        if address is not None:
            (self.loaded if tag in LOADED else self.links).add(address)


@pytest.fixture(scope="module")
def site() -> Path:
    built = subprocess.run(
        [sys.executable, "docs/build_site.py"], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return ROOT / "build" / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text("utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}


def test_the_site_has_every_page(site: Path, pages: dict[Path, Page]) -> None:
    wanted = {(site / page.relative_to(ROOT)).with_suffix(".html") for page in (ROOT / "docs").glob("*.md")}
    assert wanted <= pages.keys()
    assert "StockTrainer" in (site / "reference" / "quantra.html").read_text("utf-8")


def test_every_internal_link_leads_to_a_file_and_anchor(site: Path, pages: dict[Path, Page]) -> None:
    broken = [
        f"{path.relative_to(site)}: {address}"
        for path, page in pages.items()
        for address in page.links | page.loaded
        if "://" not in address and not _leads_somewhere(path, address, pages)
    ]
    assert broken == []


def _leads_somewhere(path: Path, address: str, pages: dict[Path, Page]) -> bool:
    file, anchor = urldefrag(unquote(address))
    target = (path.parent / file).resolve() if file else path
    target = target / "index.html" if target.is_dir() else target
    return target.is_file() and (not anchor or target not in pages or anchor in pages[target].anchors)


def test_every_list_is_shown_as_one(site: Path, pages: dict[Path, Page]) -> None:
    """GitHub needs no empty line before a list, the site does."""
    for path in pages:
        text = re.sub("<pre>.*?</pre>", "", path.read_text("utf-8"), flags=re.DOTALL)
        paragraphs = re.findall("<p>(.*?)</p>", text, re.DOTALL)
        run_together = [part for part in paragraphs if re.search(r"\n(- |\d\. |\|)", part)]
        assert run_together == [], f"{path.relative_to(site)}: leave an empty line before a list or a table"


def test_no_page_loads_from_another_server(pages: dict[Path, Page]) -> None:
    assert {address for page in pages.values() for address in page.loaded if "//" in address} == set()


@pytest.fixture
def window() -> Generator[Browser]:
    if browser.missing():
        pytest.skip(browser.missing())
    with browser.running() as opened:
        yield opened


SEARCH = """(async () => {
  const found = async selector => {
    for (;;) {
      for (const {shadowRoot} of document.querySelectorAll("*")) {
        const element = shadowRoot?.querySelector(selector);
        if (element) return element;
      }
      await new Promise(done => setTimeout(done, 20));
    }
  };
  document.querySelector(".md-search__button").click();
  const box = await found("input[role=combobox]");
  box.value = "expected shortfall";
  box.dispatchEvent(new Event("input", {bubbles: true}));
  return (await found("ol[role=listbox] a")).href;
})()"""
"""Searches, and returns the address of the first result."""


def test_the_search_works_in_files_without_a_server(site: Path, window: Browser) -> None:
    window.open(site / "index.html")
    assert "docs/paths.html" in window.value(SEARCH)
    assert window.complaints == []

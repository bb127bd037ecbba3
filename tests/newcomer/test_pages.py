"""Every HTML page in a real browser: phone and desktop, light and dark.

`python tests/newcomer/test_pages.py FOLDER` writes the pages and two screenshots of each.
"""

import json
import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import browser
import pytest
from browser import Browser
from page_samples import write_pages

pytestmark = pytest.mark.slow

HEAVIEST: Final = 2_000_000
"""Largest size of a page in bytes."""
PHONE, DESK = 390, 1400
FIGURE: Final = re.compile(r'<script type="application/json" id="chart-\d+-figure">(.*?)</script>')
LOOK: Final = Path(__file__).with_name("look.js").read_text("utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_pages(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def window() -> Generator[Browser]:
    if reason := browser.missing():
        pytest.skip(reason)
    with browser.running() as started:
        yield started


def page_problems(window: Browser, path: Path, width: int) -> dict[str, Any]:
    """Problems of a page at this width, in light and dark mode."""
    window.size(width, phone=width == PHONE)
    window.open(path)
    window.value(LOOK)
    wrong: dict[str, Any] = window.value(f"look({width})")
    window.size(width, phone=width == PHONE, dark=True)
    wrong |= window.value("lookAtContrast()")
    return wrong | ({"complaints": window.complaints} if window.complaints else {})


def test_no_page_is_heavier_than_two_megabytes(pages: dict[str, Path]) -> None:
    assert {name: path.stat().st_size for name, path in pages.items() if path.stat().st_size > HEAVIEST} == {}


def test_every_figure_is_of_what_the_script_of_the_page_draws(pages: dict[str, Path]) -> None:
    figures = [one for path in pages.values() for one in FIGURE.findall(path.read_text("utf-8"))]
    drawn = {trace["type"] for figure in figures for trace in json.loads(figure)["data"]}
    assert drawn == {"bar", "scatter", "candlestick"}


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_every_page_can_be_read_at_this_width(pages: dict[str, Path], window: Browser, width: int) -> None:
    assert {name: wrong for name, path in pages.items() if (wrong := page_problems(window, path, width))} == {}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with browser.running() as started:
        for name, path in write_pages(folder).items():
            sys.stdout.write(f"{name}: {path.stat().st_size / 1e6:.2f} MB\n")
            for width in (PHONE, DESK):
                started.size(width, phone=width == PHONE)
                started.open(path)
                path.with_name(f"{name}-{width}.png").write_bytes(started.whole_picture())


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""What it costs to watch a server: one with metrics and its log, and one without, asked in turn."""

import tempfile
import threading
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.calling.load import Load, Turn, load
from benchmarks.calling.rates import BARS, IN_FLIGHT, WINDOWS, Cell, Round, middle, ratio
from benchmarks.calling.subject import Subject, started
from benchmarks.report import Row, at_least, shown

KEPT_REACH: Final = 0.97
SCRAPE_S: Final = 1.0
"""Between two scrapes; Prometheus has 15 s or more."""


def watched_rows(subject: Subject, rounds: int, seconds: float, *, judged: bool) -> list[Row]:
    """Calls a second of the server that is watched against the other, in windows and bars.

    The one has a log at level info and metrics that are read every second, the other neither.
    """
    requests = {WINDOWS: subject.asked_with_windows(), BARS: subject.asked_with_bars()}
    with (
        tempfile.TemporaryDirectory() as folder,
        started(subject.models) as plain,
        started(subject.models, "--metrics-port", "0", level="info", log=Path(folder) / "log") as watched,
        load(str(plain["target"]), requests) as off,
        load(str(watched["target"]), requests) as on,
        scraping(f"http://127.0.0.1:{watched['metrics_port']}/metrics"),
    ):
        cells = [(name, many) for many in IN_FLIGHT for name in (WINDOWS, BARS)]
        found = [_round(on, off, cells, count, seconds) for count in range(rounds)]
    detail = f"medians of {rounds} rounds of {seconds:g} s each way; scraped every {SCRAPE_S:g} s"
    rows = [_row(found, cell, detail, judged=judged) for cell in cells]
    return [*rows, *(_calls(found, cell, detail) for cell in cells)]


def _round(on: Load, off: Load, cells: list[Cell], count: int, seconds: float) -> Round:
    """Every cell's turns at both servers; every other round goes backwards."""
    turns = [(watch, side, cell) for cell in cells for watch, side in (("on", on), ("off", off))]
    return {
        (f"{name} {watch}", many): side.run(Turn(name, many, seconds))
        for watch, side, (name, many) in (turns if count % 2 == 0 else turns[::-1])
    }


def _row(found: list[Round], cell: Cell, detail: str, *, judged: bool) -> Row:
    name, many = cell
    kept = ratio(found, (f"{name} on", many), (f"{name} off", many), lambda one: one.per_second)
    title = f"{name} in, {many} in flight, watched / not, calls/s"
    return at_least(title, kept, KEPT_REACH, detail=detail, judged=judged)


def _calls(found: list[Round], cell: Cell, detail: str) -> Row:
    name, many = cell
    calls = middle(found, (f"{name} on", many), lambda one: one.per_second)
    return shown(f"{name} in, {many} in flight, watched, calls/s", calls, detail=detail)


@contextmanager
def scraping(address: str) -> Generator[None]:
    """Read the metrics over and over, as Prometheus does."""
    ending = threading.Event()

    def scrape() -> None:
        while not ending.wait(SCRAPE_S):
            with urllib.request.urlopen(address) as page:  # noqa: S310 - an address of this machine
                page.read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()

"""Cost of metrics and logging: a server with both and one without, called in turn."""

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
"""Interval of scrapes; Prometheus uses 15 s or more."""


def watched_rows(subject: Subject, rounds: int, seconds: float, *, judged: bool) -> list[Row]:
    """Calls per second with an info log and metrics scraped every second against neither, for windows and bars."""
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
    detail = f"medians of {rounds} rounds of {seconds:g} s each; scraped every {SCRAPE_S:g} s"
    rows = [_row(found, cell, detail, judged=judged) for cell in cells]
    return [*rows, *(_calls(found, cell, detail) for cell in cells)]


def _round(on: Load, off: Load, cells: list[Cell], count: int, seconds: float) -> Round:
    """Run every cell on both servers; odd rounds run in reverse order."""
    turns = [(watch, side, cell) for cell in cells for watch, side in (("on", on), ("off", off))]
    return {
        (f"{name} {watch}", many): side.run(Turn(name, many, seconds))
        for watch, side, (name, many) in (turns if count % 2 == 0 else turns[::-1])
    }


def _row(found: list[Round], cell: Cell, detail: str, *, judged: bool) -> Row:
    name, many = cell
    kept = ratio(found, (f"{name} on", many), (f"{name} off", many), lambda one: one.per_second)
    title = f"{name} in, {many} in flight, metrics on / off, calls/s"
    return at_least(title, kept, KEPT_REACH, detail=detail, judged=judged)


def _calls(found: list[Round], cell: Cell, detail: str) -> Row:
    name, many = cell
    calls = middle(found, (f"{name} on", many), lambda one: one.per_second)
    return shown(f"{name} in, {many} in flight, metrics on, calls/s", calls, detail=detail)


@contextmanager
def scraping(address: str) -> Generator[None]:
    """Read the metrics periodically, as Prometheus does."""
    ending = threading.Event()

    def scrape() -> None:
        while not ending.wait(SCRAPE_S):
            with urllib.request.urlopen(address) as page:  # noqa: S310 - localhost
                page.read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()

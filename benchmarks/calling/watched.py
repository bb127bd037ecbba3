"""Cost of metrics and logging: a server with both and one without, called in turn."""

import tempfile
import threading
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.calling.load import Turn, load
from benchmarks.calling.rates import BARS, IN_FLIGHT, WINDOWS, middle, ratio, run_rounds
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
        sides = {"on": on, "off": off}
        cells = [(name, many, watch) for many in IN_FLIGHT for name in (WINDOWS, BARS) for watch in sides]
        found = run_rounds(lambda cell: sides[cell[2]].run(Turn(cell[0], cell[1], seconds)), cells, rounds)
    detail = f"medians of {rounds} rounds of {seconds:g} s each; scraped every {SCRAPE_S:g} s"
    compared: list[Row] = []
    calls: list[Row] = []
    for name, many in dict.fromkeys((name, many) for name, many, _ in cells):
        title, on_cell = f"{name} in, {many} in flight, metrics on", (name, many, "on")
        kept = ratio(found, on_cell, (name, many, "off"))
        compared.append(at_least(f"{title} / off, calls/s", kept, KEPT_REACH, detail=detail, judged=judged))
        calls.append(shown(f"{title}, calls/s", middle(found, on_cell), detail=detail))
    return [*compared, *calls]


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

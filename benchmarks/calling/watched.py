"""Cost of metrics and logging: a server with both and one without, called in turn."""

import tempfile
import threading
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.calling.load import Calls, Load, Turn, load
from benchmarks.calling.rates import BARS, WINDOWS, pair_rows
from benchmarks.calling.subject import Subject, started
from benchmarks.report import Row

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

        def run(asking: Load, request: str) -> Callable[[int], Calls]:
            return lambda many: asking.run(Turn(request, many, seconds))

        return [
            row
            for name in requests
            for row in pair_rows(
                f"{name} in, metrics on / off", run(on, name), run(off, name), KEPT_REACH, rounds, judged=judged
            )
        ]


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

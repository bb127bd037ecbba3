"""Checks that no line of a server's log holds a token, a full value or a path, in all tests.

A line is a record of a logger `predictor.*` at any level, or a line on stderr of a server process that is ready. A
command that fails to start may name its own command line on stderr.
"""

import logging
import os
import re
import tempfile
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

OURS = "predictor"
MARK = "SECRET-TOKEN"
"""Part of every test token, which no other text contains."""
ROOT = Path(__file__).parents[1]
PLACES = tuple(sorted({tempfile.gettempdir(), os.path.realpath(tempfile.gettempdir()), str(ROOT), str(Path.home())}))
FORBIDDEN = {
    "a token": re.compile(rf"{MARK}|\b[Bb]earer\s+\S|\bauthorization\b", re.IGNORECASE),
    "a value in full": re.compile(r"(?<![\w.])\d+\.\d{6,}|(?<![\w.])\d\.\d+e[+-]?\d+"),
    "a path": re.compile("|".join(rf"(?<![\w.]){re.escape(place)}(?:/|\b)" for place in PLACES)),
}


def token(name: str) -> str:
    """A 32-character test token that is detected in any log."""
    return f"{MARK}-{name}-".ljust(32, "0")


@dataclass(frozen=True, slots=True)
class Breach:
    """A line with forbidden content."""

    what: str
    line: str
    test: str
    """The test that was running."""

    def __str__(self) -> str:
        return f"{self.what} in {self.line[:300]!r}, found in {self.test}"


def forbidden_content(line: str) -> Iterator[str]:
    """Forbidden content of a line."""
    return (what for what, pattern in FORBIDDEN.items() if pattern.search(line))


class WatchedLogs(logging.Handler):
    """A log handler that records breaches."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = 0
        self.breaches: list[Breach] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Check the message; exceptions appear in the output of processes, which is checked too."""
        self.note([record.getMessage()])

    def note(self, lines: Iterable[str], *, allowed: Collection[str] = ()) -> None:
        """Check lines of any origin; `allowed` are keys of FORBIDDEN."""
        for line in lines:
            self.lines += 1
            test = os.environ.get("PYTEST_CURRENT_TEST", "no test")
            self.breaches += (Breach(what, line, test) for what in forbidden_content(line) if what not in allowed)

    @contextmanager
    def listening(self) -> Generator[None]:
        """Handle all records within the block, of any level."""
        logger = logging.getLogger(OURS)
        before = logger.level
        logger.addHandler(self)
        logger.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(before)

    def told(self) -> str:
        """All breaches, one per line."""
        return "\n".join(map(str, self.breaches))


SUITE = WatchedLogs()
"""The handler of this test run."""

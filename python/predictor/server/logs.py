"""Log format of server processes. Only commands set up logging; the library does not."""

import copy
import json
import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Full, Queue
from types import TracebackType
from typing import Final, final

_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FIELDS: Final = "fields"
"""Attribute of a log record with the fields of its line, for the JSON log."""
_LOGGER: Final = "predictor"
_MAX_WAITING: Final = 10_000
_FLUSH_S: Final = 1.0

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True, slots=True)
class LogSettings:
    """Log settings of a process."""

    level: str = "info"
    """Level of Quantra's log: `debug`, `info`, `warning` or `error`. Other libraries log at info or above."""
    as_json: bool = False
    """Whether to log one JSON object per line."""


def set_up(settings: LogSettings) -> None:
    """Log to stderr, unless logging is already set up or there is no stderr."""
    number = logging.getLevelNamesMapping()[settings.level.upper()]
    handler = logging.NullHandler() if sys.__stderr__ is None else BackgroundHandler(sys.__stderr__.fileno())
    handler.setFormatter(JsonLine() if settings.as_json else TextLine(_LINE))
    logging.basicConfig(level=max(number, logging.INFO), handlers=[handler])
    logging.getLogger(_LOGGER).setLevel(number)


@final
class BackgroundHandler(logging.Handler):
    """Writes lines on a separate thread, because a pipe without a reader would block every call.

    Beyond 10,000 waiting lines, further ones are dropped and counted.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lines: Queue[bytes] = Queue(_MAX_WAITING)
        self.dropped = 0
        """Number of lines dropped since the start."""
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        try:
            self._lines.put_nowait(f"{self.format(record)}\n".encode(errors="backslashreplace"))
        except Full:
            self.dropped += 1

    def flush(self) -> None:
        """Wait until all lines are written, but at most a second."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, _FLUSH_S)

    def _write(self) -> None:
        reported = 0
        while True:
            line = memoryview(self._lines.get())
            with suppress(OSError):  # the reader has gone
                while line:
                    line = line[os.write(self._descriptor, line) :]
            self._lines.task_done()
            if dropped := self.dropped - reported:
                reported += dropped
                _log.warning("%d lines were dropped, because the log was not read", dropped)


@final
class TextLine(logging.Formatter):
    """Text log. For exceptions it shows types and locations without messages, which may contain user data."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record; a traceback cached by another formatter is ignored."""
        copied = copy.copy(record)
        copied.exc_text = None
        return super().format(copied)

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 - the name is logging's
        """Format an exception as types and locations."""
        return "\n".join(list_locations(ei[1]))


@final
class JsonLine(logging.Formatter):
    """JSON log: one object per record, with the fields of the access log; exceptions as in `TextLine`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        line: dict[str, object] = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **record.__dict__.get(FIELDS, {}),
        }
        if record.exc_info:
            line["exception"] = list(list_locations(record.exc_info[1]))
        return json.dumps(line, ensure_ascii=False)


def list_locations(error: BaseException | None) -> Iterator[str]:
    """Yield the types and stack locations of an exception and its causes, last first."""
    while error is not None:
        yield f"{type(error).__module__}.{type(error).__qualname__}, raised in"
        for frame, line in traceback.walk_tb(error.__traceback__):
            yield f"  {frame.f_globals.get('__name__', '?')}:{line}, {frame.f_code.co_name}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)

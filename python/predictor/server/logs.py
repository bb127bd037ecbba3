"""Log format of server processes. Only commands set up logging; the library does not."""

import copy
import json
import logging
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, final

from predictor.server.monitoring.access_log import FIELDS

_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LOGGER: Final = "predictor"

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


@final
@dataclass(frozen=True, slots=True)
class LogSettings:
    """Log settings of a process."""

    level: str = "info"
    """Level of Quantra's log: `debug`, `info`, `warning` or `error`. Other libraries log at info or above."""
    as_json: bool = False
    """Whether to log one JSON object per line."""


def set_up(settings: LogSettings) -> None:
    """Log to stderr, unless logging is already set up."""
    number = logging.getLevelNamesMapping()[settings.level.upper()]
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLine() if settings.as_json else TextLine(_LINE))
    logging.basicConfig(level=max(number, logging.INFO), handlers=[handler])
    logging.getLogger(_LOGGER).setLevel(number)


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
        return "\n".join(locations(ei[1]))


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
            line["exception"] = list(locations(record.exc_info[1]))
        return json.dumps(line, ensure_ascii=False)


def locations(error: BaseException | None) -> Iterator[str]:
    """Yield the types and stack locations of an exception and its causes, last first."""
    while error is not None:
        yield f"{type(error).__module__}.{type(error).__qualname__}, raised in"
        for frame, line in traceback.walk_tb(error.__traceback__):
            yield f"  {frame.f_globals.get('__name__', '?')}:{line}, {frame.f_code.co_name}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)

"""What the log of a server process looks like. For commands: the library itself sets nothing up."""

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
_OURS: Final = "predictor"
_GRPC: Final = "grpc._cython.cygrpc"

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True, slots=True)
class LogSettings:
    """Of the log of a process."""

    level: str = "info"
    """`debug`, `info`, `warning` or `error`, of our own lines; those of gRPC and others begin at info in any case."""
    as_json: bool = False
    """One JSON object a line."""


def set_up(settings: LogSettings) -> None:
    """Log to stderr, unless logging has been set up."""
    number = logging.getLevelNamesMapping()[settings.level.upper()]
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLine() if settings.as_json else TextLine(_LINE))
    handler.addFilter(_is_shown)
    logging.basicConfig(level=max(number, logging.INFO), handlers=[handler])
    logging.getLogger(_OURS).setLevel(number)


def _is_shown(record: logging.LogRecord) -> bool:
    """Whether a record has its line. gRPC's error of an answer that cannot be sent becomes a line at debug.

    Its caller has gone, which is no fault of the server's, and which callers can bring about as often as they like.
    """
    error = record.exc_info[1] if record.exc_info else None
    if record.name != _GRPC or type(error).__name__ != "ExecuteBatchError":
        return True
    _log.debug("an answer could not be sent: its caller has gone")
    return False


@final
class TextLine(logging.Formatter):
    """A line of text. Of an exception it tells where it was raised, and not its message, which may hold values."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; what another formatter made of the exception is not used."""
        told = copy.copy(record)
        told.exc_text = None
        return super().format(told)

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 - the name is logging's
        """Types, modules and lines."""
        return "\n".join(places(ei[1]))


@final
class JsonLine(logging.Formatter):
    """One JSON object per record, with the facts of a call by name; of exceptions as `TextLine`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        told: dict[str, object] = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **record.__dict__.get(FIELDS, {}),
        }
        if record.exc_info:
            told["exception"] = list(places(record.exc_info[1]))
        return json.dumps(told, ensure_ascii=False)


def places(error: BaseException | None) -> Iterator[str]:
    """An exception and what led to it, last first: types, and the modules and lines that they passed."""
    while error is not None:
        yield f"{type(error).__module__}.{type(error).__qualname__}, raised in"
        for frame, line in traceback.walk_tb(error.__traceback__):
            yield f"  {frame.f_globals.get('__name__', '?')}:{line}, {frame.f_code.co_name}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)

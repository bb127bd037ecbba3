"""How a server process writes its log."""

import json
import logging
from dataclasses import dataclass
from typing import Final, final

_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@final
@dataclass(frozen=True, slots=True)
class LogSettings:
    """Of a process's log, on stderr."""

    level: str = "INFO"
    as_json: bool = False
    """One JSON object a line."""


def write_log(settings: LogSettings) -> None:
    """Write this process's log so, unless it is written somewhere already."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLine() if settings.as_json else logging.Formatter(_LINE))
    logging.basicConfig(level=settings.level, handlers=[handler])


class _JsonLine(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)

"""Reports as lines of JSON, for programs."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import IO, Any, final

from trainers.loop import CheckpointReport, EpochReport, Notice, Report, ValidationReport, WindowReport

KINDS: Mapping[type, str] = {
    WindowReport: "window",
    EpochReport: "epoch",
    CheckpointReport: "checkpoint",
    Notice: "notice",
    ValidationReport: "validation",
}


def as_json(report: Report | ValidationReport) -> str:
    """The report as one line of JSON.

    Its fields are the report's, preceded by `kind`: `window`, `epoch`, `checkpoint`, `notice` or `validation`. Numbers
    that are not finite, which JSON does not know, are null.
    """
    return json.dumps({"kind": KINDS[type(report)], **_plain(report)}, allow_nan=False)


@final
class JsonLines:
    """Writes one JSON object a report to a stream, at once, as programs that watch a training want it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, report: Report | ValidationReport) -> None:
        """Write one report."""
        self._stream.write(as_json(report) + "\n")
        self._stream.flush()

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Write every report, then hand it on."""
        for report in reports:
            self.write(report)
            yield report


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

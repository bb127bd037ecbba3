"""Where the time of a call goes, from the debug log of a server, which lists every batch."""

import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.calling.load import Turn, load
from benchmarks.calling.rates import BARS, WINDOWS
from benchmarks.calling.subject import Subject, server
from benchmarks.report import Row, shown

IN_FLIGHT: Final = (1, 32)
STAGES: Final = ("queue", "decode", "prepare", "forward", "encode")
_BATCH: Final = re.compile(
    r"(\d+) calls, \d+ instances, " + ", ".join(rf"{stage} ([\d.]+) ms" for stage in STAGES), re.ASCII
)


def stage_rows(subject: Subject, log: Path, seconds: float) -> list[Row]:
    """Medians over batches, for windows and bars, with 1 and 32 calls in flight."""
    requests = {WINDOWS: subject.asked_with_windows(), BARS: subject.asked_with_bars()}
    rows: list[Row] = []
    with server(subject.models, level="debug", log=log) as target, load(target, requests) as asking:
        for name in requests:
            for many in IN_FLIGHT:
                before = log.stat().st_size
                calls = asking.run(Turn(name, many, seconds))
                batches = batches_of(log.read_bytes()[before:].decode())
                rows += _rows(f"{name} in, {many} in flight", batches, calls.percentile_ms(50))
    return rows


def batches_of(text: str) -> list[tuple[float, ...]]:
    """Number of calls of each batch, and the milliseconds of each stage."""
    return [tuple(map(float, found.groups())) for found in _BATCH.finditer(text)]


def _rows(name: str, batches: Sequence[tuple[float, ...]], p50_ms: float) -> list[Row]:
    calls, *stages = (statistics.median(column) for column in zip(*batches, strict=True))
    detail = f"{calls:.0f} calls per batch, p50 of a call {p50_ms:.3g} ms; median of {len(batches)} logged batches"
    return [shown(f"{name}, {stage}, ms", ms, detail=detail) for stage, ms in zip(STAGES, stages, strict=True)]

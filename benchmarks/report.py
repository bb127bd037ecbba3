"""Reports of benchmarks: rows of promised numbers, and the machine and commit that they were measured on."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A measured number.

    Attributes:
        name: what was measured, with its unit.
        value: the measured value; None if it could not be measured, with the reason in `detail`.
        reach: promised range as text; empty without a promise.
        ok: whether the value is in this range; None without a promise, or if the run is too short to judge.
        detail: how it was measured.
    """

    name: str
    value: float | None
    reach: str
    ok: bool | None
    detail: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Options of every benchmark."""

    quick: bool
    json: Path | None


def parse_arguments(description: str) -> Arguments:
    """Parse the command line."""
    parsed = common_options(description).parse_args()
    return Arguments(quick=parsed.quick, json=parsed.json)


def common_options(description: str) -> argparse.ArgumentParser:
    """A parser with the common options, for benchmarks with more options."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a short run whose numbers are not judged")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    return parser


def at_most(name: str, value: float, limit: float, *, detail: str, judged: bool = True) -> Row:
    """A row whose value must not exceed a limit."""
    return Row(name=name, value=value, reach=f"<= {limit:g}", ok=value <= limit if judged else None, detail=detail)


def at_least(name: str, value: float, limit: float, *, detail: str, judged: bool = True) -> Row:
    """A row whose value must not fall below a limit."""
    return Row(name=name, value=value, reach=f">= {limit:g}", ok=value >= limit if judged else None, detail=detail)


def above(name: str, value: float, limit: float, *, detail: str, judged: bool = True) -> Row:
    """A row whose value must exceed a limit."""
    return Row(name=name, value=value, reach=f"> {limit:g}", ok=value > limit if judged else None, detail=detail)


def shown(name: str, value: float, *, detail: str) -> Row:
    """A row that is not judged."""
    return Row(name=name, value=value, reach="", ok=None, detail=detail)


def unmeasured(name: str, why: str, *, reach: str = "") -> Row:
    """A row that this machine cannot measure."""
    return Row(name=name, value=None, reach=reach, ok=None, detail=f"not measured: {why}")


def interleaved_medians(
    subjects: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    calls: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Seconds per call, median over rounds. Subjects take turns in every round, so a busy machine affects all of them.

    Args:
        subjects: timed functions by name.
        rounds: number of turns of each subject.
        calls: calls per turn.
        clock: `time.perf_counter` for the time that a user waits, `time.thread_time` for the work of one thread, which
            other programs on the machine disturb less.
    """
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, subject in subjects.items():
            start = clock()
            for _ in range(calls):
                subject()
            times[name].append((clock() - start) / calls)
    return {name: statistics.median(values) for name, values in times.items()}


def publish(rows: Iterable[Row], path: Path | None) -> int:
    """Print the rows, optionally write them as JSON, and return the exit code: 1 if a promise is missed.

    Args:
        rows: each is printed as soon as it is measured, so that a later failure does not lose it.
        path: JSON file.
    """
    report = {"machine": machine(), "commit": commit()}
    print("  ".join(f"{key} {value}" for key, value in machine().items()))
    print(f"commit {report['commit']}", flush=True)
    done: list[Row] = []
    for row in rows:
        verdict = {True: "ok", False: "MISSED", None: "-"}[row.ok]
        value = "-" if row.value is None else f"{row.value:.4g}"
        print(f"{row.name:<58} {value:>12} {row.reach:>12} {verdict:>7}  {row.detail}", flush=True)
        done.append(row)
    if path is not None:
        content = report | {"rows": [asdict(row) for row in done]}
        path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return int(any(row.ok is False for row in done))


def machine() -> dict[str, str]:
    """Processor, cores and versions, without the machine's name."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def commit() -> str:
    """The commit, with a plus if files differ from it; "unknown" outside a repository."""
    try:
        head = _git("rev-parse", "HEAD")
        return f"{head}+" if _git("status", "--porcelain") else head
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    root = Path(__file__).parent
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()

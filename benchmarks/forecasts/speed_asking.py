"""Asks a library in a process of its own how long something takes."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

from benchmarks.forecasts.environments import ROOT
from benchmarks.forecasts.speed_work import Kind, Seconds, Work

KEEPING: Final = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**30)}
"""Environment in which glibc gives no freed memory back; by itself it does, or not, by what lies at its heap's end."""


@final
class Timed:
    """One library's process, as a context.

    Args:
        python: The interpreter of its environment.
        library: As `benchmarks.forecasts.speed_answering` knows it.
        keeping: Whether the process keeps the memory that it frees, whatever the library does about it.
    """

    def __init__(self, python: Path, library: str, *, keeping: bool = False) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  closed in __exit__
        self._process = subprocess.Popen(
            [str(python), "-m", "benchmarks.forecasts.speed_answering", library],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "python")]),
                "OMP_NUM_THREADS": "1",
                **(KEEPING if keeping else {}),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> Self:
        """The process, which may still be starting."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self._process.communicate()
        self._errors.close()

    def seconds(self, kind: Kind, work: Work, *, warm: int, calls: int) -> Seconds:
        """Of one call, the median of some.

        Raises:
            RuntimeError: The process ended; the message is the last line that it wrote to standard error.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"kind": kind, "work": work, "warm": warm, "calls": calls}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(self._last_words())
        return Seconds(**json.loads(line))

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = [line for line in self._errors.read().splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {code}"

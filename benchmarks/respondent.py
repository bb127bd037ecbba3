"""A benchmark subject in a separate process and environment, with one line of JSON per request and response."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, final

from benchmarks.environments import ROOT


class GoneError(Exception):
    """The process ended without a response."""


@final
class Respondent:
    """The subject's process, as a context manager.

    Args:
        python: interpreter.
        module: program to run.
        subject: its argument.
        environment: further environment variables.
    """

    def __init__(
        self, python: Path, module: str, subject: str, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "python")]),
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            **environment,
        }
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  closed in __exit__
        self._process = subprocess.Popen(
            [str(python), "-m", module, subject],
            cwd=ROOT,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> Self:
        """Return the process, which may still be starting."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close its input and wait for its end."""
        self._process.communicate()
        self._errors.close()

    def ask(self, **question: object) -> Any:
        """Send a request and read the response.

        Raises:
            GoneError: the process ended; the message is the last line of its standard error.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._errors.seek(0)
            lines = [line for line in self._errors.read().splitlines() if line.strip() and not line.startswith("[")]
            raise GoneError(f"killed by signal {-code}" if code < 0 else (lines or [f"exit code {code}"])[-1])
        return json.loads(line)

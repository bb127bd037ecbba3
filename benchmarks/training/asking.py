"""Asks a subject that runs in a process of its own, in the environment that it needs."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

ROOT = Path(__file__).parents[2]


class GoneError(Exception):
    """The process ended instead of answering."""


@final
class Respondent:
    """A subject in a process of its own, as a context.

    Args:
        python: The interpreter of the environment.
        name: The subject, or what else the module takes as its argument.
        checkout: Whose packages it has; the benchmarks are those of this one.
        module: The program that answers.
    """

    def __init__(
        self, python: Path, name: str, checkout: Path = ROOT, module: str = "benchmarks.training.answering"
    ) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(checkout / "python")]),
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  closed in __exit__
        self._process = subprocess.Popen(
            [str(python), "-m", module, name],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> Self:
        """The respondent."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process."""
        self._process.communicate()
        self._errors.close()

    def ask(self, what: str, **about: object) -> Any:
        """The answer to a question.

        Raises:
            GoneError: The process ended; the message is the last line that it wrote to standard error.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"what": what, **about}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise GoneError(self._last_words())
        return json.loads(line)

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = [line for line in self._errors.read().splitlines() if line.strip() and not line.startswith("[")]
        return f"killed by signal {-code}" if code < 0 else (lines[-1] if lines else f"exit code {code}")

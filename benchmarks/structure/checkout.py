"""The files of this folder or of another commit, and programs that run with the packages of one of them."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import final

from benchmarks.training.asking import ROOT

GENERATED = "_pb"
"""Folder of what protoc writes; it is counted nowhere."""
PACKAGES = ("predictor", "trainers")


@final
@dataclass(frozen=True)
class Checkout:
    """The root of a repository's files.

    Attributes:
        root: The folder that holds `python`.
    """

    root: Path

    @property
    def python(self) -> Path:
        """The folder of both packages."""
        return self.root / "python"

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """Every module's text by its path within `python`, in order, without generated ones."""
        paths = sorted(path for name in PACKAGES for path in (self.python / name).rglob("*.py"))
        return {
            path.relative_to(self.python).as_posix(): path.read_text(encoding="utf-8")
            for path in paths
            if GENERATED not in path.parts
        }

    @property
    def environment(self) -> dict[str, str]:
        """For a process that imports these packages and the benchmarks of this folder.

        One computing thread; modules are compiled once and kept, as users have them.
        """
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(self.python), str(ROOT)]),
            "PYTHONHASHSEED": "0",
            "PYTHONSAFEPATH": "1",
            "OMP_NUM_THREADS": "1",
        }

    def run(self, arguments: Sequence[str], folder: Path) -> str:
        """What a Python program prints that runs with these packages.

        Args:
            arguments: What stands after `python`.
            folder: Where it runs.

        Raises:
            ProgramError: It failed; the message ends with what it said last.
        """
        command = [sys.executable, *arguments]
        ran = subprocess.run(
            command, cwd=folder, env=self.environment, capture_output=True, text=True, check=False, encoding="utf-8"
        )
        if ran.returncode:
            said = "\n".join((ran.stderr.strip() or ran.stdout.strip()).splitlines()[-5:])
            raise ProgramError(f"exit status {ran.returncode} of python {' '.join(arguments)}: {said}")
        return ran.stdout


class ProgramError(Exception):
    """A program that runs in a checkout has failed."""

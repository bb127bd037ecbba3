"""Virtual environments of the forecasting libraries that we are compared with, made once beside the project."""

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / ".venv-peers"
COMMON: Final = ("torch", "numpy", "safetensors")

REQUIREMENTS: Final = {
    "neuralforecast": ("neuralforecast-3.3.0", "neuralforecast==3.3.0"),
    "pytorch-forecasting": ("pytorch-forecasting-1.8.0", "pytorch-forecasting==1.8.0"),
    "darts": ("darts-0.41.0", "u8darts[torch]==0.41.0"),
    "gluonts": ("gluonts-0.17.0", "gluonts[torch]==0.17.0"),
}
"""Folder and requirement of each library."""


class NoEnvironmentError(Exception):
    """An environment could not be made."""


def python_of(library: str) -> Path:
    """The interpreter of a library's environment, made if it is not there.

    Raises:
        NoEnvironmentError: The packages could not be installed; the message is pip's last line.
    """
    name, requirement = REQUIREMENTS[library]
    folder = FOLDER / name
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    done = folder / "installed"
    if not done.is_file():
        print(f"making the environment of {library} in {folder.relative_to(ROOT)} …", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        _install(python, requirement)
        done.touch()
    return python


def _install(python: Path, requirement: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--constraint", str(ROOT / "constraints.txt"), *COMMON, requirement]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise NoEnvironmentError((ran.stderr.strip().splitlines() or ["pip failed"])[-1])

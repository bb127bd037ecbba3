"""Programs that benchmarks run: the trainers' commands, and peer libraries in environments under `.venv-peers`."""

import os
import subprocess
import sys
import venv
from collections.abc import Collection
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / ".venv-peers"
COMMON: Final = ("torch", "numpy", "safetensors")

TRAINERS: Final = {
    "accelerate": ("accelerate==1.15.0",),
    "fabric": ("lightning==2.6.6",),
    "lightning": ("lightning==2.6.6",),
    "transformers": ("transformers==5.23.0", "accelerate==1.15.0"),
    "ignite": ("pytorch-ignite==0.5.5",),
}
"""Requirements of the training libraries."""
FORECASTERS: Final = {
    "neuralforecast": ("neuralforecast==3.3.0",),
    "pytorch-forecasting": ("pytorch-forecasting==1.8.0",),
    "darts": ("darts[torch]==0.48.1",),
    "gluonts": ("gluonts[torch]==0.17.0",),
    "autogluon": ("autogluon.timeseries==1.6.3",),
}
"""Requirements of the forecasting libraries."""
SERVERS: Final = {"triton": ("nvidia-pytriton==0.7.0",)}
"""Requirements of inference servers."""


def run_trainer(package: str, command: str, *words: object, allowed: Collection[int] = (0,)) -> str:
    """Run a command of `python -m PACKAGE` in this environment and return its output."""
    line = [sys.executable, "-m", package, command, *map(str, words)]
    done = subprocess.run(line, check=False, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    if done.returncode not in allowed:
        raise subprocess.CalledProcessError(done.returncode, line)
    return done.stdout


class NoEnvironmentError(Exception):
    """An environment could not be created."""


def python_of(library: str) -> Path:
    """The interpreter of a library's environment, which is created if missing.

    Raises:
        NoEnvironmentError: The packages could not be installed; the message is pip's last line.
    """
    requirements = (TRAINERS | FORECASTERS | SERVERS)[library]
    folder = FOLDER / requirements[0].replace("==", "-")
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    done = folder / "installed"
    if not done.is_file():
        print(f"creating the environment of {library} in {folder.relative_to(ROOT)} …", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command += ["--constraint", str(ROOT / "constraints.txt"), *COMMON, *requirements]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise NoEnvironmentError((ran.stderr.strip().splitlines() or ["pip failed"])[-1])
        done.touch()
    return python

"""Virtual environments of the libraries that we are compared with, made once and kept beside the project."""

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv-peers"
COMMON = ("torch", "numpy", "safetensors")

REQUIREMENTS = {
    "accelerate": ("accelerate==1.15.0",),
    "fabric": ("lightning==2.6.6",),
    "lightning": ("lightning==2.6.6",),
    "transformers": ("transformers==5.23.0", "accelerate==1.15.0"),
    "ignite": ("pytorch-ignite==0.5.5",),
}
"""Libraries that train."""
SERVERS = {"triton": ("nvidia-pytriton==0.7.0",)}
"""Those that serve."""


class NoEnvironmentError(Exception):
    """An environment could not be made."""


def python_of(peer: str) -> Path:
    """The interpreter of a subject's environment, made if it is not there; those of one library share one.

    What is no peer runs in the environment of this process.

    Raises:
        NoEnvironmentError: The packages could not be installed; the message is pip's last line.
    """
    requirements = {**REQUIREMENTS, **SERVERS}.get(peer)
    if requirements is None:
        return Path(sys.executable)
    folder = FOLDER / requirements[0].replace("==", "-")
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    done = folder / "installed"
    if not done.is_file():
        print(f"making the environment of {peer} in {folder.relative_to(ROOT)} …", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        _install(python, requirements)
        done.touch()
    return python


def _install(python: Path, requirements: tuple[str, ...]) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--constraint", str(ROOT / "constraints.txt"), *COMMON, *requirements]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise NoEnvironmentError((ran.stderr.strip().splitlines() or ["pip failed"])[-1])

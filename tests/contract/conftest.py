"""The demo, run once for all tests that read its output."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """Files and output of `quantra demo --json`."""

    folder: Path
    said: dict[str, str]
    shown: str


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Run the demo with the default recipe, once."""
    folder = tmp_path_factory.mktemp("quantra")
    command = [sys.executable, "-m", "trainers.cli", "demo", "--out", str(folder / "demo"), "--no-browser", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    return Demo(folder=folder, said=json.loads(ran.stdout), shown=ran.stderr)

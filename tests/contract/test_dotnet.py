"""The C# packages against this Python: `dotnet test` compares numbers and errors at both of their doors."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOTNET = Path(__file__).resolve().parents[2] / "dotnet"
QUIET = ("-nologo", "-nodeReuse:false", "-p:UseSharedCompilation=false")


@pytest.fixture(scope="module")
def dotnet() -> str:
    found = shutil.which("dotnet")
    if found is None:
        pytest.skip("there is no dotnet on the PATH")
    return found


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"QUANTRA_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=DOTNET, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_csharp_answers_as_python_does(dotnet: str) -> None:
    done = run(dotnet, "test", "Quantra.Client.Tests", *QUIET)
    assert done.returncode == 0, done.stdout + done.stderr

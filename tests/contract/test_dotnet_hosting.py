"""The C# package Quantra.Client.Hosting: its own tests, and the program of its page from the .nupkg alone."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from artifacts import recent_bars, small_models

DOTNET = Path(__file__).resolve().parents[2] / "dotnet"
PACKAGES = ("Quantra.Client.Abstractions", "Quantra.Client", "Quantra.Client.Hosting")
MOST_S = 900
"""Longest that a command may take: what waits for a process that never comes would wait without end."""
QUIET = ("-nologo", "-nodeReuse:false", "-p:UseSharedCompilation=false", "-v:quiet")
PROJECT = """<Project Sdk="Microsoft.NET.Sdk">
  <PropertyGroup>
    <OutputType>Exe</OutputType>
    <TargetFramework>net10.0</TargetFramework>
    <ImplicitUsings>enable</ImplicitUsings>
    <Nullable>enable</Nullable>
    <TreatWarningsAsErrors>true</TreatWarningsAsErrors>
    <RestoreAdditionalProjectSources>{feed}</RestoreAdditionalProjectSources>
    <RestorePackagesPath>{cache}</RestorePackagesPath>
  </PropertyGroup>
  <ItemGroup>
    <PackageReference Include="Quantra.Client.Hosting" Version="*" />
    <PackageReference Include="Microsoft.Extensions.Hosting" Version="10.*" />
  </ItemGroup>
</Project>
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("dotnet") is None, reason="there is no dotnet on the PATH"),
]


def run(*command: str | Path, folder: Path = DOTNET) -> str:
    """What a command says, with this environment's Python."""
    variables = os.environ | {
        "QUANTRA_PYTHON": sys.executable,
        "QUANTRA_VENV": sys.prefix,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": "",
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=MOST_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_servers_clients_and_trainings_of_csharp_do_as_they_promise() -> None:
    run("dotnet", "test", "Quantra.Client.Hosting.Tests", *QUIET)


def test_the_program_of_the_page_has_a_server_of_its_own(tmp_path: Path) -> None:
    for package in PACKAGES:
        run("dotnet", "pack", "-c", "Release", "-o", tmp_path / "feed", "-p:RunAnalyzers=false", *QUIET, package)
    page = (DOTNET / "Quantra.Client.Hosting" / "README.md").read_text("utf-8")
    program = re.findall(r"^```csharp\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    (tmp_path / "Ask.csproj").write_text(PROJECT.format(feed=tmp_path / "feed", cache=tmp_path / "cache"))
    (tmp_path / "Program.cs").write_text(program)
    small_models(tmp_path / "models", name="demo")
    recent_bars("AAPL", "IBM").write_csv(tmp_path / "bars.csv")
    run("dotnet", "build", "-o", tmp_path / "out", *QUIET, "Ask.csproj", folder=tmp_path)
    said = run("dotnet", tmp_path / "out" / "Ask.dll", folder=tmp_path)
    assert "demo@1 as of 2013-03-01" in said
    assert "the server was stopped" in said

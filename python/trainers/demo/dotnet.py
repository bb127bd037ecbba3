"""The C# half of the demo: a program of five lines, built against this checkout's client and run."""

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CLIENT = Path(__file__).parents[3] / "dotnet" / "Quantra.Client" / "Quantra.Client.csproj"
"""The client's sources, where this package runs from a checkout."""

OLDEST_SDK: Final = 10

PROJECT = """<Project Sdk="Microsoft.NET.Sdk">
  <PropertyGroup>
    <OutputType>Exe</OutputType>
    <TargetFramework>net10.0</TargetFramework>
    <ImplicitUsings>enable</ImplicitUsings>
    <Nullable>enable</Nullable>
  </PropertyGroup>
  <ItemGroup>
    <ProjectReference Include="{client}" />
  </ItemGroup>
</Project>
"""


def reason_to_skip() -> str:
    """Why C# cannot be asked here; empty if it can."""
    if shutil.which("dotnet") is None:
        return "there is no dotnet on the PATH"
    if not CLIENT.is_file():
        return "the C# sources are not here: they come with a checkout of the project"
    version = subprocess.run(["dotnet", "--version"], capture_output=True, text=True, check=False).stdout.strip()  # noqa: S607
    major = version.partition(".")[0]
    if not major.isdigit() or int(major) < OLDEST_SDK:
        return f"the .NET SDK on the PATH is {version or 'missing'}, and {OLDEST_SDK} or newer is needed"
    return ""


@dataclass(frozen=True, slots=True)
class Program:
    """A C# console project in a folder of its own."""

    folder: Path

    def write(self, source: str) -> None:
        """Write project and program."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "Ask.csproj").write_text(PROJECT.format(client=CLIENT), encoding="utf-8")
        (self.folder / "Program.cs").write_text(source, encoding="utf-8")

    @contextmanager
    def building(self) -> Generator[subprocess.Popen[str]]:
        """Build an empty program while the block runs; the first time takes a minute. Stopped where the block ends."""
        self.write("// queries once the server is there\n")
        process = self._start("build", "--verbosity", "quiet")
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                process.communicate()

    def run(self) -> subprocess.CompletedProcess[str]:
        """Build what changed and run."""
        process = self._start("run")
        output, _ = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    def _start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(  # noqa: S603 - the SDK that the user put on the PATH
            [shutil.which("dotnet") or "dotnet", *command],
            cwd=self.folder,
            env=os.environ | {"DOTNET_NOLOGO": "1", "DOTNET_CLI_TELEMETRY_OPTOUT": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

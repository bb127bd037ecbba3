"""The demo's C# program, built with the client in this checkout."""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DOTNET = Path(__file__).parents[3] / "dotnet"
CLIENT = DOTNET / "Quantra.Client" / "Quantra.Client.csproj"
"""Project of the client, if this package runs from a checkout."""

MIN_SDK: Final = 10

SOURCE: Final = "Program.cs"
PROJECT_FILE: Final = "Ask.csproj"
PROGRAM: Final = str(Path("bin", "Debug", "net10.0", "Ask.dll"))
BUILT: Final = "built.sha256"
"""Hash of the sources that the program was built from."""
BUILDING: Final = "building.sha256"
UNCHECKED: Final = ("-p:RunAnalyzers=false", "-p:EnforceCodeStyleInBuild=false", "-p:NuGetAudit=false")
"""Options to skip checks, which take half of the build time; the client's own build runs them."""

_PROJECTS: Final = ("Quantra.Client", "Quantra.Client.Abstractions", "Wire")
_MADE: Final = frozenset({"bin", "obj"})
_PORT: Final = re.compile(r"http://127\.0\.0\.1:(\d+)")

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


def find_reason_to_skip() -> str:
    """Why the C# program cannot run here; empty if it can."""
    if shutil.which("dotnet") is None:
        return "dotnet is not on the PATH"
    if not CLIENT.is_file():
        return "the C# sources are missing; they come with a checkout of the project"
    version = subprocess.run(["dotnet", "--version"], capture_output=True, text=True, check=False).stdout.strip()  # noqa: S607
    major = version.partition(".")[0]
    if not major.isdigit() or int(major) < MIN_SDK:
        return f"the .NET SDK on the PATH is {version or 'missing'}, and {MIN_SDK} or newer is needed"
    return ""


def _wait_for_end(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Wait for a process, and return it with its output."""
    output, _ = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, output)


@dataclass(frozen=True, slots=True)
class DotnetProgram:
    """A C# console project, which is built only if a source has changed."""

    folder: Path

    @property
    def port(self) -> int:
        """The server's port in the current program; 0 without a program."""
        try:
            match = _PORT.search((self.folder / SOURCE).read_text(encoding="utf-8"))
        except OSError:
            return 0
        return int(match[1]) if match else 0

    @contextmanager
    def building(self, source: str) -> Generator[subprocess.Popen[str] | None]:
        """Build the program in the background, a minute the first time; the build stops when the block ends.

        Yields:
            The build process; None if the program is up to date.
        """
        self._write(source)
        process = None if self._is_built else self._build()
        try:
            yield process
        finally:
            if process is not None and process.returncode is None:
                process.kill()
                process.communicate()

    def answer(self, source: str, build: subprocess.Popen[str] | None) -> subprocess.CompletedProcess[str]:
        """Run the program, and return it with its output, or the build if that failed.

        Args:
            source: the program's source; it is built again if `build` had another source.
            build: the build process; None without one.
        """
        failed = None if build is None else self._finish_build(build)
        self._write(source)
        if failed is None and not self._is_built:
            failed = self._finish_build(self._build())
        return failed or _wait_for_end(self._start(PROGRAM))

    @property
    def _is_built(self) -> bool:
        try:
            return (self.folder / BUILT).read_text(encoding="utf-8") == self._hash_sources()
        except OSError:
            return False

    def _hash_sources(self) -> str:
        """SHA-256 over the program and the client's sources."""
        digest = hashlib.sha256()
        # The client is built from its projects, the protocol and build settings.
        folders = [*(DOTNET / name for name in _PROJECTS), DOTNET.parent / "protos"]
        inside = (path for folder in folders for path in folder.rglob("*") if not _MADE & set(path.parts))
        client = sorted(path for path in (*inside, *DOTNET.glob("Directory.*")) if path.is_file())
        for path in (self.folder / SOURCE, self.folder / PROJECT_FILE, *client):
            digest.update(str(path).encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    def _write(self, source: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / PROJECT_FILE).write_text(PROJECT.format(client=CLIENT), encoding="utf-8")
        (self.folder / SOURCE).write_text(source, encoding="utf-8")

    def _build(self) -> subprocess.Popen[str]:
        (self.folder / BUILT).unlink(missing_ok=True)
        (self.folder / BUILDING).write_text(self._hash_sources(), encoding="utf-8")
        return self._start("build", "--verbosity", "quiet", *UNCHECKED)

    def _finish_build(self, build: subprocess.Popen[str]) -> subprocess.CompletedProcess[str] | None:
        """Wait for a build; return it if it failed, else record the hash of its sources."""
        result = _wait_for_end(build)
        if result.returncode:
            return result
        (self.folder / BUILDING).replace(self.folder / BUILT)
        return None

    def _start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(  # noqa: S603 - the SDK that the user put on the PATH
            [shutil.which("dotnet") or "dotnet", *command],
            cwd=self.folder,
            env=os.environ | {"DOTNET_NOLOGO": "1", "DOTNET_CLI_TELEMETRY_OPTOUT": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

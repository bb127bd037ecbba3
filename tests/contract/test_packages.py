"""Installed packages make forecasts: the wheel, the wheel built from the sdist, and the C# packages.

Each is used outside the checkout. The new environment reuses the dependencies of this one, so nothing is downloaded.
The C# programs are those of the package READMEs.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest
from artifacts import recent_bars, small_models
from csharp import CONFIGURATION, QUIET, built_solution
from free_ports import free_port
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from predictor.bars import BarPanel
from predictor.forecast import Forecast
from predictor.forecaster import Forecaster

ROOT = Path(__file__).parents[2]
DOTNET = ROOT / "dotnet"
DOORS = ("Quantra.Client", "Quantra.Client.Embedded")
TESTING = "Quantra.Client.Testing"
INTERNAL = (
    r'name=".:Quantra\.(?:V1\.|Rpc\.|Client\.(?:Wire\.|Transport\.|Managed\.(?!ManagedPredictor)|'
    r"Hosting\.(?:Health|Servers|Processes|Training)\.))"
)
"""XML documentation of internal types, which packages omit."""
HOSTING = "Quantra.Client.Hosting"
MANAGED = "Quantra.Client.Managed"
PACKAGES = ("Quantra.Client.Abstractions", HOSTING, MANAGED, TESTING, *DOORS)
FRAMEWORKS = ("net8.0", "net10.0")
PROGRAMS = {
    **dict.fromkeys((*DOORS, MANAGED, TESTING), (None, "")),
    "Quantra.Client": (2, ""),  # the third needs a ledger
    HOSTING: (1, '    <PackageReference Include="Microsoft.Extensions.Hosting" Version="10.*" />'),
}
"""How many of a page's blocks are its program, each going on from the one before (None: all); its other packages."""
REPOSITORY = "https://example.org/quantra"
MAX_CORE_PACKAGES = 22
"""Number of packages in an installation without extras, including quantra."""
HIDDEN = ("PYTHONPATH", "VIRTUAL_ENV", "QUANTRA_PYTHON", "QUANTRA_VENV")
"""Environment variables that would point a program to this checkout or environment."""
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
    <PackageReference Include="{package}" Version="*" />
{more}
  </ItemGroup>
</Project>
"""

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class UserFolder:
    """A user's folder outside the checkout: `.venv`, `models/demo/1`, `bars.csv`."""

    folder: Path

    def program(self, name: str) -> Path:
        """Path of a program in the environment."""
        scripts = "Scripts" if os.name == "nt" else "bin"
        return self.folder / ".venv" / scripts / (f"{name}.exe" if os.name == "nt" else name)

    def run(self, *command: str | Path, **variables: str) -> str:
        """Run a command in the folder and return its output."""
        return _run(*command, folder=self.folder, variables=variables)

    @contextmanager
    def serving(self, address: str) -> Generator[None]:
        """Run a server until the block ends."""
        command = [self.program("quantra"), "serve", "--models", "models", "--listen", address]
        with subprocess.Popen(
            command, cwd=self.folder, env=_environment({}), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as server:
            assert server.stdout is not None
            try:
                assert json.loads(server.stdout.readline())["ready"]
                yield
            finally:
                server.terminate()


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in HIDDEN} | {
        "OMP_NUM_THREADS": "1",
        **variables,
    }


def _run(*command: str | Path, folder: Path, variables: Mapping[str, str]) -> str:
    ran = subprocess.run(
        [str(part) for part in command],
        cwd=folder, env=_environment(variables), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


# --- Python


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel built from the checkout, and the one built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    _build(ROOT, folder)
    (folder / "sources").mkdir()
    _run("tar", "-xzf", next(folder.glob("*.tar.gz")), "-C", "sources", folder=folder, variables={})
    (sources,) = (folder / "sources").iterdir()
    _build(sources, folder / "again", "-t", "wheel")
    return {"checkout": next(folder.glob("*.whl")), "sdist": next((folder / "again").glob("*.whl"))}


def _build(sources: Path, folder: Path, *targets: str) -> None:
    """Build with the backend of pyproject.toml, which the extra `dev` installs."""
    path = os.environ.get("PYTHONPATH", "")
    _run(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-d",
        folder,
        *targets,
        folder=sources,
        variables={"PYTHONPATH": path},
    )


@pytest.fixture(scope="module")
def user_folder(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> UserFolder:
    """A user's folder with the wheel built from the sdist; the other wheel has the same contents."""
    folder = tmp_path_factory.mktemp("user")
    venv.create(folder / ".venv", with_pip=False)
    place = UserFolder(folder)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", place.program("python"))
    place.run(*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-warn-script-location", wheels["sdist"])
    # A path in such a file is one more folder to import from; files like it in that folder, such as the one that leads
    # to this checkout, are not read.
    packages = place.run(
        place.program("python"), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"
    ).strip()
    (Path(packages) / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    small_models(folder / "models", name="demo")
    recent_bars("AAPL", "IBM").write_csv(folder / "bars.csv")
    return place


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def test_the_wheel_holds_every_file_of_the_sources(wheels: dict[str, Path]) -> None:
    sources = ROOT / "python"
    files = {path.relative_to(sources).as_posix() for path in sources.rglob("*") if path.is_file()}
    expected = {name for name in files if "__pycache__" not in name and ".egg-info" not in name}
    assert contents(wheels["checkout"]).keys() == expected
    assert {"predictor/py.typed", "trainers/py.typed", "predictor/report/page.html.j2"} <= expected


def test_the_wheel_out_of_the_sdist_is_the_same(wheels: dict[str, Path]) -> None:
    assert contents(wheels["sdist"]) == contents(wheels["checkout"])


def test_an_installed_quantra_is_not_the_checkout(user_folder: UserFolder) -> None:
    code = "import predictor, trainers.cli; print(predictor.__file__, trainers.cli.__file__, sep='\\n')"
    for file in user_folder.run(user_folder.program("python"), "-c", code).split():
        assert (user_folder.folder / ".venv") in Path(file).parents


def test_an_installed_quantra_forecasts(user_folder: UserFolder) -> None:
    arguments = ("--artifact", "models/demo/1", "--bars", "bars.csv", "--symbol", "AAPL", "--device", "cpu", "--json")
    found = json.loads(user_folder.run(user_folder.program("quantra"), "predict", *arguments))
    assert found["values"] == _forecast(user_folder).values.tolist()


def _forecast(place: UserFolder) -> Forecast:
    """The same forecast in this environment."""
    with Forecaster.load(place.folder / "models" / "demo" / "1", device="cpu") as forecaster:
        return forecaster.predict(BarPanel.read(place.folder / "bars.csv").select(["AAPL"]))


def test_an_installed_quantra_writes_pages(user_folder: UserFolder) -> None:
    options = ("--bars", "bars.csv", "--output", "report.html")
    user_folder.run(user_folder.program("quantra"), "report", "models/demo/1", *options)
    assert "AAPL" in (user_folder.folder / "report.html").read_text(encoding="utf-8")


def test_the_core_is_few_packages() -> None:
    """Not counting CUDA packages, which depend on the machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert len(closure(project["dependencies"])) + 1 <= MAX_CORE_PACKAGES


def closure(requirements: Iterable[str]) -> set[str]:
    """Names of all installed packages that these require."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name in found or not (one.marker is None or one.marker.evaluate({"extra": ""})):
            continue
        if not name.startswith(("nvidia-", "cuda-", "triton")):
            found.add(name)
        waiting += [Requirement(text) for text in distribution(name).requires or ()]
    return found


# --- C#


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the C# packages."""
    folder = tmp_path_factory.mktemp("feed")
    pack = (built_solution(), "pack", "Quantra.slnx", "--no-build", "-c", CONFIGURATION, "-o", folder)
    _run(
        *pack, f"-p:QuantraRepository={REPOSITORY}", *QUIET, folder=DOTNET, variables={"QUANTRA_PYTHON": sys.executable}
    )
    return folder


def packed_files(feed: Path, package: str, suffix: str = "nupkg") -> dict[str, bytes]:
    """The files of a package."""
    (path,) = (path for path in feed.glob(f"*.{suffix}") if re.fullmatch(rf"{package}\.[0-9.]+\.{suffix}", path.name))
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_every_project_that_ships_is_looked_at(feed: Path) -> None:
    assert {re.split(r"\.[0-9]", path.name)[0] for path in feed.glob("*.nupkg")} == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_a_description(package: str, feed: Path) -> None:
    files = packed_files(feed, package)
    said = files[f"{package}.nuspec"].decode("utf-8-sig")
    for fact in (
        "<description>",
        "<tags>stocks ",
        '<license type="expression">MIT</license>',
        "<icon>icon.png</icon>",
        "<readme>README.md</readme>",
        f"<projectUrl>{REPOSITORY}</projectUrl>",
        f'<repository type="git" url="{REPOSITORY}"',
    ):
        assert fact in said
    assert files["icon.png"].startswith(b"\x89PNG")
    assert files["README.md"].decode("utf-8").startswith(f"# {package}\n")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_its_documentation_and_symbols_and_nothing_of_the_machine_that_built_it(
    package: str, feed: Path
) -> None:
    files, symbols = packed_files(feed, package), packed_files(feed, package, "snupkg")
    for framework in FRAMEWORKS:
        documented = files[f"lib/{framework}/{package}.xml"].decode("utf-8")
        assert f"T:{package if package in {MANAGED, TESTING} else 'Quantra.Client'}." in documented
        assert not re.findall(INTERNAL, documented)
        for binary in (files[f"lib/{framework}/{package}.dll"], symbols[f"lib/{framework}/{package}.pdb"]):
            assert str(ROOT).encode() not in binary


def test_the_package_carries_python_net_and_its_licence(feed: Path) -> None:
    files = packed_files(feed, DOORS[1])
    notice = files["THIRD-PARTY-NOTICES.txt"].decode()
    assert {f"lib/{framework}/Python.Runtime.dll" for framework in FRAMEWORKS} <= files.keys()
    assert "Copyright (c) 2006-2021 the contributors of the Python.NET project" in notice


@pytest.fixture(scope="module")
def address() -> str:
    """Address of a server for the programs."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def programs(feed: Path, user_folder: UserFolder, address: str) -> Path:
    """The programs of the package READMEs, built together, each from its package only."""
    folder = user_folder.folder / "programs"
    for package, (blocks, more) in PROGRAMS.items():
        project = folder / package
        project.mkdir(parents=True)
        page = (DOTNET / package / "README.md").read_text("utf-8")
        program = "".join(re.findall(r"^```csharp\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[:blocks])
        (project / "Program.cs").write_text(program.replace("127.0.0.1:50051", address))
        (project / f"Ask.{package}.csproj").write_text(
            PROJECT.format(feed=feed, cache=folder / "cache", package=package, more=more)
        )
    paths = "".join(f'<Project Path="{package}/Ask.{package}.csproj" />' for package in PROGRAMS)
    (folder / "Programs.slnx").write_text(f"<Solution>{paths}</Solution>")
    user_folder.run("dotnet", "build", *QUIET, folder / "Programs.slnx")
    return folder


def ask(package: str, programs: Path, place: UserFolder) -> str:
    """Output of the program in a package's README."""
    program = programs / package / "bin" / "Debug" / "net10.0" / f"Ask.{package}.dll"
    return place.run("dotnet", program, QUANTRA_VENV=str(place.folder / ".venv"))


def test_the_programs_of_the_pages_forecast(programs: Path, user_folder: UserFolder, address: str) -> None:
    prices = _forecast(user_folder).prices
    assert prices is not None
    with user_folder.serving(address):
        for package in DOORS:
            said = ask(package, programs, user_folder)
            assert said.startswith("demo@1 as of 2013-03-01")
            assert re.findall(r" ([0-9]+\.[0-9]{4})", said) == [f"{price:.4f}" for price in prices.flat]


def test_the_program_of_the_page_without_python_forecasts(programs: Path, user_folder: UserFolder) -> None:
    prices = _forecast(user_folder).prices
    assert prices is not None
    said = ask(MANAGED, programs, user_folder)
    assert said.startswith("demo@1 as of 2013-03-01")
    found = [float(price) for price in re.findall(r" ([0-9]+\.[0-9]{4})", said)]
    assert found == pytest.approx(prices.ravel(), rel=1e-6)


def test_the_program_of_the_page_for_tests_gives_what_it_says(programs: Path, user_folder: UserFolder) -> None:
    said = ask(TESTING, programs, user_folder)
    assert said.startswith("stock@1 as of 2024-06-28")
    assert "forecast by demo of bars of AAPL" in said


def test_the_program_of_the_page_on_hosts_has_a_server_of_its_own(programs: Path, user_folder: UserFolder) -> None:
    said = ask(HOSTING, programs, user_folder)
    assert "demo@1 as of 2013-03-01" in said
    assert "the server was stopped" in said

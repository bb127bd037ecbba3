"""C# snippets in the package READMEs compile without warnings."""

import re
from pathlib import Path

import pytest
from csharp import DOTNET, build_program

RECIPES = DOTNET / "README.md"
"""A page whose blocks are separate programs; on other pages each block continues the previous one."""
HOSTED = DOTNET / "Quantra.Client.Hosting" / "README.md"
"""test_packages.py runs its program, and Quantra.Client.Hosting.Tests has the rest."""
PAGES = sorted([RECIPES, *DOTNET.glob("Quantra.Client*/README.md")])
PROJECTS = sorted(path for path in DOTNET.glob("Quantra.Client*/*.csproj") if not path.stem.endswith(".Tests"))
PROJECT = """<Project Sdk="Microsoft.NET.Sdk">
  <PropertyGroup>
    <TargetFramework>net10.0</TargetFramework>
    <ImplicitUsings>enable</ImplicitUsings>
    <Nullable>enable</Nullable>
    <TreatWarningsAsErrors>true</TreatWarningsAsErrors>
  </PropertyGroup>
  <ItemGroup>
{references}
    <PackageReference Include="Microsoft.Extensions.Hosting" Version="10.*" />
  </ItemGroup>
</Project>
"""
PROGRAM = """{usings}

internal static class {name}
{{
    public static async Task RunAsync()
    {{
{statements}
    }}
}}
"""
WATCHLIST = """using Quantra.Client;

internal sealed class Watchlist(IStockPredictor predictor)
{
    public async Task LoadAsync(IReadOnlyList<string> symbols)
    {
        var bars = (await BarPanel.ReadCsvAsync("bars.csv")).Select(symbols);
        await predictor.PredictAsync(new PredictionRequest("demo", bars));
    }
}
"""
"""The program that the page's test example tests."""


def snippets() -> list[tuple[str, str]]:
    """Names and sources of the C# programs on the pages."""
    found: list[tuple[str, str]] = []
    for page in PAGES:
        blocks = re.findall(r"^```csharp\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        blocks = blocks if page == RECIPES else [] if page == HOSTED else ["".join(blocks)]
        subject = re.sub(r"\W", "", page.parent.name).title()
        found += [(f"{subject}{number}", block) for number, block in enumerate(blocks)]
    return found


def program(name: str, block: str) -> str:
    """Wrap a code block in a class with one method."""
    lines = block.splitlines()
    usings = [line for line in lines if re.fullmatch(r"using [\w.]+;", line)]
    statements = [f"        {line}" for line in lines if line not in usings]
    return PROGRAM.format(name=name, usings="\n".join(usings), statements="\n".join(statements))


def test_every_page_that_shows_csharp_is_read() -> None:
    assert {project.parent / "README.md" for project in PROJECTS} < set(PAGES)
    assert {name.rstrip("0123456789") for name, _ in snippets()} >= {"Dotnet", "Quantraclient", "Quantraclienttesting"}


@pytest.mark.slow
def test_the_pages_csharp_compiles(tmp_path: Path) -> None:
    references = "\n".join(f'    <ProjectReference Include="{project}" />' for project in PROJECTS)
    programs = {f"{name}.cs": program(name, block) for name, block in snippets()}
    build_program(tmp_path, PROJECT.format(references=references), {"Watchlist.cs": WATCHLIST, **programs})

"""C# of the READMEs, of the docs and of the page's requests compiles without warnings."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from csharp import DOTNET, build_program

from predictor.bars import ReadingOptions
from trainers.stock.page.views import request_texts

RECIPES = DOTNET / "README.md"
"""A page whose blocks are separate programs; on other pages each block continues the previous one."""
HOSTED = DOTNET / "Quantra.Client.Hosting" / "README.md"
COVARIATES = DOTNET.parent / "docs" / "covariates.md"
ASSUMED = {
    HOSTED: (
        "string[] args",
        "QuantraServer server, Label statusLine, CancellationToken closing",
        "",
        "HostApplicationBuilder builder",
        "IServiceCollection services, IConfiguration configuration",
        "Action<TrainingProgress> ShowProgress, CancellationToken cancellationToken",
    ),
    COVARIATES: ("QuantraClient client, BarPanel bars",),
}
"""Pages whose blocks are parts of a program, and what each block assumes."""
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
    public static async Task RunAsync({assumed})
    {{
{statements}
        await Task.CompletedTask;
    }}
}}
"""
HOSTING = """global using Microsoft.Extensions.Configuration;
global using Microsoft.Extensions.DependencyInjection;
global using Microsoft.Extensions.Hosting;
global using Quantra.Client;
global using Quantra.Client.Hosting;

internal sealed class Label
{
    public string Text { get; set; } = "";
}
"""
"""What parts of programs are in."""
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


def blocks_of(page: Path) -> list[str]:
    return re.findall(r"^```csharp\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def snippets() -> list[tuple[str, str]]:
    """Names and sources of the complete C# programs on the pages."""
    found: list[tuple[str, str]] = []
    for page in PAGES:
        blocks = blocks_of(page) if page == RECIPES else [] if page == HOSTED else ["".join(blocks_of(page))]
        subject = re.sub(r"\W", "", page.parent.name).title()
        found += [(f"{subject}{number}", block) for number, block in enumerate(blocks)]
    return found


def parts() -> Iterator[tuple[str, str, str]]:
    """Names, sources and assumed parameters of the parts of programs on the pages."""
    for page, assumed in ASSUMED.items():
        for number, (block, names) in enumerate(zip(blocks_of(page), assumed, strict=True)):
            yield f"{page.stem.title()}Part{number}", block, names


def requests_of_the_page(symbol: str, *, is_panel_model: bool = False) -> dict[str, str]:
    """The requests in Python and C# that the page of a forecast shows for copying."""
    shown: Any = SimpleNamespace(
        reading=SimpleNamespace(name="my bars.csv"),
        info=SimpleNamespace(name="demo", version=1, is_panel_model=is_panel_model),
        attribution=SimpleNamespace(horizon=5, quantile=0.5),
        options=ReadingOptions(),
        symbol=symbol,
        can_use_suspects=False,
    )
    return {name.partition(",")[0]: text for name, text in request_texts(shown)}


def program(name: str, block: str, assumed: str = "") -> str:
    """Wrap a code block in a class with one method."""
    lines = block.splitlines()
    usings = [line for line in lines if re.fullmatch(r"using [\w.]+;", line)]
    statements = "\n".join(f"        {line}" for line in lines if line not in usings)
    return PROGRAM.format(name=name, usings="\n".join(usings), statements=statements, assumed=assumed)


def test_every_page_that_shows_csharp_is_read() -> None:
    assert {project.parent / "README.md" for project in PROJECTS} < set(PAGES)
    assert {name.rstrip("0123456789") for name, _ in snippets()} >= {"Dotnet", "Quantraclient", "Quantraclienttesting"}


@pytest.mark.parametrize("is_panel_model", [False, True])
def test_a_copied_request_sends_all_symbols_to_a_panel_model(*, is_panel_model: bool) -> None:
    requests = requests_of_the_page("AAPL", is_panel_model=is_panel_model)
    assert ('.select(["AAPL"])' in requests["Python"], '.Select("AAPL")' in requests["C#"]) == (not is_panel_model,) * 2


@pytest.mark.slow
def test_the_pages_csharp_compiles(tmp_path: Path) -> None:
    references = "\n".join(f'    <ProjectReference Include="{project}" />' for project in PROJECTS)
    programs = {f"{name}.cs": program(name, block) for name, block in snippets()}
    programs |= {f"{name}.cs": program(name, block, assumed) for name, block, assumed in parts()}
    programs["Copied.cs"] = program("Copied", requests_of_the_page('BRK "B"\\\té')["C#"])
    helpers = {"Watchlist.cs": WATCHLIST, "Hosting.cs": HOSTING}
    build_program(tmp_path, PROJECT.format(references=references), {**helpers, **programs})

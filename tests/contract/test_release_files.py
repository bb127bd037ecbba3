"""What a release consists of, and the workflows that would build it."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from shown_commands import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERSION = PROJECT["version"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "vendor.dependabot": [ROOT / ".github" / "dependabot.yml"],
    "vendor.compose-spec": [ROOT / "deploy" / "docker" / "compose.yaml"],
}

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("release files")]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is built without dotnet; test_packages.py looks at the NuGet packages."""
    folder = tmp_path_factory.mktemp("release") / "dist"
    command = [sys.executable, "deploy/make_dist.py", "--out", str(folder)]
    environment = {**os.environ, "PATH": str(Path(sys.executable).parent)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    return folder


def test_a_release_has_the_version_of_the_project_and_checksums(dist: Path) -> None:
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    named = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert named.keys() == {f"quantra-{VERSION}{end}" for end in ("-py3-none-any.whl", ".tar.gz", ".cdx.json")}
    assert {name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in named} == named


def test_the_sbom_names_what_users_install_and_no_tool_of_the_developers(dist: Path) -> None:
    sbom: dict[str, Any] = json.loads((dist / f"quantra-{VERSION}.cdx.json").read_text("utf-8"))
    assert sbom["metadata"]["component"]["version"] == VERSION
    references = {component["bom-ref"] for component in sbom["components"]} | {"root-component"}
    assert {reference for edge in _edges(sbom) for reference in (edge[0], *edge[1])} == references
    names = {component["name"] for component in sbom["components"]}
    assert {"torch", "grpcio", "polars", "typer", "plotly", "rich", "Pygments"} <= names
    assert not {"pytest", "ruff", "hypothesis", "cyclonedx-bom", "zensical"} & names
    assert "torch==" in " ".join(dict(_edges(sbom))["root-component"])


def _edges(sbom: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(one["ref"], one["dependsOn"]) for one in sbom["dependencies"]]


def test_dotnet_takes_its_version_from_the_project() -> None:
    assert not re.search(r"<Version>\d", (ROOT / "dotnet" / "Directory.Build.props").read_text("utf-8"))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_for_a_service_are_what_the_service_reads(schema: str) -> None:
    from check_jsonschema import main  # here, because the import takes seconds

    checked = CliRunner().invoke(main, ["--builtin-schema", schema, *map(str, SCHEMAS[schema])])
    assert checked.exit_code == 0, checked.output


def test_the_workflow_tests_every_system_and_version() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8"))
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["os"] == ["ubuntu-latest", "windows-latest", "macos-latest"]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_what_exists_with_few_permissions(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text("utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    targets = set(re.findall(r"\bmake ([\w-]+)", " ".join(steps)))
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def test_the_conda_recipe_needs_what_the_project_needs() -> None:
    recipe: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "conda" / "recipe.yaml").read_text("utf-8"))
    extras = PROJECT["optional-dependencies"]
    names = {"torch": "pytorch", "prometheus-client": "prometheus_client"}
    needed = {"python": PROJECT["requires-python"]}
    for one in map(Requirement, (*PROJECT["dependencies"], *extras["cli"], *extras["data"])):
        if one.name == PROJECT["name"]:
            assert one.extras == {"data"}
            continue
        needed[names.get(one.name, one.name)] = str(one.specifier)
    given = dict(text.split(" ") for text in recipe["requirements"]["run"])
    assert {name: SpecifierSet(versions) for name, versions in given.items()} == {
        name: SpecifierSet(versions) for name, versions in needed.items()
    }
    assert recipe["package"] == {"name": PROJECT["name"], "version": VERSION}
    ((command, function),) = PROJECT["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [f"{command} = {function}"]
    assert recipe["about"]["summary"] == PROJECT["description"]

"""Build what a release consists of: python deploy/make_dist.py. It writes the folder dist, and needs the extra `dev`.

Wheel and sdist, an SBOM in the format of CycloneDX, the NuGet packages if `dotnet` is on the PATH, and SHA256SUMS.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SHIPPED = "all"
"""The extra whose packages are in the SBOM, besides those that every installation has."""


def main() -> None:
    """Build everything into an empty folder."""
    parser = argparse.ArgumentParser(description="Build what a release consists of.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder to write; it is emptied first")
    out = parser.parse_args().out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    _run(sys.executable, "-m", "hatchling", "build", "-d", out)
    if shutil.which("dotnet"):
        _run("dotnet", "pack", ROOT / "dotnet" / "Quantra.slnx", "-c", "Release", "-o", out, "--nologo", "-v", "quiet")
    else:
        print("There is no dotnet on the PATH: the NuGet packages are left out.")
    _write_sbom(out / f"quantra-{version()}.cdx.json")
    _write_checksums(out)


def version() -> str:
    """The version, which pyproject.toml states for Python and .NET."""
    return _project()["version"]


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _run(*command: str | Path) -> None:
    environment = {**os.environ, "QUANTRA_PYTHON": sys.executable}
    subprocess.run([str(part) for part in command], cwd=ROOT, env=environment, check=True)  # noqa: S603 - our own


def _write_sbom(path: Path) -> None:
    """Describe the packages of this environment that a user of the extra `all` installs, with their versions."""
    # A validation takes half a minute, most of it for licences of packages that are cut off afterwards.
    options = ("--no-validate", "--output-reproducible", "--mc-type", "library", "--pyproject", ROOT / "pyproject.toml")
    _run(sys.executable, "-m", "cyclonedx_py", "environment", *options, "-o", path, sys.executable)
    everything = json.loads(path.read_text(encoding="utf-8"))
    shipped = keep_needed(everything, needed_packages(_project(), SHIPPED))
    path.write_text(json.dumps(shipped, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def needed_packages(project: Mapping[str, Any], extra: str) -> set[str]:
    """Names of all installed packages that a project needs with one of its extras, itself included."""
    own = canonicalize_name(project["name"])
    found: set[tuple[str, str]] = set()
    waiting: list[tuple[str, str]] = [(own, ""), (own, extra)]
    while waiting:
        name, asked = waiting.pop()
        if (name, asked) in found:
            continue
        found.add((name, asked))
        texts = distribution(name).requires or () if name != own else _own_requirements(project, asked)
        for requirement in map(Requirement, texts):
            if requirement.marker is None or requirement.marker.evaluate({"extra": asked}):
                waiting += [(canonicalize_name(requirement.name), one) for one in ("", *requirement.extras)]
    return {name for name, _ in found}


def _own_requirements(project: Mapping[str, Any], extra: str) -> Iterable[str]:
    return project["optional-dependencies"][extra] if extra else project["dependencies"]


def keep_needed(sbom: Mapping[str, Any], needed: set[str]) -> dict[str, Any]:
    """Return the SBOM with those of its components only."""
    components = [one for one in sbom["components"] if canonicalize_name(one["name"]) in needed]
    kept = {one["bom-ref"] for one in components} | {sbom["metadata"]["component"]["bom-ref"]}
    dependencies = [
        one | {"dependsOn": [ref for ref in one.get("dependsOn", ()) if ref in kept]}
        for one in sbom["dependencies"]
        if one["ref"] in kept
    ]
    return {**sbom, "components": components, "dependencies": dependencies}


def _write_checksums(folder: Path) -> None:
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.name.startswith(".")
    ]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Build the documentation site: python docs/build_site.py. It writes build/site, and needs the extra `docs`.

Pages keep their places in the repository, so that their links work on GitHub, too. The reference is written from the
docstrings of what `quantra` and `trainers.loop` export.
"""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
SHOWN = ("*.md", "docs/**/*.md", "dotnet/**/README.md", "benchmarks/*.md")
ASSETS = ROOT / "docs" / "site"
REFERENCE = ("quantra", "trainers.loop")
LINK = re.compile(r"\]\((?!\w+:)([^)#]+)")


def main() -> None:
    """Collect the pages, and build the site from them."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for page in (page for pattern in SHOWN for page in ROOT.glob(pattern)):
        _copy(page)
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            _copy((page.parent / target).resolve())
    shutil.copytree(ASSETS, PAGES / "assets")
    for module in REFERENCE:
        _write_reference(module)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)  # noqa: S603 - a fixed command


def _copy(source: Path) -> None:
    copy = PAGES / source.relative_to(ROOT)
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)


def _write_reference(module: str) -> None:
    sources = ROOT.joinpath("python", *module.split("."), "__init__.py").read_text(encoding="utf-8")
    names = next(
        ast.literal_eval(statement.value)
        for statement in ast.parse(sources).body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"
    )
    page = PAGES / "reference" / f"{module}.md"
    page.parent.mkdir(exist_ok=True)
    page.write_text(f"# {module}\n\n" + "".join(f"::: {module}.{name}\n\n" for name in names), encoding="utf-8")


if __name__ == "__main__":
    main()

"""`import quantra`: its names, what it imports, and user files that shadow its packages."""

import subprocess
import sys
from pathlib import Path

import pytest

import quantra


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", quantra.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(quantra, name).__name__ == name
    assert name in dir(quantra)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'quantra' has no attribute 'Stock'"):
        quantra.Stock  # noqa: B018 # pyright: ignore[reportAttributeAccessIssue, reportUnusedExpression]


def test_the_client_and_the_bars_do_not_import_torch(tmp_path: Path) -> None:
    code = "import sys; from quantra import BarPanel, QuantraClient, QuantraError; print('torch' in sys.modules)"
    assert run(tmp_path, "-c", code).stdout == "False\n"


@pytest.mark.parametrize("name", ["predictor", "trainers"])
@pytest.mark.parametrize("file", ["{}.py", "{}/__init__.py"])
def test_a_file_that_shadows_a_package_is_named(tmp_path: Path, name: str, file: str) -> None:
    shadow = tmp_path / file.format(name)
    shadow.parent.mkdir(exist_ok=True)
    shadow.write_text("", encoding="utf-8")
    result = run(tmp_path, "-c", "import quantra")
    place = shadow if shadow.stem == name else shadow.parent
    assert result.returncode == 1
    assert f"ImportError: {place} has the name of a package that Quantra needs; rename it" in result.stderr


def test_a_folder_without_python_files_shadows_nothing(tmp_path: Path) -> None:
    (tmp_path / "predictor").mkdir()
    assert run(tmp_path, "-c", "from quantra import BarPanel").returncode == 0


def test_the_package_runs_as_the_command(tmp_path: Path) -> None:
    result = run(tmp_path, "-m", "quantra", "--version")
    assert (result.returncode, result.stdout.split()[0]) == (0, "quantra")

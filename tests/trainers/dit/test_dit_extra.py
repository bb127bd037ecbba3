"""The extra `dit`: errors without it, and packages that it must not contain.

transformers and diffusers fail to import if torchvision or torchaudio is of another build than torch; lpips installs
torchvision.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from left_out import assert_left_out
from tiny_images import PROMPTS, tiny_model, write_images
from typer.testing import CliRunner

from trainers.cli.commands import app

FOLDER = Path(__file__).parent
ROOT = Path(__file__).parents[3]
UNWANTED = ("torchvision", "torchaudio", "lpips")


@pytest.mark.slow
def test_without_the_extra_every_file_of_tests_is_skipped_with_the_reason() -> None:
    assert_left_out(FOLDER, ("diffusers",), "images need diffusers: pip install 'quantra[dit]'")


@pytest.mark.parametrize("package", UNWANTED)
def test_what_breaks_images_is_neither_installed_nor_asked_for(package: str) -> None:
    assert find_spec(package) is None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *(line for lines in extras.values() for line in lines)]
    asked += (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in asked if line.lower().startswith(package)] == []


def imported(path: Path) -> Iterator[str]:
    """All packages imported anywhere in a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_no_module_imports_what_breaks_images() -> None:
    named = {name for path in (ROOT / "python" / "trainers").glob("**/*.py") for name in imported(path)}
    assert {"torch", "diffusers", "transformers"} <= named
    assert named.isdisjoint(UNWANTED)


def test_no_command_loads_what_breaks_images(tmp_path: Path) -> None:
    tiny_model().save(tmp_path / "base")
    own, held = write_images(tmp_path / "own"), write_images(tmp_path / "held", 8)
    base, cache, model, tuned = (tmp_path / name for name in ("base", "cache", "model", "tuned"))
    snapshots = ("--gate-images", 4, "--gate-steps", 4, "--gate-every", 1, "--draw-steps", 4, "--trained-steps", 2)
    tuning = ("--reward", "ssim", "--gate", "psnr", "--bound", 9, "--iterations", 1, "--groups", 2, *snapshots)
    for words in (
        ("cache", own, "--model", base, "--out", cache),
        ("train", cache, "--model", base, "--out", model, "--steps", 2, "--device", "cpu"),
        ("grpo", own, "--model", model, "--held-out", held, "--out", tuned, *tuning, "--device", "cpu"),
        ("sample", tuned, "--prompt", PROMPTS[0], "--steps", 4, "--out", tmp_path / "a.png"),
    ):
        done = CliRunner().invoke(app, ["train", "dit", *map(str, words)])
        assert done.exit_code == 0, done.output
    assert {name.partition(".")[0] for name in sys.modules}.isdisjoint(UNWANTED)

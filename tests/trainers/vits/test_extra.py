"""The extra `tts`: what happens without it, and what must never be in it."""

import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from left_out import assert_left_out

FOLDER = Path(__file__).parent
ROOT = Path(__file__).parents[3]


def test_without_the_extra_every_file_of_tests_is_skipped_with_the_reason() -> None:
    assert_left_out(
        FOLDER, ("transformers", "soundfile"), "speech needs transformers, soundfile: pip install 'quantra[tts]'"
    )


@pytest.mark.parametrize("package", ["torchvision", "torchaudio", "lpips"])
def test_what_breaks_speech_is_neither_installed_nor_asked_for(package: str) -> None:
    """Of another build than torch, torchvision and torchaudio stop transformers from loading; lpips brings one."""
    assert find_spec(package) is None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *(line for lines in extras.values() for line in lines)]
    asked += (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in asked if line.lower().startswith(package)] == []

"""Generated protobuf code is up to date and works with the supported library versions."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
CHECKED_IN = REPOSITORY / "python" / "predictor" / "_pb"
GENERATED = tuple(
    f"{name}_pb2{kind}" for name in ("prediction", "inference") for kind in (".py", ".pyi", "_grpc.py", "_grpc.pyi")
)
NO_ENVIRONMENT = 3


@pytest.fixture(scope="module")
def regenerated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fresh output of the generator, whose environment is created once in .venv-protos."""
    output = tmp_path_factory.mktemp("generated")
    command = [sys.executable, str(REPOSITORY / "protos" / "generate.py"), "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == NO_ENVIRONMENT:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return output / "predictor" / "_pb"


@pytest.mark.parametrize("name", GENERATED)
def test_the_generator_writes_the_same_bytes_again(regenerated: Path, name: str) -> None:
    assert (regenerated / name).read_bytes() == (CHECKED_IN / name).read_bytes(), "run `make protos`"


def test_the_check_of_the_generator_agrees(regenerated: Path) -> None:
    assert regenerated.is_dir()
    command = [sys.executable, str(REPOSITORY / "protos" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_generated_code_loads_with_the_oldest_protobuf_too(regenerated: Path) -> None:
    """The generator's environment holds protobuf 6, this one 7."""
    programs = REPOSITORY / ".venv-protos" / ("Scripts" if os.name == "nt" else "bin")
    script = "import predictor._pb.prediction_pb2_grpc, google.protobuf; print(google.protobuf.__version__)"
    environment = {**os.environ, "PYTHONPATH": str(regenerated.parents[1])}
    done = subprocess.run(
        [programs / "python", "-c", script], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout.startswith("6."), done.stderr


def test_the_generator_writes_nothing_else(regenerated: Path) -> None:
    assert {path.name for path in regenerated.iterdir()} == set(GENERATED)


def test_generated_modules_import_each_other_inside_the_package() -> None:
    assert "from predictor._pb import prediction_pb2" in (CHECKED_IN / "prediction_pb2_grpc.py").read_text()


def test_generated_code_asks_for_no_newer_protobuf_than_the_project_allows() -> None:
    assert_floor(r"Protobuf Python Version: ([\d.]+)", "prediction_pb2.py", "protobuf")


def test_generated_code_asks_for_no_newer_grpc_than_the_project_allows() -> None:
    assert_floor(r"GRPC_GENERATED_VERSION = '([\d.]+)'", "prediction_pb2_grpc.py", "grpcio")


def assert_floor(pattern: str, module: str, package: str) -> None:
    """The version that the module was made for is not above the floor that pyproject.toml declares."""
    made_for = re.search(pattern, (CHECKED_IN / module).read_text())
    declared = re.search(rf'"{package}>=([\d.]+),', (REPOSITORY / "pyproject.toml").read_text())
    assert made_for is not None
    assert declared is not None
    assert numbers(made_for.group(1)) <= numbers(declared.group(1))


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))

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
    f"{name}_pb2{kind}"
    for name in ("prediction", "ledger", "inference")
    for kind in (".py", ".pyi", "_grpc.py", "_grpc.pyi")
)
NO_ENVIRONMENT = 3


@pytest.fixture(scope="module")
def generated_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fresh output of the generator, whose environment is created once in .venv-protos."""
    output = tmp_path_factory.mktemp("generated")
    command = [sys.executable, str(REPOSITORY / "protos" / "generate.py"), "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == NO_ENVIRONMENT:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return output / "predictor" / "_pb"


@pytest.mark.parametrize("name", GENERATED)
def test_the_generator_writes_the_same_bytes_again(generated_files: Path, name: str) -> None:
    assert (generated_files / name).read_bytes() == (CHECKED_IN / name).read_bytes(), "run `make protos`"


def test_the_generated_code_loads_with_the_oldest_protobuf_too(generated_files: Path) -> None:
    """The generator's environment holds protobuf 6, this one 7."""
    programs = REPOSITORY / ".venv-protos" / ("Scripts" if os.name == "nt" else "bin")
    script = "import predictor._pb.prediction_pb2_grpc, google.protobuf; print(google.protobuf.__version__)"
    environment = {**os.environ, "PYTHONPATH": str(generated_files.parents[1])}
    done = subprocess.run(
        [programs / "python", "-c", script], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout.startswith("6."), done.stderr


def test_the_generator_writes_nothing_else(generated_files: Path) -> None:
    assert {path.name for path in generated_files.iterdir() if path.is_file()} == set(GENERATED)


def test_generated_modules_import_each_other_inside_the_package() -> None:
    assert "from predictor._pb import prediction_pb2" in (CHECKED_IN / "prediction_pb2_grpc.py").read_text()


@pytest.mark.parametrize(
    ("pattern", "module", "package"),
    [
        (r"Protobuf Python Version: ([\d.]+)", "prediction_pb2.py", "protobuf"),
        (r"GRPC_GENERATED_VERSION = '([\d.]+)'", "prediction_pb2_grpc.py", "grpcio"),
    ],
    ids=["protobuf", "grpcio"],
)
def test_generated_code_works_with_the_lowest_version_in_pyproject(pattern: str, module: str, package: str) -> None:
    made_for = re.search(pattern, (CHECKED_IN / module).read_text())
    declared = re.search(rf'"{package}>=([\d.]+),', (REPOSITORY / "pyproject.toml").read_text())
    assert made_for is not None
    assert declared is not None
    assert numbers(made_for.group(1)) <= numbers(declared.group(1))


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))

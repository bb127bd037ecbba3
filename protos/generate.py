# ruff: noqa: INP001 - a script beside the protocol, no package
"""Write python/predictor/_pb from protos/quantra/v1/prediction.proto.

    python protos/generate.py [--output DIR] [--environment DIR]

Runs in any Python: the compiler lives in an environment of its own (`.venv-protos`, made on the first run and again
when requirements.txt changes), because it needs an older protobuf than the one that the project is tested with.
The same compiler writes the same bytes everywhere, so the generated files are checked in and a test compares them.
"""

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

PROTOS = Path(__file__).resolve().parent
REPOSITORY = PROTOS.parent
REQUIREMENTS = PROTOS / "requirements.txt"

# protoc's virtual path: the file appears as predictor/_pb/prediction.proto, so that the generated modules import each
# other as `predictor._pb`. The protobuf package stays quantra.v1.
VIRTUAL_PATH = f"predictor/_pb={PROTOS / 'quantra' / 'v1'}"
SOURCE = "predictor/_pb/prediction.proto"

NO_ENVIRONMENT = 3
"""Exit status if pip could not install the generator."""


def main() -> int:
    """Parse the arguments, make the environment if needed, and generate."""
    parser = argparse.ArgumentParser(description="Generate the Python code of the protocol.")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "python", help="folder that holds predictor/_pb")
    parser.add_argument("--environment", type=Path, default=REPOSITORY / ".venv-protos", help="the generator's own")
    arguments = parser.parse_args()
    try:
        programs = ready_environment(arguments.environment)
    except subprocess.CalledProcessError as failure:
        sys.stderr.write(
            f"pip could not install {REQUIREMENTS.name} (exit {failure.returncode}); is an index reached?\n"
        )
        return NO_ENVIRONMENT
    return generate(programs, arguments.output)


def ready_environment(folder: Path) -> Path:
    """Make the generator's environment unless it is there already.

    Returns:
        The folder of its programs.

    Raises:
        subprocess.CalledProcessError: pip failed.
    """
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    installed = folder / "requirements.txt"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    if not installed.exists() or installed.read_text(encoding="utf-8") != wanted:
        venv.create(folder, with_pip=True, clear=True)
        pip = [
            programs / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-r",
            REQUIREMENTS,
        ]
        subprocess.run(pip, check=True)  # noqa: S603 - our own fixed command
        installed.write_text(wanted, encoding="utf-8")
    return programs


def generate(programs: Path, output: Path) -> int:
    """Run the compiler; its exit status is the result."""
    output.mkdir(parents=True, exist_ok=True)
    command = [programs / "python", "-m", "grpc_tools.protoc", f"-I{VIRTUAL_PATH}"]
    command += [
        f"--{plugin}{output}" for plugin in ("python_out=", "pyi_out=", "grpc_python_out=", "mypy_grpc_out=quiet:")
    ]
    path = f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"  # protoc looks for its plugins there
    environment = {**os.environ, "PATH": path}
    return subprocess.run([*command, SOURCE], env=environment, check=False).returncode  # noqa: S603 - as above


if __name__ == "__main__":
    sys.exit(main())

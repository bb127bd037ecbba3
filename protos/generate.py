# ruff: noqa: INP001 - a script beside the protocol, no package
"""Write python/predictor/_pb from the .proto files in protos/quantra/v1 and protos/inference.

    python protos/generate.py [--check | --output DIR] [--environment DIR]

Runs in any Python: the compiler lives in an environment of its own (`.venv-protos`, made on the first run and again
when requirements.txt changes), because it needs an older protobuf than the one that the project is tested with.
The same compiler writes the same bytes everywhere, so the generated files are checked in and a test compares them.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PROTOS = Path(__file__).resolve().parent
REPOSITORY = PROTOS.parent
REQUIREMENTS = PROTOS / "requirements.txt"

# protoc's virtual paths: the files appear as predictor/_pb/NAME.proto, so that the generated modules import each other
# as `predictor._pb`. The protobuf packages stay quantra.v1 and inference.
VIRTUAL_PATHS = [f"-Ipredictor/_pb={PROTOS / folder}" for folder in ("quantra/v1", "inference")]
SOURCES = [f"predictor/_pb/{name}.proto" for name in ("prediction", "ledger", "inference")]

# Clients of the public protocol, such as tritonclient, register its names in protobuf's default pool, which takes each
# name once in a process. Ours are therefore in a pool of their own.
PUBLIC = "inference_pb2.py"
DEFAULT_POOL, OWN_POOL = (
    "_descriptor_pool.Default().AddSerializedFile(",
    "_descriptor_pool.DescriptorPool().AddSerializedFile(",
)

NO_ENVIRONMENT = 3
"""Exit status if pip could not install the generator."""


def main() -> int:
    """Parse the arguments, make the environment if needed, and generate."""
    parser = argparse.ArgumentParser(description="Generate the Python code of the protocol.")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "python", help="folder that holds predictor/_pb")
    parser.add_argument("--environment", type=Path, default=REPOSITORY / ".venv-protos", help="the generator's own")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the checked-in files are others")
    arguments = parser.parse_args()
    try:
        programs = ready_environment(arguments.environment)
    except subprocess.CalledProcessError as failure:
        sys.stderr.write(
            f"pip could not install {REQUIREMENTS.name} (exit {failure.returncode}); is an index reached?\n"
        )
        return NO_ENVIRONMENT
    return check(programs) if arguments.check else generate(programs, arguments.output)


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
    command = [programs / "python", "-m", "grpc_tools.protoc", *VIRTUAL_PATHS]
    command += [
        f"--{plugin}{output}" for plugin in ("python_out=", "pyi_out=", "grpc_python_out=", "mypy_grpc_out=quiet:")
    ]
    path = f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"  # protoc looks for its plugins there
    environment = {**os.environ, "PATH": path}
    status = subprocess.run([*command, *SOURCES], env=environment, check=False).returncode  # noqa: S603 - as above
    if status == 0:
        move_to_own_pool(output / "predictor" / "_pb" / PUBLIC)
    return status


def move_to_own_pool(module: Path) -> None:
    """Let a generated module register its messages where nobody else registers any."""
    text = module.read_text(encoding="utf-8")
    if text.count(DEFAULT_POOL) != 1:
        sys.stderr.write(f"{module.name} does not register its messages as it used to; see OWN_POOL\n")
        sys.exit(1)
    module.write_text(text.replace(DEFAULT_POOL, OWN_POOL), encoding="utf-8", newline="\n")


def check(programs: Path) -> int:
    """Compare what the compiler writes now with what is checked in; 1 if they differ."""
    with tempfile.TemporaryDirectory() as folder:
        status = generate(programs, Path(folder))
        made = {path.name: path.read_bytes() for path in (Path(folder) / "predictor" / "_pb").glob("*")}
    checked_in = REPOSITORY / "python" / "predictor" / "_pb"
    stale = [name for name, content in made.items() if _content(checked_in / name) != content]
    for name in sorted(stale):
        sys.stderr.write(f"{checked_in / name} is not what its .proto gives; run `make protos`\n")
    return 1 if stale else status


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main())

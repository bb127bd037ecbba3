"""ONNX graphs of served models, each written once by a separate process and kept in a cache."""

import hashlib
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

from predictor.artifact import StoredArtifact
from predictor.errors import ArtifactError
from predictor.replacement import replace_file

PACKAGES: Final = ("quantra", "torch", "onnx", "onnxscript", "onnxruntime")
"""Packages whose versions a graph depends on."""
KEY_DIGITS: Final = 32
LONGEST_S: Final = 600.0
"""Seconds after which writing a graph is given up."""


def cache_folder() -> Path:
    """The folder of the graphs: `quantra/graphs` in XDG_CACHE_HOME or ~/.cache, or in LOCALAPPDATA on Windows."""
    home = os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else os.environ.get("XDG_CACHE_HOME")
    return Path(home or Path.home() / ".cache") / "quantra" / "graphs"


def load_graph(folder: Path, stored: StoredArtifact) -> bytes:
    """Read the graph of an artifact from the cache, or write it there.

    The name of a file has the hash of the graph's sources, and that of its content; a damaged file is written
    again.

    Args:
        folder: Folder of the artifact.
        stored: The artifact as read from it.

    Raises:
        ArtifactError: The graph cannot be written.
    """
    cache = cache_folder()
    parts = (stored.weights_hash, stored.manifest_hash, *map(version, PACKAGES))
    key = _digest("|".join(parts).encode())
    try:
        for file in cache.glob(f"{key}.*.onnx"):
            graph = file.read_bytes()
            if file.name == f"{key}.{_digest(graph)}.onnx":
                return graph
        graph = _write(folder)
        cache.mkdir(parents=True, exist_ok=True)
        replace_file(cache / f"{key}.{_digest(graph)}.onnx", graph)
    except OSError as error:
        raise _graph_error(f"{error.filename or cache}: {error.strerror}") from error
    return graph


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:KEY_DIGITS]


def _write(folder: Path) -> bytes:
    """Write the graph in another process, because torch's exporter needs hundreds of MB that it does not release."""
    command = [sys.executable, "-m", "predictor.export", str(folder)]
    watched, held = os.pipe()  # closes when this process ends, however it ends; then the other one ends too
    try:
        ran = subprocess.run(command, stdin=watched, capture_output=True, check=False, timeout=LONGEST_S)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise _graph_error(f"not finished after {LONGEST_S:g} seconds") from error
    finally:
        os.close(watched)
        os.close(held)
    if ran.returncode:
        raise _graph_error(" ".join(ran.stderr.decode(errors="replace").split())[-300:])
    return ran.stdout


def _graph_error(reason: str) -> ArtifactError:
    return ArtifactError(f"its ONNX graph cannot be written ({reason}); serve it with --engine eager")

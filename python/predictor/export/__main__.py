"""`python -m predictor.export FOLDER` writes the graph of an artifact to standard output, and ends with its parent."""

import signal
import sys
import tempfile
from pathlib import Path

from predictor.errors import QuantraError
from predictor.export.onnx_file import export_onnx
from predictor.parent import exit_with_parent


def main() -> None:
    """Write the graph of the artifact in the folder that the first argument names."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # removes the temporary folder
    exit_with_parent()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            made = export_onnx(Path(sys.argv[1]), Path(scratch) / "graph.onnx")
        except QuantraError as error:
            sys.exit(error.message)
        sys.stdout.buffer.write(made.file.read_bytes())


if __name__ == "__main__":
    main()

"""`python -m predictor.export FOLDER` writes the graph of an artifact to standard output, and ends with its parent."""

import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from predictor.errors import QuantraError
from predictor.export.onnx_file import export_onnx
from predictor.parent import exit_with_parent


def main() -> None:
    """Write the graph of the artifact in the folder that the first argument names."""
    signal.signal(signal.SIGTERM, _exit)
    exit_with_parent()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            export = export_onnx(Path(sys.argv[1]), Path(scratch) / "graph.onnx")
        except QuantraError as error:
            sys.exit(error.message)
        sys.stdout.buffer.write(export.file.read_bytes())


def _exit(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)  # leaves the block above, which removes the temporary folder


if __name__ == "__main__":
    main()

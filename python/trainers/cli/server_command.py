"""The command `quantra serve`, which can also compare and promote versions."""

from pathlib import Path
from typing import TYPE_CHECKING

from predictor.cli.flags import with_flags
from predictor.cli.server_commands import run_server
from predictor.server import ServeFlags

if TYPE_CHECKING:
    from predictor.lifecycle import ModelLifecycle


@with_flags
def serve(*, flags: ServeFlags) -> None:
    """Serve models over gRPC until Ctrl+C or SIGTERM.

    When the server is ready, it writes one line of JSON with the port to standard output. The log goes to stderr.
    """
    run_server(flags, load_lifecycle)


def load_lifecycle(models: Path) -> "ModelLifecycle":
    """Create the lifecycle of a folder of stock models; imports torch."""
    from trainers.stock.lifecycle import StockLifecycle

    return StockLifecycle(models)

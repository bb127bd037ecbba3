"""The commands `quantra serve`, which can also compare and promote versions, and `quantra ui`, which has a page."""

from pathlib import Path
from typing import TYPE_CHECKING

from predictor.cli.flags import with_flags
from predictor.cli.server_commands import UiFlags, run_server, run_ui
from predictor.server import ServeFlags

if TYPE_CHECKING:
    from predictor.lifecycle import ModelLifecycle
    from predictor.web.page_access import LoadedPage, PageContext


@with_flags
def serve(*, flags: ServeFlags) -> None:
    """Serve models over gRPC until Ctrl+C or SIGTERM.

    When the server is ready, it writes one line of JSON with the port to standard output. The log goes to stderr.
    """
    run_server(flags, load_lifecycle)


@with_flags
def ui(*, flags: UiFlags) -> None:
    """Open the page of your models, and answer calls over HTTP as JSON, until Ctrl+C or SIGTERM.

    When the server is ready, it writes one line of JSON to standard output, with the port and the page's address. The
    log goes to stderr.
    """
    run_ui(flags, load_page)


def load_page(context: "PageContext") -> "LoadedPage":
    """Create the page of stock models; imports torch."""
    from trainers.stock.page import load_page as load

    return load(context)


def load_lifecycle(models: Path) -> "ModelLifecycle":
    """Create the lifecycle of a folder of stock models; imports torch."""
    from trainers.stock.lifecycle import StockLifecycle

    return StockLifecycle(models)

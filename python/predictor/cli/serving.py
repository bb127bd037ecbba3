"""`quantra serve`."""

import typer

from predictor.cli.flags import with_flags
from predictor.errors import ConfigurationError
from predictor.server import ServeFlags, logs
from predictor.server import serve as serve_models


@with_flags
def serve(*, flags: ServeFlags) -> None:
    """Serve models over gRPC until Ctrl+C or SIGTERM.

    Once calls are answered, one line of JSON with the port appears on standard output. The log goes to stderr.
    """
    try:
        settings = flags.settings()
    except ConfigurationError as error:
        raise typer.BadParameter(error.message) from error
    logs.set_up(flags.log)
    raise typer.Exit(serve_models(settings, flags.log))

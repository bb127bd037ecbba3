"""`quantra serve`."""

import json
import logging
from pathlib import Path
from typing import Annotated, Final

import typer

from predictor.cli.options import Device
from predictor.errors import ConfigurationError
from predictor.server import DEFAULT_ADDRESS, Address, ServerSettings
from predictor.server import serve as serve_models

_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def serve(  # noqa: PLR0913 - one argument a flag
    *,
    models: Annotated[Path, typer.Option(metavar="DIR", help="Folder of NAME/VERSION artifacts.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Port 0 picks a free one.")] = str(DEFAULT_ADDRESS),
    device: Device = "auto",
    max_batch_rows: Annotated[int, typer.Option(min=1, help="Rows per forward pass at most.")] = 256,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads per forward pass.")] = 1,
    insecure_public: Annotated[
        bool, typer.Option("--insecure-public", help="Allow an address that other machines can reach, unencrypted.")
    ] = False,
    lock: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Serve only versions that sha256sum */*/manifest.json listed in this file."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Serve what comes into the folder; drop what leaves it.")
    ] = False,
    admin_listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where models can be loaded and unloaded; this machine only."),
    ] = None,
    parent_watch: Annotated[
        bool, typer.Option("--parent-watch", help="End when standard input does: with whoever started the server.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Log as JSON too; standard output always is.")] = False,
) -> None:
    """Serve models over gRPC until Ctrl+C or SIGTERM.

    Once calls are answered, one line of JSON with the port appears on standard output. The log goes to stderr.
    """
    try:
        settings = ServerSettings(
            models=models,
            listen=Address.parse(listen),
            insecure_public=insecure_public,
            device=device,
            max_batch_rows=max_batch_rows,
            threads=threads,
            lock=lock,
            watch=watch,
            admin_listen=None if admin_listen is None else Address.parse(admin_listen),
            parent_watch=parent_watch,
        )
    except ConfigurationError as error:
        raise typer.BadParameter(error.message) from error
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLine() if as_json else logging.Formatter(_LINE))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    raise typer.Exit(serve_models(settings))


class _JsonLine(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)

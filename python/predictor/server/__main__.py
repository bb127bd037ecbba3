"""`python -m predictor.server`: the server with the core packages alone."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from predictor.errors import ConfigurationError
from predictor.server import DEFAULT_ADDRESS, Address, ServerSettings, serve
from predictor.server.logs import LogSettings, write_log


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and serve; the exit status is 0, 1 (could not start) or 2 (bad usage)."""
    parser = _parser()
    options = parser.parse_args(arguments)
    log = LogSettings(options.log_level.upper())
    write_log(log)
    try:
        settings = ServerSettings(
            models=options.models,
            listen=Address.parse(options.listen),
            insecure_public=options.insecure_public,
            device=options.device,
            max_batch_rows=options.max_batch_rows,
            threads=options.threads,
            lock=options.lock,
            watch=options.watch,
            admin_listen=None if options.admin_listen is None else Address.parse(options.admin_listen),
            processes=options.processes,
            parent_watch=options.parent_watch,
        )
    except ConfigurationError as error:
        parser.error(error.message)
    return serve(settings, log)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m predictor.server",
        description="Serve forecasting models over gRPC.",
        epilog="example: python -m predictor.server --models models --listen 127.0.0.1:0",
    )
    parser.add_argument("--models", type=Path, required=True, help="folder of NAME/VERSION artifacts")
    parser.add_argument("--listen", default=str(DEFAULT_ADDRESS), help="HOST:PORT; port 0 picks one [%(default)s]")
    parser.add_argument("--insecure-public", action="store_true", help="allow an address that other machines reach")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N [%(default)s]")
    parser.add_argument("--max-batch-rows", type=int, default=256, help="rows of one forward [%(default)s]")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of one forward [%(default)s]")
    parser.add_argument("--lock", type=Path, help="what sha256sum */*/manifest.json printed in the folder of models")
    parser.add_argument("--watch", action="store_true", help="follow what changes in the folder of models")
    parser.add_argument("--admin-listen", help="HOST:PORT of this machine where models can be loaded and unloaded")
    parser.add_argument("--processes", type=int, default=1, help="that answer on the one port; Linux [%(default)s]")
    parser.add_argument("--parent-watch", action="store_true", help="end when standard input does")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""`python -m predictor.server`: the server with the core packages alone."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from predictor.errors import ConfigurationError
from predictor.server import (
    DEFAULT_ADDRESS,
    ServerLimits,
    ServerSettings,
    TlsFiles,
    logs,
    parse_listening,
    serve,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and serve; the exit status is 0, 1 (could not start) or 2 (bad usage)."""
    parser = _parser()
    options = parser.parse_args(arguments)
    log = logs.LogSettings(options.log_level, as_json=options.json)
    logs.set_up(log)
    try:
        settings = ServerSettings(
            models=options.models,
            listen=parse_listening(options.listen),
            insecure_public=options.insecure_public,
            tls=TlsFiles.of(options.tls_cert, options.tls_key, options.tls_client_ca),
            token_file=options.token_file,
            token=os.environ.get("QUANTRA_TOKEN", ""),
            device=options.device,
            max_batch_rows=options.max_batch_rows,
            threads=options.threads,
            lock=options.lock,
            watch=options.watch,
            max_age_sessions=options.max_age,
            admin_listen=None if options.admin_listen is None else parse_listening(options.admin_listen),
            processes=options.processes,
            parent_watch=options.parent_watch,
            metrics_port=options.metrics_port,
            otel=options.otel,
            limits=ServerLimits(streams=options.max_streams),
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
    parser.add_argument("--listen", default=str(DEFAULT_ADDRESS), help="HOST:PORT, 0 = any, or unix:PATH [%(default)s]")
    parser.add_argument("--insecure-public", action="store_true", help="allow other machines to connect without TLS")
    parser.add_argument("--tls-cert", type=Path, help="PEM file: the server's certificate")
    parser.add_argument("--tls-key", type=Path, help="PEM file: its private key")
    parser.add_argument("--tls-client-ca", type=Path, help="PEM file: whose certificates callers must show")
    parser.add_argument("--token-file", type=Path, help="who may call what: lines of NAME ROLE[,ROLE] TOKEN")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N [%(default)s]")
    parser.add_argument("--max-batch-rows", type=int, default=256, help="rows of one forward [%(default)s]")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of one forward [%(default)s]")
    parser.add_argument("--lock", type=Path, help="what sha256sum */*/manifest.json printed in the folder of models")
    parser.add_argument("--watch", action="store_true", help="follow what changes in the folder of models")
    parser.add_argument("--max-age", type=int, help="sessions that may have closed since the last bar of a prediction")
    parser.add_argument("--admin-listen", help="HOST:PORT or unix:PATH where models can be loaded and unloaded")
    parser.add_argument("--processes", type=int, default=1, help="that answer on the one port; Linux [%(default)s]")
    most = ServerLimits().streams
    parser.add_argument("--max-streams", type=int, default=most, help="that may be open at once [%(default)s]")
    parser.add_argument("--parent-watch", action="store_true", help="end when standard input does")
    parser.add_argument("--metrics-port", type=int, help="port of 127.0.0.1 where Prometheus reads; 0 picks one")
    parser.add_argument("--otel", action="store_true", help="a span of each call, sent as the variables OTEL_* say")
    parser.add_argument("--log-level", default="info", choices=logs.LEVELS, help="of what is logged [%(default)s]")
    parser.add_argument("--json", action="store_true", help="log as JSON too; standard output always is")
    return parser


if __name__ == "__main__":
    sys.exit(main())

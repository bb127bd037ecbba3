"""`quantra serve`."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from predictor.cli.options import Device
from predictor.errors import ConfigurationError
from predictor.server import DEFAULT_ADDRESS, ServerLimits, ServerSettings, TlsFiles, logs, parse_listening
from predictor.server import serve as serve_models

LogLevel = Literal["debug", "info", "warning", "error"]


def serve(  # noqa: PLR0913 - one argument a flag
    *,
    models: Annotated[Path, typer.Option(metavar="DIR", help="Folder of NAME/VERSION artifacts.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Or unix:PATH. Port 0 picks a free one.")] = str(
        DEFAULT_ADDRESS
    ),
    device: Device = "auto",
    max_batch_rows: Annotated[int, typer.Option(min=1, help="Rows per forward pass at most.")] = 256,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads per forward pass.")] = 1,
    insecure_public: Annotated[
        bool, typer.Option("--insecure-public", help="Allow an address that other machines can reach, unencrypted.")
    ] = False,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Encrypt: the server's certificate, PEM; read again on change.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key, PEM.")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take calls only with certificates of these authorities, PEM.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Who may call what: lines of NAME ROLE[,ROLE] TOKEN; read again on change."),
    ] = None,
    lock: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Serve only versions that sha256sum */*/manifest.json listed in this file."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Serve what comes into the folder; drop what leaves it.")
    ] = False,
    max_age: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Refuse bars after whose last one more than N sessions have closed."),
    ] = None,
    admin_listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where models can be loaded and unloaded, or unix:PATH."),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes that answer on the one port; Linux.")] = 1,
    max_streams: Annotated[
        int, typer.Option(min=1, help="Streams that may be open at once; each may hold 16 MiB of a request.")
    ] = ServerLimits().streams,
    parent_watch: Annotated[
        bool, typer.Option("--parent-watch", help="End when standard input does: with whoever started the server.")
    ] = False,
    metrics_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Where Prometheus reads, on 127.0.0.1; 0 picks a free one.")
    ] = None,
    otel: Annotated[
        bool, typer.Option("--otel", help="A span of each call for OpenTelemetry, sent as the variables OTEL_* say.")
    ] = False,
    log_level: Annotated[LogLevel, typer.Option(help="At debug, a line for every call.")] = "info",
    as_json: Annotated[bool, typer.Option("--json", help="Log as JSON too; standard output always is.")] = False,
) -> None:
    """Serve models over gRPC until Ctrl+C or SIGTERM.

    Once calls are answered, one line of JSON with the port appears on standard output. The log goes to stderr.
    """
    try:
        settings = ServerSettings(
            models=models,
            listen=parse_listening(listen),
            insecure_public=insecure_public,
            tls=TlsFiles.of(tls_cert, tls_key, tls_client_ca),
            token_file=token_file,
            token=os.environ.get("QUANTRA_TOKEN", ""),
            device=device,
            max_batch_rows=max_batch_rows,
            threads=threads,
            lock=lock,
            watch=watch,
            max_age_sessions=max_age,
            admin_listen=None if admin_listen is None else parse_listening(admin_listen),
            processes=processes,
            parent_watch=parent_watch,
            metrics_port=metrics_port,
            otel=otel,
            limits=ServerLimits(streams=max_streams),
        )
    except ConfigurationError as error:
        raise typer.BadParameter(error.message) from error
    log = logs.LogSettings(log_level, as_json=as_json)
    logs.set_up(log)
    raise typer.Exit(serve_models(settings, log))

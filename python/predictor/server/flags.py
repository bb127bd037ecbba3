"""The command line flags of `quantra serve` and `python -m predictor.server`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, final

from predictor.catalog import EngineName
from predictor.flags import Flag
from predictor.server.address import DEFAULT_ADDRESS, parse_listening
from predictor.server.certificates import TlsFiles
from predictor.server.logs import LogSettings
from predictor.server.settings import LedgerMode, ServerLimits, ServerSettings


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServeFlags:
    """The flags of a server."""

    models: Annotated[Path, Flag("Folder of NAME/VERSION artifacts.", metavar="DIR")] = Path("models")
    listen: Annotated[str, Flag("Or unix:PATH. Port 0 picks a free one.", metavar="HOST:PORT")] = str(DEFAULT_ADDRESS)
    device: Annotated[str, Flag("Device to compute on: auto, cpu, cuda or cuda:N.")] = "auto"
    max_batch_rows: Annotated[int, Flag("Rows per forward pass at most.", minimum=1)] = 256
    threads: Annotated[int, Flag("CPU threads per forward pass.", minimum=1)] = 1
    engine: Annotated[EngineName, Flag("onnxruntime: where it is faster than torch; extra onnx.")] = "eager"
    insecure_public: Annotated[bool, Flag("Allow an address that other machines can reach, unencrypted.")] = False
    tls_cert: Annotated[
        Path | None, Flag("Enable TLS with this server certificate, PEM; reloaded on change.", metavar="FILE")
    ] = None
    tls_key: Annotated[Path | None, Flag("Its private key, PEM.", metavar="FILE")] = None
    tls_client_ca: Annotated[
        Path | None, Flag("Require client certificates of these authorities, PEM.", metavar="FILE")
    ] = None
    token_file: Annotated[
        Path | None, Flag("Access tokens: lines of NAME ROLE[,ROLE] TOKEN; reloaded on change.", metavar="FILE")
    ] = None
    lock: Annotated[
        Path | None, Flag("Serve only versions in this output of sha256sum */*/manifest.json.", metavar="FILE")
    ] = None
    watch: Annotated[bool, Flag("Apply changes of the models folder while serving.")] = False
    max_age: Annotated[
        int | None, Flag("Reject bars if more than N sessions have closed since the last one.", metavar="N", minimum=0)
    ] = None
    ledger: Annotated[str, Flag("Record forecasts in this ledger, and read it for clients.", metavar="LEDGER")] = ""
    ledger_mode: Annotated[LedgerMode, Flag("behind: record soon after the answer; strict: before it.")] = "behind"
    adaptive: Annotated[bool, Flag("Use the widths that quantra daily --adaptive records in the ledger.")] = False
    admin_listen: Annotated[
        str | None, Flag("Admin address to load and unload models, or unix:PATH.", metavar="HOST:PORT")
    ] = None
    processes: Annotated[int, Flag("Number of processes that share the port; Linux only.", minimum=1)] = 1
    max_streams: Annotated[int, Flag("Most open streams; each may buffer a 16 MiB request.", minimum=1)] = (
        ServerLimits().streams
    )
    parent_watch: Annotated[bool, Flag("Exit when standard input closes, that is, when the parent exits.")] = False
    metrics_port: Annotated[
        int | None, Flag("Prometheus metrics port on 127.0.0.1; 0 picks a free one.", metavar="PORT")
    ] = None
    otel: Annotated[bool, Flag("Export an OpenTelemetry span per call; configure with OTEL_* variables.")] = False
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Flag("debug logs every call.")] = "info"
    as_json: Annotated[bool, Flag("Log as JSON; standard output is always JSON.", spelling="--json")] = False

    def settings(self) -> ServerSettings:
        """Create the server's settings, with the tokens of the variables QUANTRA_TOKEN and QUANTRA_ADMIN_TOKEN.

        Raises:
            ConfigurationError: An address is invalid, half of TLS is missing, or as `ServerSettings`.
        """
        return ServerSettings(
            models=self.models,
            listen=parse_listening(self.listen),
            insecure_public=self.insecure_public,
            tls=TlsFiles.of(self.tls_cert, self.tls_key, self.tls_client_ca),
            token_file=self.token_file,
            token=os.environ.get("QUANTRA_TOKEN", ""),
            admin_token=os.environ.get("QUANTRA_ADMIN_TOKEN", ""),
            device=self.device,
            max_batch_rows=self.max_batch_rows,
            threads=self.threads,
            engine=self.engine,
            lock=self.lock,
            watch=self.watch,
            max_age_sessions=self.max_age,
            ledger=self.ledger,
            ledger_mode=self.ledger_mode,
            adaptive=self.adaptive,
            admin_listen=None if self.admin_listen is None else parse_listening(self.admin_listen),
            processes=self.processes,
            parent_watch=self.parent_watch,
            metrics_port=self.metrics_port,
            otel=self.otel,
            limits=ServerLimits(streams=self.max_streams),
        )

    @property
    def log(self) -> LogSettings:
        """The log settings."""
        return LogSettings(self.log_level, as_json=self.as_json)

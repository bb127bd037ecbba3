"""Limits and settings of a server, and the command line flags of `quantra serve` and `python -m predictor.server`."""

import os
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, final

from predictor.catalog import EngineName
from predictor.errors import ConfigurationError
from predictor.flags import Flag
from predictor.limits import ServiceLimits
from predictor.server.addresses import DEFAULT_ADDRESS, LAST_PORT, Address, ListenAddress, parse_listening
from predictor.server.credentials import TlsFiles
from predictor.server.logs import LogSettings

LedgerMode = Literal["behind", "strict"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Limits of one server. A caller that exceeds one gets RESOURCE_EXHAUSTED; others are unaffected.

    Raises:
        ConfigurationError: A limit is too small.
    """

    receive_bytes: int = 16 * _MIB
    """Largest request."""
    send_bytes: int = 16 * _MIB
    """Largest response; clients must raise their default limit of 4 MiB."""
    metadata_bytes: int = 8 * 1024
    """Total size of a call's headers."""
    connections: int = 2048
    """Most open connections. A further one closes the one that is idle for longest; first, those without any call."""
    calls_in_flight: int = 1024
    """Most calls in flight, from arrival until the response is sent; one more is QUEUE_FULL."""
    calls_per_peer: int = 512
    """Most calls in flight per connection."""
    unread_bytes: int = 256 * _MIB
    """Most bytes of responses that callers do not read. Beyond it, the connection with the most is closed."""
    unread_bytes_per_peer: int = 64 * _MIB
    """The same per connection. Beyond it, a further response is QUEUE_FULL."""
    streams: int = 64
    """Most open request streams, watchers and simulations of paths; one more is QUEUE_FULL. This is the only bound on
    their memory: each may hold an incomplete message of `receive_bytes`, or 16 MB of paths."""
    streams_per_peer: int = 32
    """Most open streams per connection. A client needs one for all of its sessions."""
    arriving: int = 6
    """Most requests received at once, each of up to `receive_bytes`; others wait for a slot. One that takes longer
    than a second while others wait is QUEUE_FULL. Up to 64 KiB arrive without a slot."""
    arriving_per_peer: int = 3
    """Most requests received at once per connection."""
    request_s: float = 30.0
    """Longest time for a request to arrive, in seconds."""
    handshake_s: float = 10.0
    """Seconds in which a connection must begin to speak HTTP/2."""
    idle_s: float = 300.0
    """Seconds after which a connection without calls is closed; clients reconnect when needed."""
    age_s: float = 3600.0
    """Seconds after which a TLS connection that has had a call accepts no new one and clients reconnect. A revoked
    certificate is valid for at most that long on an existing connection, or `idle_s` if that is longer."""
    silence_s: float = 60.0
    """Seconds after which a silent connection is pinged; without a reply within the same time, it is closed."""
    stuck_s: float = 30.0
    """Seconds after which a worker process with an unresponsive event loop is killed and replaced. Forward passes do
    not block the loop."""
    drain_s: float = 30.0
    """Time for calls in flight after the signal to stop."""
    service: ServiceLimits = field(default_factory=ServiceLimits)
    """Limits of the queues of the whole process."""

    def __post_init__(self) -> None:
        """Reject limits that would block every call."""
        for limit in fields(self):
            value: Any = getattr(self, limit.name)
            if limit.type is int and value < 1:
                raise ConfigurationError(f"{limit.name} is {value}, but must be at least 1")
            if limit.type is float and limit.name != "drain_s" and not value > 0:
                raise ConfigurationError(f"{limit.name} is {value:g} seconds, but must be above 0")
        if not self.drain_s >= 0:
            raise ConfigurationError(f"drain_s is {self.drain_s:g} seconds, but must be 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """Settings of a server that have the same name and type as flags."""

    insecure_public: Annotated[bool, Flag("Allow an address that other machines can reach, unencrypted.")] = False
    token_file: Annotated[
        Path | None, Flag("Access tokens: lines of NAME ROLE[,ROLE] TOKEN; reloaded on change.", metavar="FILE")
    ] = None
    """None: anyone may call, unless `token` or `admin_token` of the settings is set."""
    device: Annotated[str, Flag("Device to compute on: auto, cpu, cuda or cuda:N.")] = "auto"
    max_batch_rows: Annotated[int, Flag("Rows per forward pass at most.", minimum=1)] = 256
    threads: Annotated[int, Flag("CPU threads per forward pass.", minimum=1)] = 1
    """Each model already has a thread; more help only wide networks."""
    engine: Annotated[EngineName, Flag("onnxruntime: where it is faster than torch; extra onnx.")] = "eager"
    lock: Annotated[
        Path | None, Flag("Serve only versions in this output of sha256sum */*/manifest.json.", metavar="FILE")
    ] = None
    """None: all versions."""
    watch: Annotated[bool, Flag("Apply changes of the models folder while serving.")] = False
    ledger: Annotated[str, Flag("Record forecasts in this ledger, and read it for clients.", metavar="LEDGER")] = ""
    """Made if it is missing; empty: disabled."""
    ledger_mode: Annotated[LedgerMode, Flag("behind: record soon after the answer; strict: before it.")] = "behind"
    """`behind` goes on if recording fails; `strict` rejects the request."""
    adaptive: Annotated[bool, Flag("Use the widths that quantra daily --adaptive records in the ledger.")] = False
    processes: Annotated[int, Flag("Number of processes that share the port; Linux only.", minimum=1)] = 1
    """Models and limits are per process."""
    parent_watch: Annotated[bool, Flag("Exit when standard input closes, that is, when the parent exits.")] = False
    metrics_port: Annotated[
        int | None, Flag("Prometheus metrics port on 127.0.0.1; 0 picks a free one.", metavar="PORT")
    ] = None
    otel: Annotated[bool, Flag("Export an OpenTelemetry span per call; configure with OTEL_* variables.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(ServingOptions):
    """The settings of one server.

    Raises:
        ConfigurationError: A public address without TLS or `insecure_public`; a public admin address without TLS and
            tokens; TLS with Unix sockets only; several processes not on Linux or on a Unix socket; an invalid port.
    """

    models: Path
    """Folder of NAME/VERSION artifacts."""
    listen: ListenAddress = DEFAULT_ADDRESS
    tls: TlsFiles | None = None
    """Certificate files for every address except Unix sockets; None: no encryption."""
    token: str = field(default="", repr=False)
    """An additional token with the roles predict, explain and reader; empty: none."""
    admin_token: str = field(default="", repr=False)
    """An additional token with the role admin; empty: none."""
    max_age_sessions: int | None = None
    """Largest number of sessions closed since the last bar of an instance, by the model's calendar; None: any."""
    admin_listen: ListenAddress | None = None
    """Address to load, unload and reload models; None: disabled. Without tokens, anyone may call it."""
    limits: ServerLimits = field(default_factory=ServerLimits)

    def __post_init__(self) -> None:
        """Reject invalid settings, such as an unintended public address."""
        if self.processes < 1:
            raise ConfigurationError(f"processes is {self.processes}, but must be at least 1")
        if self.processes > 1 and sys.platform != "linux":
            raise ConfigurationError(
                "several processes on one port need Linux; here, start a server on each of several ports"
            )
        if self.processes > 1 and not isinstance(self.listen, Address):
            raise ConfigurationError("several processes cannot share a Unix socket; listen on HOST:PORT")
        if self.metrics_port is not None and not 0 <= self.metrics_port <= LAST_PORT:
            raise ConfigurationError(f"metrics port {self.metrics_port} is invalid; use 0 to {LAST_PORT}")
        if self.max_age_sessions is not None and self.max_age_sessions < 0:
            raise ConfigurationError(f"max_age_sessions is {self.max_age_sessions}, but must be 0 or more")
        if not self.ledger and self.ledger_mode == "strict":
            raise ConfigurationError("--ledger-mode strict records nothing without a ledger; add --ledger LEDGER")
        if not self.ledger and self.adaptive:
            raise ConfigurationError("--adaptive has no widths without a ledger; add --ledger LEDGER")
        if not self.listen.is_loopback and self.tls is None and not self.insecure_public:
            raise ConfigurationError(
                f"{self.listen} is reachable from other machines without encryption; listen on 127.0.0.1, set "
                "--tls-cert and --tls-key, or pass --insecure-public to allow it"
            )
        is_public = self.admin_listen is not None and not self.admin_listen.is_loopback
        if is_public and (self.tls is None or self.token_file is None):
            raise ConfigurationError(
                f"admin address {self.admin_listen} is reachable from other machines; listen on 127.0.0.1, or set "
                "--tls-cert, --tls-key and --token-file"
            )
        addresses = (self.listen, self.admin_listen)
        if self.tls is not None and not any(isinstance(address, Address) for address in addresses):
            raise ConfigurationError("a Unix socket has no TLS; remove --tls-cert, or listen on HOST:PORT")

    @property
    def is_open(self) -> bool:
        """Whether other machines can reach it without authentication."""
        has_tokens = self.token_file is not None or bool(self.token) or bool(self.admin_token)
        has_client_certificates = self.tls is not None and self.tls.client_ca is not None
        return not self.listen.is_loopback and not has_tokens and not has_client_certificates


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServeFlags(ServingOptions):
    """The flags of a server."""

    models: Annotated[Path, Flag("Folder of NAME/VERSION artifacts.", metavar="DIR")] = Path("models")
    listen: Annotated[str, Flag("Or unix:PATH. Port 0 picks a free one.", metavar="HOST:PORT")] = str(DEFAULT_ADDRESS)
    tls_cert: Annotated[
        Path | None, Flag("Enable TLS with this server certificate, PEM; reloaded on change.", metavar="FILE")
    ] = None
    tls_key: Annotated[Path | None, Flag("Its private key, PEM.", metavar="FILE")] = None
    tls_client_ca: Annotated[
        Path | None, Flag("Require client certificates of these authorities, PEM.", metavar="FILE")
    ] = None
    max_age: Annotated[
        int | None, Flag("Reject bars if more than N sessions have closed since the last one.", metavar="N", minimum=0)
    ] = None
    admin_listen: Annotated[
        str | None, Flag("Admin address to load and unload models, or unix:PATH.", metavar="HOST:PORT")
    ] = None
    max_streams: Annotated[int, Flag("Most open streams; each may buffer a 16 MiB request.", minimum=1)] = (
        ServerLimits().streams
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Flag("debug logs every call.")] = "info"
    as_json: Annotated[bool, Flag("Log as JSON; standard output is always JSON.", spelling="--json")] = False

    def settings(self) -> ServerSettings:
        """Create the server's settings, with the tokens of the variables QUANTRA_TOKEN and QUANTRA_ADMIN_TOKEN.

        Raises:
            ConfigurationError: An address is invalid, half of TLS is missing, or as `ServerSettings`.
        """
        return ServerSettings(
            **{option.name: getattr(self, option.name) for option in fields(ServingOptions)},
            models=self.models,
            listen=parse_listening(self.listen),
            tls=TlsFiles.of(self.tls_cert, self.tls_key, self.tls_client_ca),
            token=os.environ.get("QUANTRA_TOKEN", ""),
            admin_token=os.environ.get("QUANTRA_ADMIN_TOKEN", ""),
            max_age_sessions=self.max_age,
            admin_listen=None if self.admin_listen is None else parse_listening(self.admin_listen),
            limits=ServerLimits(streams=self.max_streams),
        )

    @property
    def log(self) -> LogSettings:
        """The log settings."""
        return LogSettings(self.log_level, as_json=self.as_json)

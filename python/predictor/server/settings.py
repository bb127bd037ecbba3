"""A server's settings, and the bounds that it keeps."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from predictor.errors import ConfigurationError
from predictor.limits import ServiceLimits
from predictor.server.address import DEFAULT_ADDRESS, LAST_PORT, Address, Listening
from predictor.server.certificates import TlsFiles

_MIB = 1024 * 1024
_COUNTS = (
    "receive_bytes",
    "send_bytes",
    "metadata_bytes",
    "calls_in_flight",
    "calls_per_peer",
    "streams",
    "streams_per_peer",
    "arriving",
    "arriving_per_peer",
    "pending_calls",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Bounds of one server. Beyond each, callers get RESOURCE_EXHAUSTED and others are served on.

    Raises:
        ConfigurationError: a bound below 1.
    """

    receive_bytes: int = 16 * _MIB
    """Largest request."""
    send_bytes: int = 16 * _MIB
    """Largest answer; Python and .NET clients must allow it: their own default is 4 MiB."""
    metadata_bytes: int = 8 * 1024
    """All of a call's headers together."""
    calls_in_flight: int = 1024
    """Calls that may be under way at once, from their arrival until their answer is sent; one more is QUEUE_FULL."""
    calls_per_peer: int = 512
    """As many of them may come over one connection."""
    streams: int = 64
    """As many of them may be streams of requests, which stay for as long as they like; one more is QUEUE_FULL. gRPC
    cannot tell a stream that is idle from one that has sent half a message, so each may hold one of `receive_bytes`:
    this number bounds that memory, and nothing else does."""
    streams_per_peer: int = 32
    """As many of them may come over one connection. A client needs one for all of its sessions."""
    arriving: int = 6
    """Requests that are taken in at once, each of up to `receive_bytes`; others wait for a place, and one that takes
    longer than a second meanwhile is QUEUE_FULL. gRPC copies each, 16 MiB in 15 ms, on the thread
    that answers health."""
    arriving_per_peer: int = 3
    """As many of them may come over one connection."""
    request_s: float = 30.0
    """Seconds in which a request must arrive."""
    pending_calls: int = 100_000
    """Calls that gRPC has received and Python has not seen yet. Beyond it gRPC drops calls at random, as CANCELLED and
    without a reason, so it lies far above `calls_in_flight`, which refuses in order and says why."""
    handshake_s: float = 10.0
    """Seconds in which a connection must begin to speak HTTP/2."""
    idle_s: float = 300.0
    """Seconds after which a connection without a call ends; clients open another one when they need it."""
    age_s: float = 3600.0
    """Seconds after which a connection with TLS takes no further call, and clients open another one: what a certificate
    was good for when it was made, it is good for so long after the certificate was taken away."""
    silence_s: float = 60.0
    """Seconds after which a connection on which nothing moves is asked whether it is there; one that does not say so
    within as many more ends, with its streams."""
    stuck_s: float = 30.0
    """Seconds after which one of several processes, whose event loop answers nothing meanwhile, is killed and replaced.
    Forwards do not hold it up: long before, its health and its calls have no answer."""
    drain_s: float = 30.0
    """How long calls in flight may finish after the signal to stop."""
    service: ServiceLimits = field(default_factory=ServiceLimits)
    """What may wait for its answer in the whole process, whatever door it came through."""

    def __post_init__(self) -> None:
        """Refuse bounds that let nothing through."""
        for name in _COUNTS:
            value: int = getattr(self, name)
            if value < 1:
                raise ConfigurationError(f"{name} is {value}, but must be at least 1")
        for name in ("request_s", "handshake_s", "idle_s", "age_s", "silence_s", "stuck_s"):
            seconds: float = getattr(self, name)
            if not seconds > 0:
                raise ConfigurationError(f"{name} is {seconds:g} seconds, but must be above 0")
        if not self.drain_s >= 0:
            raise ConfigurationError(f"drain_s is {self.drain_s:g} seconds, but must be 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Everything about one server.

    Raises:
        ConfigurationError: an address that other machines reach, without TLS or `insecure_public`, or for changes
            without TLS and tokens; TLS without an address that has it; several processes where the system does not
            share a port among them as Linux does, or without a port; a port that is none.
    """

    models: Path
    """Folder of NAME/VERSION artifacts."""
    listen: Listening = DEFAULT_ADDRESS
    insecure_public: bool = False
    """Allow an address that other machines reach without TLS: whoever is between can read and change what is said."""
    tls: TlsFiles | None = None
    """What the server shows of itself, on every address but Unix sockets; None: nothing is encrypted."""
    token_file: Path | None = None
    """Who may call what, a token a line; None: whoever reaches the server may, unless there is `token`."""
    token: str = field(default="", repr=False)
    """One more token, good to predict and explain; empty: none."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda` or `cuda:N`."""
    max_batch_rows: int = 256
    """Rows of one forward at most."""
    threads: int = 1
    """CPU threads of one forward. Each model has a thread of its own already; more pay off for wide networks alone."""
    lock: Path | None = None
    """What `sha256sum */*/manifest.json` printed in the folder of models: versions that may be served; None: all."""
    watch: bool = False
    """Serve what comes into the folder, and no more what leaves it."""
    max_age_sessions: int | None = None
    """Sessions of a model's calendar that may have closed since the last bar of what is predicted; None: any number."""
    admin_listen: Listening | None = None
    """Where models can be loaded, unloaded and read again; None: nowhere. Without `token_file` nobody is asked who they
    are there."""
    metrics_port: int | None = None
    """Where Prometheus reads, on 127.0.0.1 alone, in [0, 65535]; 0 = any free port; None: nowhere."""
    otel: bool = False
    """Make a span of each call for OpenTelemetry; where they go is told by the variables OTEL_*."""
    processes: int = 1
    """How many answer on the one port; more than one on Linux alone. Each loads the models, and has the limits."""
    parent_watch: bool = False
    """End, within 5 seconds, when standard input does: with whoever started the server, however that dies."""
    limits: ServerLimits = field(default_factory=ServerLimits)

    def __post_init__(self) -> None:
        """Refuse to be public by accident."""
        self._check_processes()
        if self.metrics_port is not None and not 0 <= self.metrics_port <= LAST_PORT:
            raise ConfigurationError(f"the port {self.metrics_port} for metrics is none; use 0 to {LAST_PORT}")
        if self.max_age_sessions is not None and self.max_age_sessions < 0:
            raise ConfigurationError(f"max_age_sessions is {self.max_age_sessions}, but must be 0 or more")
        if not self.listen.is_loopback and self.tls is None and not self.insecure_public:
            raise ConfigurationError(
                f"{self.listen} can be reached from other machines, without encryption; listen on 127.0.0.1, give "
                "--tls-cert and --tls-key, or pass --insecure-public if that is meant"
            )
        is_public = self.admin_listen is not None and not self.admin_listen.is_loopback
        if is_public and (self.tls is None or self.token_file is None):
            raise ConfigurationError(
                f"{self.admin_listen} can be reached from other machines, and who reaches it can change the models; "
                "listen for changes on 127.0.0.1, or give --tls-cert, --tls-key and --token-file"
            )
        if self.tls is not None and not any(isinstance(one, Address) for one in (self.listen, self.admin_listen)):
            raise ConfigurationError("a Unix socket has no TLS; take --tls-cert away, or listen on HOST:PORT")

    def _check_processes(self) -> None:
        if self.processes < 1:
            raise ConfigurationError(f"processes is {self.processes}, but must be at least 1")
        if self.processes > 1 and sys.platform != "linux":
            raise ConfigurationError(
                "several processes on one port need Linux; here, start a server on each of several ports"
            )
        if self.processes > 1 and not isinstance(self.listen, Address):
            raise ConfigurationError("several processes share a port, and no Unix socket; listen on HOST:PORT")

    @property
    def is_open(self) -> bool:
        """Whether other machines reach it, and whoever does may ask."""
        asks = (
            self.token_file is not None or bool(self.token) or (self.tls is not None and self.tls.client_ca is not None)
        )
        return not self.listen.is_loopback and not asks

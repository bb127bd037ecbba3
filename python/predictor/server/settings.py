"""A server's settings, and the bounds that it keeps."""

import ipaddress
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from predictor.errors import ConfigurationError
from predictor.limits import ServiceLimits

_MIB = 1024 * 1024
_COUNTS = (
    "receive_bytes",
    "send_bytes",
    "metadata_bytes",
    "calls_in_flight",
    "calls_per_peer",
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
    arriving: int = 6
    """Requests that are taken in at once, each of up to `receive_bytes`; others wait for a place, and one that takes
    longer than a second meanwhile is QUEUE_FULL. gRPC copies each on the thread that answers health: 16 MiB in 15 ms."""
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
        for name in ("request_s", "handshake_s", "idle_s"):
            seconds: float = getattr(self, name)
            if not seconds > 0:
                raise ConfigurationError(f"{name} is {seconds:g} seconds, but must be above 0")
        if not self.drain_s >= 0:
            raise ConfigurationError(f"drain_s is {self.drain_s:g} seconds, but must be 0 or more")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int
    """0 = any free one."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "HOST:PORT", with brackets around an IPv6 host.

        Raises:
            ConfigurationError: it is not such a text.
        """
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or int(port) > _LAST_PORT:
            raise ConfigurationError(f"the address {text[:80]!r} is not HOST:PORT, such as 127.0.0.1:50051")
        return cls(host, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it; a host name other than localhost counts as public."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_LAST_PORT = 65535
DEFAULT_ADDRESS = Address("127.0.0.1", 50051)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Everything about one server.

    Raises:
        ConfigurationError: an address that other machines reach, without `insecure_public`, or for changes at all;
            several processes where the system does not share a port among them as Linux does.
    """

    models: Path
    """Folder of NAME/VERSION artifacts."""
    listen: Address = DEFAULT_ADDRESS
    insecure_public: bool = False
    """Allow an address that other machines reach: everybody on that network can then ask, unencrypted."""
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
    admin_listen: Address | None = None
    """Where models can be loaded, unloaded and read again; None: nowhere. Nobody is asked who they are there, so this
    machine alone may reach it."""
    processes: int = 1
    """How many answer on the one port; more than one on Linux alone. Each loads the models, and has the limits."""
    parent_watch: bool = False
    """End, within 5 seconds, when standard input does: with whoever started the server, however that dies."""
    limits: ServerLimits = field(default_factory=ServerLimits)

    def __post_init__(self) -> None:
        """Refuse to be public by accident."""
        if self.processes < 1:
            raise ConfigurationError(f"processes is {self.processes}, but must be at least 1")
        if self.processes > 1 and sys.platform != "linux":
            raise ConfigurationError(
                "several processes on one port need Linux; here, start a server on each of several ports"
            )
        if not self.listen.is_loopback and not self.insecure_public:
            raise ConfigurationError(
                f"{self.listen} can be reached from other machines, without encryption or login; listen on 127.0.0.1, "
                "or pass --insecure-public if that is meant"
            )
        if self.admin_listen is not None and not self.admin_listen.is_loopback:
            raise ConfigurationError(
                f"{self.admin_listen} can be reached from other machines, and who reaches it can change the models; "
                "listen for changes on 127.0.0.1"
            )

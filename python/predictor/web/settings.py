"""Settings of the HTTP server."""

from dataclasses import dataclass
from typing import Final, final

from predictor.errors import ConfigurationError
from predictor.server import Address, ServerSettings
from predictor.web.remote_server import RemoteServer

DEFAULT_ADDRESS: Final = Address("127.0.0.1", 50080)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """The settings of one HTTP server.

    Raises:
        ConfigurationError: The address is not HOST:PORT, or other machines can reach it without TLS and tokens.
    """

    server: ServerSettings
    """Settings that the gRPC server has too. Its ledger is shown by the page; forecasts are not recorded in it."""
    remote: RemoteServer | None = None
    """The server whose models it shows; None: those of the models folder."""
    hosts: tuple[str, ...] = ()
    """More names of this server, for the `Host` of requests."""
    origins: tuple[str, ...] = ()
    """Web sites, such as https://example.com, whose pages may call it."""
    opens_browser: bool = False
    """Whether to open the page in a browser."""

    def __post_init__(self) -> None:
        """Reject an address that would be open to others."""
        if "*" in (*self.hosts, *self.origins):
            raise ConfigurationError("'*' would admit every name; name each --host and --allow-origin")
        if self.remote is not None and self.server.ledger:
            raise ConfigurationError("--ledger is for the models of a folder; leave it out with --server")
        has_tokens = self.server.token_file is not None or bool(self.server.token)
        if not self.address.is_loopback and not has_tokens:
            raise ConfigurationError(
                f"other machines can reach {self.address}; listen on 127.0.0.1, or set --tls-cert, --tls-key and "
                "--token-file"
            )

    @property
    def address(self) -> Address:
        """The address to listen on."""
        if not isinstance(self.server.listen, Address):
            raise ConfigurationError("a browser cannot open a Unix socket; listen on HOST:PORT")
        return self.server.listen

"""Where a server listens and how callers reach it: as it is, or through TLS with a token of theirs."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import grpc
import grpc.aio

from benchmarks.faults import http2
from predictor.server.issuing import Issued, issue

UNBOUNDED: Final = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
_OWN: Final = [*UNBOUNDED, ("grpc.use_local_subchannel_pool", 1)]
"""A connection of its own, with no bounds on messages."""


@final
@dataclass(frozen=True, slots=True)
class Secured:
    """What a server with TLS and tokens reads, and what its callers show.

    Attributes:
        folder: Certificates, and a file of tokens.
    """

    folder: Path

    TOKEN = "t" * 40
    """Good for everything."""

    def write(self) -> None:
        """Fill a new folder."""
        issue(self.folder)
        self._tokens.write_text(f"caller predict,explain,admin {self.TOKEN}\n", encoding="utf-8")
        self._tokens.chmod(0o600)

    @property
    def _tokens(self) -> Path:
        return self.folder / "tokens.txt"

    @property
    def options(self) -> tuple[str, ...]:
        """Of the server's command line."""
        issued = Issued(self.folder)
        tls = ("--tls-cert", str(issued.server), "--tls-key", str(issued.server_key))
        return (*tls, "--token-file", str(self._tokens))

    @property
    def headers(self) -> dict[str, str]:
        """Of each call."""
        return {"authorization": f"Bearer {self.TOKEN}"}

    def credentials(self) -> grpc.ChannelCredentials:
        """Of a channel, with the token."""
        tls = grpc.ssl_channel_credentials(Issued(self.folder).ca.read_bytes())
        return grpc.composite_channel_credentials(tls, grpc.access_token_call_credentials(self.TOKEN))

    def context(self) -> ssl.SSLContext:
        """Of a socket that will speak HTTP/2."""
        context = ssl.create_default_context(cafile=str(Issued(self.folder).ca))
        context.set_alpn_protocols(["h2"])
        return context


@final
@dataclass(frozen=True, slots=True)
class Target:
    """A port of 127.0.0.1.

    Attributes:
        port: Where a server listens.
        secured: What callers show there; None: nothing is encrypted.
    """

    port: int
    secured: Secured | None = None

    def __str__(self) -> str:
        return f"127.0.0.1:{self.port}"

    def channel(self) -> grpc.aio.Channel:
        """For calls of an event loop."""
        if self.secured is None:
            return grpc.aio.insecure_channel(str(self), options=_OWN)
        return grpc.aio.secure_channel(str(self), self.secured.credentials(), options=_OWN)

    def blocking_channel(self) -> grpc.Channel:
        """For calls that wait."""
        if self.secured is None:
            return grpc.insecure_channel(str(self), options=_OWN)
        return grpc.secure_channel(str(self), self.secured.credentials(), options=_OWN)

    def connection(self, *, window: int = http2.WHOLE_WINDOW, timeout_s: float = 10.0) -> http2.Connection:
        """For callers that do not behave; as `http2.Connection`."""
        secured = self.secured
        if secured is None:
            return http2.Connection(self.port, window=window, timeout_s=timeout_s)
        return http2.Connection(
            self.port, window=window, timeout_s=timeout_s, tls=secured.context(), headers=secured.headers
        )

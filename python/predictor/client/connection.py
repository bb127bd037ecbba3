"""Addresses, credentials and channels of clients."""

import ipaddress
import os
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar, final

import grpc
import grpc.aio

from predictor.client.calls import OPTIONS, CallTimeout, make_closed_error, validate_timeout
from predictor.client.panels import PanelPlanner
from predictor.errors import ConfigurationError
from predictor.pem import load_authorities, load_pair, read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE: Final = "QUANTRA_TOKEN"
"""Environment variable of the default token."""
_LOCAL_SCHEMES: Final = ("unix:", "unix-abstract:")
_SCHEME: Final = re.compile(r"dns:(///)?|ipv4:|ipv6:")
_BRACKETED: Final = re.compile(r"\[([^]]*)\](:\d+)?")
_SENDABLE: Final = re.compile(r"[!-~]*")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """TLS files and token of a client.

    Attributes:
        ca: PEM file of the trusted certificate authorities; enables TLS. To trust the system's authorities, use its
            file, such as /etc/ssl/certs/ca-certificates.crt. None: plain text.
        cert: PEM file of the client certificate, if the server requires one.
        key: PEM file of the client's private key.
        token: token sent with each call. None: the value of QUANTRA_TOKEN, if set. "": no token.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token: str | None = field(default=None, repr=False)


@final
@dataclass(frozen=True, slots=True)
class ChannelOptions:
    """Credentials, headers and options of a channel.

    Attributes:
        credentials: TLS credentials; None: plain text.
        headers: headers of each call.
        options: gRPC channel options.
    """

    credentials: grpc.ChannelCredentials | None
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    options: tuple[tuple[str, int], ...] = OPTIONS

    @classmethod
    def to(cls, target: str, credentials: ClientCredentials) -> Self:
        """Create the options for a target.

        Raises:
            ConfigurationError: a file cannot be read; a certificate has no key or a key no certificate; a certificate
                is set without `ca`; the token would cross a network in plain text, or has invalid characters.
        """
        token = _read_token(credentials)
        if credentials.ca is None and (credentials.cert is not None or credentials.key is not None):
            raise ConfigurationError("a client certificate needs TLS: pass ca= (--tls-ca) too")
        if (credentials.cert is None) != (credentials.key is None):
            raise ConfigurationError("cert= and key= (--tls-cert, --tls-key) belong together; pass both or neither")
        if not token:
            return cls(_make_tls(credentials), ())
        if credentials.ca is None and not is_local(target):
            raise ConfigurationError(
                f"the token would go to {target} in plain text; pass ca= (--tls-ca), or send no token: pass token='', "
                f"or unset {VARIABLE}"
            )
        # gRPC uses proxies from the environment, even for local addresses.
        direct = () if credentials.ca is not None else (("grpc.enable_http_proxy", 0),)
        return cls(_make_tls(credentials), (("authorization", f"Bearer {token}"),), (*OPTIONS, *direct))


def open_channel(target: str, options: ChannelOptions) -> grpc.Channel:
    """Open a channel to a target."""
    if options.credentials is None:
        return grpc.insecure_channel(target, options=options.options)
    return grpc.secure_channel(target, options.credentials, options=options.options)


def options_for(target: str, credentials: ClientCredentials | None, *, has_channel: bool) -> ChannelOptions:
    """Return the channel options for a target.

    Args:
        target: gRPC target.
        credentials: the caller's credentials, if any.
        has_channel: whether the caller passes a channel.

    Raises:
        ConfigurationError: both credentials and a channel are given; or see `ChannelOptions.to`.
    """
    if not has_channel:
        return ChannelOptions.to(target, credentials or ClientCredentials())
    if credentials is not None:
        raise ConfigurationError("a channel has its own credentials; pass credentials= or channel=, not both")
    return ChannelOptions(None, ())


ChannelT = TypeVar("ChannelT", grpc.Channel, grpc.aio.Channel)


class ServerClient(Generic[ChannelT]):
    """The channel of a client to one server, and what its calls have in common."""

    def __init__(
        self,
        target: str,
        model: str,
        timeout_s: float,
        credentials: ClientCredentials | None,
        channel: ChannelT | None,
        open_channel: "Callable[[str, ChannelOptions], ChannelT]",
    ) -> None:
        self._target = target if channel is not None else target_of(target, credentials)
        self._model, self._planner = model, PanelPlanner(model)
        self._timeout_s = validate_timeout(timeout_s)
        options = options_for(self._target, credentials, has_channel=channel is not None)
        self._headers = options.headers
        self._is_own = channel is None
        """Whether to close the channel with the client."""
        self._channel = open_channel(self._target, options) if channel is None else channel
        self._is_closed = False

    def _check_open(self) -> None:
        if self._is_closed:
            raise make_closed_error(self._target)

    def _start_timeout(self, timeout_s: float | None) -> CallTimeout:
        return CallTimeout.after(self._timeout_s if timeout_s is None else validate_timeout(timeout_s))


def is_local(target: str) -> bool:
    """Whether a gRPC target is on this machine."""
    if target.startswith(_LOCAL_SCHEMES):
        return True
    return all(map(_is_loopback, target[scheme.end() if (scheme := _SCHEME.match(target)) else 0 :].split(",")))


def _is_loopback(address: str) -> bool:
    bracketed = _BRACKETED.fullmatch(address)
    host = bracketed[1] if bracketed else address.partition(":")[0] if address.count(":") <= 1 else address
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read_token(credentials: ClientCredentials) -> str:
    token = os.environ.get(VARIABLE, "") if credentials.token is None else credentials.token
    if not _SENDABLE.fullmatch(token):
        raise ConfigurationError(
            f"the token has a character that headers do not allow; check token= or {VARIABLE} for blanks and line ends"
        )
    return token


def _make_tls(credentials: ClientCredentials) -> grpc.ChannelCredentials | None:
    if credentials.ca is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks the files; gRPC reads them itself
    load_authorities(context, "--tls-ca", credentials.ca)
    key, cert = None, None
    if credentials.key is not None and credentials.cert is not None:
        load_pair(context, credentials.cert, credentials.key)
        key, cert = read_bytes("--tls-key", credentials.key), read_bytes("--tls-cert", credentials.cert)
    return grpc.ssl_channel_credentials(read_bytes("--tls-ca", credentials.ca), key, cert)


_URI_PATTERN: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_GRPC_SCHEMES: Final = frozenset({"dns", "unix", "unix-abstract", "ipv4", "ipv6", "vsock", "xds"})
"""URI schemes that gRPC resolves, with or without slashes."""


def target_of(address: str, credentials: ClientCredentials | None) -> str:
    """Convert an address to a gRPC target. As in the .NET client, http:// means plain text and https:// means TLS.

    Args:
        address: "HOST:PORT", "unix:PATH" or a URI such as "http://127.0.0.1:50051".
        credentials: the caller's credentials, if any.

    Raises:
        ConfigurationError: the address is invalid, or its scheme contradicts the credentials.
    """
    match = _URI_PATTERN.fullmatch(address)
    if match is None or match["scheme"].lower() in _GRPC_SCHEMES:
        return address
    scheme, rest = match["scheme"].lower(), match["rest"].removesuffix("/")
    if scheme not in {"http", "https"} or not rest or set("/?#@") & set(rest):
        raise ConfigurationError(f"{address[:80]!r} is not a server address; use HOST:PORT, such as 127.0.0.1:50051")
    has_authorities = credentials is not None and credentials.ca is not None
    if scheme == "https" and not has_authorities:
        raise ConfigurationError(
            f"https://{rest} means TLS; pass the file of the authorities to trust as ca= (--tls-ca); the system's are "
            "often in /etc/ssl/certs/ca-certificates.crt"
        )
    if scheme == "http" and has_authorities:
        raise ConfigurationError(
            f"http://{rest} means plain text, but ca= (--tls-ca) enables TLS; use https://{rest}, or remove ca="
        )
    return rest

"""Where a client's calls go: what people write, which may be a URI as C# takes it, and what gRPC is told."""

import re
from typing import Final

from predictor.client.credentials import ClientCredentials
from predictor.errors import ConfigurationError

_URI: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_GRPC: Final = frozenset({"dns", "unix", "unix-abstract", "ipv4", "ipv6", "vsock", "xds"})
"""Schemes that gRPC itself reads, with and without slashes."""


def target_of(address: str, given: ClientCredentials | None) -> str:
    """The target as gRPC names it: http:// before it means plain text and https:// TLS, as in C#.

    Args:
        address: "HOST:PORT", "unix:PATH" or a URI such as "http://127.0.0.1:50051".
        given: what the client shows of itself, and by what it knows the server; None: nothing.

    Raises:
        ConfigurationError: the scheme and the credentials contradict each other, or nothing can be reached so.
    """
    found = _URI.fullmatch(address)
    if found is None or found["scheme"].lower() in _GRPC:
        return address
    scheme, rest = found["scheme"].lower(), found["rest"].removesuffix("/")
    if scheme not in {"http", "https"} or not rest or set("/?#@") & set(rest):
        raise ConfigurationError(f"{address[:80]!r} is no address of a server; write HOST:PORT, as in 127.0.0.1:50051")
    _check_transport(scheme, rest, has_authorities=given is not None and given.ca is not None)
    return rest


def _check_transport(scheme: str, rest: str, *, has_authorities: bool) -> None:
    if scheme == "https" and not has_authorities:
        raise ConfigurationError(
            f"https://{rest} means TLS: give the file of the authorities that vouch for the server, ca= (--tls-ca), "
            "which for those that a system knows may be /etc/ssl/certs/ca-certificates.crt"
        )
    if scheme == "http" and has_authorities:
        raise ConfigurationError(
            f"http://{rest} means plain text, but ca= (--tls-ca) asks for TLS; write https://{rest}, or take ca= away"
        )

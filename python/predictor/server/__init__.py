"""The gRPC server."""

from predictor.server.addresses import DEFAULT_ADDRESS, Address, ListenAddress, UnixAddress, parse_listening
from predictor.server.credentials import TlsFiles
from predictor.server.host import serve
from predictor.server.settings import ServeFlags, ServerLimits, ServerSettings

__all__ = [
    "DEFAULT_ADDRESS",
    "Address",
    "ListenAddress",
    "ServeFlags",
    "ServerLimits",
    "ServerSettings",
    "TlsFiles",
    "UnixAddress",
    "parse_listening",
    "serve",
]

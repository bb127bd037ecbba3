"""The gRPC server."""

from predictor.server.addresses import DEFAULT_ADDRESS, Address, Listening, SocketAddress, parse_listening
from predictor.server.credentials import TlsFiles
from predictor.server.main import serve
from predictor.server.settings import ServeFlags, ServerLimits, ServerSettings

__all__ = [
    "DEFAULT_ADDRESS",
    "Address",
    "Listening",
    "ServeFlags",
    "ServerLimits",
    "ServerSettings",
    "SocketAddress",
    "TlsFiles",
    "parse_listening",
    "serve",
]

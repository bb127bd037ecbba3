"""The gRPC server."""

from predictor.server.address import DEFAULT_ADDRESS, Address, Listening, SocketAddress, parse_listening
from predictor.server.certificates import TlsFiles
from predictor.server.flags import ServeFlags
from predictor.server.main import serve
from predictor.server.settings import ServerLimits, ServerSettings

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

"""The gRPC server: translates between the wire and predictor.service, and keeps the process's bounds."""

from predictor.server.run import serve
from predictor.server.settings import DEFAULT_ADDRESS, Address, ServerLimits, ServerSettings

__all__ = ["DEFAULT_ADDRESS", "Address", "ServerLimits", "ServerSettings", "serve"]

"""gRPC over HTTP/2 on asyncio."""

from predictor.server.transport.call import IncomingCall, MethodHandler
from predictor.server.transport.server import HttpServer

__all__ = ["HttpServer", "IncomingCall", "MethodHandler"]

"""gRPC over HTTP/2 on asyncio."""

from predictor.server.transport.call import CallHandler, IncomingCall
from predictor.server.transport.server import HttpServer

__all__ = ["CallHandler", "HttpServer", "IncomingCall"]

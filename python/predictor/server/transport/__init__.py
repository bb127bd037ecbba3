"""gRPC over HTTP/2 on asyncio."""

from predictor.server.transport.call import IncomingCall, MethodHandler

__all__ = ["IncomingCall", "MethodHandler"]

"""gRPC over HTTP/2: a server on asyncio, and that of grpcio."""

from predictor.server.transport.call_server import CallContext, CallServer
from predictor.server.transport.grpcio import GrpcioServer
from predictor.server.transport.server import HttpServer

__all__ = ["CallContext", "CallServer", "GrpcioServer", "HttpServer"]

"""Python client of the server, without torch: the methods of `Forecaster` over gRPC.

    with QuantraClient("127.0.0.1:50051", "aapl") as client:
        forecast = client.predict(BarPanel.read("aapl.csv"))

The client raises the same exceptions as `Forecaster`, and UnavailableError if it cannot reach the server.
"""

from predictor.client.async_client import AsyncQuantraClient
from predictor.client.calls import DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S
from predictor.client.connection import ClientCredentials
from predictor.client.sessions import AsyncBarSession, BarSession, PushAccepted
from predictor.client.streams import DEFAULT_IN_FLIGHT, StreamResponse
from predictor.client.sync_client import QuantraClient

__all__ = [
    "DEFAULT_IN_FLIGHT",
    "DEFAULT_TIMEOUT_S",
    "MAX_TIMEOUT_S",
    "AsyncBarSession",
    "AsyncQuantraClient",
    "BarSession",
    "ClientCredentials",
    "PushAccepted",
    "QuantraClient",
    "StreamResponse",
]

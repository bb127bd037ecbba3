"""The thin Python client: the methods of Forecaster against a server, without torch.

    with QuantraClient("127.0.0.1:50051", "aapl") as client:
        forecast = client.predict(BarPanel.read("aapl.csv"))

Errors are the same exceptions as in-process ones. UnavailableError means that no server answered.
"""

from predictor.client.async_client import AsyncQuantraClient
from predictor.client.calls import DEFAULT_TIMEOUT_S, LONGEST_TIMEOUT_S
from predictor.client.connection import ClientCredentials
from predictor.client.sessions import AsyncBarSession, BarSession, PushAccepted
from predictor.client.streams import DEFAULT_IN_FLIGHT, StreamResponse
from predictor.client.sync_client import QuantraClient

__all__ = [
    "DEFAULT_IN_FLIGHT",
    "DEFAULT_TIMEOUT_S",
    "LONGEST_TIMEOUT_S",
    "AsyncBarSession",
    "AsyncQuantraClient",
    "BarSession",
    "ClientCredentials",
    "PushAccepted",
    "QuantraClient",
    "StreamResponse",
]

"""The calls of quantra.v1 and of the open inference protocol, from request bytes to response bytes.

The gRPC server and the embedded server pass bytes and a context, and get bytes or a QuantraError. Nothing here blocks:
long work runs on threads of the service.
"""

from predictor.calls.admin import AdminCalls
from predictor.calls.ledger import LedgerCalls
from predictor.calls.prediction import PredictionCalls
from predictor.calls.streams import OpenCall

__all__ = ["AdminCalls", "LedgerCalls", "OpenCall", "PredictionCalls"]

"""How a server is watched: what is kept of its calls, and who is told.

    instruments.py  all of it, put together
    calls.py        a call from its arrival to its end, and whoever is told of it
    access.py       one line of the log a call
    metrics.py      numbers for Prometheus
    scrape.py       where they are read
    tracing.py      spans for OpenTelemetry

Nothing that callers send becomes a label, and no value, token or path is kept: models are named as they are loaded,
calls as the protocol names them.
"""

from predictor.server.monitoring.access_log import AccessLog
from predictor.server.monitoring.instruments import Instruments
from predictor.server.monitoring.metrics import ServerGauges
from predictor.server.monitoring.metrics_port import MetricsPort
from predictor.server.monitoring.observed_calls import ArrivedCall, CallObserver, CallObservers, EndedCall, ObservedCall

__all__ = [
    "AccessLog",
    "ArrivedCall",
    "CallObserver",
    "CallObservers",
    "EndedCall",
    "Instruments",
    "MetricsPort",
    "ObservedCall",
    "ServerGauges",
]

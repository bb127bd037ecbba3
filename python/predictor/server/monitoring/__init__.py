"""Monitoring of a server: access log, Prometheus metrics and OpenTelemetry spans.

No input of callers becomes a label, and no value, token or path is recorded. Labels are the names of loaded models and
of the protocol's calls.
"""

from predictor.server.monitoring.access_log import AccessLog
from predictor.server.monitoring.ledger_gauges import LedgerGauges
from predictor.server.monitoring.metrics import Metrics, ServerGauges
from predictor.server.monitoring.metrics_port import MetricsPort
from predictor.server.monitoring.observed_calls import CallObserver, CallObservers, ObservedCall

__all__ = [
    "AccessLog",
    "CallObserver",
    "CallObservers",
    "LedgerGauges",
    "Metrics",
    "MetricsPort",
    "ObservedCall",
    "ServerGauges",
]

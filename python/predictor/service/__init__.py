"""The use cases, without wire types: what every door (gRPC, in-process, pythonnet) calls, and all that it calls.

    service.py     what can be asked
    served.py      which models are served, and how others take their place
    waiting.py     what waits: one queue, bounded in calls, rows and bytes
    lanes.py       the threads that answer
    observing.py   what is noted of a request, for whoever observes it
    explanations.py  what the explaining thread works on
    traffic.py     how explanations give way to predictions

Work runs on threads of its own and comes back as futures. Predictions have one thread per model, which takes all that
waits; explanations have one thread for all, over an attribution view of their own, so that a prediction never waits
for an explanation. While predictions come, explanations pause between their steps, because two threads of one
interpreter hold each other up.
"""

from predictor.observation import Observation, Observer
from predictor.service.explanations import ExplanationRequest, GlobalExplanationRequest
from predictor.service.request_queue import QueuedRequest, RequestQueue
from predictor.service.served_models import ModelWorkers
from predictor.service.service import PredictionService
from predictor.service.workers import ExplanationWorker, PredictionRequest

__all__ = [
    "ExplanationRequest",
    "ExplanationWorker",
    "GlobalExplanationRequest",
    "ModelWorkers",
    "Observation",
    "Observer",
    "PredictionRequest",
    "PredictionService",
    "QueuedRequest",
    "RequestQueue",
]

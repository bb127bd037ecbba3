"""The prediction service: a request queue, a worker per model, and one explanation worker.

Every front end (gRPC, in-process, pythonnet) calls it; it knows no wire types. Results are futures. Each model has one
prediction thread, which takes all waiting requests as one batch; a quick batch can run on the caller's thread instead.
All explanations share one other thread, so a prediction never waits for an explanation. Explanations pause between
steps while predictions arrive, because threads of one interpreter slow each other down.
"""

from predictor.call_context import Observation, Observer
from predictor.service.explanations import Simulation
from predictor.service.forecast_recorder import ForecastRecorder
from predictor.service.light_future import LightFuture
from predictor.service.request_queue import LazyRequest, QueuedRequest, RequestQueue
from predictor.service.served_models import ServedModels, ServedSnapshot
from predictor.service.service import PredictionService
from predictor.service.workers import ModelWorker, PredictionRequest, StepWorker, create_request

__all__ = [
    "ForecastRecorder",
    "LazyRequest",
    "LightFuture",
    "ModelWorker",
    "Observation",
    "Observer",
    "PredictionRequest",
    "PredictionService",
    "QueuedRequest",
    "RequestQueue",
    "ServedModels",
    "ServedSnapshot",
    "Simulation",
    "StepWorker",
    "create_request",
]
